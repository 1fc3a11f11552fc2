"""The event loop that every process of a benchmark uses: uvloop where it is installed."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _uvloop() -> Any:
    try:
        return importlib.import_module("uvloop")
    except ImportError:
        return None


def loop_name() -> str:
    """Say which loop `run` takes."""
    return "uvloop" if _uvloop() is not None else "asyncio"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    uvloop = _uvloop()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        return runner.run(main)
