"""What users' threads have submitted and a store's loop has not taken yet.

Rules of the file: the loop is woken once for all that waits, and takes it in the order of
submission, so much in each of its turns that one client's million do not hold up what others
do in the loop. What the tasks of an event loop submit in one turn waits for its end, so that
the operations of a thousand tasks make one batch: each batch costs a message to the
routers and a scan. A thread that is about to block waits for no turn's end.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from crescando.errors import ClosedError
from crescando.loop import LoopThread

E = TypeVar("E")

AT_ONCE = 1 << 11
"""Operations of one client that are taken in one turn of the loop; what was submitted together is not cut."""

AHEAD = 1 << 14
"""Operations that may wait while a thread goes on submitting: the loop always finds enough."""

LOOK_S = 0.1
"""So often whoever waits for the loop looks whether it has ended."""


class Submitted(Generic[E]):
    """A queue in front of a store's loop.

    Parameters
    ----------
    loop : LoopThread
        Its lock guards the queue.
    take : callable
        Called in the loop's thread with what waits.
    count : callable
        Gives how many operations an entry stands for.
    at_once : int
        With so many operations it is given no more in one turn.
    ahead : int
        How many may wait before `make_room` does.
    """

    def __init__(
        self,
        loop: LoopThread,
        take: Callable[[deque[E]], object],
        count: Callable[[E], int],
        at_once: int = AT_ONCE,
        ahead: int = AHEAD,
    ) -> None:
        self._loop = loop
        self._at_once = at_once
        self._ahead = ahead
        self._take = take
        self._count = count
        self._waiting: deque[E] = deque()
        self._n_added = self._n_taken = 0
        self._is_handed_over = False
        self._turn: AbstractEventLoop | None = None
        """The event loop whose turn's end hands over what waits."""

    def add(self, entry: E, here: AbstractEventLoop | None) -> bool:
        """Take an entry, under the lock; says whether `see_to_it` must be called behind it.

        Parameters
        ----------
        entry : object
        here : AbstractEventLoop or None
            The running event loop whose turn may end first.
        """
        self._waiting.append(entry)
        self._n_added += self._count(entry)
        if self._is_handed_over or (here is not None and here is self._turn):
            return False
        # Of two event loops the one whose turn ends first serves both.
        self._is_handed_over, self._turn = here is None, here
        return True

    def see_to_it(self, here: AbstractEventLoop | None) -> None:
        """See to it that what waits is taken; with what `add` was given.

        Raises
        ------
        ClosedError
            If the store's loop has ended.
        """
        if here is None:
            self._loop.hand_over(self._take_some)
        else:
            here.call_soon(self.hurry)

    def make_room(self) -> None:
        """Wait until what waits is taken, if it is much.

        Whoever submits a million operations would else take the interpreter from all who answer them, and
        from other clients, for as long as that takes. Not for the loop's thread, nor an event loop's.
        """
        if self._n_added - self._n_taken < self._ahead:
            return
        gate = Lock()
        gate.acquire()
        # Whoever submits next is told that the loop has ended.
        with suppress(ClosedError):
            self.hand_over(gate.release)
            while not gate.acquire(timeout=LOOK_S) and not self._loop.is_stopped:
                pass

    def hurry(self) -> None:
        """Wait for no turn's end any more."""
        if self._turn is None:
            return
        with self._loop.lock:
            self._turn = None
            if self._is_handed_over or not self._waiting:
                return
            self._is_handed_over = True
        self._soon(self._take_some)

    def hand_over(self, callback: Callable[[], object]) -> None:
        """Have something called in the store's loop, behind everything that is submitted by then.

        Raises
        ------
        ClosedError
            If that has ended.
        """
        wanted = self._n_added

        def behind() -> None:
            if self._n_taken >= wanted:
                callback()
                return
            with self._loop.lock:
                some = self._first()
            self._soon(behind)
            self._take(some)

        self._loop.hand_over(behind)

    def _take_some(self) -> None:
        """Take what comes first; the loop turns to others before it takes more."""
        with self._loop.lock:
            some = self._first()
            self._is_handed_over = is_more = bool(self._waiting)
        # Before anything can fail.
        if is_more:
            self._soon(self._take_some)
        if some:
            self._take(some)

    def _first(self) -> deque[E]:
        """Give what is taken in one turn."""
        waiting = self._waiting
        if self._n_added - self._n_taken <= self._at_once:
            self._n_taken, self._waiting = self._n_added, deque()
            return waiting
        some: deque[E] = deque()
        stop = self._n_taken + self._at_once
        while self._n_taken < stop:
            some.append(waiting.popleft())
            self._n_taken += self._count(some[-1])
        return some

    def _soon(self, callback: Callable[[], None]) -> None:
        # Whoever ends the store's loop fails what it has not taken.
        with suppress(ClosedError):
            self._loop.hand_over(callback)
