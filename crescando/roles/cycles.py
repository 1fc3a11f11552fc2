"""What a storage process gives its driver to do, and what comes back.

Rules of the file: a cycle's work is done by the driver, perhaps in a thread of its own, and
touches nothing but the engine. The driver brings its clock; nothing here has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crescando.engine.base import Cancelled, Engine, Explained, Results
from crescando.engine.operations import Entry
from crescando.engine.statement import Shape
from crescando.roles.messages import Weighs
from crescando.schema import TableSchema
from crescando.types import ProcessId, Scope


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table before and after a configuration message; None where it does not exist."""

    before: TableSchema | None
    after: TableSchema | None

    def carry_out(self, engine: Engine) -> None:
        """Tell the engine."""
        if self.before is None and self.after is not None:
            engine.create_table(self.after)
        elif self.after is None and self.before is not None:
            engine.drop_table(self.before.id)
        elif self.after is not None:
            engine.alter_table(self.after)


@dataclass(frozen=True, slots=True)
class Question:
    """Somebody asks what would be done with an operation."""

    asker: ProcessId
    request: int
    shape: Shape
    parameters: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Weighing:
    """Somebody asks how much is held of some ranges."""

    asker: ProcessId
    request: int
    ranges: Scope

    def answer(self, engine: Engine) -> Weighs:
        """Ask the engine."""
        return Weighs(self.request, tuple(engine.weigh((each,)) for each in self.ranges))


@dataclass(frozen=True, slots=True)
class Execution:
    """One cycle's work: runs of operations, and catalog changes between them."""

    steps: tuple[Sequence[Entry] | TableChange, ...]
    upto: int
    cancelled: Cancelled | None = None
    questions: tuple[Question, ...] = ()
    weighs: bool = False
    """Whether to tell what the engine holds afterwards."""
    weighings: tuple[Weighing, ...] = ()

    def run(self, engine: Engine, clock: Callable[[], float] | None = None) -> Executed:
        """Do the work; called by the driver.

        Parameters
        ----------
        engine : Engine
        clock : callable, optional
            Gives seconds, so that the process learns how long its cycles take.
        """
        begin_s = 0.0 if clock is None else clock()
        results: list[Results] = []
        for step in self.steps:
            if isinstance(step, TableChange):
                step.carry_out(engine)
            else:
                results.extend(engine.execute(step, self.cancelled))
        told = tuple((each, engine.explain(each.shape, each.parameters)) for each in self.questions)
        took_s = 0.0 if clock is None else clock() - begin_s
        n_bytes = sum(each.n_bytes for each in results) + engine.statistics()["bytes"] if self.weighs else 0
        weighed = tuple((each.asker, each.answer(engine)) for each in self.weighings)
        return Executed(tuple(results), self.upto, took_s, n_bytes, told, weighed)


@dataclass(frozen=True, slots=True)
class Executed:
    """What a cycle gave.

    Attributes
    ----------
    results : tuple of Results
    upto : int
        The position up to which it executed.
    took_s : float
        How long it took; 0 if the driver has no clock.
    n_bytes : int
        What the engine and these results hold, if that was to be told.
    told : tuple of (Question, Explained)
    weighed : tuple of (ProcessId, Weighs)
        What is to be answered to whom.
    """

    results: tuple[Results, ...]
    upto: int
    took_s: float = 0.0
    n_bytes: int = 0
    told: tuple[tuple[Question, Explained], ...] = ()
    weighed: tuple[tuple[ProcessId, Weighs], ...] = ()
