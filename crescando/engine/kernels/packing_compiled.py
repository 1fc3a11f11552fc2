"""Numbers in fewer bytes than their type has, and truth in bits: for compiled kernels.

Rules of the file: as in `crescando.engine.kernels.compiled`. Twins of functions of
`crescando.engine.kernels.plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from crescando.engine.kernels.base import I64, U8, Mask
from crescando.engine.kernels.texts_compiled import compiled, readable
from crescando.engine.kernels.unaligned import copy_word, load_bytes, load_word

_CHUNK = 4096
"""Numbers that are written before it is looked whether all of them fit."""

_WIDE = ("int32", "int64")


@compiled("boolean[::1](uint8[::1], int64[::1])")
def take_bits(packed: U8, rows: I64) -> Mask:
    """Give some bits; see `plain.take_bits`."""
    bits = np.empty(rows.size, np.bool_)
    for i in range(rows.size):
        bits[i] = (packed[rows[i] >> 3] >> np.uint8(rows[i] & 7)) & 1
    return bits


_SIGNED = ("int8", "int16", "int32", "int64")


@compiled(
    *[
        f"void({narrow}[::1], int64, int64, {wide}[::1])"
        for place, narrow in enumerate(_SIGNED)
        for wide in _SIGNED[place + 1 :]
    ]
)
def widen(numbers: NDArray[Any], base: int, scale: int, into: NDArray[Any]) -> None:
    """Give numbers as the values they stand for; see `plain.widen`."""
    for i in range(numbers.size):
        into[i] = np.int64(numbers[i]) * scale + base


@compiled(*[f"void({kind}[::1], int64, float64[::1])" for kind in _SIGNED])
def divide(numbers: NDArray[Any], divisor: int, into: NDArray[np.float64]) -> None:
    """Give numbers divided by another one; see `plain.divide`."""
    by = np.float64(divisor)
    for i in range(numbers.size):
        into[i] = np.float64(numbers[i]) / by


def _pack_signatures(into: Sequence[Any], *more: Any) -> list[Any]:
    given = readable(types.boolean), types.int64, types.int64
    return [
        types.boolean(readable(values), *given, each, *more)
        for values in (types.int32, types.int64)
        for each in into
    ]


_WHOLE = [types.int8[::1], types.int16[::1], types.int32[::1]]


@compiled(*_pack_signatures([*_WHOLE, types.int64[::1]], types.int64))
def _pack(values: NDArray[Any], valid: Mask, base: int, scale: int, into: NDArray[Any], width: int) -> bool:
    """Write numbers of so many bytes; gives whether all fit."""
    right = np.int64(64 - 8 * width)
    # The bits in which any of them is not what it must be.
    wrong = np.int64(0)
    if scale != 1:
        for i in range(values.size):
            whole = np.int64(values[i]) - base if valid.size == 0 or valid[i] else np.int64(0)
            number = np.int64(np.rint(np.float64(whole) / np.float64(scale)))
            wrong |= (number << right >> right ^ number) | (number * scale ^ whole)
            into[i] = number
    elif valid.size:
        for i in range(values.size):
            number = np.int64(values[i]) - base if valid[i] else np.int64(0)
            wrong |= number << right >> right ^ number
            into[i] = number
    else:
        for i in range(values.size):
            number = np.int64(values[i]) - base
            wrong |= number << right >> right ^ number
            into[i] = number
    return bool(wrong == 0)


@compiled(*_pack_signatures(_WHOLE))
def pack(values: NDArray[Any], valid: Mask, base: int, scale: int, into: NDArray[Any]) -> bool:
    """Write narrower numbers; see `plain.pack`."""
    for start in range(0, values.size, _CHUNK):
        some = slice(start, start + _CHUNK)
        if not _pack(values[some], valid[some], base, scale, into[some], into.itemsize):
            return False
    return True


@compiled(*_pack_signatures([types.uint8[:, ::1]]))
def pack_bytes(values: NDArray[Any], valid: Mask, base: int, scale: int, into: U8) -> bool:
    """Write numbers in some bytes each; see `plain.pack_bytes`."""
    packed, width = into.reshape(-1), into.shape[1]
    numbers = np.empty(_CHUNK, np.int64)
    words = numbers.view(np.uint8)
    for start in range(0, values.size, _CHUNK):
        some = slice(start, start + _CHUNK)
        if not _pack(values[some], valid[some], base, scale, numbers, width):
            return False
        for i in range(values[some].size):
            at = (start + i) * width
            if at + 8 <= packed.size:
                # What is written too much is the next one's.
                copy_word(packed, at, words, 8 * i)
            else:
                packed[at : at + width] = words[8 * i : 8 * i + width]
    return True


@compiled(*[f"void(uint8[:, ::1], int64, int64, {wide}[::1])" for wide in _WIDE])
def widen_bytes(numbers: U8, base: int, scale: int, into: NDArray[Any]) -> None:
    """Give numbers of some bytes as the values they stand for; see `plain.widen_bytes`."""
    packed, width = numbers.reshape(-1), numbers.shape[1]
    left, right = np.uint64(64 - 8 * width), np.int64(64 - 8 * width)
    # Of the last ones less than eight bytes can be read.
    n_whole = (packed.size - 8) // width + 1 if packed.size >= 8 else 0
    for i in range(n_whole):
        into[i] = (np.int64(load_word(packed, i * width) << left) >> right) * scale + base
    for i in range(n_whole, into.size):
        into[i] = (np.int64(load_bytes(packed, i * width, width) << left) >> right) * scale + base


@compiled(*[f"void(uint8[:, ::1], int64[::1], int64, int64, {wide}[::1])" for wide in _WIDE])
def take_bytes(numbers: U8, rows: I64, base: int, scale: int, into: NDArray[Any]) -> None:
    """Give some of the numbers of some bytes; see `plain.take_bytes`."""
    packed, width = numbers.reshape(-1), numbers.shape[1]
    left, right = np.uint64(64 - 8 * width), np.int64(64 - 8 * width)
    for i in range(into.size):
        word = load_bytes(packed, rows[i] * width, width)
        into[i] = (np.int64(word << left) >> right) * scale + base
