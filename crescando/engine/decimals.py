"""Exact arithmetic of decimals and integers, and conversion to and from decimals.

Rules of the file: the result of an operator has 18 digits and a scale that its
types alone decide (see `engine.functions`); what needs more is an OVERFLOW of
its row, never a rounded number. Only what says so rounds: casts and ``round``,
ties away from zero, and division, whose result is the float64 nearest to the
quotient. Rows that are NULL or ERROR may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.arithmetic import Raised, add, divide, merge_causes, multiply, subtract
from crescando.engine.functions import Cause
from crescando.engine.keys import I64, Mask
from crescando.engine.scaled import POWERS, UNITS_MAX, floor_to, floor_units, grow_to, round_to, to_floats
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Errors, Value, raised
from crescando.schema import DataType

Array = NDArray[Any]

_EXACT = 1 << 53
_TEXT = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_TEXT_MAX = 400
"""Longer texts are no numbers, as a bound for the cost of reading them."""

_EXPONENT_MAX = 1_000
"""With an exponent from here on, a text of that length is out of every range, or 0."""

_CONTEXT = Context(prec=2_000, rounding=ROUND_HALF_UP)


def binary(op: str, target: DataType, left: Value, right: Value) -> Raised:
    """Apply an operator to two exact numbers of which at least one is a decimal."""
    return _BINARY[op](target, left, right)


def _sum(work: Callable[[Array, Array, bool], Raised]) -> Callable[[DataType, Value, Value], Raised]:
    def run(target: DataType, left: Value, right: Value) -> Raised:
        # Only one of them grows: where it is beyond int64, the other cannot bring the sum back.
        a, a_lost = _grown(left, target.scale)
        b, b_lost = _grown(right, target.scale)
        total, error = work(a, b, False)
        lost = a_lost | b_lost | beyond(total, target)
        if error is not None:
            lost = lost | (error != 0)
        return total, raised(lost, Cause.OVERFLOW)

    return run


def _multiply(target: DataType, left: Value, right: Value) -> Raised:
    product, error = multiply(left.data, right.data, False)
    lost = beyond(product, target)
    return product, raised(lost if error is None else lost | (error != 0), Cause.OVERFLOW)


def _true_divide(target: DataType, left: Value, right: Value) -> Raised:
    scale = max(left.type.scale, right.type.scale)
    a, a_lost = _grown(left, scale)
    b, b_lost = _grown(right, scale)
    zero = b == 0
    divisor = np.where(zero, 1, b)
    quotient: Array = a.astype(np.float64) / divisor.astype(np.float64)
    # Beyond 2**53 an operand may be rounded, and the quotient with it, twice.
    hard = a_lost | b_lost | (a > _EXACT) | (a < -_EXACT) | (divisor > _EXACT) | (divisor < -_EXACT)

    def divided(x: int, y: int) -> float:
        return x / y if y else 0.0

    _by_row(quotient, hard & ~(zero & ~b_lost), left, right, scale, divided)
    return quotient, raised(zero & ~b_lost, Cause.DIVISION_BY_ZERO)


def _floor_divide(target: DataType, left: Value, right: Value) -> Raised:
    scale = max(left.type.scale, right.type.scale)
    a, a_lost = _grown(left, scale)
    b, b_lost = _grown(right, scale)
    zero = (b == 0) & ~b_lost
    overflow = (a == np.iinfo(np.int64).min) & (b == -1)
    floor = np.floor_divide(np.where(overflow, 0, a), np.where(b == 0, 1, b))
    large: Mask = np.zeros(floor.shape, np.bool_)

    def divided(x: int, y: int) -> int:
        return x // y if y else 0

    _by_row(floor, a_lost | b_lost | overflow, left, right, scale, divided, large)
    causes = merge_causes(raised(zero, Cause.DIVISION_BY_ZERO), zero, large | beyond(floor, target))
    return floor, causes


def _remainder(target: DataType, left: Value, right: Value) -> Raised:
    a, a_lost = _grown(left, target.scale)
    b, b_lost = _grown(right, target.scale)
    zero = (b == 0) & ~b_lost
    # A divisor of -1 leaves 0 as 1 does, and cannot trap on the smallest integer.
    rest = np.fmod(a, np.where((b == 0) | (b == -1), 1, b))
    large: Mask = np.zeros(rest.shape, np.bool_)

    def divided(x: int, y: int) -> int:
        if y == 0:
            return 0
        magnitude = abs(x) % abs(y)
        return -magnitude if x < 0 else magnitude

    _by_row(rest, a_lost | b_lost, left, right, target.scale, divided, large)
    causes = merge_causes(raised(zero, Cause.DIVISION_BY_ZERO), zero, large | beyond(rest, target))
    return rest, causes


_BINARY: dict[str, Callable[[DataType, Value, Value], Raised]] = {
    "+": _sum(add),
    "-": _sum(subtract),
    "*": _multiply,
    "div": _true_divide,
    "truediv": _true_divide,
    "floordiv": _floor_divide,
    "%": _remainder,
}


def _by_row(
    result: Array,
    rows: Mask,
    left: Value,
    right: Value,
    scale: int,
    work: Callable[[int, int], Any],
    large: Mask | None = None,
) -> None:
    """Work some rows out one by one, on whole numbers of any size; results beyond int64 are `large`."""
    where = np.broadcast_to(rows, result.shape).nonzero()[0]
    if len(where) == 0:
        return
    a, b = np.broadcast_to(left.data, result.shape), np.broadcast_to(right.data, result.shape)
    left_factor, right_factor = 10 ** (scale - left.type.scale), 10 ** (scale - right.type.scale)
    for row in where.tolist():
        value = work(int(a[row]) * left_factor, int(b[row]) * right_factor)
        if large is not None and abs(value) > UNITS_MAX:
            large[row] = True
        else:
            result[row] = value


def _grown(value: Value, scale: int) -> tuple[I64, Mask]:
    units, too_low, too_high = grow_to(value.data, value.type.scale, scale)
    return units, too_low | too_high


def beyond(units: Array, target: DataType) -> Mask:
    """Give where numbers have more digits than a decimal type."""
    limit = 10**target.precision
    outside: Mask = (units >= limit) | (units <= -limit)
    return outside


def floor(value: Value) -> Raised:
    """Give the largest whole number not above, of scale 0."""
    return floor_to(value.data, value.type.scale, 0)[0], None


def round_half_away(value: Value, digits: Array | None) -> Raised:
    """Round to so many digits after the point (before it, if negative); the scale stays."""
    scale = value.type.scale
    places = np.zeros(1, np.int64) if digits is None else np.clip(digits.astype(np.int64), -400, scale)
    rounded = round_to(value.data, scale, places)
    # Back to the scale: at most one digit more than before, and 10**19 only of what is 0.
    lost = np.minimum(scale - places, 19)
    units = rounded * np.where(lost > 18, 0, POWERS[np.minimum(lost, 18)])
    return units, raised(np.abs(units) > UNITS_MAX, Cause.OVERFLOW)


def to_decimal(value: Value, target: DataType) -> Raised:
    """Convert numbers to a decimal type: ties away from zero, of floats by their exact binary value."""
    if value.type.is_float:
        units, outside = _from_floats(value.data.astype(np.float64), target)
        cause = Cause.INVALID_CONVERSION
    else:
        units, outside = _rescaled(value, target)
        cause = Cause.OUT_OF_RANGE
    outside = outside | beyond(units, target)
    return np.where(outside, 0, units).astype(PHYSICAL[target]), raised(outside, cause)


def _rescaled(value: Value, target: DataType) -> tuple[I64, Mask]:
    if target.scale >= value.type.scale:
        return _grown(value, target.scale)
    units = round_to(value.data, value.type.scale, target.scale)
    return units, np.zeros(units.shape, np.bool_)


def _from_floats(floats: Array, target: DataType) -> tuple[I64, Mask]:
    """Round to units: whole numbers of halves decide, which doubling the float gives exactly."""
    with np.errstate(over="ignore"):
        halves, cut, too_low, too_high = floor_units(floats * 2.0, target.scale)
    # At or above 0, a half rounds up; below 0 it rounds down unless something follows it.
    up = (halves + 1) >> 1
    tie_below = (halves < 0) & (halves & 1 == 1) & ~cut
    return np.where(tie_below, halves >> 1, up), too_low | too_high


def from_decimal(value: Value, target: DataType) -> Raised:
    """Convert decimals to an integer type (digits after the point are cut off) or a float type."""
    if target.is_float:
        floats = to_floats(value.data, value.type.scale)
        return floats.astype(PHYSICAL[target]), None
    bounds = np.iinfo(PHYSICAL[target])
    whole, _ = divide(value.data, np.full(1, 10**value.type.scale), False)
    outside = (whole < bounds.min) | (whole > bounds.max)
    return whole.astype(PHYSICAL[target]), raised(outside, Cause.OUT_OF_RANGE)


def write(units: int, scale: int) -> str:
    """Write a decimal with exactly its digits after the point."""
    if scale == 0:
        return str(units)
    digits = str(abs(units)).rjust(scale + 1, "0")
    return f"{'-' if units < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def read(text: str, target: DataType) -> int | Cause:
    """Read a text as units of a decimal type, rounding ties away from zero, or say why it cannot be."""
    found = None if len(text) > _TEXT_MAX else _TEXT.fullmatch(text)
    if found is None:
        return Cause.INVALID_CONVERSION
    exponent = max(min(int(found[2] or 0), _EXPONENT_MAX), -_EXPONENT_MAX)
    number = Decimal(found[1]).scaleb(exponent + target.scale, _CONTEXT)
    units = int(number.to_integral_value(context=_CONTEXT))
    return units if abs(units) < 10**target.precision else Cause.OUT_OF_RANGE


def digit_errors(kind: DataType, units: Array) -> Errors | None:
    """Mark numbers with more digits than their column's type."""
    return raised(beyond(units, kind), Cause.OUT_OF_RANGE)
