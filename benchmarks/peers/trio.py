"""What all peers share that are three processes: start, warm up, measure, read back, stop.

Rules of the file: neither protocols nor sockets are known here. What makes the
comparison fair is done here, the same for all: a warm-up of its own, a closed
loop, and reading back from every member before a figure is given.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.peers.processes import Group
from benchmarks.peers.result import PeerError, PeerResult

MEMBERS = 3
STARTS = 3
WARM_UP_S = 0.5
APPLIED_LIMIT_S = 30.0
SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What one closed loop did: writes acknowledged, their time, their waits, and how it was driven."""

    operations: int
    seconds: float
    p50_ms: float
    p99_ms: float
    how: str


class Trio(ABC):
    """Three processes on loopback that apply the same writes to a key-value map.

    Attributes
    ----------
    name : str
        As on the command line.
    lacks : str
        What this peer does not do that crescando does, and what was set in its favour.
    """

    name: ClassVar[str]
    lacks: ClassVar[str]

    def __init__(self) -> None:
        self._group: Group | None = None
        self._version = ""
        # Writes are numbered from 0 and never repeated, so that keys count writes.
        self._next_write = 0

    # What a subclass says.

    @abstractmethod
    def available(self) -> str:
        """Give "" if this peer can run here, else why not."""

    @abstractmethod
    def version(self) -> str:
        """Give the version that the peer states."""

    @abstractmethod
    def launch(self, group: Group) -> None:
        """Start three processes on free ports and wait until they serve writes."""

    @abstractmethod
    def leader(self) -> int:
        """Give the member that orders writes; ask it anew."""

    @abstractmethod
    def load(self, first_write: int, in_flight: int, payload: bytes, seconds: float, batch: int) -> Load:
        """Send the writes from `first_write` on in a closed loop; see `run`."""

    @abstractmethod
    def applied(self, member: int) -> int:
        """Give the number of writes that `member` has applied since it was started."""

    @abstractmethod
    def read(self, member: int, write: int) -> bytes | None:
        """Give what `member` holds under the key of a write."""

    @abstractmethod
    def gap_s(self) -> float | None:
        """Kill the leader; give the time until a survivor acknowledges a write; None if none ever will."""

    # What all do alike.

    @property
    def group(self) -> Group:
        """The processes; PeerError when there are none."""
        if self._group is None:
            raise PeerError(f"{self.name} is not started")
        return self._group

    def start(self) -> None:
        """Start the processes.

        Raises
        ------
        PeerError
            If they do not serve, after tries on other ports.
        """
        self.stop()
        self._version = self.version()
        for attempt in range(STARTS):
            self._group = Group(self.name)
            self._next_write = 0
            try:
                self.launch(self._group)
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
        """End the processes; harmless when there are none."""
        if self._group is not None:
            self._group.close()
            self._group = None

    def run(self, *, in_flight: int, payload_bytes: int, seconds: float, batch: int = 1) -> PeerResult:
        """Measure a closed loop and read back what it wrote.

        Parameters
        ----------
        in_flight : int
            Requests outstanding, at least 1.
        payload_bytes : int
            Bytes of each value, at least 1.
        seconds : float
            For how long new requests are sent.
        batch : int
            Writes in one request, at least 1.

        Raises
        ------
        ValueError
            If an argument is too small.
        PeerError
            If a write is refused or lost, or the members do not hold what was acknowledged.
        """
        if min(in_flight, payload_bytes, batch) < 1 or seconds <= 0:
            raise ValueError(f"nothing to measure: {in_flight=} {payload_bytes=} {seconds=} {batch=}")
        payload = b"v" * payload_bytes
        self.warm_up(in_flight, payload, batch)
        before = self._next_write
        load = self.measure(in_flight, payload, seconds, batch)
        return PeerResult(
            name=self.name,
            version=self._version,
            in_flight=in_flight,
            payload_bytes=payload_bytes,
            operations=load.operations,
            seconds=load.seconds,
            rate_s=load.operations / load.seconds,
            p50_ms=load.p50_ms,
            p99_ms=load.p99_ms,
            checksum=self._read_back(before, payload),
            note=f"{load.how}, batch {batch}, plain TCP; {self.lacks}",
        )

    def kill_leader_gap_ms(self) -> float | None:
        """Kill the leader (SIGKILL); give the time until a survivor acknowledges a write sent after it.

        The processes are started anew afterwards, so that the next run meets three.
        """
        gap_s = self.gap_s()
        if gap_s is None:
            return None
        self.start()
        return gap_s * 1e3

    def warm_up(self, in_flight: int, payload: bytes, batch: int) -> None:
        """Load the peer as it is about to be measured."""
        self.measure(in_flight, payload, WARM_UP_S, batch)

    def measure(self, in_flight: int, payload: bytes, seconds: float, batch: int) -> Load:
        """Run one closed loop on fresh writes."""
        load = self.load(self._next_write, in_flight, payload, seconds, batch)
        self._next_write += load.operations
        return load

    def _read_back(self, before: int, payload: bytes) -> int:
        """Give the writes since `before` that every member has applied; wait for the slower ones."""
        counts: list[int] = []

        def all_applied() -> bool:
            counts[:] = [self.applied(member) for member in range(MEMBERS)]
            return min(counts) >= self._next_write

        self.group.wait_until(all_applied, f"members that hold {self._next_write} writes", APPLIED_LIMIT_S)
        if max(counts) != self._next_write:
            raise PeerError(f"{self._next_write} writes were acknowledged, the members applied {counts}")
        # A member that no client wrote to.
        follower = (self.leader() + 1) % MEMBERS
        step = max(1, (self._next_write - before) // SAMPLES)
        for write in range(before, self._next_write, step):
            if self.read(follower, write) != payload:
                raise PeerError(f"{self.name}: a member has another value than was acknowledged")
        return counts[follower] - before


def member_name(member: int) -> str:
    """Give the name of a member's process."""
    return f"member{member}"


def stated_version(command: Sequence[str], pick: Callable[[str], str]) -> str:
    """Run a program that states its version and pick the version from what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    try:
        return pick(done.stdout + done.stderr)
    except IndexError:
        return "unknown"
