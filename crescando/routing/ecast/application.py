"""The application role of E-Cast (RB13 Alg. 1), over batches.

Rules of the file: messages are numbered once and a number is never taken back;
they are sent in order to one router believed to lead, as its credit allows, and
sent again from its stated watermark when a session or a leadership begins. Incoming
messages are delivered or discarded at once, strictly in position order; a
message of a ballot below the highest seen is not delivered but answered with
that ballot, so that a deposed leader that wakes up does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from crescando.consensus.base import NO_BALLOT, Ballot
from crescando.process import Output
from crescando.routing.base import ExpelledEvent, MulticastEvent, ReadsEvent, StableEvent
from crescando.routing.batch import Submission
from crescando.routing.ecast.messages import (
    Confirm,
    Deliver,
    DeliverRead,
    Expelled,
    Fenced,
    Hello,
    Outdated,
    Pulse,
    Resume,
    Route,
    Routers,
    Stable,
    Welcome,
)
from crescando.routing.ecast.outgoing import Outgoing
from crescando.types import NO_POSITION, ProcessId

ROUTER = "router"
"""The role of those that a multicast's end point listens to."""

RECONNECT_S = 0.05
"""Pause before a lost or refused session is asked for again; doubled with each refusal."""

RECONNECT_S_MAX = 1.0


