"""The tasks of one event loop that wait for something of another thread.

Rules of the file: whatever becomes known while the loop is busy wakes it once,
not once for each task. Waits of equal length end in the order of their
beginning, so one timer serves all of them. A wait that ends early cancels
nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

import msgspec

from crescando.client.promise import Waitable


class LoopWaits:
    """What the tasks of one event loop wait for; for that loop's thread but for `wake`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now_s = loop.time
        self._awake: deque[asyncio.Future[bool]] = deque()
        self._is_called = False
        self._by_timeout: dict[float, dict[asyncio.Future[bool], float]] = {}

    def begin(self, promise: Waitable, timeout_s: float) -> asyncio.Future[bool]:
        """Begin to wait for so long; to be yielded from by what is awaited, and then ended in any case.

        Parameters
        ----------
        promise : Waitable
        timeout_s : float
            Waits of the same length share a timer.

        Returns
        -------
        Future of bool
            False if that was not enough.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = {}
            self._loop.call_later(timeout_s, self._expire, timeout_s)
        waiting[waiter] = self._now_s() + timeout_s
        promise.add_done_callback(Waker(self, waiter))
        return waiter

    def end(self, waiter: asyncio.Future[bool], timeout_s: float) -> None:
        """Forget a wait, which may have ended early."""
        waiting = self._by_timeout.get(timeout_s)
        if waiting is not None:
            waiting.pop(waiter, None)

    def wake(self, waiters: Iterable[asyncio.Future[bool]]) -> None:
        """Have tasks go on; called in whatever thread knows that they may."""
        self._awake.extend(waiters)
        if not self._is_called:
            self._is_called = True
            # A closed loop raises; nobody waits there any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        # First this: who comes after it calls again.
        self._is_called = False
        awake = self._awake
        while awake:
            waiter = awake.popleft()
            if not waiter.done():
                waiter.set_result(True)

    def _expire(self, timeout_s: float) -> None:
        """End the waits whose time is over, and see to the next that may come to that."""
        waiting, now_s = self._by_timeout[timeout_s], self._now_s()
        for waiter, end_s in waiting.items():
            if end_s > now_s:
                self._loop.call_at(end_s, self._expire, timeout_s)
                return
            if not waiter.done():
                waiter.set_result(False)
        del self._by_timeout[timeout_s]


class Waker(msgspec.Struct, gc=False, eq=False):
    """Has one task go on: a thousand are on their way at once, so it is nothing that the collector counts."""

    waits: LoopWaits
    waiter: asyncio.Future[bool]

    def __call__(self, _: object) -> None:
        self.waits.wake((self.waiter,))

    @staticmethod
    def call_all(wakers: Iterable[Waker]) -> None:
        """Call many; tasks of one event loop that follow one another are woken together."""
        for waits, some in groupby(wakers, _WAITS):
            waits.wake(map(_WAITER, some))


_WAITS, _WAITER = attrgetter("waits"), attrgetter("waiter")


class _Running(threading.local):
    """The waits of the loop that ran last in this thread."""

    loop: asyncio.AbstractEventLoop | None = None
    waits: LoopWaits


_running = _Running()


def waits_here() -> LoopWaits:
    """Give the waits of the running event loop."""
    loop = asyncio.get_running_loop()
    if _running.loop is not loop:
        _running.loop, _running.waits = loop, LoopWaits(loop)
    return _running.waits
