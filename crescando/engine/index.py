"""Predicate indices: short-lived indices over the *parameters* of a batch (RB13 §3.1).

Rules of the file: data is never indexed, only the constants of pending
operations are, once per batch; probing a block's keys gives candidate pairs
(row, operation), in pieces of bounded size whatever the selectivity. Constants
lie behind a bitmap that fits the second-level cache, so that a row which no
operation wants costs one look into it (see `engine.kernels`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.kernels.plain import FEW, hash_keys
from crescando.engine.keys import I64, KEY_MAX

PIECE_PAIRS = 1 << 18
"""Candidate pairs per piece: a few MB of temporaries, however broad a predicate is."""

_BITS_PER_CONSTANT = 64
"""Rare false survivors are worth more than a small bitmap (measured)."""

_BITS_SMALL = 1 << 17
"""A bitmap of points may have four times as many while it is not larger than this: half of the first-level
cache holds it, beside the column that streams through, and what survives wrongly costs as much as the looks
themselves (measured)."""

_SPREAD_PER_CONSTANT = 128
"""Constants that lie closer than this are found by their offsets: no wrong survivors, but a larger bitmap."""

_BITS_MAX = 1 << 22
"""The bitmap's size where constants are many: half a MB."""

_SPREAD_MAX = 1 << 21
"""So many bits, a quarter of a MB, leave room in the second-level cache."""

_COVER_MAX, _COVER_MIN = 8, 1 << 16
"""Intervals are cut into elementary ones while each constant has so many, on average; see `IntervalIndex`."""

# Where the operations of a constant that comes alone begin, and how many it has.
_FIRST: I64 = np.zeros(1, np.int64)
_ONCE: I64 = np.ones(1, np.int64)

U64 = NDArray[np.uint64]
Pairs = tuple[I64, I64]
"""Rows (of the probed keys) and operations, as parallel arrays."""


class Index(Protocol):
    """Joins keys of rows with the constants of operations."""

    def probe(self, keys: NDArray[Any]) -> Iterator[Pairs]:
        """Give every pair whose key satisfies the operation's constants, in pieces.

        Parameters
        ----------
        keys : ndarray, shape (n,)
            Contiguous integers of any width.
        """
        ...


