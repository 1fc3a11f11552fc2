"""Calls and their parameters read out of many payloads at once, column by column.

Rules of the file: what an honest client writes is understood, which is the shortest
encoding of each value (`encode_call`); of everything else None is told, and it is decoded
one by one. No read leaves its own payload unnoticed: every value must begin inside it, and
the last one must end where it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.heap import Texts, offsets_of
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import PHYSICAL, Column, Kind, Shape
from crescando.engine.validate import parameters_of
from crescando.errors import TypeMismatchError
from crescando.schema import DataType

U8 = NDArray[np.uint8]

SHAPES_MAX = 0x80
"""Numbers of shapes that are understood: those of one byte."""

PARAMETERS_MAX = 64
"""Operations of more are not read column by column: it saves nothing where each has few values."""

_PADDING = 16
"""Bytes behind the payloads, so that reading a value's head and number leaves no array."""

_CALL, _NO_MORE_STEPS, _NIL, _FALSE, _TRUE, _FLOAT = 0x93, 0x90, 0xC0, 0xC2, 0xC3, 0xCB

_ODD = 255
"""The width of what is no number, or no text."""


def _table(default: int, *some: tuple[int, int, int]) -> U8:
    """Give a byte for each head, most of them by (first head, last head, byte)."""
    table = np.full(256, default, np.uint8)
    for first, last, byte in some:
        table[first : last + 1] = byte
    return table


# MessagePack: bytes of the number, or of the length, behind a value's head.
_INTEGER = _table(
    _ODD,
    (0x00, 0x7F, 0),
    (0xE0, 0xFF, 0),
    (0xCC, 0xCC, 1),
    (0xCD, 0xCD, 2),
    (0xCE, 0xCE, 4),
    (0xCF, 0xCF, 8),
    (0xD0, 0xD0, 1),
    (0xD1, 0xD1, 2),
    (0xD2, 0xD2, 4),
    (0xD3, 0xD3, 8),
    (_NIL, _NIL, 0),
)
_STRING = _table(_ODD, (0xA0, 0xBF, 0), (0xD9, 0xD9, 1), (0xDA, 0xDA, 2), (0xDB, 0xDB, 4), (_NIL, _NIL, 0))
_BINARY = _table(_ODD, (0xC4, 0xC4, 1), (0xC5, 0xC5, 2), (0xC6, 0xC6, 4), (_NIL, _NIL, 0))

_UINT64 = 0xCF
_SIGNED = 0xD0
"""Heads of signed numbers are this one and the next three."""


@dataclass(slots=True)
class Calls:
    """Single operations, as they lie end to end.

    Attributes
    ----------
    payload : bytes
        All payloads, and padding.
    data : ndarray of uint8
        The same.
    shape : ndarray of int64, shape (n,)
        Numbers of their shapes.
    start, stop : ndarray of int64, shape (n,)
        Where the parameters of each lie.
    """

    payload: bytes
    data: U8
    shape: I64
    start: I64
    stop: I64

    def encoded(self, places: I64) -> list[bytes]:
        """Give the parameters of some calls, as `encode_parameters` wrote them."""
        bounds = zip(self.start[places].tolist(), self.stop[places].tolist(), strict=True)
        return [self.payload[start:stop] for start, stop in bounds]


def read_calls(payload: bytes, offsets: I64) -> Calls | None:
    """Read the calls of a delivery; None if any is no plain single operation.

    Parameters
    ----------
    payload : bytes
    offsets : ndarray of int64, shape (n + 1,)
        Payload i is ``payload[offsets[i]:offsets[i + 1]]``.
    """
    payload += bytes(_PADDING)
    data = np.frombuffer(payload, np.uint8)
    start, end = offsets[:-1], offsets[1:]
    if (end - start < 5).any():
        return None
    shape = data[start + 1]
    size = _sized(data, start + 2, _BINARY)
    if size is None or (data[start] != _CALL).any() or (shape >= SHAPES_MAX).any():
        return None
    begin, length, present = size
    stop = begin + length
    if not present.all() or (stop + 1 != end).any() or (data[stop] != _NO_MORE_STEPS).any():
        return None
    return Calls(payload, data, shape.astype(np.int64), begin, stop)


