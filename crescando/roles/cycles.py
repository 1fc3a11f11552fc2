"""What a storage process gives its driver to do, and what comes back.

Rules of the file: a cycle's work is done by the driver, perhaps in a thread of its own, and
touches nothing but the engine, and what `areas` keeps beside it. The driver brings its clock;
nothing here has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from crescando.engine.base import Cancelled, Engine, Explained, Results
from crescando.engine.operations import Entry
from crescando.engine.statement import Shape
from crescando.roles.areas import Areas, Barrier, Hand, Make, Moved
from crescando.roles.messages import Weighs
from crescando.roles.pinning import PinsDone, PinWork, TakePin
from crescando.types import ProcessId, Scope


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


COPY_SHARE = 0.5
"""Copies, and reads of pins, may each take so much of the time that operations take beside them: who
serves goes on serving."""


@dataclass(frozen=True, slots=True)
class CopyWork:
    """What a cycle is to do for copies, behind its operations.

    Attributes
    ----------
    areas : Areas
        Where the thread keeps what it has of them.
    makes : tuple of Make
    hands : tuple of Hand
    target_s : float
        How long it may take if there are no operations.
    operations_max : int
        As many as share one pass.
    """

    areas: Areas = field(default_factory=Areas)
    makes: tuple[Make, ...] = ()
    hands: tuple[Hand, ...] = ()
    target_s: float = 0.0
    operations_max: int = 1

    def run(
        self, engine: Engine, clock: Callable[[], float] | None, operations_s: float | None, *, weighs: bool
    ) -> Moved:
        """Do it; called by the driver.

        Parameters
        ----------
        engine : Engine
        clock : callable or None
        operations_s : float or None
            How long the cycle's operations took; None if there were none.
        weighs : bool
        """
        if not len(self.areas):
            return Moved()
        allowed_s = self.target_s if operations_s is None else min(self.target_s, COPY_SHARE * operations_s)
        budget = self.areas.budget(clock, allowed_s, is_shared=operations_s is not None)
        return self.areas.advance(engine, self.makes, self.hands, budget, self.operations_max, weighs)


@dataclass(frozen=True, slots=True)
class Execution:
    """One cycle's work: runs of operations, and what changes the engine between them."""

    steps: tuple[Sequence[Entry] | Barrier | TakePin, ...]
    upto: int
    cancelled: Cancelled | None = None
    questions: tuple[Question, ...] = ()
    weighs: bool = False
    """Whether to tell what the engine holds afterwards."""
    weighings: tuple[Weighing, ...] = ()
    written_bytes: tuple[int, ...] = ()
    """What the writes of each step take; of none, if it is not known."""
    copies: CopyWork = field(default_factory=CopyWork)
    pins: PinWork = field(default_factory=PinWork)

    def run(
        self,
        engine: Engine,
        clock: Callable[[], float] | None = None,
        processor: Callable[[], float] | None = None,
    ) -> Executed:
        """Do the work; called by the driver.

        Parameters
        ----------
        engine : Engine
        clock : callable, optional
            Gives seconds, so that the process learns how long its cycles take.
        processor : callable, optional
            Gives seconds of the calling thread's processor time, so that it learns what they cost;
            `clock` if there is none.
        """
        processor = processor or clock
        begin_s = 0.0 if clock is None else clock()
        busy_from_s = 0.0 if processor is None else processor()
        results: list[Results] = []
        areas = self.copies.areas
        for step, written_bytes in zip(self.steps, self._written_bytes(), strict=True):
            if isinstance(step, TakePin):
                self.pins.images.take(step, engine)
            elif isinstance(step, Barrier):
                areas.carry_out(step, engine)
            else:
                results.extend(engine.execute(step, self.cancelled))
                areas.note(step, written_bytes)
        told = tuple((each, engine.explain(each.shape, each.parameters)) for each in self.questions)
        took_s = 0.0 if clock is None else clock() - begin_s
        worked_s = 0.0 if processor is None else processor() - busy_from_s
        weighed = tuple((each.asker, each.answer(engine)) for each in self.weighings)
        has_operations = any(not isinstance(step, Barrier | TakePin) for step in self.steps)
        moved = self.copies.run(engine, clock, took_s if has_operations else None, weighs=self.weighs)
        beside_s = COPY_SHARE * took_s if has_operations else None
        pinned = self.pins.run(clock, beside_s)
        n_bytes, pinned_bytes = 0, None
        if self.weighs:
            counted = engine.statistics()
            pinned_bytes = counted["pinned_bytes"]
            n_bytes = sum(each.n_bytes for each in results) + counted["bytes"]
            n_bytes += moved.n_bytes + pinned.n_bytes
        return Executed(
            tuple(results), self.upto, took_s, worked_s, n_bytes, pinned_bytes, told, weighed, moved, pinned
        )

    def _written_bytes(self) -> Iterable[int]:
        return self.written_bytes or repeat(0, len(self.steps))


@dataclass(frozen=True, slots=True)
class Executed:
    """What a cycle gave.

    Attributes
    ----------
    results : tuple of Results
    upto : int
        The position up to which it executed.
    took_s : float
        How long its operations took; 0 if the driver has no clock.
    worked_s : float
        What of it its thread computed, and did not wait for a core or the interpreter.
    n_bytes : int
        What the engine and these results hold, if that was to be told.
    pinned_bytes : int or None
        What of it is there for pins only, if that was to be told.
    told : tuple of (Question, Explained)
    weighed : tuple of (ProcessId, Weighs)
        What is to be answered to whom.
    moved : Moved
    pinned : PinsDone
    """

    results: tuple[Results, ...]
    upto: int
    took_s: float = 0.0
    worked_s: float = 0.0
    n_bytes: int = 0
    pinned_bytes: int | None = None
    told: tuple[tuple[Question, Explained], ...] = ()
    weighed: tuple[tuple[ProcessId, Weighs], ...] = ()
    moved: Moved = field(default_factory=Moved)
    pinned: PinsDone = field(default_factory=PinsDone)
