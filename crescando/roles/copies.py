"""The part of one storage process in changes of the keyspace: what it sends, what it receives, what it holds.

Rules of the file: everything follows from the configuration, message by message. What changes
the engine is put into the queue of operations at the message's own place, so it happens between
the operations before and those behind (RB13 §6.4, in two ordered steps; see
`routing.rubberband.changes`). Of two processes the first in name asks for their session, which
lasts as long as some copy between them does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from crescando.process import earliest
from crescando.roles.areas import AreaState, Barrier, EndCopy, Hand, Make, Moved, OpenArea, Recut, TakeImage
from crescando.roles.copy_messages import (
    AskCopies,
    CopiesTold,
    CopyHead,
    CopyId,
    CopyUnknown,
    FetchParcels,
    Outcomes,
    Parcel,
)
from crescando.roles.incoming import Incoming
from crescando.roles.limits import StorageLimits
from crescando.roles.outgoing import Outgoing
from crescando.roles.staging import Late
from crescando.routing.rubberband.messages import DropChange, MessageId, Ready
from crescando.scopes import common
from crescando.types import KeyRange, ProcessId, Scope

RECONNECT_S = 0.1
"""When to ask again for a session that was lost or refused."""

ANSWER_S = 3.0
"""When to ask again if there was no answer at all."""

CopyMessage = FetchParcels | CopyHead | Parcel | CopyUnknown
"""What two storage processes tell each other."""


class Transfer(Protocol):
    """A copy under way; see `routing.rubberband.transfers`."""

    @property
    def change(self) -> MessageId: ...

    @property
    def number(self) -> int: ...

    @property
    def sender(self) -> ProcessId: ...

    @property
    def receiver(self) -> ProcessId: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def missing(self) -> Scope: ...

    @property
    def awaited(self) -> Scope: ...

    @property
    def is_ready(self) -> bool: ...


class Layout(Protocol):
    """What is asked of a configuration about who holds what."""

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the ring ranges whose rows `process` serves."""
        ...

    def wanted(self, process: ProcessId) -> Scope:
        """Give what a process must keep as soon as it holds it."""
        ...

    def borders(self) -> tuple[int, ...]:
        """Give where arcs begin, now or after some change that is under way."""
        ...

    def transfers(self, process: ProcessId) -> Sequence[Transfer]:
        """Give the copies under way that a process sends or receives, in the order of their changes."""
        ...


