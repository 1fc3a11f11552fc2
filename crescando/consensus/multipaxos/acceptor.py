"""The acceptor role: what was promised, and what was voted for.

Rules of the file: a promise never goes back (INV-1); a vote is replaced only
by a vote of a ballot at least as high (INV-2); votes are forgotten only below
the trim watermark, where every member has learned, or a snapshot stands in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from crescando.consensus.base import NO_BALLOT, Ballot
from crescando.consensus.multipaxos.messages import Accept, Accepted, Nack, Prepare, Vote

V = TypeVar("V")


@dataclass(slots=True)
class Acceptor(Generic[V]):
    """One member's promises and votes (Lamport 2001, §2.2)."""

    promised: Ballot = NO_BALLOT
    votes: dict[int, Vote[V]] = field(default_factory=dict)
    trimmed: int = 0

    def on_prepare(self, message: Prepare) -> Nack | None:
        """Promise the ballot, unless a higher one has been promised (phase 1b)."""
        if message.ballot < self.promised:
            return Nack(self.promised)
        self.promised = message.ballot
        return None

    def on_accept(self, message: Accept[V]) -> Accepted | Nack:
        """Vote for the value, unless a higher ballot has been promised (phase 2b)."""
        if message.ballot < self.promised:
            return Nack(self.promised)
        self.promised = message.ballot
        # An instance below the trim watermark is decided and learned by all: the
        # vote is not needed any more, but the answer is true and must be given.
        if message.instance > self.trimmed:
            self.votes[message.instance] = Vote(message.instance, message.ballot, message.value)
        return Accepted(message.ballot, message.instance)

    def votes_from(self, first: int) -> list[Vote[V]]:
        """Give the votes of instances from `first` on, ascending."""
        return [self.votes[instance] for instance in sorted(self.votes) if instance >= first]

    def trim(self, instance: int) -> None:
        """Forget votes up to `instance`."""
        if instance <= self.trimmed:
            return
        if instance - self.trimmed <= len(self.votes):
            votes = self.votes
            for gone in range(self.trimmed + 1, instance + 1):
                votes.pop(gone, None)
        else:
            # A snapshot may lie a long history ahead.
            self.votes = {known: vote for known, vote in self.votes.items() if known > instance}
        self.trimmed = instance
