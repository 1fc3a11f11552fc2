"""The form of a statement: what is left of it when its constants are taken out.

Rules of the file: statements of one form share their binding, so that a program
which builds an expression for every query pays for typing and checking once.
Two statements have equal forms only if they differ in nothing but the values
of constants; the types of these are looked at when they are filled in.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from crescando.client.constant import Constant
from crescando.client.expression import Aliased, Call, ColumnName, Expr, Literal, Membership, Placeholder
from crescando.client.slot import Value
from crescando.client.template import AggregateCall, Template

CONSTANTS_MAX = 64
"""Statements with more constants are bound each time; their forms rarely come again."""

_CONSTANT = 0


class TooManyConstants(Exception):  # noqa: N818  # A signal between two functions, not an error.
    """The statement is not worth remembering."""


def constant_key(index: int) -> str:
    """Give the placeholder that stands for a constant; no user can name it so."""
    return f"\0{index}"


def form_of(template: Template) -> tuple[Hashable, dict[int | str, Value]]:
    """Give a template's form, and its constants by the placeholders that stand for them.

    Raises
    ------
    TooManyConstants
        If there are more than `CONSTANTS_MAX`.
    """
    found: list[Value] = []
    form = (
        template.kind,
        template.isolation,
        tuple((name, _form(term, found)) for name, term in template.outputs),
        tuple(
            (name, aggregate.function, aggregate.term is not None and _form(aggregate.term, found))
            for name, aggregate in template.aggregates
        ),
        tuple((name, _form(term, found)) for name, term in template.assignments),
        tuple((name, _form(term, found)) for name, term in template.group_by),
        template.order,
        template.returning,
        template.limit is not None and _form(template.limit, found),
        template.where is not None and _form(template.where, found),
    )
    return form, {constant_key(index): value for index, value in enumerate(found)}


def _form(expression: Expr, found: list[Value]) -> Hashable:
    kind = expression.__class__
    if kind is Call:
        assert isinstance(expression, Call)
        return (expression.op, expression.target, *[_form(arg, found) for arg in expression.args])
    if isinstance(expression, ColumnName):
        return expression.name
    if isinstance(expression, Literal):
        found.append(expression.value)
        if len(found) > CONSTANTS_MAX:
            raise TooManyConstants
        return _CONSTANT
    if isinstance(expression, Placeholder):
        return (Placeholder, expression.key)
    if isinstance(expression, Membership):
        term = _form(expression.term, found)
        listed = expression.values
        if isinstance(listed, Placeholder):
            return (Membership, term, listed.key)
        if not any(isinstance(each, Placeholder) for each in listed):
            found.append(_constants(listed))
            return (Membership, term)
        raise TooManyConstants
    assert isinstance(expression, Aliased)
    return _form(expression.term, found)


def _constants(listed: tuple[Constant | Placeholder, ...]) -> tuple[Constant, ...]:
    return tuple(each for each in listed if not isinstance(each, Placeholder))


def without_constants(template: Template) -> Template:
    """Give the template with placeholders for its constants, numbered as `form_of` does."""
    counter = _Counter()
    return replace(
        template,
        outputs=tuple((name, counter.placed(term)) for name, term in template.outputs),
        aggregates=tuple(
            (name, AggregateCall(each.function, None if each.term is None else counter.placed(each.term)))
            for name, each in template.aggregates
        ),
        assignments=tuple((name, counter.placed(term)) for name, term in template.assignments),
        group_by=tuple((name, counter.placed(term)) for name, term in template.group_by),
        limit=None if template.limit is None else counter.placed(template.limit),
        where=None if template.where is None else counter.placed(template.where),
    )


class _Counter:
    """Rebuilds expressions, counting the constants it replaces."""

    def __init__(self) -> None:
        self._n = 0

    def placed(self, expression: Expr) -> Expr:
        match expression:
            case Call():
                args = tuple(self.placed(arg) for arg in expression.args)
                return Call(expression.op, args, expression.target)
            case Literal():
                return self._next()
            case Membership():
                term = self.placed(expression.term)
                is_bound_later = isinstance(expression.values, Placeholder)
                return Membership(term, expression.values if is_bound_later else self._next())
            case Aliased():
                return self.placed(expression.term)
        return expression

    def _next(self) -> Placeholder:
        self._n += 1
        return Placeholder(constant_key(self._n - 1))
