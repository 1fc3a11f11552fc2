"""Where the texts of a pool begin and end in its heap.

Rules of the file: texts lie end to end in the order of their codes. *Offsets* are numbers, text c being
``heap[offsets[c]:offsets[c + 1]]``; or bytes, in groups of `GROUP_BYTES` for 16 texts each, if
no text is longer than `LENGTH_MAX`: where the first one begins, in four bytes, and how long
each one is, so that a border takes 1.25 bytes. Whoever reads does not ask which of both they
are. The end of the last text is always known, as where the next one would begin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

GROUP = 16
GROUP_BYTES = 20
_ANCHOR_BYTES = 4

LENGTH_MAX = 255

_PLACES = np.arange(GROUP)


def slices_of(offsets: NDArray[Any], codes: I64) -> tuple[I64, I64]:
    """Give where some texts begin, and how long they are.

    Parameters
    ----------
    offsets : ndarray of uint32, int64 or uint8
    codes : ndarray of int64, shape (n,)

    Returns
    -------
    starts, lengths : ndarray of int64, shape (n,)
        Of the code behind the last text the length is anything.
    """
    if offsets.dtype != np.uint8:
        starts = offsets[codes].astype(np.int64)
        return starts, offsets[codes + 1].astype(np.int64) - starts
    groups, places = offsets.reshape(-1, GROUP_BYTES)[codes >> 4], codes & 15
    anchors = np.ascontiguousarray(groups[:, :_ANCHOR_BYTES]).view("<u4").reshape(-1)
    lengths = groups[:, _ANCHOR_BYTES:].astype(np.int64)
    before = np.where(places[:, None] > _PLACES, lengths, 0).sum(axis=1)
    return anchors + before, lengths[np.arange(len(codes)), places]


def end_of(offsets: NDArray[Any], n_texts: int) -> int:
    """Give where the last of so many texts ends."""
    if offsets.dtype != np.uint8:
        return int(offsets[n_texts])
    return int(slices_of(offsets, np.array([n_texts]))[0][0])


def note_texts(offsets: NDArray[Any], first: int, begin: int, lengths: I64) -> None:
    """Write the borders of texts from a code on, the first of which begins somewhere."""
    stop = first + len(lengths)
    ends = begin + np.cumsum(lengths)
    if offsets.dtype != np.uint8:
        offsets[first + 1 : stop + 1] = ends
        return
    groups, codes = offsets.reshape(-1, GROUP_BYTES), np.arange(first, stop)
    groups[codes >> 4, _ANCHOR_BYTES + (codes & 15)] = lengths
    last = (codes & 15) == 15
    anchors = ends[last].astype("<u4").view(np.uint8).reshape(-1, _ANCHOR_BYTES)
    groups[(codes[last] >> 4) + 1, :_ANCHOR_BYTES] = anchors


def group_bytes(n_texts: int) -> int:
    """Give how many bytes offsets in groups take."""
    return GROUP_BYTES * (n_texts // GROUP + 1)
