"""Predicate indices: short-lived indices over the *parameters* of a batch (RB13 §3.1).

Rules of the file: data is never indexed, only the constants of pending
operations are, once per batch; probing a block's keys gives candidate pairs
(row, operation). Equality and IN are points, joined through a table of slots
or a hashed bitmap; comparisons are closed intervals, joined by sorting the
block's candidate keys so that each interval is one run. Probing yields pieces
of bounded size, whatever the selectivity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from crescando.engine.constants import Constants
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, KEY_MAX, KEY_MIN, Mask, key_intervals
from crescando.engine.membership import list_keys
from crescando.engine.plan import Access
from crescando.engine.statement import Parameter
from crescando.engine.values import Value
from crescando.schema import DataType

PIECE_PAIRS = 1 << 18
"""Candidate pairs per piece: a few MB of temporaries, however broad a predicate is."""

_FEW = 4
"""So few constants are compared one by one, faster than any join (measured)."""

_SLOTS_PER_KEY = 64
"""Table sizes per constant: rare false survivors are worth more than a small table (measured)."""

_SLOTS_MAX = 1 << 21

_HASH = np.uint64(0x9E37_79B9_7F4A_7C15)

Pairs = tuple[I64, I64]
"""Rows (of the probed keys) and operations, as parallel arrays."""


class Index(Protocol):
    """Joins keys of rows with the constants of operations."""

    def probe(self, keys: I64) -> Iterator[Pairs]:
        """Give every pair whose key satisfies the operation's constants, in pieces."""
        ...


def expand(starts: I64, counts: I64) -> I64:
    """Give ``start, start + 1, …`` for each run, end to end."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    runs: I64 = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return runs


def cut(counts: I64) -> Iterator[tuple[int, int]]:
    """Cut a list of runs into slices of about `PIECE_PAIRS` pairs each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        if total - before <= PIECE_PAIRS:
            stop = len(counts)
        else:
            stop = max(int(np.searchsorted(ends, before + PIECE_PAIRS, side="right")), start + 1)
        yield start, stop
        start = stop


