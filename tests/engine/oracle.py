"""A naive serial engine: one operation at a time, one row at a time, plain Python.

It shares nothing with the fast engine but the vocabulary (shapes, causes) and the
ring position of a key, and is the judge in the differential tests. NULL is
None; an erroneous value is an `Err`.
"""

from __future__ import annotations

import decimal
import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from crescando.engine.functions import TEXT_MAX, Cause
from crescando.engine.partition import position_of
from crescando.engine.statement import Apply, Column, ColumnRef, Kind, Operation, Parameter, Shape, Term
from crescando.engine.transactions import STEP_ROWS
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange, Scope


class Err:
    """An erroneous value and why it is one."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause


ERR = {cause: Err(cause) for cause in Cause}
Function = Callable[[list[Any], tuple[Any, ...]], Any]

BITS = {DataType.INT8: 8, DataType.INT16: 16, DataType.INT32: 32, DataType.INT64: 64}
EPOCH_DAY = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def order(left: Any, right: Any) -> int:
    """Compare two values that are not NULL: NaN equals itself and is above everything."""
    if left < right:
        return -1
    if left == right:
        return 0
    if left > right:
        return 1
    return is_nan(left) - is_nan(right)


def canonical(value: Any) -> Any:
    """Give something hashable that is equal exactly for equal values of one type."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def number(value: Any, kind: DataType) -> Any:
    """Give a value as the number that it is: decimals are kept as whole units of their scale."""
    return value if value is None or not kind.is_decimal else Fraction(value, 10**kind.scale)


def comparison(op: str, left: DataType, right: DataType) -> Callable[[Any, Any], bool]:
    """Give how two values that are not NULL compare, by what their types make necessary."""
    if left.is_float or right.is_float:
        test = COMPARISONS[op]
        if left.is_decimal or right.is_decimal:
            return lambda a, b: test(order(number(a, left), number(b, right)))
        return lambda a, b: test(order(a, b))
    # Without NaN the order is Python's own; units of two scales are compared in the finer one.
    compare, finer = OPERATORS[op], 10 ** abs(left.scale - right.scale)
    if left.scale < right.scale:
        return lambda a, b: compare(a * finer, b)
    if left.scale > right.scale:
        return lambda a, b: compare(a, b * finer)
    return compare