class Copies:
    """The copies that one process sends and receives.

    Parameters
    ----------
    me : ProcessId
    limits : StorageLimits
    put : callable
        Lets a step of the engine wait behind everything delivered, and takes its position.
    outcomes : callable
        Gives the outcomes of writes below a position that concern a scope.
    keep : callable
        Takes such outcomes from elsewhere.
    late : callable
        Gives the chunks of loads that an image taken now will not have.

    Attributes
    ----------
    also : frozenset of ProcessId
        With whom there must be a session for another reason.
    """

    def __init__(
        self,
        me: ProcessId,
        limits: StorageLimits,
        *,
        put: Callable[[Barrier, int], None],
        outcomes: Callable[[Scope, int], Sequence[Outcomes]],
        keep: Callable[[Outcomes, float], None],
        late: Callable[[Scope], Sequence[Late]],
    ) -> None:
        self.me = me
        self._limits = limits
        self._put = put
        self._outcomes = outcomes
        self._keep = keep
        self._late = late
        self.also: frozenset[ProcessId] = frozenset()
        self._layout: tuple[Scope, Scope, tuple[int, ...]] | None = None
        self._incoming: dict[CopyId, Incoming] = {}
        self._outgoing: dict[CopyId, Outgoing] = {}
        self._ended: set[CopyId] = set()
        """Copies that were sent and have arrived, of changes that are under way."""
        self._sessions: set[ProcessId] = set()
        self._asked: set[ProcessId] = set()
        """With whom this process has asked for a session."""
        self._try_at_s: dict[ProcessId, float] = {}
        """When to ask whom for a session, of those with whom one is needed."""
        self._is_behind = False
        self._to_say: list[Ready | DropChange] = []
        self._to_send: list[tuple[ProcessId, Any]] = []
        self._reset: list[ProcessId] = []
        self._now_s = 0.0

    # The configuration.

    def begin(self, layout: Layout) -> None:
        """Begin with what the process owns, all of it empty; one that joins later owns nothing."""
        self._layout = layout.owned_arcs(self.me), layout.wanted(self.me), layout.borders()
        self._put(Recut(*self._layout, is_first=True), -1)

    def follow(self, layout: Layout, at: int, now_s: float) -> None:
        """Take the configuration after a message at a position."""
        peers = self._peers()
        under_way = {CopyId(each.change, each.number): each for each in layout.transfers(self.me)}
        self._end(under_way, at)
        present = layout.owned_arcs(self.me), layout.wanted(self.me), layout.borders()
        before, self._layout = self._layout, present
        # Whoever holds nothing, before and after, has nothing to cut.
        if present != before and (present[1] or (before is not None and before[1])):
            self._put(Recut(*present), at)
        for copy, transfer in under_way.items():
            if transfer.receiver == self.me:
                self._follow_incoming(copy, transfer, at, now_s)
            elif copy not in self._ended:
                self._follow_outgoing(copy, transfer, at, now_s)
        for peer in sorted(peers - self._peers()):
            self._try_at_s.pop(peer, None)
            if peer in self._sessions:
                self._reset.append(peer)

    def _end(self, under_way: dict[CopyId, Transfer], at: int) -> None:
        """Let go of what has arrived, or is dropped."""
        for copy in [known for known in self._incoming if known not in under_way]:
            del self._incoming[copy]
            self._put(EndCopy(copy), at)
        for copy in list(self._outgoing):
            transfer = under_way.get(copy)
            if transfer is None or transfer.is_ready:
                if self._outgoing.pop(copy).has_begun:
                    self._put(EndCopy(copy), at)
                self._ended.add(copy)
        self._ended.intersection_update(under_way)

    def _follow_incoming(self, copy: CopyId, transfer: Transfer, at: int, now_s: float) -> None:
        known = self._incoming.get(copy)
        if known is None:
            known = self._incoming[copy] = Incoming(
                copy, transfer.sender, self.me, transfer.scope, transfer.missing, self._limits
            )
        known.is_ready = transfer.is_ready
        if not known.has_begun and not common(known.missing, transfer.awaited):
            known.begin(now_s)
            borders = () if self._layout is None else self._layout[2]
            self._put(OpenArea(copy, known.scope, known.missing, borders), at)
            if known.needs_session and known.sender in self._sessions:
                self._to_send.append((known.sender, known.on_connected()))

    def _follow_outgoing(self, copy: CopyId, transfer: Transfer, at: int, now_s: float) -> None:
        known = self._outgoing.get(copy)
        if known is None:
            known = self._outgoing[copy] = Outgoing(
                copy, self.me, transfer.receiver, transfer.scope, transfer.missing
            )
        if known.missing and not known.has_begun and not common(known.missing, transfer.awaited):
            known.begin(now_s)
            known.late = self._late(known.missing)
            self._put(TakeImage(copy, known.missing, at), at)

    # Sessions with other storage processes.

    def _peers(self) -> set[ProcessId]:
        """Give with whom there must be a session."""
        peers = {each.sender for each in self._incoming.values() if each.needs_session}
        return peers | {each.receiver for each in self._outgoing.values() if each.needs_session} | self.also

    def on_connected(self, peer: ProcessId) -> None:
        """Fetch what this process is still to receive of another one."""
        self._sessions.add(peer)
        self._try_at_s.pop(peer, None)
        if peer in self._asked and peer not in self._peers():
            # It was asked for, and is not needed any more; if the other side needs it, it asks.
            self._asked.discard(peer)
            self._reset.append(peer)
        for each in self._from(peer):
            self._to_send.append((peer, each.on_connected()))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Forget what was on its way, and ask for the session again if it is needed."""
        self._sessions.discard(peer)
        for outgoing in self._outgoing.values():
            if outgoing.receiver == peer:
                outgoing.end_session()
        self.on_refused(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Try again later, if the session is needed."""
        for each in self._from(peer):
            each.on_disconnected(now_s)
        if self._dials(peer) and peer in self._peers():
            self._try_at_s[peer] = now_s + RECONNECT_S

    def _dials(self, peer: ProcessId) -> bool:
        """Whether it is for this process to ask for the session: of a copy both ends know."""
        return peer > self.me or peer in self.also

    def _from(self, peer: ProcessId) -> Iterator[Incoming]:
        """Give the copies that are fetched from a process."""
        for each in self._incoming.values():
            if each.sender == peer and each.needs_session:
                yield each

    def on_message(self, peer: ProcessId, message: CopyMessage, now_s: float) -> None:
        """Take a message of the other side of a copy."""
        try:
            if isinstance(message, FetchParcels):
                self._on_fetch(peer, message)
            else:
                self._on_sent(peer, message, now_s)
        except ValueError:
            # What is missing will not come in this session any more.
            self._reset.append(peer)

    def _on_fetch(self, peer: ProcessId, message: FetchParcels) -> None:
        outgoing = self._outgoing.get(message.copy)
        if outgoing is None or outgoing.receiver != peer or not outgoing.has_begun:
            self._to_send.append((peer, CopyUnknown(message.copy)))
            return
        outgoing.on_fetch(message)
        self._send(outgoing)

    def _send(self, outgoing: Outgoing) -> None:
        self._to_send.extend((outgoing.receiver, each) for each in outgoing.messages())

    def _on_sent(self, peer: ProcessId, message: CopyHead | Parcel | CopyUnknown, now_s: float) -> None:
        incoming = self._incoming.get(message.copy)
        if incoming is None or incoming.sender != peer or not incoming.needs_session:
            return
        match message:
            case CopyHead():
                incoming.on_head(message)
            case CopyUnknown():
                incoming.on_unknown(now_s)
            case Parcel():
                outcomes = incoming.on_parcel(message)
                if outcomes is not None:
                    self._keep(outcomes, now_s)
                if incoming.wants_more:
                    self._to_send.append((peer, incoming.fetch()))

    def ask(self, peer: ProcessId, message: AskCopies) -> None:
        """Tell a client how the copies get on."""
        told = CopiesTold(
            message.request,
            tuple(each.progress(self._now_s) for each in self._incoming.values()),
            tuple(each.progress(self._now_s) for each in self._outgoing.values()),
        )
        self._to_send.append((peer, told))

    # The engine's thread.

    @property
    def has_work(self) -> bool:
        """Whether a cycle has something to do for copies."""
        return (
            self._is_behind
            or any(each.has_to_hand for each in self._incoming.values())
            or any(each.wants_make for each in self._outgoing.values())
        )

    def take_work(self) -> tuple[tuple[Make, ...], tuple[Hand, ...]]:
        """Give what the next cycle is to do for copies."""
        makes = tuple(each.make() for each in self._outgoing.values() if each.wants_make)
        hands = tuple(each.hand() for each in self._incoming.values() if each.has_to_hand)
        return makes, hands

    def on_executed(self, moved: Moved) -> None:
        """Take what a cycle did for copies; what its writes did is kept already."""
        self._is_behind = moved.is_behind
        for image in moved.images:
            outgoing = self._outgoing.get(image.copy)
            if outgoing is not None:
                outgoing.on_image(image, self._outcomes(outgoing.missing, image.at))
                self._send(outgoing)
        for made in moved.made:
            outgoing = self._outgoing.get(made.copy)
            if outgoing is not None:
                self._to_send.extend((outgoing.receiver, each) for each in outgoing.on_made(made))
        for state in moved.states:
            self._on_state(state)

    def _on_state(self, state: AreaState) -> None:
        incoming = self._incoming.get(state.copy)
        if incoming is not None and incoming.on_state(state) and incoming.sender in self._sessions:
            self._to_send.append((incoming.sender, incoming.fetch()))

    # A turn's end.

    def flush(self, now_s: float, *, is_full: bool) -> None:
        """Judge what time alone brings about, and whether this process has room for what it receives."""
        self._now_s = now_s
        for outgoing in self._outgoing.values():
            if outgoing.late:
                self._send(outgoing)
        for each in self._incoming.values():
            verdict = each.verdict(now_s, is_full=is_full)
            if verdict is not None:
                self._to_say.append(verdict)
            if each.ask_at_s is not None and now_s >= each.ask_at_s and not each.is_over:
                self._to_send.append((each.sender, each.fetch()))

    def take_to_say(self) -> list[Ready | DropChange]:
        """Give what is to be said in the order."""
        to_say, self._to_say = self._to_say, []
        return to_say

    def take_to_send(self) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        to_send, self._to_send = self._to_send, []
        return to_send

    def take_to_reset(self) -> list[ProcessId]:
        """Give the sessions that are to be ended."""
        to_reset, self._reset = self._reset, []
        return to_reset

    def take_to_connect(self, now_s: float) -> list[ProcessId]:
        """Give with whom a session is wanted."""
        peers = self._peers()
        for peer in sorted(peers - self._sessions):
            if self._dials(peer):
                self._try_at_s.setdefault(peer, now_s)
        for peer in [each for each in self._try_at_s if each not in peers]:
            del self._try_at_s[peer]
        due = [peer for peer, try_at_s in self._try_at_s.items() if now_s >= try_at_s]
        # The answer may be lost with the process that was to give it.
        self._try_at_s.update(dict.fromkeys(due, now_s + ANSWER_S))
        self._asked.update(due)
        return due

    def need(self, also: frozenset[ProcessId]) -> None:
        """Learn with whom there must be a session for another reason, and end those that need not be."""
        gone = self.also - also
        self.also = also
        if gone:
            peers = self._peers()
            self._reset += [peer for peer in sorted(gone) if peer in self._sessions and peer not in peers]

    @property
    def wake_at_s(self) -> float | None:
        """When there is something to do, if nothing happens before."""
        copies_s = (each.wake_at_s for each in self._incoming.values())
        return earliest(*self._try_at_s.values(), *copies_s)
