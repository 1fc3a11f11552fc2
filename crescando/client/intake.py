"""Rows in whatever form users have them, as typed columns of a table.

Taken: one dict, an iterable of dicts, a dict of columns (lists, tuples, NumPy
arrays, pandas Series), a NumPy structured array, a pandas DataFrame, a pyarrow
Table or RecordBatch, and anything with ``__arrow_c_stream__`` (Polars, DuckDB;
needs pyarrow).

What is NULL: None everywhere, masked entries, NaT, Arrow nulls. NaN is a
number and stays one in float columns, except where pandas means a missing
value (object and nullable dtypes); in pandas' float arrays it is NULL if the
column is not a float column. ``nan_is_null=True`` makes every NaN NULL.
pandas and pyarrow are imported only when objects of theirs arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crescando.client.columns import column_from_array, column_from_list
from crescando.engine.statement import Column
from crescando.errors import TypeMismatchError
from crescando.schema import ColumnDef, TableSchema


@dataclass(frozen=True, slots=True)
class Intake:
    """Typed rows, ready to insert.

    Attributes
    ----------
    n_rows : int
    definitions : tuple of ColumnDef
        The columns that values are given for.
    columns : tuple of Column, each of length `n_rows`
    """

    n_rows: int
    definitions: tuple[ColumnDef, ...]
    columns: tuple[Column, ...]


def take_in(
    schema: TableSchema, rows: object, *, fills_missing: bool = True, nan_is_null: bool = False
) -> Intake:
    """Give rows as typed columns of a table.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    rows : object
        See the module's text.
    fills_missing : bool
        Whether columns that are not given become NULL (insert), so that those
        that are not nullable must be given, and dict rows may differ in their
        keys; otherwise (upsert) only keys are required and all rows name the
        same columns, since a column not named keeps its value.
    nan_is_null : bool
        Whether every NaN is NULL.

    Raises
    ------
    UnknownColumnError
        For a column the table does not have, with the nearest name.
    TypeMismatchError
        For a value that does not fit, a missing column, columns of different
        lengths, or an object that is none of the forms; naming column and row.
    """
    raw = raw_columns(rows, schema=schema, fills_missing=fills_missing)
    for name in raw:
        schema.column(name)
    required = schema.key_columns
    if fills_missing:
        required |= {column.name for column in schema.columns if not column.nullable}
    missing = [name for name in schema.column_names if name in required and name not in raw]
    if missing:
        raise TypeMismatchError(
            f"column {missing[0]!r} of table {schema.name!r} is not nullable and not given"
        )
    definitions = tuple(column for column in schema.columns if column.name in raw)
    columns = tuple(
        typed_column(raw[definition.name], definition, nan_is_null=nan_is_null) for definition in definitions
    )
    _check_lengths(definitions, columns)
    _check_partition_key(schema, definitions, columns)
    return Intake(len(columns[0]), definitions, columns)


def raw_columns(
    rows: object, *, schema: TableSchema | None = None, fills_missing: bool = True
) -> Mapping[str, object]:
    """Give rows of any form as a mapping of column name to values, untyped.

    Raises
    ------
    TypeMismatchError
        If `rows` is none of the forms.
    """
    if isinstance(rows, Mapping):
        return _from_mapping(rows)
    if isinstance(rows, np.ndarray):
        if rows.dtype.names is None:
            raise TypeMismatchError(
                f"an array of {rows.dtype} names no columns; pass a structured array or a dict of arrays"
            )
        return {name: rows[name] for name in rows.dtype.names}
    if _is_from(rows, "pandas", "DataFrame"):
        return _from_frame(rows)
    if hasattr(rows, "__arrow_c_stream__") or _is_from(rows, "pyarrow", "Table", "RecordBatch"):
        from crescando.client.arrow import arrow_columns

        return arrow_columns(rows)
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeMismatchError(
            f"rows cannot be a {type(rows).__name__}; pass dicts, a dict of columns, a structured array, "
            "a DataFrame or an Arrow table"
        )
    return _from_rows(list(rows), schema, fills_missing)


def _from_mapping(rows: Mapping[Any, object]) -> Mapping[str, object]:
    for name in rows:
        if not isinstance(name, str):
            raise TypeMismatchError(f"a column name is a str, not {name!r}")
    listed = [name for name, value in rows.items() if is_columnar(value)]
    if len(listed) == len(rows) and rows:
        return rows
    if listed:
        single = next(name for name in rows if name not in listed)
        raise TypeMismatchError(
            f"column {listed[0]!r} holds a list and column {single!r} one value; "
            "pass either one row of values or lists of equal length"
        )
    if not rows:
        raise TypeMismatchError("the row is empty")
    return {name: [value] for name, value in rows.items()}


def is_columnar(value: object) -> bool:
    """Say whether a dict's value is a whole column and not one value."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, (list, tuple)) or (
        hasattr(value, "__len__") and not isinstance(value, (str, bytes, bytearray, Mapping))
    )


