"""Codes that count up from row to row: which rows take the next one, in words of 64 bits.

Rules of the file: as in `crescando.engine.kernels.plain`. Row r's bit is bit ``r % 64`` of word
``r // 64``, and its code is the word's base and how many bits up to its own are set. Codes for
which that does not hold are *odd* and stand in lists beside, ascending by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

_LANES = 64
_FULL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def count_up(codes: I32, valid: Mask, first: int, last: int, words: U64, bases: I32) -> tuple[int, I64]:
    """Write bits and bases of rows that come behind others.

    Parameters
    ----------
    codes : ndarray of int32, shape (n,)
        Anything where not valid: those rows will have any code that is not above the highest one.
    valid : ndarray of bool, shape (n,) or (0,)
        None of them says that all are.
    first : int
        The first one's row.
    last : int
        The highest code of the rows before, or 0.
    words, bases
        Of all rows; written from the first row on.

    Returns
    -------
    last : int
    odd : ndarray of int64
        The rows, ascending, that will not have their code.
    """
    n = len(codes)
    before = first % _LANES
    some = np.where(valid, codes, np.int32(-1)) if len(valid) else codes
    highest = np.maximum.accumulate(np.append(np.int32(last), some))
    word, stop = first // _LANES, -(-(first + n) // _LANES)
    fresh = np.zeros((stop - word) * _LANES, np.bool_)
    if before:
        kept = words[word : word + 1] & np.uint64((1 << before) - 1)
        fresh[:before] = np.unpackbits(kept.view(np.uint8), bitorder="little")[:before]
    fresh[before : before + n] = some > highest[:-1]
    blocks = fresh.reshape(-1, _LANES)
    begin = int(bool(before))
    for place in range(begin, stop - word):
        start = place * _LANES - before
        ups = blocks[place].nonzero()[0]
        bases[word + place] = some[start + ups[0]] - 1 if len(ups) else highest[start]
    words[word:stop] = np.packbits(fresh, bitorder="little").view(np.uint64)
    decoded = np.empty(n, np.int32)
    spread_counted(words, bases, first, decoded)
    odd = decoded != codes
    if len(valid):
        odd &= valid
    return int(highest[-1]), odd.nonzero()[0] + first


def spread_counted(words: U64, bases: I32, first: int, into: I32) -> None:
    """Write the codes of consecutive rows, odd ones left out of account."""
    word, stop = first // _LANES, -(-(first + len(into)) // _LANES)
    bits = np.unpackbits(words[word:stop].view(np.uint8), bitorder="little").reshape(-1, _LANES)
    codes = np.cumsum(bits, axis=1, dtype=np.int32) + bases[word:stop, None]
    start = first % _LANES
    into[:] = codes.reshape(-1)[start : start + len(into)]


def take_counted(words: U64, bases: I32, odd_rows: I32, odd_codes: I32, rows: I64) -> I32:
    """Give the codes of some rows."""
    at = rows >> 6
    upto = words[at] & (_FULL >> (63 - (rows & 63)).astype(np.uint64))
    codes: I32 = bases[at] + np.bitwise_count(upto).astype(np.int32)
    if len(odd_rows):
        place = np.minimum(np.searchsorted(odd_rows, rows), len(odd_rows) - 1)
        codes = np.where(odd_rows[place] == rows, odd_codes[place], codes)
    return codes


def find_counted(words: U64, bases: I32, start: int, stop: int, keys: I64) -> tuple[I64, I64]:
    """Find the rows ``start:stop`` that have some codes, odd ones left out of account.

    Codes never fall from row to row, so that those of one code are a run.

    Parameters
    ----------
    words, bases
    start, stop : int
        Rows in use.
    keys : ndarray of int64, shape (n,)
        Ascending, none twice.

    Returns
    -------
    rows, places : ndarray of int64
        Rows, ascending, and the index of the code that each one has.
    """
    codes = np.empty(stop - start, np.int32)
    spread_counted(words, bases, start, codes)
    first, end = np.searchsorted(codes, keys, "left"), np.searchsorted(codes, keys, "right")
    counts = end - first
    places = np.repeat(np.arange(len(keys)), counts)
    before = np.cumsum(counts) - counts
    return np.arange(len(places)) + (first - before)[places] + start, places


class CountKernels(NamedTuple):
    """A set of these functions."""

    count_up: Callable[[I32, Mask, int, int, U64, I32], tuple[int, I64]]
    spread_counted: Callable[[U64, I32, int, I32], None]
    take_counted: Callable[[U64, I32, I32, I32, I64], I32]
    find_counted: Callable[[U64, I32, int, int, I64], tuple[I64, I64]]


PLAIN = CountKernels(count_up, spread_counted, take_counted, find_counted)
