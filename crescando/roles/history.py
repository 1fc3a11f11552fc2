"""What a super remembers of the cluster, and those who want to be told.

Rules of the file: events are kept in the order of their positions, and the
oldest are forgotten; from when on they are known is said with every answer, so
that whoever asks knows whether it missed any. A question is answered once, with
some events or with the news that some are forgotten; until then it waits. All
events of a position are told together: whoever goes on behind a position, here
or at another super, misses none and is told none twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from crescando.roles.messages import Watch, Watched
from crescando.routing.rubberband.happenings import Event, Happening
from crescando.types import NO_POSITION, ProcessId

EVENTS_MAX = 4096
"""Events that are remembered."""

TOLD_MAX = 256
"""Events told at a time, as long as one position has no more."""

WATCHERS_MAX = 1024
"""Questions that may wait; of more the oldest are answered with nothing, and may be asked again."""


class History:
    """The newest events, and who waits for more.

    Attributes
    ----------
    since : int
        All events behind this position are here.
    upto : int
        The position up to which everything is.
    """

    def __init__(self) -> None:
        self.since: int = NO_POSITION
        self.upto: int = NO_POSITION
        self._events: deque[Event] = deque()
        self._watching: dict[ProcessId, Watch] = {}
        self._due: dict[ProcessId, None] = {}

    def begin(self, position: int) -> None:
        """Know what happens behind a position, that of the own join."""
        self.since = self.upto = position
        self._due.update(dict.fromkeys(self._watching))

    def add(self, position: int, happenings: Iterable[Happening]) -> None:
        """Take what a message did; called for each one, in order."""
        self.upto = position
        n = len(self._events)
        self._events.extend(Event(position, what) for what in happenings)
        if len(self._events) > n:
            self._due.update(dict.fromkeys(self._watching))
        while len(self._events) > EVENTS_MAX:
            self.since = self._events.popleft().position
        while self._events and self._events[0].position <= self.since:
            self._events.popleft()

    def watch(self, peer: ProcessId, question: Watch) -> None:
        """Take a question; it takes the place of an earlier one of the same asker."""
        self._watching.pop(peer, None)
        self._watching[peer] = question
        self._due[peer] = None
        if len(self._watching) > WATCHERS_MAX:
            self._due[next(iter(self._watching))] = None

    def end_session(self, peer: ProcessId) -> None:
        """Forget what somebody asked who has gone."""
        self._watching.pop(peer, None)
        self._due.pop(peer, None)

    def answers(self) -> Iterator[tuple[ProcessId, Watched]]:
        """Give the answers that are due."""
        due, self._due = self._due, {}
        for peer in due:
            question = self._watching[peer]
            events = self._after(question.after)
            if events or question.after < self.since or len(self._watching) > WATCHERS_MAX:
                del self._watching[peer]
                upto = max(self.upto, question.after)
                if events and events[-1] is not self._events[-1]:
                    upto = events[-1].position
                yield peer, Watched(question.request, self.since, upto, events)

    def _after(self, position: int) -> tuple[Event, ...]:
        """Give the first events behind a position, whole positions only."""
        found: list[Event] = []
        for event in self._events:
            if event.position <= position:
                continue
            if len(found) >= TOLD_MAX and event.position != found[-1].position:
                break
            found.append(event)
        return tuple(found)
