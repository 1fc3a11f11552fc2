"""Binding: from a user's expression and a table's schema to a typed term.

Rules of the file: names become catalog ids, every constant becomes a parameter
(so that all statements of one form share a shape), and a constant takes its
type once, from what stands beside it, by the same rule for every operator.
What does not fit is an error here, before anything is sent, never an empty
answer later. A comparison with an integer beyond int64 has one truth value for
all rows but NULL; it becomes ``x = x`` or ``x <> x``, which say exactly that. So
does one with a Decimal of more than 18 digits, unless a shorter one says the same.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
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
    scale_of,
    units_of,
)
from crescando.client.expression import Aliased, Call, ColumnName, Expr, Literal, Membership, Placeholder
from crescando.client.slot import (
    UNBOUND,
    Slot,
    Unbound,
    Value,
    exact_float,
    fit_column,
    gather,
    literal_type,
    settle,
    settle_list,
)
from crescando.engine.functions import OPERATORS, common_type, is_assignable, is_comparable, result_type
from crescando.engine.scaled import UNITS_MAX
from crescando.engine.statement import Apply, ColumnRef, Parameter, Term
from crescando.errors import PredicateError, StatementError, TypeMismatchError
from crescando.schema import DIGITS_MAX, ColumnDef, DataType, TableSchema

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LOGIC = frozenset({"and", "or", "not", "is_true", "is_false", "is_unknown"})
_ARITHMETIC = frozenset({"+", "-", "*", "div", "truediv", "floordiv", "%", "neg", "abs", "floor", "round"})

_WANTED: dict[str, tuple[DataType, ...]] = {
    "concat": (DataType.STRING, DataType.STRING),
    "like": (DataType.STRING, DataType.STRING),
    "lower": (DataType.STRING,),
    "upper": (DataType.STRING,),
    "length": (DataType.STRING,),
    "substr": (DataType.STRING, DataType.INT64, DataType.INT64),
    "round": (DataType.FLOAT64, DataType.INT64),
    "date_add": (DataType.DATE, DataType.INT64),
    "date_diff": (DataType.DATE, DataType.DATE),
}
"""The type that an untyped constant (NULL, a date as text) takes in a function's argument."""


@dataclass(frozen=True, slots=True)
class _Loose:
    """A constant whose type is not settled yet."""

    value: Constant | Unbound
    source: Literal | Placeholder


