"""One router's member of Multi-Paxos: proposer, acceptor, learner and their timers.

Rules of the file: roles decide, this file only carries their words between
members and keeps time. Leadership is an optimisation: two leaders at once are
safe, since only quorums decide. Steady state is one round trip from the
leader, over a window of open instances (RB13 §4.4, §5.6). Sessions are
FIFO and lose nothing while they last, so whatever a session's end may have
lost is said again when the next one begins, and nothing is ever re-sent by a
timer.

Election: a member that hears no leader for the election time *canvasses*
(pre-vote); only if a majority would promise does it open a ballot, so that a
cut-off or paused member never unseats a working leader.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crescando.consensus.base import Ballot, BroadcastOutput
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.leader import Leader
from crescando.consensus.multipaxos.learner import Learner
from crescando.consensus.multipaxos.messages import (
    Accept,
    Accepted,
    Canvass,
    CanvassReply,
    Decided,
    Fetch,
    Heartbeat,
    HeartbeatReply,
    Nack,
    Prepare,
    Promise,
    Snapshot,
    Vote,
)
from crescando.consensus.quorum import Membership
from crescando.process import earliest
from crescando.types import ProcessId

V = TypeVar("V")

FETCH_INSTANCES_MAX = 64
"""Values in one `Decided`; keeps a catch-up message near the size of a few batches."""


@dataclass(frozen=True, slots=True)
class PaxosTiming:
    """Times and limits of one member.

    Parameters
    ----------
    heartbeat_s : float
        Spacing of a leader's heartbeats.
    election_s : float
        Silence after which a leader is doubted; also how long a leader may go
        without a majority's answers before it steps down.
    window : int
        Instances that may be open at once.
    lag : int
        Learned instances kept for members that have not learned them; one that
        lags further gets a snapshot instead.
    """

    heartbeat_s: float = 0.1
    election_s: float = 1.0
    window: int = 8
    lag: int = 1024


class Replica(Generic[V]):
    """A member of the group; implements `AtomicBroadcast`.

    Parameters
    ----------
    me : ProcessId
    membership : Membership
        Contains `me`.
    timing : PaxosTiming
    rng : random.Random
        The only source of chance: election jitter.
    """

    def __init__(
        self, me: ProcessId, membership: Membership, timing: PaxosTiming, rng: random.Random
    ) -> None:
        self.me = me
        self.membership = membership
        self.timing = timing
        self._rng = rng
        self._peers = tuple(member for member in membership.members if member != me)
        self._rank = membership.members.index(me)
        self.acceptor: Acceptor[V] = Acceptor()
        self.learner: Learner[V] = Learner()
        self._leader: Leader[V] | None = None
        self._followed: ProcessId | None = None
        self._out: BroadcastOutput[V] = BroadcastOutput()
        self._connected: set[ProcessId] = set()
        self._granted: set[ProcessId] | None = None
        self._canvassed_attempt = 0
        self._highest_attempt = 0
        self._heard_s = 0.0
        self._campaign_at_s: float | None = None
        self._heartbeat_at_s = 0.0
        self._led_since_s = 0.0
        self._answered_s: dict[ProcessId, float] = {}
        self._learned_by: dict[ProcessId, int] = {}
        self._fetching: tuple[ProcessId, int] | None = None
        self._wake_at_s: float | None = None

    # What others ask.

    @property
    def is_leader(self) -> bool:
        return self._leader is not None and self._leader.is_prepared

    @property
    def ballot(self) -> Ballot:
        return self.acceptor.promised

    @property
    def leader(self) -> ProcessId | None:
        return self.me if self.is_leader else self._followed

    @property
    def n_open(self) -> int:
        return len(self._leader.open) if self._leader is not None else 0

    @property
    def learned(self) -> int:
        return self.learner.learned

    def can_propose(self) -> bool:
        return self._leader is not None and self.is_leader and self.n_open < self.timing.window

    def open_values(self) -> list[V]:
        if self._leader is None:
            return []
        records = (self._leader.open[instance] for instance in sorted(self._leader.open))
        return [record.value for record in records if record.value is not None]

    def is_backed(self, now_s: float) -> bool:
        since_s = now_s - self.timing.election_s
        answered = {peer for peer, sent_s in self._answered_s.items() if sent_s >= since_s}
        return self.is_leader and self.membership.is_quorum(answered | {self.me})

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Begin: the first member campaigns at once, the others if nothing comes of it."""
        self._campaign_at_s = now_s + self._rank * self.timing.election_s

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._connected.add(peer)
        if self._leader is not None and self._leader.is_prepared:
            self._send(peer, self._heartbeat(now_s))
            for instance in sorted(self._leader.open):
                self._send(peer, self._leader.accept_message(instance, self.learned))
        elif self._leader is not None:
            self._send(peer, Prepare(self._leader.ballot, self._leader.first))
        elif self._granted is not None:
            self._send(peer, Canvass(self._canvassed_attempt, self.learned))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._connected.discard(peer)
        self._answered_s.pop(peer, None)
        if self._fetching is not None and self._fetching[0] == peer:
            self._fetching = None
        if peer == self._followed:
            # A lost session with the leader means suspicion at once. The spread
            # keeps the followers from canvassing against each other.
            self._followed = None
            self._campaign_at_s = now_s + self._rng.uniform(0.0, 0.02 * self.timing.election_s)

    def observe(self, ballot: Ballot, now_s: float) -> None:
        self._highest_attempt = max(self._highest_attempt, ballot.attempt)
        if self._leader is not None and ballot > self._leader.ballot:
            self._step_down(now_s)

    def propose(self, value: V) -> int:
        if self._leader is None or not self._leader.is_prepared:
            raise RuntimeError("only a leader proposes; ask can_propose first")
        instance = self._leader.propose(value)
        self._request(instance)
        return instance

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None:
        self._send(peer, Snapshot(instance, state))

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message; one from outside the membership is ignored."""
        if peer not in self._peers:
            return
        match message:
            case Accept():
                self._on_accept(peer, message, now_s)
            case Accepted():
                self._on_accepted(peer, message)
            case Heartbeat():
                self._on_heartbeat(peer, message, now_s)
            case HeartbeatReply():
                self._on_heartbeat_reply(peer, message)
            case Canvass():
                self._on_canvass(peer, message, now_s)
            case CanvassReply():
                self._on_canvass_reply(peer, message, now_s)
            case Prepare():
                self._on_prepare(peer, message, now_s)
            case Promise():
                self._on_promise(peer, message, now_s)
            case Nack():
                self.observe(message.promised, now_s)
            case Fetch():
                self._on_fetch(peer, message)
            case Decided():
                self._on_decided(peer, message)
            case Snapshot():
                self._on_snapshot(message)

    def flush(self, now_s: float) -> BroadcastOutput[V]:
        self._keep_time(now_s)
        self._out.learned.extend(self.learner.advance())
        out, self._out = self._out, BroadcastOutput()
        next_s = self._heartbeat_at_s if self.is_leader else self._campaign_at_s
        if next_s is None:
            next_s = self._heard_s + self.timing.election_s
        self._wake_at_s = out.wake_at_s = earliest(next_s)
        return out

    # Time.

    def _keep_time(self, now_s: float) -> None:
        overdue_s = now_s - self._wake_at_s if self._wake_at_s is not None else 0.0
        if overdue_s > self.timing.election_s / 2:
            # We were paused, not the others: what they said is still in our queue,
            # and a leader among us gets the time to hear that it is one no more.
            self._heard_s = self._led_since_s = now_s
            if not self.is_leader:
                self._campaign_at_s = None
        if self._leader is not None and self._leader.is_prepared:
            if now_s >= self._heartbeat_at_s:
                self._broadcast(self._heartbeat(now_s))
                self._heartbeat_at_s = now_s + self.timing.heartbeat_s
                self._trim(self._trim_watermark())
            if now_s - self._led_since_s > self.timing.election_s and not self.is_backed(now_s):
                self._step_down(now_s)
            return
        if self._campaign_at_s is None and now_s >= self._heard_s + self.timing.election_s:
            self._followed = None
            self._campaign_at_s = now_s
        if self._campaign_at_s is not None and now_s >= self._campaign_at_s:
            self._canvass(now_s)

    def _retry_at(self, now_s: float) -> float:
        return now_s + self.timing.election_s * self._rng.uniform(0.5, 1.0)

    def _step_down(self, now_s: float) -> None:
        self._leader = None
        self._granted = None
        self._answered_s.clear()
        self._heard_s = now_s
        self._campaign_at_s = self._retry_at(now_s)

    def _follow(self, ballot: Ballot, now_s: float) -> None:
        """A message of a ballot at least as high as promised: its opener leads us."""
        self.observe(ballot, now_s)
        self._followed = ballot.node
        self._heard_s = now_s
        self._campaign_at_s = None
        self._granted = None
        if self._leader is not None and ballot.node != self.me:
            self._leader = None

    # Election.

    def _canvass(self, now_s: float) -> None:
        self._leader = None
        self._canvassed_attempt = max(self._highest_attempt, self.acceptor.promised.attempt) + 1
        self._granted = {self.me}
        self._campaign_at_s = self._retry_at(now_s)
        self._broadcast(Canvass(self._canvassed_attempt, self.learned))
        self._open_if_granted(now_s)

    def _on_canvass(self, peer: ProcessId, message: Canvass, now_s: float) -> None:
        hears_leader = self._followed is not None and now_s < self._heard_s + self.timing.election_s
        is_granted = (
            not hears_leader
            and not self.is_backed(now_s)
            and message.attempt > self.acceptor.promised.attempt
            and message.learned >= self.learner.trimmed
        )
        self._send(peer, CanvassReply(message.attempt, is_granted, self.acceptor.promised, self.learned))

    def _on_canvass_reply(self, peer: ProcessId, message: CanvassReply, now_s: float) -> None:
        self._highest_attempt = max(self._highest_attempt, message.promised.attempt)
        if message.learned > self.learned:
            self._fetch(peer)
        if self._granted is None or message.attempt != self._canvassed_attempt:
            return
        if message.is_granted:
            self._granted.add(peer)
            self._open_if_granted(now_s)

    def _open_if_granted(self, now_s: float) -> None:
        if self._granted is None or not self.membership.is_quorum(self._granted):
            return
        self._granted = None
        ballot = Ballot(self._canvassed_attempt, self.me)
        self._highest_attempt = max(self._highest_attempt, ballot.attempt)
        prepare = Prepare(ballot, self.learned + 1)
        if self.acceptor.on_prepare(prepare) is not None:
            return
        self._leader = Leader(ballot, self.membership, prepare.first)
        self._campaign_at_s = self._retry_at(now_s)
        self._broadcast(prepare)
        self._count_promise(self.me, self._promise(prepare), now_s)

    def _on_prepare(self, peer: ProcessId, message: Prepare, now_s: float) -> None:
        nack = self.acceptor.on_prepare(message)
        if nack is not None:
            self._send(peer, nack)
            return
        self.observe(message.ballot, now_s)
        self._followed = None
        self._granted = None
        self._campaign_at_s = self._retry_at(now_s)
        self._send(peer, self._promise(message))

    def _promise(self, prepare: Prepare) -> Promise[V]:
        votes = {vote.instance: vote for vote in self.acceptor.votes_from(prepare.first)}
        for instance, value in self.learner.decided.items():
            if instance >= prepare.first:
                votes[instance] = Vote(instance, prepare.ballot, value, is_chosen=True)
        ordered = tuple(votes[instance] for instance in sorted(votes))
        return Promise(prepare.ballot, ordered, self.learned, self.learner.trimmed)

    def _on_promise(self, peer: ProcessId, message: Promise[V], now_s: float) -> None:
        if self._leader is None or message.ballot != self._leader.ballot:
            return
        if message.trimmed >= self._leader.first and not self._leader.is_prepared:
            # This member has forgotten votes that we would need: learn from it first.
            self._step_down(now_s)
            self._fetch(peer)
            return
        self._count_promise(peer, message, now_s)

    def _count_promise(self, peer: ProcessId, promise: Promise[V], now_s: float) -> None:
        leader = self._leader
        if leader is None or not leader.on_promise(peer, promise):
            return
        decided, proposed = leader.prepare()
        for instance, value in decided.items():
            self.learner.decide(instance, value)
        self._out.learned.extend(self.learner.advance())
        self._followed = self.me
        self._led_since_s = now_s
        self._answered_s.clear()
        self._learned_by.clear()
        self._broadcast(self._heartbeat(now_s))
        self._heartbeat_at_s = now_s + self.timing.heartbeat_s
        for instance in proposed:
            self._request(instance)

    # Phase 2.

    def _request(self, instance: int) -> None:
        leader = self._leader
        assert leader is not None
        message = leader.accept_message(instance, self.learned)
        self._broadcast(message)
        if isinstance(self.acceptor.on_accept(message), Accepted):
            self._count_accepted(self.me, instance)

    def _on_accept(self, peer: ProcessId, message: Accept[V], now_s: float) -> None:
        answer = self.acceptor.on_accept(message)
        self._send(peer, answer)
        if isinstance(answer, Accepted):
            self._follow(message.ballot, now_s)
            self._learn_up_to(message.ballot, message.chosen)

    def _on_accepted(self, peer: ProcessId, message: Accepted) -> None:
        if self._leader is not None and message.ballot == self._leader.ballot:
            self._count_accepted(peer, message.instance)

    def _count_accepted(self, peer: ProcessId, instance: int) -> None:
        leader = self._leader
        assert leader is not None
        if leader.on_accepted(peer, instance):
            self.learner.decide(instance, leader.open.pop(instance).value)
            self._out.learned.extend(self.learner.advance())

    def _learn_up_to(self, ballot: Ballot, chosen: int) -> None:
        """Learn what the opener of `ballot` says is decided, from votes of that ballot.

        A vote of the same ballot holds the very value its opener proposed in
        that instance; a vote of another ballot proves nothing.
        """
        for instance in range(self.learned + 1, chosen + 1):
            vote = self.acceptor.votes.get(instance)
            if vote is not None and vote.ballot == ballot:
                self.learner.decide(instance, vote.value)
        self._out.learned.extend(self.learner.advance())
        if self.learned < chosen:
            self._fetch(ballot.node)

    # The leader's life, and forgetting.

    def _heartbeat(self, now_s: float) -> Heartbeat:
        leader = self._leader
        assert leader is not None
        return Heartbeat(leader.ballot, self.learned, self._trim_watermark(), now_s)

    def _trim_watermark(self) -> int:
        everyone = min((self._learned_by.get(peer, 0) for peer in self._peers), default=self.learned)
        return max(0, min(everyone, self.learned), self.learned - self.timing.lag)

    def _trim(self, instance: int) -> None:
        self.acceptor.trim(min(instance, self.learned))
        self.learner.trim(instance)

    def _on_heartbeat(self, peer: ProcessId, message: Heartbeat, now_s: float) -> None:
        if message.ballot < self.acceptor.promised:
            self._send(peer, Nack(self.acceptor.promised))
            return
        self.acceptor.promised = message.ballot
        self._follow(message.ballot, now_s)
        self._learn_up_to(message.ballot, message.chosen)
        self._trim(message.trim)
        self._send(peer, HeartbeatReply(message.ballot, self.learned, message.sent_s))

    def _on_heartbeat_reply(self, peer: ProcessId, message: HeartbeatReply) -> None:
        if self._leader is None or message.ballot != self._leader.ballot:
            return
        self._answered_s[peer] = max(message.sent_s, self._answered_s.get(peer, message.sent_s))
        self._learned_by[peer] = message.learned

    # Catching up.

    def _fetch(self, peer: ProcessId) -> None:
        # One request at a time; the next heartbeat asks again if it was in vain.
        wanted = (peer, self.learned + 1)
        if peer != self.me and self._fetching != wanted:
            self._fetching = wanted
            self._send(peer, Fetch(self.learned + 1))

    def _on_fetch(self, peer: ProcessId, message: Fetch) -> None:
        if message.first <= self.learner.trimmed:
            self._out.snapshot_for.append(peer)
            return
        values = self.learner.values_from(message.first, FETCH_INSTANCES_MAX)
        self._send(peer, Decided(message.first, values, self.learned))

    def _on_decided(self, peer: ProcessId, message: Decided[V]) -> None:
        self._fetching = None
        for offset, value in enumerate(message.values):
            self.learner.decide(message.first + offset, value)
        self._out.learned.extend(self.learner.advance())
        if message.values and self.learned < message.learned:
            self._fetch(peer)

    def _on_snapshot(self, message: Snapshot[Any]) -> None:
        self._fetching = None
        if message.instance <= self.learned:
            return
        # Values learned in this very turn are part of the snapshot's past.
        self._out.learned.clear()
        self._out.install = (message.instance, message.state)
        self.learner.jump(message.instance)
        self.acceptor.trim(message.instance)

    # Sending.

    def _send(self, peer: ProcessId, message: Any) -> None:
        if peer in self._connected:
            self._out.send.append((peer, message))

    def _broadcast(self, message: Any) -> None:
        for peer in self._peers:
            self._send(peer, message)
