"""The router role of E-Cast (RB13 Alg. 2), over batches and over any atomic broadcast.

Rules of the file: what is agreed upon lives in `MSeq`, who has confirmed in
`Window`, both in a `Record`; what waits to be proposed in `Proposer`. This file
holds sessions and forwards what is learned. A turn's work is per batch, and per
process that has something to do with it. Only a leader proposes, forwards and
answers, yet nothing breaks when two routers believe to lead: positions come from
the m-seq, destinations refuse the lower ballot, and duplicates fall to the
learned watermark.

Before a message is sent to a process, every preceding unstable message for it
is sent first; a session resumes at the position that the process states.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, TypeVar

from crescando.consensus.base import AtomicBroadcast, Ballot
from crescando.consensus.membership import Change
from crescando.process import Output, earliest
from crescando.routing.base import Config
from crescando.routing.batch import Submission, fault_of
from crescando.routing.ecast.fellows import Fellows
from crescando.routing.ecast.laggards import Laggards
from crescando.routing.ecast.leases import Leases
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import (
    Batch,
    ConfigRequest,
    ConfigState,
    Confirm,
    Deliver,
    Expelled,
    Fenced,
    Hello,
    Inject,
    LeaseRequest,
    Outdated,
    Pulse,
    Quorum,
    Resume,
    Route,
    Routers,
    StableUpTo,
    Welcome,
)
from crescando.routing.ecast.mseq import Departure, Learned, MSeq
from crescando.routing.ecast.notices import stable_notices
from crescando.routing.ecast.presence import LeaderPresence
from crescando.routing.ecast.proposer import Proposer
from crescando.routing.ecast.reads import Reads
from crescando.routing.ecast.record import Record
from crescando.routing.ecast.snapshot import RouterSnapshot
from crescando.routing.ecast.stability import Window
from crescando.types import NO_POSITION, ProcessId

C = TypeVar("C", bound=Config)

ECAST = frozenset({Route, Confirm, Hello, Resume, Fenced, Inject, ConfigRequest, LeaseRequest, StableUpTo})
"""What a router takes itself; all else that routers say is the broadcast's."""

PULSES_MAX = 256
"""Signs of life sent at a time: with more sessions than this they come round in turns."""