class Binder:
    """Binds the expressions of one statement; collects their parameters as slots.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    values : mapping
        What each placeholder is bound to; a missing one is `UNBOUND`.
    """

    def __init__(self, schema: TableSchema, values: Mapping[int | str, Value]) -> None:
        self._schema = schema
        self._values = values
        self._in_projection = False
        self.slots: list[Slot] = []
        self.is_general = True
        """Whether the terms serve other values of the same types too."""
        self.has_guessed = False
        """Whether an unbound placeholder took a type for want of a better one."""

    def predicate(self, expression: Expr) -> Term:
        """Bind a WHERE expression.

        Raises
        ------
        StatementError
            Its subclass says what is wrong; the text names the fix.
        """
        term = self._typed(expression, DataType.BOOL)
        if term.type is not DataType.BOOL:
            raise TypeMismatchError(
                f"a predicate is needed, but {expression!r} is {term.type.value}; compare it with something"
            )
        return term

    def projection(self, expression: Expr) -> Term:
        """Bind an output column or an aggregate's argument."""
        self._in_projection = True
        try:
            return self._typed(expression, None)
        finally:
            self._in_projection = False

    def limit(self, expression: Expr) -> Parameter:
        """Bind a number of rows."""
        term = self._typed(expression, DataType.INT64)
        assert isinstance(term, Parameter)
        return term

    def assignment(self, column: ColumnDef, expression: Expr) -> Term:
        """Bind the right side of ``SET column = …``."""
        bound = self._bind(expression)
        if isinstance(bound, _Loose):
            return self._store(bound, column)
        if not is_assignable(column.type, bound.type):
            raise TypeMismatchError(
                f"column {column.name!r} is {column.type.value} and cannot take {expression!r}, "
                f"which is {bound.type.value}; use .cast({column.type.value!r}) if that is meant"
            )
        return bound

    # Constants become parameters.
    def _store(self, loose: _Loose, column: ColumnDef) -> Parameter:
        stored = None if isinstance(loose.value, Unbound) else fit_column(loose.value, column)
        return self._parameter(column.type, loose.source, stored, target=column)

    def _place(self, loose: _Loose, near: DataType | None) -> Parameter:
        kind, stored = settle(loose.value, near)
        self.has_guessed |= near is None and isinstance(loose.value, Unbound)
        return self._parameter(kind, loose.source, stored, near=near)

    def _parameter(
        self,
        kind: DataType,
        source: Any,
        stored: Any,
        *,
        near: DataType | None = None,
        target: ColumnDef | None = None,
        many: bool = False,
    ) -> Parameter:
        self.slots.append(Slot(kind, near, target, source, many, not _has_placeholder(source), stored))
        return Parameter(len(self.slots) - 1, kind, many)

    # Expressions become terms.
    def _typed(self, expression: Expr, near: DataType | None) -> Term:
        return self._settled(self._bind(expression), near)

    def _settled(self, bound: Term | _Loose, near: DataType | None) -> Term:
        return self._place(bound, near) if isinstance(bound, _Loose) else bound

    def _bind(self, expression: Expr) -> Term | _Loose:
        match expression:
            case ColumnName():
                column = self._schema.column(expression.name)
                return ColumnRef(column.id, column.type)
            case Literal():
                return _Loose(expression.value, expression)
            case Placeholder():
                return _Loose(self._scalar(expression), expression)
            case Membership():
                return self._membership(expression)
            case Aliased():
                return self._bind(expression.term)
            case Call():
                try:
                    return self._call(expression)
                except TypeMismatchError as error:
                    raise _placed_in(error, expression) from error
        raise PredicateError(f"{expression!r} is not an expression of the store")

    def _scalar(self, placeholder: Placeholder) -> Constant | Unbound:
        value = self._values.get(placeholder.key, UNBOUND)
        if isinstance(value, tuple):
            raise TypeMismatchError(f"{placeholder!r} is bound to a list, which only IN and isin() take")
        return value

    def _membership(self, expression: Membership) -> Term:
        source = expression.values
        listed = gather(source, self._values)
        bound = self._bind(expression.term)
        try:
            if isinstance(bound, _Loose):
                # NULL has no type of its own and takes that of what it is looked for in.
                first = next((value for value in listed if value is not None), None)
                bound = self._place(bound, None if first is None else settle(first, None)[0])
            term = bound
            kind = literal_type(term.type)
            stored, dropped = settle_list(listed, term.type)
        except TypeMismatchError as error:
            raise _placed_in(error, expression) from error
        if dropped and not stored:
            self.is_general &= not _has_placeholder(source)
            return _constant_truth(term, truth=False)
        return Apply(
            "in", (term, self._parameter(kind, source, stored, near=term.type, many=True)), DataType.BOOL
        )

    def _call(self, expression: Call) -> Term:
        op = expression.op
        bound = [self._bind(arg) for arg in expression.args]
        if op in _MIRRORED:
            return self._comparison(op, bound[0], bound[1], expression)
        if op == "cast":
            return self._cast(bound[0], expression)
        if op in ("+", "-"):
            shifted = self._calendar(op, bound)
            if shifted is not None:
                return shifted
        if op == "like" and not isinstance(bound[1], _Loose):
            raise PredicateError(
                "the pattern of LIKE is a constant text, not an expression", repr(expression)
            )
        args = self._arguments(op, bound)
        if not self._in_projection and op in OPERATORS and OPERATORS[op].projection_only:
            raise PredicateError(
                f"{op}() is offered in selected columns only, not in WHERE or SET", repr(expression)
            )
        return Apply(op, args, result_type(op, tuple(arg.type for arg in args)))

    def _cast(self, bound: Term | _Loose, expression: Call) -> Term:
        target = expression.target
        assert target is not None
        if isinstance(bound, _Loose) and bound.value is None:
            return self._place(bound, target)
        arg = self._settled(bound, None if not _is_unbound(bound) else target)
        return Apply("cast", (arg,), result_type("cast", (arg.type,), target))

    def _arguments(self, op: str, bound: Sequence[Term | _Loose]) -> tuple[Term, ...]:
        if op == "case":
            values = self._unified([*bound[1::2], bound[-1]])
            conditions = [self._settled(each, DataType.BOOL) for each in bound[:-1:2]]
            pairs = [term for pair in zip(conditions, values, strict=False) for term in pair]
            return (*pairs, values[-1])
        if op == "coalesce":
            return tuple(self._unified(bound))
        if op in _LOGIC:
            return tuple(self._settled(each, DataType.BOOL) for each in bound)
        if op in _WANTED:
            wanted = (*_WANTED[op], *(None for _ in bound))
            if DataType.BYTES in self._known(bound):
                wanted = tuple(DataType.BYTES if kind is DataType.STRING else kind for kind in wanted)
            return tuple(self._settled(each, near) for each, near in zip(bound, wanted, strict=False))
        if op in _ARITHMETIC or op == "nullif":
            known = self._known(bound)
            # An int stays an int in arithmetic: its type decides how division behaves,
            # and the digits of a Decimal those of the result.
            near = known[0] if known else None
            keeps = op in _ARITHMETIC
            return tuple(self._place_beside(each, near, keeps) for each in bound)
        near = DataType.TIMESTAMP if op.startswith(("trunc_", "extract_")) else None
        return tuple(self._settled(each, near if _is_unbound(each) else None) for each in bound)

    def _place_beside(self, bound: Term | _Loose, near: DataType | None, keeps_integers: bool) -> Term:
        if not isinstance(bound, _Loose):
            return bound
        if isinstance(bound.value, Numeral):
            bound = _Loose(bound.value.beside(near), bound.source)
        if keeps_integers and isinstance(bound.value, (int, Decimal)):
            near = None
        return self._place(bound, near)

    def _unified(self, bound: Sequence[Term | _Loose]) -> list[Term]:
        """Settle values that must have one type: NULL and text take that of the others."""
        known = self._known(bound)
        near = common_type(known) if known else None
        return [self._settled(each, near) for each in bound]

    def _known(self, bound: Sequence[Term | _Loose]) -> list[DataType]:
        """Give the types of terms; if there are none, those of constants that have one."""
        known = [each.type for each in bound if not isinstance(each, _Loose)]
        if known:
            return known
        return [settle(each.value, None)[0] for each in bound if isinstance(each, _Loose) and _has_type(each)]

    def _calendar(self, op: str, bound: Sequence[Term | _Loose]) -> Term | None:
        """Give ``date ± days`` and ``date - date``, or None if no date is involved."""
        left, right = bound
        if not (_is_date(left) or _is_date(right)):
            return None
        if op == "-" and (_is_date(right) or (isinstance(right, _Loose) and isinstance(right.value, str))):
            dates = (self._settled(left, DataType.DATE), self._settled(right, DataType.DATE))
            return Apply("date_diff", dates, result_type("date_diff", tuple(date.type for date in dates)))
        if op == "+" and not _is_date(left):
            left, right = right, left
        # An unbound constant may turn out to be a date, which makes it another operator.
        self.has_guessed |= op == "-" and _is_unbound(right)
        date, days = self._settled(left, DataType.DATE), self._settled(right, DataType.INT64)
        if op == "-":
            days = Apply("neg", (days,), result_type("neg", (days.type,)))
        return Apply("date_add", (date, days), result_type("date_add", (date.type, days.type)))

    def _comparison(self, op: str, left: Term | _Loose, right: Term | _Loose, expression: Call) -> Term:
        if isinstance(left, _Loose) and not isinstance(right, _Loose):
            op, left, right = _MIRRORED[op], right, left
        if isinstance(left, _Loose):
            left = self._place(left, _own_type(right) if left.value is None or _is_unbound(left) else None)
        if isinstance(right, _Loose):
            value = right.value
            value = value.beside(left.type) if isinstance(value, Numeral) else value
            if left.type.is_number and isinstance(value, (int, Decimal)) and _is_beyond(value, left.type):
                self.is_general &= not _has_placeholder(right.source)
                return self._beyond(op, left, value)
            right = self._place(right, left.type)
            if not is_comparable(left.type, right.type):
                shown = "" if isinstance(value, Unbound) else f" {value!r}, which is {describe(value)}"
                raise TypeMismatchError(
                    f"{_operand(expression)} is {left.type.value} and cannot be compared with{shown}; "
                    f"pass a {left.type.value} value"
                )
        return Apply(op, (left, right), result_type(op, (left.type, right.type)))

    def _beyond(self, op: str, term: Term, value: int | Decimal) -> Term:
        """Compare with a constant that has no type."""
        if op in ("=", "<>") and (term.type.is_exact or exact_float(value) is None):
            return _constant_truth(term, truth=op == "<>")
        if term.type.is_exact:
            # Between two neighbouring numbers of the term's type there is no third.
            units = math.floor(Fraction(value) * 10**term.type.scale)
            if abs(units) > UNITS_MAX:
                return _constant_truth(term, truth=(value > 0) == (op in ("<", "<=")))
            op = "<=" if op in ("<", "<=") else ">"
            return self._limited(op, term, literal_type(term.type), units)
        try:
            near = float(value)
        except OverflowError:
            near = float("inf") if value > 0 else float("-inf")
        # Between two neighbouring floats no float lies, so the nearest one and
        # the right strictness say the same as the integer does.
        exact = exact_float(value) is not None
        if not exact and near > value:
            op = "<" if op in ("<", "<=") else ">="
        elif not exact:
            op = "<=" if op in ("<", "<=") else ">"
        return self._limited(op, term, DataType.FLOAT64, near)

    def _limited(self, op: str, term: Term, kind: DataType, stored: int | float) -> Term:
        limit = self._parameter(kind, Literal(stored), stored, near=term.type)
        return Apply(op, (term, limit), DataType.BOOL)