class Application:
    """The multicast end point of a client, storage or super process; a `Multicast`.

    Parameters
    ----------
    me : ProcessId
    routers : sequence of ProcessId
        The routers that are known; a session with each is kept. Whoever the
        routers are later, they tell.
    """

    def __init__(self, me: ProcessId, routers: Sequence[ProcessId]) -> None:
        self.me = me
        self.routers = tuple(routers)
        self._membership = (0, -1)
        self.ballot: Ballot = NO_BALLOT
        self.lead: ProcessId | None = None
        self.delivered: int = NO_POSITION
        self.next_number = 1
        self.acknowledged = 0
        self._holds_confirms = False
        self.is_expelled = False
        self.fenced = 0
        self.confirmed: int = NO_POSITION
        self._outgoing = Outgoing()
        self._reconnect: dict[ProcessId, float] = {}
        self._pause_s: dict[ProcessId, float] = {}
        self._confirm_to: ProcessId | None = None
        self._events: list[MulticastEvent] = []
        self._out = Output()

    # What the role asks.

    @property
    def n_unstable(self) -> int:
        """How many submissions have not become stable."""
        return len(self._outgoing)

    def submit(self, submission: Submission) -> None:
        """Take consecutive messages into the send window (Alg. 1, line 6).

        Raises
        ------
        ValueError
            If their sender or numbers are not the next ones of this process.
        """
        if submission.sender != self.me or submission.first != self.next_number:
            raise ValueError("messages are submitted once, in order, by their sender")
        self.next_number = submission.last + 1
        self._outgoing.add(submission)

    def hold_confirms(self, hold: bool) -> None:
        """Withhold confirmations: the routers then send only what credit allows."""
        self._holds_confirms = hold

    def take_events(self) -> list[MulticastEvent]:
        """Give what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    # Inputs.

    def on_start(self, now_s: float) -> None:
        """Ask for a session with every router."""
        self._out.connect.extend(self.routers)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Say hello; a leader answers with where it stands."""
        if peer.role == ROUTER:
            self._reconnect.pop(peer, None)
            self._pause_s.pop(peer, None)
            self._out.send.append((peer, Hello(self._membership[0])))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Forget the session; whoever leads next will state where to go on."""
        if peer.role != ROUTER:
            return
        if self.lead == peer:
            self.lead = None
        if self._confirm_to == peer:
            self._confirm_to = None
        if peer in self.routers:
            self._reconnect[peer] = now_s + RECONNECT_S

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Ask again later, and ever later."""
        if peer in self.routers:
            pause_s = self._pause_s.get(peer, RECONNECT_S)
            self._pause_s[peer] = min(2 * pause_s, RECONNECT_S_MAX)
            self._reconnect[peer] = now_s + pause_s

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router; others are ignored."""
        if peer.role != ROUTER:
            return
        match message:
            case Deliver():
                self._on_deliver(peer, message)
            case Stable():
                self._on_stable(peer, message)
            case DeliverRead():
                self._on_deliver_read(peer, message)
            case Pulse():
                self._on_pulse(peer, message)
            case Welcome():
                self._on_welcome(peer, message)
            case Routers():
                self._on_routers(message)
            case Expelled():
                self._on_expelled(message)
            case Outdated():
                self._on_outdated(message)

    def _on_welcome(self, peer: ProcessId, message: Welcome) -> None:
        if message.is_leader and message.ballot >= self.ballot:
            self.ballot = message.ballot
            self.lead = peer
            self._outgoing.restart(message.learned, message.credit)
            if not self._holds_confirms:
                self.confirmed = self.delivered
            # What is withheld is owed to the new leader.
            self._confirm_to = peer if self.confirmed < self.delivered else None
            self._out.send.append((peer, Resume(message.ballot, self.delivered, self.confirmed)))
        elif self.lead == peer and not message.is_leader:
            self.lead = None

    def _on_routers(self, message: Routers) -> None:
        """Take the list of a later membership; a router that left is heard until its session ends."""
        membership = (message.epoch, message.number)
        if membership <= self._membership:
            return
        self._membership = membership
        self._out.connect.extend(router for router in message.routers if router not in self.routers)
        for router in [known for known in self._reconnect if known not in message.routers]:
            del self._reconnect[router]
        self.routers = message.routers

    def _on_deliver(self, peer: ProcessId, message: Deliver) -> None:
        if message.ballot is not self.ballot:
            if message.ballot < self.ballot:
                self.fenced += 1
                self._out.send.append((peer, Fenced(self.ballot)))
                return
            self.ballot = message.ballot
        if message.previous > self.delivered:
            # Something was sent to us that never came: this session is broken.
            self._out.reset.append(peer)
            return
        for part in message.parts:
            # Positions ascend.
            if part.position.item(0) > self.delivered:
                self._events.append(part)
                continue
            known = int((part.position <= self.delivered).sum())
            if known < len(part):
                self._events.append(part.after(known))
        if message.last > self.delivered:
            self.delivered = message.last
        self._confirm_to = peer

    def _on_deliver_read(self, peer: ProcessId, message: DeliverRead) -> None:
        """Let reads run exactly behind what is delivered, or refuse them.

        One below the ballot seen may come from a leader that was deposed long
        ago; one below the position delivered would show what came after it.
        """
        refusal = ""
        if message.ballot < self.ballot:
            self.fenced += 1
            self._out.send.append((peer, Fenced(self.ballot)))
            refusal = "its router leads no more"
        else:
            self.ballot = message.ballot
            if self.delivered > message.position:
                refusal = "it came behind a later position"
            elif message.previous > self.delivered:
                self._out.reset.append(peer)
                refusal = "what comes before it is missing"
            else:
                self.delivered = message.position
        self._events.append(ReadsEvent(message.position, message.parts, refusal))

    def _on_pulse(self, peer: ProcessId, message: Pulse) -> None:
        if message.ballot < self.ballot:
            self._out.send.append((peer, Fenced(self.ballot)))
            return
        self.ballot = message.ballot
        self.delivered = max(self.delivered, message.idle)
        if peer == self.lead:
            self._outgoing.credit = message.credit

    def _on_stable(self, peer: ProcessId, message: Stable) -> None:
        if peer == self.lead:
            self._outgoing.credit = message.credit
        exceptions = tuple(e for e in message.exceptions if e.number > self.acknowledged)
        if message.upto <= self.acknowledged and not exceptions:
            return
        self.acknowledged = max(self.acknowledged, message.upto)
        self._outgoing.settle(self.acknowledged)
        self._events.append(StableEvent(self.acknowledged, exceptions))

    def _on_expelled(self, message: Expelled) -> None:
        if self.is_expelled:
            return
        self.is_expelled = True
        self._outgoing.drop_above(message.learned)
        self._events.append(ExpelledEvent(message.position, message.learned))

    def _on_outdated(self, message: Outdated) -> None:
        if self.is_expelled:
            return
        self.is_expelled = True
        # Nothing of its own is void: it is a member until it is voted out.
        self._events.append(ExpelledEvent(message.position, self.next_number - 1, is_outdated=True))

    # A turn's end.

    def flush(self, now_s: float) -> Output:
        """Send what is due: own messages, one confirmation a router, wanted sessions."""
        if self._reconnect:
            self._ask_again(now_s)
        if self._outgoing.waiting and self.lead is not None and not self.is_expelled:
            for submission in self._outgoing.take():
                if submission.acknowledged != self.acknowledged:
                    submission = msgspec.structs.replace(submission, acknowledged=self.acknowledged)
                self._out.send.append((self.lead, Route(submission)))
        if self._confirm_to is not None and not self._holds_confirms:
            self._out.send.append((self._confirm_to, Confirm(self.delivered)))
            self._confirm_to, self.confirmed = None, self.delivered
        out, self._out = self._out, Output()
        if self._reconnect:
            out.wake_at_s = min(self._reconnect.values())
        return out

    def _ask_again(self, now_s: float) -> None:
        """Ask for the sessions that were lost or refused a while ago."""
        for peer in [known for known, due_s in self._reconnect.items() if now_s >= due_s]:
            del self._reconnect[peer]
            self._out.connect.append(peer)
