"""The allow-list: every operator and function a term may apply, and its typing.

Rules of the file: one table, shared by the binder (which builds trees), the
validator (which distrusts them) and the evaluator (which runs them); an
operator that is not here does not exist. Nothing here touches data. The
failures that an operator can have on a row are named here too, since their
codes are part of an operation's outcome: when several meet in one row the
smallest code wins, so that the order of evaluation never shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from crescando.errors import TypeMismatchError
from crescando.schema import DIGITS_MAX, DataType


class Cause(IntEnum):
    """Why a row failed. The order is the precedence: the smallest cause is told."""

    DIVISION_BY_ZERO = 1
    OVERFLOW = 2
    INVALID_CONVERSION = 3
    OUT_OF_RANGE = 4
    INVALID_ARGUMENT = 5
    NULL_VALUE = 6
    NAN_KEY = 7
    DUPLICATE_KEY = 8
    RESERVED_KEY = 9

    @property
    def text(self) -> str:
        """What a user reads."""
        return _CAUSE_TEXTS[self]


_CAUSE_TEXTS = {
    Cause.DIVISION_BY_ZERO: "division by zero",
    Cause.OVERFLOW: "overflow",
    Cause.INVALID_CONVERSION: "invalid conversion",
    Cause.OUT_OF_RANGE: "value out of range for the column's type",
    Cause.INVALID_ARGUMENT: "invalid argument",
    Cause.NULL_VALUE: "NULL in a column that is not nullable",
    Cause.NAN_KEY: "NaN in the partition key",
    Cause.DUPLICATE_KEY: "duplicate key",
    Cause.RESERVED_KEY: "key reserved by a load under way",
}

DATE_MIN, DATE_MAX = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days: what Python's calendar can show."""

