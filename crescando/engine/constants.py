"""The parameters of all operations of one shape, as columns.

Rules of the file: constants are converted to arrays once per batch, so that a
predicate is evaluated for many operations by gathering, never by one Python
call per operation. Wrong types are found here at the speed of the conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.decimals import beyond
from crescando.engine.heap import Texts
from crescando.engine.keys import I64
from crescando.engine.operations import Operations
from crescando.engine.statement import PHYSICAL, Column, Parameter
from crescando.engine.values import Value, concatenate, from_column, interned
from crescando.errors import TypeMismatchError
from crescando.schema import DataType


@dataclass(frozen=True, slots=True)
class Lists:
    """The IN lists of many operations, end to end.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n_operations + 1,)
    values : Value
        The values that are not NULL, shape ``(offsets[-1],)``.
    has_null : ndarray of bool, shape (n_operations,)
    """

    offsets: I64
    values: Value
    has_null: NDArray[np.bool_]


Piece = Sequence[tuple[Any, ...]] | Operations
"""Parameters: a tuple for each operation, or a run's columns."""


class Constants:
    """Parameters by operation, converted at first use.

    Parameters
    ----------
    given : sequence of (sequence of tuple, or Operations)
        The parameters, piece by piece: a tuple for each operation, or a run's columns.

    Attributes
    ----------
    n : int
        How many operations there are.
    """

    def __init__(self, given: Sequence[Piece]) -> None:
        self._given = given
        self.n = sum(map(len, given))
        self._scalars: dict[Parameter, Value] = {}
        self._lists: dict[Parameter, Lists] = {}

    def scalar(self, parameter: Parameter) -> Value:
        """Give one parameter of every operation; shape (n_operations,)."""
        found = self._scalars.get(parameter)
        if found is None:
            pieces = [_scalar(list(some), parameter) for _, some in groupby(self._given, _is_run)]
            found = self._scalars[parameter] = concatenate(pieces, [len(piece.data) for piece in pieces])
        return found

    def many(self, parameter: Parameter) -> Lists:
        """Give one IN list of every operation."""
        found = self._lists.get(parameter)
        if found is None:
            found = self._lists[parameter] = self._gather(parameter)
        return found

    def check(self, parameters: Sequence[Parameter]) -> bool:
        """Say whether every operation has parameters of the stated types; converts them too."""
        try:
            for parameter in parameters:
                if parameter.many:
                    self.many(parameter)
                else:
                    self.scalar(parameter)
        except (TypeMismatchError, IndexError):
            return False
        return True

    def _gather(self, parameter: Parameter) -> Lists:
        flat: list[Any] = []
        lengths = np.zeros(self.n, np.int64)
        has_null = np.zeros(self.n, np.bool_)
        for place, items in enumerate(self._lists_of(parameter)):
            if type(items) is not tuple:
                raise TypeMismatchError(f"parameter {parameter.index} must be a tuple of values")
            if None in items:
                has_null[place] = True
                items = [item for item in items if item is not None]
            flat.extend(items)
            lengths[place] = len(items)
        offsets = np.zeros(self.n + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Lists(offsets, as_value(flat, parameter.type), has_null)

    def _lists_of(self, parameter: Parameter) -> Iterator[Any]:
        for piece in self._given:
            if isinstance(piece, Operations):
                raise TypeMismatchError("a run of operations has single values; send IN lists one by one")
            for row in piece:
                yield row[parameter.index]


def _is_run(piece: Piece) -> bool:
    return isinstance(piece, Operations)


def _scalar(pieces: list[Piece], parameter: Parameter) -> Value:
    """Give one parameter of every operation of some pieces: all of them runs, or none."""
    index, columns = parameter.index, []
    rows: list[Any] = []
    for piece in pieces:
        if isinstance(piece, Operations):
            _check_column(piece.parameters[index], parameter.type)
            columns.append(piece.parameters[index])
        else:
            rows.extend([row[index] for row in piece])
    return from_column(Column.join(columns)) if columns else as_value(rows, parameter.type)


def _check_column(column: Column, kind: DataType) -> None:
    if column.type is not kind:
        raise TypeMismatchError(f"a column of {kind.value} is expected, not of {column.type.value}")
    if column.values.dtype != PHYSICAL[kind]:
        raise TypeMismatchError(f"a column of {kind.value} holds {PHYSICAL[kind]}, not {column.values.dtype}")
    if kind.is_textual and len(column):
        column.texts.check()
        if len(column.texts) and column.texts.binary is not (kind is DataType.BYTES):
            raise TypeMismatchError(f"a dictionary holds other things than {kind.value}")
        codes = column.values if column.valid is None else column.values[column.valid]
        if len(codes) and not (int(codes.min()) >= 0 and int(codes.max()) < len(column.dictionary)):
            raise TypeMismatchError("codes of a string column lie outside its dictionary")
    if kind.is_decimal and beyond(column.values, kind).any():
        raise TypeMismatchError(f"a constant does not fit {kind.value}")


_ACCEPTED: dict[DataType, type] = {
    DataType.BOOL: bool,
    DataType.FLOAT32: float,
    DataType.FLOAT64: float,
    DataType.STRING: str,
    DataType.BYTES: bytes,
}


def as_value(items: list[Any], kind: DataType) -> Value:
    """Give physical constants as a value; None is NULL.

    Raises
    ------
    TypeMismatchError
        If one has another Python type than `kind` asks for, or does not fit it.
    """
    accepted = _ACCEPTED.get(kind, int)
    found = set(map(type, items))
    valid = None
    if type(None) in found:
        found.discard(type(None))
        valid = np.array([item is not None for item in items], np.bool_)
        filler = accepted()
        items = [filler if item is None else item for item in items]
    if found - {accepted}:
        raise TypeMismatchError(f"constants of type {kind.value} are {accepted.__qualname__} objects")
    if kind.is_textual:
        pool, codes = interned(Texts.of(items), kind)
        return Value(kind, codes, valid, None, pool)
    try:
        dtype = np.dtype(np.float64) if kind.is_float else PHYSICAL[kind]
        data = np.array(items, dtype)
    except OverflowError as error:
        raise TypeMismatchError(f"a constant does not fit {kind.value}") from error
    if kind.is_decimal and beyond(data, kind).any():
        raise TypeMismatchError(f"a constant does not fit {kind.value}")
    if kind is DataType.FLOAT32:
        if not _are_single(data).all():
            raise TypeMismatchError(f"a constant does not fit {kind.value}")
        data = data.astype(np.float32)
    return Value(kind, data, valid)


def _are_single(data: NDArray[Any]) -> NDArray[np.bool_]:
    """Give where float64s are float32s: NaN, or unchanged by rounding."""
    with np.errstate(over="ignore"):
        single: NDArray[np.bool_] = (data.astype(np.float32) == data) | np.isnan(data)
    return single


def is_single(value: float) -> bool:
    """Say whether a float is a float32, so that it may be a constant of that type."""
    return bool(_are_single(np.array([value]))[0])
