"""Number distinct rows, and choose one row per group: the arithmetic of grouping.

Rules of the file: everything is vectorised, and exact: rows get one number only
where all their values are equal (NULL to NULL, NaN to NaN, 0.0 to -0.0), never
because hashes collide. Numbers ascend with the values' words, so that equal
rows give equal numbers in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.keys import I64, KEY_MAX, KEY_MIN, order_keys
from crescando.engine.values import Value

_SPAN_MAX = 1 << 62


def words(value: Value) -> list[I64]:
    """Give integers that are equal exactly where values are; two columns where there may be NULL."""
    data = value.data.astype(np.int64) if value.pool is not None else order_keys(value.data)
    if value.valid is None:
        return [data]
    return [value.valid.astype(np.int64), np.where(value.valid, data, np.int64(0))]


def factorise(columns: Sequence[I64]) -> tuple[I64, I64]:
    """Number the distinct rows of some columns.

    Parameters
    ----------
    columns : sequence of ndarray of int64, shape (n,)
        At least one.

    Returns
    -------
    first : ndarray of int64, shape (n_distinct,)
        A row of each distinct combination: the first one.
    number : ndarray of int64, shape (n,)
        Each row's combination.
    """
    if len(columns[0]) == 0:
        none = np.zeros(0, np.int64)
        return none, none
    number, span = _narrow(columns[0])
    for column in columns[1:]:
        codes, width = _narrow(column)
        if span * width > _SPAN_MAX:
            first, number = _densify(number, span)
            span = len(first)
        if span * width > _SPAN_MAX:
            first, codes = _densify(codes, width)
            width = len(first)
        number = number * width + codes
        span *= width
    return _densify(number, span)


def _narrow(column: I64) -> tuple[I64, int]:
    """Shift a column to begin at 0; gives it and its span, which may be too wide only if dense."""
    low, high = int(column.min()), int(column.max())
    if high - low >= _SPAN_MAX:
        distinct, codes = np.unique(column, return_inverse=True)
        return codes, len(distinct)
    return column - low, high - low + 1


def _densify(number: I64, span: int) -> tuple[I64, I64]:
    n = len(number)
    if span > 16 * n + 1024:
        _, first, dense = np.unique(number, return_index=True, return_inverse=True)
        return first, dense
    seen = np.zeros(span, np.bool_)
    seen[number] = True
    dense = (np.cumsum(seen) - 1)[number]
    first = np.empty(int(np.count_nonzero(seen)), np.int64)
    # Of several rows with one number the last assignment stays: that of the first row.
    first[dense[::-1]] = np.arange(n - 1, -1, -1)
    return first, dense


def best_rows(groups: I64, n_groups: int, keys: I64, *, greatest: bool) -> I64:
    """Give one row of each group that has any: that of the least or the greatest key.

    Parameters
    ----------
    groups : ndarray of int64, shape (n,)
        From 0 to below `n_groups`.
    n_groups : int
    keys : ndarray of int64, shape (n,)
    greatest : bool
    """
    best = np.full(n_groups, KEY_MIN if greatest else KEY_MAX, np.int64)
    (np.maximum if greatest else np.minimum).at(best, groups, keys)
    at = (keys == best[groups]).nonzero()[0]
    row = np.full(n_groups, -1)
    row[groups[at][::-1]] = at[::-1]
    found: I64 = row[row >= 0]
    return found
