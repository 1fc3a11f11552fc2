"""Columns of codes on their way in, compiled by numba: twins of `crescando.engine.kernels.coding`.

Rules of the file: as in `crescando.engine.kernels.texts_compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from crescando.engine.kernels.coding import I32, I64, U8, CodeKernels, Mask
from crescando.engine.kernels.texts_compiled import compiled, readable
from crescando.engine.kernels.unaligned import load_word

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


COMPILED = CodeKernels(examine_list, are_within, used_texts, spread_codes)
