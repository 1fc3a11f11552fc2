"""Types both ways: what a column is in Spark, and what a Spark column can be here.

Rules of the file: nothing is converted, only named and compared. A type that is
none here is refused with what takes its place. A frame's column fits a table's
if every value of its type is a value of the other's: anything narrower would
fail some rows in the middle of a load.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crescando.errors import SpecError, TypeMismatchError, UnknownColumnError
from crescando.schema import DIGITS_MAX, ColumnDef, DataType, HashPartition, Partition, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import types as spark

_NAMES = {
    DataType.BOOL: "BooleanType",
    DataType.INT8: "ByteType",
    DataType.INT16: "ShortType",
    DataType.INT32: "IntegerType",
    DataType.INT64: "LongType",
    DataType.FLOAT32: "FloatType",
    DataType.FLOAT64: "DoubleType",
    DataType.STRING: "StringType",
    DataType.BYTES: "BinaryType",
    DataType.DATE: "DateType",
    DataType.TIMESTAMP: "TimestampType",
}
"""Classes of `pyspark.sql.types`; by name, since old versions lack some of those that are refused."""

_TYPES = {name: kind for kind, name in _NAMES.items()}

_NESTED = (
    "is nested: give its parts columns of their own (df.select('{0}.*')), its elements rows of their own "
    "(explode), or store its text (to_json)"
)

_INSTEAD = {
    "ArrayType": _NESTED,
    "MapType": _NESTED,
    "StructType": _NESTED,
    "VariantType": "is nested: store its text (to_json), or extract columns from it (variant_get)",
    "TimestampNTZType": "has no zone, and is no instant: say which zone it is of "
    "(to_utc_timestamp after cast('timestamp') in a session of UTC), or store its text",
    "TimeType": "is no column type: store microseconds as a bigint, or its text",
    "DayTimeIntervalType": "is no column type: store its microseconds as a bigint",
    "YearMonthIntervalType": "is no column type: store its months as an int",
    "CalendarIntervalType": "is no column type: store its text",
    "NullType": "has no type: cast it, as in lit(None).cast('string')",
}


def spark_type(kind: DataType) -> spark.DataType:
    """Give the type of a column as Spark has it."""
    from pyspark.sql import types as spark

    if kind.is_decimal:
        return spark.DecimalType(kind.precision, kind.scale)
    made: spark.DataType = getattr(spark, _NAMES[kind])()
    return made


def spark_schema(table: TableSchema, columns: Iterable[str] | None = None) -> spark.StructType:
    """Give a table's columns, or some of them in the order given, as a frame has them.

    Raises
    ------
    UnknownColumnError
        With the nearest name.
    """
    from pyspark.sql import types as spark

    names = table.column_names if columns is None else tuple(columns)
    definitions = [table.column(name) for name in names]
    return spark.StructType(
        [spark.StructField(each.name, spark_type(each.type), each.nullable) for each in definitions]
    )


def data_type(kind: spark.DataType, column: str) -> DataType:
    """Give the type here of a Spark type.

    Raises
    ------
    TypeMismatchError
        Naming the column and the substitute, if there is none.
    """
    name = type(kind).__name__
    if name == "DecimalType":
        precision, scale = int(kind.precision), int(kind.scale)  # type: ignore[attr-defined]
        if precision > DIGITS_MAX or not 0 <= scale <= precision:
            fitting = f"decimal({DIGITS_MAX},{max(0, min(scale, DIGITS_MAX))})"
            raise TypeMismatchError(
                f"column {column!r} is {kind.simpleString()}, and a decimal has at most {DIGITS_MAX} digits, "
                f"none of them before the first: cast it to {fitting}, or to double or string"
            )
        return DataType.decimal(precision, scale)
    if name in ("CharType", "VarcharType"):
        return DataType.STRING
    # Written without a collation in old versions, and as its name in new ones.
    if name == "StringType" and kind.simpleString() != "string":
        raise TypeMismatchError(
            f"column {column!r} is {kind.simpleString()}, and texts are compared by code point: "
            "cast it to string, which is of the collation UTF8_BINARY"
        )
    found = _TYPES.get(name)
    if found is None:
        instead = _INSTEAD.get(name, "is no column type: cast it to one, or store its text")
        raise TypeMismatchError(f"column {column!r}: {kind.simpleString()} {instead.format(column)}")
    return found


def table_schema(
    name: str,
    frame: Any,
    *,
    primary_key: str | Iterable[str] = (),
    partition_key: str | None = None,
    partition: Partition | None = None,
) -> TableSchema:
    """Give the schema of a table for the rows of a Spark frame; ``store.create_table`` makes it.

    Parameters
    ----------
    name : str
    frame : DataFrame or StructType
    primary_key : str or iterable of str
    partition_key : str, optional
        By default the first column of the primary key.
    partition : HashPartition or RangePartition, optional

    Raises
    ------
    TypeMismatchError
        If a column's type is none here; it names the substitute.
    SpecError
        If there is no key, or it is no column.
    """
    fields = getattr(frame, "schema", frame).fields
    keys = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key)
    if partition_key is None:
        if not keys:
            raise SpecError("a table needs a partition key: say partition_key, or primary_key")
        partition_key = keys[0]
    required = {partition_key, *keys}
    made = TableSchema(
        name,
        tuple(
            ColumnDef(field.name, data_type(field.dataType, field.name), field.name not in required)
            for field in fields
        ),
        partition_key=partition_key,
        primary_key=keys,
        partition=HashPartition() if partition is None else partition,
    )
    made.validate()
    return made


def fits(source: DataType, target: DataType) -> bool:
    """Say whether every value of one type is a value of the other."""
    if source is target:
        return True
    if source.is_integer and target.is_integer:
        return _bits(source) <= _bits(target)
    if source.is_decimal and target.is_decimal:
        return target.scale >= source.scale and (
            target.precision - target.scale >= source.precision - source.scale
        )
    return source is DataType.FLOAT32 and target is DataType.FLOAT64


def _bits(kind: DataType) -> int:
    return int(kind.value.removeprefix("int"))


def check_read(asked: spark.StructType, table: TableSchema) -> tuple[str, ...]:
    """Check the schema that a user gives to a read, and give its columns.

    Raises
    ------
    UnknownColumnError, TypeMismatchError
        Naming the first column that is not as in the table.
    """
    for field in asked.fields:
        definition = table.column(field.name)
        kind = spark_type(definition.type)
        if field.dataType != kind:
            raise TypeMismatchError(
                f"column {field.name!r} of table {table.name!r} is {kind.simpleString()}, and the schema of "
                f"the read says {field.dataType.simpleString()}: read it as it is, and cast it in Spark"
            )
        if definition.nullable and not field.nullable:
            # Spark would leave out what looks for NULL, and give other rows.
            raise TypeMismatchError(
                f"column {field.name!r} of table {table.name!r} may be NULL, and the schema of the read says "
                "NOT NULL: leave that out"
            )
    names = [field.name for field in asked.fields]
    for name in names:
        if names.count(name) > 1:
            raise TypeMismatchError(f"the schema of the read has two columns {name!r}")
    return tuple(names)


def check_write(
    frame: spark.StructType, table: TableSchema, write: str, columns: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Check a frame against the table it is to be written to, and give the columns to write.

    Spark itself does not compare a frame with what a source says of itself.

    Parameters
    ----------
    frame : StructType
    table : TableSchema
    write : str
        ``insert``, ``upsert``, ``update``, ``delete`` or ``overwrite``.
    columns : tuple of str or None
        Those that the frame is meant to have; None for what `write` needs: all of them, the keys
        alone for ``delete``, and for ``update`` whatever the frame has beside the keys.

    Raises
    ------
    UnknownColumnError
        For a column that the table does not have.
    TypeMismatchError
        For one that is missing, too many, twice or of another type.
    """
    names = [field.name for field in frame.fields]
    for name in names:
        if names.count(name) > 1:
            raise TypeMismatchError(f"the frame has two columns {name!r}; rename or drop one of them")
    keys = table.primary_key or (table.partition_key,)
    if write in ("upsert", "update", "delete") and not table.primary_key:
        raise TypeMismatchError(
            f"table {table.name!r} has no primary key, and {write} finds rows by it; insert or overwrite"
        )
    if columns is not None:
        for name in columns:
            table.column(name)
        wanted = columns
    elif write == "delete":
        wanted = keys
    elif write == "update":
        wanted = tuple(name for name in table.column_names if name in names or name in keys)
    else:
        wanted = table.column_names
    required = {*keys, table.partition_key}
    if write in ("insert", "overwrite"):
        required |= {each.name for each in table.columns if not each.nullable}
    for name in table.column_names:
        if name in required and name not in wanted:
            raise TypeMismatchError(
                f"column {name!r} of table {table.name!r} is needed to {write} rows, "
                "and is none of those named"
            )
    _check_names(names, wanted, table, write)
    if write == "update" and set(wanted) == set(keys):
        raise TypeMismatchError(
            f"the frame has only the keys of table {table.name!r}, so there is nothing to update; "
            "give the columns that are to change"
        )
    for field in frame.fields:
        definition, kind = table.column(field.name), data_type(field.dataType, field.name)
        if not fits(kind, definition.type):
            meant = spark_type(definition.type).simpleString()
            raise TypeMismatchError(
                f"column {field.name!r} of the frame is {field.dataType.simpleString()}, and of table "
                f"{table.name!r} it is {meant}: cast it, as in col({field.name!r}).cast({meant!r})"
            )
    return tuple(name for name in table.column_names if name in wanted)


def _check_names(names: list[str], wanted: tuple[str, ...], table: TableSchema, write: str) -> None:
    for name in names:
        if name not in wanted:
            if name not in table.column_names:
                raise UnknownColumnError(name, table.name, table.column_names)
            raise TypeMismatchError(
                f"the frame has column {name!r}, which is not to be written ({write}): drop it"
            )
    for name in wanted:
        if name not in names:
            near = " (names are compared with their case)" if name.lower() in map(str.lower, names) else ""
            raise TypeMismatchError(
                f"the frame has no column {name!r}, which table {table.name!r} has{near}; add it, or name "
                "the columns that are to be written in the option columns"
            )
