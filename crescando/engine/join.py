"""Join a column with the constants of operations: an access path made ready for one batch.

Rules of the file: constants are turned into keys of the column once, exactly
(see `engine.keys`), and rows give the same keys; several columns are joined as
one (see `engine.composite`). Texts are found by their codes, or, where a range
holds many of them, by their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.composite import CompositeIndex
from crescando.engine.constants import Constants
from crescando.engine.dictionary import Pool
from crescando.engine.frame import Source
from crescando.engine.index import Index, IntervalIndex, Pairs, PointIndex, expand
from crescando.engine.keys import I64, KEY_MAX, KEY_MIN, Mask, float_keys, key_intervals
from crescando.engine.membership import list_keys
from crescando.engine.plan import Access, Composite
from crescando.engine.segment import Block
from crescando.engine.statement import Parameter
from crescando.engine.table import Table
from crescando.engine.texts import like_bounds
from crescando.engine.values import Value, both_valid
from crescando.schema import DataType

_ROWS_PER_KEY = 256
"""Where constants can be looked for one by one, they are if there are so many rows for each (measured)."""

_ROWS_PER_TEXT = 4
"""Intervals of texts are looked for by the codes in them, if there are so many rows for each (a guess)."""


class Bounds:
    """The intervals of keys that operations of one shape ask for, worked out once for each comparison.

    Parameters
    ----------
    table : Table
        Gives types and pools.
    constants : Constants
        Of the whole group.
    """

    def __init__(self, table: Table, constants: Constants) -> None:
        self.table = table
        self.constants = constants
        self._worked_out: dict[int, tuple[Access, int, tuple[I64, I64, I64]]] = {}

    def of(self, access: Access) -> tuple[I64, I64, I64]:
        """Give closed intervals, and the operation each belongs to; some may be empty."""
        pool = self.table.pools.get(access.column)
        # A text that an update has just made moves ranks and may be a constant.
        n_texts = 0 if pool is None else len(pool)
        known = self._worked_out.get(id(access))
        if known is None or known[1] != n_texts:
            found = bounds_of(access.comparisons, self.table.types[access.column], pool, self.constants)
            # The access with it, so that no other takes its identity.
            known = self._worked_out[id(access)] = (access, n_texts, found)
        return known[2]


class Join:
    """Some operations' constants, indexed by one access path.

    Parameters
    ----------
    access : Access or Composite
    bounds : Bounds
        Of the whole group.
    operations : ndarray of int64
        Which operations of the group to index.
    """

    def __init__(self, access: Access | Composite, bounds: Bounds, operations: I64) -> None:
        self._parts = access.parts
        self._table = bounds.table
        self._bounds = bounds
        self._wanted = np.zeros(bounds.constants.n, np.bool_)
        self._wanted[operations] = True
        self._single: ColumnIndex | None = None
        self._composite: CompositeIndex | None = None
        self._build()

    def _build(self) -> None:
        self._n_texts = self._count_texts()
        if len(self._parts) > 1:
            self._compose()
            return
        low, high, owners = self._bounds.of(self._parts[0])
        kept = self._wanted[owners].nonzero()[0]
        self._single = index_column(self._parts[0], self._table, low[kept], high[kept], owners[kept])

    def _count_texts(self) -> list[int]:
        pools = (self._table.pools.get(part.column) for part in self._parts)
        return [len(pool) for pool in pools if pool is not None]

    def _compose(self) -> None:
        """Index the keys of all parts as one."""
        possible = self._wanted.copy()
        sides = []
        for part in self._parts:
            low, high, _ = self._bounds.of(part)
            possible &= low <= high
            sides.append((low, high))
        has_range = not self._parts[-1].is_point
        self._composite = CompositeIndex(sides, possible.nonzero()[0], has_range)

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
        if self._single is not None and rows is None:
            yield from self._single.pairs(source, self._parts[0].column)
            return
        columns = [source.column(part.column) for part in self._parts]
        if rows is not None:
            columns = [column.take(rows) for column in columns]
        valid: Mask | None = None
        for column in columns:
            valid = both_valid(valid, column.valid)
        for found, operations in _known(self._join(columns), valid):
            yield (found if rows is None else rows[found]), operations

    def _join(self, columns: list[Value]) -> Iterator[Pairs]:
        if self._single is not None:
            return self._single.probe(columns[0])
        assert self._composite is not None
        keys = [access_keys(part, column) for part, column in zip(self._parts, columns, strict=True)]
        return self._composite.probe(keys)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """Constants of one column, and how its rows are looked up among them.

    Attributes
    ----------
    index : Index
    is_ranked : bool
        Whether its keys are ranks of texts; otherwise they are what `value_keys` gives.
    """

    index: Index
    is_ranked: bool

    def pairs(self, source: Source, column_id: int) -> Iterator[Pairs]:
        """Give the pairs of the rows of a source for which the comparisons hold, in pieces."""
        index = self.index
        if (
            isinstance(index, PointIndex)
            and isinstance(source, Block)
            and source.counts_up(column_id)
            and _ROWS_PER_KEY * index.n_keys <= source.n_rows
        ):
            # Nobody need look at each row.
            keys, places = index.keys()
            rows, found = source.find(column_id, keys)
            yield from index.pairs(rows, places[found])
            return
        column = source.column(column_id)
        yield from _known(self.probe(column), column.valid)

    def probe(self, column: Value) -> Iterator[Pairs]:
        """Give the pairs whose key satisfies the constants, in pieces; rows that are NULL are arbitrary."""
        return self.index.probe(rank_keys(column) if self.is_ranked else value_keys(column))


def _known(pairs: Iterator[Pairs], valid: Mask | None) -> Iterator[Pairs]:
    """Give the pairs of rows that are not NULL."""
    for rows, operations in pairs:
        if valid is not None:
            known = valid[rows].nonzero()[0]
            rows, operations = rows[known], operations[known]
        yield rows, operations


def index_column(access: Access, table: Table, low: I64, high: I64, operations: I64) -> ColumnIndex:
    """Index intervals of a column, as `Bounds` gives them; those that are empty are left out."""
    pool = None if access.is_point else table.pools.get(access.column)
    if pool is not None:
        low, high = np.maximum(low, 0), np.minimum(high, len(pool) - 1)
    kept = (low <= high).nonzero()[0]
    low, high, operations = low[kept], high[kept], operations[kept]
    if access.is_point:
        return ColumnIndex(PointIndex(low, operations), False)
    if pool is None:
        return ColumnIndex(IntervalIndex(low, high, operations), False)
    counts = high - low + 1
    if _ROWS_PER_TEXT * int(counts.sum()) > table.n_rows:
        pool.ranks()  # Rather once here than in each of several threads.
        return ColumnIndex(IntervalIndex(low, high, operations), True)
    # Few texts are wanted: their codes are what is looked for, and no row needs its rank.
    codes = pool.order()[expand(low, counts)].astype(np.int64)
    return ColumnIndex(PointIndex(codes, np.repeat(operations, counts)), False)


def access_keys(access: Access, column: Value) -> NDArray[Any]:
    """Give a column's keys as `Bounds` has them; rows that are NULL are arbitrary."""
    if column.type.is_textual and not access.is_point:
        return rank_keys(column)
    return value_keys(column)


def rank_keys(value: Value) -> NDArray[Any]:
    """Give the ranks of texts."""
    return np.ascontiguousarray(value.strings().ranks()[value.data])


def value_keys(value: Value) -> NDArray[Any]:
    """Give the order keys of numbers, or the codes of texts, as contiguous integers of any width.

    Compiled kernels take no array that may not be written, as stretched ones are.
    """
    data = value.data
    if data.dtype.kind == "f":
        data = float_keys(data)
    elif data.dtype.kind == "b":
        data = np.ascontiguousarray(data).view(np.uint8)
    return np.require(data, requirements=("C", "W"))


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
    is_point = op == "="
    low, high = _bounds_of(op, parameter, is_point, kind, pool, constants)
    for op, parameter in comparisons[1:]:
        one_low, one_high = _bounds_of(op, parameter, is_point, kind, pool, constants)
        low, high = np.maximum(low, one_low), np.minimum(high, one_high)
    return low, high, np.arange(constants.n)


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
