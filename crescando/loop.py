"""The event loop of an embedded store, in one background thread.

All protocol cores of a store run in it, one turn at a time; users' threads and
the scanning threads only hand things over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from crescando.errors import ClosedError, DeadlineError
from crescando.pump import Handle

T = TypeVar("T")


class LoopThread:
    """A running event loop; a `Scheduler` for pumps.

    Parameters
    ----------
    name : str
        Of the thread, as debuggers show it.

    Attributes
    ----------
    lock : threading.Lock
        Guards what users' threads and the loop share; never held for long.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_stopped = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # Scheduler.

    def now_s(self) -> float:
        return self.loop.time()

    def call_soon(self, callback: Callable[[], None]) -> Handle:
        return self.loop.call_soon(callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Handle:
        return self.loop.call_at(when_s, callback)

    # From other threads.

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
