"""Join a column with the constants of operations: an access path made ready for one batch.

Rules of the file: constants are turned into keys of the column once, exactly
(see `engine.keys`), and rows give the same keys. Several columns are joined as
one by mixing their keys into a hash; that may bring false candidates and never
loses one, which is why a composite path leaves its whole predicate to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.constants import Constants
from crescando.engine.dictionary import Pool
from crescando.engine.frame import Source
from crescando.engine.index import IntervalIndex, Pairs, PointIndex, expand
from crescando.engine.kernels import plain
from crescando.engine.keys import I64, KEY_MAX, KEY_MIN, Mask, float_keys, key_intervals
from crescando.engine.membership import list_keys
from crescando.engine.plan import Access, Composite
from crescando.engine.statement import Parameter, Term
from crescando.engine.table import Table
from crescando.engine.texts import like_bounds
from crescando.engine.values import Value, both_valid
from crescando.schema import DataType

_BUCKETS_PER_OPERATION = 4
"""Buckets are made wide enough that an operation's range meets so many at most, on average."""

U64 = NDArray[np.uint64]


class Join:
    """Some operations' constants, indexed by one access path.

    Parameters
    ----------
    access : Access or Composite
    table : Table
        Gives types and pools.
    constants : Constants
        Of the whole group.
    operations : ndarray of int64
        Which operations of the group to index.
    """

    def __init__(
        self, access: Access | Composite, table: Table, constants: Constants, operations: I64
    ) -> None:
        self._parts = access.parts
        self._table = table
        self._constants = constants
        self._wanted = np.zeros(constants.n, np.bool_)
        self._wanted[operations] = True
        self.rest: tuple[Term, ...] = access.rest
        self._bounds: list[tuple[I64, I64]] = []
        self._build()

    def _build(self) -> None:
        self._n_texts = self._count_texts()
        if len(self._parts) > 1:
            self._compose()
            return
        low, high, owners = bounds(self._parts[0], self._table, self._constants)
        kept = (self._wanted[owners] & (low <= high)).nonzero()[0]
        low, high, owners = low[kept], high[kept], owners[kept]
        point = self._parts[0].is_point
        self._index = PointIndex(low, owners) if point else IntervalIndex(low, high, owners)

    def _count_texts(self) -> list[int]:
        pools = (self._table.pools.get(part.column) for part in self._parts)
        return [len(pool) for pool in pools if pool is not None]

    def _compose(self) -> None:
        """Index the mixed keys of all parts; a range is posted to the buckets it meets."""
        n = self._constants.n
        mixed = np.zeros(n, np.uint64)
        possible = self._wanted.copy()
        owners = np.arange(n)
        self._shift = 0
        self._bounds = []
        for part in self._parts:
            low, high, _ = bounds(part, self._table, self._constants)
            self._bounds.append((low, high))
            possible &= low <= high
            if part.is_point:
                plain.fold(mixed, low, 0)
                continue
            owners = possible.nonzero()[0]
            self._shift = _bucket_shift(low[owners], high[owners])
            first, last = low[owners] >> np.int64(self._shift), high[owners] >> np.int64(self._shift)
            counts = last - first + 1
            mixed, owners = np.repeat(mixed[owners], counts), np.repeat(owners, counts)
            plain.fold(mixed, expand(first, counts), 0)
        kept = possible[owners].nonzero()[0]
        self._index = PointIndex(mixed[kept].view(np.int64), owners[kept])

    def probe(self, source: Source, rows: I64 | None) -> Iterator[Pairs]:
        """Give the pairs of the rows of a source for which the path's comparisons hold, in pieces.

        Parameters
        ----------
        source : Source
        rows : ndarray of int64 or None
            The rows to look at; None for all.
        """
        if self._n_texts != self._count_texts():
            # A text that an update has just made moves ranks and may be a constant.
            self._build()
        keys, valid = self._keys(source, rows)
        pairs = self._index.probe(keys[0]) if len(keys) == 1 else self._probe_mixed(keys)
        for found, operations in pairs:
            if valid is not None:
                known = valid[found].nonzero()[0]
                found, operations = found[known], operations[known]
            yield (found if rows is None else rows[found]), operations

    def _keys(self, source: Source, rows: I64 | None) -> tuple[list[NDArray[Any]], Mask | None]:
        """Give the keys of some rows, part by part, and which are NULL in no part."""
        valid: Mask | None = None
        keys = []
        for part in self._parts:
            column = source.column(part.column)
            if rows is not None:
                column = column.take(rows)
            keys.append(access_keys(part, column))
            valid = both_valid(valid, column.valid)
        return keys, valid

    def _probe_mixed(self, keys: list[NDArray[Any]]) -> Iterator[Pairs]:
        """Join by the mix of all keys, and drop what only looks alike."""
        active = kernels.active()
        mixed = np.zeros(len(keys[0]), np.uint64)
        for part, some in zip(self._parts, keys, strict=True):
            active.fold(mixed, some, 0 if part.is_point else self._shift)
        for found, operations in self._index.probe(mixed.view(np.int64)):
            inside = np.ones(len(found), np.bool_)
            for some, (low, high) in zip(keys, self._bounds, strict=True):
                inside &= active.within(some, found, operations, low, high)
            kept = inside.nonzero()[0]
            yield found[kept], operations[kept]


