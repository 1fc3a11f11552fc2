"""The pinned snapshots of one storage process: how long each is kept, and who asks for what.

Rules of the file: a pin comes in the order and is taken at its own place, between the operations before
and those behind (`pinning`); so whoever owns a range then has the same rows of it, whatever
moves later. It is kept until its lease is over by this process's own clock, until somebody
releases it, or until its memory is needed: at the watermark the oldest pin goes, as long as
pins keep anything from being freed, rather than the process. What was kept, and is not any more, is
never answered from. A process that does not know a pin says so at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from crescando.client.pinned import (
    LEASE_S_MAX,
    STRIPS_MAX,
    Fetch,
    Hold,
    Holding,
    Kept,
    PinAnswer,
    PinFault,
    PinId,
    PinQuestion,
    Release,
    Renew,
)
from crescando.engine.statement import decode_parameters
from crescando.errors import RemoteProtocolError
from crescando.process import earliest
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import AskPinned, PinAnswered
from crescando.roles.pinning import Fetching, PinnedImages, PinsDone, PinWork, TakePin
from crescando.roles.shapes import KnownShape
from crescando.routing.batch import Message
from crescando.routing.rubberband.messages import Pin, decode_message
from crescando.scopes import covers, merged
from crescando.types import KeyRange, ProcessId

ENDED_MAX = 1024
"""Pins of which it is remembered why they are over."""

FETCHES_MAX, FETCHES_OF_ONE_MAX = 256, 8
"""Questions for rows that may wait, of all clients and of one: the answers fit into one session."""

WAITING_MAX = 256
"""Questions that may wait for a pin to be taken."""

CLOSED = "it was closed"


@dataclass(slots=True)
class _Pin:
    """One pin that is kept, or is to be taken.

    Attributes
    ----------
    until_s : float
    lease_s : float
        How long its lease was when it was given last.
    holding : Holding or None
        None until it is taken.
    waiting : list of (ProcessId, int, PinQuestion)
        What is asked of it before.
    """

    until_s: float
    lease_s: float
    holding: Holding | None = None
    waiting: list[tuple[ProcessId, int, PinQuestion]] = field(default_factory=list)


class Layout(Protocol):
    """What is asked of a configuration."""

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the ring ranges whose rows `process` serves."""
        ...


