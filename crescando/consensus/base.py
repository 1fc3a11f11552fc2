"""The contract of uniform FIFO atomic broadcast among routers (RB13 §4.4, §5.6).

`V` is the type of proposed values, opaque to this layer. An implementation is
a pure core: inputs are messages, sessions and time; outputs are collected and
taken by the router that owns it.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

V = TypeVar("V")


EPOCH_SHIFT = 40
"""Bits of an attempt below its cluster epoch; no epoch lives through a trillion elections."""


class Ballot(NamedTuple):
    """A proposal number that only one member can open.

    Ordered by `attempt`, whose high bits are the cluster epoch, so that every
    ballot of an epoch is above all of the epochs before; `node`, which contains
    the incarnation, breaks ties.
    """

    attempt: int
    node: ProcessId

    @property
    def epoch(self) -> int:
        """The cluster epoch that this ballot belongs to."""
        return self.attempt >> EPOCH_SHIFT


NO_BALLOT = Ballot(0, ProcessId("", "", 0))
"""Below every ballot that a member can open."""


class BroadcastOutput(msgspec.Struct, Generic[V], eq=False):
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
    membership : Membership or None
        The newest one, if a change was learned in this turn.
    stop : str
        Not empty: this member must stop for good, and why.
    wake_at_s : float or None
    """

    # Every turn makes one; the fields of a struct are filled in without a line of Python.
    send: list[tuple[ProcessId, Any]] = []
    learned: list[tuple[int, V | None]] = []
    install: tuple[int, Any] | None = None
    snapshot_for: list[ProcessId] = []
    membership: Membership | None = None
    stop: str = ""
    wake_at_s: float | None = None


class AtomicBroadcast(Protocol[V]):
    """One member of an atomic broadcast group.

    Guarantees: all members learn the same values in the same instances; a
    value learned by one is learned by every correct member; only proposed
    values are learned. Values proposed by one leader are learned in the order
    of their proposal, as long as it leads.

    May have an attribute `is_quiet`: whether the last message leaves nothing
    for `flush` to tell that did not come of time or of an earlier message. One that
    has it need not be asked by `flush` either while it is told nothing else, before
    the time that it has stated.
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
    def membership(self) -> Membership:
        """The newest membership this member has learned; perhaps not in force yet."""
        ...

    @property
    def peers(self) -> tuple[ProcessId, ...]:
        """Every other router with which a session is wanted."""
        ...

    @property
    def former(self) -> tuple[ProcessId, ...]:
        """Routers that were members, and perhaps do not know that they are none any more."""
        ...

    @property
    def epoch(self) -> int:
        """The cluster epoch of this group; one that is begun anew after a loss has a higher one."""
        ...

    @property
    def is_dismissed(self) -> bool:
        """Whether this member was removed: its node may come back as a new incarnation."""
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
        """Whether a majority has answered this leader within the election time.

        A matter of times, on which no promise may rest: another leader may have
        been elected since, and waits for nothing.
        """
        ...

    @property
    def round(self) -> int:
        """The number of the last round in which this member has asked all others whether they follow it."""
        ...

    def begin_round(self, now_s: float) -> None:
        """Ask all others now; only a leader does."""
        ...

    @property
    def answered_round(self) -> int:
        """The highest round that a majority has answered under the present ballot; 0 without any.

        When that round was begun no other leader had had anything decided: a majority had not
        promised a higher ballot yet.
        """
        ...

    def request_change(self, change: Change) -> str:
        """Propose a change of the membership.

        Returns
        -------
        str
            Empty if it was proposed; `membership` tells when it is learned. Else
            why not.
        """
        ...

    def attest(self, instance: int, digest: bytes) -> None:
        """State the digest of this member's state machine after an instance.

        Members compare; one whose digest differs from a majority's stops.
        """
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

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session with a member cannot be had now."""
        ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of a member."""
        ...

    def flush(self, now_s: float) -> BroadcastOutput[V]:
        """End the turn."""
        ...
