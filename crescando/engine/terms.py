"""Evaluate typed terms over frames, in SQL's three-valued logic plus ERROR.

Rules of the file: the rules of truth live here. ERROR is combined without order:
AND is the minimum in FALSE < UNKNOWN < ERROR < TRUE, OR the maximum in FALSE <
ERROR < UNKNOWN < TRUE, and every other operator is an ERROR if an argument is
(CASE only up to the branch that the row takes). NULL arguments make NULL
results, and an operation fails only on rows whose arguments are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import decimals, moments, texts
from crescando.engine.arithmetic import BINARY, UNARY, round_half_away
from crescando.engine.conversion import convert
from crescando.engine.dictionary import Pool, unify_equality, unify_order
from crescando.engine.evaluator import ROWS_MIN
from crescando.engine.frame import Frame
from crescando.engine.functions import Cause
from crescando.engine.keys import Mask, equal_to, less_than
from crescando.engine.membership import is_member
from crescando.engine.statement import PHYSICAL, Apply, ColumnRef, Parameter, Term
from crescando.engine.values import (
    Errors,
    Value,
    both_valid,
    first_cause,
    new_pool,
    raised,
    recode,
    stretched,
)
from crescando.schema import DataType

BOOL = DataType.BOOL


def evaluate(term: Term, frame: Frame) -> Value:
    """Give a term's value on every row of a frame; shape (n_rows,), or (1,) for a constant."""
    if isinstance(term, ColumnRef):
        return frame.column(term.column)
    if isinstance(term, Parameter):
        return frame.parameter(term)
    rule = _SPECIAL.get(term.op)
    if rule is not None:
        return rule(term, frame)
    if term.type is DataType.FLOAT64 and frame.n_rows >= ROWS_MIN:
        planned = frame.evaluator.plan(term)
        if planned is not None:
            return _fused(planned[0], planned[1], frame)
    return _STRICT[term.op](term, [evaluate(argument, frame) for argument in term.args])


def _fused(text: str, operands: tuple[Term, ...], frame: Frame) -> Value:
    values = [evaluate(operand, frame) for operand in operands]
    valid, error = _combined(values)
    arrays = [convert(value, DataType.FLOAT64).spread(frame.n_rows).data for value in values]
    return Value(DataType.FLOAT64, frame.evaluator.run(text, arrays, frame.n_rows), valid, error)


def _combined(values: list[Value]) -> tuple[Mask | None, Errors | None]:
    valid, error = values[0].valid, values[0].error
    for value in values[1:]:
        valid = both_valid(valid, value.valid)
        error = first_cause(error, value.error)
    return valid, error


def _result(
    kind: DataType,
    values: list[Value],
    data: NDArray[Any],
    error: Errors | None = None,
    pool: Pool | None = None,
) -> Value:
    """Give a strict operator's result; raised errors count where all arguments are known."""
    valid, before = _combined(values)
    if error is not None:
        if valid is not None:
            error = np.where(valid, error, np.uint8(0))
        if before is not None:
            error = np.where(before == 0, error, np.uint8(0))
    return Value(kind, data, valid, first_cause(before, error), pool)


def compare(op: str, left: Value, right: Value) -> Mask:
    """Give where ``left op right`` holds, rows that are NULL or ERROR left arbitrary."""
    a, b = left.data, right.data
    if left.type.is_textual:
        unify = unify_equality if op in ("=", "<>") else unify_order
        a, b = unify(left.strings(), a, right.strings(), b)
    m, n = left.type.scale, right.type.scale
    if op == "=":
        return equal_to(a, b, m, n)
    if op == "<>":
        return ~equal_to(a, b, m, n)
    if op == "<":
        return less_than(a, b, m, n)
    if op == ">":
        return less_than(b, a, n, m)
    return ~less_than(b, a, n, m) if op == "<=" else ~less_than(a, b, m, n)


def _compare(term: Apply, values: list[Value]) -> Value:
    return _result(BOOL, values, compare(term.op, values[0], values[1]))


def _like(term: Apply, values: list[Value]) -> Value:
    text, pattern = values
    return _result(BOOL, values, texts.like(text.strings(), text.data, pattern.strings(), pattern.data))


def _in(term: Apply, frame: Frame) -> Value:
    value = evaluate(term.args[0], frame)
    parameter = term.args[1]
    assert isinstance(parameter, Parameter)
    lists = frame.constants.many(parameter)
    found = is_member(value, lists, frame.operations)
    empty = (lists.offsets[1:] == lists.offsets[:-1]) & ~lists.has_null
    # x IN () is FALSE even for NULL; else NULL on either side leaves "not found" unknown.
    known = empty[frame.operations] | (found | ~lists.has_null[frame.operations])
    if value.valid is not None:
        known = np.where(value.valid, known, empty[frame.operations])
        found = found & value.valid
    return Value(BOOL, found, stretched(known, found.shape), value.error)


def _is_null(term: Apply, values: list[Value]) -> Value:
    value = values[0]
    data = np.zeros(value.data.shape, np.bool_) if value.valid is None else ~value.valid
    return Value(BOOL, data, None, value.error)