class Pins:
    """The pinned snapshots at one storage process.

    Parameters
    ----------
    me : ProcessId
    limits : StorageLimits
        `pins` and `pinned_bytes` are asked for.
    put : callable
        Lets a step of the engine wait behind everything delivered, and takes its position.
    shape_of : callable
        Gives the shape of an encoding; None if it is malformed.
    """

    def __init__(
        self,
        me: ProcessId,
        limits: StorageLimits,
        *,
        put: Callable[[TakePin, int], None],
        shape_of: Callable[[bytes], KnownShape | None],
    ) -> None:
        self.me = me
        self._limits = limits
        self._put = put
        self._shape_of = shape_of
        self._images = PinnedImages()
        self._pins: dict[PinId, _Pin] = {}
        """Oldest first."""
        self._ended: OrderedDict[PinId, str] = OrderedDict()
        self._ends: list[PinId] = []
        """What the thread is still to let go of."""
        self._fetches: list[Fetching] = []
        self._n_open: dict[ProcessId, int] = {}
        """How many questions for rows of each client the thread has, or is to get."""
        self._to_send: list[tuple[ProcessId, PinAnswered]] = []
        self._is_behind = False
        self._keeps_bytes = True
        """Whether pins keep anything from being freed, as far as is known."""

    def __len__(self) -> int:
        return len(self._pins)

    # In the order.

    def follow(self, message: Message, config: Layout, at: int, now_s: float) -> None:
        """Take a configuration message at a position, with the configuration after it: it may be a pin."""
        try:
            body = decode_message(message.payload)
        except RemoteProtocolError:
            # Of a configuration that has messages of its own.
            return
        pin = PinId(message.sender, message.number)
        if not isinstance(body, Pin) or pin in self._ended:
            return
        if len(self._pins) >= self._limits.pins:
            self._note_end(pin, f"it keeps {len(self._pins)} pinned snapshots already; close some of them")
            return
        self._pins[pin] = _Pin(now_s + body.lease_s, body.lease_s)
        owned = config.owned_arcs(self.me)
        self._put(TakePin(pin, body.tables, owned, at, self._limits.pinned_bytes), at)

    # Questions.

    def on_message(self, peer: ProcessId, message: AskPinned, now_s: float) -> None:
        """Take a question; each is answered once."""
        self._expire(now_s)
        question, pin = message.question, message.question.pin
        known = self._pins.get(pin)
        if isinstance(question, Release):
            self._end(pin, CLOSED)
        elif known is not None and known.holding is None:
            # Its place in the order was not reached yet by whoever executes.
            if len(known.waiting) < WAITING_MAX:
                known.waiting.append((peer, message.request, question))
            else:
                self._answer(peer, message.request, PinFault("busy", f"{self.me} has yet to take the pin"))
            return
        if known is None or known.holding is None or isinstance(question, Release):
            self._answer(peer, message.request, self._fault(pin))
            return
        match question:
            case Renew() if not 0 < question.lease_s <= LEASE_S_MAX:
                told = f"a lease lasts more than 0 and at most {LEASE_S_MAX:.0f} s"
                self._answer(peer, message.request, PinFault("invalid", told))
            case Renew():
                if now_s + question.lease_s > known.until_s:
                    known.lease_s, known.until_s = question.lease_s, now_s + question.lease_s
                self._answer(peer, message.request, Kept(known.holding))
            case Hold():
                self._answer(peer, message.request, Kept(known.holding))
            case Fetch():
                self._fetch(peer, message.request, question, known.holding)

    def _fetch(self, peer: ProcessId, request: int, fetch: Fetch, holding: Holding) -> None:
        """Let the thread find and give rows, if this process had them all."""
        if not covers(merged(holding.arcs), (fetch.key_range,)):
            fault = PinFault("unknown", f"{self.me} did not own {fetch.key_range} at {holding.position}")
            self._answer(peer, request, fault)
            return
        n_open = self._n_open.get(peer, 0)
        if n_open >= FETCHES_OF_ONE_MAX or sum(self._n_open.values()) >= FETCHES_MAX:
            self._answer(peer, request, PinFault("busy", f"{self.me} has too many reads of pins waiting"))
            return
        known = self._shape_of(fetch.shape)
        try:
            if known is None or not 0 <= fetch.strip <= fetch.n_strips <= STRIPS_MAX or fetch.offset < 0:
                raise ValueError("no honest client sends this")
            parameters = decode_parameters(known.shape, fetch.parameters)
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError, RecursionError):
            self._answer(peer, request, PinFault("invalid", "the read is malformed"))
            return
        self._count(peer, 1)
        self._fetches.append(Fetching(peer, request, fetch, known.shape, parameters))

    def _count(self, client: ProcessId, change: int) -> None:
        n_open = self._n_open.pop(client, 0) + change
        if n_open:
            self._n_open[client] = n_open

    def end_session(self, peer: ProcessId) -> None:
        """Forget what a client has asked, which will ask again."""
        n_fetches = len(self._fetches)
        self._fetches = [each for each in self._fetches if each.asker != peer]
        self._count(peer, len(self._fetches) - n_fetches)
        for known in self._pins.values():
            known.waiting = [each for each in known.waiting if each[0] != peer]
        self._to_send = [each for each in self._to_send if each[0] != peer]

    def _answer(self, peer: ProcessId, request: int, answer: PinAnswer) -> None:
        self._to_send.append((peer, PinAnswered(request, answer)))

    def _fault(self, pin: PinId) -> PinFault:
        """Say why a pin is not kept here."""
        ended = self._ended.get(pin)
        if ended is not None:
            return PinFault("over", f"{self.me}: {ended}")
        return PinFault("unknown", f"{self.me} does not know it: it began later, or has begun anew")

    # The end of a pin.

    def _end(self, pin: PinId, why: str) -> None:
        """Let go of a pin, or never take it."""
        known = self._pins.pop(pin, None)
        if known is not None:
            self._ends.append(pin)
        if pin not in self._ended:
            self._note_end(pin, why)
        if known is not None:
            for peer, request, _ in known.waiting:
                self._answer(peer, request, self._fault(pin))

    def _note_end(self, pin: PinId, why: str) -> None:
        self._ended[pin] = why
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _expire(self, now_s: float) -> None:
        """End the pins whose lease is over."""
        for pin in [pin for pin, known in self._pins.items() if now_s >= known.until_s]:
            self._end(pin, f"its lease of {self._pins[pin].lease_s:g} s is over")

    def relieve(self, *, all_of_them: bool = False) -> bool:
        """End the oldest pin since its memory is needed, if pins keep any; says whether there was one."""
        if not self._pins or not self._keeps_bytes:
            return False
        for pin in list(self._pins) if all_of_them else [next(iter(self._pins))]:
            self._end(pin, "its memory was needed")
        return True

    # The engine's thread.

    @property
    def has_work(self) -> bool:
        """Whether a cycle has something to do for pins."""
        return self._is_behind or bool(self._fetches or self._ends)

    def take_work(self) -> PinWork:
        """Give what the next cycle is to do for pins."""
        fetches, self._fetches = tuple(self._fetches), []
        ends, self._ends = tuple(self._ends), []
        return PinWork(self._images, ends, fetches, self._limits.pinned_s)

    def on_executed(self, done: PinsDone, pinned_bytes: int | None, now_s: float) -> None:
        """Take what a cycle did for pins, and what is in memory for them only, if that was looked at."""
        self._is_behind = done.is_behind
        if pinned_bytes is not None:
            self._keeps_bytes = pinned_bytes > 0
        self._expire(now_s)
        for pin, taken in done.taken:
            self._on_taken(pin, taken, now_s)
        for job, answer in done.given:
            self._count(job.asker, -1)
            # What was over before it could be sent is not shown.
            is_over = job.fetch.pin not in self._pins
            self._answer(job.asker, job.request, self._fault(job.fetch.pin) if is_over else answer)

    def _on_taken(self, pin: PinId, taken: Holding | PinFault, now_s: float) -> None:
        known = self._pins.get(pin)
        if known is None:
            # It was over before its place was reached, and has been taken all the same.
            self._ends.append(pin)
            return
        if isinstance(taken, PinFault):
            self._end(pin, taken.text)
            return
        known.holding = taken
        waiting, known.waiting = known.waiting, []
        for peer, request, question in waiting:
            self.on_message(peer, AskPinned(request, question), now_s)

    # A turn's end.

    def take_to_send(self, now_s: float) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        self._expire(now_s)
        to_send, self._to_send = self._to_send, []
        return list(to_send)

    @property
    def wake_at_s(self) -> float | None:
        """When the first lease is over."""
        return earliest(*(known.until_s for known in self._pins.values()))