class PointIndex:
    """Constants that a key must equal.

    Parameters
    ----------
    keys, operations : ndarray of int64, shape (n,)
        One entry per constant; an operation may have many, none twice.
    """

    def __init__(self, keys: I64, operations: I64) -> None:
        order = np.argsort(keys, kind="stable")
        self._operations = operations[order]
        ordered = keys[order]
        first = np.ones(len(ordered), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        starts = first.nonzero()[0]
        self._keys = ordered[starts]
        self._starts = starts
        self._counts = np.diff(np.append(starts, len(ordered)))
        self._slots: I64 | None = None
        self._filter: Mask | None = None
        if len(self._keys) <= _FEW:
            return
        spread = int(self._keys[-1]) - int(self._keys[0]) + 1
        if spread <= min(max(_SLOTS_PER_KEY * len(self._keys), 1 << 16), _SLOTS_MAX):
            self._slots = np.full(spread + 1, -1, np.int32)
            self._slots[self._keys - self._keys[0]] = np.arange(len(self._keys))
        else:
            bits = max(int(_SLOTS_PER_KEY * len(self._keys)).bit_length(), 8)
            self._shift = np.uint64(64 - min(bits, 21))
            self._filter = np.zeros(1 << (64 - int(self._shift)), np.bool_)
            self._filter[self._hash(self._keys)] = True

    def _hash(self, keys: I64) -> I64:
        hashed: I64 = ((keys.view(np.uint64) * _HASH) >> self._shift).view(np.int64)
        return hashed

    def probe(self, keys: I64) -> Iterator[Pairs]:
        """Give the pairs whose key equals a constant."""
        rows, places = self._find(keys)
        if len(rows) == 0:
            return
        counts = self._counts[places]
        for start, stop in cut(counts):
            piece = counts[start:stop]
            run = expand(self._starts[places[start:stop]], piece)
            yield np.repeat(rows[start:stop], piece), self._operations[run]

    def _find(self, keys: I64) -> tuple[I64, I64]:
        """Give the rows whose key is a constant, and the constant's place."""
        if self._slots is not None:
            offset = (keys - self._keys[0]).view(np.uint64)
            # Keys outside the table wrap to large numbers and meet the last slot, which is free.
            found = self._slots[np.minimum(offset, np.uint64(len(self._slots) - 1)).view(np.int64)]
            rows = (found >= 0).nonzero()[0]
            return rows, found[rows].astype(np.int64)
        if self._filter is None:
            hits = [(keys == key).nonzero()[0] for key in self._keys]
            places = np.repeat(np.arange(len(hits)), [len(hit) for hit in hits])
            return np.concatenate([np.zeros(0, np.int64), *hits]), places
        rows = self._filter[self._hash(keys)].nonzero()[0]
        found_keys = keys[rows]
        places = np.searchsorted(self._keys, found_keys)
        places[places == len(self._keys)] = 0
        exact = self._keys[places] == found_keys
        return rows[exact], places[exact]


class IntervalIndex:
    """Closed intervals in which a key must lie, none of them empty.

    Parameters
    ----------
    low, high, operations : ndarray of int64, shape (n,)
    """

    def __init__(self, low: I64, high: I64, operations: I64) -> None:
        self._low = low
        self._high = high
        self._operations = operations
        order = np.argsort(low, kind="stable")
        reach = np.maximum.accumulate(high[order]) if len(low) else high
        # Intervals merge while each begins at or before the reach of those before it.
        begins = np.ones(len(low), np.bool_)
        begins[1:] = low[order][1:] > reach[:-1]
        starts = begins.nonzero()[0]
        self._union_low = low[order][starts]
        self._union_high = reach[np.append(starts[1:], len(low)) - 1] if len(low) else high

    def probe(self, keys: I64) -> Iterator[Pairs]:
        """Give the pairs whose key lies in an interval."""
        if len(self._low) <= _FEW:
            for low, high, operation in zip(self._low, self._high, self._operations, strict=True):
                rows = ((keys >= low) & (keys <= high)).nonzero()[0]
                if len(rows):
                    yield rows, np.full(len(rows), operation)
            return
        rows = self._covered(keys)
        if len(rows) == 0:
            return
        order = np.argsort(keys[rows], kind="stable")
        rows = rows[order]
        ordered = keys[rows]
        starts = np.searchsorted(ordered, self._low, side="left")
        counts = np.searchsorted(ordered, self._high, side="right") - starts
        hit = (counts > 0).nonzero()[0]
        starts, counts, operations = starts[hit], counts[hit], self._operations[hit]
        for start, stop in cut(counts):
            piece = counts[start:stop]
            yield rows[expand(starts[start:stop], piece)], np.repeat(operations[start:stop], piece)

    def _covered(self, keys: I64) -> I64:
        """Give the rows whose key lies in some interval."""
        if len(self._union_low) == 1:
            inside: Mask = (keys >= self._union_low[0]) & (keys <= self._union_high[0])
            return inside.nonzero()[0]
        place = np.searchsorted(self._union_low, keys, side="right") - 1
        inside = (place >= 0) & (keys <= self._union_high[place])
        return inside.nonzero()[0]


def access_keys(access: Access, column: Value) -> I64:
    """Give a column's keys as the index of `access` expects them; NULL rows are arbitrary."""
    if column.type is DataType.STRING and access.is_point:
        codes: I64 = column.data.astype(np.int64, copy=False)
        return codes
    return column.keys()


def build_index(
    access: Access, kind: DataType, pool: Pool | None, constants: Constants, operations: I64
) -> Index:
    """Index some operations' constants.

    Parameters
    ----------
    access : Access
    kind : DataType
        The column's type.
    pool : Pool or None
        The column's texts, if it is a string column.
    constants : Constants
        Of the whole group.
    operations : ndarray of int64
        Which operations of the group to index.
    """
    low, high, owners = bounds(access, kind, pool, constants)
    wanted = np.zeros(len(constants.rows), np.bool_)
    wanted[operations] = True
    keep = wanted[owners] & (low <= high)
    if access.is_point:
        return PointIndex(low[keep], owners[keep])
    return IntervalIndex(low[keep], high[keep], owners[keep])


def bounds(access: Access, kind: DataType, pool: Pool | None, constants: Constants) -> tuple[I64, I64, I64]:
    """Give closed intervals of keys, and the operation each belongs to; some may be empty."""
    op, parameter = access.comparisons[0]
    if op == "in":
        lists = constants.many(parameter)
        keys, owners = list_keys(Value(kind, np.zeros(0, np.int64), None, None, pool), lists)
        order = np.lexsort((keys, owners))
        keys, owners = keys[order], owners[order]
        fresh = np.ones(len(keys), np.bool_)
        fresh[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
        return keys[fresh], keys[fresh], owners[fresh]
    n = len(constants.rows)
    low, high = np.full(n, KEY_MIN, np.int64), np.full(n, KEY_MAX, np.int64)
    for op, parameter in access.comparisons:
        one_low, one_high = _bounds_of(op, parameter, access, kind, pool, constants)
        low, high = np.maximum(low, one_low), np.minimum(high, one_high)
    return low, high, np.arange(n)


def _bounds_of(
    op: str, parameter: Parameter, access: Access, kind: DataType, pool: Pool | None, constants: Constants
) -> tuple[I64, I64]:
    value = constants.scalar(parameter)
    if pool is None:
        data = value.data
        low, high = key_intervals(
            kind.is_float, op, data if value.valid is None else np.where(value.valid, data, 0)
        )
    elif access.is_point:
        low, high = _code_bounds(op, value, pool)
    else:
        low, high = _rank_bounds(op, value, pool)
    if value.valid is not None:
        low = np.where(value.valid, low, 1)
        high = np.where(value.valid, high, 0)
    return low, high


def _rank_bounds(op: str, value: Value, pool: Pool) -> tuple[I64, I64]:
    """Give intervals of ranks; place 2r + 1 is the text of rank r, 2r the gap below it."""
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
