"""Expressions as users write them: immutable trees that Python operators build.

Rules of the file: a tree knows names and constants, not schemas or types; what
it means for a table is decided once, by `crescando.client.bind`. Building a
tree never evaluates anything, so whatever would need a truth value (``and``,
``or``, ``not``, ``if``, chained comparisons, ``in``) is refused with the mend.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

from crescando.client.constant import Constant, Numeral, normalise
from crescando.engine.validate import NODES_MAX
from crescando.errors import PredicateError, TypeMismatchError
from crescando.schema import DataType

DEPTH_MAX = 150
"""Deeper trees are refused when built; engines accept 200 levels of bound tree."""

SIZE_MAX = NODES_MAX
"""Larger trees are refused when built: one that holds itself twice, forty times over, would never end."""

Operand = Any
"""An `Expr`, or a Python or NumPy scalar that becomes a literal."""


class Expr:
    """An expression over the columns of one row; build it with `col` and `lit`.

    Comparisons give expressions too, so ``==`` cannot tell whether two trees
    are equal: expressions hash by identity, and `same_as` compares.
    """

    __slots__ = ("depth", "size")
    # NumPy scalars on the left of an operator leave the operator to us.
    __array_ufunc__: ClassVar[None] = None

    depth: int
    size: int
    """Nodes of the tree; one that is held twice counts twice, as it does wherever the tree is walked."""

    def children(self) -> tuple[Expr, ...]:
        """Give the direct operands."""
        return ()

    def same_as(self, other: Expr) -> bool:
        """Say whether the two trees are written alike."""
        return type(self) is type(other) and repr(self) == repr(other)

    # Comparisons.
    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]
        return call("=", self, other)

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]
        return call("<>", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return call("<", self, other)

    def __le__(self, other: Operand) -> Expr:
        return call("<=", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return call(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return call(">=", self, other)

    __hash__ = object.__hash__

    # Logic.
    def __and__(self, other: Operand) -> Expr:
        return connect("and", self, other)

    def __rand__(self, other: Operand) -> Expr:
        return connect("and", other, self)

    def __or__(self, other: Operand) -> Expr:
        return connect("or", self, other)

    def __ror__(self, other: Operand) -> Expr:
        return connect("or", other, self)

    def __invert__(self) -> Expr:
        return call("not", self)

    def __bool__(self) -> NoReturn:
        raise PredicateError(
            "an expression has no truth value before it is evaluated: write & for 'and', | for 'or', "
            "~ for 'not', with parentheses around each comparison; .between(a, b) for a chained comparison; "
            "and .isin([...]) for 'in'",
            repr(self),
        )

    def __contains__(self, item: object) -> NoReturn:
        raise PredicateError("write .isin([...]) or .like('%text%') for 'in'", repr(self))

    __iter__: ClassVar[None] = None

    # Arithmetic.
    def __add__(self, other: Operand) -> Expr:
        return call("+", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("+", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("-", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("-", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("*", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("*", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("truediv", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("truediv", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return call("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return call("floordiv", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return call("%", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return call("%", other, self)

    def __neg__(self) -> Expr:
        # A negative number is one constant: -2**63 fits int64 and 2**63 does not.
        if isinstance(self, Literal) and type(self.value) is Decimal:
            return Literal(self.value.copy_negate())  # Its minus would round to the thread's precision.
        if isinstance(self, Literal) and type(self.value) in (int, float, Numeral):
            return Literal(-self.value)  # type: ignore[operator]
        return call("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return call("abs", self)

    # Predicates.
    def isin(self, values: Iterable[object] | Placeholder) -> Expr:
        """Test membership in a list of constants, as SQL's IN does.

        Parameters
        ----------
        values : iterable of scalars, or a `param` that will be bound to one
            An empty list is false for every row; None in it stands for NULL.
        """
        if isinstance(values, Placeholder):
            return Membership(self, values)
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise TypeMismatchError(
                f"isin() takes a list of values, not {values!r}; write isin([{values!r}])"
            )
        return Membership(self, tuple(_listed(value) for value in values))

    def between(self, low: Operand, high: Operand) -> Expr:
        """Test ``low <= self <= high``, both ends included."""
        return connect("and", call(">=", self, low), call("<=", self, high))

    def like(self, pattern: str | Placeholder) -> Expr:
        """Match text, case-sensitively; ``%`` is any text and ``_`` any one character."""
        return call("like", self, pattern)

    def is_null(self) -> Expr:
        """Test for NULL (``== None`` is unknown for every row, as in SQL)."""
        return call("is_null", self)

    def is_not_null(self) -> Expr:
        """Test for a value."""
        return call("not", call("is_null", self))

    def is_true(self) -> Expr:
        """Turn unknown into false."""
        return call("is_true", self)

    def is_false(self) -> Expr:
        """Test that a predicate is false, not unknown."""
        return call("is_false", self)

    def is_unknown(self) -> Expr:
        """Test that a predicate is neither true nor false."""
        return call("is_unknown", self)

    # Functions.
    def cast(self, kind: DataType | str) -> Expr:
        """Convert to another type, checked: a value that does not fit is an error of its row."""
        return Call("cast", (self,), data_type(kind))

    def lower(self) -> Expr:
        """Give text in lower case."""
        return call("lower", self)

    def upper(self) -> Expr:
        """Give text in upper case."""
        return call("upper", self)

    def length(self) -> Expr:
        """Count the code points of text."""
        return call("length", self)

    def substr(self, start: Operand, length: Operand) -> Expr:
        """Give `length` characters of text from `start`, which counts from 1."""
        return call("substr", self, start, length)

    def concat(self, other: Operand) -> Expr:
        """Append text."""
        return call("concat", self, other)

    def floor(self) -> Expr:
        """Give the largest whole number not above."""
        return call("floor", self)

    def round(self, digits: int | None = None) -> Expr:
        """Round to `digits` decimal places; only in selected columns, not in predicates or SET."""
        return call("round", self) if digits is None else call("round", self, digits)

    def trunc(self, unit: str) -> Expr:
        """Cut a date or timestamp down to the start of its year, month, day, hour or minute."""
        return call(f"trunc_{_unit(unit, _TRUNC_UNITS)}", self)

    def extract(self, unit: str) -> Expr:
        """Give the year, month, day, hour, minute, second or dow (0 is Sunday) as an integer."""
        return call(f"extract_{_unit(unit, _EXTRACT_UNITS)}", self)

    # Output.
    def alias(self, name: str) -> Aliased:
        """Name the expression as an output column."""
        return Aliased(self, name)

    def desc(self) -> Ordering:
        """Order by this expression, greatest first (NULL last)."""
        return Ordering(self, True)

    def asc(self) -> Ordering:
        """Order by this expression, least first (NULL first)."""
        return Ordering(self, False)


_TRUNC_UNITS = ("year", "month", "day", "hour", "minute")
_EXTRACT_UNITS = ("year", "month", "day", "hour", "minute", "second", "dow")


def _unit(unit: str, known: tuple[str, ...]) -> str:
    if unit.lower() not in known:
        raise PredicateError(f"the unit {unit!r} is not one of {', '.join(known)}")
    return unit.lower()


class ColumnName(Expr):
    """A column, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeMismatchError(f"a column name is a str, not {name!r}")
        self.name = name
        self.depth = self.size = 1

    def __repr__(self) -> str:
        return f"col({self.name!r})"


