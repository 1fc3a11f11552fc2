"""Collect what the reads of one group answer: rows or partial aggregates.

Rules of the file: pairs come in any order, from blocks of the table and from
snapshots of changed rows, and the answer does not depend on it. A read with an
error anywhere in its scope fails as a whole, and alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.aggregate import Accumulator
from crescando.engine.base import Failed, Partials, Rows
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame, Source
from crescando.engine.group import Group
from crescando.engine.keys import I64
from crescando.engine.rejection import Failures
from crescando.engine.statement import Operation
from crescando.engine.terms import evaluate
from crescando.engine.values import Errors, Value, concatenate, empty, first_cause, to_column
from crescando.types import ProcessId


class Reader:
    """The answers of one group of reads, as they grow.

    Parameters
    ----------
    group : Group
    key_ids : tuple of int
        Columns of the primary or hidden key, for telling which row failed.
    evaluator : Evaluator
    """

    def __init__(self, group: Group, key_ids: tuple[int, ...], evaluator: Evaluator) -> None:
        self._group = group
        self._key_ids = key_ids
        self._evaluator = evaluator
        self._failures = Failures()
        self._operations: list[I64] = []
        self._pieces: list[list[Value]] = []
        shape = group.plan.shape
        n_operations = len(group.operations)
        self._accumulators = [Accumulator(aggregate, n_operations) for aggregate in shape.aggregates]

    @property
    def operations(self) -> Sequence[Operation]:
        """The group's reads, by local number."""
        return self._group.operations

    def add(self, source: Source, rows: I64, operations: I64, errors: Errors | None) -> None:
        """Add pairs that are in scope and whose predicate is TRUE or an ERROR."""
        if errors is not None and errors.any():
            self._fail(source, rows, operations, errors)
            kept = (errors == 0).nonzero()[0]
            rows, operations = rows[kept], operations[kept]
        if len(rows) == 0:
            return
        if self._accumulators:
            order = np.argsort(operations, kind="stable")
            rows, operations = rows[order], operations[order]
        frame = Frame(source, self._group.constants, rows, operations, self._evaluator)
        shape = self._group.plan.shape
        terms = [aggregate.term for aggregate in shape.aggregates] or [p.term for p in shape.projections]
        values = [None if term is None else evaluate(term, frame).spread(len(rows)) for term in terms]
        found: Errors | None = None
        for value in values:
            found = first_cause(found, None if value is None else value.error)
        if found is not None and found.any():
            self._fail(source, rows, operations, found)
            kept = (found == 0).nonzero()[0]
            operations = operations[kept]
            values = [None if value is None else value.take(kept) for value in values]
        if self._accumulators:
            for accumulator, value in zip(self._accumulators, values, strict=True):
                accumulator.add(operations, value)
        else:
            self._operations.append(operations)
            self._pieces.append([value for value in values if value is not None])

    def _fail(self, source: Source, rows: I64, operations: I64, errors: Errors) -> None:
        bad = errors.nonzero()[0]
        keys = [source.column(key).take(rows[bad]) for key in self._key_ids]
        self._failures.add(operations[bad], keys, errors[bad])

    def failed(self) -> dict[int, Failed]:
        """Give the failed reads by local number."""
        return {
            local: Failed(
                operation.number, operation.position, operation.scope, "read", failure.key, failure.cause.text
            )
            for local, failure in sorted(self._failures.smallest.items())
            for operation in (self._group.operations[local],)
        }

    def partials(self) -> dict[int, Partials]:
        """Give the partial aggregates of the other reads by local number."""
        if not self._accumulators:
            return {}
        answers = {}
        for local, operation in enumerate(self._group.operations):
            if local not in self._failures.smallest:
                states = tuple(accumulator.state(local) for accumulator in self._accumulators)
                answers[local] = Partials(operation.number, operation.position, operation.scope, states)
        return answers

    def rows(self) -> list[tuple[ProcessId, Rows]]:
        """Give the rows of the other reads, one `Rows` per sender."""
        if self._accumulators:
            return []
        group = self._group
        senders: dict[ProcessId, list[int]] = {}
        for local, operation in enumerate(group.operations):
            if local not in self._failures.smallest:
                senders.setdefault(operation.sender, []).append(local)
        if not senders:
            return []
        # Answers are laid out sender by sender and then in order, so that each
        # sender's are one slice.
        layout = [local for locals_ in senders.values() for local in locals_]
        place = np.full(len(group.operations), -1, np.int64)
        place[layout] = np.arange(len(layout))
        columns, offsets = self._lay_out(place, len(layout))
        answers = []
        start = 0
        for sender, locals_ in senders.items():
            stop = start + len(locals_)
            answers.append((sender, self._rows_of(locals_, columns, offsets[start : stop + 1])))
            start = stop
        return answers

    def _lay_out(self, place: I64, n_places: int) -> tuple[list[Value], I64]:
        offsets = np.zeros(n_places + 1, np.int64)
        if not self._pieces:
            return [], offsets
        lengths = [len(operations) for operations in self._operations]
        places = place[np.concatenate(self._operations)]
        # Sixteen-bit numbers sort by radix, in linear time.
        order = np.argsort(places.astype(np.int16) if n_places < 1 << 15 else places, kind="stable")
        order = order[int(np.count_nonzero(places < 0)) :]
        np.cumsum(np.bincount(places[order], minlength=n_places), out=offsets[1:])
        n_columns = len(self._pieces[0])
        columns = []
        for column in range(n_columns):
            whole = concatenate([piece[column] for piece in self._pieces], lengths)
            columns.append(whole.take(order))
        return columns, offsets

    def _rows_of(self, locals_: Sequence[int], columns: list[Value], offsets: I64) -> Rows:
        group = self._group
        assert group.coverage is not None
        operations = [group.operations[local] for local in locals_]
        numbers, scopes = np.unique(group.coverage.scope[list(locals_)], return_inverse=True)
        start, stop = int(offsets[0]), int(offsets[-1])
        shape = group.plan.shape
        if columns:
            slices = [value.take(np.arange(start, stop)) for value in columns]
        else:
            slices = [empty(projection.term.type) for projection in shape.projections]
        return Rows(
            number=np.array([operation.number for operation in operations], np.int64),
            position=np.array([operation.position for operation in operations], np.int64),
            scope=scopes.astype(np.int64),
            scopes=tuple(group.coverage.scopes[number] for number in numbers.tolist()),
            offsets=offsets - start,
            names=tuple(projection.name for projection in shape.projections),
            columns=tuple(to_column(value) for value in slices),
        )
