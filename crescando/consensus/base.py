"""The contract of uniform FIFO atomic broadcast among routers (RB13 §4.4, §5.6).

`V` is the type of proposed values, opaque to this layer. An implementation is
a pure core: inputs are messages, sessions and time; outputs are collected and
taken by the router that owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from crescando.types import ProcessId

V = TypeVar("V")


class Ballot(NamedTuple):
    """A proposal number that only one member can open.

    Ordered by `attempt`; `node`, which contains the incarnation, breaks ties.
    """

    attempt: int
    node: ProcessId


NO_BALLOT = Ballot(0, ProcessId("", "", 0))
"""Below every ballot that a member can open."""


@dataclass(slots=True)
class BroadcastOutput(Generic[V]):
    """What one turn of an atomic broadcast core gives.

    Attributes
    ----------
    send : list of (ProcessId, message)
    learned : list of (int, V or None)
        Decided instances, in order and without gaps; None is a no-op.
    install : tuple of (int, Any) or None
        Replace the state machine by this snapshot of the given instance,
        before `learned`.
    snapshot_for : list of ProcessId
        Members so far behind that they need a snapshot of the state machine.
    wake_at_s : float or None
    """

    send: list[tuple[ProcessId, Any]] = field(default_factory=list)
    learned: list[tuple[int, V | None]] = field(default_factory=list)
    install: tuple[int, Any] | None = None
    snapshot_for: list[ProcessId] = field(default_factory=list)
    wake_at_s: float | None = None


class AtomicBroadcast(Protocol[V]):
    """One member of an atomic broadcast group.

    Guarantees: all members learn the same values in the same instances; a
    value learned by one is learned by every correct member; only proposed
    values are learned. Values proposed by one leader are learned in the order
    of their proposal, as long as it leads.
    """

    @property
    def is_leader(self) -> bool:
        """Whether this member may propose; two members may both believe so, safely."""
        ...

    @property
    def ballot(self) -> Ballot:
        """The highest ballot this member has promised or opened."""
        ...

    @property
    def leader(self) -> ProcessId | None:
        """Whom this member believes to lead."""
        ...

    @property
    def n_open(self) -> int:
        """How many instances this leader has proposed and not yet learned."""
        ...

    @property
    def learned(self) -> int:
        """Every instance up to this one has been given out as learned."""
        ...

    def can_propose(self) -> bool:
        """Whether `propose` would be taken now (leader, and the window is open)."""
        ...

    def propose(self, value: V) -> int:
        """Propose a value in the next instance, and say which that is."""
        ...

    def open_values(self) -> list[V]:
        """Give the values this leader has proposed and not yet learned."""
        ...

    def observe(self, ballot: Ballot, now_s: float) -> None:
        """Learn from outside that a ballot exists; a leader of a lower one steps down."""
        ...

    def is_backed(self, now_s: float) -> bool:
        """Whether a majority has answered this leader within the election time."""
        ...

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None:
        """Send a member the snapshot that `snapshot_for` asked for."""
        ...

    def on_start(self, now_s: float) -> None:
        """Begin."""
        ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session with a member has begun."""
        ...

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session with a member has ended."""
        ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of a member."""
        ...

    def flush(self, now_s: float) -> BroadcastOutput[V]:
        """End the turn."""
        ...