TIMESTAMP_MIN, TIMESTAMP_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the same years."""

TEXT_MAX = 1 << 20
"""No expression makes a text of more code points; a column joined to itself by every
update would double until memory ends. The value is a guess."""

ARGUMENTS_MAX = 20_000
"""An upper bound for operators of any number of arguments; see `engine.validate`."""

Types = Sequence[DataType]


@dataclass(frozen=True, slots=True)
class Operator:
    """One entry of the allow-list.

    Attributes
    ----------
    name : str
    arity : tuple of int
        Least and most number of arguments.
    typing : callable
        Gives the result's type from the arguments' types, or raises
        `TypeMismatchError`.
    projection_only : bool
        Whether results may differ between platforms, so that writes and
        predicates must not use it.
    """

    name: str
    arity: tuple[int, int]
    typing: Callable[[str, Types], DataType]
    projection_only: bool = False


def is_comparable(left: DataType, right: DataType) -> bool:
    """Say whether values of the two types can be compared: equal kinds, any two numbers."""
    return left is right or (left.is_number and right.is_number)


def is_assignable(column: DataType, term: DataType) -> bool:
    """Say whether a column takes a term's values without an explicit cast.

    Numbers go into a wider or narrower type of their kind (checked per row),
    integers into decimals, and exact numbers into floats. What would lose
    digits after the point (floats and decimals into integers, floats and longer
    decimals into decimals) goes by cast only.
    """
    if column is term:
        return True
    if column.is_integer:
        return term.is_integer
    if column.is_decimal:
        return term.is_exact and term.scale <= column.scale
    return column.is_float and term.is_number


def can_cast(source: DataType, target: DataType) -> bool:
    """Say whether ``cast`` converts between the two types."""
    if source is target or (source.is_number and target.is_number):
        return True
    if source is DataType.STRING:
        return target.is_number or target in (DataType.DATE, DataType.TIMESTAMP)
    if target is DataType.STRING:
        return source.is_exact
    if source is DataType.BOOL:
        return target.is_integer
    return {source, target} == {DataType.DATE, DataType.TIMESTAMP}


def common_type(types: Types) -> DataType | None:
    """Give the one type that branches of CASE or COALESCE share, if there is one."""
    first = types[0]
    if all(kind is first for kind in types):
        return first
    if not all(kind.is_number for kind in types):
        return None
    return _widest(types)


def _widest(types: Types) -> DataType:
    """Give the type that holds numbers of several types: exact as long as none is a float."""
    if any(kind.is_float for kind in types):
        return DataType.FLOAT64
    if all(kind.is_integer for kind in types):
        return DataType.INT64
    return DataType.decimal(DIGITS_MAX, max(kind.scale for kind in types))


def _named(types: Types) -> str:
    return ", ".join(kind.value for kind in types)


def _refuse(op: str, types: Types, wanted: str) -> TypeMismatchError:
    return TypeMismatchError(f"{op!r} takes {wanted}, not ({_named(types)})")


def _comparison(op: str, types: Types) -> DataType:
    if not is_comparable(types[0], types[1]):
        raise TypeMismatchError(
            f"{op!r} cannot compare {types[0].value} with {types[1].value}; cast one of them"
        )
    return DataType.BOOL


def _like(op: str, types: Types) -> DataType:
    if any(kind is not DataType.STRING for kind in types):
        raise _refuse(op, types, "a string and a string pattern")
    return DataType.BOOL


def _any_to_bool(op: str, types: Types) -> DataType:
    return DataType.BOOL


def _logical(op: str, types: Types) -> DataType:
    if any(kind is not DataType.BOOL for kind in types):
        raise _refuse(op, types, "predicates (bool)")
    return DataType.BOOL


def _arithmetic(op: str, types: Types) -> DataType:
    if not all(kind.is_number for kind in types):
        raise _refuse(op, types, "numbers")
    return _widest(types)


def _product(op: str, types: Types) -> DataType:
    found = _arithmetic(op, types)
    if not found.is_decimal:
        return found
    scale = types[0].scale + types[1].scale
    if scale > DIGITS_MAX:
        raise TypeMismatchError(
            f"the product of {_named(types)} has {scale} digits after the point, more than {DIGITS_MAX}; "
            "cast one of them to fewer"
        )
    return DataType.decimal(DIGITS_MAX, scale)


def _division(op: str, types: Types) -> DataType:
    found = _arithmetic(op, types)
    # The quotient of decimals has no scale of its own.
    return DataType.FLOAT64 if found.is_decimal else found


def _floor_division(op: str, types: Types) -> DataType:
    found = _arithmetic(op, types)
    return DataType.decimal(DIGITS_MAX) if found.is_decimal else found


def _true_division(op: str, types: Types) -> DataType:
    _arithmetic(op, types)
    return DataType.FLOAT64


def _unary_number(op: str, types: Types) -> DataType:
    if not types[0].is_number:
        raise _refuse(op, types, "a number")
    return types[0] if types[0].is_exact else DataType.FLOAT64


def _floor(op: str, types: Types) -> DataType:
    found = _unary_number(op, types)
    return DataType.decimal(DIGITS_MAX) if found.is_decimal else found


def _round(op: str, types: Types) -> DataType:
    if len(types) == 2 and not types[1].is_integer:
        raise _refuse(op, types, "a number and a whole number of digits")
    found = _unary_number(op, types)
    return DataType.decimal(DIGITS_MAX, found.scale) if found.is_decimal else found


def _exactly(result: DataType, *wanted: DataType | None) -> Callable[[str, Types], DataType]:
    """Type a function of fixed argument types; None stands for any integer."""

    def typing(op: str, types: Types) -> DataType:
        for kind, want in zip(types, wanted, strict=False):
            if not kind.is_integer if want is None else kind is not want:
                names = ", ".join("integer" if want is None else want.value for want in wanted)
                raise _refuse(op, types, f"({names})")
        return result

    return typing


def _concat(op: str, types: Types) -> DataType:
    if not types[0].is_textual or types[0] is not types[1]:
        raise _refuse(op, types, "two strings, or bytes twice")
    return types[0]


def _length(op: str, types: Types) -> DataType:
    if not types[0].is_textual:
        raise _refuse(op, types, "a string or bytes")
    return DataType.INT64


def _substr(op: str, types: Types) -> DataType:
    if not types[0].is_textual or not all(kind.is_integer for kind in types[1:]):
        raise _refuse(op, types, "a string or bytes, and integers")
    return types[0]


def _coalesce(op: str, types: Types) -> DataType:
    found = common_type(types)
    if found is None:
        raise _refuse(op, types, "arguments of one type")
    return found


def _nullif(op: str, types: Types) -> DataType:
    _comparison(op, types)
    return types[0]


def _case(op: str, types: Types) -> DataType:
    if len(types) % 2 == 0:
        raise TypeMismatchError("'case' takes pairs of condition and value, then the value of ELSE")
    if any(kind is not DataType.BOOL for kind in types[:-1:2]):
        raise _refuse(op, types, "predicates as conditions")
    found = common_type([*types[1::2], types[-1]])
    if found is None:
        raise _refuse(op, types, "values of one type")
    return found


def _calendar(result: DataType | None, *accepted: DataType) -> Callable[[str, Types], DataType]:
    """Type a function of one date or timestamp; None gives the argument's own type."""

    def typing(op: str, types: Types) -> DataType:
        if types[0] not in accepted:
            raise _refuse(op, types, " or ".join(kind.value for kind in accepted))
        return result or types[0]

    return typing


