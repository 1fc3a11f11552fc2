"""The proposer role of one ballot: phase 1 once, then a window of open instances.

Rules of the file: a leader proposes in an instance at most one value per
ballot (INV-4); what phase 1 found voted for is proposed again, holes below the
highest vote become no-ops; an instance is decided when a quorum has accepted it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.messages import Accept, Promise
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

V = TypeVar("V")


@dataclass(slots=True)
class Open(Generic[V]):
    """An instance that is proposed and not yet decided."""

    value: V | None
    accepted: set[ProcessId] = field(default_factory=set)


@dataclass(slots=True)
class Leader(Generic[V]):
    """A proposer of one ballot.

    Parameters
    ----------
    ballot : Ballot
    membership : Membership
    first : int
        The lowest instance this proposer did not know to be decided.
    """

    ballot: Ballot
    membership: Membership
    first: int
    promises: dict[ProcessId, Promise[V]] = field(default_factory=dict)
    is_prepared: bool = False
    next_instance: int = 0
    open: dict[int, Open[V]] = field(default_factory=dict)

    def on_promise(self, peer: ProcessId, promise: Promise[V]) -> bool:
        """Count a promise; True the moment a quorum has promised."""
        if self.is_prepared or promise.ballot != self.ballot:
            return False
        self.promises[peer] = promise
        return self.membership.is_quorum(self.promises.keys())

    def prepare(self) -> tuple[dict[int, V | None], list[int]]:
        """End phase 1.

        Returns
        -------
        decided : dict of int to value
            Instances that some promiser knows to be decided.
        proposed : list of int
            Instances to be accepted anew, now open.

        References
        ----------
        Lamport 2001, §3: re-proposal and no-ops for gaps.
        """
        best: dict[int, tuple[bool, Ballot, V | None]] = {}
        for promise in self.promises.values():
            for vote in promise.votes:
                known = best.get(vote.instance)
                rank = (vote.is_chosen, vote.ballot)
                if known is None or rank > known[:2]:
                    best[vote.instance] = (vote.is_chosen, vote.ballot, vote.value)
        last = max(best, default=self.first - 1)
        decided: dict[int, V | None] = {}
        proposed: list[int] = []
        for instance in range(self.first, last + 1):
            is_chosen, _, value = best.get(instance, (False, self.ballot, None))
            if is_chosen:
                decided[instance] = value
            else:
                self.open[instance] = Open(value)
                proposed.append(instance)
        self.is_prepared = True
        self.promises.clear()
        self.next_instance = last + 1
        return decided, proposed

    def propose(self, value: V) -> int:
        """Open the next instance for a value."""
        instance = self.next_instance
        self.next_instance += 1
        self.open[instance] = Open(value)
        return instance

    def on_accepted(self, peer: ProcessId, instance: int) -> bool:
        """Count a vote; True the moment a quorum has accepted."""
        record = self.open.get(instance)
        if record is None:
            return False
        record.accepted.add(peer)
        return self.membership.is_quorum(record.accepted)

    def accept_message(self, instance: int, chosen: int) -> Accept[V]:
        """Give the phase 2a message of an open instance."""
        return Accept(self.ballot, instance, self.open[instance].value, chosen)
