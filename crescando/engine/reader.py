"""Collect what reads that give the same columns answer: rows, the first rows, or groups.

Rules of the file: pairs come in any order, from blocks of the table and from
snapshots of changed rows, and the answer does not depend on it. A read with an
error anywhere in its scope fails as a whole, and alone; so does one that would
hold more than its limits allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from crescando.engine.base import Failed, Partials, Rows
from crescando.engine.cutting import ANSWER_BYTES_MAX, Cut, are_light, cut, sums, weights
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame, Source
from crescando.engine.group import Group
from crescando.engine.grouping import GROUPS_MAX, Grouping
from crescando.engine.keys import I64, Mask
from crescando.engine.operations import Members
from crescando.engine.parallel import IN_TURN, Workers, worth
from crescando.engine.rejection import Failures
from crescando.engine.rowset import AllRows, TopRows
from crescando.engine.segment import Block
from crescando.engine.statement import Column, ColumnRef, Scalar
from crescando.engine.terms import evaluate
from crescando.engine.values import Errors, Value, empty, first_cause, to_column
from crescando.types import ProcessId, Scope

_CROWDED = (
    f"more than {GROUPS_MAX} groups or distinct values in one process's part of the ring; "
    "narrow the predicate, or group by fewer or coarser terms"
)

_TOO_LONG = (
    f"the answer weighs more than {ANSWER_BYTES_MAX >> 20} MiB in one process's part of the ring; "
    "narrow the predicate, select fewer columns, set a limit, or read by ranges of the key"
)

VALUES_MAX = 1 << 21
"""Values of outputs that are worked out at a time: of thousands of outputs, for few rows."""

_NONE: frozenset[int] = frozenset()


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
        self._crowded: dict[int, str] = {}
        self.cancelled: Mask | None = None
        """Reads that nobody waits for; shape (n_operations,); None if there are none."""
        shape = group.plan.shape
        self._grouping: Grouping | None = None
        self._top: TopRows | None = None
        if shape.is_grouped:
            self._grouping = Grouping(shape.aggregates, len(shape.group_by), len(group.members))
            self._terms = [*shape.group_by, *(aggregate.term for aggregate in shape.aggregates)]
        else:
            self._terms = [projection.term for projection in shape.projections]
        # Plain columns are no errors: they are gathered when it is known for which rows.
        self._late = {place for place, term in enumerate(self._terms) if isinstance(term, ColumnRef)}
        outputs = [projection.term for projection in shape.projections]
        self._rows = AllRows(outputs)
        if shape.limit is not None:
            limits = group.constants.scalar(shape.limit).data
            self._rows = self._top = TopRows(outputs, shape.order, limits)
            self._late.discard(self._top.first_output)

    @property
    def members(self) -> Members:
        """The group's reads."""
        return self._group.members

    def cancel(self, wanted: Collection[tuple[ProcessId, int]]) -> None:
        """Forget reads, by sender and number: they get no answer, not even a failure."""
        members = self.members
        named = enumerate(zip(members.sender.tolist(), members.number.tolist(), strict=True))
        found = [local for local, (sender, number) in named if (members.senders[sender], number) in wanted]
        fresh = [local for local in found if self.cancelled is None or not self.cancelled[local]]
        if fresh:
            if self.cancelled is None:
                self.cancelled = np.zeros(len(members), np.bool_)
            self.cancelled[fresh] = True
            (self._rows if self._grouping is None else self._grouping).drop(fresh)

    def add(self, source: Source, rows: I64, operations: I64, errors: Errors | None) -> None:
        """Add pairs that are in scope and whose predicate is TRUE or an ERROR."""
        step = max(VALUES_MAX // max(len(self._terms) - len(self._late), 1), 1)
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            self._add(source, rows[some], operations[some], None if errors is None else errors[some])

    def _add(self, source: Source, rows: I64, operations: I64, errors: Errors | None) -> None:
        if errors is not None and errors.any():
            self._fail(source, rows, operations, errors)
            kept = (errors == 0).nonzero()[0]
            rows, operations = rows[kept], operations[kept]
        if len(rows) == 0:
            return
        frame = self._frame(source, rows, operations)
        block = source if isinstance(source, Block) and self._top is None and self._grouping is None else None
        late = self._late if block is not None or self._top is not None else _NONE
        values = [
            None if term is None or place in late else evaluate(term, frame).spread(len(rows))
            for place, term in enumerate(self._terms)
        ]
        found: Errors | None = None
        for value in values:
            found = first_cause(found, None if value is None else value.error)
        if found is not None and found.any():
            self._fail(source, rows, operations, found)
            kept = (found == 0).nonzero()[0]
            rows, operations = rows[kept], operations[kept]
            values = [None if value is None else value.take(kept) for value in values]
        if self._grouping is not None:
            self._group_rows(self._grouping, operations, values)
            self._drop(self._grouping, self._grouping.crowded(), _CROWDED)
            return
        if self._top is not None:
            self._top.add(*self._gathered(self._top, source, rows, operations, values))
        elif len(operations):
            self._rows.add(operations, values, block, None if block is None else rows)
        self._drop(self._rows, self._rows.crowded(), _TOO_LONG)

    def join(self, other: Reader) -> None:
        """Add what another reader of the group has read elsewhere; that one is not used any more."""
        self._failures.join(other._failures)
        self._crowded |= other._crowded
        if other.cancelled is not None:
            known = self.cancelled
            self.cancelled = other.cancelled if known is None else known | other.cancelled
        if self._grouping is not None:
            assert other._grouping is not None
            self._grouping.join(other._grouping)
            self._drop(self._grouping, self._grouping.crowded(), _CROWDED)
        else:
            self._rows.join(other._rows)
            self._drop(self._rows, self._rows.crowded(), _TOO_LONG)

    def _drop(self, answers: Grouping | AllRows, crowded: list[int], text: str) -> None:
        """Fail reads that hold too much, and forget what they hold."""
        if crowded:
            self._crowded |= dict.fromkeys(crowded, text)
            answers.drop(crowded)

    def _frame(self, source: Source, rows: I64, operations: I64) -> Frame:
        return Frame(source, self._group.constants, rows, operations, self._evaluator)

    def _group_rows(self, grouping: Grouping, operations: I64, values: list[Value | None]) -> None:
        n_keys = len(self._group.plan.shape.group_by)
        keys = [value for value in values[:n_keys] if value is not None]
        if len(operations):
            grouping.add(operations, keys, values[n_keys:])

    def _gathered(
        self, top: TopRows, source: Source, rows: I64, operations: I64, values: list[Value | None]
    ) -> tuple[I64, list[Value]]:
        """Give the rows that may be in the answer, with the columns that were left for later."""
        first = values[top.first_output]
        assert first is not None
        kept = top.candidates(operations, first)
        if kept is not None:
            rows, operations = rows[kept], operations[kept]
            values = [None if value is None else value.take(kept) for value in values]
        frame = self._frame(source, rows, operations)
        for place in self._late:
            term = self._terms[place]
            assert term is not None
            values[place] = evaluate(term, frame).spread(len(rows))
        return operations, [value for value in values if value is not None]

    def _fail(self, source: Source, rows: I64, operations: I64, errors: Errors) -> None:
        bad = errors.nonzero()[0]
        keys = [source.column(key).take(rows[bad]) for key in self._key_ids]
        self._failures.add(operations[bad], keys, errors[bad])

    def answers(
        self, workers: Workers = IN_TURN
    ) -> tuple[list[tuple[ProcessId, Rows | Partials]], dict[int, Failed]]:
        """Give all answers: pieces by sender, in order; and the failed reads by local number."""
        pieces = self._groups_of_all() if self._grouping is not None else self._rows_of_all(workers)
        told: dict[int, tuple[tuple[Scalar, ...], str]] = {
            local: ((), text) for local, text in self._crowded.items()
        }
        told |= {
            local: (failure.key, failure.cause.text) for local, failure in self._failures.smallest.items()
        }
        members = self._group.members
        number, position = members.number, members.position
        failed = {
            local: Failed(
                int(number[local]), int(position[local]), members.scope_of(local), "read", key, text
            )
            for local, (key, text) in sorted(told.items())
            if self.cancelled is None or not self.cancelled[local]
        }
        return pieces, failed

    def _groups_of_all(self) -> list[tuple[ProcessId, Rows | Partials]]:
        grouping = self._grouping
        assert grouping is not None
        self._drop(grouping, grouping.crowded(is_last=True), _CROWDED)
        senders, place = self._layout()
        offsets, keys, states = grouping.lay_out(place, int(place.max(initial=-1)) + 1)
        n_groups = int(offsets[-1])
        keys = keys or [empty(term.type) for term in self._group.plan.shape.group_by]
        weight = weights(keys, n_groups)
        for each in states:
            weight += each.weights(n_groups)
        answers: list[tuple[ProcessId, Rows | Partials]] = []
        for sender, locals_, piece, inner in _cut_by_sender(senders, offsets, weight):
            partials = Partials(
                *self._names_of(locals_),
                offsets=inner,
                keys=tuple(_column(key, piece) for key in keys),
                states=tuple(each.of_groups(piece.start, piece.stop).compacted() for each in states),
                part=piece.part,
                has_more=piece.has_more,
            )
            answers.append((sender, partials))
        return answers

    def _rows_of_all(self, workers: Workers) -> list[tuple[ProcessId, Rows | Partials]]:
        projections = self._group.plan.shape.projections
        while True:
            senders, place = self._layout()
            offsets, columns = self._rows.lay_out(place, int(place.max(initial=-1)) + 1, workers)
            n_rows = int(offsets[-1])
            weight = None if are_light(columns, n_rows) else weights(columns, n_rows)
            if weight is None:
                break
            heavy = (sums(weight, offsets) > ANSWER_BYTES_MAX).nonzero()[0]
            if len(heavy) == 0:
                break
            by_place = np.argsort(place, kind="stable")[int(np.count_nonzero(place < 0)) :]
            self._crowded |= dict.fromkeys(by_place[heavy].tolist(), _TOO_LONG)
        columns = columns or [empty(projection.term.type) for projection in projections]
        answers: list[tuple[ProcessId, Rows | Partials]] = []
        for sender, locals_, piece, inner in _cut_by_sender(senders, offsets, weight):
            cuts = [partial(_column, value, piece) for value in columns]
            rows = Rows(
                *self._names_of(locals_),
                offsets=inner,
                names=tuple(projection.name for projection in projections),
                columns=tuple(worth(workers, (piece.stop - piece.start) * len(cuts)).run(cuts)),
                part=piece.part,
                has_more=piece.has_more,
            )
            answers.append((sender, rows))
        return answers

    def _layout(self) -> tuple[list[tuple[ProcessId, I64]], I64]:
        """Give the reads that did not fail, by sender, and each read's place among them.

        Answers are laid out sender by sender and then in order, so that each
        sender's are one slice.
        """
        members = self._group.members
        answered = np.ones(len(members), np.bool_)
        answered[[*self._failures.smallest, *self._crowded]] = False
        if self.cancelled is not None:
            answered &= ~self.cancelled
        senders = members.by_sender(answered.nonzero()[0])
        place = np.full(len(members), -1, np.int64)
        start = 0
        for _, locals_ in senders:
            place[locals_] = np.arange(start, start + len(locals_))
            start += len(locals_)
        return senders, place

    def _names_of(self, locals_: I64) -> tuple[I64, I64, I64, tuple[Scope, ...]]:
        """Give numbers, positions and scopes of some reads."""
        members = self._group.members
        named = members.scopes
        scopes = members.scope[locals_]
        if len(named) > 1:
            numbers, scopes = np.unique(scopes, return_inverse=True)
            named = [named[number] for number in numbers.tolist()]
        return members.number[locals_], members.position[locals_], scopes.astype(np.int64), tuple(named)


def _column(value: Value, piece: Cut) -> Column:
    """Give the rows of one piece."""
    if piece.stop - piece.start < len(value.data):
        value = value.slice(piece.start, piece.stop)
    return to_column(value)


def _cut_by_sender(
    senders: list[tuple[ProcessId, I64]], offsets: I64, weight: I64 | None
) -> Iterator[tuple[ProcessId, I64, Cut, I64]]:
    """Give the pieces of each sender's answers: the reads, where they lie in all, offsets inside.

    Without weights each sender's are one piece.
    """
    first = 0
    for sender, locals_ in senders:
        bounds = offsets[first : first + len(locals_) + 1]
        start, stop = int(bounds[0]), int(bounds[-1])
        whole = Cut(0, stop - start, 0, len(locals_), 0, False)
        for piece in (whole,) if weight is None else cut(weight[start:stop], bounds - start):
            inner = np.clip(bounds[piece.first : piece.last + 1] - start, piece.start, piece.stop)
            placed = replace(piece, start=piece.start + start, stop=piece.stop + start)
            yield sender, locals_[piece.first : piece.last], placed, inner - piece.start
        first += len(locals_)
