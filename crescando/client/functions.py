"""Functions of expressions that are not methods of `Expr`.

Use as ``from crescando import functions as f``; every argument may be an
expression or a constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from crescando.client.expression import Call, Expr, Operand, call, connect, lit
from crescando.errors import PredicateError


def coalesce(*values: Operand) -> Expr:
    """Give the first value that is not NULL."""
    if not values:
        raise PredicateError("coalesce() takes at least one value")
    return call("coalesce", *values)


def nullif(value: Operand, other: Operand) -> Expr:
    """Give NULL if both are equal, else `value`."""
    return call("nullif", value, other)


def div(value: Operand, other: Operand) -> Expr:
    """Divide as SQL's ``/``: two integers give the quotient cut toward zero."""
    return call("div", value, other)


def date_add(date: Operand, days: Operand) -> Expr:
    """Give the date some days later."""
    return call("date_add", date, days)


def date_diff(date: Operand, other: Operand) -> Expr:
    """Give the days from `other` to `date`."""
    return call("date_diff", date, other)


def concat(*texts: Operand) -> Expr:
    """Join texts."""
    if not texts:
        raise PredicateError("concat() takes at least one text")
    return reduce(lambda left, right: call("concat", left, right), map(lit, texts))


def all_of(predicates: Iterable[Operand]) -> Expr:
    """Join any number of predicates with AND; none at all is true."""
    return _joined("and", predicates, default=True)


def any_of(predicates: Iterable[Operand]) -> Expr:
    """Join any number of predicates with OR; none at all is false."""
    return _joined("or", predicates, default=False)


def _joined(op: str, predicates: Iterable[Operand], *, default: bool) -> Expr:
    listed = tuple(predicates)
    return connect(op, *listed) if listed else lit(default)


class When:
    """A CASE being written; end it with `otherwise` or `end`.

    A row takes the first branch whose condition is true.
    """

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[Expr, ...]) -> None:
        self._branches = branches

    def when(self, condition: Operand, value: Operand) -> When:
        """Add a branch."""
        return When((*self._branches, lit(condition), lit(value)))

    def otherwise(self, value: Operand) -> Expr:
        """Give the expression; rows that took no branch get `value`."""
        return Call("case", (*self._branches, lit(value)))

    def end(self) -> Expr:
        """Give the expression; rows that took no branch get NULL."""
        return self.otherwise(None)

    def __repr__(self) -> str:
        return f"when({', '.join(map(repr, self._branches))})"


def when(condition: Operand, value: Operand) -> When:
    """Begin a CASE.

    Examples
    --------
    >>> from crescando import col
    >>> when(col("dep_delay") > 60, "late").otherwise("on time")
    case(col('dep_delay') > 60, 'late', 'on time')
    """
    return When((lit(condition), lit(value)))
