"""The threads in which storage processes scan.

One thread does cycle after cycle; a team of further ones does parts of the one
that is on. Daemon threads rather than the standard library's executor: that takes no more
work as soon as the interpreter begins to end, while a store that its user
forgot to close is then about to execute what is on its way.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from crescando.seating import Seat

T = TypeVar("T")

_mine = threading.local()
"""How much longer than a thread itself its helpers have worked for it."""


def worked_s() -> float:
    """Give seconds of processor time that the calling thread's work has needed: its own, and what helpers
    did after it had done its part."""
    return time.thread_time() + float(getattr(_mine, "helped_s", 0.0))


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


class Team:
    """A thread and its helpers, as `engine.parallel.Workers`.

    Whoever hands tasks over does them too, and waits only for those that a helper
    has begun: a helper that does not get a core delays nobody. Any number of
    threads may hand tasks over.

    Parameters
    ----------
    width : int
        How many tasks are done at once; there is one helper less.

    Attributes
    ----------
    width : int
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._seats: list[Seat] = []
        self._helpers = [
            threading.Thread(
                target=_help, args=(self._jobs, self._seats), name=f"crescando-scan-part-{i}", daemon=True
            )
            for i in range(1, width)
        ]
        for helper in self._helpers:
            helper.start()
        self._dismiss = weakref.finalize(self, _dismiss, self._jobs, len(self._helpers))

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Do tasks and give their results, in order."""
        if len(tasks) == 1 or not self._helpers:
            return [task() for task in tasks]
        job = _Job(tasks)
        for seat in self._seats:
            seat.keep_off()
        for _ in range(min(len(tasks) - 1, len(self._helpers))):
            self._jobs.put(job)
        begin_s = time.thread_time()
        job.work()
        own_s = time.thread_time() - begin_s
        results = job.results()
        _mine.helped_s = getattr(_mine, "helped_s", 0.0) + max(0.0, job.longest_s - own_s)
        return results

    def close(self, timeout_s: float) -> None:
        """End the helpers; who hands tasks over later does them alone."""
        helpers, self._helpers = self._helpers, []
        self._dismiss()
        end_s = time.monotonic() + timeout_s
        for helper in helpers:
            helper.join(max(0.0, end_s - time.monotonic()))


def _help(jobs: SimpleQueue[_Job[Any] | None], seats: list[Seat]) -> None:
    # Knows no team, so that one which nobody has any more ends.
    seat = Seat()
    seats.append(seat)
    seat.rest()
    while (job := jobs.get()) is not None:
        seat.take()
        job.work()
        # A helper that waits must not keep the last scan's rows alive.
        del job
        seat.rest()


def _dismiss(jobs: SimpleQueue[_Job[Any] | None], n_helpers: int) -> None:
    for _ in range(n_helpers):
        jobs.put(None)


class _Job(Generic[T]):
    """Tasks that several threads take one by one."""

    def __init__(self, tasks: Sequence[Callable[[], T]]) -> None:
        self._tasks = tasks
        self._places = itertools.count()
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}
        self.longest_s = 0.0
        """Processor time of whoever has worked longest on it."""
        self._done: SimpleQueue[None] = SimpleQueue()

    def work(self) -> None:
        """Do tasks until none is left that nobody has begun."""
        begin_s = time.thread_time()
        while (place := next(self._places)) < len(self._tasks):
            try:
                self._results[place] = self._tasks[place]()
            except BaseException as error:  # noqa: BLE001  # Raised again in the thread that waits.
                self._errors[place] = error
            # Of two who write at once one is lost: a time is a guess for the next cycle.
            self.longest_s = max(self.longest_s, time.thread_time() - begin_s)
            self._done.put(None)

    def results(self) -> list[T]:
        """Wait for all tasks and give what they gave."""
        for _ in self._tasks:
            self._done.get()
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[place] for place in range(len(self._tasks))]
