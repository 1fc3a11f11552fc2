"""Postings, compiled by numba: the twins of `crescando.engine.kernels.posting`.

Rules of the file: as in `crescando.engine.kernels.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from crescando.engine.kernels.posting import I32, I64, U64

_ONE, _SIXTY_THREE = np.uint64(1), np.uint64(63)

_INTS = types.int64[::1]
_tuple: Any = types.Tuple  # numba has no types for it.
_POSTED = _tuple((types.int32[::1], types.uint64[::1], _INTS, _INTS, _INTS))


@njit(
    [_POSTED(_INTS, _INTS, types.int64, types.int64)],
    cache=True,
    nogil=True,
    boundscheck=False,
    error_model="numpy",
)
def post_direct(keys: I64, operations: I64, base: int, spread: int) -> tuple[I32, U64, I64, I64, I64]:
    """Post operations to constants; see `posting.post_direct`."""
    slots = np.full(spread, -1, np.int32)
    bits = np.zeros(spread // 64 + 1, np.uint64)
    places = np.empty(keys.size, np.int32)
    counts = np.zeros(keys.size, np.int64)
    n_places = np.int32(0)
    for i in range(keys.size):
        offset = keys[i] - base
        place = slots[offset]
        if place < 0:
            place = n_places
            slots[offset] = place
            bits[offset >> 6] |= _ONE << (np.uint64(offset) & _SIXTY_THREE)
            n_places += np.int32(1)
        counts[place] += 1
        places[i] = place
    starts = np.empty(n_places, np.int64)
    done = np.int64(0)
    for place in range(n_places):
        starts[place] = done
        done += counts[place]
    cursor = starts.copy()
    posted = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        place = places[i]
        posted[cursor[place]] = operations[i]
        cursor[place] += 1
    return slots, bits, starts, counts[:n_places].copy(), posted
