"""A sample of a table's rows, by which access paths are chosen.

Rules of the file: the sample is the same for all shapes of a cycle, so that its columns are gathered
once, and serves the cycles that follow until so many rows have changed that another one would show it.
It decides about time and about nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.join import access_keys
from crescando.engine.keys import I64
from crescando.engine.plan import Access
from crescando.engine.table import Table
from crescando.engine.values import Value, concatenate, empty

SAMPLE_ROWS = 1_024


class Sample:
    """About `SAMPLE_ROWS` rows, evenly spread, as a source.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._layout = _layout(table)
        self._n_changed = 0
        self._columns: dict[int, Value] = {}
        self._ordered: dict[tuple[int, bool], NDArray[Any]] = {}
        self.n_rows = sum(len(rows) for _, rows in table.sample(SAMPLE_ROWS))

    def note_changed(self, n_rows: int) -> None:
        """Take note that so many of the table's rows may have been changed where they lie."""
        self._n_changed += n_rows

    def is_good(self) -> bool:
        """Say whether a sample that is taken now would be much the same."""
        # Of so few rows it would hold one.
        is_changed = self._n_changed * SAMPLE_ROWS > self._table.n_stored
        return not is_changed and self._layout == _layout(self._table)

    def column(self, column_id: int) -> Value:
        """Give one column; shape (n_rows,)."""
        found = self._columns.get(column_id)
        if found is None:
            found = self._columns[column_id] = self._gather(column_id)
        return found

    def n_within(self, access: Access, low: I64, high: I64) -> int:
        """Give how many pairs there are of a row and one of some closed intervals of keys in which it lies.

        Parameters
        ----------
        access : Access
            What the intervals are of; see `join.Bounds`.
        low, high : ndarray of int64, shape (n,)
            Those that are empty count for nothing.
        """
        key = access.column, access.is_point
        keys = self._ordered.get(key)
        if keys is None:
            column = self.column(access.column)
            keys = access_keys(access, column)
            keys = self._ordered[key] = np.sort(keys if column.valid is None else keys[column.valid])
        # Where an interval is empty its end may lie before its beginning.
        counts = np.searchsorted(keys, high, side="right") - np.searchsorted(keys, low, side="left")
        return int(np.maximum(counts, 0).sum())

    def _gather(self, column_id: int) -> Value:
        values = [block.take(column_id, rows) for block, rows in self._table.sample(SAMPLE_ROWS)]
        lengths = [len(value.data) for value in values]
        return concatenate(values, lengths) if values else empty(self._table.types[column_id])


def _layout(table: Table) -> tuple[Any, ...]:
    """Give what is another where rows have come, gone or moved, or codes have another meaning."""
    segments = [(id(segment), segment.n_rows) for segment in table.all_segments()]
    return table.n_compactions, segments, list(map(id, table.pools.values()))
