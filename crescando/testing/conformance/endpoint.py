"""A process around one end of a multicast: what it submits, delivers, and is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crescando.process import Output
from crescando.routing.base import ExpelledEvent, Multicast, StableEvent
from crescando.routing.batch import Delivery, Message, submission
from crescando.testing.conformance.rules import ConformanceError
from crescando.types import ProcessId, Scope


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message at one destination."""

    position: int
    sender: ProcessId
    number: int
    scope: Scope


class EndProcess:
    """A `ProcessCore` that delivers and remembers.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast

    Attributes
    ----------
    submitted : dict of int to Message
    delivered : list of Delivered
    verdicts : dict of int to str
        Of own numbers: ``stable``, or the verdict told.
    """

    def __init__(self, me: ProcessId, multicast: Multicast) -> None:
        self.me = me
        self.multicast = multicast
        self.submitted: dict[int, Message] = {}
        self.delivered: list[Delivered] = []
        self.verdicts: dict[int, str] = {}
        self.expelled: ExpelledEvent | None = None
        self._upto = 0

    def submit(self, messages: Sequence[Message]) -> None:
        """Submit messages that are numbered from `next_number`."""
        batch = submission(messages, acknowledged=self.multicast.acknowledged)
        self.multicast.submit(batch)
        self.submitted |= {message.number: message for message in messages}
        if self.multicast.next_number != batch.last + 1:
            raise self._broken("numbers", f"after {batch.last} comes {self.multicast.next_number}")

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
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
        return self.multicast.flush(now_s)

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
            self.delivered.append(Delivered(position, part.sender, number, part.scope_of(index)))

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
