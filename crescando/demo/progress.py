"""Shows how far the demo is, with live throughput; or nothing, for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What the story tells while it goes on."""

    def begin(self, phase: str, total: int | None = None) -> None:
        """Start a phase of `total` steps; None if nobody can know."""
        ...

    def update(self, done: int, note: str = "") -> None:
        """State how many steps of the present phase are done."""
        ...


class Silence:
    """Tells nothing."""

    def begin(self, phase: str, total: int | None = None) -> None:
        """Say nothing."""

    def update(self, done: int, note: str = "") -> None:
        """Say nothing."""


@contextmanager
def bars() -> Iterator[Progress]:
    """Draw a bar per phase on the terminal while the context lasts."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Rich

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Rich(*columns) as rich:
        yield _Bars(rich)


class _Bars:
    def __init__(self, rich: object) -> None:
        from rich.progress import Progress as Rich

        assert isinstance(rich, Rich)
        self._rich = rich
        self._task = None
        self._total: int | None = None
        self._began_s = 0.0

    def begin(self, phase: str, total: int | None = None) -> None:
        self._finish()
        self._total = total
        self._began_s = time.monotonic()
        self._task = self._rich.add_task(phase, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        if self._task is not None:
            self._rich.update(self._task, completed=done, note=note)

    def _finish(self) -> None:
        if self._task is not None and self._total is None:
            self._rich.update(self._task, total=1, completed=1)
