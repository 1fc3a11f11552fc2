"""Numbers of a segment in fewer bytes than their type has.

Rules of the file: a value is ``base + scale * number`` for a narrower number, and is given
as its type has it by whoever indexes: nobody else knows how it lies in memory. `base` and
`scale` are chosen by the values that come first and say nothing about others: those
that do not fit have the column written anew, in wider numbers at least, so that this
happens a few times at most. Sums wrap round as numbers of the type do. Of floats it is the nearest one to
a narrower number divided by a power of ten, bit by bit, which amounts of money are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.keys import Mask
from crescando.engine.packed import Packed
from crescando.engine.statement import PHYSICAL
from crescando.schema import DataType

Numbers = NDArray[Any]
"""Of a signed integer type, shape (n,); or the lower bytes of such numbers, shape (n, width)."""

_WIDTHS = (1, 2, 3, 4)
"""Bytes that a number may take, of a type that has twice as many: to widen a column costs half as much as
to probe it, or as much (measured), which a quarter of its memory is not worth."""

_WHOLE = {1: np.int8, 2: np.int16, 4: np.int32}
"""Numbers of three bytes lie in bytes."""

_SCALES = (60_000_000, 1_000_000, 1_000, 1)
"""Microseconds in what instants are mostly whole of; each divides the one before."""

_DIVISORS = (-1, -10, -100, -1_000, -10_000)
"""Scales of floats: what numbers are divided by, negated."""


class Narrowed(Packed):
    """Values of one column, known by index as an array's are.

    Attributes
    ----------
    numbers : ndarray
        `Numbers` of all rows.
    base, scale : int
    """

    __slots__ = ("base", "dtype", "numbers", "scale")

    def __init__(self, numbers: Numbers, base: int, scale: int, dtype: np.dtype[Any]) -> None:
        self.numbers = numbers
        self.base = base
        self.scale = scale
        self.dtype = dtype

    def __getitem__(self, rows: NDArray[Any] | slice) -> NDArray[Any]:
        """Give the values of some rows, copied."""
        if isinstance(rows, slice) or self.numbers.ndim == 1:
            numbers = self.numbers[rows]
            values = np.empty(len(numbers), self.dtype)
            self.widen(np.ascontiguousarray(numbers), values)
            return values
        values = np.empty(len(rows), self.dtype if self.scale > 0 else np.int64)
        places = np.ascontiguousarray(rows, np.int64)
        kernels.active().take_bytes(self.numbers, places, self.base, max(self.scale, 1), values)
        return values if self.scale > 0 else _divided(values, self.scale)

    def widen(self, numbers: Numbers, into: NDArray[Any]) -> None:
        """Write the values that some numbers stand for."""
        if self.scale < 0:
            kernels.active().divide(_counted(numbers), -self.scale, into)
        elif numbers.ndim == 2:
            kernels.active().widen_bytes(numbers, self.base, self.scale, into)
        else:
            kernels.active().widen(numbers, self.base, self.scale, into)

    @property
    def width(self) -> int:
        """How many bytes a number takes."""
        return self.numbers.strides[0]

    def parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give the array that it lies in; see `Packed.parts`."""
        return [(self.numbers, self.width * n_rows)]

    def of(self, numbers: Numbers) -> Narrowed:
        """Give other numbers of the same form."""
        return Narrowed(numbers, self.base, self.scale, self.dtype)

    def encode(self, values: NDArray[Any], valid: Mask | None) -> Numbers | None:
        """Give values of the column's type as numbers, or None if one does not fit; any where not `valid`."""
        return _encode(values, valid, self.base, self.scale, self.width)


