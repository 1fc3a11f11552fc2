"""Memory that is taken page by page, as it is written.

Rules of the file: an array with room for more than it holds must not cost what it
has room for. The allocator hands out memory that was used before, every page of
which is in memory already; so large arrays get a mapping of their own here.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OWN_BYTES = 1 << 17
"""Smaller arrays come from the allocator: what they waste is little."""

_HUGE_BYTES = 1 << 24
"""Of which so much is expected is in large pages, where the system has them: texts that are taken
from here and there are found faster, and an eighth at most is in memory in vain (measured)."""


def fresh_array(n: int, dtype: np.dtype[Any], n_expected: int) -> NDArray[Any]:
    """Give an array of which nothing is in memory before it is written; it holds anything.

    Parameters
    ----------
    n : int
    dtype : dtype
    n_expected : int
        How many of its items will be written, as far as is known.
    """
    n_bytes = n * dtype.itemsize
    if n_bytes < _OWN_BYTES:
        return np.empty(n, dtype)
    try:
        pages = mmap.mmap(-1, n_bytes, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):  # Not every system has mappings that are nobody else's.
        return np.empty(n, dtype)
    if n_expected * dtype.itemsize >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)
