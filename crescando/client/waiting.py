"""Waiting for futures, blocking or on an event loop, always with a deadline.

Rules of the file: what is to be waited for is written once, as a generator
that yields promises (`Steps`); the two drivers here wait for them. A wait that
ends early cancels nothing: the operation goes on. A blocking wait inside a
running event loop would stop the loop, so it is refused, with its twin named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from threading import Lock
from typing import Any, Generic, TypeVar

from crescando.client.eventloop import waits_here
from crescando.client.promise import Waitable
from crescando.errors import CrescandoError, DeadlineError, StatementError

T = TypeVar("T")

Steps = Generator[Waitable, None, T]
"""Yields each promise that must be done before it goes on; returns the result."""

TIMEOUT_S_DEFAULT = 30.0
"""How long a call waits if nobody says otherwise; a guess at an impatient user's limit."""

TIMEOUT_S_MAX = 86_400.0
"""No call may wait for ever; a day is for ever enough."""


def checked_timeout(timeout_s: float | None, default_s: float) -> float:
    """Give the time to wait.

    Raises
    ------
    StatementError
        If it is not between 0 and a day.
    """
    wanted = default_s if timeout_s is None else timeout_s
    try:
        is_fit = 0 <= wanted <= TIMEOUT_S_MAX
    except TypeError:
        is_fit = False
    if not is_fit:
        raise StatementError(f"timeout_s must lie between 0 and {TIMEOUT_S_MAX:.0f}, not {wanted!r}")
    return wanted


def wait(steps: Steps[T], timeout_s: float, *, what: str, twin: str) -> T:
    """Block until the steps are done.

    Parameters
    ----------
    steps : Steps
    timeout_s : float
    what : str
        What is waited for, for the message of a passed deadline.
    twin : str
        What to write instead inside an event loop.

    Raises
    ------
    DeadlineError
        If the time is over first.
    CrescandoError
        If the wait would block a running event loop.
    """
    end: float | None = None
    try:
        while True:
            promise = next(steps)
            if promise.done():
                continue
            _refuse_in_event_loop(what, twin)
            now = time.monotonic()
            end = now + timeout_s if end is None else end
            if not _block(promise, max(0.0, end - now)) and not promise.done():
                raise passed(what, timeout_s)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _block(promise: Waitable, timeout_s: float) -> bool:
    """Block until a promise is done; False if the time is over first."""
    gate = Lock()
    gate.acquire()
    promise.add_done_callback(lambda _: gate.release())
    return gate.acquire(timeout=timeout_s)


def wait_async(steps: Steps[T], timeout_s: float, *, what: Callable[[], str]) -> Generator[Any, None, T]:
    """Await until the steps are done: to be yielded from by what is awaited.

    Parameters
    ----------
    steps : Steps
    timeout_s : float
    what : callable
        Gives what is waited for, for the message of a passed deadline.

    Raises
    ------
    DeadlineError
        If the time is over first.
    """
    end: float | None = None
    try:
        while True:
            promise = next(steps)
            if promise.done():
                continue
            waits = waits_here()
            if end is None:
                # Of most waits this is all; they are of equal length and share a timer.
                end = time.monotonic() + timeout_s
                left_s = timeout_s
            else:
                left_s = max(0.0, end - time.monotonic())
            waiter = waits.begin(promise, left_s)
            try:
                is_known = yield from waiter
            finally:
                waits.end(waiter, left_s)
            if not is_known and not promise.done():
                raise passed(what(), timeout_s)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Awaited(Generic[T]):
    """Something to await once, made of a generator that yields what the event loop waits for."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Generator[Any, None, T]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, None, T]:
        return self._steps


def _refuse_in_event_loop(what: str, twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise CrescandoError(f"waiting here for {what} would block the running event loop; write {twin}")


def passed(what: str, timeout_s: float) -> DeadlineError:
    """Give the error of a wait whose time is over."""
    return DeadlineError(
        f"{what} was not answered within {timeout_s:g} s; it goes on and may yet take effect"
    )
