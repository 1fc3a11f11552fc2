"""Several columns joined as one: equalities, perhaps with a range beside them.

Rules of the file: each row gets one number made of the keys of all columns, of a
range only the bucket in which its key lies; an operation is posted to the few
buckets that its range meets, and the range itself is checked on the pairs. The
number is exact where the constants leave room for that: each column is a digit,
and a row whose key no constant has is nobody's. Elsewhere keys are mixed into a
hash, and what only looks alike is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.index import Pairs, PointIndex, RangedPointIndex, expand
from crescando.engine.keys import I64, KEY_MAX, Mask

_BUCKETS_PER_OPERATION = 4
"""Buckets are made wide enough that an operation's range meets so many at most, on average."""

_NARROW_MAX = (1 << 31) - 1
"""Smaller numbers take four bytes."""


class CompositeIndex:
    """Closed intervals of several keys, each of which must hold.

    Parameters
    ----------
    bounds : sequence of (ndarray of int64, ndarray of int64), shape (n_operations,)
        Of each part, low and high; equal but for the last part, if `has_range`.
    operations : ndarray of int64
        Those to be indexed, of which no interval is empty.
    has_range : bool
    """

    def __init__(self, bounds: Sequence[tuple[I64, I64]], operations: I64, has_range: bool) -> None:
        self._bounds = bounds
        self._shifts = [0] * len(bounds)
        owners = operations
        digits = [low[owners] for low, _ in bounds]
        if has_range:
            low, high = (side[owners] for side in bounds[-1])
            self._shifts[-1] = shift = _bucket_shift(low, high)
            first, last = low >> np.int64(shift), high >> np.int64(shift)
            counts = last - first + 1
            digits = [np.repeat(digit, counts) for digit in digits[:-1]] + [expand(first, counts)]
            owners = np.repeat(owners, counts)
        self._bases = [int(digit.min(initial=KEY_MAX)) for digit in digits]
        self._sizes = [
            max(int(digit.max(initial=base)) - base + 1, 1)
            for digit, base in zip(digits, self._bases, strict=True)
        ]
        self._is_exact = prod(self._sizes) <= KEY_MAX
        numbers = self._numbers(digits, [0] * len(digits)).astype(np.int64, copy=False)
        self._index: PointIndex | RangedPointIndex
        if has_range:
            self._index = RangedPointIndex(numbers, owners, *(side[owners] for side in bounds[-1]))
        else:
            self._index = PointIndex(numbers, owners)

    def _numbers(self, keys: Sequence[NDArray[Any]], shifts: Sequence[int]) -> NDArray[Any]:
        """Give one number for the keys of each row."""
        active, n = kernels.active(), len(keys[0])
        if not self._is_exact:
            mixed = np.zeros(n, np.uint64)
            for some, shift in zip(keys, shifts, strict=True):
                active.fold(mixed, some, shift)
            return mixed.view(np.int64)
        into = np.zeros(n, np.int32 if prod(self._sizes) <= _NARROW_MAX else np.int64)
        for digit in zip(keys, self._bases, shifts, self._sizes, strict=True):
            active.append_digit(into, *digit)
        return into

    def probe(self, keys: Sequence[NDArray[Any]]) -> Iterator[Pairs]:
        """Give the pairs whose keys all lie in the operation's intervals, in pieces.

        Parameters
        ----------
        keys : sequence of ndarray, shape (n,)
            Part by part.
        """
        numbers = self._numbers(keys, self._shifts)
        if isinstance(self._index, RangedPointIndex):
            pairs = self._index.probe_both(numbers, keys[-1])
            unproven = range(len(keys) - 1)
        else:
            pairs = self._index.probe(numbers)
            unproven = range(len(keys))
        if self._is_exact:
            return pairs
        return self._proven(pairs, keys, unproven)

    def _proven(
        self, pairs: Iterator[Pairs], keys: Sequence[NDArray[Any]], unproven: Sequence[int]
    ) -> Iterator[Pairs]:
        """Drop what only looks alike."""
        within = kernels.active().within
        for rows, operations in pairs:
            inside: Mask = np.ones(len(rows), np.bool_)
            for part in unproven:
                inside &= within(keys[part], rows, operations, *self._bounds[part])
            kept = inside.nonzero()[0]
            yield rows[kept], operations[kept]


def _bucket_shift(low: I64, high: I64) -> int:
    """Choose how many bits of a range's keys a bucket leaves out."""
    if len(low) == 0:
        return 0
    widths = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64) + 1.0
    # All of int64 has a width of 65 bits; no key is shifted by as many as it has.
    shift = min(max(int(np.median(widths)).bit_length() - 1, 0), 63)
    while shift < 63 and float(np.ldexp(widths, -shift).sum()) > (_BUCKETS_PER_OPERATION - 1) * len(low):
        shift += 1
    return shift
