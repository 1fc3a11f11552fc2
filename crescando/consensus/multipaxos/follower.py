"""What every member does whoever leads: vote, learn, follow, and catch up.

Rules of the file: a member votes in an instance only when it has learned
everything up to alpha instances before it (INV-7): only then does it know by whom the
instance is decided, and does it hold what was decided before. It learns from
its own votes of the leader's ballot, from a tail of values, or from a snapshot.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from crescando.consensus.base import Ballot, BroadcastOutput
from crescando.consensus.membership import Change, Memberships
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.attestation import Attestations
from crescando.consensus.multipaxos.election import Election
from crescando.consensus.multipaxos.learner import Learner
from crescando.consensus.multipaxos.messages import (
    Accept,
    Attestation,
    Decided,
    Fetch,
    Heartbeat,
    HeartbeatReply,
    Nack,
    Prepare,
    Promise,
    Removed,
    Snapshot,
    Vote,
)
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

V = TypeVar("V")

FETCH_INSTANCES_MAX = 64
"""Values in one `Decided`; keeps a catch-up message near the size of a few batches."""

FETCH_BYTES_MAX = 8 << 20


class Follower(ABC, Generic[V]):
    """The acceptor, the learner and the memory of one member; `Replica` adds what it takes to lead.

    Attributes
    ----------
    is_member : bool
        Whether this router knows itself to be in the newest membership.
    """

    def __init__(
        self, me: ProcessId, membership: Membership, timing: PaxosTiming, rng: random.Random, epoch: int
    ) -> None:
        self.me = me
        self.timing = timing
        self.epoch = epoch
        self.acceptor: Acceptor[V] = Acceptor()
        self.learner: Learner[V] = Learner()
        self.memberships = Memberships.begin(timing.window, membership)
        self.attestations = Attestations()
        self.is_dismissed = False
        self.is_member = self._is_informed = me in membership.members
        # Who is listened to without further questions: none before this router knows the members.
        self._fellows = frozenset(membership.members if self._is_informed else ())
        self._peers = tuple(member for member in membership.members if member != me)
        self._election = Election(timing.election_s, epoch, rng)
        self._connected: set[ProcessId] = set()
        self._held: dict[int, tuple[ProcessId, Accept[V]]] = {}
        self._fetching: tuple[ProcessId, int] | None = None
        self._has_settled = False
        self._out: BroadcastOutput[V] = BroadcastOutput()

    @abstractmethod
    def _follow(self, ballot: Ballot, now_s: float) -> None:
        """A message of a ballot at least as high as promised: its opener leads us."""

    @abstractmethod
    def _resign(self, now_s: float) -> None:
        """Lead no more, if this member does."""

    @abstractmethod
    def _find_peers(self) -> None:
        """Learn with whom this member has to do, and speak to whoever is new among them."""

    @property
    def ballot(self) -> Ballot:
        return self.acceptor.promised

    @property
    def membership(self) -> Membership:
        return self.memberships.newest

    @property
    def peers(self) -> tuple[ProcessId, ...]:
        return self._peers

    @property
    def former(self) -> tuple[ProcessId, ...]:
        return self.memberships.former()

    @property
    def learned(self) -> int:
        return self.learner.learned

    def attest(self, instance: int, digest: bytes) -> None:
        self.attestations.state(instance, digest)

    # Voting and learning.

    @property
    def _first_undecided(self) -> int:
        """The first instance whose membership may still be asked for."""
        return self.learned + 1

    def _on_accept(self, peer: ProcessId, message: Accept[V], now_s: float) -> None:
        if message.ballot < self.acceptor.promised:
            self._send(peer, Nack(self.acceptor.promised))
            return
        self._follow(message.ballot, now_s)
        if message.chosen > self.learner.learned:
            self._learn_up_to(message.ballot, message.chosen)
        if not self._is_informed or not self._is_within_alpha(message.instance):
            # Voted for when this member has caught up: until then it does not know by whom
            # the instance is decided, nor does it hold what was decided before.
            for decided in [known for known in self._held if known <= message.chosen]:
                del self._held[decided]
            self._held[message.instance] = (peer, message)
            return
        self._send(peer, self.acceptor.on_accept(message))

    def _promise(self, prepare: Prepare) -> Promise[V]:
        votes = {vote.instance: vote for vote in self.acceptor.votes_from(prepare.first)}
        for instance, value in self.learner.decided.items():
            if instance >= prepare.first:
                votes[instance] = Vote(instance, prepare.ballot, value, is_chosen=True)
        ordered = tuple(votes[instance] for instance in sorted(votes))
        return Promise(prepare.ballot, ordered, self.learned, self.learner.trimmed)

    def _release_held(self) -> None:
        """Vote for what has waited for this member to catch up."""
        for instance in [known for known in self._held if self._is_within_alpha(known)]:
            peer, message = self._held.pop(instance)
            # Also for what was learned meanwhile: whoever proposed it may not have learned it.
            self._send(peer, self.acceptor.on_accept(message))

    def _learn_up_to(self, ballot: Ballot, chosen: int) -> None:
        """Learn what the opener of `ballot` says is decided, from votes of that ballot.

        A vote of the same ballot holds the very value its opener proposed in
        that instance; a vote of another ballot proves nothing.
        """
        learner, votes = self.learner, self.acceptor.votes
        for instance in range(learner.learned + 1, min(chosen, learner.learned + len(votes)) + 1):
            vote = votes.get(instance)
            if vote is not None and vote.ballot == ballot:
                learner.decide(instance, vote.value)
        self._advance()
        if learner.learned < chosen:
            self._fetch(ballot.node)

    def _advance(self) -> None:
        """Give out what has become contiguous; changes of the membership end here."""
        out, memberships = self._out, self.memberships
        for instance, value in self.learner.advance():
            if isinstance(value, Change):
                if memberships.learn(instance, value):
                    out.membership = memberships.newest
                value = None
            out.learned.append((instance, value))
        if len(memberships.governing) > 1:
            memberships.forget_before(self._first_undecided)
            self._has_settled = len(memberships.governing) == 1
        if out.membership is not None:
            self._find_peers()
        if self._held and self._is_informed:
            self._release_held()

    def _trim(self, instance: int) -> None:
        self.acceptor.trim(min(instance, self.learned))
        self.learner.trim(instance)

    # Following.

    def _on_heartbeat(self, peer: ProcessId, message: Heartbeat, now_s: float) -> None:
        if message.ballot < self.acceptor.promised:
            self._send(peer, Nack(self.acceptor.promised))
            return
        self.acceptor.promised = message.ballot
        self._follow(message.ballot, now_s)
        self._election.detector.beat(now_s)
        self._learn_up_to(message.ballot, message.chosen)
        self._trim(message.trim)
        if self.memberships.forget_leavers(message.trim):
            self._find_peers()
        self._check_digest(message.agreed)
        attested = self.attestations.newest
        self._send(
            peer, HeartbeatReply(message.ballot, self.learned, message.sent_s, attested, message.round)
        )

    def _check_digest(self, agreed: Attestation | None) -> None:
        if self.attestations.differs(agreed):
            assert agreed is not None
            self._out.stop = (
                f"its state after instance {agreed.instance} differs from that of most routers: "
                "the routing plug-in is not deterministic"
            )

    def _dismiss(self, peer: ProcessId) -> None:
        self._send(peer, Removed(self.epoch, self.memberships.newest.number))

    def _on_removed(self, message: Removed) -> None:
        if message.epoch > self.epoch:
            self._out.stop = f"cluster epoch {message.epoch} has begun without this router"
        elif message.epoch == self.epoch:
            self.is_dismissed = True
            self._out.stop = (
                f"removed from the routers by membership {message.number}; it may return as a new incarnation"
            )

    # Catching up.

    def _has_asked(self, peer: ProcessId) -> bool:
        return self._fetching is not None and self._fetching[0] == peer

    def _fetch(self, peer: ProcessId) -> None:
        # One request at a time; the next heartbeat asks again if it was in vain.
        # One that holds nothing begins with a snapshot, which tells the membership too.
        first = self.learned + 1 if self._is_informed else 0
        if peer != self.me and self._fetching != (peer, first):
            self._fetching = (peer, first)
            self._send(peer, Fetch(first, self.epoch))

    def _on_fetch(self, peer: ProcessId, message: Fetch) -> None:
        if not self._is_informed:
            return
        if message.first <= self.learner.trimmed:
            self._out.snapshot_for.append(peer)
            return
        values = self.learner.values_from(message.first, FETCH_INSTANCES_MAX, FETCH_BYTES_MAX)
        self._send(peer, Decided(message.first, values, self.learned))

    def _on_decided(self, peer: ProcessId, message: Decided[V]) -> None:
        self._fetching = None
        if not self._is_informed:
            return
        for offset, value in enumerate(message.values):
            self.learner.decide(message.first + offset, value)
        self._advance()
        if message.values and self.learned < message.learned:
            self._fetch(peer)

    def _on_snapshot(self, message: Snapshot[Any], now_s: float) -> None:
        self._fetching = None
        if self._is_informed and message.instance <= self.learned:
            return
        # Values learned in this very turn are part of the snapshot's past.
        self._out.learned.clear()
        self._out.install = (message.instance, message.state)
        self.learner.jump(message.instance)
        self.acceptor.trim(message.instance)
        self.memberships = Memberships.decode(message.memberships)
        self._is_informed = True
        self._out.membership = self.memberships.newest
        # What a leader was about to propose anew lies in the snapshot's past.
        self._resign(now_s)
        self._advance()

    # Sending.

    def _send(self, peer: ProcessId, message: Any) -> None:
        if peer in self._connected:
            self._out.send.append((peer, message))

    def _broadcast(self, message: Any) -> None:
        self._out.send += [(peer, message) for peer in self._peers if peer in self._connected]

    def _is_within_alpha(self, instance: int) -> bool:
        return instance <= self.learner.learned + self.memberships.alpha