class Literal(Expr):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: Constant = normalise(value)
        self.depth = self.size = 1

    def __repr__(self) -> str:
        return repr(self.value)


class Placeholder(Expr):
    """A constant that is bound later, by position (from 0) or by name."""

    __slots__ = ("key",)

    def __init__(self, key: int | str) -> None:
        self.key = key
        self.depth = self.size = 1

    def __repr__(self) -> str:
        return f"param({self.key!r})"


class Call(Expr):
    """An operator or function of the allow-list with its arguments."""

    __slots__ = ("args", "op", "target")

    def __init__(self, op: str, args: tuple[Expr, ...], target: DataType | None = None) -> None:
        self.op = op
        self.args = args
        self.target = target
        depth, size = 0, 1
        for arg in args:
            depth = max(depth, arg.depth)
            size += arg.size
        self._measured(depth + 1, size)

    def _measured(self, depth: int, size: int) -> None:
        if depth > DEPTH_MAX:
            raise PredicateError(f"an expression is nested more than {DEPTH_MAX} levels deep")
        if size > SIZE_MAX:
            raise PredicateError(f"an expression has at most {SIZE_MAX} nodes; pass long lists to isin()")
        self.depth = depth
        self.size = size

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def __repr__(self) -> str:
        if self.op in _INFIX:
            return f" {_INFIX[self.op]} ".join(_wrapped(arg) for arg in self.args)
        if self.op in _PREFIX:
            return f"{_PREFIX[self.op]}{_wrapped(self.args[0])}"
        if self.op == "cast" and self.target is not None:
            return f"{_wrapped(self.args[0])}.cast({self.target.value!r})"
        return f"{self.op}({', '.join(map(repr, self.args))})"


