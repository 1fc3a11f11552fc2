"""Values of one type as values of another, with the errors of rows that cannot be.

Rules of the file: exact where the target holds the number; else the error of
its row, or the one rounding that the target type states. Nothing becomes
infinite that was finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.decimals import digit_errors, from_decimal, to_decimal
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Cause
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Errors, Value, raised, with_raised
from crescando.schema import DataType


def convert(value: Value, target: DataType) -> Value:
    """Convert a number to another number type, or pass a value of the same type through.

    Whole numbers are checked against the target's range, floats are rounded
    once to FLOAT32, and a finite number that would become infinite is an error.
    Floats and decimals become integers only if `target` is one, by truncation;
    decimals take as many digits as they have, ties away from zero.
    """
    if value.type is target:
        return value
    source = value.data
    error: Errors | None
    if target.is_decimal:
        data, error = to_decimal(value, target)
    elif value.type.is_decimal:
        data, error = from_decimal(value, target)
    elif target.is_float:
        data, error = _to_float(source, target)
    elif value.type.is_float:
        data, error = _truncate(source, target)
    else:
        bounds = np.iinfo(PHYSICAL[target])
        wide = source.astype(np.int64, copy=False)
        error = raised((wide < bounds.min) | (wide > bounds.max), Cause.OUT_OF_RANGE)
        data = source.astype(PHYSICAL[target])
    return with_raised(value, target, data, error)


def _to_float(source: NDArray[Any], target: DataType) -> tuple[NDArray[Any], Errors | None]:
    with np.errstate(over="ignore"):
        data = source.astype(PHYSICAL[target])
    if target is not DataType.FLOAT32:
        return data, None
    return data, raised(np.isinf(data) & ~np.isinf(source.astype(np.float64)), Cause.OVERFLOW)


def _truncate(source: NDArray[Any], target: DataType) -> tuple[NDArray[Any], Errors | None]:
    bounds = np.iinfo(PHYSICAL[target])
    whole = np.trunc(source.astype(np.float64))
    # -2**63 is a float64; 2**63 - 1 is not, but 2**63 is the first number too large.
    fits = (whole >= float(bounds.min)) & (whole < float(bounds.max // 2 + 1) * 2.0)
    data = np.where(fits, whole, 0.0).astype(PHYSICAL[target])
    return data, raised(~fits, Cause.INVALID_CONVERSION)


def domain_errors(kind: DataType, data: NDArray[Any]) -> Errors | None:
    """Mark physical values that are none of their type's.

    Dates and timestamps end at the years 1 and 9999, decimals at their digits.
    """
    if kind is DataType.DATE:
        return raised((data < DATE_MIN) | (data > DATE_MAX), Cause.OUT_OF_RANGE)
    if kind is DataType.TIMESTAMP:
        return raised((data < TIMESTAMP_MIN) | (data > TIMESTAMP_MAX), Cause.OUT_OF_RANGE)
    return digit_errors(kind, data) if kind.is_decimal else None
