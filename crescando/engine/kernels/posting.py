"""Postings: constants that lie close together, each with the operations that want it.

Rules of the file: as in `crescando.engine.kernels.plain`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


def post_direct(keys: I64, operations: I64, base: int, spread: int) -> tuple[I32, U64, I64, I64, I64]:
    """Post operations to their constants, for `plain.find_direct`.

    Parameters
    ----------
    keys : ndarray of int64, shape (n,)
        Constants, from `base` to before ``base + spread``.
    operations : ndarray of int64, shape (n,)
    base, spread : int

    Returns
    -------
    slots : ndarray of int32, shape (spread,)
        The place of each constant, in the order in which they first come; -1 for other numbers.
    bits : ndarray of uint64, shape (spread // 64 + 1,)
        Bit ``key - base`` is set for every constant.
    starts, counts : ndarray of int64, shape (n_places,)
    posted : ndarray of int64, shape (n,)
        Place p has the operations ``starts[p]``, …, in the order in which they came.
    """
    offsets = keys - base
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    begins = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0] if len(keys) else order
    # The first of a constant's operations tells when it came.
    by_coming = np.argsort(order[begins])
    counts = np.diff(np.append(begins, len(keys)))[by_coming]
    slots = np.full(spread, -1, np.int32)
    slots[ordered[begins][by_coming]] = np.arange(len(begins), dtype=np.int32)
    bits = np.packbits(slots >= 0, bitorder="little")
    words = np.zeros(8 * (spread // 64 + 1), np.uint8)
    words[: len(bits)] = bits
    starts = np.cumsum(counts) - counts
    posted = operations[np.argsort(slots[offsets], kind="stable")]
    return slots, words.view(np.uint64), starts, counts, posted
