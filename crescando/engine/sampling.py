"""A sample of a table's rows, by which access paths are chosen.

Rules of the file: the sample is the same for all shapes of a cycle, so that
its columns are gathered once. It decides about time and about nothing else.
"""

from __future__ import annotations

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
        self.n_rows = sum(len(rows) for _, rows in self._pieces)

    def column(self, column_id: int) -> Value:
        """Give one column; shape (n_rows,)."""
        found = self._columns.get(column_id)
        if found is None:
            found = self._columns[column_id] = self._gather(column_id)
        return found

    def _gather(self, column_id: int) -> Value:
        if not self._pieces:
            return empty(self._types[column_id])
        values = [block.column(column_id).take(rows) for block, rows in self._pieces]
        return concatenate(values, [len(rows) for _, rows in self._pieces])
