"""The event loop of an embedded store, in one background thread, and the agenda of the turns in it.

All protocol cores of a store run in it, one turn at a time; users' threads and
the scanning threads only hand things over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from crescando.errors import ClosedError, DeadlineError
from crescando.pump import Handle

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Give a new event loop for sockets: uvloop's where it is installed, which does more in less time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


TURNS_S = 0.005
"""For how long turns are taken before sockets and users' tasks get theirs."""


class Agenda:
    """What the processes of one event loop are to do; a `Scheduler` for pumps.

    What one turn hands to another process of the same loop is taken up right
    after, round by round: a pass through the event loop costs as much as a turn, and
    one put takes ten of those. Under load somebody always has something to do, so
    the loop gets its pass after a while all the same.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        Everything is called in its thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s: Callable[[], float] = time.monotonic
        self._loop = loop
        self._due: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call in the next round."""
        self._due.append(callback)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._work)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Handle:
        """Call back at a time."""
        return self._loop.call_later(when_s - self.now_s(), callback)

    def _work(self) -> None:
        due, now_s = self._due, self.now_s
        take = due.popleft
        until_s = now_s() + TURNS_S
        try:
            # What is added meanwhile comes behind what is due: inputs gather into turns.
            while due:
                take()()
                if now_s() >= until_s:
                    break
        finally:
            self._is_scheduled = bool(due)
            if due:
                self._loop.call_soon(self._work)


class LoopThread:
    """A running event loop.

    Parameters
    ----------
    name : str
        Of the thread, as debuggers show it.
    loop : asyncio.AbstractEventLoop, optional
        One that does not run yet, from `new_event_loop` if it is to serve many sockets.

    Attributes
    ----------
    agenda : Agenda
        For the processes that run in it.
    lock : threading.Lock
        Guards what users' threads and the loop share; never held for long.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.agenda = Agenda(self.loop)
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_stopped = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # From other threads.

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is called in it."""
        return self._is_stopped

    def hand_over(self, callback: Callable[[], None]) -> None:
        """Have something called in the loop's thread.

        Raises
        ------
        ClosedError
            If the loop has ended.
        """
        if self._is_stopped:
            raise ClosedError("the store is closed")
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            raise ClosedError("the store is closed") from None

    def call(self, function: Callable[[], T], timeout_s: float = 10.0) -> T:
        """Call a function in the loop's thread and give its result.

        Raises
        ------
        DeadlineError
            If the loop does not come to it in time.
        """
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001  # Raised again where it was asked for.
                result.set_exception(error)

        self.hand_over(run)
        try:
            return result.result(timeout_s)
        except TimeoutError:
            raise DeadlineError(f"the store's loop did not answer within {timeout_s} s") from None

    def stop(self, timeout_s: float) -> None:
        """End the loop and join its thread."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self.loop.close()
