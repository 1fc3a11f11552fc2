"""Borders of texts for compiled kernels: what `crescando.engine.kernels.borders` says.

Rules of the file: as in `crescando.engine.kernels.unaligned`. Which form offsets have is known
when a kernel is compiled, so that asking for it costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from crescando.engine.kernels.unaligned import load_word, prefetch

_ONE, _EIGHT = np.uint64(1), np.uint64(8)
_ALL, _LOWER = np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(0xFFFF_FFFF)
_EVEN, _SUMMED, _TOP = np.uint64(0x00FF_00FF_00FF_00FF), np.uint64(0x0001_0001_0001_0001), np.uint64(48)


@njit(cache=True, nogil=True, inline="always")
def _group(code: Any) -> Any:
    return (np.int64(code) >> 4) * 20


@njit(cache=True, nogil=True, inline="always")
def begin_of(offsets: Any, code: Any) -> Any:
    """Give where a text begins."""
    if offsets.itemsize > 1:
        return np.int64(offsets[code])
    at, place = _group(code), np.int64(code) & 15
    # The lengths of those before, in two words of which the bytes are added up.
    first, second = load_word(offsets, at + 4), load_word(offsets, at + 12)
    if place < 8:
        first &= (_ONE << (np.uint64(place) * _EIGHT)) - _ONE
        second = np.uint64(0)
    else:
        second &= (_ONE << (np.uint64(place - 8) * _EIGHT)) - _ONE
    pairs = (first & _EVEN) + ((first >> _EIGHT) & _EVEN) + (second & _EVEN) + ((second >> _EIGHT) & _EVEN)
    return np.int64(load_word(offsets, at) & _LOWER) + np.int64((pairs * _SUMMED) >> _TOP)


@njit(cache=True, nogil=True, inline="always")
def length_of(offsets: Any, code: Any) -> Any:
    """Give how long a text is."""
    if offsets.itemsize > 1:
        return np.int64(offsets[code + 1]) - np.int64(offsets[code])
    return np.int64(offsets[_group(code) + 4 + (np.int64(code) & 15)])


@njit(cache=True, nogil=True, inline="always")
def note_text(offsets: Any, code: Any, end: Any, length: Any) -> Any:
    """Write where a text ends, which is so long."""
    if offsets.itemsize > 1:
        offsets[code + 1] = end
        return
    at = _group(code)
    offsets[at + 4 + (code & 15)] = length
    if code & 15 == 15:
        for i in range(4):
            offsets[at + 20 + i] = (end >> (8 * i)) & 255


@njit(cache=True, nogil=True, inline="always")
def prefetch_border(offsets: Any, code: Any) -> Any:
    """Begin to load what says where a text lies."""
    if offsets.itemsize > 1:
        prefetch(offsets, code)
    else:
        prefetch(offsets, _group(code))
