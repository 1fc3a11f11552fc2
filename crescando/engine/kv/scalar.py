"""Terms on one row: three-valued logic plus ERROR, by the book.

Rules of the file: NULL is None and an ERROR is its `Cause`. AND is the minimum
in FALSE < UNKNOWN < ERROR < TRUE, OR the maximum in FALSE < ERROR < UNKNOWN <
TRUE; every other operator is an ERROR if an argument is, of the smallest cause,
and else NULL if an argument is. A term is compiled once per operation, with the
operation's constants in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from crescando.engine.functions import Cause
from crescando.engine.kv.operators import Rule, canonical, number, rule_of, widen
from crescando.engine.statement import Apply, ColumnRef, Parameter, Term
from crescando.schema import DataType

Compiled = Callable[[Sequence[Any]], Any]
"""Gives a term's value on one row, whose values lie in the schema's order."""

SEES_NULL = frozenset({"is_null", "is_true", "is_false", "is_unknown", "coalesce", "nullif"})
"""Operators whose result need not be NULL where an argument is."""


def compile_term(term: Term, places: Mapping[int, int], parameters: tuple[Any, ...]) -> Compiled:
    """Give a term as a function of a row.

    Parameters
    ----------
    term : Term
        Valid by `engine.validate`.
    places : mapping of int to int
        Where in a row each column lies, by catalog id.
    parameters : tuple
        The operation's constants.
    """
    if isinstance(term, ColumnRef):
        return itemgetter(places[term.column])
    if isinstance(term, Parameter):
        constant = parameters[term.index]
        return lambda row: constant
    if term.op == "in":
        listed = term.args[1]
        assert isinstance(listed, Parameter)
        subject = term.args[0]
        tested = compile_term(subject, places, parameters)
        return _membership(tested, subject.type, parameters[listed.index], listed.type)
    arguments = [compile_term(argument, places, parameters) for argument in term.args]
    if term.op in ("and", "or"):
        return _junction(arguments, deciding=term.op == "or")
    if term.op == "case":
        return _case(arguments, [argument.type for argument in term.args], term.type)
    return _strict(term, arguments)


def smallest_cause(values: Sequence[Any]) -> Cause | None:
    """Give the smallest cause among some values, or None if none is an ERROR."""
    causes = [value for value in values if type(value) is Cause]
    return min(causes) if causes else None


def _strict(term: Apply, arguments: list[Compiled]) -> Compiled:
    rule: Rule = rule_of(term)
    sees_null = term.op in SEES_NULL

    def run(row: Sequence[Any]) -> Any:
        values = [argument(row) for argument in arguments]
        cause = smallest_cause(values)
        if cause is not None:
            return cause
        return rule(*values) if sees_null or None not in values else None

    return run


def _junction(arguments: list[Compiled], *, deciding: bool) -> Compiled:
    def run(row: Sequence[Any]) -> Any:
        values = [argument(row) for argument in arguments]
        # By identity, since 1 == True and a cause is a number.
        if any(value is deciding for value in values):
            return deciding
        if any(value is None for value in values):
            return None
        cause = smallest_cause(values)
        return not deciding if cause is None else cause

    return run


def _case(arguments: list[Compiled], kinds: list[DataType], target: DataType) -> Compiled:
    conditions, results, otherwise = arguments[:-1:2], arguments[1:-1:2], arguments[-1]
    sources = kinds[1:-1:2]

    def run(row: Sequence[Any]) -> Any:
        for condition, result, source in zip(conditions, results, sources, strict=True):
            truth = condition(row)
            if type(truth) is Cause:
                return truth
            if truth is True:
                return _widened(result(row), source)
        return _widened(otherwise(row), kinds[-1])

    def _widened(value: Any, source: DataType) -> Any:
        return value if type(value) is Cause else widen(value, source, target)

    return run


def _membership(subject: Compiled, kind: DataType, items: tuple[Any, ...], listed: DataType) -> Compiled:
    wanted = {canonical(number(item, listed)) for item in items if item is not None}
    unknown = None if None in items else False

    def run(row: Sequence[Any]) -> Any:
        value = subject(row)
        if type(value) is Cause:
            return value
        if not items:
            return False  # Also of NULL.
        if value is None:
            return None
        return True if canonical(number(value, kind)) in wanted else unknown

    return run