class Membership(Expr):
    """A value's membership in a list of constants."""

    __slots__ = ("term", "values")

    def __init__(self, term: Expr, values: tuple[Constant | Placeholder, ...] | Placeholder) -> None:
        self.term = term
        self.values = values
        self.depth = 1 + term.depth
        self.size = 1 + term.size

    def children(self) -> tuple[Expr, ...]:
        return (self.term,)

    def __repr__(self) -> str:
        shown = repr(self.values) if isinstance(self.values, Placeholder) else repr(list(self.values))
        return f"{_wrapped(self.term)}.isin({shown})"


class Aliased(Expr):
    """An output column: an expression and its name."""

    __slots__ = ("name", "term")

    def __init__(self, term: Expr, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise PredicateError(f"an output column's name is a str that is not empty, not {name!r}")
        self.term = term
        self.name = name
        self.depth = term.depth
        self.size = term.size

    def children(self) -> tuple[Expr, ...]:
        return (self.term,)

    def __repr__(self) -> str:
        return f"{_wrapped(self.term)}.alias({self.name!r})"


class Ordering:
    """One item of ORDER BY."""

    __slots__ = ("is_descending", "term")

    def __init__(self, term: Expr, is_descending: bool) -> None:
        self.term = term
        self.is_descending = is_descending

    def __repr__(self) -> str:
        return f"{_wrapped(self.term)}.{'desc' if self.is_descending else 'asc'}()"


_INFIX = {
    "=": "==",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "and": "&",
    "or": "|",
    "+": "+",
    "-": "-",
    "*": "*",
    "truediv": "/",
    "floordiv": "//",
    "%": "%",
}
_PREFIX = {"not": "~", "neg": "-"}


def _wrapped(expression: Expr) -> str:
    text = repr(expression)
    return f"({text})" if isinstance(expression, Call) and expression.op in {**_INFIX, **_PREFIX} else text


def _listed(value: object) -> Constant | Placeholder:
    if isinstance(value, Placeholder):
        return value
    if isinstance(value, Expr):
        raise TypeMismatchError(
            f"isin() takes constants, not the expression {value!r}; join comparisons with | instead"
        )
    return normalise(value)


def col(name: str) -> Expr:
    """Refer to a column by name.

    Examples
    --------
    >>> col("origin") == "JFK"
    col('origin') == 'JFK'
    """
    return ColumnName(name)


def lit(value: Operand) -> Expr:
    """Make a constant; an expression is given back as it is."""
    return value if isinstance(value, Expr) else Literal(value)


def param(key: int | str) -> Placeholder:
    """Make a constant that is bound when the statement is submitted: by position from 0, or by name."""
    return Placeholder(key)


def call(op: str, *args: Operand) -> Expr:
    """Apply an operator of the allow-list to expressions and scalars."""
    return Call(op, tuple(lit(arg) for arg in args))


def connect(op: str, *args: Operand) -> Expr:
    """Join predicates by ``and`` or ``or``, flattened, so that long chains stay shallow."""
    flat: list[Expr] = []
    depth, size = 0, 1
    for arg in map(lit, args):
        # What is known of a chain need not be counted anew for each of its thousand links.
        if isinstance(arg, Call) and arg.op == op:
            flat.extend(arg.args)
            depth, size = max(depth, arg.depth - 1), size + arg.size - 1
        else:
            flat.append(arg)
            depth, size = max(depth, arg.depth), size + arg.size
    if len(flat) == 1:
        return flat[0]
    chain = Call.__new__(Call)
    chain.op, chain.args, chain.target = op, tuple(flat), None
    chain._measured(depth + 1, size)
    return chain


def data_type(kind: DataType | str) -> DataType:
    """Give a type by itself or by its name.

    Raises
    ------
    TypeMismatchError
        If no type has this name.
    """
    if isinstance(kind, DataType):
        return kind
    try:
        return DataType(kind.lower().replace(" ", ""))
    except (ValueError, AttributeError):
        known = ", ".join([*(each.value for each in DataType), "decimal(precision,scale)"])
        raise TypeMismatchError(f"{kind!r} is not a type; the types are {known}") from None