COMPARISONS: dict[str, Callable[[int], bool]] = {
    "=": lambda c: c == 0,
    "<>": lambda c: c != 0,
    "<": lambda c: c < 0,
    "<=": lambda c: c <= 0,
    ">": lambda c: c > 0,
    ">=": lambda c: c >= 0,
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_term(term: Term, places: dict[int, int]) -> Function:
    """Turn a term into a function of a row and the parameters."""
    if isinstance(term, ColumnRef):
        place = places[term.column]
        return lambda row, parameters: row[place]
    if isinstance(term, Parameter):
        index = term.index
        return lambda row, parameters: parameters[index]
    arguments = [compile_term(argument, places) for argument in term.args]
    op = term.op
    if op in ("and", "or"):
        return junction(op, arguments)
    if op == "case":
        return case(arguments, [argument.type for argument in term.args], term.type)
    if op == "in":
        return membership(arguments, term.args[0].type, term.args[1].type)
    rule = scalar_rule(term)
    if op in ("is_null", "is_true", "is_false", "is_unknown", "coalesce", "nullif"):
        return lambda row, parameters: strict_about_errors(rule, [f(row, parameters) for f in arguments])
    if len(arguments) == 2:
        if isinstance(term.args[0], ColumnRef) and isinstance(term.args[1], Parameter):
            return column_and_parameter(rule, places[term.args[0].column], term.args[1].index)
        return pairwise(rule, *arguments)
    return lambda row, parameters: strict(rule, [f(row, parameters) for f in arguments])


def first_error(values: Any) -> Err | None:
    found = None
    for value in values:
        if type(value) is Err and (found is None or value.cause < found.cause):
            found = value
    return found


def strict_about_errors(rule: Callable[..., Any], values: list[Any]) -> Any:
    return first_error(values) or rule(*values)


def strict(rule: Callable[..., Any], values: Any) -> Any:
    null = False
    for value in values:
        if type(value) is Err:
            return first_error(values)
        if value is None:
            null = True
    return None if null else rule(*values)


def pairwise(rule: Callable[..., Any], left: Function, right: Function) -> Function:
    def run(row: list[Any], parameters: tuple[Any, ...]) -> Any:
        a, b = left(row, parameters), right(row, parameters)
        if type(a) is Err or type(b) is Err:
            return first_error((a, b))
        return None if a is None or b is None else rule(a, b)

    return run


def column_and_parameter(rule: Callable[..., Any], place: int, index: int) -> Function:
    """As `pairwise`, for what most predicates are of; a stored value is no error, nor is a constant."""

    def run(row: list[Any], parameters: tuple[Any, ...]) -> Any:
        a, b = row[place], parameters[index]
        return None if a is None or b is None else rule(a, b)

    return run


def junction(op: str, arguments: list[Function]) -> Function:
    """AND: minimum of FALSE < UNKNOWN < ERROR < TRUE. OR: maximum of FALSE < ERROR < UNKNOWN < TRUE."""
    deciding = op == "or"

    def run(row: list[Any], parameters: tuple[Any, ...]) -> Any:
        null, error = False, None
        for argument in arguments:
            value = argument(row, parameters)
            if value is deciding:
                return deciding
            if value is None:
                null = True
            elif type(value) is Err and (error is None or value.cause < error.cause):
                error = value
        return None if null else error or (not deciding)

    return run


def case(arguments: list[Function], kinds: list[DataType], target: DataType) -> Function:
    def run(row: list[Any], parameters: tuple[Any, ...]) -> Any:
        for place in range(0, len(arguments) - 1, 2):
            truth = arguments[place](row, parameters)
            if type(truth) is Err:
                return truth
            if truth is True:
                return widen(arguments[place + 1](row, parameters), kinds[place + 1], target)
        return widen(arguments[-1](row, parameters), kinds[-1], target)

    return run


def widen(value: Any, kind: DataType, target: DataType) -> Any:
    if value is None or type(value) is Err or kind is target:
        return value
    return convert(number(value, kind), target)


def membership(arguments: list[Function], kind: DataType, listed: DataType) -> Function:
    subject, list_of = arguments
    is_equal = comparison("=", kind, listed)

    def run(row: list[Any], parameters: tuple[Any, ...]) -> Any:
        value, items = subject(row, parameters), list_of(row, parameters)
        if type(value) is Err:
            return value
        if not items:
            return False
        if value is None:
            return None
        for item in items:
            if item is not None and is_equal(value, item):
                return True
        return None if None in items else False

    return run


def scalar_rule(term: Apply) -> Callable[..., Any]:
    op, kind = term.op, term.type
    kinds = [argument.type for argument in term.args]
    if op in COMPARISONS:
        return comparison(op, kinds[0], kinds[1])
    if op in ("+", "-", "*", "div", "floordiv", "truediv", "%"):
        real = any(each.is_float for each in kinds)
        if any(each.is_decimal for each in kinds):
            return lambda a, b: decimal_arithmetic(op, number(a, kinds[0]), number(b, kinds[1]), real, kind)
        return lambda a, b: arithmetic(op, a, b, real)
    if op in ("floor", "round") and kind.is_decimal:
        return lambda a, digits=0: decimal_rounding(op, Fraction(a, 10 ** kinds[0].scale), digits, kind)
    if op.startswith(("extract_", "trunc_")):
        return lambda a: calendar(op, term.args[0].type, a)
    if op == "cast":
        return lambda a: cast(a, term.args[0].type, kind)
    rules: dict[str, Callable[..., Any]] = {
        "not": lambda a: not a,
        "is_null": lambda a: a is None,
        "is_unknown": lambda a: a is None,
        "is_true": lambda a: a is True,
        "is_false": lambda a: a is False,
        "like": like,
        "neg": lambda a: bounded(-a, kind),
        "abs": lambda a: bounded(abs(a), kind),
        "floor": lambda a: a if isinstance(a, int) or not math.isfinite(a) else float(math.floor(a)),
        "coalesce": lambda *a: next(
            (widen(v, k, kind) for v, k in zip(a, kinds, strict=True) if v is not None), None
        ),
        "nullif": lambda a, b: (
            None
            if a is not None and b is not None and order(number(a, kinds[0]), number(b, kinds[1])) == 0
            else a
        ),
        "concat": lambda a, b: a + b if len(a) + len(b) <= TEXT_MAX else ERR[Cause.OVERFLOW],
        "lower": lambda a: a.lower(),
        "upper": lambda a: a.upper(),
        "length": len,
        "substr": substr,
        "date_add": date_add,
        "date_diff": lambda a, b: a - b,
    }
    return rules[op]


def decimal_arithmetic(op: str, a: Any, b: Any, real: bool, kind: DataType) -> Any:
    """Compute on fractions, or on floats where one is a float."""
    if op not in ("+", "-", "*") and b == 0:
        return ERR[Cause.DIVISION_BY_ZERO]
    if real:
        return arithmetic(op, float(a), float(b), True)
    a, b = Fraction(a), Fraction(b)
    if op in ("div", "truediv"):
        return float(a / b)
    exact = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "floordiv": lambda: Fraction(math.floor(a / b)),
        "%": lambda: a - b * math.trunc(a / b),
    }[op]()
    return in_digits(exact, kind)


