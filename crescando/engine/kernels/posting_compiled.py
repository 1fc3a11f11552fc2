"""Postings, compiled by numba: the twins of `crescando.engine.kernels.posting`.

Rules of the file: as in `crescando.engine.kernels.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from crescando.engine.kernels.lanes import count_bits
from crescando.engine.kernels.posting import I32, I64, U64

_ONE, _SIXTY_THREE = np.uint64(1), np.uint64(63)

_INTS = types.int64[::1]
_tuple: Any = types.Tuple  # numba has no types for it.
_POSTED = _tuple((types.uint64[::1], types.int32[::1], _INTS, _INTS, _INTS))


@njit(cache=True, nogil=True, inline="always")
def place_of(offset: Any, bits: U64, heads: I32) -> Any:
    """Give how many bits are set before one."""
    word = offset >> 6
    before = (_ONE << (np.uint64(offset) & _SIXTY_THREE)) - _ONE
    return heads[word] + np.int64(count_bits(bits[word] & before))


@njit(
    [_POSTED(_INTS, _INTS, types.int64, types.int64)],
    cache=True,
    nogil=True,
    boundscheck=False,
    error_model="numpy",
)
def post_direct(keys: I64, operations: I64, base: int, spread: int) -> tuple[U64, I32, I64, I64, I64]:
    """Post operations to constants; see `posting.post_direct`."""
    bits = np.zeros(spread // 64 + 1, np.uint64)
    for i in range(keys.size):
        offset = keys[i] - base
        bits[offset >> 6] |= _ONE << (np.uint64(offset) & _SIXTY_THREE)
    heads = np.empty(bits.size, np.int32)
    n_places = np.int32(0)
    for i in range(bits.size):
        heads[i] = n_places
        n_places += np.int32(count_bits(bits[i]))
    places = np.empty(keys.size, np.int64)
    counts = np.zeros(n_places, np.int64)
    for i in range(keys.size):
        places[i] = place_of(keys[i] - base, bits, heads)
        counts[places[i]] += 1
    starts = np.empty(n_places, np.int64)
    done = np.int64(0)
    for place in range(n_places):
        starts[place] = done
        done += counts[place]
    cursor = starts.copy()
    posted = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        posted[cursor[places[i]]] = operations[i]
        cursor[places[i]] += 1
    return bits, heads, starts, counts, posted
