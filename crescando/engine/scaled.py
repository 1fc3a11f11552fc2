"""Numbers as whole units of ``10**-scale``: exact comparison, rescaling and rounding of arrays.

Rules of the file: everything is exact or correctly rounded, whatever the
numbers; no intermediate result wraps. An integer is a number of scale 0. The
scale of every array is one for all of its rows, and at most 18.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNITS_MAX = 10**18 - 1
"""The greatest magnitude of a decimal, in its units."""

POWERS = np.array([10**power for power in range(19)], np.int64)
"""The powers of ten that int64 holds."""

_INT64_MAX = (1 << 63) - 1
_TWO_63 = 9223372036854775808.0
_EXACT = 1 << 53
"""Every whole number up to this magnitude is a float64."""

_TINY = 2.0**-300
"""Smaller floats lie beside 0 at any scale; larger ones are multiplied without underflow."""

_SPLITTER = float((1 << 27) + 1)


def floor_units(floats: NDArray[Any], scale: int) -> tuple[I64, Mask, Mask, Mask]:
    """Give floats in units, rounded down, exactly.

    Parameters
    ----------
    floats : ndarray of float, shape (n,)
    scale : int

    Returns
    -------
    at : ndarray of int64
        ``floor(floats * 10**scale)``; 0 where that is beyond int64.
    cut : ndarray of bool
        Whether the float lies above ``at``.
    too_low, too_high : ndarray of bool
        Whether it lies beyond int64; NaN is too high.
    """
    wide = floats.astype(np.float64, copy=False)
    factor = float(10**scale)
    with np.errstate(over="ignore", invalid="ignore"):
        product = wide * factor
        too_high = (product >= _TWO_63) | np.isnan(product)
        too_low = product < -_TWO_63
    bounded = np.where(too_high | too_low, 0.0, wide)
    if scale == 0:
        floor = np.floor(bounded)
        return floor.astype(np.int64), bounded > floor, too_low, too_high
    tiny = (np.abs(bounded) < _TINY) & (bounded != 0.0)
    bounded = np.where(tiny, np.copysign(_TINY, bounded), bounded)
    product = bounded * factor
    error = _product_error(bounded, factor, product)
    # The exact product is `whole + more + rest + error`, the last two of them less than 1 together.
    whole, more = np.rint(product), np.rint(error)
    rest, error = product - whole, error - more
    at = whole.astype(np.int64) + more.astype(np.int64) - (rest < -error)
    return at, rest != -error, too_low, too_high


def _product_error(left: F64, right: float, product: F64) -> F64:
    """Give ``left * right - product`` exactly (Dekker 1971)."""
    high = left * _SPLITTER
    high = high - (high - left)
    low = left - high
    top = right * _SPLITTER
    top = top - (top - right)
    bottom = right - top
    error: F64 = ((high * top - product) + high * bottom + low * top) + low * bottom
    return error


def to_floats(units: NDArray[Any], scale: int) -> F64:
    """Give the float64 nearest to each number."""
    if scale == 0:
        return units.astype(np.float64)
    divisor = 10**scale
    floats: F64 = units.astype(np.float64) / float(divisor)
    large = (units > _EXACT) | (units < -_EXACT)
    for row in large.nonzero()[0].tolist():
        floats[row] = int(units[row]) / divisor
    return floats


def compare_floats(units: NDArray[Any], floats: NDArray[Any], scale: int) -> NDArray[np.int8]:
    """Compare numbers with floats exactly: -1, 0 or 1 as the number is below, equal or above."""
    whole = units.astype(np.int64, copy=False)
    at, cut, too_low, too_high = floor_units(floats, scale)
    same = whole == at
    less = (whole < at) | (same & cut) | too_high
    equal = same & ~cut & ~too_high
    return np.where(too_low, 1, np.where(less, -1, np.where(equal, 0, 1))).astype(np.int8)


def compare_units(
    left: NDArray[Any], right: NDArray[Any], left_scale: int, right_scale: int
) -> NDArray[np.int8]:
    """Compare numbers of two scales exactly: -1, 0 or 1 as `left` is below, equal or above."""
    if left_scale > right_scale:
        return -compare_units(right, left, right_scale, left_scale)
    a, b = left.astype(np.int64, copy=False), right.astype(np.int64, copy=False)
    floor, cut = floor_to(b, right_scale, left_scale)
    less = (a < floor) | ((a == floor) & cut)
    return np.where(less, -1, np.where((a == floor) & ~cut, 0, 1)).astype(np.int8)


def floor_to(units: NDArray[Any], scale: int, target: int) -> tuple[I64, Mask]:
    """Round numbers down to a smaller scale; gives them and whether anything was cut."""
    wide = units.astype(np.int64, copy=False)
    step = 10 ** (scale - target)
    floor: I64 = wide // step
    return floor, floor * step != wide


def grow_to(units: NDArray[Any], scale: int, target: int) -> tuple[I64, Mask, Mask]:
    """Give numbers at a larger scale; 0 for those that are too low or too high for int64 there."""
    wide = units.astype(np.int64, copy=False)
    factor = 10 ** (target - scale)
    limit = _INT64_MAX // factor
    too_low, too_high = wide < -limit, wide > limit
    if factor == 1:
        too_low = np.zeros(wide.shape, np.bool_)
    return np.where(too_low | too_high, 0, wide) * factor, too_low, too_high


def round_to(units: NDArray[Any], scale: int, target: NDArray[Any] | int) -> I64:
    """Round numbers to a smaller scale (negative ones: to tens, hundreds …), ties away from zero.

    Parameters
    ----------
    units : ndarray of int64, shape (n,)
        Of at most 18 digits.
    scale : int
    target : int or ndarray of int, shape (n,) or (1,)
        At most `scale`.
    """
    wide = units.astype(np.int64, copy=False)
    steps = np.minimum(scale - np.asarray(target, np.int64), 19)
    # A step of 10**19 is beyond int64, and beyond twice of any number: what it leaves is 0.
    step = POWERS[np.minimum(steps, 18)]
    magnitude = np.abs(wide)
    rounded = np.where(steps > 18, 0, (magnitude + step // 2) // step)
    return np.where(wide < 0, -rounded, rounded)
