"""The router role of E-Cast (RB13 Alg. 2), over batches and over any atomic broadcast.

Rules of the file: what is agreed upon lives in `MSeq`, who has confirmed in
`Window`; this file holds sessions, proposes what arrives and forwards what is
learned. Only a leader proposes, forwards and answers, yet nothing breaks when
two routers believe to lead: positions come from the m-seq, destinations
refuse the lower ballot, and duplicates fall to the learned watermark.

Before a message is sent to a process, every preceding unstable message for it
is sent first; a session resumes at the position that the process states.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crescando.consensus.base import AtomicBroadcast, Ballot
from crescando.process import Output, earliest
from crescando.routing.base import Config, NotStable
from crescando.routing.batch import Submission, fault_of
from crescando.routing.ecast.messages import (
    Batch,
    ConfigRequest,
    ConfigState,
    Confirm,
    Deliver,
    Expelled,
    Fenced,
    Hello,
    Pulse,
    Resume,
    Route,
    Stable,
    StableUpTo,
    Welcome,
)
from crescando.routing.ecast.mseq import Learned, MSeq
from crescando.routing.ecast.snapshot import RouterSnapshot, restore, take_snapshot
from crescando.routing.ecast.stability import Window, entry_of
from crescando.types import MessageKind, ProcessId, Verdict

C = TypeVar("C", bound=Config)


RECONNECT_S = 0.2
"""Pause before another router that refused a session is asked again."""


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """Bounds of one router.

    Parameters
    ----------
    batch_messages, batch_bytes : int
        What one instance holds at most (one larger submission is still taken).
    window_bytes : int
        Unstable bytes above which no data is proposed.
    reserve_bytes : int
        Further bytes that only configuration messages may use.
    credit_bytes : int
        Sent and unconfirmed bytes above which a destination is sent no more.
    pulse_s : float
        Spacing of the leader's signs of life to application processes.
    eager_messages : int
        While an instance is open, at least so many messages must wait before
        the next one is proposed: under load batches grow by themselves.
    """

    batch_messages: int = 8192
    batch_bytes: int = 4 << 20
    window_bytes: int = 256 << 20
    reserve_bytes: int = 16 << 20
    credit_bytes: int = 32 << 20
    pulse_s: float = 0.1
    eager_messages: int = 256


class Router(Generic[C]):
    """One router process's core.

    Parameters
    ----------
    me : ProcessId
    routers : tuple of ProcessId
        All members of the broadcast group.
    config : Config
        The configuration before the first message.
    broadcast : AtomicBroadcast
    limits : RouterLimits
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        routers: tuple[ProcessId, ...],
        config: C,
        broadcast: AtomicBroadcast[Batch],
        limits: RouterLimits | None = None,
    ) -> None:
        self.me = me
        self.broadcast = broadcast
        self.limits = limits or RouterLimits()
        self.mseq: MSeq[C] = MSeq(config)
        self.window: Window[C] = Window()
        self._config_type = type(config)
        self._routers = frozenset(routers)
        self._sessions: dict[ProcessId, None] = {}
        self._inbox: dict[ProcessId, deque[Submission]] = {}
        self._waiting_messages = 0
        self._proposed: dict[ProcessId, int] = {}
        self._touched: dict[ProcessId, None] = {}
        self._acknowledged: dict[ProcessId, int] = {}
        self._led_ballot: Ballot | None = None
        self._pulse_at_s = 0.0
        self._stable_hint: StableUpTo | None = None
        self._reconnect: dict[ProcessId, float] = {}
        self._out = Output()

    @property
    def _led(self) -> bool:
        """Whether this router acts as the leader in this turn."""
        return self._led_ballot is not None

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Ask for sessions with the other routers that come after us in their names."""
        self._out.connect.extend(sorted(router for router in self._routers if router > self.me))
        self.broadcast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Begin a session; an application process speaks first."""
        if peer in self._routers:
            self._reconnect.pop(peer, None)
            self.broadcast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """End a session: what it was sent and did not confirm will be sent again."""
        if peer in self._routers:
            self.broadcast.on_disconnected(peer, now_s)
            if peer > self.me:
                self._out.connect.append(peer)
            return
        self._sessions.pop(peer, None)
        self._acknowledged.pop(peer, None)
        if peer in self.window.outboxes:
            self.window.outboxes[peer].close()

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Ask a router again later; its silence meanwhile is the detector's business."""
        if peer in self._routers:
            self._reconnect[peer] = now_s + RECONNECT_S

    def on_executed(self, result: Any, now_s: float) -> None:
        """Routers execute nothing."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message from a router or an application process."""
        match message:
            case Route():
                self._on_route(peer, message.submission)
            case Confirm():
                self._settle(self.window.confirm(peer, message.position))
            case Hello():
                self._sessions[peer] = None
                self._touched[peer] = None
                self._welcome(peer)
            case Resume():
                self._on_resume(peer, message)
            case Fenced():
                self.broadcast.observe(message.ballot, now_s)
            case ConfigRequest():
                state = ConfigState(self.mseq.position, self.mseq.config.encode())
                self._out.send.append((peer, state))
            case StableUpTo():
                if peer in self._routers and not self.broadcast.is_leader:
                    self._stable_hint = message
            case _:
                if peer in self._routers:
                    self.broadcast.on_message(peer, message, now_s)

    def _on_resume(self, peer: ProcessId, message: Resume) -> None:
        if message.ballot != self._led_ballot or peer not in self._sessions:
            return
        outbox = self.window.outbox(peer)
        if message.delivered < outbox.trimmed:
            # What it lacks has left the window: it is not the process that
            # confirmed it, or it lost its state. It must return as a new one.
            self._out.send.append((peer, Expelled(self.mseq.position, self.mseq.learned_of(peer))))
            return
        self._settle(self.window.confirm(peer, message.delivered))
        if not outbox.is_open:
            outbox.is_open, outbox.previous = True, message.delivered

    def _welcome(self, peer: ProcessId) -> None:
        departure = self.mseq.departed.get(peer)
        if departure is not None:
            self._out.send.append((peer, Expelled(departure.position, departure.learned)))
            return
        learned = self._taken(peer) if self._led else self.mseq.learned_of(peer)
        leader = self.broadcast.leader
        ballot = self._led_ballot or self.broadcast.ballot
        self._out.send.append((peer, Welcome(ballot, self._led, leader, learned)))

    def _taken(self, sender: ProcessId) -> int:
        """Give the number up to which we have, or the order has, a sender's messages."""
        return max(self._proposed.get(sender, 0), self.mseq.learned_of(sender))

    def _on_route(self, peer: ProcessId, submission: Submission) -> None:
        if submission.sender != peer or fault_of(submission):
            self._out.reset.append(peer)
            return
        if not self._led or peer in self.mseq.departed:
            self._welcome(peer)
            return
        self._acknowledge(peer, submission.acknowledged)
        taken = self._taken(peer)
        if submission.last <= taken:
            self._touched[peer] = None
            return
        if submission.first > taken + 1:
            self._welcome(peer)
            return
        self._proposed[peer] = submission.last
        fresh = submission.slice(taken + 1 - submission.first, len(submission))
        self._inbox.setdefault(peer, deque()).append(fresh)
        self._waiting_messages += len(fresh)

    def _acknowledge(self, sender: ProcessId, acknowledged: int) -> None:
        if acknowledged > self._acknowledged.get(sender, 0):
            self._acknowledged[sender] = acknowledged
            self.window.forget_lost(sender, acknowledged)

    # Learning.

    def _on_learned(self, instance: int, batch: Batch | None) -> None:
        if batch is None:
            return
        learned = self.mseq.learn(instance, batch)
        suspected = learned.suspected
        entry = entry_of(instance, learned.runs, suspected)
        self._settle(self.window.add(entry))
        for process in sorted(suspected):
            self._settle(self.window.suspect(process))
            self._forget_sender(process)
        self._answer_skipped(learned)

    def _answer_skipped(self, learned: Learned[C]) -> None:
        for sender in sorted(learned.gaps):
            # What follows the hole, proposed or waiting, is void too: start afresh.
            self._forget_sender(sender)
            if self._led and sender in self._sessions:
                self._welcome(sender)
        for sender in sorted(learned.void | learned.suspected):
            if sender in self._sessions and sender in self.mseq.departed:
                self._welcome(sender)

    def _forget_sender(self, sender: ProcessId) -> None:
        self._proposed.pop(sender, None)
        for submission in self._inbox.pop(sender, ()):
            self._waiting_messages -= len(submission)

    def _settle(self, senders: set[ProcessId]) -> None:
        for sender in sorted(senders):
            self._touched[sender] = None

    def _take_stable_hint(self) -> None:
        hint = self._stable_hint
        if hint is not None and not self._led:
            upto = min(hint.instance, self.broadcast.learned)
            self._settle(self.window.stabilise(upto, hint.lost, frozenset(hint.unstable)))

    def _install(self, snapshot: RouterSnapshot) -> None:
        self.mseq, self.window = restore(snapshot, self._config_type)
        # The outboxes are new and closed. A snapshot asked for before this router was
        # elected may arrive after: its leadership then begins once more.
        self._led_ballot = None

    # A turn's end.

    def flush(self, now_s: float) -> Output:
        """Learn, take or give up leadership, propose, forward, answer."""
        for peer in [known for known, due_s in self._reconnect.items() if now_s >= due_s]:
            del self._reconnect[peer]
            self._out.connect.append(peer)
        result = self.broadcast.flush(now_s)
        self._out.send.extend(result.send)
        if result.install is not None:
            self._install(result.install[1])
        for instance, batch in result.learned:
            self._on_learned(instance, batch)
        self._take_stable_hint()
        for peer in result.snapshot_for:
            snapshot = take_snapshot(self.mseq, self.window)
            self.broadcast.provide_snapshot(peer, self.broadcast.learned, snapshot)
        led_ballot = self.broadcast.ballot if self.broadcast.is_leader else None
        if led_ballot != self._led_ballot:
            self._led_ballot = led_ballot
            self._change_leadership()
        again = self._propose()
        if again or result.snapshot_for:
            more = self.broadcast.flush(now_s)
            self._out.send.extend(more.send)
            for instance, batch in more.learned:
                self._on_learned(instance, batch)
            result.wake_at_s = more.wake_at_s
        if self._led:
            self._forward()
            self._pulse(now_s)
        self._answer_stable()
        out, self._out = self._out, Output()
        out.wake_at_s = earliest(
            result.wake_at_s,
            self._pulse_at_s if self._led else None,
            min(self._reconnect.values(), default=None),
        )
        return out

    def _change_leadership(self) -> None:
        self._inbox.clear()
        self._waiting_messages = 0
        self._proposed.clear()
        self._pulse_at_s = 0.0
        for batch in self.broadcast.open_values():
            for submission in batch.submissions:
                self._proposed[submission.sender] = submission.last
        for peer in self._sessions:
            # Under a new leadership nothing is sent before the destination has
            # stated how far it is: another leader may have served it meanwhile.
            if peer in self.window.outboxes:
                self.window.outboxes[peer].close()
            self._welcome(peer)
            self._touched[peer] = None

    def _propose(self) -> bool:
        """Propose what waits, as batches; True if anything was proposed."""
        proposed = False
        while self._inbox and self.broadcast.can_propose():
            if self.broadcast.n_open and self._waiting_messages < self.limits.eager_messages:
                break
            batch = self._take_batch()
            if batch is None:
                break
            self.broadcast.propose(batch)
            proposed = True
        return proposed

    def _take_batch(self) -> Batch | None:
        """Take from the senders in turn, so that none waits behind another's backlog."""
        only_config = self.window.n_bytes >= self.limits.window_bytes
        if self.window.n_bytes >= self.limits.window_bytes + self.limits.reserve_bytes:
            return None
        taken: list[Submission] = []
        n_messages = n_bytes = 0
        for sender in list(self._inbox):
            queue = self._inbox.pop(sender)
            if only_config and int(queue[0].kind[0]) != MessageKind.CONFIG:
                self._inbox[sender] = queue
                continue
            submission = queue[0]
            size = len(submission)
            if taken and (
                n_messages + size > self.limits.batch_messages
                or n_bytes + submission.n_bytes > self.limits.batch_bytes
            ):
                # Back to the front: it is the next one's turn in the next batch.
                self._inbox = {sender: queue, **self._inbox}
                break
            queue.popleft()
            if only_config and size > 1:
                queue.appendleft(submission.slice(1, size))
                submission = submission.slice(0, 1)
            taken.append(submission)
            n_messages += len(submission)
            n_bytes += submission.n_bytes
            if queue:
                self._inbox[sender] = queue
        self._waiting_messages -= n_messages
        return Batch(tuple(taken)) if taken else None

    def _forward(self) -> None:
        """Send each open session what it lacks, in order and within its credit."""
        ballot = self.broadcast.ballot
        for peer in self._sessions:
            outbox = self.window.outboxes.get(peer)
            if outbox is None or not outbox.is_open or outbox.n_sent == len(outbox.entries):
                continue
            while outbox.n_sent < len(outbox.entries) and outbox.in_flight_bytes <= self.limits.credit_bytes:
                entry = outbox.entries[outbox.n_sent]
                last = entry.last[peer]
                parts = entry.deliveries[peer]
                message = Deliver(ballot, entry.instance, outbox.previous, last, parts)
                self._out.send.append((peer, message))
                outbox.previous = last
                outbox.n_sent += 1
                outbox.in_flight_bytes += entry.n_bytes

    def _pulse(self, now_s: float) -> None:
        if now_s < self._pulse_at_s:
            return
        self._pulse_at_s = now_s + self.limits.pulse_s
        ballot = self.broadcast.ballot
        for peer in self._sessions:
            outbox = self.window.outboxes.get(peer)
            if outbox is not None and outbox.is_open:
                idle = outbox.previous if outbox.entries else self.mseq.position
                self._out.send.append((peer, Pulse(ballot, idle)))
        self.window.keep_lost(self.mseq.learned.keys() | self.mseq.departed.keys())
        lost = tuple((sender, n) for sender, ns in self.window.lost.items() for n in sorted(ns))
        unstable = tuple(sorted(self.window.entries))
        notice = StableUpTo(self.broadcast.learned, lost, unstable)
        self._out.send.extend((router, notice) for router in sorted(self._routers - {self.me}))

    def _answer_stable(self) -> None:
        touched, self._touched = self._touched, {}
        if not self._led:
            # A follower's window may lag; only a leader answers.
            return
        for sender in touched:
            if sender not in self._sessions:
                continue
            learned = self.mseq.learned_of(sender)
            upto = self.window.stable_of(sender, learned)
            told = self._acknowledged.get(sender, 0)
            exceptions = [
                NotStable(number, Verdict.REFUSED.value, reason)
                for number, reason in self.mseq.refused.get(sender, {}).items()
                # Final as soon as it is learned, so it need not wait for what is before it.
                if told < number
            ]
            exceptions += [
                NotStable(number, Verdict.LOST.value, "every owner of a range failed")
                for number in sorted(self.window.lost.get(sender, ()))
                if told < number <= upto
            ]
            if upto > told or exceptions or sender in self.mseq.departed:
                self._out.send.append((sender, Stable(upto, tuple(exceptions))))
