"""Columns of decimals: from integers and Arrow, and to Arrow.

Rules of the file: a column of decimals holds units of its scale. What has more
digits than the column is refused with its row, never rounded; whoever wants
rounding says so (``Decimal.quantize``, or a cast in Arrow).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.decimals import beyond, write
from crescando.engine.scaled import floor_to, grow_to
from crescando.engine.statement import PHYSICAL, Column
from crescando.errors import TypeMismatchError
from crescando.schema import DIGITS_MAX, ColumnDef, DataType

Mask = NDArray[np.bool_]


def rescaled(units: NDArray[Any], scale: int, definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    """Give numbers of some scale in the units of a decimal column; anything where not valid.

    Raises
    ------
    TypeMismatchError
        Naming column and row, if a number has more digits than the column.
    """
    kind = definition.type
    if units.dtype == np.uint64:
        _refuse(units > np.uint64(np.iinfo(np.int64).max), valid, units, scale, definition)
    units = units.astype(np.int64)
    if scale > kind.scale:
        grown, lost = floor_to(units, scale, kind.scale)
    else:
        grown, too_low, too_high = grow_to(units, scale, kind.scale)
        lost = too_low | too_high
    _refuse(lost | beyond(grown, kind), valid, units, scale, definition)
    return grown.astype(PHYSICAL[kind])


def _refuse(faulty: Mask, valid: Mask | None, units: NDArray[Any], scale: int, definition: ColumnDef) -> None:
    if valid is not None:
        faulty = faulty & valid
    if faulty.any():
        row = int(faulty.argmax())
        raise TypeMismatchError(
            f"column {definition.name!r}, row {row}: {write(int(units[row]), scale)} "
            f"has more digits than {definition.type.value}"
        )


def units_from_arrow(pa: Any, array: Any, definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    """Give an Arrow array of decimals in the units of a decimal column; 0 where not valid.

    Raises
    ------
    TypeMismatchError
        Naming column and row, if a number has more digits than the column.
    """
    scale = array.type.scale
    if not 0 <= scale <= DIGITS_MAX:
        raise TypeMismatchError(
            f"column {definition.name!r} is {definition.type.value} and cannot take Arrow's {array.type}; "
            f"cast it to pa.decimal128({definition.type.precision}, {definition.type.scale})"
        )
    if len(array) == 0:
        return np.zeros(0, PHYSICAL[definition.type])
    try:
        wide = array.cast(pa.decimal128(38, scale))
    except pa.ArrowInvalid as error:
        raise TypeMismatchError(f"column {definition.name!r}: {error}") from error
    # 128 bits, the lower half first, with room for a slice's offset.
    halves = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset :][: 2 * len(wide)]
    low, high = halves[0::2], halves[1::2]
    if valid is not None:
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    large = high != low >> np.int64(63)
    if large.any():
        row = int(large.argmax())
        raise TypeMismatchError(
            f"column {definition.name!r}, row {row}: {wide[row].as_py()} "
            f"has more digits than {definition.type.value}"
        )
    return rescaled(low, scale, definition, valid)


def arrow_decimals(pa: Any, column: Column) -> Any:
    """Give a column as an Arrow array of decimal128 with its precision and scale."""
    units = column.values.astype(np.int64)
    halves = np.stack([units, units >> np.int64(63)], axis=1)
    kind = pa.decimal128(column.type.precision, column.type.scale)
    bits = None
    if column.valid is not None:
        bits = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(units), [bits, pa.py_buffer(halves)])


def decimal_of_arrow(kind: Any, name: str) -> DataType:
    """Give the column type of an Arrow decimal type.

    Raises
    ------
    TypeMismatchError
        If it has more digits than any column type.
    """
    precision, scale = max(kind.precision, kind.scale), kind.scale
    if scale < 0 or precision > DIGITS_MAX:
        raise TypeMismatchError(
            f"column {name!r}: Arrow's {kind} has no equal among the column types; "
            "cast it to pa.decimal128(18, scale)"
        )
    return DataType.decimal(precision, scale)
