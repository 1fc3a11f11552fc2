"""Dates and timestamps: truncation, parts and arithmetic on days and microseconds.

Rules of the file: proleptic Gregorian calendar, UTC, whole numbers only. Rows
may hold anything where the caller's rows are NULL or ERROR, so nothing here
may trap; results outside the years 1 to 9999 are errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.functions import (
    DATE_MAX,
    DATE_MIN,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    Cause,
)
from crescando.engine.keys import I64
from crescando.engine.values import Errors, raised
from crescando.schema import DataType

DAY_US = 86_400_000_000
_UNIT_US = {"day": DAY_US, "hour": 3_600_000_000, "minute": 60_000_000}

Array = NDArray[Any]
Raised = tuple[Array, Errors | None]


def civil(days: I64) -> tuple[I64, I64, I64]:
    """Give year, month (1-12) and day of month of days since 1970-01-01.

    The year is taken to begin in March, so that the leap day is its last
    (after Hinnant, "chrono-compatible low-level date algorithms").
    """
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + np.where(month_from_march < 10, 3, -9)
    year = year_of_era + era * 400 + (month <= 2)
    return year, month, day


def days_of(year: I64, month: I64) -> I64:
    """Give the days since 1970-01-01 of the first of a month."""
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    month_from_march = month + np.where(month > 2, -3, 9)
    day_of_year = (153 * month_from_march + 2) // 5
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: I64 = era * 146_097 + day_of_era - 719_468
    return days


def _days(kind: DataType, data: Array) -> I64:
    """Give whole days; rows outside the calendar (NULLs) are brought inside it."""
    wide = data.astype(np.int64, copy=False)
    days = wide // DAY_US if kind is DataType.TIMESTAMP else wide
    inside: I64 = np.clip(days, DATE_MIN, DATE_MAX)
    return inside


def truncate(unit: str, kind: DataType, data: Array) -> Array:
    """Give the beginning of the year, month, day, hour or minute."""
    if unit in _UNIT_US:
        wide: I64 = data.astype(np.int64, copy=False)
        return wide - wide % _UNIT_US[unit]
    year, month, _ = civil(_days(kind, data))
    days = days_of(year, month if unit == "month" else np.ones_like(month))
    if kind is DataType.DATE:
        return days.astype(np.int32)
    return days * DAY_US


def extract(part: str, kind: DataType, data: Array) -> I64:
    """Give a part of a date or timestamp; the day of the week counts from Sunday = 0."""
    if part in ("year", "month", "day"):
        return civil(_days(kind, data))[("year", "month", "day").index(part)]
    if part == "dow":
        return (_days(kind, data) + 4) % 7
    seconds: I64 = data.astype(np.int64, copy=False) % DAY_US // 1_000_000
    if part == "hour":
        return seconds // 3_600
    return seconds // 60 % 60 if part == "minute" else seconds % 60


def add_days(dates: Array, days: Array) -> Raised:
    """Give dates moved by whole days."""
    limit = 2 * (DATE_MAX - DATE_MIN)
    moved = dates.astype(np.int64) + np.clip(days.astype(np.int64), -limit, limit)
    outside = (moved < DATE_MIN) | (moved > DATE_MAX)
    return np.where(outside, 0, moved).astype(np.int32), raised(outside, Cause.OUT_OF_RANGE)


def days_between(later: Array, earlier: Array) -> Array:
    """Give the days from `earlier` to `later`."""
    return later.astype(np.int64) - earlier.astype(np.int64)


def to_timestamp(dates: Array) -> Raised:
    """Give the midnight at which dates begin."""
    wide = np.clip(dates.astype(np.int64), DATE_MIN - 1, DATE_MAX + 1) * DAY_US
    return wide, raised((wide < TIMESTAMP_MIN) | (wide > TIMESTAMP_MAX), Cause.OUT_OF_RANGE)


def to_date(timestamps: Array) -> Array:
    """Give the day in UTC on which timestamps lie."""
    return _days(DataType.TIMESTAMP, timestamps).astype(np.int32)
