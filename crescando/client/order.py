"""ORDER BY, OFFSET and LIMIT over a complete answer.

Rules of the file: NULL is first ascending and last descending, NaN is above
+inf, -0.0 equals 0.0, strings go by code point: the engine's own order. Ties go
by what the caller appends to the keys, so that the same rows always come in the
same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.client.columns import take
from crescando.engine.rowset import sort_keys
from crescando.engine.statement import Column
from crescando.engine.values import from_column


def ordered(
    columns: Sequence[Column], keys: Sequence[tuple[Column, bool]], limit: int | None, offset: int = 0
) -> tuple[Column, ...]:
    """Give some of the first rows of columns in the order of keys.

    Parameters
    ----------
    columns : sequence of Column
    keys : sequence of (Column, bool)
        Most significant first; True for descending. None at all keeps the order.
    limit : int or None
        How many rows; None for all.
    offset : int
        How many rows to leave out before.
    """
    stop = None if limit is None else offset + limit
    if not keys:
        return tuple(column.slice(offset, len(column) if stop is None else stop) for column in columns)
    words = [
        word
        for column, is_descending in keys
        for word in sort_keys(from_column(column), is_descending=is_descending)
    ]
    rows = np.lexsort(words[::-1])[offset:stop]
    return tuple(take(column, rows) for column in columns)
