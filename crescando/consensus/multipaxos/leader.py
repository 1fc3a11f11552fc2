"""The proposer role of one ballot: phase 1 once, then a window of open instances.

Rules of the file: a leader proposes in an instance at most one value per
ballot (INV-4), and nothing before a quorum of the membership that governs the
instance has promised (INV-8); what phase 1 found voted for is proposed again, holes
below the highest vote become no-ops; an instance is decided when a quorum of
its own membership has accepted it.

Phase 1 never quite ends: when a membership changes, a leader may need the
promises of new members before it goes on. Promises therefore gather, and each
instance asks whether there are enough of them for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos.messages import Accept, Promise, Vote
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

V = TypeVar("V")


class Open(msgspec.Struct, Generic[V]):
    """An instance that is proposed and not yet decided."""

    value: V | Change | None
    accepted: set[ProcessId] = set()


@dataclass(slots=True)
class Leader(Generic[V]):
    """A proposer of one ballot.

    Parameters
    ----------
    ballot : Ballot
    first : int
        The lowest instance this proposer did not know to be decided.

    Attributes
    ----------
    promised : set of ProcessId
    votes : dict of int to Vote
        The vote that binds each instance not proposed yet.
    last_vote : int
        The highest instance for which a promise named a vote.
    is_prepared : bool
        Whether enough have promised for the first open instance.
    next_instance : int
        The lowest instance not proposed by this ballot.
    open : dict of int to Open
    """

    ballot: Ballot
    first: int
    promised: set[ProcessId] = field(default_factory=set)
    votes: dict[int, Vote[V]] = field(default_factory=dict)
    last_vote: int = 0
    is_prepared: bool = False
    next_instance: int = field(init=False)
    open: dict[int, Open[V]] = field(default_factory=dict)
    _quorate: Membership | None = None

    def __post_init__(self) -> None:
        self.next_instance = self.first

    def on_promise(self, peer: ProcessId, promise: Promise[V]) -> None:
        """Count a promise, and keep the votes that bind what is not proposed yet."""
        if promise.ballot != self.ballot or peer in self.promised:
            return
        self.promised.add(peer)
        for vote in promise.votes:
            if vote.instance < self.next_instance:
                # A quorum had promised before this instance was proposed: that one sufficed.
                continue
            self.last_vote = max(self.last_vote, vote.instance)
            known = self.votes.get(vote.instance)
            if known is None or (vote.is_chosen, vote.ballot) > (known.is_chosen, known.ballot):
                self.votes[vote.instance] = vote

    def may_propose(self, membership: Membership) -> bool:
        """Say whether enough have promised for an instance that `membership` governs."""
        if membership is self._quorate:
            # Promises are only ever added.
            return True
        if not membership.is_quorum(self.promised):
            return False
        self._quorate = membership
        return True

    @property
    def has_no_arrears(self) -> bool:
        """Whether phase 1 is over and has left nothing to be proposed anew."""
        return self.is_prepared and self.next_instance > self.last_vote

    @property
    def has_found_votes(self) -> bool:
        """Whether the next instance must take what phase 1 found, or a no-op."""
        return self.next_instance <= self.last_vote

    def take_found(self) -> Vote[V] | None:
        """Give the vote that binds the next instance, and pass on to the one after; None for a hole.

        References
        ----------
        Lamport 2001, §3: re-proposal and no-ops for gaps.
        """
        found = self.votes.pop(self.next_instance, None)
        if found is None or not found.is_chosen:
            self.open[self.next_instance] = Open(None if found is None else found.value)
        self.next_instance += 1
        return found

    def pass_by(self, learned: int) -> None:
        """Never propose in an instance that is known to be decided, by whomever."""
        if self.next_instance <= learned:
            self.next_instance = learned + 1
            self.votes = {instance: vote for instance, vote in self.votes.items() if instance > learned}

    def chosen(self, learned: int) -> int:
        """Give the instance up to which whoever voted for this ballot may learn from its own votes.

        An instance of ours may turn out to be decided by another ballot before we hear of
        that ballot: then a vote for ours is not what was decided.
        """
        return min(learned, min(self.open, default=learned + 1) - 1)

    def propose(self, value: V | Change | None) -> int:
        """Open the next instance for a value."""
        instance = self.next_instance
        self.next_instance += 1
        self.open[instance] = Open(value)
        return instance

    def on_accepted(self, peer: ProcessId, instance: int, membership: Membership) -> bool:
        """Count a vote; True the moment a quorum of the instance's membership has accepted."""
        record = self.open.get(instance)
        if record is None:
            return False
        record.accepted.add(peer)
        return membership.is_quorum(record.accepted)

    def accept_message(self, instance: int, chosen: int) -> Accept[V]:
        """Give the phase 2a message of an open instance."""
        return Accept(self.ballot, instance, self.open[instance].value, chosen)
