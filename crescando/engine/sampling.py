"""A sample of a table's rows, by which access paths are chosen.

Rules of the file: the sample is the same for all shapes of a cycle, so that
its columns are gathered once. It decides about time and about nothing else.
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
    """About `SAMPLE_ROWS` rows, evenly spread, as a source; good until the table's rows change.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        self._types = table.types
        self._pieces = list(table.sample(SAMPLE_ROWS))
        self._columns: dict[int, Value] = {}
        self._ordered: dict[tuple[int, bool], NDArray[Any]] = {}
        self.n_rows = sum(len(rows) for _, rows in self._pieces)

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
            What the intervals are of; see `join.bounds`.
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
        if not self._pieces:
            return empty(self._types[column_id])
        values = [block.take(column_id, rows) for block, rows in self._pieces]
        return concatenate(values, [len(rows) for _, rows in self._pieces])