def _is_truth(term: Apply, values: list[Value]) -> Value:
    value = values[0]
    valid = value.valid
    if term.op == "is_unknown":
        return _is_null(term, values)
    data = value.data if term.op == "is_true" else ~value.data
    return Value(BOOL, data if valid is None else data & valid, None, value.error)


def _not(term: Apply, values: list[Value]) -> Value:
    value = values[0]
    return Value(BOOL, ~value.data, value.valid, value.error)


def _and(term: Apply, frame: Frame) -> Value:
    return conjunction(term.args, frame)


def conjunction(terms: tuple[Term, ...], frame: Frame) -> Value:
    """Combine predicates by AND, one at a time so that wide ones need little memory."""
    return _junction(terms, frame, dominant=False)


def _or(term: Apply, frame: Frame) -> Value:
    return _junction(term.args, frame, dominant=True)


def _junction(terms: tuple[Term, ...], frame: Frame, *, dominant: bool) -> Value:
    """Fold AND (`dominant` False) or OR (`dominant` True).

    The dominant truth decides wherever it occurs; then UNKNOWN beats ERROR in
    both algebras, and ERROR beats the other truth.
    """
    decided: Any = np.zeros(1, np.bool_)
    unknown: Any = np.zeros(1, np.bool_)
    error: Errors | None = None

    for term in terms:
        value = evaluate(term, frame)
        hit = value.data if dominant else ~value.data
        null = None if value.valid is None else ~value.valid
        if value.error is not None:
            clean = value.error == 0
            hit = hit & clean
            null = None if null is None else null & clean
            error = first_cause(error, value.error)
        if null is not None:
            hit = hit & ~null
            unknown = unknown | null
        decided = decided | hit
    undecided = ~decided
    valid = None
    if unknown.any():
        unknown = unknown & undecided
        valid = ~unknown
        undecided = undecided & ~unknown
    if error is not None:
        error = np.where(undecided, error, np.uint8(0))
        if not error.any():
            error = None
    return Value(BOOL, decided if dominant else ~decided, valid, error)


def _binary(term: Apply, values: list[Value]) -> Value:
    left, right = values
    if left.type.is_integer and right.type.is_integer:
        data, error = BINARY[term.op](left.data, right.data, False)
    elif left.type.is_exact and right.type.is_exact:
        data, error = decimals.binary(term.op, term.type, left, right)
    else:
        real = [convert(value, DataType.FLOAT64).data for value in values]
        data, error = BINARY[term.op](real[0], real[1], True)
    return _result(term.type, values, data, error)


def _unary(term: Apply, values: list[Value]) -> Value:
    if term.op == "floor" and values[0].type.is_decimal:
        data, error = decimals.floor(values[0])
    else:
        data, error = UNARY[term.op](values[0].data)
    return _result(term.type, values, data, error)


def _round(term: Apply, values: list[Value]) -> Value:
    digits = values[1].data if len(values) == 2 else None
    if values[0].type.is_decimal:
        data, error = decimals.round_half_away(values[0], digits)
    else:
        data, error = round_half_away(values[0].data, digits)
    return _result(term.type, values, data, error)


def _concat(term: Apply, values: list[Value]) -> Value:
    left, right = values
    pool, codes, error = texts.concatenate_texts(left.strings(), left.data, right.strings(), right.data)
    return _result(term.type, values, codes, error, pool)


def _map_text(term: Apply, values: list[Value]) -> Value:
    function = str.lower if term.op == "lower" else str.upper
    pool, codes = texts.map_texts(values[0].strings(), values[0].data, function)
    return _result(term.type, values, codes, None, pool)


def _length(term: Apply, values: list[Value]) -> Value:
    return _result(term.type, values, texts.lengths(values[0].strings(), values[0].data))


def _substr(term: Apply, values: list[Value]) -> Value:
    counts = values[2].data if len(values) == 3 else None
    pool, codes, error = texts.substrings(values[0].strings(), values[0].data, values[1].data, counts)
    return _result(term.type, values, codes, error, pool)


def _date_add(term: Apply, values: list[Value]) -> Value:
    data, error = moments.add_days(values[0].data, values[1].data)
    return _result(term.type, values, data, error)


def _date_diff(term: Apply, values: list[Value]) -> Value:
    return _result(term.type, values, moments.days_between(values[0].data, values[1].data))


def _calendar(term: Apply, values: list[Value]) -> Value:
    verb, _, unit = term.op.partition("_")
    work = moments.truncate if verb == "trunc" else moments.extract
    return _result(term.type, values, work(unit, values[0].type, values[0].data))


def _cast(term: Apply, values: list[Value]) -> Value:
    value, target = values[0], term.type
    if value.type is target:
        return value
    if value.type is DataType.STRING:
        data, error = texts.parse(value.strings(), value.data, target)
        return _result(target, values, data, error)
    if target is DataType.STRING:
        pool, codes = texts.from_exact(value.data, value.type.scale)
        return _result(target, values, codes, None, pool)
    if target is DataType.TIMESTAMP:
        data, error = moments.to_timestamp(value.data)
        return _result(target, values, data, error)
    if target is DataType.DATE:
        return _result(target, values, moments.to_date(value.data))
    return convert(value, target)