def _encode(values: NDArray[Any], valid: Mask | None, base: int, scale: int, width: int) -> Numbers | None:
    if scale < 0:
        values = values if valid is None else np.where(valid, values, 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            whole = np.rint(values * -scale).astype(np.int64)
        # By their bits, since zeros have two signs and NaN is no number.
        if not bool((_divided(whole, scale).view(np.int64) == values.view(np.int64)).all()):
            return None
        values, valid, scale = whole, None, 1
    numbers = _fresh(len(values), width)
    mask = NO_MASK if valid is None else np.ascontiguousarray(valid)
    wide = np.ascontiguousarray(values, np.int32 if values.dtype.itemsize < 4 else None)
    pack = kernels.active().pack if numbers.ndim == 1 else kernels.active().pack_bytes
    return numbers if pack(wide, mask, base, scale, numbers) else None


def _fresh(capacity: int, width: int) -> Numbers:
    whole = _WHOLE.get(width)
    return np.empty((capacity, width), np.uint8) if whole is None else np.empty(capacity, whole)


def _counted(numbers: Numbers) -> NDArray[Any]:
    """Give numbers as integers."""
    if numbers.ndim == 1:
        return numbers
    whole = np.empty(len(numbers), np.int64)
    kernels.active().widen_bytes(numbers, 0, 1, whole)
    return whole


def _divided(numbers: NDArray[Any], scale: int) -> NDArray[np.float64]:
    values = np.empty(len(numbers), np.float64)
    kernels.active().divide(numbers, -scale, values)
    return values


def can_narrow(kind: DataType) -> bool:
    """Say whether values of a type may lie in fewer bytes."""
    return kind in _WIDE or kind.is_decimal


_WIDE = (
    DataType.INT16,
    DataType.INT32,
    DataType.INT64,
    DataType.DATE,
    DataType.TIMESTAMP,
    DataType.FLOAT64,
)


def unknown(kind: DataType, capacity: int) -> Narrowed:
    """Give a lane for values of which nothing is known yet."""
    scale = _DIVISORS[0] if kind is DataType.FLOAT64 else 1
    return Narrowed(np.empty(capacity, np.int8), 0, scale, PHYSICAL[kind])


def narrow(
    kind: DataType,
    values: NDArray[Any],
    valid: Mask | None,
    before: Narrowed | None,
    held: NDArray[Any],
    held_valid: Mask | None,
    capacity: int,
) -> Narrowed | None:
    """Give a form for the values that a column has and those that come, with the former in it.

    Parameters
    ----------
    kind : DataType
    values, valid
        Those that come, at least one.
    before : Narrowed, or None
        Of which form the column was, if values of it are held.
    held, held_valid
        Its rows so far, and which of them are not NULL.
    capacity : int
        Of the column.

    Returns
    -------
    Narrowed or None
        None if no narrower type holds them.
    """
    if before is None:
        (base, scales), least = _form(kind, values, valid), 1
    else:
        base, least = before.base, before.width
        every = _SCALES if before.scale > 0 else _DIVISORS
        scales = every[every.index(before.scale) :]
    for scale in scales:
        for width in _WIDTHS:
            if width < least or 2 * width > values.dtype.itemsize:
                continue
            if _encode(values, valid, base, scale, width) is None:
                continue
            known = _encode(held, held_valid, base, scale, width)
            if known is not None:
                numbers = _fresh(capacity, width)
                numbers[: len(known)] = known
                return Narrowed(numbers, base, scale, values.dtype)
    return None


def _form(kind: DataType, values: NDArray[Any], valid: Mask | None) -> tuple[int, tuple[int, ...]]:
    """Give a base amid values, and the scales to be tried."""
    known = values if valid is None else values[valid]
    if len(known) == 0:
        return 0, (_DIVISORS[:1] if kind is DataType.FLOAT64 else (1,))
    if kind is DataType.FLOAT64:
        with np.errstate(invalid="ignore", over="ignore"):
            fits = [bool((np.rint(known * -scale) / -scale == known).all()) for scale in _DIVISORS]
        return 0, (_DIVISORS[fits.index(True) :] if any(fits) else ())
    low, high = int(known.min()), int(known.max())
    if kind is DataType.TIMESTAMP:
        step = next(scale for scale in _SCALES if bool(((known - known.dtype.type(low)) % scale == 0).all()))
        return low + (high - low) // 2 // step * step, _SCALES[_SCALES.index(step) :]
    return low + (high - low) // 2, (1,)
