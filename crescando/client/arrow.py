"""Arrow in and out: columns from Arrow arrays, and tables from columns.

Rules of the file: pyarrow is imported inside functions only, since it is an
extra; its absence is told by name. Nulls are NULL and NaN is NaN; a timestamp
without a zone is naive and refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crescando.client.columns import Mask, checked, column_from_array, lie_within
from crescando.client.decimals import arrow_decimals, units_from_arrow
from crescando.engine import kernels
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from crescando.engine.heap import NO_TEXTS, Texts
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.statement import Column
from crescando.errors import TypeMismatchError
from crescando.schema import ColumnDef, DataType

_SAMPLE_MIN, _SAMPLE_MAX = 1_024, 2_048
"""So many values, one in 32, are looked at before a column of strings is given a dictionary."""

_ARROW_BYTES = 1 << 31
"""Arrow's plain strings have 32-bit offsets."""


def pyarrow() -> Any:
    """Give the package.

    Raises
    ------
    TypeMismatchError
        Naming the extra, if it is not installed.
    """
    try:
        import pyarrow as package
        import pyarrow.compute
    except ImportError as error:
        raise TypeMismatchError(
            "Arrow data needs the extra 'arrow': pip install 'crescando[arrow]'"
        ) from error
    return package


def arrow_columns(rows: Any) -> Mapping[str, object]:
    """Give the columns of an Arrow table, batch or stream by name."""
    table = pyarrow().table(rows)
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise TypeMismatchError(f"the table has two columns {name!r}")
    return {name: table.column(name) for name in names}


def column_from_arrow(array: Any, definition: ColumnDef, *, nan_is_null: bool = False) -> Column:
    """Give an Arrow array or chunked array as a column.

    Raises
    ------
    TypeMismatchError
        Naming column, row and mend.
    """
    pa = pyarrow()
    if isinstance(array, pa.ChunkedArray):
        # Combining copies, even one chunk alone.
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # Too long for one array of 32-bit offsets.
            binary = pa.types.is_binary(array.type)
            wide = pa.large_binary() if binary else pa.large_string()
            array = pa.concat_arrays([chunk.cast(wide) for chunk in array.chunks])
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if types.is_null(kind):
        return column_from_array(np.full(len(array), None, object), definition)
    valid = None
    if array.null_count:
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _from_texts(pa, array, definition, valid, False)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _from_texts(pa, array, definition, valid, True)
    if types.is_decimal(kind):
        if not definition.type.is_decimal:
            return column_from_array(np.array(array.to_pylist(), object), definition)
        return checked(
            Column(definition.type, units_from_arrow(pa, array, definition, valid), valid), definition
        )
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        if array.null_count:
            array = array.fill_null(pa.scalar(False if types.is_boolean(kind) else 0).cast(kind))
        values = array.to_numpy(zero_copy_only=False)
        return column_from_array(values, definition, valid=valid, nan_is_null=nan_is_null)
    if types.is_date(kind):
        days = array.cast(pa.date32()).cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        _only(definition, DataType.DATE)
        if lie_within(days, DATE_MIN, DATE_MAX):
            return checked(Column(DataType.DATE, days.copy(), valid), definition)
        return column_from_array(days.astype("datetime64[D]"), definition, valid=valid)
    if types.is_timestamp(kind):
        if kind.tz is None:
            raise TypeMismatchError(
                f"column {definition.name!r}: {kind} has no zone and is naive; "
                f"cast it to pa.timestamp({kind.unit!r}, tz='UTC')"
            )
        ticks = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        _only(definition, DataType.TIMESTAMP)
        if kind.unit == "us" and lie_within(ticks, TIMESTAMP_MIN, TIMESTAMP_MAX):
            return checked(Column(DataType.TIMESTAMP, ticks.copy(), valid), definition)
        return column_from_array(ticks.astype(f"datetime64[{kind.unit}]"), definition, valid=valid)
    raise TypeMismatchError(
        f"column {definition.name!r} is {definition.type.value} and cannot take Arrow's {kind}"
    )


def _only(definition: ColumnDef, kind: DataType) -> None:
    if definition.type is not kind:
        raise TypeMismatchError(
            f"column {definition.name!r} is {definition.type.value} and cannot take {kind.value}"
        )