def expand(starts: I64, counts: I64) -> I64:
    """Give ``start, start + 1, …`` for each run, end to end."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    runs: I64 = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return runs


def cut(counts: I64) -> Iterator[tuple[int, int]]:
    """Cut a list of runs into slices of about `PIECE_PAIRS` pairs each."""
    total = int(counts.sum())
    if total <= PIECE_PAIRS:
        yield 0, len(counts)
        return
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        if total - before <= PIECE_PAIRS:
            stop = len(counts)
        else:
            stop = max(int(np.searchsorted(ends, before + PIECE_PAIRS, side="right")), start + 1)
        yield start, stop
        start = stop


def _pairs(rows: I64, places: I64, starts: I64, counts: I64, operations: I64) -> Iterator[Pairs]:
    """Pair found rows with the operations of their constants, in pieces."""
    if len(rows) == 0:
        return
    pair_up = kernels.active().pair_up
    for start, stop in cut(counts[places]):
        yield pair_up(rows[start:stop], places[start:stop], starts, counts, operations)


def _sorted(keys: I64) -> tuple[I64, I64]:
    """Give the stable order of some keys, and the keys in it."""
    n = len(keys)
    low, high = (int(keys.min()), int(keys.max())) if n else (0, 0)
    if (high - low + 1) * n > KEY_MAX:
        order = np.argsort(keys, kind="stable")
        return order, keys[order]
    # Sorting plain numbers is several times as fast as sorting their indices.
    both = np.sort((keys - low) * n + np.arange(n))
    ordered = both // max(n, 1)
    return both - ordered * n, ordered + low


def _set_bits(ascending: U64, n_words: int) -> U64:
    """Give a bitmap with the bits at some places set."""
    words = (ascending >> np.uint64(6)).view(np.int64)
    first = np.append(True, words[1:] != words[:-1]).nonzero()[0]
    bits = np.zeros(n_words, np.uint64)
    bits[words[first]] = np.bitwise_or.reduceat(np.uint64(1) << (ascending & np.uint64(63)), first)
    return bits


class PointIndex:
    """Constants that a key must equal.

    Parameters
    ----------
    keys, operations : ndarray of int64, shape (n,)
        One entry per constant; an operation may have many, none twice.
    """

    def __init__(self, keys: I64, operations: I64) -> None:
        self._base, n = int(keys.min(initial=KEY_MAX)), len(keys)
        spread = int(keys.max(initial=self._base)) - self._base + 1
        self._is_direct = n > FEW and spread <= min(max(_SPREAD_PER_CONSTANT * n, 1 << 16), _SPREAD_MAX)
        self._heads: NDArray[Any]
        if self._is_direct:
            posted = kernels.active().post_direct(keys, operations, self._base, spread)
            self._bits, self._heads, self._starts, self._counts, self._operations = posted
        else:
            self._sort(keys, operations)
        self._most = int(self._counts.max(initial=0))

    def _sort(self, keys: I64, operations: I64) -> None:
        """Post operations to constants that lie anywhere."""
        if len(keys) == 1:
            self._keys, self._operations = keys, operations
            self._starts, self._counts = _FIRST, _ONCE
            return
        order, ordered = _sorted(keys)
        self._operations = operations[order]
        first = np.ones(len(ordered), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        self._starts = first.nonzero()[0]
        self._keys = ordered[self._starts]
        self._counts = np.diff(np.append(self._starts, len(ordered)))
        if len(self._keys) > FEW:
            self._hash(len(self._keys))

    def _hash(self, n: int) -> None:
        """Order the constants by hash, behind a bitmap of hashes."""
        n_bits = max(_BITS_PER_CONSTANT * n, min(4 * _BITS_PER_CONSTANT * n, _BITS_SMALL))
        width = (min(n_bits, _BITS_MAX) - 1).bit_length()
        self._shift = 32 - width
        hashed = hash_keys(self._keys, self._shift)
        # Sorting plain numbers is several times as fast as sorting their indices.
        both = np.sort((hashed << np.uint64(32)) | np.arange(n, dtype=np.uint64))
        order = (both & np.uint64(0xFFFF_FFFF)).view(np.int64)
        self._keys, self._starts, self._counts = self._keys[order], self._starts[order], self._counts[order]
        hashed = both >> np.uint64(32)
        self._bits = _set_bits(hashed, 1 << (width - 6))
        words = (hashed >> np.uint64(6)).view(np.int64)
        self._heads = np.zeros(len(self._bits) + 1, np.int64)
        np.cumsum(np.bincount(words, minlength=len(self._bits)), out=self._heads[1:])

    @property
    def n_keys(self) -> int:
        """How many distinct constants there are."""
        return len(self._counts)

    def keys(self) -> tuple[I64, I64]:
        """Give the constants, ascending, none twice, and the place of each."""
        if self._is_direct:
            offsets = np.unpackbits(self._bits.view(np.uint8), bitorder="little").nonzero()[0]
            return offsets + self._base, np.arange(len(offsets))
        places = np.argsort(self._keys)
        return self._keys[places], places

    def probe(self, keys: NDArray[Any]) -> Iterator[Pairs]:
        """Give the pairs whose key equals a constant."""
        return self.pairs(*self._find(keys))

    def pairs(self, rows: I64, places: I64) -> Iterator[Pairs]:
        """Give the pairs of rows whose constants' places are known."""
        if 0 < len(rows) * self._most <= PIECE_PAIRS:
            pair_up = kernels.active().pair_up
            return iter((pair_up(rows, places, self._starts, self._counts, self._operations),))
        return _pairs(rows, places, self._starts, self._counts, self._operations)

    def _find(self, keys: NDArray[Any]) -> tuple[I64, I64]:
        """Give the rows whose key is a constant, and the constant's place."""
        active = kernels.active()
        if self._is_direct:
            return active.find_direct(keys, self._base, self._bits, self._heads)
        if len(self._keys) <= FEW:
            return active.find_few(keys, self._keys)
        return active.find_hashed(keys, self._shift, self._bits, self._heads, self._keys)


class RangedPointIndex(PointIndex):
    """Constants that a key must equal, each with a closed interval for a second key.

    Parameters
    ----------
    keys, operations : ndarray of int64, shape (n,)
        As of `PointIndex`.
    low, high : ndarray of int64, shape (n,)
    """

    def __init__(self, keys: I64, operations: I64, low: I64, high: I64) -> None:
        super().__init__(keys, np.arange(len(keys)))
        order = self._operations
        self._operations = operations[order]
        # In the order of the constants, so that those of one lie together.
        self._low, self._high = low[order], high[order]

    def probe_both(self, keys: NDArray[Any], second: NDArray[Any]) -> Iterator[Pairs]:
        """Give the pairs whose key equals a constant and whose second key lies in its interval."""
        rows, places = self._find(keys)
        if len(rows) == 0:
            return
        pair_within = kernels.active().pair_within
        constants = self._starts, self._counts, self._operations
        for start, stop in cut(self._counts[places]):
            some = rows[start:stop], places[start:stop]
            yield pair_within(*some, *constants, second, self._low, self._high)


