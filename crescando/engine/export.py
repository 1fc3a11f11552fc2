"""Rows of a ring range as columns, at the speed of memory.

Rules of the file: what lies in segments is gathered once, column by column,
into arrays of its final size; a dictionary holds the texts that the rows use,
and is the table's own list where they use all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import PHYSICAL, Column
from crescando.engine.table import Segment, Table
from crescando.schema import DataType
from crescando.types import FULL_RING, KeyRange

Piece = tuple[Segment, I64 | slice, int]
"""Rows of a segment, and how many they are."""


def export_columns(table: Table, key_range: KeyRange) -> tuple[Column, ...]:
    """Give all columns, in the schema's order, of the rows in a ring range."""
    pieces = [_inside(segment, key_range) for arc in table.segments for segment in arc]
    pieces = [piece for piece in pieces if piece[2]]
    return tuple(_column(table, column.id, pieces) for column in table.schema.columns)


def _inside(segment: Segment, key_range: KeyRange) -> Piece:
    if key_range == FULL_RING and segment.n_dead == 0:
        return segment, slice(0, segment.n_rows), segment.n_rows
    positions = segment.position[: segment.n_rows]
    inside = (positions >= np.uint64(key_range.low)) & (positions <= np.uint64(key_range.high))
    if segment.n_dead:
        inside &= segment.live_rows()
    rows = inside.nonzero()[0]
    return segment, rows, len(rows)


def _column(table: Table, column_id: int, pieces: list[Piece]) -> Column:
    kind = table.types[column_id]
    n_rows = sum(n for _, _, n in pieces)
    values: NDArray[Any] = np.empty(n_rows, PHYSICAL[kind])
    valid: Mask | None = None
    start = 0
    for segment, rows, n in pieces:
        stop = start + n
        data = segment.data[column_id]
        if isinstance(rows, slice) or data.dtype != values.dtype:
            values[start:stop] = data[rows]
        else:
            np.take(data, rows, out=values[start:stop], mode="clip")
        mask = segment.valid.get(column_id)
        if mask is not None:
            if valid is None:
                valid = np.ones(n_rows, np.bool_)
            valid[start:stop] = mask[rows]
        start = stop
    if valid is not None and valid.all():
        valid = None
    if valid is not None:
        values[~valid] = 0
    pool = table.pools.get(column_id)
    return Column(kind, values, valid) if pool is None else _texts(values, valid, pool)


def _texts(values: NDArray[Any], valid: Mask | None, pool: Pool) -> Column:
    kind = DataType.BYTES if pool.binary else DataType.STRING
    texts = pool.texts
    seen = np.zeros(len(texts), np.bool_)
    wide = values.astype(np.intp)
    seen[wide] = True
    used = seen.nonzero()[0]
    if len(used) == len(texts):
        return Column(kind, values, valid, texts)
    index = np.empty(len(texts), np.int32)
    index[used] = np.arange(len(used), dtype=np.int32)
    return Column(kind, index.take(wide), valid, texts.take(used))
