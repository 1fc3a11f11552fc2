"""Peers that are servers behind sockets: lanes to the leader, and how many of them.

Rules of the file: no protocol is known here. Clients connect to the leader, which
saves every peer a hop.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import abstractmethod
from collections.abc import Coroutine
from functools import partial
from typing import Any, ClassVar, TypeVar

from benchmarks.peers.lane import Lane, Listener
from benchmarks.peers.load import ClosedLoop, Probe
from benchmarks.peers.processes import HOST
from benchmarks.peers.result import PeerError, percentile_ms
from benchmarks.peers.trio import MEMBERS, WARM_UP_S, Load, Trio, member_name

GREETING_LIMIT_S = 10.0
GAP_LIMIT_S = 60.0
# Writes of a probe, far from those of the closed loops.
PROBE_WRITES = 1 << 40
PROBE_PAYLOAD = b"v" * 100

T = TypeVar("T")


def event_loop() -> asyncio.AbstractEventLoop:
    """Give the fastest event loop there is: a peer must not look slow because its client is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to its end, in a loop of its own."""
    with asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(coroutine)


class ServerPeer(Trio):
    """Three servers.

    Attributes
    ----------
    program : str
        The executable that must be on the path.
    package : str
        Where to get it.
    lane_counts : tuple of int
        Numbers of connections to try; each setting is measured with that which its warm-up found fastest.
    """

    program: ClassVar[str]
    package: ClassVar[str]
    lane_counts: ClassVar[tuple[int, ...]] = (1, 4, 16, 64)

    def __init__(self) -> None:
        super().__init__()
        self._lanes_chosen: dict[tuple[int, int, int], int] = {}

    @abstractmethod
    def port(self, member: int) -> int:
        """Give the port for clients of a member."""

    @abstractmethod
    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        """Give an unconnected lane."""

    def available(self) -> str:
        if shutil.which(self.program) is None:
            return f"{self.program} is not on the path; install {self.package}"
        return ""

    def warm_up(self, in_flight: int, payload: bytes, batch: int) -> None:
        """Load the peer through each number of connections, and keep to the fastest."""
        setting = (in_flight, len(payload), batch)
        if setting in self._lanes_chosen:
            super().warm_up(in_flight, payload, batch)
            return
        rates: dict[int, float] = {}
        for count in sorted({min(count, in_flight) for count in self.lane_counts}):
            self._lanes_chosen[setting] = count
            load = self.measure(in_flight, payload, WARM_UP_S, batch)
            rates[count] = load.operations / load.seconds
        self._lanes_chosen[setting] = max(rates, key=rates.__getitem__)

    def load(self, first_write: int, in_flight: int, payload: bytes, seconds: float, batch: int) -> Load:
        count = self._lanes_chosen.get((in_flight, len(payload), batch), 1)
        leader = self.leader()

        async def measure() -> Load:
            loop = ClosedLoop(first_write, batch)
            lanes: list[Lane] = []
            try:
                for _ in range(count):
                    lanes.append(await self._connect(leader, payload, batch, loop))
                await loop.run(lanes, in_flight, seconds)
            except (OSError, TimeoutError) as error:
                raise PeerError(f"{self.name} cannot be reached: {error}") from error
            finally:
                for lane in lanes:
                    lane.close()
            waits_s = sorted(loop.waits_s)
            return Load(
                operations=loop.operations,
                seconds=loop.seconds,
                p50_ms=percentile_ms(waits_s, 0.5),
                p99_ms=percentile_ms(waits_s, 0.99),
                how=f"connections: {count}",
            )

        return run_coroutine(measure())

    def gap_s(self) -> float | None:
        leader = self.leader()
        survivors = [member for member in range(MEMBERS) if member != leader]

        async def probe() -> float:
            connects = [partial(self._connect, member, PROBE_PAYLOAD, 1) for member in survivors]
            kill = partial(self.group.kill, member_name(leader))
            return await Probe(PROBE_WRITES).gap_s(connects, kill, GAP_LIMIT_S)

        return run_coroutine(probe())

    async def _connect(self, member: int, payload: bytes, batch: int, listener: Listener) -> Lane:
        _, lane = await asyncio.get_running_loop().create_connection(
            lambda: self.lane(payload, batch, listener), HOST, self.port(member)
        )
        await asyncio.wait_for(lane.ready, GREETING_LIMIT_S)
        return lane
