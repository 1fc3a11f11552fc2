"""Rows of a ring range as columns, at the speed of memory.

Rules of the file: what lies in segments is copied once, column by column, into
arrays of its final size, in runs of neighbouring rows where there are such: rows that
were loaded together lie together. A dictionary holds the texts that the rows use;
a list that is small beside the rows is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.dictionary import Pool
from crescando.engine.holding import Holding
from crescando.engine.keys import I64, Mask
from crescando.engine.narrowed import Narrowed
from crescando.engine.packed import Lane, Packed
from crescando.engine.segment import Stored
from crescando.engine.statement import PHYSICAL, Column
from crescando.engine.table import Hidden, Table
from crescando.schema import DataType
from crescando.types import FULL_RING, KeyRange, Scope

RUN_ROWS = 32
"""Runs of so many rows, on average, are copied as what they are."""

SPREAD = 4
"""Runs that lie within so many times as many rows are copied from these, worked out at once."""


class Extract(NamedTuple):
    """Some rows of a segment or a still, as a list of them or as runs."""

    source: Stored
    n_rows: int
    rows: I64
    runs: list[slice]

    def gather(self, array: Lane, target: NDArray[Any]) -> None:
        """Copy the rows of one of the source's arrays."""
        if isinstance(array, Narrowed) and array.numbers.ndim == 1:
            # Worked out at once, however many runs there are.
            numbers = np.empty(self.n_rows, array.numbers.dtype)
            self.gather(array.numbers, numbers)
            array.widen(numbers, target)
            return
        before = 0
        if isinstance(array, Packed):
            if not self.runs:
                target[:] = array[self.rows]
                return
            first, last = self.runs[0].start, self.runs[-1].stop
            if last - first <= SPREAD * self.n_rows:
                array, before = array[first:last], first
        elif not self.runs:
            if target.dtype == array.dtype:
                # With its place given and nothing to check, it is done in half the time.
                np.take(array, self.rows, out=target, mode="clip")
            else:
                target[:] = array.take(self.rows)
            return
        start = 0
        for run in self.runs:
            stop = start + run.stop - run.start
            target[start:stop] = array[run.start - before : run.stop - before]
            start = stop

    def place_of(self, index: int) -> int:
        """Give where in the source the row of some index lies."""
        if not self.runs:
            return int(self.rows[index])
        for run in self.runs:
            if index < run.stop - run.start:
                return int(run.start) + index
            index -= run.stop - run.start
        raise IndexError(index)


_NO_ROWS: I64 = np.zeros(0, np.int64)


def export_columns(table: Table, key_range: KeyRange) -> tuple[Column, ...]:
    """Give all columns, in the schema's order, of the rows in a ring range."""
    extracts = _extracts(table, key_range)
    return tuple(_column(table, column.id, extracts) for column in table.schema.columns)


def extract(source: Stored, scope: Scope | None, start: int, stop: int) -> Extract:
    """Give those of the rows ``start:stop`` that live and lie in a scope (None: anywhere)."""
    inside = source.inside(scope, start, stop)
    if inside is None:
        return Extract(source, stop - start, _NO_ROWS, [slice(start, stop)])
    count = int(np.count_nonzero(inside))
    borders = (np.diff(inside, prepend=False, append=False)).nonzero()[0]
    if len(borders) * RUN_ROWS > 2 * count:
        return Extract(source, count, inside.nonzero()[0] + start, [])
    borders += start
    starts, stops = borders[::2].tolist(), borders[1::2].tolist()
    return Extract(source, count, _NO_ROWS, list(map(slice, starts, stops)))


def gather(
    column_id: int, dtype: np.dtype[Any], extracts: Sequence[Extract]
) -> tuple[NDArray[Any], Mask | None]:
    """Give one column of some rows end to end, and where it is not NULL unless that is everywhere."""
    n_rows = sum(each.n_rows for each in extracts)
    values: NDArray[Any] = np.empty(n_rows, dtype)
    valid: Mask | None = None
    start = 0
    for each in extracts:
        stop = start + each.n_rows
        each.gather(each.source.data[column_id], values[start:stop])
        mask = each.source.valid.get(column_id)
        if mask is not None:
            if valid is None:
                valid = np.ones(n_rows, np.bool_)
            each.gather(mask, valid[start:stop])
        start = stop
    if valid is not None and valid.all():
        valid = None
    if valid is not None:
        np.copyto(values, dtype.type(0), where=~valid)
    return values, valid


def export_hidden(hidden: Hidden, key_range: KeyRange) -> tuple[Column, ...]:
    """Give all columns of the rows that a load has staged in a ring range."""
    extracts = _extracts(hidden, key_range)
    return tuple(_column(hidden, column_id, extracts) for column_id in hidden.types)


def _extracts(rows: Holding, key_range: KeyRange) -> list[Extract]:
    scope = None if key_range == FULL_RING else (key_range,)
    extracts = [extract(segment, scope, 0, segment.n_rows) for segment in rows.all_segments()]
    return [each for each in extracts if each.n_rows]


def _column(table: Holding, column_id: int, extracts: Sequence[Extract]) -> Column:
    kind = table.types[column_id]
    values, valid = gather(column_id, PHYSICAL[kind], extracts)
    pool = table.pools.get(column_id)
    return Column(kind, values, valid) if pool is None else _texts(values, valid, pool)


def _texts(codes: NDArray[np.int32], valid: Mask | None, pool: Pool) -> Column:
    kind = DataType.BYTES if pool.binary else DataType.STRING
    n_texts = len(pool)
    if 4 * n_texts <= len(codes) and pool.text_bytes - 4 * n_texts <= 2 * len(codes):
        return Column(kind, codes, valid, pool.texts)
    used = kernels.active().texts.renumber(codes, n_texts)
    return Column(kind, codes, valid, pool.texts if len(used) == n_texts else pool.take(used))