def _coalesce(term: Apply, frame: Frame) -> Value:
    undecided: Mask = np.ones(1, np.bool_)
    error: Errors | None = None
    chosen = _Chosen(term.type)
    for argument in term.args:
        value = evaluate(argument, frame)
        error = first_cause(error, value.error)
        chosen.take(undecided if value.valid is None else undecided & value.valid, value)
        undecided = np.zeros(1, np.bool_) if value.valid is None else undecided & ~value.valid
    found = chosen.value()
    # A number may be known, and too large for the type that all of them share.
    found.error = first_cause(error, found.error)
    return found


def _nullif(term: Apply, values: list[Value]) -> Value:
    left, right = values
    _, error = _combined(values)
    same = compare("=", left, right)
    if right.valid is not None:
        same = same & right.valid
    valid = both_valid(left.valid, ~same)
    return Value(term.type, stretched(left.data, same.shape), valid, error, left.pool)


def _case(term: Apply, frame: Frame) -> Value:
    undecided: Mask = np.ones(frame.n_rows, np.bool_)
    failed: Errors = np.zeros(frame.n_rows, np.uint8)
    chosen = _Chosen(term.type)
    for condition, branch in zip(term.args[:-1:2], term.args[1:-1:2], strict=True):
        value = evaluate(condition, frame).spread(frame.n_rows)
        if value.error is not None:
            failed = np.where(undecided, value.error, failed)
            undecided = undecided & (value.error == 0)
        holds = value.data if value.valid is None else value.data & value.valid
        chosen.take(undecided & holds, evaluate(branch, frame))
        undecided = undecided & ~holds
    chosen.take(undecided, evaluate(term.args[-1], frame))
    found = chosen.value()
    found.error = first_cause(found.error, failed if failed.any() else None)
    return found


class _Chosen:
    """One of several values for each row, converted to one type; NULL where none is taken.

    They are taken one after the other, so that thousands of branches need the memory of one.

    Parameters
    ----------
    kind : DataType
    """

    def __init__(self, kind: DataType) -> None:
        self._kind = kind
        self._pool: Pool | None = None
        self._is_own = False
        self._data: NDArray[Any] = np.zeros(1, np.int64 if kind.is_textual else PHYSICAL[kind])
        self._valid: Mask = np.zeros(1, np.bool_)
        self._error: Errors = np.zeros(1, np.uint8)

    def take(self, mask: Mask, value: Value) -> None:
        """Take a value for some rows, none of which has one yet."""
        value = self._in_one_pool(value) if self._kind.is_textual else convert(value, self._kind)
        self._data = np.where(mask, value.data, self._data)
        self._valid = np.where(mask, True if value.valid is None else value.valid, self._valid)
        error = 0 if value.error is None else value.error
        self._error = np.where(mask, error, self._error).astype(np.uint8, copy=False)

    def _in_one_pool(self, value: Value) -> Value:
        if self._pool is None:
            self._pool = value.strings()
        if value.pool is self._pool:
            return value
        if not self._is_own:
            own = new_pool(self._kind)
            known = Value(self._kind, self._data, None, None, self._pool)
            self._data, self._pool, self._is_own = recode(known, own).data, own, True
        return recode(value, self._pool)

    def value(self) -> Value:
        """Give what was taken."""
        shape = np.broadcast_shapes(self._data.shape, self._valid.shape, self._error.shape)
        valid = None if self._valid.all() else self._valid
        error = self._error if self._error.any() else None
        return Value(self._kind, stretched(self._data, shape), valid, error, self._pool)


_SPECIAL: dict[str, Callable[[Apply, Frame], Value]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
}

_STRICT: dict[str, Callable[[Apply, list[Value]], Value]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _compare),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(("is_true", "is_false", "is_unknown"), _is_truth),
    **dict.fromkeys(("lower", "upper"), _map_text),
    **dict.fromkeys(
        (
            "trunc_year",
            "trunc_month",
            "trunc_day",
            "trunc_hour",
            "trunc_minute",
            "extract_year",
            "extract_month",
            "extract_day",
            "extract_dow",
            "extract_hour",
            "extract_minute",
            "extract_second",
        ),
        _calendar,
    ),
    "like": _like,
    "is_null": _is_null,
    "not": _not,
    "round": _round,
    "concat": _concat,
    "length": _length,
    "substr": _substr,
    "date_add": _date_add,
    "date_diff": _date_diff,
    "cast": _cast,
    "nullif": _nullif,
}


def matches(value: Value, n_rows: int) -> tuple[Mask, Errors | None]:
    """Split a predicate's value into the rows where it is TRUE and the errors."""
    spread = value.spread(n_rows)
    mask = spread.data
    if spread.valid is not None:
        mask = mask & spread.valid
    if spread.error is not None:
        mask = mask & (spread.error == 0)
    return mask, spread.error


def null_error(value: Value) -> Errors | None:
    """Give an error for each row that is NULL (for columns that are not nullable)."""
    return None if value.valid is None else raised(~value.valid, Cause.NULL_VALUE)
