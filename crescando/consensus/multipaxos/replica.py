"""One router's member of Multi-Paxos: proposer, acceptor, learner and their timers.

Rules of the file: roles decide, this file only carries their words between
members and keeps time. Leadership is an optimisation: two leaders at once are
safe, since only quorums decide. Steady state is one round trip from the
leader, over a window of open instances (RB13 §4.4, §5.6). Sessions are
FIFO and lose nothing while they last, so whatever a session's end may have
lost is said again when the next one begins, and nothing is ever re-sent by a
timer.

Membership is part of the order (`Memberships`): with alpha the window, nobody
proposes or accepts in instance j before having learned j - alpha, and so
everybody knows by whom j is decided. Who joins and leaves, and how, is in
`Reconfiguration`; who leads, in this file.

Election: a member that hears no leader for the election time *canvasses*
(pre-vote); only if a majority would promise does it open a ballot, so that a
cut-off or paused member never unseats a working leader.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crescando.consensus.base import EPOCH_SHIFT, Ballot, BroadcastOutput
from crescando.consensus.membership import Change, Memberships
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.attestation import Attestations
from crescando.consensus.multipaxos.detector import Detector
from crescando.consensus.multipaxos.leader import Leader
from crescando.consensus.multipaxos.learner import Learner
from crescando.consensus.multipaxos.messages import (
    Accept,
    Accepted,
    Attestation,
    Canvass,
    CanvassReply,
    Decided,
    Fetch,
    Heartbeat,
    HeartbeatReply,
    Nack,
    Petition,
    Prepare,
    Promise,
    Removed,
    Snapshot,
    Vote,
)
from crescando.consensus.multipaxos.reconfiguration import Reconfiguration
from crescando.consensus.quorum import Membership
from crescando.process import earliest
from crescando.types import ProcessId

V = TypeVar("V")

FETCH_INSTANCES_MAX = 64
"""Values in one `Decided`; keeps a catch-up message near the size of a few batches."""

FETCH_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class PaxosTiming:
    """Times and limits of one member.

    Parameters
    ----------
    heartbeat_s : float
        Spacing of a leader's heartbeats.
    election_s : float
        Silence after which a leader is doubted, longer if its heartbeats are
        irregular; also how long a leader may go without a majority's answers
        before it steps down.
    removal_s : float
        Silence after which a member is removed.
    minimum : int
        Members that the removal of silent ones leaves at least. Two tolerate as
        little as three of which one is dead, and let a third one come.
    window : int
        Instances that may be open at once; also the distance from a change of the
        membership to the first instance that it governs, and so the same at all
        members.
    lag, lag_bytes : int
        Learned instances, and their bytes, kept for members that have not learned
        them; one that lags further gets a snapshot instead.
    """

    heartbeat_s: float = 0.1
    election_s: float = 1.0
    removal_s: float = 5.0
    minimum: int = 2
    window: int = 8
    lag: int = 1024
    lag_bytes: int = 64 << 20


class Replica(Generic[V]):
    """A member of the group, or one that wishes to be; implements `AtomicBroadcast`.

    Parameters
    ----------
    me : ProcessId
        An incarnation that was never a member before.
    membership : Membership
        The first one if it contains `me`. Else the members that are known by
        hearsay: this router petitions them, and learns from them who the
        members are.
    timing : PaxosTiming
    rng : random.Random
        The only source of chance: election jitter.
    epoch : int
        The cluster epoch; routers of another one are not listened to.
    """

    def __init__(
        self,
        me: ProcessId,
        membership: Membership,
        timing: PaxosTiming,
        rng: random.Random,
        *,
        epoch: int = 0,
    ) -> None:
        self.me = me
        self.timing = timing
        self.epoch = epoch
        self._rng = rng
        self.acceptor: Acceptor[V] = Acceptor()
        self.learner: Learner[V] = Learner()
        self.memberships = Memberships.begin(timing.window, membership)
        self.reconfiguration = Reconfiguration(me, timing.removal_s, timing.minimum)
        self.attestations = Attestations()
        self.is_dismissed = False
        self._is_informed = me in membership.members
        self._peers = tuple(member for member in membership.members if member != me)
        self._leader: Leader[V] | None = None
        self._followed: ProcessId | None = None
        self._detector = Detector(timing.election_s)
        self._out: BroadcastOutput[V] = BroadcastOutput()
        self._connected: set[ProcessId] = set()
        self._granted: set[ProcessId] | None = None
        self._canvassed_attempt = 0
        self._highest_attempt = epoch << EPOCH_SHIFT
        self._campaign_at_s: float | None = None
        self._heartbeat_at_s = 0.0
        self._petition_at_s: float | None = None
        self._led_since_s = 0.0
        self._answered_s: dict[ProcessId, float] = {}
        self._learned_by: dict[ProcessId, int] = {}
        self._held: dict[int, tuple[ProcessId, Accept[V]]] = {}
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
    def membership(self) -> Membership:
        return self.memberships.newest

    @property
    def peers(self) -> tuple[ProcessId, ...]:
        return self._peers

    @property
    def is_member(self) -> bool:
        """Whether this router knows itself to be in the newest membership."""
        return self._is_informed and self.me in self.memberships.newest.members

    @property
    def n_open(self) -> int:
        return len(self._leader.open) if self._leader is not None else 0

    @property
    def learned(self) -> int:
        return self.learner.learned

    def can_propose(self) -> bool:
        leader = self._leader
        return (
            leader is not None
            and leader.is_prepared
            and not leader.has_found_votes
            and self.n_open < self.timing.window
            and self._is_within_alpha(leader.next_instance)
            and leader.may_propose(self.memberships.of(leader.next_instance))
        )

    def open_values(self) -> list[V]:
        if self._leader is None:
            return []
        found = [vote.value for _, vote in sorted(self._leader.votes.items())]
        records = [self._leader.open[instance].value for instance in sorted(self._leader.open)]
        return [value for value in (*records, *found) if value is not None and not isinstance(value, Change)]

    def is_backed(self, now_s: float) -> bool:
        since_s = now_s - self.timing.election_s
        answered = {peer for peer, sent_s in self._answered_s.items() if sent_s >= since_s}
        return self.is_leader and self.memberships.is_quorum(answered | {self.me}, self.learned + 1)

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Begin: the first member campaigns at once, the others if nothing comes of it."""
        if self._is_informed:
            rank = self.memberships.newest.members.index(self.me)
            self._campaign_at_s = now_s + rank * self.timing.election_s
        else:
            self._petition_at_s = now_s

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._connected.add(peer)
        if self._petition_at_s is not None:
            self._send(peer, Petition(self.epoch))
        elif self.memberships.was_member(peer):
            self._dismiss(peer)
        elif peer in self._peers:
            self._catch_up_with_leader(peer, now_s)

    def _catch_up_with_leader(self, peer: ProcessId, now_s: float) -> None:
        """Say to one peer what it would have heard, had it been here before."""
        leader = self._leader
        if leader is not None:
            if peer not in leader.promised:
                self._send(peer, Prepare(leader.ballot, leader.next_instance))
            if leader.is_prepared:
                self._send(peer, self._heartbeat(now_s))
                for instance in sorted(leader.open):
                    self._send(peer, leader.accept_message(instance, self.learned))
        elif self._granted is not None:
            self._send(peer, Canvass(self._canvassed_attempt, self.learned))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._connected.discard(peer)
        self._answered_s.pop(peer, None)
        self.reconfiguration.forget(peer)
        if self._fetching is not None and self._fetching[0] == peer:
            self._fetching = None
        self._doubt_at_once(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self._doubt_at_once(peer, now_s)

    def _doubt_at_once(self, peer: ProcessId, now_s: float) -> None:
        """Suspect a leader whose session has ended, or cannot be had."""
        if peer == self._followed:
            # The spread keeps the followers from canvassing against each other.
            self._followed = None
            self._campaign_at_s = now_s + self._rng.uniform(0.0, 0.02 * self.timing.election_s)

    def observe(self, ballot: Ballot, now_s: float) -> None:
        if ballot.epoch != self.epoch:
            return
        self._highest_attempt = max(self._highest_attempt, ballot.attempt)
        if self._leader is not None and ballot > self._leader.ballot:
            self._step_down(now_s)

    def propose(self, value: V) -> int:
        if not self.can_propose():
            raise RuntimeError("only a leader proposes, within its window; ask can_propose first")
        return self._propose(value)

    def _propose(self, value: V | Change | None) -> int:
        assert self._leader is not None
        instance = self._leader.propose(value)
        self._request(instance)
        return instance

    def request_change(self, change: Change) -> str:
        if self._leader is None or not self._leader.is_prepared:
            return f"{self.me} does not lead"
        if self._has_change_in_flight(self._leader):
            return "another change is in flight"
        fault = self.memberships.fault_of(change)
        after = Membership(0, self.memberships.members_after(change))
        if not fault and not after.is_quorum(self._connected | {self.me}):
            fault = f"no majority of the {len(after.members)} members that this leads to can be reached"
        if not fault and not self.can_propose():
            fault = "the window is full"
        if not fault:
            self._propose(change)
        return fault

    def _has_change_in_flight(self, leader: Leader[V]) -> bool:
        is_open = any(isinstance(record.value, Change) for record in leader.open.values())
        return is_open or not self.memberships.is_settled(self.learned)

    def attest(self, instance: int, digest: bytes) -> None:
        self.attestations.state(instance, digest)

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None:
        self._send(peer, Snapshot(instance, state, self.memberships.encode()))

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of a router; one of a former member or of another epoch is not listened to."""
        if isinstance(message, Removed):
            self._on_removed(message)
            return
        epoch = epoch_of(message)
        if self.memberships.was_member(peer) or (epoch is not None and epoch < self.epoch):
            self._dismiss(peer)
            return
        if epoch is not None and epoch > self.epoch:
            self._out.stop = f"cluster epoch {epoch} has begun; this router belongs to epoch {self.epoch}"
            return
        if isinstance(message, Petition):
            self.reconfiguration.on_petition(peer)
            return
        if (
            self._is_informed
            and peer not in self._peers
            and not isinstance(message, Accept | Heartbeat | Prepare)
        ):
            # Perhaps a member that we have not learned of. What a leader says can be taken from
            # anyone, since it is judged by its ballot; all else is worth nothing without the rest.
            return
        match message:
            case Accept():
                self._on_accept(peer, message, now_s)
            case Accepted():
                self._on_accepted(peer, message)
            case Heartbeat():
                self._on_heartbeat(peer, message, now_s)
            case HeartbeatReply():
                self._on_heartbeat_reply(peer, message, now_s)
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
                self._on_snapshot(message, now_s)

    def flush(self, now_s: float) -> BroadcastOutput[V]:
        self._keep_time(now_s)
        self._go_on(now_s)
        out, self._out = self._out, BroadcastOutput()
        next_s = self._heartbeat_at_s if self.is_leader else self._campaign_at_s
        if next_s is None and self.is_member:
            next_s = self._detector.heard_s + self._detector.limit_s
        self._wake_at_s = out.wake_at_s = earliest(next_s, self._petition_at_s)
        return out

    # Time.

    def _keep_time(self, now_s: float) -> None:
        overdue_s = now_s - self._wake_at_s if self._wake_at_s is not None else 0.0
        if overdue_s > self.timing.election_s / 2:
            # We were paused, not the others: what they said is still in our queue,
            # and a leader among us gets the time to hear that it is one no more.
            self._detector.heard_s = self._led_since_s = now_s
            self.reconfiguration.lead()
            if not self.is_leader:
                self._campaign_at_s = None
        if self._petition_at_s is not None and now_s >= self._petition_at_s:
            self._petition(now_s)
        if self._leader is not None and self._leader.is_prepared:
            if now_s >= self._heartbeat_at_s:
                self._beat(self._leader, now_s)
            if now_s - self._led_since_s > self.timing.election_s and not self.is_backed(now_s):
                self._step_down(now_s)
            return
        if not self.is_member:
            return
        if self._campaign_at_s is None and self._detector.is_silent(now_s):
            self._followed = None
            self._campaign_at_s = now_s
        if self._campaign_at_s is not None and now_s >= self._campaign_at_s:
            self._canvass(now_s)

    def _petition(self, now_s: float) -> None:
        """Say that we wish to be a member; again and again, since whoever leads may change."""
        self._petition_at_s = now_s + self.timing.election_s / 2
        self._broadcast(Petition(self.epoch))

    def _retry_at(self, now_s: float) -> float:
        return now_s + self.timing.election_s * self._rng.uniform(0.5, 1.0)

    def _step_down(self, now_s: float) -> None:
        self._leader = None
        self._granted = None
        self._answered_s.clear()
        self._detector.follow(now_s)
        self._campaign_at_s = self._retry_at(now_s)

    def _follow(self, ballot: Ballot, now_s: float) -> None:
        """A message of a ballot at least as high as promised: its opener leads us."""
        self.observe(ballot, now_s)
        if self._followed != ballot.node:
            self._followed = ballot.node
            self._detector.follow(now_s)
        self._detector.hear(now_s)
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
        hears_leader = self._followed is not None and not self._detector.is_silent(now_s)
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
        if self._granted is None or not self.memberships.is_quorum(self._granted, self.learned + 1):
            return
        self._granted = None
        ballot = Ballot(self._canvassed_attempt, self.me)
        self._highest_attempt = max(self._highest_attempt, ballot.attempt)
        prepare = Prepare(ballot, self.learned + 1)
        if self.acceptor.on_prepare(prepare) is not None:
            return
        self._leader = Leader(ballot, prepare.first)
        self._campaign_at_s = self._retry_at(now_s)
        self._broadcast(prepare)
        self._leader.on_promise(self.me, self._promise(prepare))

    def _on_prepare(self, peer: ProcessId, message: Prepare, now_s: float) -> None:
        if not self._is_informed:
            # One that holds nothing yet must not count. Its promise is asked for again
            # when it says what it has learned.
            return
        is_new = message.ballot > self.acceptor.promised
        nack = self.acceptor.on_prepare(message)
        if nack is not None:
            self._send(peer, nack)
            return
        self.observe(message.ballot, now_s)
        if is_new:
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
        leader = self._leader
        if leader is None or message.ballot != leader.ballot:
            return
        if message.trimmed >= leader.next_instance:
            # This member has forgotten votes that we would need: learn from it first.
            if not leader.is_prepared:
                self._step_down(now_s)
            self._fetch(peer)
            return
        leader.on_promise(peer, message)

    # Phase 2.

    def _is_within_alpha(self, instance: int) -> bool:
        return instance <= self.learned + self.memberships.alpha

    def _go_on(self, now_s: float) -> None:
        """Let the leader propose anew what phase 1 found, and fill up behind a change."""
        while (leader := self._leader) is not None:
            instance = leader.next_instance
            if not self._is_within_alpha(instance):
                return
            if not leader.may_propose(self.memberships.of(instance)):
                return
            if not leader.is_prepared:
                self._lead(leader, now_s)
            if leader.has_found_votes:
                found = leader.take_found()
                if found is not None and found.is_chosen:
                    self.learner.decide(instance, found.value)
                    self._advance()
                else:
                    self._request(instance)
            elif instance <= self.memberships.newest.start and len(self.memberships.governing) > 1:
                # So that a change comes into force although nobody has anything to say.
                self._propose(None)
            else:
                return

    def _lead(self, leader: Leader[V], now_s: float) -> None:
        leader.is_prepared = True
        self._followed = self.me
        self._led_since_s = now_s
        self._answered_s.clear()
        self._learned_by.clear()
        self.reconfiguration.lead()
        self._broadcast(self._heartbeat(now_s))
        self._heartbeat_at_s = now_s + self.timing.heartbeat_s

    def _request(self, instance: int) -> None:
        leader = self._leader
        assert leader is not None
        message = leader.accept_message(instance, self.learned)
        self._broadcast(message)
        if isinstance(self.acceptor.on_accept(message), Accepted):
            self._count_accepted(self.me, instance)

    def _on_accept(self, peer: ProcessId, message: Accept[V], now_s: float) -> None:
        if message.ballot < self.acceptor.promised:
            self._send(peer, Nack(self.acceptor.promised))
            return
        self._follow(message.ballot, now_s)
        self._learn_up_to(message.ballot, message.chosen)
        if not self._is_informed or not self._is_within_alpha(message.instance):
            # Voted for when this member has caught up: until then it does not know by whom
            # the instance is decided, nor does it hold what was decided before.
            self._held[message.instance] = (peer, message)
            return
        self._send(peer, self.acceptor.on_accept(message))

    def _release_held(self) -> None:
        """Vote for what has waited for this member to catch up."""
        for instance in [known for known in self._held if self._is_within_alpha(known)]:
            peer, message = self._held.pop(instance)
            if instance > self.learned:
                self._send(peer, self.acceptor.on_accept(message))

    def _on_accepted(self, peer: ProcessId, message: Accepted) -> None:
        if self._leader is not None and message.ballot == self._leader.ballot:
            self._count_accepted(peer, message.instance)

    def _count_accepted(self, peer: ProcessId, instance: int) -> None:
        leader = self._leader
        assert leader is not None
        if leader.on_accepted(peer, instance, self.memberships.of(instance)):
            self.learner.decide(instance, leader.open.pop(instance).value)
            self._advance()

    def _learn_up_to(self, ballot: Ballot, chosen: int) -> None:
        """Learn what the opener of `ballot` says is decided, from votes of that ballot.

        A vote of the same ballot holds the very value its opener proposed in
        that instance; a vote of another ballot proves nothing.
        """
        for instance in range(self.learned + 1, min(chosen, self.learned + len(self.acceptor.votes)) + 1):
            vote = self.acceptor.votes.get(instance)
            if vote is not None and vote.ballot == ballot:
                self.learner.decide(instance, vote.value)
        self._advance()
        if self.learned < chosen:
            self._fetch(ballot.node)

    def _advance(self) -> None:
        """Give out what has become contiguous; changes of the membership end here."""
        for instance, value in self.learner.advance():
            if isinstance(value, Change):
                self._out.learned.append((instance, None))
                if self.memberships.learn(instance, value):
                    self._out.membership = self.memberships.newest
            else:
                self._out.learned.append((instance, value))
        if len(self.memberships.governing) > 1:
            self.memberships.forget_before(self.learned + 1)
        if self._out.membership is not None:
            self._find_peers()
        if self._held and self._is_informed:
            self._release_held()

    # The leader's life, and forgetting.

    def _beat(self, leader: Leader[V], now_s: float) -> None:
        self._broadcast(self._heartbeat(now_s))
        self._heartbeat_at_s = now_s + self.timing.heartbeat_s
        self._check_digest(self.attestations.agreed(self.memberships.newest))
        self._trim(self._trim_watermark())
        self._release_leavers()
        if not self._has_change_in_flight(leader) and self.is_backed(now_s):
            change = self.reconfiguration.next_change(self.memberships, now_s)
            if change is not None:
                self.request_change(change)

    def _heartbeat(self, now_s: float) -> Heartbeat:
        leader = self._leader
        assert leader is not None
        agreed = self.attestations.agreed(self.memberships.newest)
        return Heartbeat(leader.ballot, self.learned, self._trim_watermark(), now_s, agreed)

    def _trim_watermark(self) -> int:
        """Give the instance up to which every member has learned, or what the lag bounds allow.

        A joiner counts from the position of its change: before it has a snapshot
        it is known to have learned nothing.
        """
        members = (member for known in self.memberships.governing for member in known.members)
        everyone = min(
            (self._learned_by.get(member, 0) for member in members if member != self.me), default=self.learned
        )
        floor = self.learner.lag_floor(self.timing.lag, self.timing.lag_bytes)
        return max(min(everyone, self.learned), floor)

    def _trim(self, instance: int) -> None:
        self.acceptor.trim(min(instance, self.learned))
        self.learner.trim(instance)

    def _on_heartbeat(self, peer: ProcessId, message: Heartbeat, now_s: float) -> None:
        if message.ballot < self.acceptor.promised:
            self._send(peer, Nack(self.acceptor.promised))
            return
        self.acceptor.promised = message.ballot
        self._follow(message.ballot, now_s)
        self._detector.beat(now_s)
        self._learn_up_to(message.ballot, message.chosen)
        self._trim(message.trim)
        self._check_digest(message.agreed)
        attested = self.attestations.newest
        self._send(peer, HeartbeatReply(message.ballot, self.learned, message.sent_s, attested))

    def _on_heartbeat_reply(self, peer: ProcessId, message: HeartbeatReply, now_s: float) -> None:
        leader = self._leader
        if leader is None or message.ballot != leader.ballot:
            return
        self._answered_s[peer] = max(message.sent_s, self._answered_s.get(peer, message.sent_s))
        self._learned_by[peer] = message.learned
        self.reconfiguration.hear(peer, now_s)
        self.attestations.report(peer, message.attested)
        if message.learned and peer not in leader.promised:
            # A new member, which could not promise before it held anything.
            self._send(peer, Prepare(leader.ballot, leader.next_instance))

    def _check_digest(self, agreed: Attestation | None) -> None:
        if self.attestations.differs(agreed):
            assert agreed is not None
            self._out.stop = (
                f"its state after instance {agreed.instance} differs from that of most routers: "
                "the routing plug-in is not deterministic"
            )

    # Joining and leaving.

    def _find_peers(self) -> None:
        """Learn with whom this member has to do, and speak to whoever is new among them."""
        if self.is_member:
            self._petition_at_s = None
        known = self._peers
        self._peers = tuple(peer for peer in self.memberships.everyone() if peer != self.me)
        if self._leader is not None:
            for peer in self._peers:
                if peer not in known and peer in self._connected:
                    self._send(peer, Prepare(self._leader.ballot, self._leader.next_instance))

    def _release_leavers(self) -> None:
        """Let former members go once a quorum has learned all that they had a part in."""
        newest = self.memberships.newest
        for leaver, start in list(self.memberships.leavers.items()):
            informed = {peer for peer, learned in self._learned_by.items() if learned >= start - 1}
            if self.learned < start - 1 or not newest.is_quorum(informed | {self.me}):
                continue
            if leaver != self.me:
                self._dismiss(leaver)
                del self.memberships.leavers[leaver]
                self._find_peers()
            else:
                self.is_dismissed = True
                self._out.stop = f"removed from the routers by membership {newest.number}"

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
        if self._leader is not None:
            # What it was about to propose anew lies in the snapshot's past.
            self._step_down(now_s)
        self._advance()

    # Sending.

    def _send(self, peer: ProcessId, message: Any) -> None:
        if peer in self._connected:
            self._out.send.append((peer, message))

    def _broadcast(self, message: Any) -> None:
        for peer in self._peers:
            self._send(peer, message)


def epoch_of(message: Any) -> int | None:
    """Give the cluster epoch that a message names, if it names one."""
    match message:
        case Canvass() | CanvassReply():
            return message.attempt >> EPOCH_SHIFT
        case Fetch() | Petition() | Removed():
            return message.epoch
        case Nack():
            return message.promised.epoch
        case Prepare() | Promise() | Accept() | Accepted() | Heartbeat() | HeartbeatReply():
            return message.ballot.epoch
    return None
