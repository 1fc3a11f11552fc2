"""Shows how far the demo is, with live throughput; or nothing, for programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Rich
    from rich.progress import TaskID


class Telling(Protocol):
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
def bars() -> Iterator[Telling]:
    """Draw a bar per phase on the terminal while the context lasts."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns) as rich:
        yield _Bars(rich)


class _Bars:
    def __init__(self, rich: Rich) -> None:
        self._rich = rich
        self._task: TaskID | None = None
        self._total: int | None = None

    def begin(self, phase: str, total: int | None = None) -> None:
        self._finish()
        self._total = total
        self._task = self._rich.add_task(phase, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        if self._task is not None:
            self._rich.update(self._task, completed=done, note=note)

    def _finish(self) -> None:
        if self._task is not None and self._total is None:
            self._rich.update(self._task, total=1, completed=1)
