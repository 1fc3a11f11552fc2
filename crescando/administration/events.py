"""What happens to a cluster, in order: one chronicle for an administrator, and streams that read it.

Rules of the file: every super that has a session is asked at once for what
comes next, and whoever answers first is heard, so that a super that dies,
hangs or lags takes nothing away. Supers derive the same events from the same
order; what is behind a position is told whole, so that two answers agree
wherever they overlap. If no super knows any more what came next, that is told
as an event of its own. All is bounded: a reader that is too slow misses events
as one that was away does, and is told so.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from crescando.administration.plans import describe, share
from crescando.backend import LoopBackend
from crescando.client.flight import Desk
from crescando.client.waiting import TIMEOUT_S_MAX, Awaited, Steps, checked_timeout, wait, wait_async
from crescando.errors import ClosedError, CrescandoError, DeadlineError
from crescando.roles.messages import Watch, Watched
from crescando.routing.rubberband.happenings import (
    Available,
    Began,
    Dropped,
    Ended,
    Failed,
    Happening,
    Joined,
    Left,
    Readied,
    TableChanged,
    Unavailable,
)
from crescando.routing.rubberband.messages import MessageId
from crescando.types import NO_POSITION, ProcessId

KEPT_MAX = 4096
"""Events that are kept for readers, as many as supers remember."""

ASK_AGAIN_S = 0.25
"""Spacing of looks for supers that are not asked yet."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Nobody knows any more what happened behind one position, up to that of this event."""

    after: int


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to the cluster.

    Attributes
    ----------
    position : int
        Where in the order. Several things may happen at one: `EventStream.position` says where to go on.
    what : Happening or Missed
        Such as `Joined`, `Failed`, `Began`, `Ended` or `Dropped`.
    """

    position: int
    what: Happening | Missed

    def __str__(self) -> str:
        return f"{self.position}: {told(self.what)}"


def told(what: Happening | Missed) -> str:
    """Say what happened, in a line."""
    match what:
        case Joined(process):
            return f"{process} joined"
        case Left(process):
            return f"{process} left"
        case Failed(process):
            return f"{process} was voted out"
        case Unavailable(process, scope):
            return f"{process} does not answer, and nobody else holds {share(scope)}"
        case Available(process):
            return f"{process} answers again, or is needed no more"
        case Began(change, transformation, copies):
            return f"{_named(change)} begins: {describe(transformation)}; {len(copies)} copies"
        case Readied(change, copy):
            return f"{_named(change)}: copy {copy} has arrived"
        case Ended(change):
            return f"{_named(change)} is done"
        case Dropped(change, reason):
            return f"{_named(change)} is dropped: {reason}"
        case TableChanged(name, how):
            return f"table {name!r} was {how}"
        case Missed(after):
            return f"nobody knows any more what happened behind {after}"


def _named(change: MessageId) -> str:
    return f"change {change.number} of {change.sender}"


class Chronicle:
    """The newest events, as supers tell them; begun with `start`.

    Parameters
    ----------
    client : callable
        Gives the client process that asks now; called in the loop's thread, so that it must
        not open one.
    """

    def __init__(self, client: Callable[[], LoopBackend]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._changed: Future[None] = Future()
        self._events: deque[Occurrence] = deque()
        self._since: int = NO_POSITION
        self._upto: int = NO_POSITION
        self._asked: set[ProcessId] = set()
        self._ignorant: dict[ProcessId, int] = {}
        """From where on supers know something that do not know what comes next."""
        self._is_started = False
        self._is_closed = False

    def start(self) -> None:
        """Begin to ask."""
        with self._lock:
            is_first, self._is_started = not self._is_started, True
        if is_first:
            # What sessions there are is looked at in the loop's thread, which changes it.
            self._client().call_later(0.0, self._tick)

    def close(self) -> None:
        """Ask no more, and let readers end."""
        with self._lock:
            self._is_closed = True
        self._tell()

    # Asking.

    def _tick(self) -> None:
        if self._is_closed:
            return
        try:
            client = self._client()
            for process in () if client.is_over else tuple(client.core.supers):
                self._ask(client, process)
            client.call_later(ASK_AGAIN_S, self._tick)
        except ClosedError:
            self.close()

    def _ask(self, client: LoopBackend, process: ProcessId) -> None:
        with self._lock:
            if self._is_closed or process in self._asked:
                return
            self._asked.add(process)
            after = self._upto
        client.ask(process, partial(Watch, after=after)).add_done_callback(partial(self._answered, process))

    def _answered(self, process: ProcessId, future: Future[object]) -> None:
        with self._lock:
            self._asked.discard(process)
        try:
            answer = future.result()
        except CrescandoError:
            # It is asked again if it still has a session.
            return
        client = self._client()
        if isinstance(answer, Watched):
            self._take(process, answer, client.core.supers)
            if process not in self._ignorant and not client.is_over:
                self._ask(client, process)

    def _take(self, process: ProcessId, answer: Watched, supers: set[ProcessId]) -> None:
        """Hear one answer."""
        with self._lock:
            if answer.since > self._upto:
                self._ignorant[process] = answer.since
                others = self._asked | supers
                if not others <= self._ignorant.keys():
                    # Somebody else may know.
                    return
                first = min(self._ignorant.values())
                self._append(Occurrence(first, Missed(self._upto)))
                self._upto = first
                self._ignorant.clear()
                is_new = True
            else:
                self._ignorant.pop(process, None)
                new = [Occurrence(e.position, e.what) for e in answer.events if e.position > self._upto]
                for event in new:
                    self._append(event)
                self._upto = max(self._upto, answer.upto)
                is_new = bool(new)
        if is_new:
            self._tell()

    def _append(self, event: Occurrence) -> None:
        self._events.append(event)
        if len(self._events) > KEPT_MAX:
            self._since = self._events.popleft().position

    def _tell(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, Future()
        changed.set_result(None)

    # Reading.

    def after(self, position: int) -> tuple[list[Occurrence], Future[None]]:
        """Give what is known behind a position, and what tells that there is more.

        Raises
        ------
        ClosedError
            If there is nothing and never will be.
        """
        with self._lock:
            found = [event for event in self._events if event.position > position]
            if position < self._since:
                # The rest of the position at which it begins may be gone too.
                found = [event for event in found if event.position > self._since]
                found.insert(0, Occurrence(self._since, Missed(position)))
            if self._is_closed and not found:
                raise ClosedError("the store is closed")
            return found, self._changed

    def conclusion(self, change: MessageId) -> Occurrence | None:
        """Give how a change of the keyspace ended, if that is known."""
        with self._lock:
            for event in reversed(self._events):
                if isinstance(event.what, Ended | Dropped) and event.what.change == change:
                    return event
        return None


class EventStream:
    """The events of a cluster in order, to be iterated over, blocking or with ``async for``.

    Parameters
    ----------
    desk : Desk
    chronicle : Chronicle
    after : int
        The position behind which it begins.
    timeout_s : float or None
        Iteration ends when so long nothing happens; None: a day.

    Attributes
    ----------
    position : int
        Give it as `after`, and another stream misses nothing: that of the last event that was given,
        or the one before while there are more of the same message, which then come again.
    """

    def __init__(self, desk: Desk, chronicle: Chronicle, after: int, timeout_s: float | None) -> None:
        self.position = after
        self._desk = desk
        self._chronicle = chronicle
        self._timeout_s = checked_timeout(timeout_s, TIMEOUT_S_MAX)
        self._ready: deque[Occurrence] = deque()

    def _steps(self) -> Steps[Occurrence]:
        while not self._ready:
            found, changed = self._chronicle.after(self.position)
            if not found:
                yield changed
            self._ready.extend(found)
        event = self._ready.popleft()
        is_last = not self._ready or self._ready[0].position > event.position
        self.position = event.position if is_last else event.position - 1
        return event

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Occurrence:
        self._desk.check_process()
        try:
            return wait(self._steps(), self._timeout_s, what="the next event", twin="async for event in …")
        except (DeadlineError, ClosedError):
            raise StopIteration from None

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Occurrence:
        self._desk.check_process()
        try:
            return await Awaited(wait_async(self._steps(), self._timeout_s, what=lambda: "the next event"))
        except (DeadlineError, ClosedError):
            raise StopAsyncIteration from None
