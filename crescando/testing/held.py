"""What engines hold at random positions, against what the order says that they ought to hold.

Rules of the file: a sample is taken between two cycles, when an engine has
executed exactly what lies at or below one position. It is judged afterwards, from
the order alone: the rows of everything its process owns at that position, and
of whatever else the engine says it holds, are those of the model, each of them
once, and their digests are those of the model's rows. So digests are equal on
all owners at every position that was looked at, and no range of the ring is
without its rows on whoever is to serve it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crescando.engine.base import Engine
from crescando.engine.digest import digest_columns
from crescando.engine.statement import Column, Operation
from crescando.schema import DataType
from crescando.testing.checkers import Violations, interpret
from crescando.testing.judge import Judgement
from crescando.testing.layouts import Layouts, joined, outside, receiving
from crescando.testing.workload import Model, Row, Workload
from crescando.types import KeyRange, ProcessId

_TYPES = ((DataType.INT64, np.int64), (DataType.INT64, np.int64), (DataType.INT32, np.int32))
"""Of the columns of `workload.SCHEMA`."""


_LOOKER = ProcessId("client", "looker", 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one engine held.

    Attributes
    ----------
    process : ProcessId
    position : int
        Up to which it had executed.
    arcs : tuple of KeyRange
        What it says it holds.
    rows : tuple of Row
        Ascending; one that is there twice comes twice.
    digests : tuple of bytes
        Of each arc.
    n_rows : int
        All rows it has, wherever they lie.
    """

    process: ProcessId
    position: int
    arcs: tuple[KeyRange, ...]
    rows: tuple[Row, ...]
    digests: tuple[bytes, ...]
    n_rows: int


def sample(
    process: ProcessId, position: int, engine: Engine, arcs: Sequence[KeyRange], workload: Workload
) -> Sample:
    """Look at an engine that holds some arcs."""
    table = workload.schema.id
    rows = answered(engine, workload, arcs)
    digests = tuple(engine.digest(table, arc) for arc in arcs)
    n_rows = engine.statistics()["rows"]
    return Sample(process, position, tuple(arcs), rows, digests, n_rows)


def answered(engine: Engine, workload: Workload, arcs: Sequence[KeyRange]) -> tuple[Row, ...]:
    """Give what an engine answers to a read of everything in some arcs, ascending."""
    operation = Operation(1 << 62, _LOOKER, 1, workload.shapes["read_all"], (), tuple(arcs))
    rows: list[Row] = []
    for results in engine.execute([operation]):
        for part in results.rows:
            rows += zip(*(column.values.tolist() for column in part.columns), strict=True)
    return tuple(sorted(rows))


def check_samples(
    q: Judgement, workload: Workload, layouts: Layouts, samples: Sequence[Sample]
) -> Violations:
    """Every engine held what its process owned, and what else it said, exactly as the model has it."""
    found: Violations = []
    model = Model()
    waiting = sorted(samples, key=lambda each: (each.position, each.process), reverse=True)
    for appended in q.appended:
        while waiting and waiting[-1].position < appended.position:
            found += _check(waiting.pop(), workload, layouts, model)
        step = interpret(workload, appended)
        if step is not None and not step.is_read:
            model.write(step)
    while waiting:
        found += _check(waiting.pop(), workload, layouts, model)
    return found


def _check(taken: Sample, workload: Workload, layouts: Layouts, model: Model) -> Violations:
    found: Violations = []
    config = layouts.at(taken.position)
    who = f"held: {taken.process} at {taken.position}"
    owned = config.owned_arcs(taken.process)
    for low, high in outside(owned, taken.arcs):
        found.append(f"{who} owns [{low}, {high}] and does not hold it")
    for low, high in outside(taken.arcs, (*owned, *receiving(config, taken.process))):
        found.append(f"{who} holds [{low}, {high}], which it neither owns nor is to get")
    inside = rows_in(model, workload, taken.arcs)
    if taken.rows != inside:
        found.append(f"{who} holds {taken.rows} in {joined(taken.arcs)}, not {inside}")
    elif taken.n_rows != len(inside):
        found.append(f"{who} has {taken.n_rows} rows, of which {len(inside)} lie in what it holds")
    for arc, digest in zip(taken.arcs, taken.digests, strict=True):
        if digest != digest_of(rows_in(model, workload, (arc,))):
            found.append(f"{who} has another digest of {arc} than its rows")
    return found


def rows_in(model: Model, workload: Workload, ranges: Sequence[KeyRange]) -> tuple[Row, ...]:
    """Give the model's rows in some ring ranges, ascending."""
    return tuple(
        sorted(
            (key, *values)
            for key, values in model.rows.items()
            if any(low <= workload.ring_position(key) <= high for low, high in ranges)
        )
    )


def digest_of(rows: Sequence[Row]) -> bytes:
    """Give the digest that an engine with these rows has."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return digest_columns(
        tuple(
            Column(kind, np.array(values, dtype))
            for (kind, dtype), values in zip(_TYPES, columns, strict=True)
        )
    )
