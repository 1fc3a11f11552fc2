"""One thread that does what an administrator has asked for, a job at a time, and looks around between.

Planning takes up to seconds and waits for answers; neither may happen in the
event loop, in which all protocol cores of an embedded store run, nor need the
caller wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from crescando.errors import ClosedError

logger = logging.getLogger(__name__)

Job = Callable[[], Any]


class Worker:
    """The thread; begun with the first job.

    Parameters
    ----------
    look : callable
        Called between jobs; gives the seconds until it wishes to be called again, None for
        not before the next job.
    failed : callable
        Called with what `look` raises: whoever waits for it must not wait for ever.
    """

    def __init__(self, look: Callable[[], float | None], failed: Callable[[Exception], object]) -> None:
        self._look = look
        self._failed = failed
        self._jobs: deque[tuple[Job, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, job: Job) -> Future[Any]:
        """Have a job done after those before.

        Raises
        ------
        ClosedError
            If the worker has been closed.
        """
        future: Future[Any] = Future()
        with self._changed:
            if self._is_closed:
                raise ClosedError("the store is closed")
            self._jobs.append((job, future))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="crescando-administration", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        return future

    def close(self, timeout_s: float) -> None:
        """Do nothing more; what waits fails as closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        pause_s: float | None = None
        while True:
            with self._changed:
                if not self._jobs and not self._is_closed:
                    self._changed.wait(pause_s)
                if self._is_closed:
                    left, self._jobs = self._jobs, deque()
                    break
                job, future = self._jobs.popleft() if self._jobs else (None, None)
            if job is not None and future is not None:
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001  # Raised again where it was asked for.
                    future.set_exception(error)
            try:
                pause_s = self._look()
            except Exception as error:  # Whatever it is, this thread goes on.
                logger.error("an administrator's look fails: %r", error, exc_info=error)
                self._failed(error)
                pause_s = None
        for _, future in left:
            future.set_exception(ClosedError("the store was closed before this was done"))
