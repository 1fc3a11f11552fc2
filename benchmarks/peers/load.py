"""Two ways of using lanes: a closed loop that measures, and a probe that waits for a peer to come back.

Rules of the file: no protocol is known here. One event loop, one thread; the
clock is the monotonic one, which processes of one machine share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.peers.lane import Lane, Listener
from benchmarks.peers.result import PeerError

# A survivor that accepts a connection but greets nobody is asked anew.
GREETING_LIMIT_S = 0.5
DRAIN_LIMIT_S = 30.0
PROBE_EVERY_S = 0.01

Connect = Callable[[Listener], Awaitable[Lane]]
"""Opens one greeted lane that reports to the given listener; OSError where the peer does not answer."""


class ClosedLoop:
    """Keep a fixed number of requests on their way for a while, then wait for the last.

    Parameters
    ----------
    first_write : int
        Number of the first write; the following ones get the following numbers.
    batch : int
        Writes in one request.
    """

    def __init__(self, first_write: int, batch: int) -> None:
        self.next_write = first_write
        self.operations = 0
        self.waits_s: list[float] = []
        self.seconds = 0.0
        self._batch = batch
        self._open = 0
        self._end_s = 0.0
        self._done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def run(self, lanes: Sequence[Lane], in_flight: int, seconds: float) -> None:
        """Measure.

        Raises
        ------
        PeerError
            If a write is refused, a connection is lost, or the last answers do not come.
        """
        began_s = time.monotonic()
        self._end_s = began_s + seconds
        shares = [in_flight // len(lanes) + (n < in_flight % len(lanes)) for n in range(len(lanes))]
        for lane, share in zip(lanes, shares, strict=True):
            self._submit(lane, share)
        try:
            last_s = await asyncio.wait_for(self._done, seconds + DRAIN_LIMIT_S)
        except TimeoutError as error:
            raise PeerError(f"{self._open} requests were not answered within {DRAIN_LIMIT_S:g} s") from error
        self.seconds = last_s - began_s

    def on_settled(self, lane: Lane, sent_s: Sequence[float]) -> None:
        now_s = time.monotonic()
        self.waits_s.extend([now_s - sent for sent in sent_s])
        self.operations += len(sent_s) * self._batch
        self._open -= len(sent_s)
        if now_s < self._end_s:
            self._submit(lane, len(sent_s))
        elif not self._open and not self._done.done():
            self._done.set_result(now_s)

    def on_refused(self, lane: Lane, reason: str) -> None:
        self._fail(f"a write was refused: {reason}")

    def on_lost(self, lane: Lane) -> None:
        self._fail("a connection was lost")

    def _submit(self, lane: Lane, count: int) -> None:
        first, batch = self.next_write, self._batch
        self.next_write += count * batch
        self._open += count
        lane.submit([range(start, start + batch) for start in range(first, self.next_write, batch)])

    def _fail(self, reason: str) -> None:
        # Lanes are closed when the run is over; that is no failure.
        if not self._done.done():
            self._done.set_exception(PeerError(reason))


class Probe:
    """Offer a write to each survivor every 10 ms; tell when the first of them is acknowledged.

    A request that waited for the dead leader may be lost or time out late, so
    newer ones are sent without waiting for it: the gap found is the peer's own,
    not its client's time-out.
    """

    def __init__(self, first_write: int) -> None:
        self._write = first_write
        self._killed_s = float("inf")
        self._first: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def gap_s(self, connects: Sequence[Connect], kill: Callable[[], float], limit_s: float) -> float:
        """Call `kill` while the survivors are probed; give the time from then to the first acknowledgement.

        Parameters
        ----------
        connects : sequence of Connect
            One for each survivor.
        kill : callable
            Kills the leader and gives the time of it, on the monotonic clock.
        limit_s : float
            How long to wait at most.

        Raises
        ------
        PeerError
            If nothing is acknowledged in that time.
        """
        probes = [asyncio.ensure_future(self._offer(connect)) for connect in connects]
        try:
            await asyncio.sleep(10 * PROBE_EVERY_S)
            self._killed_s = kill()
            return await asyncio.wait_for(self._first, limit_s) - self._killed_s
        except TimeoutError as error:
            raise PeerError(f"nothing was acknowledged within {limit_s:g} s of the kill") from error
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)

    def on_settled(self, lane: Lane, sent_s: Sequence[float]) -> None:
        # An answer to what was sent before the kill may have been decided before it.
        if any(sent > self._killed_s for sent in sent_s) and not self._first.done():
            self._first.set_result(time.monotonic())

    def on_refused(self, lane: Lane, reason: str) -> None:
        """Keep offering: between two leaders a refusal is an honest answer."""

    def on_lost(self, lane: Lane) -> None:
        """Keep offering: a server without a leader may drop its clients."""

    async def _offer(self, connect: Connect) -> None:
        while True:
            try:
                lane = await asyncio.wait_for(connect(self), GREETING_LIMIT_S)
            except (OSError, TimeoutError):
                await asyncio.sleep(PROBE_EVERY_S)
                continue
            try:
                while not lane.transport.is_closing():
                    lane.submit([range(self._write, self._write + 1)])
                    self._write += 1
                    await asyncio.sleep(PROBE_EVERY_S)
            finally:
                lane.close()
