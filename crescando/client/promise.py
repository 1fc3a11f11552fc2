"""A promise: something that will be known once, told by one thread and waited for by others.

Rules of the file: a promise is kept by one thread, once. It costs a twentieth
of a `concurrent.futures.Future`, since nobody blocks on it: who wants to wait
adds a callback that wakes him. What is known and telling it are two steps, so
that whoever knows many things at once tells of none before all are known. One lock for
all promises guards who is to be told, so that one whom a single callback waits for, as most
are, needs nothing but itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")
V = TypeVar("V")


class Waitable(Protocol):
    """What can be waited for: a `Promise`, or a future of the standard library."""

    def done(self) -> bool:
        """Say whether it is known how it ended."""
        ...

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Have something called with this when it is done, in whatever thread; at once if it is."""
        ...


def lock_of_process() -> threading.Lock:
    """Give a lock that a forked child finds free, whoever held it: it may open a store of its own."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


ASKING = lock_of_process()
"""Guards the callbacks of promises; never held while anything is called."""


class Promise(msgspec.Struct, Generic[T], gc=False, eq=False, kw_only=True):
    """What will be known once."""

    # Nothing for the collector of cycles, which else looks at all that is on its way again and
    # again: whoever is told is forgotten, and that ends the only cycle there is.
    _is_kept: bool = False
    _error: Exception | None = None
    _value: Any = None
    _first: Callable[[Any], object] | None = None
    """Whom to call; never None while there are more."""
    _more: list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        """Say whether it is kept or broken."""
        return self._is_kept

    def result(self) -> T:
        """Give what was promised, or raise what it failed with; for one that is done."""
        assert self._is_kept
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def exception(self) -> Exception | None:
        """Give what it failed with, or None; for one that is done."""
        assert self._is_kept
        return self._error

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Have something called with this when it is done; at once if it is."""
        with ASKING:
            if self._first is None:
                self._first = fn
            elif self._more is None:
                self._more = [fn]
            else:
                self._more.append(fn)
        # Either this thread or the one that keeps it takes the callback away, never both.
        if self._is_kept:
            self.tell()

    def keep(self, value: T) -> None:
        """Let it be kept, and tell nobody yet."""
        self._value = value
        self._is_kept = True

    def fail(self, error: Exception) -> None:
        """Let it be broken, and tell nobody yet."""
        self._error = error
        self._is_kept = True

    def tell(self) -> None:
        """Call whoever has asked for it, in the order of asking."""
        while self._first is not None:
            with ASKING:
                callback = self._first
                self._first = self._more.pop(0) if self._more else None
            if callback is not None:
                callback(self)

    def set_result(self, value: T) -> None:
        """Keep and tell."""
        self.keep(value)
        self.tell()

    def set_exception(self, error: Exception) -> None:
        """Break and tell."""
        self.fail(error)
        self.tell()


def resolve(future: Future[Any], value: Any) -> None:
    """Keep a future, unless it is done."""
    if not future.done():
        future.set_result(value)


def fail(future: Future[Any] | Promise[Any], error: Exception) -> None:
    """Break a future or promise, unless it is done."""
    if not future.done():
        future.set_exception(error)


def then(asked: Future[T], change: Callable[[T], V]) -> Future[V]:
    """Give what becomes of what is asked for."""
    done: Future[V] = Future()

    def answered(asked: Future[T]) -> None:
        error = asked.exception()
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(change(asked.result()))

    asked.add_done_callback(answered)
    return done
