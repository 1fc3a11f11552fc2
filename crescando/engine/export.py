"""Rows of a ring range as columns, at the speed of memory.

Rules of the file: what lies in segments is copied once, column by column, into
arrays of its final size, in runs of neighbouring rows where there are such: rows that
were loaded together lie together. A dictionary holds the texts that the rows use;
a list that is small beside the rows is left as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import PHYSICAL, Column
from crescando.engine.table import Segment, Table
from crescando.schema import DataType
from crescando.types import FULL_RING, KeyRange

RUN_ROWS = 32
"""Runs of so many rows, on average, are copied as what they are."""


class Piece(NamedTuple):
    """Rows of a segment, as a list of them or as runs."""

    segment: Segment
    n_rows: int
    rows: I64
    runs: list[slice]

    def gather(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Copy the rows of one of the segment's arrays."""
        if not self.runs:
            target[:] = source[self.rows]
            return
        start = 0
        for run in self.runs:
            stop = start + run.stop - run.start
            target[start:stop] = source[run]
            start = stop


_NO_ROWS: I64 = np.zeros(0, np.int64)


def export_columns(table: Table, key_range: KeyRange) -> tuple[Column, ...]:
    """Give all columns, in the schema's order, of the rows in a ring range."""
    pieces = [_inside(segment, key_range) for arc in table.segments for segment in arc]
    pieces = [piece for piece in pieces if piece.n_rows]
    return tuple(_column(table, column.id, pieces) for column in table.schema.columns)


def _inside(segment: Segment, key_range: KeyRange) -> Piece:
    n_rows = segment.n_rows
    if key_range == FULL_RING and segment.n_dead == 0:
        return Piece(segment, n_rows, _NO_ROWS, [slice(0, n_rows)])
    positions = segment.position[:n_rows]
    inside = (positions >= np.uint64(key_range.low)) & (positions <= np.uint64(key_range.high))
    if segment.n_dead:
        inside &= segment.live_rows()
    count = int(np.count_nonzero(inside))
    borders = (np.diff(inside, prepend=False, append=False)).nonzero()[0]
    if len(borders) * RUN_ROWS > 2 * count:
        return Piece(segment, count, inside.nonzero()[0], [])
    starts, stops = borders[::2].tolist(), borders[1::2].tolist()
    return Piece(segment, count, _NO_ROWS, list(map(slice, starts, stops)))


def _column(table: Table, column_id: int, pieces: list[Piece]) -> Column:
    kind = table.types[column_id]
    n_rows = sum(piece.n_rows for piece in pieces)
    values: NDArray[Any] = np.empty(n_rows, PHYSICAL[kind])
    valid: Mask | None = None
    start = 0
    for piece in pieces:
        stop = start + piece.n_rows
        piece.gather(piece.segment.data[column_id], values[start:stop])
        mask = piece.segment.valid.get(column_id)
        if mask is not None:
            if valid is None:
                valid = np.ones(n_rows, np.bool_)
            piece.gather(mask, valid[start:stop])
        start = stop
    if valid is not None and valid.all():
        valid = None
    if valid is not None:
        values[~valid] = 0
    pool = table.pools.get(column_id)
    return Column(kind, values, valid) if pool is None else _texts(values, valid, pool)


def _texts(codes: NDArray[np.int32], valid: Mask | None, pool: Pool) -> Column:
    kind = DataType.BYTES if pool.binary else DataType.STRING
    texts = pool.texts
    if 4 * len(texts) <= len(codes) and len(texts.heap) <= 2 * len(codes):
        return Column(kind, codes, valid, texts)
    used = kernels.active().texts.renumber(codes, len(texts))
    return Column(kind, codes, valid, texts if len(used) == len(texts) else texts.take(used))
