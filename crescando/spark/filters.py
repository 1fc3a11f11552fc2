"""Filters that Spark pushes down, as predicates of shared scans.

Rules of the file: a filter is taken only if it means the same here as in Spark
for every row, whatever zones the session, the JVM and this process are in; any
other is left to Spark. Both compare as SQL does, with three truth values, NaN
equal to itself and above all else, and text by code point.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import Any

from crescando.client.expression import Expr, col
from crescando.schema import DataType, TableSchema

VALUES_MAX = 10_000
"""Longer lists of IN are left to Spark."""

_COMPARED = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: (column == value).is_true(),
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
}
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}

_PYTHON: dict[DataType, type] = {
    DataType.BOOL: bool,
    DataType.FLOAT32: float,
    DataType.FLOAT64: float,
    DataType.STRING: str,
    DataType.BYTES: bytes,
    DataType.DATE: datetime.date,
    DataType.TIMESTAMP: datetime.datetime,
}


def predicate(pushed: Any, table: TableSchema) -> Expr | None:
    """Give a pushed-down filter as an expression, or None if it is left to Spark.

    Parameters
    ----------
    pushed : pyspark.sql.datasource.Filter
    table : TableSchema
    """
    name = type(pushed).__name__
    if name == "Not":
        child = predicate(pushed.child, table)
        return None if child is None else ~child
    path = pushed.attribute
    if len(path) != 1 or path[0] not in table.column_names:
        return None
    column, kind = col(path[0]), table.column(path[0]).type
    if name == "IsNull":
        return column.is_null()
    if name == "IsNotNull":
        return column.is_not_null()
    if name == "EqualNullSafe" and pushed.value is None:
        return column.is_null()
    if name in _COMPARED:
        return _COMPARED[name](column, pushed.value) if _is_of(kind, pushed.value) else None
    if name == "In":
        values = tuple(pushed.value)
        is_usable = len(values) <= VALUES_MAX and all(each is None or _is_of(kind, each) for each in values)
        return column.isin(values) if is_usable else None
    if name in _PATTERNS:
        # LIKE has no escape here, so that what stands for other text cannot be looked for by it.
        is_plain = kind is DataType.STRING and not set(pushed.value) & set("%_")
        return column.like(_PATTERNS[name].format(pushed.value)) if is_plain else None
    return None


def _is_of(kind: DataType, value: object) -> bool:
    if kind.is_decimal:
        return isinstance(value, Decimal) and value.is_finite()
    if kind is DataType.TIMESTAMP:
        return isinstance(value, datetime.datetime) and value.tzinfo is not None
    return type(value) is _PYTHON.get(kind, int)


def both(predicates: Iterable[Expr | None]) -> Expr | None:
    """Give the conjunction of those that there are; None if there is none."""
    present = [each for each in predicates if each is not None]
    return reduce(lambda left, right: left & right, present) if present else None
