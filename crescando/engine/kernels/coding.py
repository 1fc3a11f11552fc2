"""Columns of codes on their way in: what is checked of them, and which texts they use.

Rules of the file: as in `crescando.engine.kernels.texts`. A mask of no rows says that
no row is NULL; codes of rows that are NULL may be anything. Each function goes over
what it is given once, since a load is many columns of a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.texts import fingerprint_slices, first_alike

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

NO_MASK: Mask = np.zeros(0, np.bool_)

UNFIT, PLAIN_ASCII, OTHER = -1, 0, 1
"""What `examine_list` says of a list: its offsets do not fit it; all bytes are ASCII; some are not."""


def examine_list(heap: U8, offsets: NDArray[Any]) -> int:
    """Say whether the offsets of texts ascend from 0 to the end of their heap, and whether all are ASCII.

    Parameters
    ----------
    heap : ndarray of uint8
    offsets : ndarray of uint32 or int64, shape (at least 1,)
    """
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(heap) or not bool((offsets[1:] >= offsets[:-1]).all()):
        return UNFIT
    return OTHER if len(heap) and int(heap.max()) >= 0x80 else PLAIN_ASCII


def number_texts(heap: U8, offsets: NDArray[Any], valid: Mask) -> tuple[I32, I64]:
    """Number the distinct texts of a list in the order in which they come.

    Parameters
    ----------
    heap : ndarray of uint8
    offsets : ndarray of uint32 or int64, shape (n + 1,)
    valid : ndarray of bool, shape (n,) or (0,)

    Returns
    -------
    numbers : ndarray of int32, shape (n,)
        0 where not valid.
    firsts : ndarray of int64
        Where each text comes first.
    """
    rows = valid.nonzero()[0] if len(valid) else np.arange(len(offsets) - 1)
    starts = offsets[rows].astype(np.int64)
    lengths = offsets[rows + 1].astype(np.int64) - starts
    leader = first_alike(heap, starts, lengths, fingerprint_slices(heap, starts, lengths))
    fresh = np.unique(leader)
    numbers = np.zeros(len(offsets) - 1, np.int32)
    numbers[rows] = np.searchsorted(fresh, leader)
    return numbers, rows[fresh]


def are_within(codes: I32, valid: Mask, n_texts: int) -> bool:
    """Say whether all codes are of one of `n_texts` texts."""
    some = codes[valid] if len(valid) else codes
    return len(some) == 0 or (int(some.min()) >= 0 and int(some.max()) < n_texts)


def used_texts(codes: I32, valid: Mask, n_texts: int) -> tuple[I64, bool]:
    """Give the texts that are used, ascending, and whether each row has one of its own, in their order.

    Parameters
    ----------
    codes : ndarray of int32, shape (n,)
        Below `n_texts`, where valid.
    valid : ndarray of bool, shape (n,) or (0,)
    n_texts : int
    """
    if len(valid) == 0 and len(codes) == n_texts and bool((codes == np.arange(n_texts)).all()):
        return np.arange(n_texts), True
    seen = np.zeros(n_texts, np.bool_)
    seen[codes[valid] if len(valid) else codes] = True
    return seen.nonzero()[0], False


def spread_codes(known: I32, codes: I32, valid: Mask) -> I32:
    """Give ``known[codes]``, and 0 where not valid."""
    if len(valid) == 0:
        return known.take(codes)
    spread = np.zeros(len(codes), np.int32)
    rows = valid.nonzero()[0]
    spread[rows] = known.take(codes[rows])
    return spread


class CodeKernels(NamedTuple):
    """A set of these functions."""

    examine_list: Callable[[U8, NDArray[Any]], int]
    number_texts: Callable[[U8, NDArray[Any], Mask], tuple[I32, I64]]
    are_within: Callable[[I32, Mask, int], bool]
    used_texts: Callable[[I32, Mask, int], tuple[I64, bool]]
    spread_codes: Callable[[I32, I32, Mask], I32]


PLAIN = CodeKernels(examine_list, number_texts, are_within, used_texts, spread_codes)
