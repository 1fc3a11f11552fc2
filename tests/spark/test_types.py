"""Types both ways: each is itself after a round trip, and what is none is refused with its substitute."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas import types as pandas_types

from crescando.errors import SpecError, TypeMismatchError, UnknownColumnError
from crescando.schema import DECIMALS, ColumnDef, DataType, TableSchema
from crescando.spark.reading import arrow_schema
from crescando.spark.types import (
    check_read,
    check_write,
    data_type,
    fits,
    spark_schema,
    spark_type,
    table_schema,
)

ALL = (*DataType, *DECIMALS)

EXPECTED = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
    "date": "date",
    "timestamp": "timestamp",
}

TABLE = TableSchema(
    "flights",
    (
        ColumnDef("id", DataType.INT32, nullable=False),
        ColumnDef("origin", DataType.STRING),
        ColumnDef("seats", DataType.INT64, nullable=False),
        ColumnDef("fare", DataType.decimal(9, 2)),
    ),
    partition_key="id",
    primary_key=("id",),
)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.value)
def test_each_type_is_itself_after_a_round_trip(kind: DataType) -> None:
    there = spark_type(kind)
    assert there.simpleString() == EXPECTED.get(kind.value, kind.value)
    assert data_type(there, "x") is kind


REFUSED = [
    (spark.ArrayType(spark.LongType()), "explode"),
    (spark.MapType(spark.StringType(), spark.LongType()), "to_json"),
    (spark.StructType([spark.StructField("a", spark.LongType())]), r"select\('x\.\*'\)"),
    (spark.TimestampNTZType(), "has no zone"),
    (spark.DayTimeIntervalType(), "microseconds as a bigint"),
    (spark.YearMonthIntervalType(), "months as an int"),
    (spark.NullType(), r"lit\(None\)\.cast"),
    (spark.VariantType(), "variant_get"),
    (spark.TimeType(), "microseconds as a bigint"),
    (spark.DecimalType(19, 2), r"cast it to decimal\(18,2\)"),
    (spark.DecimalType(38, 38), r"cast it to decimal\(18,18\)"),
    (spark.StringType("UTF8_LCASE"), "UTF8_BINARY"),
]


@pytest.mark.parametrize(("kind", "mend"), REFUSED, ids=lambda each: str(each)[:12])
def test_what_is_no_type_is_refused_with_its_substitute(kind: spark.DataType, mend: str) -> None:
    with pytest.raises(TypeMismatchError, match=mend) as told:
        data_type(kind, "x")
    assert "'x'" in str(told.value)
    assert "\n" not in str(told.value)


def test_text_of_declared_length_is_text() -> None:
    assert data_type(spark.VarcharType(3), "x") is DataType.STRING


def test_a_type_fits_another_if_all_of_its_values_do() -> None:
    """Against the values themselves: the widest of each type, and the finest."""
    numbers = [kind for kind in ALL if kind.is_exact]
    for source, target in product(numbers, numbers):
        if source.is_integer != target.is_integer:
            assert not fits(source, target)
            continue
        assert fits(source, target) == (
            _largest(source) <= _largest(target) and source.scale <= target.scale
        ), (source, target)
    assert fits(DataType.FLOAT32, DataType.FLOAT64)
    assert not fits(DataType.FLOAT64, DataType.FLOAT32)
    assert not fits(DataType.INT32, DataType.FLOAT64)
    assert not fits(DataType.DATE, DataType.TIMESTAMP)


def _largest(kind: DataType) -> int:
    """The largest whole number below which all of a type's values lie."""
    if kind.is_decimal:
        return int(10 ** (kind.precision - kind.scale))
    return int(2 ** (int(kind.value.removeprefix("int")) - 1))


def frame(**types: Any) -> spark.StructType:
    schema = spark.StructType()
    for name, kind in types.items():
        schema = schema.add(name, "integer" if kind == "int" else kind)
    return schema


GOOD = {"id": "int", "origin": "string", "seats": "long", "fare": "decimal(9,2)"}


def test_a_frame_of_the_tables_columns_in_any_order_is_written() -> None:
    turned = dict(reversed(GOOD.items()))
    assert check_write(frame(**turned), TABLE, "insert", None) == ("id", "origin", "seats", "fare")
    assert check_write(frame(**GOOD), TABLE, "overwrite", None) == ("id", "origin", "seats", "fare")
    assert check_write(frame(**{**GOOD, "id": "short", "fare": "decimal(5,1)"}), TABLE, "insert", None)
    assert check_write(frame(id="int", fare="decimal(9,2)"), TABLE, "update", None) == ("id", "fare")
    assert check_write(frame(id="int"), TABLE, "delete", None) == ("id",)
    assert check_write(frame(id="int", seats="long"), TABLE, "insert", ("id", "seats")) == ("id", "seats")
    assert check_write(frame(id="int", fare="decimal(9,2)"), TABLE, "upsert", ("id", "fare"))


