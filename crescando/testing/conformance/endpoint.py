"""A process around one end of a multicast: what it submits, delivers, and is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crescando.process import Output
from crescando.routing.base import ExpelledEvent, Multicast, ReadsEvent, StableEvent
from crescando.routing.batch import Delivery, Message, Submission, submission
from crescando.testing.conformance.rules import ConformanceError
from crescando.types import ProcessId, Scope


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message at one destination, and the Config that came with it."""

    position: int
    sender: ProcessId
    number: int
    scope: Scope
    config: bytes = b""


@dataclass(frozen=True, slots=True)
class Ran:
    """One snapshot read, or its part, that one destination was to run.

    `n_delivered` is how many messages it had delivered before.
    """

    position: int
    sender: ProcessId
    number: int
    scope: Scope
    n_delivered: int


@dataclass(frozen=True, slots=True)
class ReadWords:
    """How snapshot reads are asked of the lead router, and refused.

    Attributes
    ----------
    ask : callable
        Gives the message that asks, given the reads, the highest position that
        their client has seen, and the number of its last message to be seen.
    refused : callable
        Gives the numbers that a message refuses; none for any other message.
    """

    ask: Callable[[Submission, int, int], object]
    refused: Callable[[object], Sequence[int]]


class EndProcess:
    """A `ProcessCore` that delivers and remembers.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    words : ReadWords, optional
        If there are reads beside the order.

    Attributes
    ----------
    submitted : dict of int to Message
    delivered : list of Delivered
    verdicts : dict of int to str
        Of own numbers: ``stable``, or the verdict told.
    ran : list of Ran
    refused_reads : set of (ProcessId, int)
        Reads that were refused here: to this process, or by it.
    """

    def __init__(self, me: ProcessId, multicast: Multicast, words: ReadWords | None = None) -> None:
        self.me = me
        self.multicast = multicast
        self.submitted: dict[int, Message] = {}
        self.delivered: list[Delivered] = []
        self.verdicts: dict[int, str] = {}
        self.expelled: ExpelledEvent | None = None
        self.ran: list[Ran] = []
        self.refused_reads: set[tuple[ProcessId, int]] = set()
        self._words = words
        self._asking: list[tuple[Submission, object]] = []
        self._upto = 0

    def submit(self, messages: Sequence[Message]) -> None:
        """Submit messages that are numbered from `next_number`."""
        batch = submission(messages, acknowledged=self.multicast.acknowledged)
        self.multicast.submit(batch)
        self.submitted |= {message.number: message for message in messages}
        if self.multicast.next_number != batch.last + 1:
            raise self._broken("numbers", f"after {batch.last} comes {self.multicast.next_number}")

    def ask(self, reads: Submission, seen: int, written: int) -> None:
        """Ask the lead router for snapshot reads, with the next turn."""
        assert self._words is not None
        self._asking.append((reads, self._words.ask(reads, seen, written)))

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        if self._words is not None:
            self.refused_reads |= {(self.me, number) for number in self._words.refused(message)}
        self.multicast.on_message(peer, message, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Nothing is executed here."""

    def flush(self, now_s: float) -> Output:
        for event in self.multicast.take_events():
            if isinstance(event, Delivery):
                self._deliver(event)
            elif isinstance(event, StableEvent):
                self._take_verdicts(event)
            elif isinstance(event, ExpelledEvent):
                self.expelled = event
            elif isinstance(event, ReadsEvent):
                self._run(event)
        out = self.multicast.flush(now_s)
        for reads, message in self._asking:
            if self.multicast.lead is None:
                self.refused_reads |= {(self.me, n) for n in range(reads.first, reads.last + 1)}
            else:
                out.send.append((self.multicast.lead, message))
        self._asking.clear()
        return out

    def _run(self, event: ReadsEvent) -> None:
        last = max(
            self.delivered[-1].position if self.delivered else -1, self.ran[-1].position if self.ran else -1
        )
        for part in event.parts:
            numbers = part.number.tolist()
            if event.refusal:
                self.refused_reads |= {(part.sender, number) for number in numbers}
                continue
            if event.position < last or set(part.position.tolist()) != {event.position}:
                raise self._broken("reads", f"{numbers} are to run at {event.position} behind {last}")
            if self.expelled is not None:
                raise self._broken("expulsion", f"{numbers} are to run after the expulsion")
            n = len(self.delivered)
            self.ran += [
                Ran(event.position, part.sender, number, part.scope_of(index), n)
                for index, number in enumerate(numbers)
            ]

    def _deliver(self, part: Delivery) -> None:
        for index, (position, number) in enumerate(
            zip(part.position.tolist(), part.number.tolist(), strict=True)
        ):
            if self.expelled is not None and position > self.expelled.position:
                raise self._broken("expulsion", f"{position} was delivered after the expulsion")
            if self.delivered and position <= self.delivered[-1].position:
                raise self._broken(
                    "delivery order", f"{position} was delivered after {self.delivered[-1].position}"
                )
            if self.ran and position <= self.ran[-1].position:
                raise self._broken(
                    "reads", f"{position} was delivered after a read at {self.ran[-1].position}"
                )
            scope = part.scope_of(index)
            self.delivered.append(Delivered(position, part.sender, number, scope, part.config))

    def _take_verdicts(self, event: StableEvent) -> None:
        if event.upto < self._upto:
            raise self._broken("stability", f"stable up to {event.upto} after {self._upto}")
        told = {exception.number: exception.verdict for exception in event.exceptions}
        # Refusals may be told ahead of their turn, and again later.
        told |= {n: "stable" for n in range(self._upto + 1, event.upto + 1) if n not in self.verdicts | told}
        self._upto = event.upto
        for number, verdict in sorted(told.items()):
            if self.verdicts.setdefault(number, verdict) != verdict:
                raise self._broken("stability", f"{number} is {verdict}, and was {self.verdicts[number]}")
            if number not in self.submitted:
                raise self._broken("stability", f"{number} is {verdict}, and was never submitted")

    def _broken(self, rule: str, text: str) -> ConformanceError:
        return ConformanceError(rule, f"{self.me}: {text}")