def decimal_rounding(op: str, value: Fraction, digits: int, kind: DataType) -> Any:
    if op == "floor":
        return in_digits(Fraction(math.floor(value)), kind)
    step = Fraction(10) ** min(-digits, 400)
    return in_digits(half_away(value / step) * step, kind) if digits < kind.scale else in_digits(value, kind)


def in_digits(value: Fraction, kind: DataType) -> Any:
    """Give an exact result in units of its type."""
    units = value * 10**kind.scale
    assert units.denominator == 1
    return int(units) if abs(units) < 10**kind.precision else ERR[Cause.OVERFLOW]


def bounded(value: Any, kind: DataType) -> Any:
    if isinstance(value, float) or kind.is_decimal:
        return value
    return value if fits(value, BITS[kind]) else ERR[Cause.OVERFLOW]


def arithmetic(op: str, a: Any, b: Any, real: bool) -> Any:
    if op in ("div", "floordiv", "truediv", "%") and b == 0:
        return ERR[Cause.DIVISION_BY_ZERO]
    if real:
        a, b = float(a), float(b)
        if op == "%":
            return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)
        if op in ("div", "truediv"):
            return a / b
        return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "floordiv": lambda: a // b}[op]()
    if op == "truediv":
        return a / b
    if op == "div":
        result = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    elif op == "%":
        result = abs(a) % abs(b) * (-1 if a < 0 else 1)
    else:
        result = {"+": a + b, "-": a - b, "*": a * b}.get(op) if op != "floordiv" else a // b
    return bounded(result, DataType.INT64)


def like(text: str, pattern: str) -> bool:
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def substr(text: Any, start: int, count: int | None = None) -> Any:
    if count is not None and count < 0:
        return ERR[Cause.INVALID_ARGUMENT]
    stop = len(text) + 1 if count is None else start + count
    empty = text[:0]
    return empty.join(text[place : place + 1] for place in range(len(text)) if start <= place + 1 < stop)


def in_calendar(day: int) -> bool:
    return 1 <= day + EPOCH_DAY <= date.max.toordinal()


def date_add(day: int, days: int) -> Any:
    return day + days if in_calendar(day + days) else ERR[Cause.OUT_OF_RANGE]


def calendar(op: str, kind: DataType, value: int) -> Any:
    verb, unit = op.split("_")
    if kind is DataType.DATE:
        moment = datetime.combine(date.fromordinal(value + EPOCH_DAY), datetime.min.time(), UTC)
    else:
        moment = EPOCH + timedelta(microseconds=value)
    if verb == "extract":
        return moment.isoweekday() % 7 if unit == "dow" else getattr(moment, unit)
    fields = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    names = list(fields)
    kept = {"year": 0, "month": 1, "day": 2, "hour": 3, "minute": 4}[unit]
    moment = moment.replace(**{name: fields[name] for name in names[kept:]})
    if kind is DataType.DATE:
        return moment.date().toordinal() - EPOCH_DAY
    return (moment - EPOCH) // timedelta(microseconds=1)


def cast(value: Any, source: DataType, target: DataType) -> Any:
    if source is target:
        return value
    if source is DataType.STRING:
        return parse(value, target)
    if target is DataType.STRING:
        return str(value) if source.is_integer else f"{decimal.Decimal(value).scaleb(-source.scale):f}"
    if target is DataType.TIMESTAMP:
        return value * 86_400_000_000
    if target is DataType.DATE:
        return value // 86_400_000_000
    return convert(number(value, source), target)


def half_away(value: Fraction) -> int:
    """Round to a whole number, ties away from zero."""
    magnitude = math.floor(abs(value) + Fraction(1, 2))
    return -magnitude if value < 0 else magnitude


