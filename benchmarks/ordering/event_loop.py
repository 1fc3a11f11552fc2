"""The event loop that every process of a benchmark uses: the product's own choice."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from crescando.loop import new_event_loop

T = TypeVar("T")


def loop_name() -> str:
    """Say which loop `run` takes."""
    loop = new_event_loop()
    loop.close()
    return type(loop).__module__.partition(".")[0]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
