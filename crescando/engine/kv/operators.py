"""Operators and functions on single values that are not NULL.

Rules of the file: a rule takes plain Python values of the types that its
term's arguments state and gives a value of the term's type (a FLOAT is always
a Python float), or the `Cause` that it fails with. What NULL and ERROR do is
the business of `scalar`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from crescando.engine.decimals import write
from crescando.engine.functions import DATE_MAX, DATE_MIN, TEXT_MAX, Cause
from crescando.engine.statement import Apply
from crescando.engine.texts import like_matcher, parse_text
from crescando.schema import DataType

Rule = Callable[..., Any]

BITS = {DataType.INT8: 8, DataType.INT16: 16, DataType.INT32: 32, DataType.INT64: 64}
DAY_US = 86_400_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_MAX = 400
"""More decimal places, to either side, than any float64 has."""


def is_nan(value: Any) -> bool:
    """Say whether a value is NaN."""
    return isinstance(value, float) and value != value


def number(value: Any, kind: DataType) -> Any:
    """Give a value that is not NULL as the number that it is; only decimals differ from it."""
    return Fraction(value, 10**kind.scale) if kind.is_decimal else value


def canonical(value: Any) -> Any:
    """Give something hashable that is equal exactly where values of one column are."""
    # No text stands where a float may, so that the word cannot be mistaken.
    return "NaN" if is_nan(value) else value


def order(left: Any, right: Any) -> int:
    """Give -1, 0 or 1; NaN equals itself and lies above every number."""
    if left < right:
        return -1
    if left > right:
        return 1
    return is_nan(left) - is_nan(right)


_BY_ORDER: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fits(value: int, kind: DataType) -> bool:
    """Say whether a whole number fits an integer type."""
    half = 1 << (BITS[kind] - 1)
    return -half <= value < half


def widen(value: Any, source: DataType, kind: DataType) -> Any:
    """Give a value as the type that several terms share; only numbers differ, where none is lost."""
    return value if value is None or source is kind else to_number(number(value, source), kind)


def to_number(value: bool | int | float | Fraction, target: DataType) -> Any:
    """Convert a number (see `number`) or a bool to a number type, or say why it cannot be."""
    if target.is_decimal:
        return _to_decimal(value, target)
    if isinstance(value, Fraction):
        value = float(value) if target.is_float else math.trunc(value)
    if target is DataType.FLOAT64:
        return float(value)
    if target is DataType.FLOAT32:
        return _to_float32(value)
    if isinstance(value, float):
        if not math.isfinite(value) or not fits(math.trunc(value), target):
            return Cause.INVALID_CONVERSION
        return math.trunc(value)
    return int(value) if fits(int(value), target) else Cause.OUT_OF_RANGE


def _to_decimal(value: int | float | Fraction, target: DataType) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return Cause.INVALID_CONVERSION
    units = half_away(Fraction(value) * 10**target.scale)
    if abs(units) < 10**target.precision:
        return units
    return Cause.INVALID_CONVERSION if isinstance(value, float) else Cause.OUT_OF_RANGE


def half_away(value: Fraction) -> int:
    """Round to a whole number, ties away from zero."""
    magnitude = math.floor(abs(value) + Fraction(1, 2))
    return -magnitude if value < 0 else magnitude


def _to_float32(value: int | float) -> Any:
    # Through an array scalar of its own type, so that a whole number is rounded once.
    exact = np.float64(value) if isinstance(value, float) else np.int64(value)
    with np.errstate(over="ignore"):
        narrow = float(exact.astype(np.float32))
    if math.isinf(narrow) and not math.isinf(value):
        return Cause.OVERFLOW
    return narrow


def in_calendar(value: int, kind: DataType) -> bool:
    """Say whether a date or timestamp lies in the years 1 to 9999."""
    return DATE_MIN <= (value if kind is DataType.DATE else value // DAY_US) <= DATE_MAX


def rule_of(term: Apply) -> Rule:
    """Give the rule of an operator, applied to values that are neither NULL nor ERROR.

    Of ``is_null``, ``coalesce`` and the like (`scalar.SEES_NULL`), to values that may be NULL.
    """
    op, kinds = term.op, [argument.type for argument in term.args]
    if op in _BY_ORDER:
        return _comparison(op, kinds)
    if op in _BINARY and any(kind.is_decimal for kind in kinds):
        return _on_decimals(op, kinds, term.type)
    if op in _BINARY:
        if op != "truediv" and any(kind.is_float for kind in kinds):
            return _REAL[op]
        return _BINARY[op] if op != "truediv" or all(kind.is_integer for kind in kinds) else _real_div
    if op.startswith("extract_"):
        return _extract(op.removeprefix("extract_"), kinds[0])
    if op.startswith("trunc_"):
        return _truncate(op.removeprefix("trunc_"), kinds[0])
    if op == "cast":
        return _cast(kinds[0], term.type)
    if op in ("neg", "abs"):
        return _magnitude(operator.neg if op == "neg" else abs, term.type)
    if op == "round":
        return _decimal_rounding(term.type) if term.type.is_decimal else _rounding(term.type)
    if op == "floor" and kinds[0].is_decimal:
        return lambda value: value // 10 ** kinds[0].scale
    if op == "coalesce":
        return _coalesce(kinds, term.type)
    if op == "nullif":
        return _nullif(kinds)
    return _PLAIN[op]


def _comparison(op: str, kinds: list[DataType]) -> Rule:
    test, (left, right) = _BY_ORDER[op], kinds
    if left.is_decimal or right.is_decimal:
        return lambda a, b: test(order(number(a, left), number(b, right)), 0)
    if not any(kind.is_float for kind in kinds):
        return test
    return lambda a, b: test(order(a, b), 0)


def _int64(value: int) -> Any:
    return value if fits(value, DataType.INT64) else Cause.OVERFLOW


def _div(a: int, b: int) -> Any:
    if b == 0:
        return Cause.DIVISION_BY_ZERO
    quotient = abs(a) // abs(b)
    return _int64(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder(a: int, b: int) -> Any:
    if b == 0:
        return Cause.DIVISION_BY_ZERO
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _floor_div(a: int, b: int) -> Any:
    return Cause.DIVISION_BY_ZERO if b == 0 else _int64(a // b)


def _true_div(a: int, b: int) -> Any:
    return Cause.DIVISION_BY_ZERO if b == 0 else a / b


def _real_div(a: float, b: float) -> Any:
    return Cause.DIVISION_BY_ZERO if b == 0 else float(a) / float(b)


def _real_floor_div(a: float, b: float) -> Any:
    return Cause.DIVISION_BY_ZERO if b == 0 else float(a) // float(b)


def _real_remainder(a: float, b: float) -> Any:
    if b == 0:
        return Cause.DIVISION_BY_ZERO
    a, b = float(a), float(b)
    return math.nan if math.isinf(a) or is_nan(a) or is_nan(b) else math.fmod(a, b)


_BINARY: dict[str, Rule] = {
    "+": lambda a, b: _int64(a + b),
    "-": lambda a, b: _int64(a - b),
    "*": lambda a, b: _int64(a * b),
    "div": _div,
    "floordiv": _floor_div,
    "truediv": _true_div,
    "%": _remainder,
}

_REAL: dict[str, Rule] = {
    "+": lambda a, b: float(a) + float(b),
    "-": lambda a, b: float(a) - float(b),
    "*": lambda a, b: float(a) * float(b),
    "div": _real_div,
    "floordiv": _real_floor_div,
    "%": _real_remainder,
}


_ON_FRACTIONS: dict[str, Rule] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "floordiv": operator.floordiv,
    "%": lambda a, b: -(-a % abs(b)) if a < 0 else a % abs(b),
}


def _on_decimals(op: str, kinds: list[DataType], target: DataType) -> Rule:
    """Work on exact fractions; beside a float, on floats."""
    left, right = kinds
    if left.is_float or right.is_float:
        real = _real_div if op == "truediv" else _REAL[op]
        return lambda a, b: real(float(number(a, left)), float(number(b, right)))

    def exact(a: int, b: int) -> Any:
        if b == 0 and op not in ("+", "-", "*"):
            return Cause.DIVISION_BY_ZERO
        x, y = Fraction(number(a, left)), Fraction(number(b, right))
        if target.is_float:
            return float(x / y)
        units = int(_ON_FRACTIONS[op](x, y) * 10**target.scale)
        return units if abs(units) < 10**target.precision else Cause.OVERFLOW

    return exact


def _decimal_rounding(kind: DataType) -> Rule:
    def rounded(units: int, digits: int = 0) -> Any:
        step = 10 ** max(kind.scale - max(digits, -_DIGITS_MAX), 0)
        result = half_away(Fraction(units, step)) * step
        return result if abs(result) < 10**kind.precision else Cause.OVERFLOW

    return rounded


def _magnitude(rule: Rule, kind: DataType) -> Rule:
    if kind.is_float or kind.is_decimal:
        return rule

    def checked(value: int) -> Any:
        result = rule(value)
        return result if fits(result, kind) else Cause.OVERFLOW

    return checked


def _floor(value: int | float) -> Any:
    return float(math.floor(value)) if isinstance(value, float) and math.isfinite(value) else value


def _rounding(kind: DataType) -> Rule:
    """Round half away from zero by the exact binary value."""
    context = Context(prec=3 * _DIGITS_MAX, rounding=ROUND_HALF_UP)

    def rounded(value: int | float, digits: int = 0) -> Any:
        digits = max(-_DIGITS_MAX, min(_DIGITS_MAX, digits))
        if kind.is_integer and digits >= 0:
            return value
        if kind.is_float and not math.isfinite(value):
            return value
        result = Decimal(value).quantize(Decimal(1).scaleb(-digits), context=context)
        if kind.is_float:
            return float(result)
        return int(result) if fits(int(result), kind) else Cause.OVERFLOW

    return rounded


def _coalesce(kinds: list[DataType], target: DataType) -> Rule:
    def first(*values: Any) -> Any:
        pairs = zip(values, kinds, strict=True)
        return next((widen(value, kind, target) for value, kind in pairs if value is not None), None)

    return first


def _nullif(kinds: list[DataType]) -> Rule:
    equal = _comparison("=", kinds)

    def unless_equal(left: Any, right: Any) -> Any:
        return None if left is not None and right is not None and equal(left, right) else left

    return unless_equal


def _concat(left: str, right: str) -> Any:
    return left + right if len(left) + len(right) <= TEXT_MAX else Cause.OVERFLOW


def _substr(text: str, start: int, count: int | None = None) -> Any:
    if count is None:
        return text[max(start, 1) - 1 :]
    if count < 0:
        return Cause.INVALID_ARGUMENT
    return text[max(start, 1) - 1 : max(start + count - 1, 0)]


_matcher = lru_cache(maxsize=64)(like_matcher)


def _date_add(day: int, days: int) -> Any:
    return day + days if in_calendar(day + days, DataType.DATE) else Cause.OUT_OF_RANGE


_PLAIN: dict[str, Rule] = {
    "not": operator.not_,
    "is_null": lambda value: value is None,
    "is_unknown": lambda value: value is None,
    "is_true": lambda value: value is True,
    "is_false": lambda value: value is False,
    "floor": _floor,
    "like": lambda text, pattern: _matcher(pattern)(text),
    "concat": _concat,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "substr": _substr,
    "date_add": _date_add,
    "date_diff": operator.sub,
}


def _day(value: int, kind: DataType) -> int:
    """Give whole days; constants outside the calendar count as its nearest end."""
    day = value if kind is DataType.DATE else value // DAY_US
    return max(DATE_MIN, min(DATE_MAX, day))


def _calendar_day(value: int, kind: DataType) -> date:
    return date.fromordinal(_day(value, kind) + _EPOCH.toordinal())


def _extract(part: str, kind: DataType) -> Rule:
    if part == "dow":
        return lambda value: _calendar_day(value, kind).isoweekday() % 7
    if part in ("year", "month", "day"):
        return lambda value: getattr(_calendar_day(value, kind), part)
    unit, base = {"hour": (3_600, 24), "minute": (60, 60), "second": (1, 60)}[part]
    return lambda value: value // 1_000_000 // unit % base


def _truncate(unit: str, kind: DataType) -> Rule:
    if unit in ("year", "month"):

        def to_first(value: int) -> int:
            day = _calendar_day(value, kind)
            first = day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)
            days = first.toordinal() - _EPOCH.toordinal()
            return days if kind is DataType.DATE else days * DAY_US

        return to_first
    spans = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}
    step = spans[unit] // timedelta(microseconds=1)
    return lambda value: value - value % step


def _cast(source: DataType, target: DataType) -> Rule:
    if source is target:
        return lambda value: value
    if source is DataType.STRING:
        return lambda text: parse_text(text, target)
    if target is DataType.STRING:
        return lambda value: write(value, source.scale)
    if target is DataType.TIMESTAMP:
        return lambda day: day * DAY_US if in_calendar(day, DataType.DATE) else Cause.OUT_OF_RANGE
    if target is DataType.DATE:
        return lambda value: _day(value, DataType.TIMESTAMP)
    return lambda value: to_number(number(value, source), target)
