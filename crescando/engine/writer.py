"""Apply writes to row images, and count what they did.

Rules of the file: a write's effect on a row depends on that row and the write
alone. A row on which the predicate, an assignment, a conversion or a
constraint fails keeps *all* its values and is rejected; the others are written.
Counts are kept per arc, so that whoever reports a range can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.conversion import convert, domain_errors
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame
from crescando.engine.functions import Cause
from crescando.engine.group import Group
from crescando.engine.images import Images
from crescando.engine.incoming import Incoming
from crescando.engine.keys import I64, Mask
from crescando.engine.rejection import Failures
from crescando.engine.returning import ReturnedRows
from crescando.engine.statement import Column, Kind
from crescando.engine.table import Table
from crescando.engine.terms import evaluate, null_error
from crescando.engine.values import Errors, Value, first_cause, recode, with_raised
from crescando.engine.written import Rejection, Remark, Written
from crescando.types import KeyRange


class Tally:
    """What each write of a batch did, per arc.

    Parameters
    ----------
    n_operations : int
        Operations of the batch.
    arcs : sequence of KeyRange
    """

    def __init__(self, n_operations: int, arcs: Sequence[KeyRange]) -> None:
        self._arcs = arcs
        self._n_arcs = max(len(arcs), 1)
        self._affected: list[I64] = []
        self._counts: I64 | None = None
        self._n_operations = n_operations
        self._failures = Failures()
        self._returned: dict[int, ReturnedRows] = {}

    def returned(self, group: Group) -> ReturnedRows | None:
        """Give where the rows that a group's writes return are kept, if they return any."""
        outputs = group.plan.shape.returning
        return self._returned.setdefault(id(group), ReturnedRows(outputs)) if outputs else None

    def cells(self, group: Group, operations: I64, arcs: I64) -> I64:
        """Number operations of a group and arcs."""
        return group.order[operations] * self._n_arcs + arcs

    def affected(self, order: I64, arcs: I64) -> None:
        """Count rows as written by the operations at some places in the batch."""
        self._affected.append(order * self._n_arcs + arcs)

    def rejected(self, order: I64, arcs: I64, keys: list[Value], causes: Errors) -> None:
        """Count rows as rejected."""
        if len(order):
            self._failures.add(order * self._n_arcs + arcs, keys, causes)

    def written(self, group: Group) -> Written:
        """Give what each write of a group did; every arc is reported, also with nothing.

        Ends the counting.
        """
        if self._counts is None:
            self._counts = self._sum()
        members = group.members
        return Written(
            members.number,
            members.position,
            np.maximum(members.step, 0),
            tuple(self._arcs),
            self._counts[members.order].ravel(),
            self._remarks(group),
        )

    def _sum(self) -> I64:
        size = self._n_operations * len(self._arcs)
        every = np.concatenate([np.zeros(0, np.int64), *self._affected])
        counted: I64 = np.bincount(every, minlength=size)[:size]
        return counted.reshape(self._n_operations, len(self._arcs))

    def _remarks(self, group: Group) -> tuple[Remark, ...]:
        """Give what a group's writes did beside affecting rows."""
        kept = self._returned.get(id(group))
        returned = {} if kept is None else kept.by_cell()
        cells = np.array(sorted({*self._failures.counts, *returned}), np.int64)
        if len(cells) == 0:
            return ()
        order = group.order
        write = np.minimum(np.searchsorted(order, cells // self._n_arcs), len(order) - 1)
        own = (order[write] * self._n_arcs + cells % self._n_arcs == cells).nonzero()[0]
        return tuple(
            self._remark(write, cell, returned.get(cell, ()))
            for write, cell in zip(write[own].tolist(), cells[own].tolist(), strict=True)
        )

    def _remark(self, write: int, cell: int, returned: tuple[Column, ...]) -> Remark:
        failure, arc = self._failures.smallest.get(cell), cell % self._n_arcs
        if failure is None:
            return Remark(write, arc, 0, None, returned)
        rejection = Rejection(failure.key, failure.cause.text)
        return Remark(write, arc, self._failures.counts[cell], rejection, returned)


class Writer:
    """Applies writes to the images of one batch.

    Parameters
    ----------
    table : Table
    images : Images
    tally : Tally
    evaluator : Evaluator
    """

    def __init__(self, table: Table, images: Images, tally: Tally, evaluator: Evaluator) -> None:
        self._table = table
        self._images = images
        self._tally = tally
        self._evaluator = evaluator

    def reject(self, group: Group, images: I64, operations: I64, causes: Errors) -> None:
        """Count images as rejected by operations of a group."""
        keys = [self._images.column(key).take(images) for key in self._table.key_ids]
        self._tally.rejected(group.order[operations], self._images.arc[images], keys, causes)

    def apply(self, group: Group, images: I64, operations: I64) -> None:
        """Update or delete images, each by one operation; no image occurs twice."""
        if group.plan.shape.kind is Kind.DELETE:
            self._return(group, images, operations, self._look(group, images, True), there_is_after=False)
            self._images.alive[images] = False
            self._images.changed[images] = True
            self._tally.affected(group.order[operations], self._images.arc[images])
            return
        frame = Frame(self._images, group.constants, images, operations, self._evaluator)
        values = {}
        error: Errors | None = None
        for assignment in group.plan.shape.assignments:
            value = self.fit(assignment.column, evaluate(assignment.term, frame).spread(len(images)))
            error = first_cause(error, value.error)
            values[assignment.column] = value
        if error is not None and error.any():
            bad = error.nonzero()[0]
            self.reject(group, images[bad], operations[bad], error[bad])
            kept = (error == 0).nonzero()[0]
            images, operations = images[kept], operations[kept]
            values = {column: value.take(kept) for column, value in values.items()}
        before = self._look(group, images, True)
        self._store(values, images)
        self._return(group, images, operations, before)
        self._tally.affected(group.order[operations], self._images.arc[images])

    def _look(self, group: Group, images: I64, exists: Mask | bool) -> dict[int, Value]:
        """Give what a group's writes return of images as they are before the write."""
        kept = self._tally.returned(group)
        return {} if kept is None else kept.look(self._images, images, exists, is_before=True)

    def _return(
        self,
        group: Group,
        images: I64,
        operations: I64,
        before: dict[int, Value],
        *,
        there_is_after: bool = True,
    ) -> None:
        """Keep what a group's writes return of images, which are as they are after the write."""
        kept = self._tally.returned(group)
        if kept is not None:
            after = kept.look(self._images, images, there_is_after, is_before=False)
            kept.add(self._tally.cells(group, operations, self._images.arc[images]), before, after)

    def fit(self, column_id: int, value: Value) -> Value:
        """Convert a value to a column's type and texts, with the errors that its constraints raise."""
        column = self._table.schema.column_by_id(column_id)
        assert column is not None
        fitted = convert(value, column.type)
        fitted = with_raised(fitted, column.type, fitted.data, domain_errors(column.type, fitted.data))
        if not column.nullable:
            # Every error of a term has a smaller cause, so that this one never hides it.
            fitted.error = first_cause(fitted.error, null_error(fitted))
        pool = self._table.pools.get(column_id)
        return fitted if pool is None else recode(fitted, pool)

    def count(self, order: I64, arcs: I64) -> None:
        """Count rows as written by the operations at some places in the batch."""
        self._tally.affected(order, arcs)

    def _store(self, values: dict[int, Value], images: I64) -> None:
        if len(images) == 0:
            return
        for column_id, value in values.items():
            pool = self._table.pools.get(column_id)
            self._images.store(column_id, images, value if pool is None else recode(value, pool))
        self._images.changed[images] = True

    def bring(self, rows: Incoming, images: I64, places: I64) -> None:
        """Insert or upsert incoming rows, each into one image; no image occurs twice.

        Parameters
        ----------
        rows : Incoming
        images, places : ndarray of int64, shape (n,)
            Image and index into the incoming rows.
        """
        group = rows.group
        operations = rows.operation[places]
        alive = self._images.alive[images]
        causes = np.zeros(len(images), np.uint8)
        if group.plan.shape.kind is Kind.INSERT:
            causes[alive] = Cause.DUPLICATE_KEY
        elif rows.missing_not_null:
            causes[~alive] = Cause.NULL_VALUE
        if rows.reserved is not None:
            causes[~alive & rows.reserved[places] & (causes == 0)] = Cause.RESERVED_KEY
        if causes.any():
            bad = causes.nonzero()[0]
            self.reject(group, images[bad], operations[bad], causes[bad])
            kept = (causes == 0).nonzero()[0]
            images, places, operations, alive = images[kept], places[kept], operations[kept], alive[kept]
        given = rows.values
        before = self._look(group, images, alive)
        born = images[~alive]
        if len(born):
            for column_id in self._table.types:
                if column_id not in given:
                    self._images.clear(column_id, born)
        # The key of an image is what it is; only the other columns are replaced.
        keys = self._table.key_ids
        self._store({column: given[column].take(places) for column in given if column not in keys}, images)
        self._images.alive[images] = True
        self._images.changed[images] = True
        self._return(group, images, operations, before)
        self._tally.affected(group.order[operations], self._images.arc[images])
