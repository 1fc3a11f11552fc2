"""Statements before their constants: `Template`, and the `Plan` it becomes for a schema.

Rules of the file: a template is what the user wrote, by names; a plan is the
shape that engines understand plus where each parameter comes from. Every plan
has passed the engine's own validator, so a mistake is told before sending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from crescando.client.base import REQUEST_BYTES_MAX, Alike, Isolation, Request
from crescando.client.bind import Binder
from crescando.client.expression import ColumnName, Expr
from crescando.client.quick import QuickFill, quick_fill, signature_of
from crescando.client.reach import Reach
from crescando.client.sizes import are_all_short, are_short, checked_size
from crescando.client.slot import Rebind, Slot, Value, bindings, fill, placeholders
from crescando.client.stretches import stretches
from crescando.engine.functions import aggregate_type
from crescando.engine.statement import (
    Aggregate,
    Assignment,
    ColumnRef,
    Kind,
    Projection,
    Returned,
    Shape,
    Sort,
)
from crescando.engine.validate import validate_shape
from crescando.errors import KeyUpdateError, TypeMismatchError
from crescando.schema import ColumnDef, TableSchema
from crescando.types import KeyRange

Params = Sequence[object] | Mapping[str, object]
"""Values for placeholders: in order, or by name."""


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of a read, as the user wrote it; `term` is None for count(*)."""

    function: str
    term: Expr | None


@dataclass(frozen=True, slots=True)
class ReturnedColumn:
    """A column of the rows that a write changed, as they were before or as they are after."""

    name: str
    column: str
    is_before: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A read, update or delete, by names."""

    kind: Kind
    where: Expr | None = None
    outputs: tuple[tuple[str, Expr], ...] = ()
    """Names and expressions of a read's columns; empty for all columns of the table."""
    aggregates: tuple[tuple[str, AggregateCall], ...] = ()
    assignments: tuple[tuple[str, Expr], ...] = ()
    group_by: tuple[tuple[str, Expr], ...] = ()
    """Names and expressions that a read groups by; it has no `outputs` then."""
    order: tuple[tuple[int, bool], ...] = ()
    """Index into `outputs`, and whether descending; of a read with a limit."""
    limit: Expr | None = None
    """How many of a read's first rows are wanted: a constant."""
    returning: tuple[ReturnedColumn, ...] = ()
    """What a write returns."""
    isolation: Isolation = "sequential"
    """Of a read."""

    def keys(self) -> tuple[int | str, ...]:
        """Give the keys of the placeholders: SET before WHERE, columns before both."""
        terms = [term for _, term in (*self.outputs, *self.group_by, *self.assignments)]
        terms.extend(call.term for _, call in self.aggregates if call.term is not None)
        return placeholders([*terms, *(term for term in (self.where, self.limit) if term is not None)])


@dataclass(frozen=True, slots=True)
class Plan:
    """A template bound to one version of a table's schema."""

    schema: TableSchema
    shape: Shape
    slots: tuple[Slot, ...]
    reach: Reach
    is_general: bool
    """Whether it serves other values of the same Python types too."""
    may_be_long: bool
    """Whether some value can be of any length: a text, or a list."""
    everywhere: tuple[KeyRange, ...] = ()
    """The ring ranges of every operation, if they do not depend on its values; as `Reach.everywhere`."""

    def fill(self, values: Mapping[int | str, Value]) -> tuple[Any, ...]:
        """Give an operation's parameters.

        Raises
        ------
        Rebind
            If the values need another plan.
        """
        return fill(self.slots, values)


def bind_template(template: Template, schema: TableSchema, values: Mapping[int | str, Value]) -> Plan:
    """Bind a template to a schema, for values of these types.

    Raises
    ------
    StatementError
        Its subclass says what is wrong; the text names the fix.
    """
    return _bind(Binder(schema, values), template, schema)


