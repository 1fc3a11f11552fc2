"""One router's member of Multi-Paxos: who leads, what it proposes, and when.

Rules of the file: roles decide, this file only carries their words between
members and keeps time, for a member that leads or might; what every member
does is in `Follower`. Leadership is an optimisation: two leaders at once are
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
from typing import Any, TypeVar

from crescando.consensus.base import EPOCH_SHIFT, Ballot, BroadcastOutput
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos.follower import Follower
from crescando.consensus.multipaxos.leader import Leader
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
    Petition,
    Prepare,
    Promise,
    Removed,
    Snapshot,
    epoch_of,
)
from crescando.consensus.multipaxos.reconfiguration import Reconfiguration
from crescando.consensus.multipaxos.tenure import Tenure
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.process import earliest
from crescando.types import ProcessId

V = TypeVar("V")

FREQUENT: dict[type, str] = {
    Accept: "_on_accept",
    Accepted: "_on_accepted",
    Heartbeat: "_on_heartbeat",
    HeartbeatReply: "_on_heartbeat_reply",
}
"""What a working group says all the time, and who takes it."""


class Replica(Follower[V]):
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
        super().__init__(me, membership, timing, rng, epoch)
        self.reconfiguration = Reconfiguration(me, timing.removal_s, timing.minimum)
        self.is_leader = False
        self._leader: Leader[V] | None = None
        self._tenure = Tenure(me, timing)
        self._told_members: dict[ProcessId, int] = {}
        self._petition_at_s: float | None = None
        self._owes_change = False
        self._wake_at_s: float | None = None
        self.is_quiet = False

    # What others ask.

    @property
    def leader(self) -> ProcessId | None:
        return self.me if self.is_leader else self._election.followed

    @property
    def n_open(self) -> int:
        return len(self._leader.open) if self._leader is not None else 0

    def can_propose(self) -> bool:
        leader = self._leader
        if leader is None or not leader.is_prepared or len(leader.open) >= self.timing.window:
            return False
        instance = leader.next_instance
        return (
            instance > leader.last_vote
            and instance <= self.learner.learned + self.memberships.alpha
            and leader.may_propose(self.memberships.of(instance))
        )

    def open_values(self) -> list[V]:
        if self._leader is None:
            return []
        found = [vote.value for _, vote in sorted(self._leader.votes.items())]
        records = [self._leader.open[instance].value for instance in sorted(self._leader.open)]
        return [value for value in (*records, *found) if value is not None and not isinstance(value, Change)]

    def is_backed(self, now_s: float) -> bool:
        if not self.is_leader:
            return False
        since_s = now_s - self.timing.election_s
        governing = self.memberships.since(self.learned + 1)
        return all(self._tenure.is_backed_by(membership, since_s) for membership in governing)

    @property
    def round(self) -> int:
        return self._tenure.round

    def begin_round(self, now_s: float) -> None:
        if self.is_leader:
            self._tenure.round += 1
            self._broadcast(self._heartbeat(now_s))

    @property
    def answered_round(self) -> int:
        if not self.is_leader:
            return 0
        return min(map(self._tenure.round_answered_by, self.memberships.since(self.learned + 1)))

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Begin: the first member campaigns at once, the others if nothing comes of it."""
        if self._is_informed:
            rank = self.memberships.newest.members.index(self.me)
            self._election.campaign_at_s = now_s + rank * self.timing.election_s
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
                    self._send(peer, leader.accept_message(instance, leader.chosen(self.learned)))
        elif self._election.granted is not None:
            self._send(peer, Canvass(self._election.attempt, self.learned))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._connected.discard(peer)
        self._tenure.answered_s.pop(peer, None)
        self.reconfiguration.forget(peer)
        self._told_members.pop(peer, None)
        if self._fetching is not None and self._fetching[0] == peer:
            self._fetching = None
        self._election.doubt_at_once(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self._election.doubt_at_once(peer, now_s)

    def observe(self, ballot: Ballot, now_s: float) -> None:
        # Whoever is no member may say any number: it is not taken over, or the next attempt of this
        # member would be above it, and perhaps in another epoch. Members tell theirs when they are asked.
        is_of_ours = ballot.epoch == self.epoch
        if is_of_ours and self._leader is not None and ballot > self._leader.ballot:
            self._step_down(now_s)

    def _hear_of(self, ballot: Ballot, now_s: float) -> None:
        """Learn from a member that a ballot exists."""
        if ballot.epoch == self.epoch:
            self._election.note(ballot)
            self.observe(ballot, now_s)

    def propose(self, value: V) -> int:
        if not self.can_propose():
            raise RuntimeError("only a leader proposes, within its window; ask can_propose first")
        assert self._leader is not None
        return self._propose(self._leader, value)

    def _propose(self, leader: Leader[V], value: V | Change | None) -> int:
        instance = leader.propose(value)
        self._request(leader, instance)
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
            self._propose(self._leader, change)
        return fault

    def _has_change_in_flight(self, leader: Leader[V]) -> bool:
        is_open = any(isinstance(record.value, Change) for record in leader.open.values())
        return is_open or not self.memberships.is_settled(self.learned)

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None:
        self._send(peer, Snapshot(instance, state, self.memberships.encode()))

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of a router; one of a former member or of another epoch is not listened to."""
        self.is_quiet = False
        frequent = FREQUENT.get(type(message))
        if (
            frequent is not None
            and peer in self._fellows
            and message.ballot.attempt >> EPOCH_SHIFT == self.epoch
        ):
            # Of all that is asked below nothing can be the matter.
            getattr(self, frequent)(peer, message, now_s)
            return
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
            self._on_petition(peer)
            return
        if (
            self._is_informed
            and peer not in self._peers
            and not isinstance(message, Accept | Heartbeat | Prepare)
            and not (isinstance(message, Decided | Snapshot) and self._has_asked(peer))
        ):
            # Perhaps a member that we have not learned of. What a leader says can be taken from
            # anyone, since it is judged by its ballot, and so can what it answers when we ask it
            # what we have missed; all else is worth nothing without the rest.
            if isinstance(message, Canvass) and message.learned > self.learned:
                # Perhaps what we have missed is that it is a member, and nobody else is left to tell.
                self._fetch(peer)
            return
        if frequent is not None:
            getattr(self, frequent)(peer, message, now_s)
            return
        match message:
            case Canvass():
                self._on_canvass(peer, message, now_s)
            case CanvassReply():
                self._on_canvass_reply(peer, message, now_s)
            case Prepare():
                self._on_prepare(peer, message, now_s)
            case Promise():
                self._on_promise(peer, message, now_s)
            case Nack():
                self._hear_of(message.promised, now_s)
            case Fetch():
                self._on_fetch(peer, message)
            case Decided():
                self._on_decided(peer, message)
            case Snapshot():
                self._on_snapshot(message, now_s)

    def flush(self, now_s: float) -> BroadcastOutput[V]:
        if (
            self._wake_at_s is None
            or now_s >= self._wake_at_s
            or self._owes_change
            or self._tenure.is_resumed
        ):
            self._keep_time(now_s)
        leader = self._leader
        if leader is not None and (not leader.has_no_arrears or len(self.memberships.governing) > 1):
            self._go_on(now_s)
        if self._has_settled:
            self._has_settled = False
            if self.is_leader:
                # Not with the next beat only: should this member die before, the others would
                # still ask for majorities of a membership that is over.
                self._broadcast(self._heartbeat(now_s))
        out, self._out = self._out, BroadcastOutput()
        if self.is_leader:
            wake_at_s: float | None = self._tenure.beat_at_s
        else:
            wake_at_s = self._election.wake_at_s if self.is_member else None
        if self._petition_at_s is not None:
            wake_at_s = earliest(wake_at_s, self._petition_at_s)
        self._wake_at_s = out.wake_at_s = wake_at_s
        return out

    # Time.

    def _keep_time(self, now_s: float) -> None:
        overdue_s = now_s - self._wake_at_s if self._wake_at_s is not None else 0.0
        if overdue_s > self.timing.election_s / 2:
            # We were paused, not the others: what they said is still in our queue,
            # and a leader among us gets the time to hear that it is one no more.
            self._tenure.is_resumed = True
            self.reconfiguration.lead()
            self._election.forgive(now_s)
        if self._petition_at_s is not None and now_s >= self._petition_at_s:
            self._petition(now_s)
        self._tenure.resume(now_s)
        if self._leader is not None and self._leader.is_prepared:
            if now_s >= self._tenure.beat_at_s:
                self._beat(self._leader, now_s)
                if now_s - self._tenure.since_s > self.timing.election_s and not self.is_backed(now_s):
                    self._step_down(now_s)
                    return
            if self._owes_change:
                self._reconfigure(self._leader, now_s)
            return
        if self.is_member and self._election.is_due(now_s):
            self._canvass(now_s)

    def _on_petition(self, peer: ProcessId) -> None:
        """Remember a petitioner; one that may not know the leader learns here who the members are.

        It is told with a snapshot, once a session and membership.
        """
        self.reconfiguration.on_petition(peer)
        newest = self.memberships.newest.number
        if self.is_member and not self.is_leader and self._told_members.get(peer) != newest:
            self._told_members[peer] = newest
            self._out.snapshot_for.append(peer)

    def _petition(self, now_s: float) -> None:
        """Say that we wish to be a member; again and again, since whoever leads may change."""
        self._petition_at_s = now_s + self.timing.election_s / 2
        self._broadcast(Petition(self.epoch))

    def _resign(self, now_s: float) -> None:
        if self._leader is not None:
            self._step_down(now_s)

    def _step_down(self, now_s: float) -> None:
        self._leader, self.is_leader = None, False
        self._tenure.answered_s.clear()
        self._election.lose(now_s)

    def _follow(self, ballot: Ballot, now_s: float) -> None:
        """A message of a ballot at least as high as promised: its opener leads us."""
        self._election.note(ballot)
        if self._leader is not None and ballot.node != self.me:
            self._step_down(now_s)
        self._election.follow(ballot.node, now_s)

    # Election.

    def _canvass(self, now_s: float) -> None:
        self._leader, self.is_leader = None, False
        self._election.canvass(self.me, self.acceptor.promised, now_s)
        self._broadcast(Canvass(self._election.attempt, self.learned))
        self._open_if_granted(now_s)

    def _on_canvass(self, peer: ProcessId, message: Canvass, now_s: float) -> None:
        is_granted = (
            not self._election.hears_leader(now_s)
            and not self.is_backed(now_s)
            and message.attempt > self.acceptor.promised.attempt
            and message.learned >= self.learner.trimmed
        )
        self._send(peer, CanvassReply(message.attempt, is_granted, self.acceptor.promised, self.learned))

    def _on_canvass_reply(self, peer: ProcessId, message: CanvassReply, now_s: float) -> None:
        self._election.note(message.promised)
        if message.learned > self.learned:
            self._fetch(peer)
        granted = self._election.granted
        if granted is not None and message.is_granted and message.attempt == self._election.attempt:
            granted.add(peer)
            self._open_if_granted(now_s)

    def _open_if_granted(self, now_s: float) -> None:
        granted = self._election.granted
        if granted is None or not self.memberships.is_quorum(granted, self.learned + 1):
            return
        ballot = Ballot(self._election.attempt, self.me)
        self._election.open(ballot, now_s)
        prepare = Prepare(ballot, self.learned + 1)
        if self.acceptor.on_prepare(prepare) is not None:
            return
        self._leader, self.is_leader = Leader(ballot, prepare.first), False
        self._broadcast(prepare)
        self._leader.on_promise(self.me, self._promise(prepare))

    def _on_prepare(self, peer: ProcessId, message: Prepare, now_s: float) -> None:
        if not self._is_informed:
            # One that holds nothing yet must not count. It is asked again when it says what it
            # has learned, or by the next ballot: perhaps none can be opened without it.
            self._fetch(peer)
            return
        is_new = message.ballot > self.acceptor.promised
        nack = self.acceptor.on_prepare(message)
        if nack is not None:
            self._send(peer, nack)
            return
        self._hear_of(message.ballot, now_s)
        if is_new:
            self._election.stand_back(now_s)
        self._send(peer, self._promise(message))

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

    def _advance(self) -> None:
        super()._advance()
        if self._leader is not None:
            self._leader.pass_by(self.learned)

    @property
    def _first_undecided(self) -> int:
        if self._leader is None:
            return self.learned + 1
        return self._leader.chosen(self.learned) + 1

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
                    self._request(leader, instance)
            elif instance <= self.memberships.newest.start and len(self.memberships.governing) > 1:
                # So that a change comes into force although nobody has anything to say.
                self._propose(leader, None)
            else:
                return

    def _lead(self, leader: Leader[V], now_s: float) -> None:
        leader.is_prepared = self.is_leader = True
        self._election.followed = self.me
        self._tenure.begin(now_s)
        self.reconfiguration.lead()
        self.begin_round(now_s)

    def _request(self, leader: Leader[V], instance: int) -> None:
        message = leader.accept_message(instance, leader.chosen(self.learned))
        self._broadcast(message)
        if isinstance(self.acceptor.on_accept(message), Accepted):
            self._count_accepted(leader, self.me, instance)

    def _on_accepted(self, peer: ProcessId, message: Accepted, now_s: float) -> None:
        # Votes above a majority come when the instance is decided: no turn for each of them.
        leader = self._leader
        self.is_quiet = (
            leader is None
            or message.ballot != leader.ballot
            or not self._count_accepted(leader, peer, message.instance)
        )

    def _count_accepted(self, leader: Leader[V], peer: ProcessId, instance: int) -> bool:
        """Count a vote; True if it decides the instance."""
        if not leader.on_accepted(peer, instance, self.memberships.of(instance)):
            return False
        self.learner.decide(instance, leader.open.pop(instance).value)
        self._advance()
        return True

    # The leader's life, and forgetting.

    def _beat(self, leader: Leader[V], now_s: float) -> None:
        self.begin_round(now_s)
        self._tenure.beat_at_s = now_s + self.timing.heartbeat_s
        self._check_digest(self.attestations.agreed(self.memberships.newest))
        self._trim(self._trim_watermark())
        self._release_leavers()
        self._owes_change = True

    def _reconfigure(self, leader: Leader[V], now_s: float) -> None:
        """Propose the change that is due; if there is no room for it now, in the next turn that has room."""
        if self._has_change_in_flight(leader) or not self.is_backed(now_s):
            self._owes_change = False
        elif self.can_propose():
            self._owes_change = False
            for change in self.reconfiguration.wishes(self.memberships, self._connected, now_s):
                if not self.request_change(change):
                    return

    def _heartbeat(self, now_s: float) -> Heartbeat:
        leader = self._leader
        assert leader is not None
        agreed = self.attestations.agreed(self.memberships.newest)
        chosen = leader.chosen(self.learned)
        return Heartbeat(leader.ballot, chosen, self._trim_watermark(), now_s, agreed, self._tenure.round)

    def _trim_watermark(self) -> int:
        """Give the instance up to which every member has learned, or what the lag bounds allow."""
        members = (member for known in self.memberships.governing for member in known.members)
        floor = self.learner.lag_floor(self.timing.lag, self.timing.lag_bytes)
        return max(self._tenure.learned_by_all(members, self.learned), floor)

    def _on_heartbeat_reply(self, peer: ProcessId, message: HeartbeatReply, now_s: float) -> None:
        leader = self._leader
        if leader is None or message.ballot != leader.ballot:
            return
        self._tenure.on_reply(peer, message)
        self.reconfiguration.hear(peer, now_s)
        self.attestations.report(peer, message.attested)
        if message.learned and peer not in leader.promised:
            # A new member, which could not promise before it held anything.
            self._send(peer, Prepare(leader.ballot, leader.next_instance))

    # Joining and leaving.

    def _find_peers(self) -> None:
        """Learn with whom this member has to do, and speak to whoever is new among them."""
        members = self.memberships.newest.members
        self.is_member = self._is_informed and self.me in members
        self._fellows = frozenset(members if self._is_informed else ())
        if self.is_member:
            self._petition_at_s = None
        # Those of a new membership have not been asked yet whether they follow.
        self._tenure.is_resumed = True
        known = self._peers
        self._peers = tuple(peer for peer in self.memberships.everyone() if peer != self.me)
        self._tenure.keep(self._peers)
        self.attestations.keep(self._peers)
        if self._leader is not None:
            for peer in self._peers:
                if peer not in known and peer in self._connected:
                    self._send(peer, Prepare(self._leader.ballot, self._leader.next_instance))

    def _release_leavers(self) -> None:
        """Let former members go once a quorum has learned all that they had a part in."""
        newest = self.memberships.newest
        for leaver, start in list(self.memberships.leavers.items()):
            informed = self._tenure.informed_of(start - 1) | {self.me}
            if self.learned < start - 1 or not newest.is_quorum(informed):
                continue
            if leaver != self.me:
                self._dismiss(leaver)
                del self.memberships.leavers[leaver]
                self._find_peers()
            else:
                self.is_dismissed = True
                self._out.stop = f"removed from the routers by membership {newest.number}"
