"""Parameters of a bound statement: where each comes from and how a value fills it.

Rules of the file: a constant takes its type once, from what stands beside it,
by one rule (`settle`) for every operator. A shape that was bound for values of
some Python types serves all values of these types; the few that need another
shape say so by `Rebind`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from crescando.client.constant import (
    INT64_MAX,
    INT64_MIN,
    Constant,
    Numeral,
    describe,
    fit,
    normalise,
    parse_date,
    parse_timestamp,
    physical,
    type_of,
    units_of,
)
from crescando.client.expression import Expr, Membership, Placeholder
from crescando.errors import PredicateError, TypeMismatchError
from crescando.schema import DIGITS_MAX, ColumnDef, DataType


class Unbound:
    """Stands for a parameter's value while a statement is only prepared."""


UNBOUND = Unbound()

Value = Constant | Unbound | tuple[Constant, ...]
"""What a placeholder is bound to: a scalar, or for IN a tuple of scalars."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one parameter of a shape comes from.

    Attributes
    ----------
    kind : DataType
        The parameter's type.
    near : DataType or None
        The type of what the value is compared or combined with.
    target : ColumnDef or None
        The column that the value is stored in, if it is.
    source : Constant, Placeholder or a tuple of them
    many : bool
        Whether it is the list of an IN.
    is_fixed : bool
        Whether no placeholder is involved.
    stored : object
        The physical value it was bound with.
    """

    kind: DataType
    near: DataType | None
    target: ColumnDef | None
    source: Any
    many: bool
    is_fixed: bool
    stored: Any


class Rebind(Exception):  # noqa: N818  # A signal between two functions, not an error.
    """Values do not fit the shape their statement was bound to; bind it anew with them."""


def literal_type(kind: DataType) -> DataType:
    """Give the type that parameters beside a term of type `kind` have."""
    if kind.is_integer:
        return DataType.INT64
    if kind.is_decimal:
        return DataType.decimal(DIGITS_MAX, kind.scale)
    return DataType.FLOAT64 if kind.is_float else kind


def settle(value: Constant | Unbound, near: DataType | None) -> tuple[DataType, Any]:
    """Give a constant's type and physical value beside a term of type `near`.

    Raises
    ------
    TypeMismatchError
        For malformed text of a date or timestamp, integers beyond int64, and
        Decimals beyond 18 digits.
    """
    if isinstance(value, Numeral):
        value = value.beside(near)
    if value is None or isinstance(value, Unbound):
        return (DataType.INT64 if near is None else literal_type(near)), None
    if isinstance(value, str):
        if near is DataType.DATE:
            return near, physical(parse_date(value))
        if near is DataType.TIMESTAMP:
            return near, physical(parse_timestamp(value))
        return DataType.STRING, physical(value)
    if near is not None and (
        (near.is_decimal and (type(value) is int or isinstance(value, Decimal)))
        or (near.is_integer and isinstance(value, Decimal))
    ):
        units = units_of(value, near.scale)
        if units is not None:
            return literal_type(near), units
    if near is not None and near.is_float and isinstance(value, int) and not isinstance(value, bool):
        exact = exact_float(value)
        if exact is not None:
            return DataType.FLOAT64, exact
    kind = type_of(value)
    assert kind is not None
    return kind, physical(value)


def settle_list(values: Iterable[Constant], near: DataType) -> tuple[tuple[Any, ...], bool]:
    """Give the physical values of an IN list, and whether a value that nothing equals was dropped.

    Raises
    ------
    TypeMismatchError
        If a value cannot be compared with the type `near`.
    """
    kind = literal_type(near)
    listed: list[Any] = []
    dropped = False
    for value in values:
        if value is None:
            listed.append(None)
            continue
        if kind.is_number and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            number: int | float | None
            if kind.is_float:
                number = exact_float(value)
            else:
                number = _whole(value) if kind is DataType.INT64 else units_of(value, kind.scale)
            if number is None:
                dropped = True
            else:
                listed.append(number)
            continue
        own, stored = settle(value, near)
        if own is not kind:
            raise TypeMismatchError(f"IN compares {near.value} with {value!r}, which is {describe(value)}")
        listed.append(stored)
    return tuple(listed), dropped


def _whole(value: int | float | Decimal) -> int | None:
    if isinstance(value, float) and not value.is_integer():  # Also NaN and the infinities.
        return None
    if isinstance(value, Decimal) and value != value.to_integral_value():
        return None
    return int(value) if INT64_MIN <= value <= INT64_MAX else None


def exact_float(value: int | float | Decimal) -> float | None:
    try:
        stored = float(value)
    except OverflowError:
        return None
    if isinstance(value, float):
        return stored
    return stored if math.isfinite(stored) and Fraction(stored) == value else None


def fit_column(value: Constant, column: ColumnDef) -> Any:
    """Give the physical value of a constant stored in a column.

    Raises
    ------
    TypeMismatchError
        Naming the column.
    """
    if value is None and not column.nullable:
        raise TypeMismatchError(f"column {column.name!r} is not nullable and cannot take NULL")
    try:
        return fit(value, column.type)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"column {column.name!r}: {error}") from error


