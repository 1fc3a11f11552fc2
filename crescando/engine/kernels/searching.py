"""Where texts have their place in an order: binary search for many at once.

Rules of the file: an order is a permutation of the texts of a heap, beside it
the first eight bytes of each as a number that sorts as they do, so that most
comparisons touch no text. Order is by bytes, a text below what goes on after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.borders import slices_of
from crescando.engine.kernels.texts import I32, I64, U8, U64, Mask, compare_slices, load_prefixes

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def search_order(
    heap: U8,
    offsets: NDArray[Any],
    order: I32,
    prefixes: U64,
    sought: U8,
    starts: I64,
    lengths: I64,
    as_prefix: Mask,
) -> tuple[I64, I64]:
    """Find the place of slices among texts in order.

    Parameters
    ----------
    heap, offsets : ndarray
        Of a pool; see `borders`.
    order : ndarray of int32, shape (n_texts,)
        Texts, ascending.
    prefixes : ndarray of uint64, shape (n_texts,)
        The first eight bytes of each, in this order; see `texts.load_prefixes`.
    sought, starts, lengths : ndarray
        What is sought, in a heap of its own; shape (n,).
    as_prefix : ndarray of bool, shape (n,)

    Returns
    -------
    low, high : ndarray of int64, shape (n,)
        How many texts lie below the slice; and how many lie below or are equal
        to it, or, where `as_prefix`, lie below or begin with it.
    """
    words = load_prefixes(sought, starts, lengths)
    # Of a text that begins with a slice, the bytes after it are anything.
    spare = np.where(as_prefix, 8 - np.minimum(lengths, 8), 0).astype(np.uint64) << np.uint64(3)
    tops = words | np.where(spare > 0, _ALL >> (np.uint64(64) - np.maximum(spare, np.uint64(1))), 0)
    low = np.searchsorted(prefixes, words, side="left")
    tied = np.searchsorted(prefixes, words, side="right")
    high = np.searchsorted(prefixes, tops, side="right")
    arguments = (heap, offsets, order, sought, starts, lengths, as_prefix)
    low = _narrow(low, tied, False, *arguments)
    ends = _narrow(low, tied, True, *arguments)
    # Short prefixes are settled by their word: nothing else has it and more bytes.
    open_ended = as_prefix & (lengths <= 8)
    return low, np.where(open_ended, high, ends)


def _narrow(
    low: I64,
    high: I64,
    is_upper: bool,
    heap: U8,
    offsets: NDArray[Any],
    order: I32,
    sought: U8,
    starts: I64,
    lengths: I64,
    as_prefix: Mask,
) -> I64:
    """Find by whole texts how many lie below (or, as upper bound, are not above), between two bounds."""
    low, high = low.copy(), high.copy()
    active = (low < high).nonzero()[0]
    while len(active):
        middle = (low[active] + high[active]) >> 1
        codes = order[middle].astype(np.int64)
        begins, sizes = slices_of(offsets, codes)
        wanted = lengths[active]
        sizes = np.where(as_prefix[active], np.minimum(sizes, wanted), sizes)
        sides = compare_slices(heap, begins, sizes, sought, starts[active], wanted)
        below = sides <= 0 if is_upper else sides < 0
        low[active[below]] = middle[below] + 1
        high[active[~below]] = middle[~below]
        active = active[low[active] < high[active]]
    return low
