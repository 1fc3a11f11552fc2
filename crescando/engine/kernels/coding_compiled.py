"""Columns of codes on their way in, compiled by numba: twins of `crescando.engine.kernels.coding`.

Rules of the file: as in `crescando.engine.kernels.texts_compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from crescando.engine.kernels.coding import I32, I64, U8, CodeKernels, Mask
from crescando.engine.kernels.texts_compiled import compiled, readable
from crescando.engine.kernels.unaligned import load_bytes, load_word

_NUMBERED_BITS = 8
"""There is room for two to the power of so many distinct texts before there is made more."""

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_WORD_BYTES = np.int64(8)
_MIX = np.uint64(0xBF58_476D_1CE4_E5B9)
_NOTHING, _ONE = np.uint64(0), np.uint64(1)

_HIGH_BITS = np.uint64(0x8080_8080_8080_8080)

_CODES, _MASK = readable(types.int32), readable(types.boolean)


@compiled(*(types.int64(readable(types.uint8), readable(offsets)) for offsets in (types.uint32, types.int64)))
def examine_list(heap: U8, offsets: NDArray[Any]) -> int:
    """Examine a list of texts; see `coding.examine_list`."""
    n = offsets.size - 1
    if np.int64(offsets[0]) != 0 or np.int64(offsets[n]) != heap.size:
        return -1
    falls = False
    for i in range(n):
        falls |= offsets[i + 1] < offsets[i]
    if falls:
        return -1
    every = np.uint64(0)
    whole = heap.size >> 3
    for i in range(whole):
        every |= load_word(heap, np.int64(i << 3))
    for i in range(whole << 3, heap.size):
        every |= np.uint64(heap[i])
    return 1 if every & _HIGH_BITS else 0


@njit(cache=True, nogil=True)
def _hash_long(heap: Any, start: Any, length: Any) -> Any:
    """Hash a text of more than a word, apart from the loop over short ones (measured)."""
    state, at, last = _NOTHING, start, start + length - 8
    while at < last:
        state = (state ^ load_word(heap, at)) * _MIX
        state ^= state >> np.uint64(32)
        at += 8
    # The last word may overlap the one before.
    return (state ^ load_word(heap, last)) * _MIX


@njit(cache=True, nogil=True)
def _same_long(heap: Any, one: Any, other: Any, length: Any) -> Any:
    """Say whether two texts of more than a word are equal."""
    last = length - 8
    for done in range(0, last, 8):
        if load_word(heap, one + done) != load_word(heap, other + done):
            return False
    return load_word(heap, one + last) == load_word(heap, other + last)


@njit(cache=True, nogil=True, inline="always")
def _first_slot(key: Any, length: Any, shift: Any) -> Any:
    return ((key ^ np.uint64(length)) * _GOLDEN) >> shift


@njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def _number_some(
    heap: Any,
    offsets: Any,
    valid: Any,
    row: Any,
    count: Any,
    numbers: Any,
    firsts: Any,
    keys: Any,
    sizes: Any,
    table: Any,
    shift: Any,
) -> Any:
    """Number texts from a row on, as long as there is room; gives the row, and how many texts there are.

    `table` has ``1 << (64 - shift)`` slots for numbers plus one, and is half full at most.
    """
    last = np.uint64(table.size - 1)
    for at in range(row, numbers.size):
        if valid.size and not valid[at]:
            numbers[at] = 0
            continue
        start = np.int64(offsets[at])
        length = np.int64(offsets[at + 1]) - start
        # What tells a text from others of its length: itself, or a hash of a long one.
        key = _NOTHING
        if length:
            key = load_bytes(heap, start, min(length, _WORD_BYTES))
        if length > _WORD_BYTES:
            key = _hash_long(heap, start, length)
        slot = _first_slot(key, length, shift)
        while table[slot]:
            number = np.uint64(table[slot] - _ONE)
            if (
                keys[number] == key
                and sizes[number] == length
                and (
                    length <= _WORD_BYTES
                    or _same_long(heap, np.int64(offsets[np.uint64(firsts[number])]), start, length)
                )
            ):
                break
            slot = (slot + _ONE) & last
        if not table[slot]:
            if count == firsts.size:
                return at, count
            firsts[count], keys[count], sizes[count] = at, key, length
            count += 1
            table[slot] = count
        numbers[at] = table[slot] - 1
    return numbers.size, count


def _number_signature(offsets: Any) -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.int32[::1], types.int64[::1]))(readable(types.uint8), readable(offsets), _MASK)


@compiled(_number_signature(types.uint32), _number_signature(types.int64))
def number_texts(heap: U8, offsets: NDArray[Any], valid: Mask) -> tuple[I32, I64]:
    """Number the distinct texts of a list; see `coding.number_texts`."""
    numbers = np.empty(offsets.size - 1, np.int32)
    bits, row, count = _NUMBERED_BITS, np.int64(0), np.int64(0)
    firsts = np.empty(1 << bits, np.int64)
    keys, sizes = np.empty(firsts.size, np.uint64), np.empty(firsts.size, np.int64)
    while True:
        table, shift = np.zeros(2 << bits, np.uint32), np.uint64(63 - bits)
        last = np.uint64(table.size - 1)
        for number in range(count):
            slot = _first_slot(keys[number], sizes[number], shift)
            while table[slot]:
                slot = (slot + _ONE) & last
            table[slot] = number + 1
        row, count = _number_some(
            heap, offsets, valid, row, count, numbers, firsts, keys, sizes, table, shift
        )
        if row == numbers.size:
            return numbers, firsts[:count].copy()
        bits += 1
        firsts = np.append(firsts, np.empty_like(firsts))
        keys, sizes = np.append(keys, np.empty_like(keys)), np.append(sizes, np.empty_like(sizes))


@compiled(types.boolean(_CODES, _MASK, types.int64))
def are_within(codes: I32, valid: Mask, n_texts: int) -> bool:
    """Say whether all codes are of one of so many texts; see `coding.are_within`."""
    outside = False
    if valid.size == 0:
        for row in range(codes.size):
            outside |= (codes[row] < 0) | (codes[row] >= n_texts)
    else:
        for row in range(codes.size):
            outside |= valid[row] & ((codes[row] < 0) | (codes[row] >= n_texts))
    return not outside


def _used_signature() -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.int64[::1], types.boolean))(_CODES, _MASK, types.int64)


@compiled(_used_signature())
def used_texts(codes: I32, valid: Mask, n_texts: int) -> tuple[I64, bool]:
    """Give the texts that are used; see `coding.used_texts`."""
    if valid.size == 0 and codes.size == n_texts:
        in_order = True
        for row in range(codes.size):
            in_order &= codes[row] == row
        if in_order:
            return np.arange(n_texts), True
    seen = np.zeros(n_texts, np.bool_)
    if valid.size == 0:
        for row in range(codes.size):
            seen[codes[row]] = True
    else:
        for row in range(codes.size):
            if valid[row]:
                seen[codes[row]] = True
    count = 0
    for code in range(n_texts):
        count += seen[code]
    used = np.empty(count, np.int64)
    count = 0
    for code in range(n_texts):
        if seen[code]:
            used[count] = code
            count += 1
    return used, False


@compiled(types.int32[::1](_CODES, _CODES, _MASK))
def spread_codes(known: I32, codes: I32, valid: Mask) -> I32:
    """Look codes up; see `coding.spread_codes`."""
    spread = np.empty(codes.size, np.int32)
    if valid.size == 0:
        for row in range(codes.size):
            spread[row] = known[codes[row]]
    else:
        for row in range(codes.size):
            spread[row] = known[codes[row]] if valid[row] else 0
    return spread


COMPILED = CodeKernels(examine_list, number_texts, are_within, used_texts, spread_codes)