@pytest.mark.parametrize(
    ("types", "write", "columns", "error", "text"),
    [
        ({**GOOD, "orign": "string"}, "insert", None, UnknownColumnError, "did you mean 'origin'"),
        ({"id": "int"}, "insert", None, TypeMismatchError, "the frame has no column 'origin'"),
        ({"id": "int", "ORIGIN": "string"}, "insert", None, UnknownColumnError, "'ORIGIN'"),
        ({**GOOD, "seats": "double"}, "insert", None, TypeMismatchError, r"col\('seats'\)\.cast\('bigint'\)"),
        ({**GOOD, "seats": "decimal(9,0)"}, "insert", None, TypeMismatchError, "it is bigint"),
        (
            {**GOOD, "id": "long"},
            "insert",
            None,
            TypeMismatchError,
            "is bigint, and of table 'flights' it is int",
        ),
        (
            {**GOOD, "origin": spark.ArrayType(spark.StringType())},
            "insert",
            None,
            TypeMismatchError,
            "is nested",
        ),
        ({**GOOD, "origin": "timestamp_ntz"}, "insert", None, TypeMismatchError, "has no zone"),
        ({"origin": "string"}, "update", None, TypeMismatchError, "no column 'id'"),
        ({"id": "int"}, "update", None, TypeMismatchError, "nothing to update"),
        (GOOD, "delete", None, TypeMismatchError, "'origin', which is not to be written"),
        ({"id": "int"}, "insert", ("id",), TypeMismatchError, "column 'seats' of table 'flights' is needed"),
        (GOOD, "insert", ("id", "seats"), TypeMismatchError, "'origin', which is not to be written"),
        (GOOD, "insert", ("id", "sets"), UnknownColumnError, "did you mean 'seats'"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_anything_is_sent(
    types: dict[str, Any], write: str, columns: tuple[str, ...] | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as told:
        check_write(frame(**types), TABLE, write, columns)
    assert "\n" not in str(told.value)


def test_a_frame_with_a_column_twice_is_refused() -> None:
    twice = frame(**GOOD).add("id", "integer")
    with pytest.raises(TypeMismatchError, match="two columns 'id'"):
        check_write(twice, TABLE, "insert", None)
    with pytest.raises(TypeMismatchError, match="two columns 'id'"):
        check_read(twice, TABLE)


def test_rows_without_a_primary_key_cannot_be_found_by_it() -> None:
    keyless = TableSchema("log", (ColumnDef("at", DataType.INT64, nullable=False),), partition_key="at")
    assert check_write(frame(at="long"), keyless, "insert", None) == ("at",)
    with pytest.raises(TypeMismatchError, match="has no primary key"):
        check_write(frame(at="long"), keyless, "delete", None)


def test_a_read_takes_the_columns_that_its_schema_names() -> None:
    assert check_read(frame(seats="long", id="int"), TABLE) == ("seats", "id")
    with pytest.raises(UnknownColumnError, match="did you mean 'seats'"):
        check_read(frame(seat="long"), TABLE)
    with pytest.raises(TypeMismatchError, match="is bigint, and the schema of the read says int"):
        check_read(frame(seats="int"), TABLE)


def test_a_read_is_not_told_that_nothing_is_null() -> None:
    """Spark would believe it, and take conditions for true or false that are not."""
    strict = spark.StructType().add("id", "integer", False)
    assert check_read(strict, TABLE) == ("id",)
    with pytest.raises(TypeMismatchError, match=r"column 'origin' .* may be NULL, .* NOT NULL"):
        check_read(strict.add("origin", "string", False), TABLE)


def test_arrow_types_are_the_same_for_old_versions_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 4 it could not be told of zones, and took UTC."""
    asked = frame(id="int", departs="timestamp")
    now = arrow_schema(asked)
    assert str(now.field("departs").type) == "timestamp[us, tz=UTC]"
    monkeypatch.setattr(pandas_types, "to_arrow_schema", lambda schema: ("old", schema))
    assert arrow_schema(asked) == ("old", asked)


def test_a_table_is_made_for_a_frame() -> None:
    made = table_schema("flights", frame(**GOOD), primary_key="id")
    assert [(each.name, each.type) for each in made.columns] == [
        (each.name, each.type) for each in TABLE.columns
    ]
    assert [each.nullable for each in made.columns] == [False, True, True, True]
    assert spark_schema(made).simpleString() == "struct<id:int,origin:string,seats:bigint,fare:decimal(9,2)>"
    assert spark_schema(made, ("fare", "id")).fieldNames() == ["fare", "id"]
    with pytest.raises(SpecError, match="needs a partition key"):
        table_schema("flights", frame(**GOOD))
    with pytest.raises(UnknownColumnError):
        table_schema("flights", frame(**GOOD), primary_key="idd")
