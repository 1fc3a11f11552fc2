"""Images of ring ranges, and the pieces in which they travel; see `engine.base.Image`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from crescando.engine.base import Piece
from crescando.engine.constants import as_value
from crescando.engine.kv.loads import KvLoads
from crescando.engine.kv.table import KvTable, Row
from crescando.engine.validate import validate_piece
from crescando.engine.values import to_column
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import Scope

PIECE_BYTES = 1 << 20
"""About what a piece weighs."""

VALUE_BYTES = 80
"""About what one value of a row takes: a reference and a Python object."""

_Kept = tuple[list[Any], tuple[Any, ...], int]
"""Of a row: values, key and ring position, as they were."""


class KvImage:
    """The rows of some ring ranges as they were; see `engine.base.Image`.

    Parameters
    ----------
    tables : iterable of KvTable
    scope : Scope
    loads : KvLoads
    """

    def __init__(self, tables: Iterable[KvTable], scope: Scope, loads: KvLoads) -> None:
        records = loads.records()
        self._head = [] if records.is_empty else [Piece(0, 0, np.zeros(0, np.uint64), (), records=records)]
        self._staged = loads.pieces(scope)
        self._pieces: list[tuple[TableSchema, list[_Kept]]] = []
        self.n_rows = self.n_bytes = 0
        for table in tables:
            kept = [(row.values, row.key, row.position) for row in table.rows_in(scope)]
            self._pieces += ((table.schema, some) for some in _cut(kept))
            self.n_rows += len(kept)
            self.n_bytes += sum(map(_weight, kept))
        for _, _, hidden in self._staged:
            self.n_rows += len(hidden.rows)
            self.n_bytes += VALUE_BYTES * hidden.n_values
        self.n_pieces = len(self._head) + len(self._pieces) + len(self._staged)
        self._is_closed = False

    def piece(self, index: int) -> Piece:
        """Give some of the rows; see `engine.base.Image.piece`."""
        if not 0 <= index < self.n_pieces or self._is_closed:
            raise InvariantError(f"an open image of {self.n_pieces} pieces was asked for number {index}")
        if index < len(self._head):
            return self._head[index]
        index -= len(self._head)
        if index >= len(self._pieces):
            schema, load, hidden = self._staged[index - len(self._pieces)]
            places = list(hidden.rows)
            ring = np.array([at[2] for at in places], np.uint64)
            return Piece(schema.id, schema.version, ring, hidden.columns(schema, places), load)
        schema, kept = self._pieces[index]
        kinds = [column.type for column in schema.columns]
        rows: Sequence[Sequence[Any]] = [values for values, _, _ in kept]
        if not schema.primary_key:
            kinds += [DataType.INT64, DataType.INT64]
            rows = [(*values, *key) for values, key, _ in kept]
        columns = (
            to_column(as_value([row[place] for row in rows], kind)) for place, kind in enumerate(kinds)
        )
        positions = np.array([position for _, _, position in kept], np.uint64)
        return Piece(schema.id, schema.version, positions, tuple(columns))

    def close(self) -> None:
        """Let go of the rows; see `engine.base.Image.close`."""
        self._pieces, self._staged = [], []
        self._is_closed = True


def take_in(table: KvTable, piece: Piece) -> None:
    """Add the rows of a piece to a table.

    Raises
    ------
    InvariantError
        If it does not fit the schema, or has rows outside the table's arcs.
    """
    schema = table.schema
    validate_piece(piece, schema)
    lists = [column.to_list() for column in piece.columns]
    n_columns = len(schema.columns)
    key_places = [schema.column_names.index(name) for name in schema.primary_key]
    rows = []
    for values, position in zip(zip(*lists, strict=True), piece.position.tolist(), strict=True):
        key = tuple(values[place] for place in key_places) if key_places else values[n_columns:]
        rows.append(Row(list(values[:n_columns]), key, position))
    table.add(rows)


def _cut(rows: Sequence[_Kept]) -> Iterator[list[_Kept]]:
    """Give the rows in pieces."""
    piece: list[_Kept] = []
    n_bytes = 0
    for row in rows:
        piece.append(row)
        n_bytes += _weight(row)
        if n_bytes >= PIECE_BYTES:
            yield piece
            piece, n_bytes = [], 0
    if piece:
        yield piece


def _weight(row: _Kept) -> int:
    """Give about what a row takes."""
    return sum(VALUE_BYTES + (len(value) if isinstance(value, (str, bytes)) else 0) for value in row[0])