def check_template(template: Template, schema: TableSchema) -> None:
    """Check what does not depend on the values of placeholders.

    Raises
    ------
    StatementError
        As `bind_template`.
    """
    binder = Binder(schema, {})
    try:
        _bind(binder, template, schema)
    except TypeMismatchError:
        # A guessed type may be what does not fit; the values will tell.
        if not binder.has_guessed:
            raise


def _bind(binder: Binder, template: Template, schema: TableSchema) -> Plan:
    projections = tuple(
        Projection(name, binder.projection(term)) for name, term in _outputs(template, schema)
    )
    group_by = tuple(binder.projection(term) for _, term in template.group_by)
    aggregates = tuple(_aggregate(binder, name, call) for name, call in template.aggregates)
    assignments = tuple(_assignment(binder, schema, name, term) for name, term in template.assignments)
    where = None if template.where is None else binder.predicate(template.where)
    shape = Shape(
        kind=template.kind,
        table=schema.id,
        schema_version=schema.version,
        where=where,
        projections=projections,
        aggregates=aggregates,
        assignments=assignments,
        group_by=group_by,
        order=tuple(Sort(output, is_descending) for output, is_descending in template.order),
        limit=None if template.limit is None else binder.limit(template.limit),
        returning=bind_returning(template.returning, schema),
    )
    validate_shape(shape, schema)
    reach = Reach(schema, where)
    may_be_long = any(slot.many or slot.kind.is_textual for slot in binder.slots)
    return Plan(schema, shape, tuple(binder.slots), reach, binder.is_general, may_be_long, reach.everywhere)


def _outputs(template: Template, schema: TableSchema) -> tuple[tuple[str, Expr], ...]:
    if template.kind is not Kind.READ or template.aggregates or template.group_by:
        return ()
    return template.outputs or tuple((name, ColumnName(name)) for name in schema.column_names)


def _aggregate(binder: Binder, name: str, call: AggregateCall) -> Aggregate:
    term = None if call.term is None else binder.projection(call.term)
    aggregate_type(call.function, None if term is None else term.type)
    return Aggregate(call.function, term, name)


def _assignment(binder: Binder, schema: TableSchema, name: str, term: Expr) -> Assignment:
    column = schema.column(name)
    if name in schema.key_columns:
        raise KeyUpdateError(
            f"column {name!r} is part of the key of table {schema.name!r} and cannot be updated; "
            "delete the row and insert it anew"
        )
    return Assignment(column.id, binder.assignment(column, term))


def bind_returning(returning: Sequence[ReturnedColumn], schema: TableSchema) -> tuple[Returned, ...]:
    """Give what a write returns by catalog ids.

    Raises
    ------
    UnknownColumnError
        With the nearest name.
    """
    columns = [(each, schema.column(each.column)) for each in returning]
    return tuple(
        Returned(each.name, ColumnRef(column.id, column.type), each.is_before) for each, column in columns
    )


def group_columns(template: Template, schema: TableSchema) -> tuple[ColumnDef, ...]:
    """Give the output columns of a read of groups: its grouping terms, then its aggregates.

    Raises
    ------
    StatementError
        As `bind_template`.
    """
    binder = Binder(schema, {})
    keys = [(name, binder.projection(term).type) for name, term in template.group_by]
    results = []
    for name, call in template.aggregates:
        term = _aggregate(binder, name, call).term
        results.append((name, aggregate_type(call.function, None if term is None else term.type)))
    return tuple(ColumnDef(name, kind, True, place) for place, (name, kind) in enumerate([*keys, *results]))


