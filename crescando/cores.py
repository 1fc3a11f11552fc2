"""On which core a thread wakes up.

Rules of the file: Linux wakes a thread where it ran last or where its waker runs, and looks for an
idle core only among those that it knows to share a cache, of which many virtual machines say
nothing. A thread that is woken on the core of a waker that goes on computing waits for it, often
for all of a short piece of work, though another core is idle; and where it ran it stays. So whoever
wakes a thread in order to work beside it keeps it off its own core. Once awake it may run anywhere
again, and where threads cannot be moved nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable


def _teller() -> Callable[[], int] | None:
    """Give what tells the core that the calling thread runs on, where threads can be moved."""
    if sys.platform != "linux":
        return None
    try:
        # With the interpreter's lock held: the call is shorter than giving it away.
        tell: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
    except (AttributeError, OSError):
        return None
    return tell


_core = _teller()


class Seat:
    """Where one thread runs; made by that thread."""

    __slots__ = ("_core", "_cores", "_lock", "_thread_id")

    def __init__(self) -> None:
        self._thread_id = threading.get_native_id()
        self._core = -1
        """Where it was when it woke up last."""
        self._cores: set[int] = set()
        """Where it may run, while it is kept off one of them; else none."""
        self._lock = threading.Lock()

    def keep_off(self) -> None:
        """Have the thread, which sleeps, wake up on another core than the caller's."""
        if _core is None or (core := _core()) != self._core:
            return
        with self._lock:
            if not self._cores:
                cores = _cores_of(self._thread_id)
                if len(cores) > 1 and _move(self._thread_id, cores - {core}):
                    self._cores = cores

    def take(self) -> None:
        """Let the thread, which has woken up and calls this, run anywhere."""
        if _core is None:
            return
        self._core = _core()
        if self._cores:
            with self._lock:
                _move(self._thread_id, self._cores)
                self._cores = set()


def _cores_of(thread_id: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread_id)
    except OSError:
        return set()


def _move(thread_id: int, cores: set[int]) -> bool:
    """Say where a thread may run; gives whether that was allowed."""
    try:
        os.sched_setaffinity(thread_id, cores)
    except OSError:
        return False
    return True