def _has_placeholder(source: Any) -> bool:
    if isinstance(source, tuple):
        return any(isinstance(each, Placeholder) for each in source)
    return isinstance(source, Placeholder)


def _is_beyond(value: int | Decimal, near: DataType) -> bool:
    """Say whether a number that is compared with a term has no type of its own, nor the term's."""
    if isinstance(value, int):
        return not INT64_MIN <= value <= INT64_MAX
    if near.is_exact and units_of(value, near.scale) is not None:
        return False
    scale = scale_of(value)
    return scale > DIGITS_MAX or units_of(value, scale) is None


def _constant_truth(term: Term, *, truth: bool) -> Term:
    return Apply("=" if truth else "<>", (term, term), DataType.BOOL)


def _has_type(loose: _Loose) -> bool:
    return loose.value is not None and not isinstance(loose.value, Unbound)


def _is_unbound(bound: Term | _Loose) -> bool:
    return isinstance(bound, _Loose) and isinstance(bound.value, Unbound)


def _is_date(bound: Term | _Loose) -> bool:
    if isinstance(bound, _Loose):
        return type(bound.value) is dt.date
    return bound.type is DataType.DATE


def _own_type(bound: Term | _Loose) -> DataType | None:
    if isinstance(bound, _Loose):
        return settle(bound.value, None)[0] if _has_type(bound) else None
    return bound.type


def _operand(expression: Call) -> str:
    side = expression.args[0]
    return repr(expression.args[1] if isinstance(side, (Literal, Placeholder)) else side)


def _placed_in(error: StatementError, expression: Expr) -> TypeMismatchError:
    """Add the innermost expression that a type error lies in, once."""
    text = str(error)
    return TypeMismatchError(text if " (in " in text else f"{text} (in {expression!r})")
