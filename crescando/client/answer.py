"""The answer of a read: columns of one position, in the form the caller likes.

Rules of the file: an answer is immutable and complete; converting it never
talks to the store. NULL is None in rows, a masked entry in NumPy, NA in pandas
and null in Arrow; NaN stays NaN in all of them. Timestamps come back in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.client.block import Piece
from crescando.client.columns import python_values
from crescando.engine.statement import Column
from crescando.errors import UnknownColumnError
from crescando.schema import DataType
from crescando.types import Position

ROWS_SHOWN = 10
"""Rows that `repr` shows."""

WIDTH_SHOWN = 24
"""Characters of one value that `repr` shows."""


class Answer(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The rows of one read, at one position of the global order.

    Rows of a read without ``order_by`` come in no particular order.

    Attributes
    ----------
    position : Position
        Everything before it shows in the answer.
    latest : Position
        Nothing after it shows; another than `position` only of a basic read, of which each storage
        process answers its part at a position of its own.
    """

    position: Position
    latest: Position
    _piece: Piece

    @staticmethod
    def of(
        position: Position, names: tuple[str, ...], columns: Sequence[Column], latest: Position | None = None
    ) -> Answer:
        """Give columns of equal length, one per name, as an answer."""
        piece = Piece.of((), names, tuple(columns))
        return Answer(position, position if latest is None else latest, piece)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return self._piece.block.names

    def __len__(self) -> int:
        return len(self._piece)

    @property
    def _columns(self) -> tuple[Column, ...]:
        return self._piece.columns

    @property
    def types(self) -> tuple[DataType, ...]:
        """The columns' types."""
        return tuple(column.type for column in self._columns)

    def column(self, name: str) -> list[Any]:
        """Give one column's values as Python values.

        Raises
        ------
        UnknownColumnError
            With the nearest name.
        """
        if name not in self.names:
            raise UnknownColumnError(name, "answer", self.names)
        return python_values(self._columns[self.names.index(name)])

    def rows(self) -> list[tuple[Any, ...]]:
        """Give the rows as tuples of None, bool, int, float, Decimal, str, date and datetime (UTC)."""
        piece = self._piece
        return piece.block.rows(piece.start, piece.stop)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    def dicts(self) -> list[dict[str, Any]]:
        """Give the rows as dicts."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows()]

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """Give the columns as arrays of shape (n,), owned by the caller.

        Returns
        -------
        dict of str to ndarray
            bool, int and float columns in their own dtype, strings and decimals as
            objects, dates as ``datetime64[D]``, timestamps as ``datetime64[us]`` (UTC).
            A column with NULL is a masked array of that dtype.
        """
        return {name: _numpy(column) for name, column in zip(self.names, self._columns, strict=True)}

    def to_pandas(self) -> Any:
        """Give a pandas DataFrame.

        Columns without NULL have plain dtypes, those with NULL the nullable
        ones (``Int64``, ``boolean``, ``Float64``, …), so that NULL and NaN stay
        apart. Texts are ``str``, before pandas 3 objects. Decimals and dates are
        objects (`decimal.Decimal`, `datetime.date`), timestamps
        ``datetime64[us, UTC]``.

        Raises
        ------
        ModuleNotFoundError
            If pandas is not installed (extra ``crescando[pandas]``).
        """
        from crescando.client.frames import frame

        return frame(self.names, self._columns)

    def to_arrow(self) -> Any:
        """Give a pyarrow Table.

        Raises
        ------
        TypeMismatchError
            If pyarrow is not installed (extra ``crescando[arrow]``).
        """
        from crescando.client.arrow import arrow_table

        return arrow_table(self.names, self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        head = Answer.of(self.position, self.names, [column.slice(0, ROWS_SHOWN) for column in self._columns])
        lines = [self.names, *(tuple(map(_shown, row)) for row in head.rows())]
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        table = "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        more = f"\n… {len(self) - ROWS_SHOWN} more" if len(self) > ROWS_SHOWN else ""
        upto = f" to {self.latest}" if self.latest != self.position else ""
        return f"{table}{more}\n[{len(self)} rows at position {self.position}{upto}]"


def _shown(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= WIDTH_SHOWN else text[: WIDTH_SHOWN - 1] + "…"


def _numpy(column: Column) -> NDArray[Any]:
    values: NDArray[Any]
    if column.type.is_textual:
        values = np.array(column.to_list(), object)
    elif column.type.is_decimal:
        values = np.array(python_values(column), object)
    elif column.type is DataType.DATE:
        values = column.values.astype("datetime64[D]")
    elif column.type is DataType.TIMESTAMP:
        values = column.values.astype("datetime64[us]")
    else:
        values = column.values.copy()
    if column.valid is None or column.valid.all():
        return values
    masked: NDArray[Any] = np.ma.MaskedArray(values, mask=~column.valid)
    return masked
