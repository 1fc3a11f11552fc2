"""An application process of a simulated order: sends what it is told to, and confirms when it likes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from crescando.process import Output
from crescando.routing.base import ExpelledEvent
from crescando.routing.batch import Message, submission
from crescando.testing.scenario import Draft
from crescando.testing.trace import RecordedMulticast
from crescando.types import ProcessId


class Member:
    """A `ProcessCore` around a multicast end point, and nothing else.

    Parameters
    ----------
    me : ProcessId
    multicast : RecordedMulticast
    rng : random.Random
        Source of the replica offsets of its messages.
    """

    def __init__(self, me: ProcessId, multicast: RecordedMulticast, rng: random.Random) -> None:
        self.me = me
        self.multicast = multicast
        self.rng = rng
        self.is_stuck = False
        self._stop = ""

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Send messages, in one submission."""
        first = self.multicast.next_number
        messages = [
            Message(self.me, first + i, d.kind, d.table, d.ranges, self.rng.randrange(1 << 16), d.payload)
            for i, d in enumerate(drafts)
        ]
        self.multicast.submit(submission(messages, acknowledged=self.multicast.acknowledged))

    def hold(self, hold: bool) -> None:
        """Hold confirmations back, or no more; one that is stuck holds them for ever."""
        self.multicast.hold_confirms(hold or self.is_stuck)

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
            if isinstance(event, ExpelledEvent):
                self._stop = f"expelled at {event.position}"
        out = self.multicast.flush(now_s)
        out.stop = self._stop
        return out