def _from_texts(pa: Any, array: Any, definition: ColumnDef, valid: Any, binary: bool) -> Column:
    if binary and definition.type is not DataType.BYTES:
        raise TypeMismatchError(
            f"column {definition.name!r} is {definition.type.value} and cannot take Arrow's {array.type}"
        )
    if definition.type is not (DataType.BYTES if binary else DataType.STRING):
        return column_from_array(np.array(array.to_pylist(), object), definition)
    if valid is not None and not definition.nullable:
        raise TypeMismatchError(
            f"column {definition.name!r} is not nullable; row {int(valid.argmin())} has NULL"
        )
    plain = (pa.binary(), pa.large_binary()) if binary else (pa.string(), pa.large_string())
    if array.type not in plain:
        array = array.cast(plain[1])
    texts = _texts_of(pa, array, definition.type is DataType.BYTES)
    mask = NO_MASK if valid is None else valid
    if _is_mostly_distinct(texts, mask):
        # Repeated texts are united where they are stored.
        codes = np.arange(len(array), dtype=np.int32)
        return Column(
            definition.type,
            codes if valid is None else np.where(valid, codes, 0),
            valid,
            _sound(texts, definition),
        )
    codes, firsts = kernels.active().codes.number_texts(texts.heap, texts.offsets, mask)
    return Column(definition.type, codes, valid, _sound(texts.take(firsts), definition))


def _is_mostly_distinct(texts: Texts, valid: Mask) -> bool:
    """Judge by a sample whether a dictionary would hardly be smaller than the values."""
    n = len(texts)
    if n <= _SAMPLE_MIN:
        return False
    n_looked_at = min(max(n // 32, _SAMPLE_MIN), _SAMPLE_MAX)
    places = np.arange(0, n, n // n_looked_at)
    looked_at, present = texts.take(places), valid[places] if len(valid) else NO_MASK
    n_present = int(np.count_nonzero(present)) if len(valid) else len(places)
    if 4 * n_present <= len(places):
        return False
    _, firsts = kernels.active().codes.number_texts(looked_at.heap, looked_at.offsets, present)
    return 4 * len(firsts) > 3 * n_present


def _texts_of(pa: Any, array: Any, binary: bool) -> Texts:
    """Give the values of a string or binary array, NULL as anything; the bytes are shared."""
    if len(array) == 0:
        return NO_TEXTS
    is_wide = array.type in (pa.large_string(), pa.large_binary())
    dtype = np.dtype(np.int64) if is_wide else np.dtype(np.uint32)
    _, borders, data = array.buffers()
    offsets = np.frombuffer(borders, dtype, len(array) + 1, array.offset * dtype.itemsize)
    heap = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    first = int(offsets[0])
    return Texts(heap[first : int(offsets[-1])], offsets - offsets[0] if first else offsets, binary)


def _sound(texts: Texts, definition: ColumnDef) -> Texts:
    """Give texts as they are, after a look at them.

    Raises
    ------
    TypeMismatchError
        Naming the column, if a string is not Unicode.
    """
    try:
        texts.check()
    except TypeMismatchError as error:
        raise TypeMismatchError(f"column {definition.name!r}: {error}") from error
    return texts


_NATURAL = {
    DataType.BOOL: "bool_",
    DataType.INT8: "int8",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.FLOAT32: "float32",
    DataType.FLOAT64: "float64",
}


def arrow_table(names: Sequence[str], columns: Sequence[Column]) -> Any:
    """Give columns as a pyarrow Table; strings are plain strings, timestamps in UTC.

    Raises
    ------
    TypeMismatchError
        Naming the extra, if pyarrow is not installed.
    """
    pa = pyarrow()
    return pa.Table.from_arrays([_array(pa, column) for column in columns], names=list(names))


def _array(pa: Any, column: Column) -> Any:
    mask = None if column.valid is None else ~column.valid
    if column.type.is_textual:
        return _texts(pa, column)
    if column.type.is_decimal:
        return arrow_decimals(pa, column)
    if column.type is DataType.DATE:
        return pa.array(column.values, pa.int32(), mask=mask).cast(pa.date32())
    if column.type is DataType.TIMESTAMP:
        return pa.array(column.values, pa.int64(), mask=mask).cast(pa.timestamp("us", tz="UTC"))
    return pa.array(column.values, getattr(pa, _NATURAL[column.type])(), mask=mask)


def _texts(pa: Any, column: Column) -> Any:
    """Give a column of texts as a plain Arrow array."""
    kind, wide = (
        (pa.binary(), pa.large_binary())
        if column.type is DataType.BYTES
        else (pa.string(), pa.large_string())
    )
    n, valid = len(column), column.valid
    if len(column.texts) == 0:
        return pa.nulls(n, kind)
    texts = column.texts.take(column.values if valid is None else np.where(valid, column.values, 0), valid)
    is_wide = len(texts.heap) >= _ARROW_BYTES
    offsets = texts.offsets.astype(np.int64 if is_wide else np.int32, copy=False)
    present = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [present, pa.py_buffer(offsets), pa.py_buffer(texts.heap)]
    return pa.Array.from_buffers(wide if is_wide else kind, n, buffers)
