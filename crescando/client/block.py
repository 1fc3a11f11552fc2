"""The answers of many reads in common columns, of which each read has some consecutive rows.

Rules of the file: what reads share is looked at once for all of them. An answer
that somebody keeps therefore keeps the others' rows too, so only small blocks
are turned into Python objects as a whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from crescando.client.columns import python_values
from crescando.engine.statement import Column
from crescando.types import Scope

ROWS_TOGETHER_MAX = 1 << 15
"""Rows that are made for all reads when one wants its own; more than a cycle's point reads find."""

Row = tuple[Any, ...]


class Block:
    """Columns in which several answers lie.

    Parameters
    ----------
    names : tuple of str
    columns : tuple of Column, of equal length
    """

    __slots__ = ("_rows", "columns", "names")

    def __init__(self, names: tuple[str, ...], columns: tuple[Column, ...]) -> None:
        self.names = names
        self.columns = columns
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def slice(self, start: int, stop: int) -> tuple[Column, ...]:
        """Give the columns of some rows."""
        if start == 0 and stop == len(self):
            return self.columns
        return tuple([column.slice(start, stop) for column in self.columns])

    def rows(self, start: int, stop: int) -> list[Row]:
        """Give some rows as tuples of Python values."""
        rows = self._rows
        if rows is None:
            n = len(self)
            if stop - start == n or n > ROWS_TOGETHER_MAX:
                return _rows(self.slice(start, stop))
            # Two threads that come here at once make equal rows.
            rows = self._rows = _rows(self.columns)
        return rows[start:stop]


def _rows(columns: tuple[Column, ...]) -> list[Row]:
    return list(zip(*map(python_values, columns), strict=True))


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
