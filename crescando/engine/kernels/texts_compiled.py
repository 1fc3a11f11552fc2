"""The text kernels compiled by numba: twins of `crescando.engine.kernels.texts`.

Rules of the file: as in `crescando.engine.kernels.compiled`. What is only read
may be read-only, as arrays that came over the wire are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from crescando.engine.kernels.texts import I32, I64, U8, U32, U64, Mask, TextKernels
from crescando.engine.kernels.unaligned import WIDE, copy_wide, load_word

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_1 = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_2 = np.uint64(0x94D0_49BB_1331_11EB)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _THIRTY_TWO = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_EIGHT = np.uint64(8)
_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def _read(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_BYTES, _INTS, _WORDS, _TAGS = (
    _read(types.uint8),
    _read(types.int64),
    _read(types.uint64),
    _read(types.uint32),
)


def _compile(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    some: Sequence[Any] = list(signatures)
    return njit(some, cache=True, nogil=True, boundscheck=False, error_model="numpy")


@njit(cache=True, nogil=True, inline="always")
def _mix(word: Any) -> Any:
    word = (word ^ (word >> _THIRTY)) * _MIX_1
    word = (word ^ (word >> _TWENTY_SEVEN)) * _MIX_2
    return word ^ (word >> _THIRTY_ONE)


@njit(cache=True, nogil=True, inline="always")
def _word(heap: Any, at: Any, count: Any) -> Any:
    """Read one to eight bytes as a little-endian word."""
    if at + 8 <= heap.size:
        return load_word(heap, at) & (_ONES >> (np.uint64(8 - count) * _EIGHT))
    word: Any = np.uint64(0)
    for i in range(count):
        word |= np.uint64(heap[at + i]) << (np.uint64(i) * _EIGHT)
    return word


@njit(cache=True, nogil=True, inline="always")
def _same(left: Any, a: Any, right: Any, b: Any, length: Any) -> Any:
    """Say whether two runs of bytes are equal."""
    done = np.int64(0)
    while done + 8 <= length:
        if load_word(left, a + done) != load_word(right, b + done):
            return False
        done += 8
    return done == length or _word(left, a + done, length - done) == _word(right, b + done, length - done)


@_compile(types.uint64[::1](_BYTES, _INTS, _INTS, types.uint64))
def hash_slices(heap: U8, starts: I64, lengths: I64, seed: np.uint64) -> U64:
    """Hash slices; see `texts.hash_slices`."""
    hashes = np.empty(starts.size, np.uint64)
    for row in range(starts.size):
        at, length = starts[row], lengths[row]
        state = _mix((np.uint64(length) + _GOLDEN) ^ seed)
        stop = at + (length & ~7)
        while at < stop:
            word = load_word(heap, at)
            state = _mix((state ^ word) + _GOLDEN)
            at += 8
        if length & 7:
            state = _mix((state ^ _word(heap, at, length & 7)) + _GOLDEN)
        hashes[row] = _mix(state)
    return hashes


@_compile(types.boolean[::1](_BYTES, _INTS, _INTS, _BYTES, _INTS, _INTS))
def equal_slices(
    left: U8, left_starts: I64, left_lengths: I64, right: U8, right_starts: I64, right_lengths: I64
) -> Mask:
    """Give where slices are equal; see `texts.equal_slices`."""
    equal = np.empty(left_starts.size, np.bool_)
    for row in range(left_starts.size):
        length = left_lengths[row]
        equal[row] = length == right_lengths[row] and _same(
            left, left_starts[row], right, right_starts[row], length
        )
    return equal


@_compile(types.int8[::1](_BYTES, _INTS, _INTS, _BYTES, _INTS, _INTS))
def compare_slices(
    left: U8, left_starts: I64, left_lengths: I64, right: U8, right_starts: I64, right_lengths: I64
) -> NDArray[np.int8]:
    """Compare slices; see `texts.compare_slices`."""
    result = np.empty(left_starts.size, np.int8)
    for row in range(left_starts.size):
        a, b = left_starts[row], right_starts[row]
        n, m = left_lengths[row], right_lengths[row]
        sign = 0 if n == m else (-1 if n < m else 1)
        for i in range(min(n, m)):
            if left[a + i] != right[b + i]:
                sign = -1 if left[a + i] < right[b + i] else 1
                break
        result[row] = sign
    return result


@_compile(types.uint8[::1](_BYTES, _INTS, _INTS))
def gather_slices(heap: U8, starts: I64, lengths: I64) -> U8:
    """Copy slices end to end; see `texts.gather_slices`."""
    total = 0
    for row in range(starts.size):
        total += lengths[row]
    # Slices are copied in whole steps; what is too much is overwritten by the next one.
    copied = np.empty(total + WIDE, np.uint8)
    done = np.int64(0)
    for row in range(starts.size):
        start, length = starts[row], lengths[row]
        if start + length + WIDE <= heap.size:
            for i in range(0, length, WIDE):
                copy_wide(copied, done + i, heap, start + i)
        else:
            for i in range(length):
                copied[done + i] = heap[start + i]
        done += length
    return copied[:total]


def _find_signature(offsets: Any) -> Any:
    table = _read(types.int32)
    return types.int64[::1](table, _TAGS, _BYTES, _read(offsets), _WORDS, _BYTES, _INTS, _INTS)


@_compile(_find_signature(types.uint32), _find_signature(types.int64))
def find_codes(
    table: I32,
    tags: U32,
    heap: U8,
    offsets: NDArray[Any],
    hashes: U64,
    sought: U8,
    starts: I64,
    lengths: I64,
) -> I64:
    """Look texts up in a hash table; see `texts.find_codes`."""
    found = np.empty(hashes.size, np.int64)
    size = np.int64(table.size)
    for row in range(hashes.size):
        tag = np.uint32(hashes[row] >> _THIRTY_TWO)
        slot = (np.int64(tag) * size) >> 32
        code = np.int64(table[slot])
        while code >= 0:
            if tags[code] == tag:
                begin = np.int64(offsets[code])
                length = np.int64(offsets[code + 1]) - begin
                if length == lengths[row] and _same(heap, begin, sought, starts[row], length):
                    break
            slot += 1
            if slot == size:
                slot = np.int64(0)
            code = np.int64(table[slot])
        found[row] = code
    return found


@_compile(types.void(types.int32[::1], _TAGS, types.int64, types.int64))
def place_codes(table: I32, tags: U32, first: int, stop: int) -> None:
    """Put codes into a table; see `texts.place_codes`."""
    size = np.int64(table.size)
    for code in range(first, stop):
        slot = (np.int64(tags[code]) * size) >> 32
        while table[slot] >= 0:
            slot += 1
            if slot == size:
                slot = np.int64(0)
        table[slot] = code


@_compile(types.int64[::1](_WORDS))
def first_of_equals(hashes: U64) -> I64:
    """Give the first place of each distinct hash; see `texts.first_of_equals`."""
    size = 16
    while size < 2 * hashes.size:
        size *= 2
    table = np.full(size, -1, np.int64)
    first = np.empty(hashes.size, np.int64)
    n_found = 0
    for row in range(hashes.size):
        slot = np.int64(hashes[row] >> _THIRTY_TWO) & (size - 1)
        while table[slot] >= 0 and hashes[table[slot]] != hashes[row]:
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = row
            first[n_found] = row
            n_found += 1
    return first[:n_found].copy()


COMPILED = TextKernels(
    hash_slices, equal_slices, compare_slices, gather_slices, find_codes, place_codes, first_of_equals
)
