"""The threads in which storage processes scan.

Daemon threads rather than the standard library's executor: that takes no more
work as soon as the interpreter begins to end, while a store that its user
forgot to close is then about to execute what is on its way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Done = Callable[[Any, Exception | None], None]
"""Called in the scanning thread with the result, or with what the work failed with."""


class ScanThreads:
    """Threads that take work in the order of its submission.

    Parameters
    ----------
    n : int
        How many there are, and so how much work is done at once.
    """

    def __init__(self, n: int) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"crescando-scan-{i}", daemon=True) for i in range(n)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Have work done, and be told; after `close` neither happens."""
        self._work.put((work, done))

    def close(self, timeout_s: float) -> None:
        """Drop what waits, and join the threads when they have done what they are at."""
        self._is_closed = True
        for _ in self._threads:
            self._work.put(None)
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            if self._is_closed:
                continue
            work, done = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  # Whatever it is, the owner of the work is told.
                done(None, error)
            else:
                done(result, None)
            # Between two cycles the thread must not keep the last one's rows alive.
            del item, work, done
            result = None