def convert(value: Any, target: DataType) -> Any:
    """Convert a number (or bool) to a number type."""
    if target.is_decimal:
        if isinstance(value, float) and not math.isfinite(value):
            return ERR[Cause.INVALID_CONVERSION]
        units = half_away(Fraction(value) * 10**target.scale)
        wrong = Cause.INVALID_CONVERSION if isinstance(value, float) else Cause.OUT_OF_RANGE
        return units if abs(units) < 10**target.precision else ERR[wrong]
    if isinstance(value, Fraction) and target.is_integer:
        value = math.trunc(value)
    if target.is_float:
        real = float(value)
        return real if target is DataType.FLOAT64 else single(real)
    if isinstance(value, float):
        if not math.isfinite(value) or not fits(math.trunc(value), BITS[target]):
            return ERR[Cause.INVALID_CONVERSION]
        return math.trunc(value)
    return int(value) if fits(int(value), BITS[target]) else ERR[Cause.OUT_OF_RANGE]


def single(real: float) -> Any:
    try:
        return struct.unpack("<f", struct.pack("<f", real))[0]
    except OverflowError:
        return ERR[Cause.OVERFLOW]


def parse(text: str, target: DataType) -> Any:
    bad = ERR[Cause.INVALID_CONVERSION]
    if target.is_integer:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            return bad
        return int(text) if fits(int(text), BITS[target]) else ERR[Cause.OUT_OF_RANGE]
    if target.is_decimal:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return bad
        return convert(Fraction(text), target)
    if target.is_float:
        if re.fullmatch(r"[+-]?(inf|infinity|nan)", text, re.IGNORECASE):
            return float(text)
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return bad
        real = float(text)
        if math.isinf(real):
            return ERR[Cause.OVERFLOW]
        return real if target is DataType.FLOAT64 else single(real)
    try:
        if target is DataType.DATE:
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                return bad
            return date.fromisoformat(text).toordinal() - EPOCH_DAY
        day, clock = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
        if not re.fullmatch(f"{day}[T ]{clock}(Z|[+-][0-9]{{2}}:[0-9]{{2}})", text):
            return bad
        return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
    except ValueError:
        return bad


@dataclass(eq=False)
class Row:
    """One stored row; `hits` counts the writes of the running batch that met it."""

    values: list[Any]
    key: tuple[Any, ...]
    position: int
    hits: int = 0


@dataclass
class Effect:
    """What one operation did.

    For reads `rows` or `aggregates`, or `failure` = (key, cause); for writes one event
    (position, key, cause or None) per row met, and in `returned` (position, outputs) per row written.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    aggregates: list[Any] = field(default_factory=list)
    failure: tuple[tuple[Any, ...], Cause] | None = None
    events: list[tuple[int, tuple[Any, ...], Cause | None]] = field(default_factory=list)
    returned: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    n_matched: int = 0


def identity(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(canonical, key))


def rank(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Order keys: NULL first, NaN last."""
    return tuple((0,) if v is None else (2,) if is_nan(v) else (1, v) for v in key)


