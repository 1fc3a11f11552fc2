"""Filters that are taken, and that are left to Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import datasource as pushed

from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.spark.filters import VALUES_MAX, both, predicate

UTC = datetime.UTC
AT = datetime.datetime(2024, 3, 31, 1, 30, tzinfo=UTC)

TABLE = TableSchema(
    "flights",
    (
        ColumnDef("id", DataType.INT32, nullable=False),
        ColumnDef("origin", DataType.STRING),
        ColumnDef("fare", DataType.decimal(9, 2)),
        ColumnDef("delay", DataType.FLOAT64),
        ColumnDef("day", DataType.DATE),
        ColumnDef("departs", DataType.TIMESTAMP),
        ColumnDef("late", DataType.BOOL),
        ColumnDef("raw", DataType.BYTES),
    ),
    partition_key="id",
    primary_key=("id",),
)

TAKEN = [
    (pushed.EqualTo(("id",), 5), "col('id') == 5"),
    (pushed.EqualNullSafe(("id",), 5), "is_true(col('id') == 5)"),
    (pushed.EqualNullSafe(("id",), None), "is_null(col('id'))"),
    (pushed.GreaterThan(("delay",), 1.5), "col('delay') > 1.5"),
    (pushed.GreaterThanOrEqual(("fare",), Decimal("1.50")), "col('fare') >= "),
    (pushed.LessThan(("departs",), AT), "col('departs') < "),
    (pushed.LessThanOrEqual(("day",), datetime.date(2024, 3, 31)), "col('day') <= "),
    (pushed.EqualTo(("late",), True), "col('late') == True"),
    (pushed.EqualTo(("raw",), b"\x00\xff"), "col('raw') == "),
    (pushed.In(("origin",), ("JFK", None)), "isin"),
    (pushed.IsNull(("origin",)), "is_null"),
    (pushed.IsNotNull(("origin",)), "is_null"),
    (pushed.Not(pushed.EqualTo(("origin",), "JFK")), "~"),
    (pushed.StringStartsWith(("origin",), "J"), "'J%'"),
    (pushed.StringEndsWith(("origin",), "K"), "'%K'"),
    (pushed.StringContains(("origin",), "\\"), "%\\\\\\\\%"),
]


@pytest.mark.parametrize(("given", "text"), TAKEN, ids=lambda each: str(each)[:30])
def test_a_filter_is_taken(given: Any, text: str) -> None:
    found = predicate(given, TABLE)
    assert found is not None
    assert text.replace("\\\\\\\\", "\\\\") in repr(found)


LEFT = [
    pushed.EqualTo(("address", "city"), "x"),
    pushed.EqualTo(("nowhere",), 5),
    pushed.EqualTo(("id",), 5.0),
    pushed.EqualTo(("id",), True),
    pushed.EqualTo(("fare",), 5),
    # A naive time would be read in somebody's zone.
    pushed.EqualTo(("departs",), datetime.datetime(2024, 3, 31)),
    pushed.LessThan(("day",), AT),
    pushed.StringContains(("origin",), "100%"),
    pushed.StringContains(("origin",), "a_b"),
    pushed.Not(pushed.StringContains(("origin",), "a_b")),
    pushed.In(("id",), tuple(range(VALUES_MAX + 1))),
    pushed.In(("id",), (1, "x")),
]


@pytest.mark.parametrize("given", LEFT, ids=lambda each: str(each)[:30])
def test_a_filter_is_left_to_spark(given: Any) -> None:
    assert predicate(given, TABLE) is None


def test_predicates_are_joined() -> None:
    first, second = (predicate(pushed.EqualTo(("id",), number), TABLE) for number in (5, 6))
    assert both([]) is None
    assert both([None, None]) is None
    assert both([first, None]) is first
    assert repr(both([first, None, second])) == "(col('id') == 5) & (col('id') == 6)"
