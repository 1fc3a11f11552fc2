"""The search for texts in order, compiled by numba: the twin of `crescando.engine.kernels.searching`.

Rules of the file: as in `crescando.engine.kernels.compiled`. Many searches take
each step together: what one of them waits for from memory, others wait for at
the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from crescando.engine.kernels.borders_compiled import begin_of, length_of
from crescando.engine.kernels.texts import I32, I64, U8, U64, Mask
from crescando.engine.kernels.unaligned import load_bytes, load_word, prefetch

_TOGETHER = 32
"""Searches that go in step: enough to keep memory busy, few enough for the first-level cache (a guess)."""

_AHEAD = 12
"""As in `crescando.engine.kernels.texts_compiled`."""

_ONE, _EIGHT, _SIXTEEN, _THIRTY_TWO = np.uint64(1), np.uint64(8), np.uint64(16), np.uint64(32)
_BYTES_1, _BYTES_2 = np.uint64(0x00FF_00FF_00FF_00FF), np.uint64(0x0000_FFFF_0000_FFFF)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def _read(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


def _compile(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    return njit(list(signatures), cache=True, nogil=True, boundscheck=False, error_model="numpy")


@njit(cache=True, nogil=True, inline="always")
def _swapped(word: Any) -> Any:
    """Reverse the bytes of a word, so that it sorts as they do."""
    word = ((word >> _EIGHT) & _BYTES_1) | ((word & _BYTES_1) << _EIGHT)
    word = ((word >> _SIXTEEN) & _BYTES_2) | ((word & _BYTES_2) << _SIXTEEN)
    return (word >> _THIRTY_TWO) | (word << _THIRTY_TWO)


@njit(cache=True, nogil=True, inline="always")
def _prefix(heap: U8, at: Any, length: Any) -> Any:
    """Read up to eight bytes as a number that sorts as they do, zero padded."""
    if length == 0:
        return np.uint64(0)
    return _swapped(load_bytes(heap, at, min(length, np.int64(8))))


@njit(cache=True, nogil=True, inline="always")
def _compare(left: U8, a: Any, n: Any, right: U8, b: Any, m: Any) -> Any:
    """Give -1, 0 or 1 as two slices sort whose zero padded first eight bytes are equal."""
    shorter = min(n, m)
    done = np.int64(8)
    while done < shorter:
        count = min(shorter - done, np.int64(8))
        if count == 8:
            one, two = load_word(left, a + done), load_word(right, b + done)
        else:
            one, two = load_bytes(left, a + done, count), load_bytes(right, b + done, count)
        if one != two:
            return np.int64(-1) if _swapped(one) < _swapped(two) else np.int64(1)
        done += 8
    return np.int64(n > m) - np.int64(n < m)


@njit(cache=True, nogil=True)
def _count_below(prefixes: U64, words: U64, counts: I64) -> None:
    """Count the numbers, ascending, that lie below each word."""
    for first in range(0, words.size, _TOGETHER):
        some = words[first : first + _TOGETHER]
        bases = counts[first : first + _TOGETHER]
        bases[:] = 0
        size = prefixes.size
        while size > 1:
            half = size >> 1
            for j in range(some.size):
                base = bases[j]
                bases[j] = base + half if prefixes[base + half - 1] < some[j] else base
            size -= half
        if size > 0:
            for j in range(some.size):
                bases[j] += np.int64(prefixes[bases[j]] < some[j])


@njit(cache=True, nogil=True)
def _bisect(
    heap: U8,
    offsets: NDArray[Any],
    order: I32,
    low: Any,
    high: Any,
    sought: U8,
    start: Any,
    length: Any,
    as_prefix: Any,
    limit: Any,
) -> Any:
    """Find where texts in order begin to compare with a slice as `limit` (0 or 1) or more."""
    while low < high:
        middle = (low + high) >> 1
        code = np.int64(order[middle])
        begin, size = begin_of(offsets, code), length_of(offsets, code)
        if as_prefix:
            size = min(size, length)
        if _compare(heap, begin, size, sought, start, length) < limit:
            low = middle + 1
        else:
            high = middle
    return low


def _signature(offsets: Any) -> Any:
    result: Any = types.UniTuple  # numba has no types for it.
    return result(types.int64[::1], 2)(
        _read(types.uint8),
        _read(offsets),
        _read(types.int32),
        _read(types.uint64),
        _read(types.uint8),
        _read(types.int64),
        _read(types.int64),
        _read(types.boolean),
    )


@_compile(*map(_signature, (types.uint32, types.int64, types.uint8)))
def search_order(
    heap: U8,
    offsets: NDArray[Any],
    order: I32,
    prefixes: U64,
    sought: U8,
    starts: I64,
    lengths: I64,
    as_prefix: Mask,
) -> tuple[I64, I64]:
    """Find the place of slices among texts in order; see `searching.search_order`."""
    n = starts.size
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    words, tops = np.empty(n, np.uint64), np.empty(n, np.uint64)
    for i in range(n):
        word = _prefix(sought, starts[i], lengths[i])
        words[i] = word
        if as_prefix[i] and lengths[i] < 8:
            word |= _ALL >> (np.uint64(lengths[i]) * _EIGHT)
        # What is not above a number is below the next one; nothing is above the last.
        tops[i] = word + _ONE
    _count_below(prefixes, words, low)
    _count_below(prefixes, tops, high)
    # Loads that wait for one number each, and so all of them at once; -1 where no text is looked at.
    begins, sizes = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        if tops[i] == 0:
            high[i] = prefixes.size
        if low[i] < high[i] and not (as_prefix[i] and lengths[i] <= 8):
            begins[i] = order[(low[i] + high[i]) >> 1]
    for i in range(n):
        if begins[i] >= 0:
            code = begins[i]
            begins[i] = begin_of(offsets, code)
            sizes[i] = length_of(offsets, code)
    for i in range(n):
        if i + _AHEAD < n and begins[i + _AHEAD] >= 0:
            prefetch(heap, begins[i + _AHEAD])
        start, length, first, last = starts[i], lengths[i], low[i], high[i]
        like = as_prefix[i]
        if begins[i] >= 0 and last - first == 1:
            size = min(sizes[i], length) if like else sizes[i]
            side = _compare(heap, begins[i], size, sought, start, length)
            low[i] = first + np.int64(side < 0)
            high[i] = first + np.int64(side <= 0)
        elif begins[i] >= 0:
            first = _bisect(heap, offsets, order, first, last, sought, start, length, like, 0)
            low[i] = first
            high[i] = _bisect(heap, offsets, order, first, last, sought, start, length, like, 1)
        elif length > 0 and sought[start + length - 1] == 0:
            # A short prefix that ends in zeros: fewer of them have the same word and lie below.
            while first < last and prefixes[first] == words[i]:
                code = np.int64(order[first])
                if length_of(offsets, code) >= length:
                    break
                first += 1
            low[i] = first
    return low, high