class IntervalIndex:
    """Closed intervals in which a key must lie, none of them empty.

    The intervals cut the line into elementary ones, each with the operations
    that cover it. Where intervals overlap so much that this list would grow
    beyond bounds, a block's keys are sorted instead, and every interval is a run
    of them.

    Parameters
    ----------
    low, high, operations : ndarray of int64, shape (n,)
    """

    def __init__(self, low: I64, high: I64, operations: I64) -> None:
        self._low = low
        self._high = high
        self._operations = operations
        self._are_few = len(low) <= kernels.active().intervals_alone
        if self._are_few:
            return
        self._borders = np.unique(np.concatenate((low, high[high < KEY_MAX] + 1)))
        begin = np.searchsorted(self._borders, low)
        end = np.searchsorted(self._borders, np.minimum(high, KEY_MAX - 1) + 1)
        end[high == KEY_MAX] = len(self._borders)
        covered = end - begin
        self._is_cut = int(covered.sum()) <= max(_COVER_MAX * len(low), _COVER_MIN)
        depth = np.zeros(len(self._borders) + 1, np.int64)
        np.add.at(depth, begin, 1)
        np.subtract.at(depth, end, 1)
        self._counts = np.cumsum(depth[:-1])
        if self._is_cut:
            place = expand(begin, covered)
            order = np.argsort(place, kind="stable")
            self._cover = np.repeat(operations, covered)[order]
            self._starts = np.cumsum(self._counts) - self._counts
        self._make_buckets()

    def _make_buckets(self) -> None:
        """Divide the line into equal buckets, and mark those that meet a covered interval."""
        n = len(self._borders)
        self._base = int(self._borders[0])
        width = min((_BITS_PER_CONSTANT * n - 1).bit_length(), _BITS_MAX.bit_length() - 1)
        n_buckets = 1 << width
        spread = int(self._borders[-1]) - self._base
        self._shift = max(spread.bit_length() - width, 0)
        offsets = self._borders.view(np.uint64) - self._borders[:1].view(np.uint64)
        shift = np.uint64(self._shift)
        first = (offsets >> shift).view(np.int64)
        last = np.append((offsets[1:] - np.uint64(1)) >> shift, np.uint64(n_buckets - 1)).view(np.int64)
        is_covered = (self._counts > 0).nonzero()[0]
        marked = np.zeros(n_buckets, np.bool_)
        marked[expand(first[is_covered], (last - first + 1)[is_covered])] = True
        self._bits = np.packbits(marked, bitorder="little").view(np.uint64)
        starts = np.arange(len(self._bits), dtype=np.uint64) << np.uint64(self._shift + 6)
        self._heads = np.append(np.searchsorted(offsets, starts, side="right") - 1, n - 1)

    def probe(self, keys: NDArray[Any]) -> Iterator[Pairs]:
        """Give the pairs whose key lies in an interval."""
        if self._are_few:
            return self._compare(keys)
        rows, places = kernels.active().find_intervals(
            keys, self._base, self._shift, self._bits, self._heads, self._borders, self._counts
        )
        if self._is_cut:
            return _pairs(rows, places, self._starts, self._counts, self._cover)
        return self._sort(keys, rows)

    def _compare(self, keys: NDArray[Any]) -> Iterator[Pairs]:
        """Test the intervals one by one."""
        for low, high, operation in zip(self._low, self._high, self._operations, strict=True):
            rows = kernels.active().find_between(keys, int(low), int(high))
            for start in range(0, len(rows), PIECE_PAIRS):
                some = rows[start : start + PIECE_PAIRS]
                yield some, np.full(len(some), operation)

    def _sort(self, keys: NDArray[Any], rows: I64) -> Iterator[Pairs]:
        """Sort the covered keys: each interval is a run of them."""
        if len(rows) == 0:
            return
        found = keys[rows].astype(np.int64, copy=False)
        order = np.argsort(found, kind="stable")
        rows, ordered = rows[order], found[order]
        starts = np.searchsorted(ordered, self._low, side="left")
        counts = np.searchsorted(ordered, self._high, side="right") - starts
        hit = (counts > 0).nonzero()[0]
        starts, counts, operations = starts[hit], counts[hit], self._operations[hit]
        for start, stop in cut(counts):
            piece = counts[start:stop]
            yield rows[expand(starts[start:stop], piece)], np.repeat(operations[start:stop], piece)
