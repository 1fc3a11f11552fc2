"""What all peers share that are three servers behind sockets: start, load, read back, kill, stop.

Rules of the file: no protocol is known here. A subclass says how its servers are
started, what a lane is, who leads, and what was applied; everything that makes
the comparison fair is done here, the same for all: a warm-up of its own, a
closed loop, and reading back from every member before a figure is given.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from benchmarks.peers.lane import Lane, Listener
from benchmarks.peers.load import ClosedLoop, Probe
from benchmarks.peers.processes import HOST, Group
from benchmarks.peers.result import PeerError, PeerResult, percentile_ms

MEMBERS = 3
STARTS = 3
WARM_UP_S = 0.5
APPLIED_LIMIT_S = 30.0
GREETING_LIMIT_S = 10.0
GAP_LIMIT_S = 60.0
SAMPLES = 8


def event_loop() -> asyncio.AbstractEventLoop:
    """Give the fastest event loop there is: a peer must not look slow because its client is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_coroutine(coroutine: Any) -> Any:
    """Run to its end, in a loop of its own."""
    with asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(coroutine)


class ServerPeer(ABC):
    """Three servers on loopback.

    Attributes
    ----------
    name : str
        As on the command line.
    program : str
        The executable that must be on the path.
    package : str
        Where to get it.
    lacks : str
        What this peer does not do that crescando does.
    lanes_max : int
        Most connections; the number at which the peer was fastest.
    """

    name: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str]
    lacks: ClassVar[str]
    lanes_max: ClassVar[int]
    # Just-in-time compilers need longer.
    first_warm_up_s: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.group: Group | None = None
        self._version = ""
        self._next_write = 0
        self._payload_bytes = 0

    # What a subclass says.

    @abstractmethod
    def version(self) -> str:
        """Give the version that the program states."""

    @abstractmethod
    def launch(self, group: Group) -> None:
        """Start three servers on free ports and wait until they serve writes."""

    @abstractmethod
    def port(self, member: int) -> int:
        """Give the port for clients of a member."""

    @abstractmethod
    def leader(self) -> int:
        """Give the member that orders writes; ask it anew."""

    @abstractmethod
    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        """Give an unconnected lane."""

    @abstractmethod
    def applied(self, member: int) -> int:
        """Give the number of writes that `member` has applied since it was started."""

    @abstractmethod
    def read(self, member: int, write: int) -> bytes | None:
        """Give what `member` holds under the key of a write."""

    # What all do alike.

    def available(self) -> str:
        """Give "" if this peer can run here, else why not."""
        if shutil.which(self.program) is None:
            return f"{self.program} is not on the path; install {self.package}"
        return ""

    def start(self) -> None:
        """Start the servers.

        Raises
        ------
        PeerError
            If they do not serve, after tries on other ports.
        """
        self._version = self.version()
        for attempt in range(STARTS):
            self.group = Group(self.name)
            self._next_write = 0
            try:
                self.launch(self.group)
                if self.first_warm_up_s:
                    self._measure(64, b"w" * 100, self.first_warm_up_s, 1)
                return
            except PeerError:
                self.stop()
                # A free port may have been taken meanwhile.
                if attempt == STARTS - 1:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the servers; harmless when there are none."""
        if self.group is not None:
            self.group.close()
            self.group = None

    def run(self, *, in_flight: int, payload_bytes: int, seconds: float, batch: int = 1) -> PeerResult:
        """Measure a closed loop and read back what it wrote.

        Parameters
        ----------
        in_flight : int
            Requests outstanding.
        payload_bytes : int
            Bytes of each value.
        seconds : float
            For how long new requests are sent.
        batch : int
            Writes in one request.

        Raises
        ------
        PeerError
            If a write is refused or lost, or the members do not hold what was acknowledged.
        """
        payload = b"v" * payload_bytes
        self._measure(in_flight, payload, WARM_UP_S, batch)
        before = self._next_write
        loop, lanes = self._measure(in_flight, payload, seconds, batch)
        checksum = self._read_back(before, payload)
        waits_s = sorted(loop.waits_s)
        return PeerResult(
            name=self.name,
            version=self._version,
            in_flight=in_flight,
            payload_bytes=payload_bytes,
            operations=loop.operations,
            seconds=loop.seconds,
            rate_s=loop.operations / loop.seconds,
            p50_ms=percentile_ms(waits_s, 0.5),
            p99_ms=percentile_ms(waits_s, 0.99),
            checksum=checksum,
            note=f"{lanes} connections, batch {batch}, plain TCP; {self.lacks}",
        )

    def kill_leader_gap_ms(self) -> float | None:
        """Kill the leader (SIGKILL); give the time until a survivor acknowledges a write sent after it.

        The servers are started anew afterwards, so that the next run meets three.
        """
        group, leader = self._group(), self.leader()
        survivors = [member for member in range(MEMBERS) if member != leader]

        async def probe() -> float:
            # Writes far from those of the closed loops.
            gap = Probe(first_write=1 << 40)
            connects = [partial(self._connect, member, b"v" * 100, 1) for member in survivors]
            return await gap.gap_s(connects, lambda: group.kill(member_name(leader)), GAP_LIMIT_S)

        gap_s: float = run_coroutine(probe())
        self.stop()
        self.start()
        return gap_s * 1e3

    def _group(self) -> Group:
        if self.group is None:
            raise PeerError(f"{self.name} is not started")
        return self.group

    async def _connect(self, member: int, payload: bytes, batch: int, listener: Listener) -> Lane:
        _, lane = await asyncio.get_running_loop().create_connection(
            lambda: self.lane(payload, batch, listener), HOST, self.port(member)
        )
        await asyncio.wait_for(lane.ready, GREETING_LIMIT_S)
        return lane

    def _measure(self, in_flight: int, payload: bytes, seconds: float, batch: int) -> tuple[ClosedLoop, int]:
        leader = self.leader()

        async def measure() -> tuple[ClosedLoop, int]:
            loop = ClosedLoop(self._next_write, batch)
            lanes: list[Lane] = []
            try:
                for _ in range(min(in_flight, self.lanes_max)):
                    lanes.append(await self._connect(leader, payload, batch, loop))
                await loop.run(lanes, in_flight, seconds)
            except (OSError, TimeoutError) as error:
                raise PeerError(f"{self.name} cannot be reached: {error}") from error
            finally:
                for lane in lanes:
                    lane.close()
            return loop, len(lanes)

        done: tuple[ClosedLoop, int] = run_coroutine(measure())
        self._next_write = done[0].next_write
        return done

    def _read_back(self, before: int, payload: bytes) -> int:
        """Give the writes since `before` that every member has applied; wait for the slower ones."""
        counts: list[int] = []

        def all_applied() -> bool:
            counts[:] = [self.applied(member) for member in range(MEMBERS)]
            return min(counts) >= self._next_write

        self._group().wait_until(all_applied, f"members that hold {self._next_write} writes", APPLIED_LIMIT_S)
        if max(counts) != self._next_write:
            raise PeerError(f"{self._next_write} writes were acknowledged, the members applied {counts}")
        # Of the member that is farthest from the client: one that was not written to.
        member = (self.leader() + 1) % MEMBERS
        step = max(1, (self._next_write - before) // SAMPLES)
        for write in range(before, self._next_write, step):
            if self.read(member, write) != payload:
                raise PeerError(f"{self.name}: a member has another value than was acknowledged")
        return counts[member] - before


def member_name(member: int) -> str:
    """Give the name of a member's process."""
    return f"member{member}"


def stated_version(command: Sequence[str], pick: Callable[[str], str]) -> str:
    """Run a program that states its version and pick the version from what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return pick(done.stdout + done.stderr)
