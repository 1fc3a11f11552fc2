"""The answers of many reads in common columns, of which each read has some consecutive rows.

Rules of the file: what reads share is looked at once for all of them. An answer
that somebody keeps therefore keeps the others' rows too. Python objects are made
a stretch of rows at a time, whoever they are for.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.client.columns import python_values
from crescando.engine.statement import Column
from crescando.types import Scope

ROWS_TOGETHER = 1 << 12
"""Rows that are made for all reads when one wants its own: some thousand reads of a few rows each. Making
them holds up everything else that runs in the interpreter, by about a millisecond."""

STRETCHES_KEPT = 8
"""Of so many the rows are kept, those made last: whoever keeps an answer of a large block keeps these too."""

FEW_ROWS = 64
"""So few are looked up one by one."""

Row = tuple[Any, ...]


class Block:
    """Columns in which several answers lie.

    Parameters
    ----------
    names : tuple of str
    columns : tuple of Column, of equal length
    """

    __slots__ = ("_stretches", "_texts", "columns", "names")

    def __init__(self, names: tuple[str, ...], columns: tuple[Column, ...]) -> None:
        self.names = names
        self.columns = columns
        self._stretches: dict[int, list[Row]] = {}
        """Rows that were made for all reads, by where they begin in steps of `ROWS_TOGETHER`."""
        self._texts: list[NDArray[np.object_]] = []
        """What the codes of each textual column stand for."""

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def slice(self, start: int, stop: int) -> tuple[Column, ...]:
        """Give the columns of some rows."""
        if start == 0 and stop == len(self):
            return self.columns
        return tuple([column.slice(start, stop) for column in self.columns])

    def rows(self, start: int, stop: int) -> list[Row]:
        """Give some rows as tuples of Python values."""
        at = start // ROWS_TOGETHER
        before = at * ROWS_TOGETHER
        rows = self._stretches.get(at)
        if rows is None:
            n = stop - start
            if n <= 0:
                return []
            if n == len(self) or n > ROWS_TOGETHER:
                return self._rows(start, stop)
            rows = self._stretch(at)
        found = rows[start - before : stop - before]
        if stop - before > ROWS_TOGETHER:
            found += self.rows(before + ROWS_TOGETHER, stop)
        return found

    def _stretch(self, at: int) -> list[Row]:
        start = at * ROWS_TOGETHER
        # Two threads that come here at once make equal rows.
        rows = self._stretches[at] = self._rows(start, min(start + ROWS_TOGETHER, len(self)))
        for old in list(self._stretches)[:-STRETCHES_KEPT]:
            self._stretches.pop(old, None)
        return rows

    def _rows(self, start: int, stop: int) -> list[Row]:
        columns = self.slice(start, stop)
        if stop - start < FEW_ROWS:
            return list(zip(*map(python_values, columns), strict=True))
        texts = self._texts
        if not texts:
            texts = self._texts = [_texts_of(column) for column in self.columns]
        values = [
            _looked_up(column, known) if column.type.is_textual else python_values(column)
            for column, known in zip(columns, texts, strict=True)
        ]
        return list(zip(*values, strict=True))


def _texts_of(column: Column) -> NDArray[np.object_]:
    known = column.texts.to_list() if column.type.is_textual else []
    texts = np.empty(len(known), np.object_)
    texts[:] = known
    return texts


def _looked_up(column: Column, texts: NDArray[np.object_]) -> list[Any]:
    """Give a textual column's values; as `python_values`, in a third of the time."""
    if column.valid is None:
        found = texts[column.values]
    else:
        # Codes where not valid are undefined.
        found = np.full(len(column), None, np.object_)
        found[column.valid] = texts[column.values[column.valid]]
    values: list[Any] = found.tolist()
    return values


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The rows that one storage process answered for one scope of a read.

    Attributes
    ----------
    scope : Scope
    block : Block
        Its rows are ``start:stop`` of this.
    start, stop : int
    """

    scope: Scope
    block: Block
    start: int
    stop: int

    @staticmethod
    def of(scope: Scope, names: tuple[str, ...], columns: tuple[Column, ...]) -> Piece:
        """Give columns of equal length as a piece."""
        block = Block(names, columns)
        return Piece(scope, block, 0, len(block))

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self.block.names

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its rows, column by column; arrays are shared."""
        return self.block.slice(self.start, self.stop)

    def rows(self) -> list[Row]:
        """Give its rows as tuples of Python values."""
        return self.block.rows(self.start, self.stop)
