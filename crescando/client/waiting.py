"""Waiting for futures, blocking or on an event loop, always with a deadline.

Rules of the file: what is to be waited for is written once, as a generator
that yields futures (`Steps`); the two drivers here wait for them. A wait that
ends early cancels nothing: the operation goes on. A blocking wait inside a
running event loop would stop the loop, so it is refused, with its twin named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from crescando.errors import CrescandoError, DeadlineError, StatementError

T = TypeVar("T")

Steps = Generator[Future[Any], None, T]
"""Yields each future that must be done before it goes on; returns the result."""

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
    if not 0 <= wanted <= TIMEOUT_S_MAX:
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
    end = time.monotonic() + timeout_s
    try:
        while True:
            future = next(steps)
            if future.done():
                continue
            _refuse_in_event_loop(what, twin)
            try:
                # Not `result`: a failure is for the steps to look at.
                future.exception(max(0.0, end - time.monotonic()))
            except TimeoutError:
                if not future.done():
                    raise _passed(what, timeout_s) from None
    except StopIteration as stop:
        result: T = stop.value
        return result


async def wait_async(steps: Steps[T], timeout_s: float, *, what: str) -> T:
    """Await until the steps are done.

    Raises
    ------
    DeadlineError
        If the time is over first.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    try:
        while True:
            future = next(steps)
            if future.done():
                continue
            try:
                async with asyncio.timeout_at(end):
                    await _done(future, loop)
            except TimeoutError:
                if not future.done():
                    raise _passed(what, timeout_s) from None
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _done(future: Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    """Await a future of another thread without handing on a cancellation to it."""
    waiter: asyncio.Future[None] = loop.create_future()

    def release() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake(_: Future[Any]) -> None:
        # A closed loop raises; nobody waits there any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(release)

    future.add_done_callback(wake)
    await waiter


def _refuse_in_event_loop(what: str, twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise CrescandoError(f"waiting here for {what} would block the running event loop; write {twin}")


def _passed(what: str, timeout_s: float) -> DeadlineError:
    return DeadlineError(
        f"{what} was not answered within {timeout_s:g} s; it goes on and may yet take effect"
    )