class Oracle:
    """The naive engine, owning the whole ring."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.places = {column.id: place for place, column in enumerate(schema.columns)}
        self.key_places = [self.places[schema.column(name).id] for name in schema.primary_key]
        self.rows: list[Row] = []
        self.hits_max = 0
        self._by_key: dict[tuple[Any, ...], Row] = {}
        self._programs: dict[int, tuple[Term, Function]] = {}

    def program(self, term: Term) -> Function:
        found = self._programs.get(id(term))
        if found is None:
            found = self._programs[id(term)] = term, compile_term(term, self.places)
        return found[1]

    def begin_batch(self) -> None:
        self.hits_max = 0
        for row in self.rows:
            row.hits = 0

    def _hit(self, row: Row) -> None:
        row.hits += 1
        self.hits_max = max(self.hits_max, row.hits)

    def execute(self, operation: Operation) -> Effect:
        kind = operation.shape.kind
        if kind is Kind.READ:
            return self._read(operation)
        if kind in (Kind.INSERT, Kind.UPSERT):
            return self._bring(operation)
        return self._write(operation)

    def _matching(self, operation: Operation) -> list[tuple[Row, Any]]:
        """Give the rows on which the predicate is TRUE or an error, with its value."""
        where = operation.shape.where
        if where is None:
            return [(row, True) for row in self.rows]
        test, parameters = self.program(where), operation.parameters
        found = []
        for row in self.rows:
            truth = test(row.values, parameters)
            if truth is True or type(truth) is Err:
                found.append((row, truth))
        return found

    def _read(self, operation: Operation) -> Effect:
        shape, parameters = operation.shape, operation.parameters
        terms = [*shape.group_by, *(a.term for a in shape.aggregates)] or [p.term for p in shape.projections]
        programs = [None if term is None else self.program(term) for term in terms]
        effect = Effect()
        failures = []
        tuples = []
        for row, truth in self._matching(operation):
            if not in_scope(row.position, operation.scope):
                continue
            effect.n_matched += 1
            values = [truth] if type(truth) is Err else []
            if not values:
                values = [None if p is None else p(row.values, parameters) for p in programs]
            error = first_error(values)
            if error is not None:
                failures.append((rank(row.key), error.cause, row.key))
            else:
                tuples.append(tuple(values))
        if failures:
            _, cause, key = min(failures, key=lambda failure: failure[:2])
            effect.failure = key, cause
        elif shape.group_by:
            effect.rows = grouped(shape, tuples)
        elif shape.aggregates:
            effect.aggregates = aggregated(shape, tuples)
        elif shape.limit is not None:
            effect.rows = first_rows(shape, tuples, parameters[shape.limit.index])
        else:
            effect.rows = tuples
        return effect

    def _write(self, operation: Operation) -> Effect:
        effect = Effect()
        for row, truth in self._matching(operation):
            effect.n_matched += 1
            self._hit(row)
            cause = truth.cause if type(truth) is Err else None
            before = list(row.values)
            if cause is None:
                cause = self._change(row, operation)
            effect.events.append((row.position, row.key, cause))
            if cause is None:
                after = None if operation.shape.kind is Kind.DELETE else row.values
                self._return(effect, operation, row.position, before, after)
        return effect

    def _return(self, effect: Effect, operation: Operation, position: int, before: Any, after: Any) -> None:
        outputs = []
        for returned in operation.shape.returning:
            image = before if returned.is_before else after
            outputs.append(None if image is None else image[self.places[returned.column.column]])
        effect.returned.append((position, tuple(outputs)))

    def _change(self, row: Row, operation: Operation) -> Cause | None:
        """Update or delete one row; gives why it keeps its values, if it does."""
        if operation.shape.kind is Kind.DELETE:
            self.rows.remove(row)
            self._by_key.pop(identity(row.key), None)
            return None
        changed = list(row.values)
        causes = []
        for assignment in operation.shape.assignments:
            value = self.program(assignment.term)(row.values, operation.parameters)
            value = self._assign(assignment.column, value, assignment.term.type)
            if type(value) is Err:
                causes.append(value.cause)
            else:
                changed[self.places[assignment.column]] = value
        if causes:
            return min(causes)
        row.values[:] = changed
        return None

    def _assign(self, column_id: int, value: Any, kind: DataType) -> Any:
        column = self.schema.columns[self.places[column_id]]
        if type(value) is Err:
            return value
        if value is None:
            return None if column.nullable else ERR[Cause.NULL_VALUE]
        if column.type.is_number:
            return convert(number(value, kind), column.type)
        if column.type is DataType.DATE and not in_calendar(value):
            return ERR[Cause.OUT_OF_RANGE]
        if column.type is DataType.TIMESTAMP and not in_calendar(value // 86_400_000_000):
            return ERR[Cause.OUT_OF_RANGE]
        return value

    def _bring(self, operation: Operation) -> Effect:
        effect = Effect()
        for ordinal, given in enumerate(rows_of(operation)):
            values: list[Any] = [None] * len(self.schema.columns)
            causes = set()
            for column_id, value in given.items():
                fitted = self._assign(column_id, value, self.schema.columns[self.places[column_id]].type)
                if type(fitted) is Err:
                    causes.add(fitted.cause)
                values[self.places[column_id]] = value
            partition_value = values[self.places[self.schema.column(self.schema.partition_key).id]]
            if is_nan(partition_value):
                causes.add(Cause.NAN_KEY)
            position = position_of(self.schema, partition_value)
            key = tuple(values[place] for place in self.key_places) or (
                operation.position,
                ordinal + max(operation.step, 0) * STEP_ROWS,
            )
            missing = any(not c.nullable and c.id not in given for c in self.schema.columns)
            if missing and operation.shape.kind is Kind.INSERT:
                causes.add(Cause.NULL_VALUE)
            if causes:
                effect.events.append((position, key, min(causes)))
                continue
            effect.n_matched += 1
            known = self._find(key)
            before = None if known is None else list(known.values)
            cause = self._place(operation, values, given, key, position, missing)
            effect.events.append((position, key, cause))
            if cause is None:
                self._return(effect, operation, position, before, values if known is None else known.values)
        return effect

    def _place(
        self,
        operation: Operation,
        values: list[Any],
        given: dict[int, Any],
        key: tuple[Any, ...],
        position: int,
        missing: bool,
    ) -> Cause | None:
        known = self._find(key)
        if known is None:
            if missing:
                return Cause.NULL_VALUE
            row = Row(values, key, position, 1)
            self.rows.append(row)
            self._by_key[identity(key)] = row
            return None
        self._hit(known)
        if operation.shape.kind is Kind.INSERT:
            return Cause.DUPLICATE_KEY
        for column_id in given:
            if self.places[column_id] not in self.key_places:
                known.values[self.places[column_id]] = values[self.places[column_id]]
        return None

    def _find(self, key: tuple[Any, ...]) -> Row | None:
        if not self.key_places:
            return None
        return self._by_key.get(identity(key))


def rows_of(operation: Operation) -> list[dict[int, Any]]:
    """Give an insert's rows as dictionaries by column id."""
    columns: list[Column] = list(operation.parameters)
    lists = [column.to_list() for column in columns]
    return [dict(zip(operation.shape.columns, row, strict=True)) for row in zip(*lists, strict=True)]


