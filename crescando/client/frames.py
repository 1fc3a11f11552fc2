"""pandas in and out: columns from Series, and frames from columns.

Rules of the file: pandas is an extra and imported inside `frame` only; a Series
that comes in has brought it along. A missing value of an object, nullable, string or categorical dtype
is NULL; NaN in a plain float array is a number for a float column and NULL for
any other. A naive datetime array is refused for a timestamp column, because
pandas, unlike NumPy, can say the zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crescando.client.columns import column_from_array, column_from_list, python_values
from crescando.engine.statement import Column
from crescando.errors import TypeMismatchError
from crescando.schema import ColumnDef, DataType


def column_from_series(series: Any, definition: ColumnDef, *, nan_is_null: bool = False) -> Column:
    """Give a pandas Series, Index or array as a column.

    Raises
    ------
    TypeMismatchError
        Naming column, row and mend.
    """
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _from_plain(series, definition, nan_is_null)
    name = type(dtype).__name__
    if name == "CategoricalDtype":
        return _from_plain_or_list(np.asarray(series.astype(object), object), series, definition)
    if name == "DatetimeTZDtype":
        # Stored in UTC whatever the zone; the plain array is these instants.
        instants = np.asarray(series.to_numpy(dtype=f"datetime64[{dtype.unit}]"))
        if definition.type is DataType.DATE:
            raise _zoned_for_date(definition)
        return column_from_array(instants, definition)
    if name == "ArrowDtype":
        from crescando.client.arrow import column_from_arrow

        return column_from_arrow(series.array.__arrow_array__(), definition, nan_is_null=nan_is_null)
    plain = getattr(dtype, "numpy_dtype", None)
    if isinstance(plain, np.dtype) and plain.kind in "biuf":
        valid = ~np.asarray(series.isna(), np.bool_)
        values = series.to_numpy(dtype=plain, na_value=plain.type(0))
        return column_from_array(values, definition, valid=valid, nan_is_null=nan_is_null)
    return _from_plain_or_list(np.asarray(series.to_numpy(dtype=object), object), series, definition)


def _from_plain(series: Any, definition: ColumnDef, nan_is_null: bool) -> Column:
    values = series.to_numpy()
    kind = values.dtype.kind
    if kind == "O":
        return _from_plain_or_list(values, series, definition)
    if kind == "M" and definition.type is DataType.TIMESTAMP:
        raise TypeMismatchError(
            f"column {definition.name!r} is timestamp and the frame's {series.dtype} is naive; "
            "give it a zone with .dt.tz_localize('UTC')"
        )
    return column_from_array(values, definition, nan_is_null=nan_is_null or not definition.type.is_float)


def _from_plain_or_list(values: Any, series: Any, definition: ColumnDef) -> Column:
    missing = np.asarray(series.isna(), np.bool_)
    listed = values.tolist()
    for row in np.flatnonzero(missing).tolist():
        listed[row] = None
    return column_from_list(listed, definition)


def _zoned_for_date(definition: ColumnDef) -> TypeMismatchError:
    return TypeMismatchError(
        f"column {definition.name!r} is date and the frame holds instants; take the day with .dt.date"
    )


def frame(names: Sequence[str], columns: Sequence[Column]) -> Any:
    """Give columns as a DataFrame; see `Answer.to_pandas` for the dtypes."""
    import pandas as pd

    series = [pd.Series(_array(pd, column), copy=False) for column in columns]
    # Built by place and named afterwards.
    built = pd.concat(series, axis=1) if series else pd.DataFrame()
    built.columns = pd.Index(list(names))
    return built


def _array(pd: Any, column: Column) -> Any:
    has_null = column.valid is not None and not column.valid.all()
    missing = ~column.valid if column.valid is not None and has_null else None
    if column.type is DataType.STRING:
        texts, kind = np.array(column.to_list(), object), pd.api.types.pandas_dtype("str")
        # Before version 3 that is NumPy's, which would make a text of None.
        return texts if isinstance(kind, np.dtype) else pd.array(texts, dtype=kind)
    if column.type.is_decimal or column.type is DataType.BYTES:
        return np.array(python_values(column), object)
    if column.type is DataType.DATE:
        days = column.values.astype("datetime64[D]").astype(object)
        if missing is not None:
            days[missing] = None
        return days
    if column.type is DataType.TIMESTAMP:
        instants = column.values.astype("datetime64[us]")
        if missing is not None:
            instants[missing] = np.datetime64("NaT")
        return pd.DatetimeIndex(instants).tz_localize("UTC")
    if missing is None:
        return column.values.copy()
    kinds = {"b": pd.arrays.BooleanArray, "i": pd.arrays.IntegerArray, "f": pd.arrays.FloatingArray}
    return kinds[column.values.dtype.kind](column.values.copy(), missing)