def _bucket_shift(low: I64, high: I64) -> int:
    """Choose how many bits of a range's keys a bucket leaves out."""
    if len(low) == 0:
        return 0
    widths = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64) + 1.0
    shift = max(int(np.median(widths)).bit_length() - 1, 0)
    while shift < 63 and float(np.ldexp(widths, -shift).sum()) > (_BUCKETS_PER_OPERATION - 1) * len(low):
        shift += 1
    return shift


def access_keys(access: Access, column: Value) -> NDArray[Any]:
    """Give a column's keys as the index of `access` expects them; NULL rows are arbitrary."""
    if column.type.is_textual and not access.is_point:
        return np.ascontiguousarray(column.strings().ranks()[column.data])
    return value_keys(column)


def value_keys(value: Value) -> NDArray[Any]:
    """Give the order keys of numbers, or the codes of texts, as contiguous integers of any width."""
    data = value.data
    if data.dtype.kind == "f":
        data = float_keys(data)
    elif data.dtype.kind == "b":
        data = np.ascontiguousarray(data).view(np.uint8)
    return np.ascontiguousarray(data)


def bounds(access: Access, table: Table, constants: Constants) -> tuple[I64, I64, I64]:
    """Give closed intervals of keys, and the operation each belongs to; some may be empty."""
    return bounds_of(
        access.comparisons, table.types[access.column], table.pools.get(access.column), constants
    )


def bounds_of(
    comparisons: tuple[tuple[str, Parameter], ...], kind: DataType, pool: Pool | None, constants: Constants
) -> tuple[I64, I64, I64]:
    """Give the intervals of comparisons with values of a type, of texts with codes of a pool."""
    op, parameter = comparisons[0]
    if op == "in":
        lists = constants.many(parameter)
        keys, owners = list_keys(Value(kind, np.zeros(0, np.int64), None, None, pool), lists)
        order = np.lexsort((keys, owners))
        keys, owners = keys[order], owners[order]
        fresh = np.ones(len(keys), np.bool_)
        fresh[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
        return keys[fresh], keys[fresh], owners[fresh]
    n = constants.n
    low, high = np.full(n, KEY_MIN, np.int64), np.full(n, KEY_MAX, np.int64)
    is_point = op == "="
    for op, parameter in comparisons:
        one_low, one_high = _bounds_of(op, parameter, is_point, kind, pool, constants)
        low, high = np.maximum(low, one_low), np.minimum(high, one_high)
    return low, high, np.arange(n)


def _bounds_of(
    op: str, parameter: Parameter, is_point: bool, kind: DataType, pool: Pool | None, constants: Constants
) -> tuple[I64, I64]:
    value = constants.scalar(parameter)
    if pool is None:
        data = value.data if value.valid is None else np.where(value.valid, value.data, 0)
        low, high = key_intervals(kind.is_float, op, data, kind.scale, value.type.scale)
    elif is_point:
        low, high = _code_bounds(op, value, pool)
    else:
        low, high = _rank_bounds(op, value, pool)
    if value.valid is not None:
        low = np.where(value.valid, low, 1)
        high = np.where(value.valid, high, 0)
    return low, high


def _rank_bounds(op: str, value: Value, pool: Pool) -> tuple[I64, I64]:
    """Give intervals of ranks; place 2r + 1 is the text of rank r, 2r the gap below it."""
    if op == "like":
        low, high = like_bounds(pool, value.strings())
        return low[value.data], high[value.data]
    place = value.strings().places_in(pool)[value.data]
    low = np.full(len(place), KEY_MIN, np.int64)
    high = np.full(len(place), KEY_MAX, np.int64)
    if op in ("<", "<="):
        high = place // 2 - 1 + ((place % 2) if op == "<=" else 0)
    elif op in (">", ">="):
        low = place // 2 + ((place % 2) if op == ">" else 0)
    return low, high


def _code_bounds(op: str, value: Value, pool: Pool) -> tuple[I64, I64]:
    """Give the code that must be equal; other comparisons of a point cannot be codes."""
    codes = value.strings().codes_in(pool)[value.data]
    return np.where(codes >= 0, codes, 1), np.where(codes >= 0, codes, 0)
