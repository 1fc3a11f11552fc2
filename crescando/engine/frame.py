"""What a term is evaluated against: rows of a source paired with operations.

Rules of the file: a frame is either *wide* (every row of a source, with the
constants of one operation) or made of *pairs* (row i of the frame is one row of
the source and one operation). Terms cannot tell the difference.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.keys import I64
from crescando.engine.segment import Block
from crescando.engine.statement import Parameter
from crescando.engine.values import Value


class Source(Protocol):
    """Some rows of a table: a block of a segment, row images, snapshots."""

    @property
    def n_rows(self) -> int:
        """How many rows."""
        ...

    def column(self, column_id: int) -> Value:
        """Give one column, by catalog id; shape (n_rows,)."""
        ...


def taken(source: Source, column_id: int, rows: I64) -> Value:
    """Give one column of some rows of a source."""
    # A segment's values may have to be worked out, all of which would take longer.
    return source.take(column_id, rows) if isinstance(source, Block) else source.column(column_id).take(rows)


class Selection:
    """Some rows of another source, each column gathered once.

    Parameters
    ----------
    source : Source
    rows : ndarray of int64, shape (n_rows,)
    """

    __slots__ = ("_columns", "_rows", "_source")

    def __init__(self, source: Source, rows: I64) -> None:
        self._source = source
        self._rows = rows
        self._columns: dict[int, Value] = {}

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self._rows)

    def column(self, column_id: int) -> Value:
        """Give one column; shape (n_rows,)."""
        found = self._columns.get(column_id)
        if found is None:
            found = self._columns[column_id] = taken(self._source, column_id, self._rows)
        return found


class Frame:
    """Rows of a source paired with the constants of operations.

    Parameters
    ----------
    source : Source
    constants : Constants
    rows : ndarray of int64, shape (n,), or None
        Row of the source per row of the frame; None for every row once.
    operations : ndarray of int64, shape (n,), or int
        Operation, as an index into `constants`, per row of the frame or for all.
    evaluator : Evaluator
    """

    __slots__ = ("_columns", "constants", "evaluator", "n_rows", "operations", "rows", "source")

    def __init__(
        self,
        source: Source,
        constants: Constants,
        rows: I64 | None,
        operations: I64 | int,
        evaluator: Evaluator,
    ) -> None:
        self.source = source
        self.constants = constants
        self.rows = rows
        self.operations = operations
        self.evaluator = evaluator
        self.n_rows = source.n_rows if rows is None else len(rows)
        self._columns: dict[int, Value] = {}

    def column(self, column_id: int) -> Value:
        """Give a column for the frame's rows; shape (n_rows,)."""
        found = self._columns.get(column_id)
        if found is None:
            if self.rows is None:
                found = self.source.column(column_id)
            else:
                found = taken(self.source, column_id, self.rows)
            self._columns[column_id] = found
        return found

    def parameter(self, parameter: Parameter) -> Value:
        """Give a parameter for the frame's rows; shape (n_rows,), or (1,) in a wide frame."""
        value = self.constants.scalar(parameter)
        if isinstance(self.operations, int):
            return value.take(np.array([self.operations]))
        return value.take(self.operations)