class Prepared:
    """A template with its plans, one per combination of its values' Python types.

    Not thread-safe on purpose: a race costs a second binding of equal result.
    """

    def __init__(self, template: Template, schema: TableSchema, bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self.template = template
        self.schema = schema
        self._bytes_max = bytes_max
        self._keys = template.keys()
        self._is_positional = self._keys == tuple(range(len(self._keys)))
        self._isolation = template.isolation
        self._plans: dict[tuple[type, ...], Plan] = {}
        self._quick: dict[tuple[type, ...] | None, tuple[Plan, QuickFill]] = {}
        if self._keys:
            check_template(template, schema)
        else:
            self._plans[()] = bind_template(template, schema, {})

    def request(self, params: Params) -> Request:
        """Give the request for one set of values.

        Raises
        ------
        StatementError
            If it does not fit.
        """
        plan, parameters = self._fill(params)
        ranges = plan.everywhere or plan.reach.ranges((parameters,))[0]
        request = Request(plan.shape, parameters, ranges, self._isolation)
        if plan.may_be_long and not are_short(parameters):
            checked_size(request, self._bytes_max)
        return request

    def requests(self, params_list: Sequence[Params]) -> Sequence[Request]:
        """Give one request per set of values, of which there is one at least.

        Raises
        ------
        StatementError
            If a set of values does not fit; the text says which.
        """
        runs: list[Alike] = []
        for some in stretches(len(params_list)):
            runs += self._stretch(params_list[some])
        if any(run.shape is not runs[0].shape for run in runs):
            return list(chain.from_iterable(runs))
        parameters = list(chain.from_iterable([run.parameters for run in runs]))
        ranges = list(chain.from_iterable([run.ranges for run in runs]))
        return Alike(runs[0].shape, parameters, ranges, self._isolation)

    def _stretch(self, params_list: Sequence[Params]) -> list[Alike]:
        quick = self._fill_alike(params_list)
        if quick is not None:
            plan, columns = quick
            return [self._alike(plan, list(zip(*columns, strict=True)), columns)]
        filled = [self._fill(params) for params in params_list]
        runs = []
        for _, some in groupby(filled, lambda each: id(each[0])):
            plans, parameters = zip(*some, strict=True)
            columns = list(zip(*parameters, strict=True))
            runs.append(self._alike(plans[0], list(parameters), columns))
        return runs

    def _alike(
        self, plan: Plan, parameters: list[tuple[Any, ...]], columns: Sequence[Sequence[Any]]
    ) -> Alike:
        """Give operations of one plan, whose ring ranges are asked for together."""
        alike = Alike(plan.shape, parameters, plan.reach.ranges(parameters), self._isolation)
        if plan.may_be_long and not are_all_short(columns):
            for request in alike:
                checked_size(request, self._bytes_max)
        return alike

    def _fill_alike(self, params_list: Sequence[Params]) -> tuple[Plan, list[Sequence[Any]]] | None:
        """Fill tuples of values of the same types, column by column; None if they are not, or do not fit."""
        if not self._is_positional or set(map(type, params_list)) != {tuple}:
            return None
        try:
            columns = list(zip(*params_list, strict=True))
            signature = signature_of(columns)
            if signature not in self._quick:
                self._fill(params_list[0])
            found = self._quick.get(signature) if signature is not None else None
            return None if found is None else (found[0], found[1].fill_all(columns))
        except (ValueError, Rebind, TypeMismatchError):
            # What is wrong, and with which, is said by those who look at one after the other.
            return None

    def _fill(self, params: Params) -> tuple[Plan, tuple[Any, ...]]:
        quick = self._quick.get(tuple(map(type, params))) if type(params) is tuple else None
        if quick is not None:
            try:
                return quick[0], quick[1].fill(params)  # type: ignore[arg-type]
            except (Rebind, TypeMismatchError):
                pass  # As below.
        values = bindings(self._keys, params)
        signature = tuple(value.__class__ for value in values.values())
        plan = self._plans.get(signature)
        if plan is not None:
            try:
                return plan, plan.fill(values)
            except (Rebind, TypeMismatchError):
                pass  # These values need a plan of their own, or an error that says where they stand.
        plan = bind_template(self.template, self.schema, values)
        if plan.is_general:
            self._plans[signature] = plan
            fill_quickly = quick_fill(plan.slots, signature, len(self._keys)) if self._is_positional else None
            if fill_quickly is not None:
                self._quick[signature] = plan, fill_quickly
        return plan, tuple(slot.stored for slot in plan.slots)