def in_scope(position: int, scope: Scope) -> bool:
    return any(low <= position <= high for low, high in scope)


def grouped(shape: Shape, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Give one row per distinct combination of the grouping terms: these, then the aggregates."""
    n_keys = len(shape.group_by)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(identity(row[:n_keys]), []).append(row)
    return [
        (*members[0][:n_keys], *aggregated(shape, [row[n_keys:] for row in members]))
        for members in groups.values()
    ]


def aggregated(shape: Shape, rows: list[tuple[Any, ...]]) -> list[Any]:
    """Give a shape's aggregates over rows of their arguments."""
    columns = zip(*rows, strict=True) if rows else [()] * len(shape.aggregates)
    return [
        aggregate(a.function, len(rows) if a.term is None else None, list(column), a.term and a.term.type)
        for a, column in zip(shape.aggregates, columns, strict=False)
    ]


def first_rows(shape: Shape, rows: list[tuple[Any, ...]], limit: int) -> list[tuple[Any, ...]]:
    """Give the first rows in the shape's order; ties go by all outputs."""

    def compare(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        for sort in shape.order:
            found = null_first(left[sort.output], right[sort.output])
            if found:
                return -found if sort.is_descending else found
        return next((c for c in map(null_first, left, right) if c), 0)

    return sorted(rows, key=cmp_to_key(compare))[:limit]


def null_first(left: Any, right: Any) -> int:
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return order(left, right)


def aggregate(function: str, n_rows: int | None, values: list[Any], kind: DataType | None = None) -> Any:
    """Compute one aggregate; sums of floats are exact until the last step."""
    if n_rows is not None:
        return n_rows
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if function == "count_distinct":
        return len(set(map(canonical, known)))
    if not known:
        return None
    if function in ("min", "max"):
        best = known[0]
        for value in known[1:]:
            if (order(value, best) < 0) == (function == "min") and order(value, best) != 0:
                best = value
        return best
    if isinstance(known[0], float):
        total: Any = float_sum(known)
    else:
        total = sum(known)
        is_decimal = kind is not None and kind.is_decimal
        if function == "sum" and not (abs(total) < 10**18 if is_decimal else fits(total, 64)):
            return "overflow"
        if function == "avg" and kind is not None and is_decimal:
            return float(Fraction(total, len(known) * 10**kind.scale))
    return total / len(known) if function == "avg" else total


def float_sum(values: list[float]) -> float:
    special = {value for value in values if not math.isfinite(value)}
    if special:
        return math.nan if any(map(math.isnan, special)) or len(special) > 1 else special.pop()
    try:
        return math.fsum(values)
    except OverflowError:  # Perhaps only of an intermediate sum.
        total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def shape_reads(shape: Shape) -> frozenset[int]:
    """Give the columns that a predicate tests."""
    found: set[int] = set()
    pending = [] if shape.where is None else [shape.where]
    while pending:
        term = pending.pop()
        if isinstance(term, ColumnRef):
            found.add(term.column)
        elif isinstance(term, Apply):
            pending.extend(term.args)
    return frozenset(found)


def inside(position: int, key_range: KeyRange) -> bool:
    return key_range.low <= position <= key_range.high
