"""Calendar arithmetic equals Python's datetime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine import moments
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from crescando.schema import DataType
from tests.engine import oracle

DAY_PARTS = ["year", "month", "day", "dow"]
CLOCK_PARTS = ["hour", "minute", "second"]


@given(st.integers(DATE_MIN, DATE_MAX))
def test_dates(day: int) -> None:
    data = np.array([day], np.int32)
    for part in DAY_PARTS:
        expected = oracle.calendar(f"extract_{part}", DataType.DATE, day)
        assert moments.extract(part, DataType.DATE, data)[0] == expected
    for unit in ("year", "month"):
        expected = oracle.calendar(f"trunc_{unit}", DataType.DATE, day)
        assert moments.truncate(unit, DataType.DATE, data)[0] == expected


@given(st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX))
def test_timestamps(at: int) -> None:
    data = np.array([at], np.int64)
    for part in DAY_PARTS + CLOCK_PARTS:
        expected = oracle.calendar(f"extract_{part}", DataType.TIMESTAMP, at)
        assert moments.extract(part, DataType.TIMESTAMP, data)[0] == expected
    for unit in ("year", "month", "day", "hour", "minute"):
        expected = oracle.calendar(f"trunc_{unit}", DataType.TIMESTAMP, at)
        assert moments.truncate(unit, DataType.TIMESTAMP, data)[0] == expected


@pytest.mark.parametrize("day", [DATE_MIN, -1, 0, DATE_MAX])
def test_a_date_and_its_midnight(day: int) -> None:
    midnight, errors = moments.to_timestamp(np.array([day], np.int32))
    assert errors is None
    assert moments.to_date(midnight)[0] == day
    assert moments.to_date(midnight + moments.DAY_US - 1)[0] == day


@given(st.integers(DATE_MIN, DATE_MAX), st.integers(-(2**63), 2**63 - 1))
def test_adding_days_stays_in_the_calendar_or_errs(day: int, days: int) -> None:
    moved, errors = moments.add_days(np.array([day], np.int32), np.array([days]))
    if DATE_MIN <= day + days <= DATE_MAX:
        assert errors is None
        assert moved[0] == day + days
    else:
        assert errors is not None
        assert errors[0] != 0
