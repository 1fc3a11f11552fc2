"""Codes that count up, compiled by numba: twins of `crescando.engine.kernels.counting`.

Rules of the file: as in `crescando.engine.kernels.texts_compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from crescando.engine.kernels.counting import I32, I64, U64, CountKernels, Mask
from crescando.engine.kernels.texts_compiled import compiled, readable

_ONE, _THREE, _EIGHT, _SIXTY_THREE = np.uint64(1), np.uint64(3), np.uint64(8), np.uint64(63)
_BYTE = np.uint64(0xFF)
_FULL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

_COUNTED = np.cumsum(np.arange(256)[:, None] >> np.arange(8) & 1, axis=1).astype(np.int32).reshape(-1)
"""Of each byte how many bits up to each one are set, one byte behind the other."""

_CODES, _MASK = readable(types.int32), readable(types.boolean)
_WORDS, _BASES, _ROWS = types.uint64[::1], types.int32[::1], readable(types.int64)


@njit(cache=True, nogil=True, inline="always")
def _count(word: Any) -> Any:
    """Give how many bits of a word are set."""
    word -= (word >> _ONE) & np.uint64(0x5555_5555_5555_5555)
    word = (word & np.uint64(0x3333_3333_3333_3333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333_3333_3333_3333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F_0F0F_0F0F_0F0F)
    return np.int64((word * np.uint64(0x0101_0101_0101_0101)) >> np.uint64(56))


def _count_up_signature() -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.int64, types.int64[::1]))(_CODES, _MASK, types.int64, types.int64, _WORDS, _BASES)


@compiled(_count_up_signature())
def count_up(codes: I32, valid: Mask, first: int, last: int, words: U64, bases: I32) -> tuple[int, I64]:
    """Write bits and bases; see `counting.count_up`."""
    odd = np.empty(codes.size, np.int64)
    n_odd = np.int64(0)
    highest: Any = np.int64(last)
    has_nulls = valid.size > 0
    start: Any = np.int64(0)
    while start < codes.size:
        place = (first + start) >> 6
        at = np.uint64(first + start) & _SIXTY_THREE
        stop: Any = min(start + 64 - np.int64(at), codes.size)
        if at:
            word = words[place] & ((_ONE << at) - _ONE)
            code = np.int64(bases[place]) + _count(word)
        else:
            word = np.uint64(0)
            code = highest
            for i in range(start, stop):
                if codes[i] > highest and not (has_nulls and not valid[i]):
                    code = np.int64(codes[i]) - 1
                    break
            bases[place] = code
        for i in range(start, stop):
            if not (has_nulls and not valid[i]):
                is_fresh = codes[i] > highest
                if is_fresh:
                    highest = np.int64(codes[i])
                    word |= _ONE << at
                code += np.int64(is_fresh)
                odd[n_odd] = first + i
                n_odd += np.int64(code != codes[i])
            at += _ONE
        words[place] = word
        start = stop
    return highest, odd[:n_odd].copy()


@compiled(types.void(_WORDS, _BASES, types.int64, _BASES))
def spread_counted(words: U64, bases: I32, first: int, into: I32) -> None:
    """Write the codes of consecutive rows; see `counting.spread_counted`."""
    start: Any = np.int64(0)
    while start < into.size:
        place = (first + start) >> 6
        at = np.uint64(first + start) & _SIXTY_THREE
        stop: Any = min(start + 64 - np.int64(at), into.size)
        code = bases[place] + np.int32(_count(words[place] & ((_ONE << at) - _ONE)))
        rest = words[place] >> at
        while stop - start >= 8:
            # Unsigned, lest it be looked whether they count from the end.
            byte, to = (rest & _BYTE) << _THREE, np.uint64(start)
            for i in range(8):
                into[to + np.uint64(i)] = code + _COUNTED[byte + np.uint64(i)]
            code += _COUNTED[byte + np.uint64(7)]
            rest >>= _EIGHT
            start += 8
        while start < stop:
            code += np.int32(rest & _ONE)
            rest >>= _ONE
            into[start] = code
            start += 1


@compiled(types.int32[::1](_WORDS, _BASES, _CODES, _CODES, _ROWS))
def take_counted(words: U64, bases: I32, odd_rows: I32, odd_codes: I32, rows: I64) -> I32:
    """Give the codes of some rows; see `counting.take_counted`."""
    codes = np.empty(rows.size, np.int32)
    for i in range(rows.size):
        row = rows[i]
        upto = words[row >> 6] & (_FULL >> (_SIXTY_THREE - (np.uint64(row) & _SIXTY_THREE)))
        codes[i] = bases[row >> 6] + _count(upto)
    if odd_rows.size == 0:
        return codes
    falls = False
    for i in range(1, rows.size):
        falls |= rows[i] < rows[i - 1]
    low = np.int64(0)
    for i in range(rows.size):
        if falls:
            low, n = np.int64(0), odd_rows.size
            while n > 1:
                half = n >> 1
                low += half * np.int64(odd_rows[low + half] <= rows[i])
                n -= half
        else:
            while low + 1 < odd_rows.size and odd_rows[low] < rows[i]:
                low += 1
        if odd_rows[low] == rows[i]:
            codes[i] = odd_codes[low]
    return codes


@njit(cache=True, nogil=True, inline="always")
def _place_of(word: Any, count: Any) -> Any:
    """Give the place of a word's bit number `count`, counted from 1."""
    for _ in range(count - 1):
        word &= word - _ONE
    return _count((word & (~word + _ONE)) - _ONE)


@compiled(types.int64(_WORDS, _BASES, types.int64, types.int64, types.int64))
def _first_from(words: U64, bases: I32, low: int, high: int, code: int) -> Any:
    """Give the first row of the words ``low:high`` whose code is not below another one; or behind them."""
    first, end = low, high
    while first < end:
        middle = (first + end) >> 1
        if bases[middle] < code:
            first = middle + 1
        else:
            end = middle
    # Of the words before, whose bases are below, the last one alone may count up to it.
    if first > low:
        wanted = code - np.int64(bases[first - 1])
        if _count(words[first - 1]) >= wanted:
            return 64 * (first - 1) + _place_of(words[first - 1], wanted)
    return 64 * first


def _find_signature() -> Any:
    result: Any = types.UniTuple  # numba has no types for it.
    return result(types.int64[::1], 2)(_WORDS, _BASES, types.int64, types.int64, _ROWS)


@compiled(_find_signature())
def find_counted(words: U64, bases: I32, start: int, stop: int, keys: I64) -> tuple[I64, I64]:
    """Find the rows that have some codes; see `counting.find_counted`."""
    low, high = start >> 6, (stop + 63) >> 6
    firsts, ends = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
    n = np.int64(0)
    for i in range(keys.size):
        firsts[i] = max(_first_from(words, bases, low, high, keys[i]), start)
        ends[i] = max(min(_first_from(words, bases, low, high, keys[i] + 1), stop), firsts[i])
        n += ends[i] - firsts[i]
    rows, places = np.empty(n, np.int64), np.empty(n, np.int64)
    at = np.int64(0)
    for i in range(keys.size):
        for row in range(firsts[i], ends[i]):
            rows[at] = row
            places[at] = i
            at += 1
    return rows, places


COMPILED = CountKernels(count_up, spread_counted, take_counted, find_counted)
