"""Who owes confirmations for too long (RB13 §5.5; design of the failure votes in §6).

Rules of the file: a leader watches the oldest unconfirmed instance of each
destination; one that stays the same for `max_lag_s` is a lag, however alive the
process may be. It is only reported: the supers vote, the order decides. A
pause of this very router is nobody else's lag.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import islice
from typing import Any

from crescando.routing.ecast.stability import Window
from crescando.types import ProcessId

CALL_S = 2.0
"""Spacing of calls to processes that do not come although something waits for them."""

CALLS_MAX = 64
"""Processes called at a time."""

PAUSE_S = 1.0
"""A look later than this after the one before tells of a pause of the looker."""


@dataclass(slots=True)
class _Watch:
    """The oldest instance that a destination owes, and since when it is the oldest."""

    instance: int
    since_s: float


class Laggards:
    """The destinations of one leadership that do not get on.

    Parameters
    ----------
    max_lag_s : float
    """

    def __init__(self, max_lag_s: float) -> None:
        self.max_lag_s = max_lag_s
        self._watched: dict[ProcessId, _Watch] = {}
        self._outdated: set[ProcessId] = set()
        self._looked_s: float | None = None
        self._call_at_s: float | None = None

    def accuse(self, process: ProcessId) -> None:
        """Report a process that has lost what it confirmed, from now on."""
        self._outdated.add(process)

    def look(self, window: Window[Any], now_s: float) -> None:
        """Compare what everybody owes with the last look; called every so often."""
        pause_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        before, self._watched = self._watched, {}
        for process, outbox in window.outboxes.items():
            if not outbox.entries:
                continue
            oldest = outbox.entries[0].instance
            watch = before.get(process)
            if watch is None or watch.instance != oldest:
                watch = _Watch(oldest, now_s)
            elif pause_s > PAUSE_S:
                # What was confirmed meanwhile has not been read yet.
                watch.since_s += pause_s
            self._watched[process] = watch
        self._outdated &= window.outboxes.keys()

    def to_be_called(
        self, window: Window[Any], sessions: Container[ProcessId], now_s: float
    ) -> list[ProcessId]:
        """Give some who are to be asked for a session: something waits for them, and they do not come.

        One that was cut off while every router it knew was replaced would look for those for ever.
        """
        if self._call_at_s is not None and now_s < self._call_at_s:
            return []
        is_first, self._call_at_s = self._call_at_s is None, now_s + CALL_S
        if is_first:
            return []
        absent = (p for p, box in window.outboxes.items() if box.entries and p not in sessions)
        return list(islice(absent, CALLS_MAX))

    def overdue(self, now_s: float) -> tuple[ProcessId, ...]:
        """Give the processes to be reported, in order of their names."""
        late = {p for p, watch in self._watched.items() if now_s - watch.since_s > self.max_lag_s}
        return tuple(sorted(late | self._outdated))
