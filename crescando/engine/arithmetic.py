"""Arithmetic on arrays, with the errors that SQL asks for and no platform's whims.

Rules of the file: only correctly rounded operations (design rule "replicas
must agree"); integers are int64 with checked overflow; a zero divisor is an
error for integers and floats alike. Each function takes arrays whose rows may
hold anything where the caller's rows are NULL or ERROR, and returns data and
the causes it raised; the caller drops causes on such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.functions import Cause
from crescando.engine.keys import Mask
from crescando.engine.values import Errors, raised

Raised = tuple[NDArray[Any], Errors | None]
Array = NDArray[Any]

_SAFE_FACTOR = 1 << 31
_NEAR_LIMIT = (2.0**63 * (1 - 2.0**-50), 2.0**63 * (1 + 2.0**-50))
"""A product is rounded thrice on its way to float64, by 2**-53 each time."""

_INT64_MIN = -(1 << 63)
_EXACT_FLOAT = 1 << 53


def widen(array: Array, real: bool) -> Array:
    """Give operands as int64 or float64."""
    return array.astype(np.float64 if real else np.int64, copy=False)


def add(left: Array, right: Array, real: bool) -> Raised:
    """Give ``left + right``."""
    a, b = widen(left, real), widen(right, real)
    if real:
        return a + b, None
    total = a + b
    return total, raised(((a ^ total) & (b ^ total)) < 0, Cause.OVERFLOW)


def subtract(left: Array, right: Array, real: bool) -> Raised:
    """Give ``left - right``."""
    a, b = widen(left, real), widen(right, real)
    if real:
        return a - b, None
    difference = a - b
    return difference, raised(((a ^ b) & (a ^ difference)) < 0, Cause.OVERFLOW)


def multiply(left: Array, right: Array, real: bool) -> Raised:
    """Give ``left * right``."""
    a, b = widen(left, real), widen(right, real)
    product = a * b
    if real:
        return product, None
    if _is_small(a).all() and _is_small(b).all():
        return product, None
    # The rounded product tells, except close to the limit itself.
    magnitude = np.abs(a.astype(np.float64) * b.astype(np.float64))
    overflow = magnitude > _NEAR_LIMIT[1]
    close = (magnitude >= _NEAR_LIMIT[0]) & ~overflow
    a, b = np.broadcast_to(a, product.shape), np.broadcast_to(b, product.shape)
    for row in close.nonzero()[0].tolist():
        overflow[row] = int(a[row]) * int(b[row]) != int(product[row])
    return product, raised(overflow, Cause.OVERFLOW)


def _is_small(array: Array) -> Mask:
    small: Mask = (array < _SAFE_FACTOR) & (array > -_SAFE_FACTOR)
    return small


def divide(left: Array, right: Array, real: bool) -> Raised:
    """Give SQL's ``left / right``: integers truncate toward zero."""
    a, b = widen(left, real), widen(right, real)
    zero = b == 0
    divisor = np.where(zero, np.ones(1, b.dtype), b)
    error = raised(zero, Cause.DIVISION_BY_ZERO)
    if real:
        return a / divisor, error
    overflow = (a == _INT64_MIN) & (divisor == -1)
    if overflow.any():
        error = merge_causes(error, zero, overflow)
        divisor = np.where(overflow, 1, divisor)
    floor = a // divisor
    inexact = (floor * divisor) != a
    negative = (a < 0) != (divisor < 0)
    return floor + (inexact & negative), error


def floor_divide(left: Array, right: Array, real: bool) -> Raised:
    """Give Python's ``left // right``."""
    a, b = widen(left, real), widen(right, real)
    zero = b == 0
    divisor = np.where(zero, np.ones(1, b.dtype), b)
    error = raised(zero, Cause.DIVISION_BY_ZERO)
    if not real:
        overflow = (a == _INT64_MIN) & (divisor == -1)
        if overflow.any():
            error = merge_causes(error, zero, overflow)
            divisor = np.where(overflow, 1, divisor)
    return np.floor_divide(a, divisor), error


