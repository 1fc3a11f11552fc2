"""A table's schema from data that is there already.

Rules of the file: a type is taken from the data's own dtype, never from the
look of its values; what has no dtype (lists, object arrays) is judged by the
Python types in it. Unsigned integers get the next wider signed type. Keys are
not nullable, everything else is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from crescando.client.constant import normalise, scale_of
from crescando.client.decimals import decimal_of_arrow
from crescando.client.intake import raw_columns
from crescando.errors import SpecError, TypeMismatchError
from crescando.schema import DIGITS_MAX, ColumnDef, DataType, HashPartition, Partition, TableSchema

_NUMPY: dict[str, DataType] = {
    "bool": DataType.BOOL,
    "int8": DataType.INT8,
    "int16": DataType.INT16,
    "int32": DataType.INT32,
    "int64": DataType.INT64,
    "uint8": DataType.INT16,
    "uint16": DataType.INT32,
    "uint32": DataType.INT64,
    "uint64": DataType.INT64,
    "float16": DataType.FLOAT32,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
}

_PYTHON: tuple[tuple[type, DataType], ...] = (
    (bool, DataType.BOOL),
    (int, DataType.INT64),
    (float, DataType.FLOAT64),
    (Decimal, DataType.decimal(DIGITS_MAX)),
    (str, DataType.STRING),
    (bytes, DataType.BYTES),
    (dt.datetime, DataType.TIMESTAMP),
    (dt.date, DataType.DATE),
)


def schema_from(
    name: str,
    frame: object,
    *,
    partition_key: str | None = None,
    primary_key: str | Sequence[str] = (),
    partition: Partition | None = None,
) -> TableSchema:
    """Give the schema of a table that can hold a frame's rows.

    Parameters
    ----------
    name : str
        Of the table.
    frame : object
        A DataFrame, Arrow table or stream, structured array, dict of columns,
        or dict rows; only its types are looked at.
    partition_key : str, optional
        The first column of the primary key if not given.
    primary_key : str or sequence of str
        Empty for a table whose rows have no key of their own.
    partition : HashPartition or RangePartition, optional
        Hash if not given.

    Raises
    ------
    SpecError
        If the schema is not valid; the text names the mend.
    TypeMismatchError
        If a column's type cannot be told, or has no equal here.
    """
    keys = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key)
    if partition_key is None:
        if not keys:
            raise SpecError(
                "name the partition key: partition_key='…' (or a primary key, whose first column serves)"
            )
        partition_key = keys[0]
    raw = raw_columns(frame)
    required = {partition_key, *keys}
    columns = tuple(
        ColumnDef(column, infer_type(column, values), column not in required)
        for column, values in raw.items()
    )
    schema = TableSchema(name, columns, partition_key, keys, partition or HashPartition())
    schema.validate()
    return schema


def infer_type(name: str, values: Any) -> DataType:
    """Give the type of a column's values, in any of the forms that rows come in.

    Raises
    ------
    TypeMismatchError
        Naming the column and what to do.
    """
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _from_dtype(name, dtype, values)
    if dtype is not None and not isinstance(values, (list, tuple)):
        return _from_extension(name, dtype, values)
    if hasattr(values, "type") and type(values).__module__.startswith("pyarrow"):
        return _from_arrow(name, values.type)
    return _from_objects(name, values)


def _from_dtype(name: str, dtype: np.dtype[Any], values: Any) -> DataType:
    if dtype.kind in "OUT":
        return DataType.STRING if dtype.kind in "UT" else _from_objects(name, _present(values))
    if dtype.kind == "M":
        is_day = np.datetime_data(dtype)[0] in ("Y", "M", "W", "D")
        if not is_day and not isinstance(values, np.ndarray):
            raise TypeMismatchError(
                f"column {name!r}: {dtype} is naive; give it a zone with .dt.tz_localize('UTC'), "
                "or take the day with .dt.date"
            )
        return DataType.DATE if is_day else DataType.TIMESTAMP
    found = _NUMPY.get(dtype.name)
    if found is None:
        raise TypeMismatchError(f"column {name!r}: {dtype} has no equal among the column types; convert it")
    return found


def _from_extension(name: str, dtype: Any, values: Any) -> DataType:
    kind = type(dtype).__name__
    if kind == "CategoricalDtype":
        return infer_type(name, dtype.categories)
    if kind == "DatetimeTZDtype":
        return DataType.TIMESTAMP
    if kind == "ArrowDtype":
        return _from_arrow(name, dtype.pyarrow_dtype)
    if kind == "StringDtype":
        return DataType.STRING
    plain = getattr(dtype, "numpy_dtype", None)
    if isinstance(plain, np.dtype) and plain.name in _NUMPY:
        return _NUMPY[plain.name]
    return _from_objects(name, _present(values))


def _from_arrow(name: str, kind: Any) -> DataType:
    from crescando.client.arrow import pyarrow

    types = pyarrow().types
    if types.is_dictionary(kind):
        return _from_arrow(name, kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return DataType.STRING
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return DataType.BYTES
    if types.is_date(kind):
        return DataType.DATE
    if types.is_decimal(kind):
        return decimal_of_arrow(kind, name)
    if types.is_timestamp(kind):
        if kind.tz is None:
            raise TypeMismatchError(
                f"column {name!r}: {kind} is naive; cast it to pa.timestamp('us', tz='UTC')"
            )
        return DataType.TIMESTAMP
    found = _NUMPY.get(
        {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    )
    if found is None:
        raise TypeMismatchError(
            f"column {name!r}: Arrow's {kind} has no equal among the column types; cast it"
        )
    return found


def _present(values: Any) -> list[Any]:
    """Give the values that are not missing, of an object array or Series."""
    listed = values.tolist()
    if hasattr(values, "isna"):
        listed = [
            value for value, is_missing in zip(listed, values.isna().tolist(), strict=True) if not is_missing
        ]
    return list(listed)


def _from_objects(name: str, values: Sequence[Any]) -> DataType:
    found: set[DataType] = set()
    for kind in set(map(type, values)):
        # One value stands for all of its type.
        sample = normalise(next(value for value in values if type(value) is kind))
        if sample is not None:
            found.add(next(each for python, each in _PYTHON if isinstance(sample, python)))
    if found == {DataType.INT64, DataType.FLOAT64}:
        return DataType.FLOAT64
    if any(each.is_decimal for each in found) and found <= {DataType.INT64, DataType.decimal(DIGITS_MAX)}:
        return _from_decimals(name, values)
    if len(found) != 1:
        seen = ", ".join(sorted(each.value for each in found)) or "only NULL"
        raise TypeMismatchError(
            f"the type of column {name!r} cannot be told from {seen}; declare it with ColumnDef"
        )
    return found.pop()


def _from_decimals(name: str, values: Sequence[Any]) -> DataType:
    """Give the decimal of 18 digits whose scale is the longest that any value is written with."""
    scale = max(scale_of(value) for value in values if isinstance(value, Decimal) and value.is_finite())
    if scale > DIGITS_MAX:
        raise TypeMismatchError(
            f"column {name!r} has {scale} digits after the point, more than {DIGITS_MAX}; "
            "round it with .quantize()"
        )
    return DataType.decimal(DIGITS_MAX, scale)
