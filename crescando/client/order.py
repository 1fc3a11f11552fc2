"""ORDER BY and LIMIT over a complete answer.

Rules of the file: NULL is first ascending and last descending, NaN is above
+inf, -0.0 equals 0.0, strings go by code point. Ties go by the primary key, so
that the same rows always come in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crescando.client.columns import take
from crescando.engine.statement import Column
from crescando.schema import DataType


def ranks(column: Column) -> NDArray[np.int64]:
    """Give each value's place among the distinct ones: equal values alike, NULL -1."""
    if column.type is DataType.STRING:
        order = sorted(range(len(column.dictionary)), key=column.dictionary.__getitem__)
        table = np.empty(len(order) + 1, np.int64)
        table[order] = np.arange(len(order))
        table[-1] = -1
        inside = column.values if column.valid is None else np.where(column.valid, column.values, -1)
        coded: NDArray[np.int64] = table[inside]
        return coded
    placed = np.unique(column.values, return_inverse=True)[1].astype(np.int64)
    return placed if column.valid is None else np.where(column.valid, placed, -1)


def ordered(
    columns: Sequence[Column], keys: Sequence[tuple[Column, bool]], limit: int | None
) -> tuple[Column, ...]:
    """Give the first rows of columns in the order of keys.

    Parameters
    ----------
    columns : sequence of Column
    keys : sequence of (Column, bool)
        Most significant first; True for descending. None at all keeps the order.
    limit : int or None
        How many rows; None for all.
    """
    if not keys:
        return tuple(column.slice(0, limit if limit is not None else len(column)) for column in columns)
    signed = [-ranks(column) if is_descending else ranks(column) for column, is_descending in keys]
    rows = np.lexsort(signed[::-1])[:limit]
    return tuple(take(column, rows) for column in columns)
