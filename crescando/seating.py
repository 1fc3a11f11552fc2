"""On which core a thread wakes up.

Rules of the file: Linux wakes a thread where it ran last or where its waker runs, and looks for an
idle core only among those that it knows to share a cache, of which many virtual machines say
nothing. A thread that is woken on the core of a waker that goes on computing waits for it, often
for all of a short piece of work, though another core is idle; and where it ran it stays. So whoever
wakes a thread in order to work beside it keeps it off its own core. Once awake it may run anywhere
again. Where threads cannot be moved nothing happens, and what somebody else says meanwhile about
where a thread may run holds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


def _teller() -> Callable[[], int] | None:
    """Give what tells the core that the calling thread runs on, where threads can be moved."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        # With the interpreter's lock held: the call is shorter than giving it away.
        tell: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
    except (ImportError, AttributeError, OSError):
        return None
    return tell


_core = _teller()


class Seat:
    """Where one thread runs; made by that thread, which is awake."""

    __slots__ = ("_core", "_cores", "_is_awake", "_kept_off", "_lock", "_process", "_thread_id")

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread_id = 0 if _core is None else threading.get_native_id()
        self._core = -1
        """Where it ran last, while it sleeps."""
        self._is_awake = True
        self._cores: set[int] = set()
        self._kept_off: set[int] = set()
        """Where it might run before it was kept off a core, and where since; else none."""
        self._lock = threading.Lock()

    def rest(self) -> None:
        """Be about to sleep; called by the thread."""
        if _core is not None:
            self._core, self._is_awake = _core(), False

    def keep_off(self) -> None:
        """Have the thread, if it sleeps, wake up on another core than the caller's."""
        if _core is None or self._is_awake or self._process != os.getpid():
            return
        core = _core()
        with self._lock:
            if self._is_awake:
                return
            if not self._cores and core != self._core:
                return
            # Somebody may have kept it off another core, and not have woken it.
            cores = self._cores or _cores_of(self._thread_id)
            if core in cores and len(cores) > 1 and _move(self._thread_id, cores - {core}):
                self._cores, self._kept_off = cores, cores - {core}

    def take(self) -> None:
        """Be awake, and run anywhere; called by the thread."""
        if _core is None:
            return
        with self._lock:
            self._is_awake = True
            cores, self._cores = self._cores, set()
        if cores and _cores_of(0) == self._kept_off:
            _move(0, cores)


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
