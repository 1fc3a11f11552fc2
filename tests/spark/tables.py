"""A table with a column of every type, and rows that are hard to carry, for both sides."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any

from crescando.schema import ColumnDef, DataType, TableSchema

UTC = datetime.UTC

_numbers = count()


def fresh(prefix: str = "t") -> str:
    """Give a name that no table has."""
    return f"{prefix}{next(_numbers)}"


COLUMNS = (
    ColumnDef("id", DataType.INT64, nullable=False),
    ColumnDef("flag", DataType.BOOL),
    ColumnDef("tiny", DataType.INT8),
    ColumnDef("small", DataType.INT16),
    ColumnDef("medium", DataType.INT32),
    ColumnDef("large", DataType.INT64),
    ColumnDef("single", DataType.FLOAT32),
    ColumnDef("double", DataType.FLOAT64),
    ColumnDef("price", DataType.decimal(18, 4)),
    ColumnDef("name", DataType.STRING),
    ColumnDef("raw", DataType.BYTES),
    ColumnDef("day", DataType.DATE),
    ColumnDef("moment", DataType.TIMESTAMP),
)


def every_type(name: str) -> TableSchema:
    """Give a table with a nullable column of every type beside its key."""
    return TableSchema(name, COLUMNS, partition_key="id", primary_key=("id",))


def keyed(name: str) -> TableSchema:
    """Give a table of a key, a number and a text."""
    return TableSchema(
        name,
        (
            ColumnDef("id", DataType.INT64, nullable=False),
            ColumnDef("amount", DataType.INT64),
            ColumnDef("note", DataType.STRING),
        ),
        partition_key="id",
        primary_key=("id",),
    )


def hard_rows() -> list[dict[str, Any]]:
    """Give rows at the borders of their types, one that is all NULL, and some between."""
    low = {
        "flag": False,
        "tiny": -128,
        "small": -(2**15),
        "medium": -(2**31),
        "large": -(2**63),
        "single": -math.inf,
        "double": -1.7976931348623157e308,
        "price": Decimal("-99999999999999.9999"),
        "name": "",
        "raw": b"",
        "day": datetime.date(1, 1, 1),
        "moment": datetime.datetime(1, 1, 2, tzinfo=UTC),
    }
    high = {
        "flag": True,
        "tiny": 127,
        "small": 2**15 - 1,
        "medium": 2**31 - 1,
        "large": 2**63 - 1,
        "single": math.inf,
        "double": math.nan,
        "price": Decimal("99999999999999.9999"),
        "name": "\U0001f6eb e\u0301 \u0000 \uffff 'x' \\ % _",
        "raw": bytes(range(256)),
        "day": datetime.date(9999, 12, 31),
        "moment": datetime.datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    }
    rows = [low, high, dict.fromkeys(low), *(dict(_between(number)) for number in range(20))]
    return [{"id": number, **row} for number, row in enumerate(rows)]


def _between(number: int) -> Iterator[tuple[str, Any]]:
    if number % 3:
        yield "flag", number % 2 == 0
    yield "tiny", number - 10
    yield "small", 100 * number
    yield "medium", None if number % 5 == 0 else number
    yield "large", number << 40
    yield "single", number / 4
    yield "double", None if number % 7 == 0 else number / 3
    yield "price", Decimal(number) / 8
    yield "name", None if number % 4 == 0 else f"n\u00e4me {number % 6}"
    yield "raw", bytes([number])
    yield "day", datetime.date(2024, 3, 31) + datetime.timedelta(days=number)
    yield (
        "moment",
        datetime.datetime(2024, 3, 31, 0, 30, tzinfo=UTC) + datetime.timedelta(minutes=15 * number),
    )


def comparable(rows: list[Any], names: list[str]) -> list[tuple[Any, ...]]:
    """Give rows of either side as tuples that compare: NaN as text, instants in UTC, by key."""
    return sorted((tuple(_plain(row[name]) for name in names) for row in rows), key=lambda row: row[0])


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        # Spark gives naive times of this process's zone.
        return value.astimezone(UTC)
    return value
