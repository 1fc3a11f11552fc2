"""A multicast whose events the test decides, and what roles are told through it."""

from __future__ import annotations

from typing import Any

from crescando.process import Output
from crescando.routing.base import MulticastEvent
from crescando.routing.batch import Submission
from crescando.types import ProcessId


class ScriptedMulticast:
    """A `Multicast` that delivers what the test says and remembers what it is told."""

    def __init__(self, lead: ProcessId | None = None) -> None:
        self.lead = lead
        self.next_number = 1
        self.acknowledged = 0
        self.n_unstable = 0
        self.delivered = -1
        self.submitted: list[Submission] = []
        self.holds: list[bool] = []
        self.events: list[MulticastEvent] = []
        self.told: list[tuple[str, ProcessId]] = []

    def submit(self, batch: Submission) -> None:
        assert batch.first == self.next_number
        self.next_number = batch.last + 1
        self.submitted.append(batch)

    def hold_confirms(self, hold: bool) -> None:
        self.holds.append(hold)

    def take_events(self) -> list[MulticastEvent]:
        events, self.events = self.events, []
        return events

    def on_start(self, now_s: float) -> None: ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.told.append(("connected", peer))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.told.append(("disconnected", peer))

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.told.append(("refused", peer))

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.told.append((type(message).__name__, peer))

    def flush(self, now_s: float) -> Output:
        return Output()


def sent(output: Output, kind: type[Any], *, to: ProcessId | None = None) -> list[Any]:
    """Give the messages of a kind that an output sends."""
    return [message for peer, message in output.send if isinstance(message, kind) and to in (None, peer)]
