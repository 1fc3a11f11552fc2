"""Postings: constants that lie close together, each with the operations that want it.

Rules of the file: as in `crescando.engine.kernels.plain`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


def post_direct(keys: I64, operations: I64, base: int, spread: int) -> tuple[U64, I32, I64, I64, I64]:
    """Post operations to their constants, for `plain.find_direct`.

    Parameters
    ----------
    keys : ndarray of int64, shape (n,)
        Constants, from `base` to before ``base + spread``.
    operations : ndarray of int64, shape (n,)
    base, spread : int

    Returns
    -------
    bits : ndarray of uint64, shape (spread // 64 + 1,)
        Bit ``key - base`` is set for every constant; a constant's place is how many are less.
    heads : ndarray of int32, shape (spread // 64 + 1,)
        How many are set before each word.
    starts, counts : ndarray of int64, shape (n_places,)
    posted : ndarray of int64, shape (n,)
        Place p has the operations ``starts[p]``, …, in the order in which they came.
    """
    n_words = spread // 64 + 1
    order = np.argsort(keys, kind="stable")
    constants, counts = np.unique(keys - base, return_counts=True)
    is_set = np.zeros(64 * n_words, np.bool_)
    is_set[constants] = True
    bits = np.packbits(is_set, bitorder="little").view(np.uint64)
    heads = np.searchsorted(constants, 64 * np.arange(n_words)).astype(np.int32)
    return bits, heads, np.cumsum(counts) - counts, counts.astype(np.int64), operations[order]