def read_columns(calls: Calls, places: I64, layout: tuple[DataType, ...]) -> tuple[Column, ...] | None:
    """Read the parameters of some calls; None if any are not of these types.

    Parameters
    ----------
    calls : Calls
    places : ndarray of int64, shape (n,)
        Which of them.
    layout : tuple of DataType
        The types of the parameters.
    """
    data, at, stop = calls.data, calls.start[places], calls.stop[places]
    n = len(layout)
    head = bytes([0x90 | n]) if n < 16 else b"\xdc" + n.to_bytes(2, "big")
    for byte in head:
        if (at >= stop).any() or (data[at] != byte).any():
            return None
        at = at + 1
    columns = []
    for kind in layout:
        if (at >= stop).any():
            return None
        found = _read(data, at, stop, kind)
        if found is None:
            return None
        column, at = found
        columns.append(column)
    return tuple(columns) if (at == stop).all() else None


def _read(data: U8, at: I64, stop: I64, kind: DataType) -> tuple[Column, I64] | None:
    """Read a value of each call, which begins at some place; gives where the next one does, too."""
    if kind.is_textual:
        return _read_texts(data, at, stop, kind)
    head = data[at]
    missing = head == _NIL
    valid = ~missing if missing.any() else None
    if kind is DataType.BOOL:
        is_true = head == _TRUE
        is_odd = ~(is_true | missing | (head == _FALSE))
        return None if is_odd.any() else (Column(kind, is_true, valid), at + 1)
    if kind.is_float:
        return _read_floats(data, at, kind, valid)
    width = _INTEGER[head]
    if (width == _ODD).any():
        return None
    raw = _words(data, at + 1)
    if ((head == _UINT64) & (raw > np.uint64(np.iinfo(np.int64).max))).any():
        return None
    # The number lies in the highest bytes of a word.
    shift = np.where(width == 0, 0, 64 - 8 * width.astype(np.int64))
    signed = (head >= _SIGNED) & (head < 0xE0)
    number = np.where(signed, raw.view(np.int64) >> shift, (raw >> shift.astype(np.uint64)).view(np.int64))
    number = np.where(width == 0, head.view(np.int8), number)
    if valid is not None:
        number[missing] = 0
    physical = PHYSICAL[kind]
    bounds = np.iinfo(physical)
    if len(number) and (int(number.min()) < bounds.min or int(number.max()) > bounds.max):
        return None
    return Column(kind, number.astype(physical), valid), at + 1 + width


def _read_floats(data: U8, at: I64, kind: DataType, valid: Mask | None) -> tuple[Column, I64] | None:
    there = np.ones(len(at), np.bool_) if valid is None else valid
    if (data[at[there]] != _FLOAT).any():
        return None
    number = np.where(there, _words(data, at + 1).view(np.float64), 0.0)
    if kind is DataType.FLOAT32:
        with np.errstate(over="ignore"):
            single = number.astype(np.float32)
        if ((single != number) & ~np.isnan(number)).any():
            return None
        number = single
    return Column(kind, number, valid), at + 1 + 8 * there


def _read_texts(data: U8, at: I64, stop: I64, kind: DataType) -> tuple[Column, I64] | None:
    """Read texts; each gets a code of its own."""
    size = _sized(data, at, _BINARY if kind is DataType.BYTES else _STRING)
    if size is None:
        return None
    start, length, present = size
    if (start + length > stop).any():
        return None
    heap = kernels.active().texts.gather_slices(data, start, length)
    texts = Texts(heap, offsets_of(length), kind is DataType.BYTES)
    try:
        texts.check()
    except TypeMismatchError:
        return None
    codes = np.arange(len(at), dtype=np.int32)
    return Column(kind, codes, None if present.all() else present, texts), start + length


def _sized(data: U8, at: I64, widths: U8) -> tuple[I64, I64, Mask] | None:
    """Give where each text begins, how long it is, and which is not NULL; None if any is no text."""
    head = data[at]
    width = widths[head].astype(np.int64)
    if (width == _ODD).any():
        return None
    present = head != _NIL
    long = (_words(data, at + 1) >> (64 - 8 * np.maximum(width, 1)).astype(np.uint64)).view(np.int64)
    short = np.where(present, head & 0x1F, 0)
    return at + 1 + width, np.where(width == 0, short, long), present


def _words(data: U8, at: I64) -> NDArray[np.uint64]:
    """Give the eight bytes that begin at each place, as big-endian numbers."""
    words: NDArray[Any] = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))
    return words[at].astype(np.uint64)


def layout_of(shape: Shape) -> tuple[DataType, ...] | None:
    """Give the types of a shape's parameters by index, if each is one value of one type."""
    if shape.kind in (Kind.INSERT, Kind.UPSERT):
        return None
    parameters = parameters_of(shape)
    if any(each.many for each in parameters) or len(parameters) > PARAMETERS_MAX:
        return None
    # One that is used as two types is known by its two parameters.
    if [each.index for each in parameters] != list(range(len(parameters))):
        return None
    return tuple(each.type for each in parameters)
