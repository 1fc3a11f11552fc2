"""Work that may be done at once: the engine says what, its driver how.

Rules of the file: the engine has no threads. Tasks handed over together neither
wait for one another nor change what another reads, and their results are used
in the order of the tasks, so that who does them, and when, changes the time
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Whoever does tasks, several of them at once."""

    @property
    def width(self) -> int:
        """How many are done at once, at most."""
        ...

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Do tasks and give their results, in order.

        Returns when all are done. If some fail, the first one's error is raised, and then.
        """
        ...


class InTurn:
    """Does one task after the other, in the caller's thread."""

    width = 1

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Do tasks and give their results, in order."""
        return [task() for task in tasks]


IN_TURN = InTurn()

VALUES_MIN = 1 << 16
"""Where tasks copy fewer values than this in all, handing them over takes longer than it saves."""


def worth(workers: Workers, n_values: int) -> Workers:
    """Give who had best copy so many values: the workers if these are many."""
    return workers if n_values >= VALUES_MIN else IN_TURN