class Router(Generic[C]):
    """One router process's core.

    Parameters
    ----------
    me : ProcessId
    config : Config
        The configuration before the first message.
    broadcast : AtomicBroadcast
    limits : RouterLimits
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        config: C,
        broadcast: AtomicBroadcast[Batch],
        limits: RouterLimits | None = None,
    ) -> None:
        self.me = me
        self.broadcast = broadcast
        self.limits = limits or RouterLimits()
        self.record: Record[C] = Record(config, self.limits)
        self.proposer: Proposer[C] = Proposer(broadcast, self.limits)
        self.laggards = Laggards(self.limits.max_lag_s)
        self.reads: Reads[C] = Reads(self.limits)
        self.leases = Leases()
        self.presence = LeaderPresence(self.limits.leaderless_s)
        self._sessions: dict[ProcessId, None] = {}
        self._acknowledged: dict[ProcessId, int] = {}
        self._led_ballot: Ballot | None = None
        self._is_over = False
        self._pulse_at_s = 0.0
        self._pulsed: deque[ProcessId] = deque()
        self._lacking: dict[ProcessId, None] = {}
        self.fellows = Fellows(me, broadcast)
        self._is_leaderless = True
        # One that is quiet at times tells nothing between inputs, unless it is time.
        self._may_be_quiet = hasattr(broadcast, "is_quiet")
        self._has_news = True
        self._broadcast_wake_at_s: float | None = None
        self._out = Output()
        self.is_quiet = False

    @property
    def _led(self) -> bool:
        """Whether this router acts as the leader in this turn."""
        return self._led_ballot is not None

    @property
    def _proven(self) -> int:
        """The last round that a majority has answered, once all is learned that was decided before."""
        return self.broadcast.answered_round if self.proposer.is_caught_up else 0

    @property
    def mseq(self) -> MSeq[C]:
        """What has been learned."""
        return self.record.mseq

    @property
    def window(self) -> Window[C]:
        """What has been routed and is not stable."""
        return self.record.window

    @property
    def n_pending(self) -> int:
        """How much is not stable, as far as this router knows; 0 when all is at rest."""
        return self.record.n_pending

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Ask for sessions with the other routers."""
        self.broadcast.on_start(now_s)
        self._has_news = True
        self._out.connect += self.fellows.wanted()

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Begin a session; an application process speaks first."""
        if peer.role == self.me.role:
            self.fellows.on_connected(peer)
            self.broadcast.on_connected(peer, now_s)
            self._has_news = True

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """End a session: what it was sent and did not confirm will be sent again."""
        if peer.role == self.me.role:
            self.broadcast.on_disconnected(peer, now_s)
            self._has_news = True
            self._lacking.pop(peer, None)
            if self.fellows.on_disconnected(peer):
                self._out.connect.append(peer)
            return
        self._sessions.pop(peer, None)
        self._acknowledged.pop(peer, None)
        self.reads.end_session(peer)
        self.leases.end_session(peer)
        if peer in self.window.outboxes:
            self.window.outboxes[peer].close()

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Ask a router again later, as long as it is one of us."""
        if peer.role == self.me.role:
            self.broadcast.on_refused(peer, now_s)
            self._has_news = True
            self.fellows.ask_later(peer, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Routers execute nothing."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message from a router or an application process."""
        kind = type(message)
        if kind is Confirm:
            # Half of all that a leader hears.
            self.is_quiet = not self._confirm(peer, message.position)
        elif kind in ECAST:
            self.is_quiet = False
            self._take(peer, message, now_s)
        elif peer.role == self.me.role:
            self.broadcast.on_message(peer, message, now_s)
            self.is_quiet = self._may_be_quiet and self.broadcast.is_quiet  # type: ignore[attr-defined]
            if not self.is_quiet:
                self._has_news = True

    def _take(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of E-Cast's own."""
        match message:
            case Route():
                self._on_route(peer, message.submission)
            case Hello():
                self._on_hello(peer, message)
            case Resume():
                self._on_resume(peer, message)
            case Fenced() if peer.role != "client":
                self.broadcast.observe(message.ballot, now_s)
                self._has_news = True
            case Inject():
                proof = self.broadcast.round + 1
                if not self.reads.take(peer, message, is_led=self._led, proof=proof, now_s=now_s):
                    self._out.reset.append(peer)
            case ConfigRequest():
                self._on_config_request(peer, message, now_s)
            case LeaseRequest():
                self._on_lease_request(peer, message)
            case StableUpTo():
                if peer.role == self.me.role and not self.broadcast.is_leader:
                    self.record.hear(message)

    def change_routers(self, *, add: ProcessId | None = None, remove: ProcessId | None = None) -> str:
        """Have the group grow by a router that stands by, or shrink by one.

        Returns
        -------
        str
            Empty if it was proposed; else why it cannot be.
        """
        number = self.broadcast.membership.number
        self._has_news = True
        return self.broadcast.request_change(Change(number, add=add, remove=remove, resizes=True))

    def _routers_message(self) -> Routers:
        membership = self.broadcast.membership
        return Routers(self.broadcast.epoch, membership.number, membership.members)

    def _take_membership(self) -> None:
        """Speak with whoever is new among the routers, and let everybody know who they are."""
        self._out.connect += self.fellows.wanted()
        notice = self._routers_message()
        self._out.send.extend((peer, notice) for peer in self._sessions)

    def _on_hello(self, peer: ProcessId, message: Hello) -> None:
        if message.epoch > self.broadcast.epoch:
            # It knows a later epoch, in which there is no place for this router.
            self._out.reset.append(peer)
            return
        self._sessions[peer] = None
        self.record.settled[peer] = None
        self._welcome(peer)
        self._out.send.append((peer, self._routers_message()))
        if not self.presence.is_there:
            self._out.send.append((peer, Quorum(False)))

    def _on_resume(self, peer: ProcessId, message: Resume) -> None:
        if message.ballot != self._led_ballot or peer not in self._sessions:
            return
        outbox = self.window.outbox(peer)
        if outbox.is_open:
            # Said once already in this session: where to go on is old news. What it has confirmed
            # may not be, since it then owes no confirmation of its own.
            self._confirm(peer, message.confirmed)
            return
        if message.delivered < outbox.trimmed:
            # What it lacks has left the window: it is not the process that
            # confirmed it, or it lost its state. It must return as a new one.
            self._out.send.append((peer, Outdated(outbox.trimmed)))
            self.laggards.accuse(peer)
            return
        self._confirm(peer, message.confirmed)
        outbox.open(message.delivered)
        self.record.due[peer] = None

    def _confirm(self, peer: ProcessId, position: int) -> bool:
        """Count a confirmation; True if there may be something to answer, send or propose now."""
        window = self.window
        settled = window.confirm(peer, position)
        if settled:
            self.record.settle(settled)
        outbox = window.outboxes.get(peer)
        if outbox is not None and (outbox.n_sent < len(outbox.entries) or peer in self.reads.waiting):
            self.record.due[peer] = None
            return True
        return bool(self.record.settled) or self.proposer.is_holding

    def _on_config_request(self, peer: ProcessId, message: ConfigRequest, now_s: float) -> None:
        lagging: tuple[ProcessId, ...] = ()
        if self._led and self.broadcast.is_backed(now_s):
            # Confirmations go to the leader alone: one that is deposed and does
            # not know it takes everybody for late.
            lagging = self.laggards.overdue(now_s)
        config = self.mseq.config.encode() if message.wants_config else b""
        storages = sorted(member for member in self.mseq.config.members() if member.role == "storage")
        state = ConfigState(self.mseq.position, config, lagging, tuple(storages))
        self._out.send.append((peer, state))

    def _on_lease_request(self, peer: ProcessId, message: LeaseRequest) -> None:
        if not self._led or peer not in self._sessions:
            return
        if peer in self.mseq.departed or (self._was_told(peer) and self._is_forgotten(peer)):
            self._expel(peer)
        else:
            self.leases.take(peer, message.sent_s, self.broadcast.round + 1)

    @property
    def _credit(self) -> int:
        """What a sender may have on its way now, in bytes."""
        held = self.window.n_bytes + self.proposer.n_bytes + sum(self.proposer.open_bytes)
        return self.limits.credit(held, len(self._sessions))

    def _welcome(self, peer: ProcessId) -> None:
        if peer in self.mseq.departed:
            self._expel(peer)
            return
        learned = self._taken(peer) if self._led else self.mseq.learned_of(peer)
        leader = self.broadcast.leader
        ballot = self._led_ballot or self.broadcast.ballot
        self._out.send.append((peer, Welcome(ballot, self._led, leader, learned, self._credit)))

    def _expel(self, peer: ProcessId) -> None:
        """Tell a process that it is no member; how far it came may be forgotten."""
        departure = self.mseq.departed.get(peer) or Departure(self.mseq.position, 0)
        self._out.send.append((peer, Expelled(departure.position, departure.learned)))

    def _taken(self, sender: ProcessId) -> int:
        """Give the number up to which we have, or the order has, a sender's messages."""
        return max(self.proposer.taken(sender), self.mseq.learned_of(sender))

    def _on_route(self, peer: ProcessId, submission: Submission) -> None:
        n_undecided = submission.first - submission.acknowledged
        if submission.sender != peer or fault_of(submission) or n_undecided > self.limits.undecided:
            self._out.reset.append(peer)
            return
        if not self._led or peer in self.mseq.departed:
            self._welcome(peer)
            return
        self._acknowledge(peer, submission.acknowledged)
        n_known = self._taken(peer) + 1 - submission.first
        if n_known == 0 and submission.first == 1 and self._was_told(peer):
            # Its join is not what it takes itself for: it was taken, and is forgotten.
            if self._is_forgotten(peer):
                self._expel(peer)
                return
            if not self.mseq.config.is_member(peer):
                self._out.reset.append(peer)
                return
        if n_known < 0:
            is_over = submission.acknowledged > 0 and self._is_forgotten(peer)
            (self._expel if is_over else self._welcome)(peer)
        elif n_known >= len(submission.kind):
            self.record.settled[peer] = None
        else:
            fresh = submission.slice(n_known, len(submission.kind)) if n_known else submission
            if not self.proposer.put(fresh):
                self._out.reset.append(peer)

    def _was_told(self, peer: ProcessId) -> bool:
        """Whether a process states that it was told of a position, as only members are."""
        outbox = self.window.outboxes.get(peer)
        return outbox is not None and outbox.previous >= 0

    def _is_forgotten(self, peer: ProcessId) -> bool:
        """Whether a process that was a member once is none any more; where it left is forgotten too."""
        return self.proposer.is_caught_up and not self.mseq.config.is_member(peer)

    def _acknowledge(self, sender: ProcessId, acknowledged: int) -> None:
        if acknowledged > self._acknowledged.get(sender, 0):
            self._acknowledged[sender] = acknowledged
            self.window.forget_lost(sender, acknowledged)

    # Learning.

    def _take_news(self, now_s: float) -> None:
        """Carry out what the broadcast has to tell."""
        result = self.broadcast.flush(now_s)
        self._has_news = not self._may_be_quiet
        self._broadcast_wake_at_s = result.wake_at_s
        self._out.send += result.send
        if result.stop:
            self._out.stop = self._out.stop or result.stop
        if result.install is not None:
            self._install(*result.install)
            self.broadcast.attest(result.install[0], self.mseq.config.digest())
        for instance, batch in result.learned:
            if batch is not None:
                self._on_learned(instance, batch)
        if result.membership is not None:
            self._take_membership()
        if result.snapshot_for:
            self._lacking |= dict.fromkeys(result.snapshot_for)

    def _on_learned(self, instance: int, batch: Batch) -> None:
        before = self.mseq.config
        learned = self.record.learn(instance, batch, routes=self._led)
        if self.mseq.config is not before:
            self.broadcast.attest(instance, self.mseq.config.digest())
        if learned.suspected or learned.gaps or learned.void:
            for process in sorted(learned.suspected):
                self.proposer.forget(process)
                self.reads.end_session(process)
            self._answer_skipped(learned)

    def _answer_skipped(self, learned: Learned[C]) -> None:
        for sender in sorted(learned.gaps):
            # What follows the hole, proposed or waiting, is void too: start afresh.
            self.proposer.forget(sender)
            if self._led and sender in self._sessions:
                self._welcome(sender)
        for sender in sorted((learned.void - learned.gaps) | learned.suspected):
            # If not even its join had effect, saying it again would not help.
            if sender in self._sessions and (self._led or sender in self.mseq.departed):
                self._expel(sender)

    def _install(self, instance: int, snapshot: RouterSnapshot) -> None:
        self.record.install(instance, snapshot)
        # A snapshot asked for before this router was elected may arrive after: its
        # leadership is over, or begins once more.
        self._is_over = self._is_over or self._led
        self._led_ballot = None

    # A turn's end.

    def flush(self, now_s: float) -> Output:
        """Learn, take or give up leadership, propose, forward, answer."""
        broadcast, reads = self.broadcast, self.reads
        if self._is_leaderless and broadcast.leader is None:
            self.fellows.look_around(now_s)
        if self.fellows.due_s:
            self._out.connect += self.fellows.due(now_s)
        # Reads come with messages only: what a turn does with them leaves none where there were none.
        is_reading = not reads.is_idle
        proof = max(reads.proof, self.leases.proof)
        if proof and broadcast.answered_round == broadcast.round < proof:
            # One round at a time: what comes meanwhile shares the next.
            broadcast.begin_round(now_s)
            self._has_news = True
        wake_at_s = self._broadcast_wake_at_s
        if self._has_news or (wake_at_s is not None and now_s >= wake_at_s):
            self._take_news(now_s)
        if self.record.hint is not None and not self._led and self.record.take_hint(broadcast.learned):
            self._forget_strangers()
        led, is_behind, gives = broadcast.is_leader, False, False
        if self._lacking or (led and not self._led):
            is_behind = not self._catch_up()
            gives = not is_behind and self._provide_snapshots()
            # One that has not made up for what it did not route leads the broadcast only.
            led = led and not is_behind
        led_ballot = broadcast.ballot if led else None
        if self._is_over or (led_ballot is not self._led_ballot and led_ballot != self._led_ballot):
            self._led_ballot, self._is_over = led_ballot, False
            self._change_leadership()
        if (led and self.proposer.propose(self.window, self.mseq.config)) or gives:
            self._take_news(now_s)
        wake_at_s = self._broadcast_wake_at_s
        if led:
            if is_reading:
                self._inject(now_s)
            self._serve(now_s)
            if self.leases.proof:
                proven = broadcast.answered_round if self.proposer.is_caught_up else 0
                self._out.send += self.leases.answers(
                    proven, self.mseq, self.window, broadcast.ballot, self._credit
                )
            if wake_at_s is None or self._pulse_at_s < wake_at_s:
                wake_at_s = self._pulse_at_s
        else:
            self._stand_by(now_s)
        if is_reading:
            self._out.send.extend(reads.take_refusals())
        if is_reading or self.fellows.due_s or not self.presence.is_certain:
            wake_at_s = earliest(
                wake_at_s,
                reads.wake_at_s,
                # A leader looks with every pulse.
                None if led else self.presence.wake_at_s,
                self.fellows.wake_at_s,
            )
        if is_behind:
            wake_at_s = now_s
        out, self._out = self._out, Output()
        out.wake_at_s = wake_at_s
        return out

    def _serve(self, now_s: float) -> None:
        """Do what is for the leader to do."""
        self._is_leaderless = False
        if self.record.due:
            self._forward()
        if now_s >= self._pulse_at_s:
            self._pulse(now_s)
        if self.record.settled:
            self._answer_stable()

    def _stand_by(self, now_s: float) -> None:
        """Do what is for the others to do."""
        leader = self.broadcast.leader
        self._is_leaderless = leader is None
        is_present = leader is not None and leader != self.me
        if not is_present or not self.presence.is_certain:
            self._tell_presence(is_present, now_s)
        # A follower's window may lag; only a leader answers, and only a leader sends.
        self.record.settled.clear()
        self.record.due.clear()

    def _catch_up(self) -> bool:
        """Make up for some of what this router did not route while it followed; True if for all."""
        if not self.record.is_routed:
            self.record.route_slice()
        return self.record.is_routed

    def _provide_snapshots(self) -> bool:
        """Give the others what they lack; True if any lacked anything."""
        lacking, self._lacking = self._lacking, {}
        for peer in lacking:
            self.broadcast.provide_snapshot(peer, self.broadcast.learned, self.record.snapshot())
        return bool(lacking)

    def _tell_presence(self, is_present: bool, now_s: float) -> None:
        if self.presence.look(is_present=is_present, now_s=now_s):
            notice = Quorum(self.presence.is_there)
            self._out.send.extend((peer, notice) for peer in self._sessions)

    def _change_leadership(self) -> None:
        self.proposer = Proposer(self.broadcast, self.limits)
        self.laggards = Laggards(self.limits.max_lag_s)
        self._pulse_at_s = 0.0
        self.reads.change_leadership()
        self.leases.clear()
        for peer in self._sessions:
            # Under a new leadership nothing is sent before the destination has
            # stated how far it is: another leader may have served it meanwhile.
            if peer in self.window.outboxes:
                self.window.outboxes[peer].close()
            self._welcome(peer)
            self.record.settled[peer] = None

    def _inject(self, now_s: float) -> None:
        """Route the snapshot reads that may run at the position reached."""
        self.reads.inject(self.mseq, self.window.outboxes, proven=self._proven, now_s=now_s)
        self.record.due.update(dict.fromkeys(self.reads.waiting))

    def _forward(self) -> None:
        """Send each open session what it lacks, in order and within its credit."""
        ballot, credit_bytes = self.broadcast.ballot, self.limits.credit_bytes
        outboxes, send, reads = self.window.outboxes, self._out.send, self.reads
        waiting = reads.waiting
        due, self.record.due = self.record.due, {}
        for peer in due:
            outbox = outboxes.get(peer)
            if outbox is None or not outbox.is_open:
                continue
            has_reads = peer in waiting
            if has_reads:
                send += [(peer, read) for read in reads.due(peer, outbox, ballot)]
            entries = outbox.entries
            while outbox.n_sent < len(entries) and outbox.in_flight_bytes <= credit_bytes:
                entry = entries[outbox.n_sent]
                parts = entry.deliveries[peer]
                message = Deliver(ballot, entry.instance, outbox.previous, entry.last[peer], parts)
                send.append((peer, message))
                outbox.sent(entry)
                if has_reads:
                    # Those that lie before the next instance for it.
                    send += [(peer, read) for read in reads.due(peer, outbox, ballot)]

    def _pulse(self, now_s: float) -> None:
        self._pulse_at_s = now_s + self.limits.pulse_s
        self._out.connect += self.laggards.to_be_called(self.window, self._sessions, now_s)
        self._out.connect += self.fellows.to_be_told(now_s)
        self._tell_presence(self.broadcast.is_backed(now_s), now_s)
        self.laggards.look(self.window, now_s)
        ballot, credit = self.broadcast.ballot, self._credit
        for peer in self._next_pulsed():
            outbox = self.window.outboxes.get(peer)
            if outbox is None or not outbox.is_open:
                continue
            if outbox.previous >= 0 and self._is_forgotten(peer):
                self._expel(peer)
                outbox.close()
                continue
            # Only who is or was a member is ever told of a position.
            idle = self.mseq.position if self.mseq.config.is_member(peer) else NO_POSITION
            self._out.send.append((peer, Pulse(ballot, outbox.previous if outbox.entries else idle, credit)))
        self._forget_strangers()
        notice = self.record.notice(self.broadcast.learned)
        self._out.send.extend((router, notice) for router in self.broadcast.peers)

    def _forget_strangers(self) -> None:
        """Keep nothing of processes that are no members and have no session."""
        senders = self.mseq.learned.keys() | self.mseq.departed.keys()
        self.window.keep(senders, lambda p: p in self._sessions or self.mseq.config.is_member(p))

    def _next_pulsed(self) -> list[ProcessId]:
        if not self._pulsed:
            self._pulsed.extend(self._sessions)
        n = min(PULSES_MAX, len(self._pulsed))
        return [self._pulsed.popleft() for _ in range(n)]

    def _answer_stable(self) -> None:
        settled, self.record.settled = self.record.settled, {}
        present = [sender for sender in settled if sender in self._sessions]
        self._out.send += stable_notices(present, self.mseq, self.window, self._acknowledged, self._credit)