def _from_rows(rows: list[Any], schema: TableSchema | None, fills_missing: bool) -> Mapping[str, object]:
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeMismatchError(
                f"row {index} is a {type(row).__name__}, not a dict of column names and values"
            )
        names.update(dict.fromkeys(row))
    if not rows:
        return {} if schema is None else {name: [] for name in schema.column_names}
    for index, row in enumerate(rows):
        if len(row) == len(names):
            continue
        missing = next(name for name in names if name not in row)
        if not fills_missing:
            raise TypeMismatchError(
                f"row {index} does not name column {missing!r}, which other rows do; "
                "give None for NULL, or upsert rows of different columns one after another"
            )
        if schema is not None and missing in schema.column_names and not schema.column(missing).nullable:
            raise TypeMismatchError(f"column {missing!r} is not nullable; row {index} does not give it")
    return {name: [row.get(name) for row in rows] for name in names}


def _from_frame(frame: Any) -> Mapping[str, object]:
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeMismatchError(f"a column name is a str, not {name!r}; rename the frame's columns")
        if names.count(name) > 1:
            raise TypeMismatchError(f"the frame has two columns {name!r}")
    return {name: frame[name] for name in names}


def typed_column(raw: Any, definition: ColumnDef, *, nan_is_null: bool) -> Column:
    """Give one column's values, in any form, as a typed column.

    Raises
    ------
    TypeMismatchError
        Naming column, row and mend.
    """
    if isinstance(raw, np.ndarray):
        return column_from_array(raw, definition, nan_is_null=nan_is_null)
    if isinstance(raw, (list, tuple)):
        return column_from_list(raw, definition, nan_is_null=nan_is_null)
    if _is_from(raw, "pandas", "Series", "Index", "ExtensionArray"):
        from crescando.client.frames import column_from_series

        return column_from_series(raw, definition, nan_is_null=nan_is_null)
    if _is_from(raw, "pyarrow", "ChunkedArray", "Array"):
        from crescando.client.arrow import column_from_arrow

        return column_from_arrow(raw, definition, nan_is_null=nan_is_null)
    return column_from_list(list(raw), definition, nan_is_null=nan_is_null)


def _is_from(value: object, package: str, *names: str) -> bool:
    """Recognise a package's class without importing the package."""
    return any(
        kind.__module__.partition(".")[0] == package and kind.__name__ in names
        for kind in type(value).__mro__
    )


def _check_lengths(definitions: tuple[ColumnDef, ...], columns: tuple[Column, ...]) -> None:
    for definition, column in zip(definitions, columns, strict=True):
        if len(column) != len(columns[0]):
            raise TypeMismatchError(
                f"column {definition.name!r} has {len(column)} values and "
                f"column {definitions[0].name!r} has {len(columns[0])}"
            )


def _check_partition_key(
    schema: TableSchema, definitions: tuple[ColumnDef, ...], columns: tuple[Column, ...]
) -> None:
    for definition, column in zip(definitions, columns, strict=True):
        if definition.name == schema.partition_key and definition.type.is_float:
            nans = np.isnan(column.values)
            if nans.any():
                raise TypeMismatchError(
                    f"column {definition.name!r} is the partition key; row {int(nans.argmax())} has NaN"
                )