def _table() -> dict[str, Operator]:
    entries: list[Operator] = []

    def add(
        names: str,
        least: int,
        most: int,
        typing: Callable[[str, Types], DataType],
        projection_only: bool = False,
    ) -> None:
        entries.extend(Operator(name, (least, most), typing, projection_only) for name in names.split())

    string, date, timestamp = DataType.STRING, DataType.DATE, DataType.TIMESTAMP
    add("= <> < <= > >= in", 2, 2, _comparison)
    add("like", 2, 2, _like)
    add("is_null", 1, 1, _any_to_bool)
    add("is_true is_false is_unknown not", 1, 1, _logical)
    add("and or", 2, ARGUMENTS_MAX, _logical)
    add("+ - %", 2, 2, _arithmetic)
    add("*", 2, 2, _product)
    add("div", 2, 2, _division)
    add("floordiv", 2, 2, _floor_division)
    add("truediv", 2, 2, _true_division)
    add("neg abs", 1, 1, _unary_number)
    add("floor", 1, 1, _floor)
    add("round", 1, 2, _round, projection_only=True)
    add("date_add", 2, 2, _exactly(date, date, None))
    add("date_diff", 2, 2, _exactly(DataType.INT64, date, date))
    add("concat", 2, 2, _concat)
    add("lower upper", 1, 1, _exactly(string, string))
    add("length", 1, 1, _length)
    add("substr", 2, 3, _substr)
    add("coalesce", 1, ARGUMENTS_MAX, _coalesce)
    add("nullif", 2, 2, _nullif)
    add("case", 3, ARGUMENTS_MAX, _case)
    add("trunc_year trunc_month", 1, 1, _calendar(None, date, timestamp))
    add("trunc_day trunc_hour trunc_minute", 1, 1, _calendar(None, timestamp))
    add(
        "extract_year extract_month extract_day extract_dow", 1, 1, _calendar(DataType.INT64, date, timestamp)
    )
    add("extract_hour extract_minute extract_second", 1, 1, _calendar(DataType.INT64, timestamp))
    return {entry.name: entry for entry in entries}


OPERATORS: dict[str, Operator] = _table()
"""The allow-list by name, without ``cast``, whose result type is its target."""

AGGREGATES = frozenset({"count", "sum", "min", "max", "avg", "count_distinct"})
"""The aggregate functions of a read."""

CAST = "cast"


def result_type(op: str, arg_types: Types, target: DataType | None = None) -> DataType:
    """Give the type of an operator's result.

    Parameters
    ----------
    op : str
        A name of the allow-list.
    arg_types : sequence of DataType
        The arguments' types; for ``in`` the second is that of the list's values.
    target : DataType, optional
        What ``cast`` converts to (it is `Apply.type`); ignored otherwise.

    Raises
    ------
    TypeMismatchError
        If there is no such operator, or it does not take these arguments.
    """
    if op == CAST:
        if len(arg_types) != 1 or target is None:
            raise TypeMismatchError("'cast' takes one argument and a target type")
        if not can_cast(arg_types[0], target):
            raise TypeMismatchError(f"cannot cast {arg_types[0].value} to {target.value}")
        return target
    operator = OPERATORS.get(op)
    if operator is None:
        raise TypeMismatchError(f"there is no operator or function {op!r}")
    least, most = operator.arity
    if not least <= len(arg_types) <= most:
        wanted = (
            str(least)
            if least == most
            else f"{least} to {most}"
            if most < ARGUMENTS_MAX
            else f"{least} or more"
        )
        raise TypeMismatchError(f"{op!r} takes {wanted} arguments, not {len(arg_types)}")
    return operator.typing(op, arg_types)


def aggregate_type(function: str, term: DataType | None) -> DataType:
    """Give the type of an aggregate's result; `term` is None for count(*).

    Raises
    ------
    TypeMismatchError
        If there is no such aggregate, or it does not take this type.
    """
    if function not in AGGREGATES:
        raise TypeMismatchError(f"there is no aggregate {function!r}")
    if function == "count":
        return DataType.INT64
    if term is None:
        raise TypeMismatchError(f"{function!r} takes an argument")
    if function == "count_distinct":
        return DataType.INT64
    if function in ("min", "max"):
        return term
    if not term.is_number:
        raise TypeMismatchError(f"{function!r} takes numbers, not {term.value}")
    return DataType.FLOAT64 if function == "avg" else _widest((term,))