def true_divide(left: Array, right: Array, real: bool) -> Raised:
    """Give Python's ``left / right``, correctly rounded for pairs of integers too."""
    if real:
        return divide(left, right, real)
    a, b = widen(left, False), widen(right, False)
    zero = b == 0
    divisor = np.where(zero, 1, b)
    quotient: Array = a.astype(np.float64) / divisor.astype(np.float64)
    large = (np.abs(a) > _EXACT_FLOAT) | (np.abs(divisor) > _EXACT_FLOAT)
    large |= (a == _INT64_MIN) | (divisor == _INT64_MIN)
    if large.any():
        a, divisor = np.broadcast_to(a, large.shape), np.broadcast_to(divisor, large.shape)
        for row in large.nonzero()[0].tolist():
            quotient[row] = int(a[row]) / int(divisor[row])
    return quotient, raised(zero, Cause.DIVISION_BY_ZERO)


def remainder(left: Array, right: Array, real: bool) -> Raised:
    """Give SQL's ``left % right``, with the dividend's sign; exact, for floats too."""
    a, b = widen(left, real), widen(right, real)
    zero = b == 0
    # A divisor of -1 leaves 0 as 1 does, and cannot trap on the smallest integer.
    replaced = zero if real else zero | (b == -1)
    divisor = np.where(replaced, np.ones(1, b.dtype), b)
    return np.fmod(a, divisor), raised(zero, Cause.DIVISION_BY_ZERO)


def merge_causes(error: Errors | None, zero: Mask, overflow: Mask) -> Errors | None:
    """Give the causes of a division; where both hold, that of the zero divisor."""
    merged = np.where(zero, np.uint8(Cause.DIVISION_BY_ZERO), overflow * np.uint8(Cause.OVERFLOW))
    return merged if error is not None or overflow.any() else None


def negate(array: Array) -> Raised:
    """Give ``-array`` in its own integer type or float64."""
    if array.dtype.kind == "f":
        return -array.astype(np.float64), None
    return -array, raised(array == np.iinfo(array.dtype).min, Cause.OVERFLOW)


def absolute(array: Array) -> Raised:
    """Give the magnitude in its own integer type or float64."""
    if array.dtype.kind == "f":
        return np.abs(array.astype(np.float64)), None
    return np.abs(array), raised(array == np.iinfo(array.dtype).min, Cause.OVERFLOW)


def floor(array: Array) -> Raised:
    """Give the largest whole number not above; integers stay as they are."""
    if array.dtype.kind == "f":
        return np.floor(array.astype(np.float64)), None
    return array, None


BINARY: dict[str, Callable[[Array, Array, bool], Raised]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "div": divide,
    "floordiv": floor_divide,
    "truediv": true_divide,
    "%": remainder,
}

UNARY: dict[str, Callable[[Array], Raised]] = {"neg": negate, "abs": absolute, "floor": floor}


def round_half_away(array: Array, digits: Array | None) -> Raised:
    """Round to decimal digits, ties of the exact binary value away from zero (projections only)."""
    n = len(array) if digits is None else max(len(array), len(digits))
    places = np.zeros(1, np.int64) if digits is None else np.clip(digits.astype(np.int64), -400, 400)
    whole = array.dtype.kind != "f"
    values = np.broadcast_to(array, n).tolist()
    exponents = np.broadcast_to(places, n).tolist()
    context = Context(prec=1200, rounding=ROUND_HALF_UP)
    error = np.zeros(n, np.uint8)
    result = np.zeros(n, array.dtype if whole else np.float64)
    for row, (value, exponent) in enumerate(zip(values, exponents, strict=True)):
        if (whole and exponent >= 0) or value != value or value in (np.inf, -np.inf):
            result[row] = value
            continue
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-exponent), context=context)
        try:
            result[row] = int(rounded) if whole else float(rounded)
        except OverflowError:
            error[row] = Cause.OVERFLOW
    return result, error if error.any() else None
