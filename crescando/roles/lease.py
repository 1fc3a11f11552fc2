"""The serving lease: whether a storage process may show rows outside the order (RB13 §6.7).

Rules of the file: a lease is the lead router's answer to this process's own
request, and is counted from the *sending* of that on this process's monotonic
clock, so that neither a slow answer nor a pause of this process makes it longer.
The leader proves that the process was a member when it asked, and names a
position of which nobody had been told of anything above by then
(`crescando.routing.ecast.leases`). A lease lasts half as long as it takes to be
suspected for silence: who hears nothing of the others shows nothing before
these give it up. It is looked at when answers are handed over to be sent, not
only when a read comes: what a cycle read may be older than the cycle's end.
"""

from __future__ import annotations

import math

from crescando.routing.ecast.messages import Lease, LeaseRequest
from crescando.types import NO_POSITION, ProcessId

RENEWALS = 5
"""Requests in the time of one lease: a lost one, or a change of the leader, must not end it."""

HURRIES = 300
"""So many more, at most, while somebody waits to be told how far the order is."""


class ServingLease:
    """The lease of one storage process.

    Parameters
    ----------
    length_s : float
        How long after a request its answer lets the process serve.

    Attributes
    ----------
    floor : int
        When the last answered request was sent, nobody had been told of anything above this position.
    """

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self.floor: int = NO_POSITION
        self._until_s = -math.inf
        self._asked_s = -math.inf
        self._asked: ProcessId | None = None
        self._is_urgent = False

    def holds(self, now_s: float) -> bool:
        """Say whether the process may show rows now."""
        return now_s < self._until_s

    def on_lease(self, answer: Lease) -> None:
        """Take an answer; one that states another time than ours was not asked for."""
        if answer.sent_s <= self._asked_s:
            self._until_s = max(self._until_s, answer.sent_s + self.length_s)
            self.floor = max(self.floor, answer.position)

    def hurry(self) -> None:
        """Ask soon: somebody waits for something that this process may have executed unawares."""
        self._is_urgent = True

    def ask(self, now_s: float, lead: ProcessId | None) -> list[tuple[ProcessId, LeaseRequest]]:
        """Give what to ask the lead router now, if anything; a new one is asked at once."""
        if lead is None or (lead == self._asked and now_s < self._due_s):
            self._asked = self._asked if lead is not None else None
            return []
        self._asked, self._asked_s, self._is_urgent = lead, now_s, False
        return [(lead, LeaseRequest(now_s))]

    @property
    def _due_s(self) -> float:
        return self._asked_s + self.length_s / (HURRIES if self._is_urgent else RENEWALS)

    @property
    def wake_at_s(self) -> float | None:
        """When to ask again."""
        return None if self._asked is None else self._due_s