def gather(source: Any, values: Mapping[int | str, Value]) -> tuple[Constant, ...]:
    """Give the constants of an IN list whose placeholders are bound to `values`."""
    if isinstance(source, Placeholder):
        value = values.get(source.key, UNBOUND)
        if isinstance(value, Unbound):
            return ()
        if not isinstance(value, tuple):
            raise TypeMismatchError(
                f"{source!r} stands for the list of an IN and takes a list, not {value!r}"
            )
        return value
    listed: list[Constant] = []
    for each in source:
        value = values.get(each.key, UNBOUND) if isinstance(each, Placeholder) else each
        if isinstance(value, tuple):
            raise TypeMismatchError(f"{each!r} stands for one value of an IN list and takes no list")
        if not isinstance(value, Unbound):
            listed.append(value)
    return tuple(listed)


def fill(slots: Sequence[Slot], values: Mapping[int | str, Value]) -> tuple[Any, ...]:
    """Give an operation's parameters for a shape that is bound already.

    Raises
    ------
    Rebind
        If a value needs a shape of its own.
    TypeMismatchError
        If a value does not fit at all.
    """
    return tuple(slot.stored if slot.is_fixed else _filled(slot, values) for slot in slots)


def _filled(slot: Slot, values: Mapping[int | str, Value]) -> Any:
    if slot.many:
        assert slot.near is not None
        stored, dropped = settle_list(gather(slot.source, values), slot.near)
        if dropped and not stored:
            raise Rebind
        return stored
    value = values[slot.source.key]
    if isinstance(value, tuple):
        raise TypeMismatchError(f"{slot.source!r} is bound to a list, which only IN and isin() take")
    if slot.target is not None:
        return fit_column(value, slot.target) if not isinstance(value, Unbound) else None
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise Rebind
    kind, stored = settle(value, slot.near)
    if kind is not slot.kind:
        raise Rebind
    return stored


def quick_filler(slot: Slot, given: type) -> Callable[[Any], Any] | None:
    """Give what turns a value of a plain type into a parameter, as `fill` does; None if nothing quicker can.

    Parameters
    ----------
    slot : Slot
        Not a list's.
    given : type
        What every value is exactly; one of `PLAIN_TYPES`.

    Raises
    ------
    Rebind, TypeMismatchError
        What it gives raises them, as `fill`.
    """
    if slot.target is not None:
        # Out of range it is another error, which those tell who come after.
        return _QUICK_STORED.get((given, slot.target.type))
    near, kind = slot.near, slot.kind
    if given is int and kind is _INT64 and (near is None or near.is_integer):
        return quick_integer
    if given is str and kind is _STRING and near in (None, _STRING):
        return quick_text
    return None


def quick_integer(value: int) -> int:
    """Give an integer that an int64 holds."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise Rebind


def quick_text(value: str) -> str:
    """Give a text that is Unicode."""
    return value if value.isascii() else physical(value)  # type: ignore[return-value]


_QUICK_STORED: dict[tuple[type, DataType], Callable[[Any], Any]] = {
    (int, DataType.INT64): quick_integer,
    (str, DataType.STRING): quick_text,
}


def filled(slot: Slot, value: Value) -> Any:
    """Give the parameter of a slot that is not fixed, for its placeholder's value; as `fill`."""
    return _filled(slot, {slot.source.key: value})


def bindings(
    keys: Sequence[int | str], params: Sequence[object] | Mapping[str, object]
) -> dict[int | str, Value]:
    """Pair placeholders with the values a caller gave, normalised.

    Raises
    ------
    PredicateError
        If values are missing or left over.
    TypeMismatchError
        If a value is of no column type.
    """
    if isinstance(params, (str, bytes)):
        raise PredicateError(
            f"params is a sequence or mapping of values, not {params!r}; write ({params!r},)"
        )
    given: dict[int | str, object] = {}
    given.update(params if isinstance(params, Mapping) else enumerate(params))
    if given.keys() != set(keys):
        missing = [key for key in keys if key not in given]
        extra = [key for key in given if key not in set(keys)]
        said = f"no value for {missing[0]!r}" if missing else f"a value for {extra[0]!r}, which is not in it"
        raise PredicateError(
            f"the statement has {len(keys)} parameters and was given {len(given)} values: {said}"
        )
    return {key: _bound_value(given[key]) for key in keys}


def _bound_value(value: object) -> Value:
    if value.__class__ in _PLAIN:
        return value  # type: ignore[return-value]
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    if isinstance(value, (list, tuple, set, frozenset)) or type(value).__name__ in ("ndarray", "Series"):
        return tuple(normalise(each) for each in value)  # type: ignore[attr-defined]
    return normalise(value)


_PLAIN = frozenset({str, float, bool, type(None)})

PLAIN_TYPES = _PLAIN | {int}
"""Values of exactly these types are bound as they are; of integers, those that an int64 holds."""

_INT64, _STRING = DataType.INT64, DataType.STRING


def placeholders(expressions: Iterable[Expr]) -> tuple[int | str, ...]:
    """Give the keys of every placeholder, without duplicates, in order of appearance."""
    found: dict[int | str, None] = {}
    for expression in expressions:
        _collect(expression, found)
    return tuple(found)


def _collect(expression: Expr, found: dict[int | str, None]) -> None:
    if isinstance(expression, Placeholder):
        found[expression.key] = None
    for child in expression.children():
        _collect(child, found)
    if isinstance(expression, Membership):
        listed = (expression.values,) if isinstance(expression.values, Placeholder) else expression.values
        for each in listed:
            if isinstance(each, Placeholder):
                found[each.key] = None
