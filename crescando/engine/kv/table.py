"""One table as a dictionary from key to row, and what one operation does to it.

Rules of the file: an operation is executed to its end before the next one
begins. A row on which the predicate, an assignment or a constraint fails keeps
all its values and is counted as rejected; of several failures of a row the
smallest cause counts, of several rows the smallest key is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crescando.engine.constants import as_value
from crescando.engine.functions import Cause
from crescando.engine.kv.operators import canonical, in_calendar, is_nan, number, to_number
from crescando.engine.kv.scalar import Compiled, compile_term, smallest_cause
from crescando.engine.partition import ring_positions
from crescando.engine.plan import Plan
from crescando.engine.ranges import key_constant, number_of
from crescando.engine.returning import RETURNED_MAX
from crescando.engine.statement import Column, Kind, Operation, Parameter, Returned, Shape
from crescando.engine.transactions import STEP_ROWS
from crescando.engine.values import to_column
from crescando.engine.written import Count, Rejection
from crescando.errors import InvariantError
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import KeyRange, Scope

Key = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Row:
    """A row: its values in the schema's order, its (perhaps hidden) key, and where it lies.

    The list of values is replaced when they change, never changed itself, so that images may keep it.
    """

    values: list[Any]
    key: Key
    position: int


@dataclass(frozen=True, slots=True)
class ReadError:
    """The failed row of a read that is told."""

    key: Key
    cause: Cause


class Tally:
    """What one write did, arc by arc.

    Parameters
    ----------
    arcs : sequence of KeyRange
    schema : TableSchema
    outputs : sequence of Returned
        What the write returns.
    """

    def __init__(self, arcs: Sequence[KeyRange], schema: TableSchema, outputs: Sequence[Returned]) -> None:
        self._arcs = arcs
        self._affected = [0] * len(arcs)
        places = {column.id: place for place, column in enumerate(schema.columns)}
        self._outputs = [(places[each.column.column], each.is_before) for each in outputs]
        self._kinds = [each.column.type for each in outputs]
        self._returned: list[list[list[Any]]] = [[] for _ in arcs]
        self._failures: list[list[tuple[Any, Cause, Key]]] = [[] for _ in arcs]

    @property
    def n_affected(self) -> int:
        """How many rows were written."""
        return sum(self._affected)

    def add(
        self,
        arc: int,
        key: Key,
        cause: Cause | None,
        before: list[Any] | None = None,
        after: list[Any] | None = None,
    ) -> None:
        """Count a row as written, with its images, or as rejected for a cause."""
        if cause is None:
            self._affected[arc] += 1
            images = [(before if is_before else after, place) for place, is_before in self._outputs]
            self._returned[arc].append([None if image is None else image[place] for image, place in images])
        else:
            self._failures[arc].append((rank(key), cause, key))

    def counts(self) -> tuple[Count, ...]:
        """Give the counts of every arc."""
        return tuple(map(self._count, range(len(self._arcs))))

    def _count(self, arc: int) -> Count:
        failures, affected = self._failures[arc], self._affected[arc]
        returned = self._columns(arc) if 0 < affected <= RETURNED_MAX else ()
        if not failures:
            return Count(self._arcs[arc], affected, 0, None, returned)
        _, cause, key = min(failures, key=lambda failure: failure[:2])
        return Count(self._arcs[arc], affected, len(failures), Rejection(key, cause.text), returned)

    def _columns(self, arc: int) -> tuple[Column, ...]:
        rows = self._returned[arc]
        return tuple(
            to_column(as_value([row[place] for row in rows], kind)) for place, kind in enumerate(self._kinds)
        )


class KvTable:
    """The rows of one table that lie in some arcs.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    arcs : sequence of KeyRange
        Disjoint and ascending.

    Attributes
    ----------
    reserved : set of Key
        Keys that no insert or upsert may bring, as `identity` gives them.
    """

    def __init__(self, schema: TableSchema, arcs: Sequence[KeyRange]) -> None:
        self.reserved: set[Key] = set()
        self._rows: dict[Key, Row] = {}
        self._take(schema)
        self.set_arcs(arcs)

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        """Take other arcs, and drop the rows that lie in none."""
        self._arcs = arcs
        self._lows = [arc.low for arc in arcs]
        gone = [identity for identity, row in self._rows.items() if self._arc_of(row.position) < 0]
        for identity in gone:
            del self._rows[identity]

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows that another process's engine held.

        Raises
        ------
        InvariantError
            If one lies outside the arcs; none is added then.
        """
        if any(self._arc_of(row.position) < 0 for row in rows):
            raise InvariantError(
                f"rows of table {self.schema.name!r} lie outside the arcs that they should lie in"
            )
        self._rows.update((identity(row.key), row) for row in rows)

    def adopt(self, other: KvTable, arcs: Sequence[KeyRange]) -> None:
        """Take over the rows of another table, which lie in others of the arcs."""
        self._rows.update(other._rows)
        self.set_arcs(arcs)

    def __len__(self) -> int:
        return len(self._rows)

    def _take(self, schema: TableSchema) -> None:
        self.schema = schema
        self._places = {column.id: place for place, column in enumerate(schema.columns)}
        self._key_ids = tuple(schema.column(name).id for name in schema.primary_key)
        self._key_places = tuple(self._places[column_id] for column_id in self._key_ids)
        self._partition_id = schema.column(schema.partition_key).id

    def alter(self, schema: TableSchema) -> None:
        """Take the table's next schema: new columns are NULL, missing ones are forgotten."""
        before = self._places
        self._take(schema)
        sources = [before.get(column.id) for column in schema.columns]
        for row in self._rows.values():
            row.values = [None if place is None else row.values[place] for place in sources]

    def rows_in(self, scope: Scope) -> Iterator[Row]:
        """Give the rows that lie in some ring ranges."""
        return (row for row in self._rows.values() if lies_in(row.position, scope))

    def still(self) -> KvTable:
        """Give the table as it is now, whatever becomes of this one; values are kept by both."""
        still = KvTable(self.schema, self._arcs)
        still._rows = {
            identity: Row(row.values, row.key, row.position) for identity, row in self._rows.items()
        }
        return still

    def read(self, plan: Plan, operation: Operation) -> list[list[Any]] | ReadError:
        """Give the outputs of every row that a read matches in its scope.

        Returns
        -------
        list of list, or ReadError
            Values of the projections; or of the grouping terms and the aggregates'
            arguments (None for count(*)). Row by row, the first ones if there is a limit.
        """
        found = self.read_with_positions(plan, operation)
        if isinstance(found, ReadError):
            return found
        answers = [values for _, values in found]
        return answers if plan.shape.limit is None else _first(plan.shape, operation, answers)

    def read_with_positions(
        self, plan: Plan, operation: Operation
    ) -> list[tuple[int, list[Any]]] | ReadError:
        """Give ring position and outputs of every row, whatever the limit; as `read`."""
        shape = plan.shape
        terms = [aggregate.term for aggregate in shape.aggregates]
        terms = [*shape.group_by, *terms] if shape.is_grouped else [p.term for p in shape.projections]
        compiled = [
            None if term is None else compile_term(term, self._places, operation.parameters) for term in terms
        ]
        answers: list[tuple[int, list[Any]]] = []
        failures: list[tuple[Any, Cause, Key]] = []
        for row, truth in self._matching(plan, operation):
            if not lies_in(row.position, operation.scope):
                continue
            if type(truth) is Cause:
                failures.append((rank(row.key), truth, row.key))
                continue
            values = [None if output is None else output(row.values) for output in compiled]
            cause = smallest_cause(values)
            if cause is None:
                answers.append((row.position, values))
            else:
                failures.append((rank(row.key), cause, row.key))
        if not failures:
            return answers
        _, cause, key = min(failures, key=lambda failure: failure[:2])
        return ReadError(key, cause)

    def write(self, plan: Plan, operation: Operation) -> Tally:
        """Execute a write on every row, whatever its scope."""
        tally = Tally(self._arcs, self.schema, plan.shape.returning)
        if plan.gives_rows:
            self._bring(operation, tally)
        elif plan.shape.kind is Kind.DELETE:
            for row, truth in self._matching(plan, operation):
                cause = truth if type(truth) is Cause else None
                if cause is None:
                    del self._rows[identity(row.key)]
                tally.add(self._arc_of(row.position), row.key, cause, before=row.values)
        else:
            self._update(plan, operation, tally)
        return tally

    def _matching(self, plan: Plan, operation: Operation) -> list[tuple[Row, Any]]:
        """Give the rows on which the predicate is TRUE or an ERROR, with its value."""
        where = plan.shape.where
        if where is None:
            return [(row, True) for row in self._rows.values()]
        test = compile_term(where, self._places, operation.parameters)
        tested = ((row, test(row.values)) for row in self._candidates(plan, operation.parameters))
        return [(row, truth) for row, truth in tested if truth is True or type(truth) is Cause]

    def _candidates(self, plan: Plan, parameters: tuple[Any, ...]) -> Iterator[Row]:
        """Give the rows that the predicate can match: the one with the key it asks for, or all."""
        wanted = self._wanted_key(plan)
        if wanted is None:
            yield from self._rows.values()
            return
        folded = (
            key_constant(self.schema.columns[place].type, number_of(each.type, parameters[each.index]))
            for place, each in zip(self._key_places, wanted, strict=True)
        )
        row = self._rows.get(identity(tuple(folded)))
        if row is not None:
            yield row

    def _wanted_key(self, plan: Plan) -> tuple[Parameter, ...] | None:
        """Give the constants that the whole primary key must equal, if the predicate says so."""
        if not self._key_ids or not plan.accesses or not plan.accesses[0].is_point:
            return None
        wanted = {
            access.column: constant
            for access in plan.accesses
            for op, constant in access.comparisons
            if op == "="
        }
        if any(column_id not in wanted for column_id in self._key_ids):
            return None
        return tuple(wanted[column_id] for column_id in self._key_ids)

    def _update(self, plan: Plan, operation: Operation, tally: Tally) -> None:
        assignments: list[tuple[int, ColumnDef, Compiled, DataType]] = []
        for assignment in plan.shape.assignments:
            place = self._places[assignment.column]
            term = compile_term(assignment.term, self._places, operation.parameters)
            assignments.append((place, self.schema.columns[place], term, assignment.term.type))
        for row, truth in self._matching(plan, operation):
            cause = truth if type(truth) is Cause else None
            before = row.values
            if cause is None:
                values = [fit(column, term(row.values), kind) for _, column, term, kind in assignments]
                cause = smallest_cause(values)
                if cause is None:
                    places = (place for place, *_ in assignments)
                    row.values = _replaced(before, zip(places, values, strict=True))
            tally.add(self._arc_of(row.position), row.key, cause, before, row.values)

    def _bring(self, operation: Operation, tally: Tally) -> None:
        given: dict[int, Column] = dict(zip(operation.shape.columns, operation.parameters, strict=True))
        positions = ring_positions(self.schema, given[self._partition_id]).tolist()
        lists = {column_id: column.to_list() for column_id, column in given.items()}
        lacks_value = any(not column.nullable and column.id not in given for column in self.schema.columns)
        first = max(operation.step, 0) * STEP_ROWS
        for ordinal, position in enumerate(positions):
            arc = self._arc_of(position)
            if arc < 0:
                continue
            values: list[Any] = [None] * len(self.schema.columns)
            for column_id, items in lists.items():
                values[self._places[column_id]] = items[ordinal]
            key = tuple(values[place] for place in self._key_places)
            key = key or (operation.position, first + ordinal)
            cause = self._fault_of(values, given)
            if lacks_value and operation.shape.kind is Kind.INSERT:
                # The only cause above this one is a NaN key's.
                cause = Cause.NULL_VALUE if cause is None else min(cause, Cause.NULL_VALUE)
            known = self._rows.get(identity(key))
            before = None if known is None else known.values
            row = Row(values, key, position)
            if cause is None:
                cause = self._place(operation, row, given)
            tally.add(arc, key, cause, before, row.values if known is None else known.values)

    def _fault_of(self, values: list[Any], given: Iterable[int]) -> Cause | None:
        """Say why no state of the table could accept a row, if so."""
        fitted = ((self.schema.columns[self._places[i]], values[self._places[i]]) for i in given)
        causes = [fit(column, value, column.type) for column, value in fitted]
        if is_nan(values[self._places[self._partition_id]]):
            causes.append(Cause.NAN_KEY)
        return smallest_cause(causes)

    def _place(self, operation: Operation, row: Row, given: dict[int, Column]) -> Cause | None:
        known_as = identity(row.key)
        known = self._rows.get(known_as)
        if known is None:
            cause = self.fault_of_birth(given, row.key)
            if cause is None:
                self._rows[known_as] = row
            return cause
        if operation.shape.kind is Kind.INSERT:
            return Cause.DUPLICATE_KEY
        places = (self._places[column_id] for column_id in given if column_id not in self._key_ids)
        known.values = _replaced(known.values, ((place, row.values[place]) for place in places))
        return None

    # One row of a load.

    def get(self, key: Key) -> Row | None:
        """Give the row with a key."""
        return self._rows.get(identity(key))

    def put(self, row: Row, given: Mapping[int, Any]) -> None:
        """Put values by column id into a row that is there; its key stays what it is."""
        places = ((self._places[i], value) for i, value in given.items() if i not in self._key_ids)
        row.values = _replaced(row.values, places)

    def remove(self, key: Key) -> None:
        """Let the row with a key go."""
        del self._rows[identity(key)]

    def clear(self) -> list[int]:
        """Let all rows go; gives where each of them lay."""
        gone = [row.position for row in self._rows.values()]
        self._rows.clear()
        return gone

    def values_of(self, given: Mapping[int, Any]) -> list[Any]:
        """Give a row's values in the schema's order; those that are not given are NULL."""
        return [given.get(column.id) for column in self.schema.columns]

    def fault_of_given(self, given: Mapping[int, Any]) -> Cause | None:
        """Say why no state of the table could accept some values, if so."""
        return self._fault_of(self.values_of(given), given)

    def fault_of_birth(self, given: Iterable[int], key: Key) -> Cause | None:
        """Say why no row can be born with a key and the given columns alone, if so."""
        there = set(given)
        if any(not column.nullable and column.id not in there for column in self.schema.columns):
            return Cause.NULL_VALUE
        return Cause.RESERVED_KEY if identity(key) in self.reserved else None

    def _arc_of(self, position: int) -> int:
        """Give the index of the arc that a position lies in, or -1."""
        arc = bisect_right(self._lows, position) - 1
        return arc if arc >= 0 and position <= self._arcs[arc].high else -1


def _replaced(values: list[Any], new: Iterable[tuple[int, Any]]) -> list[Any]:
    """Give the values of a row with others in some places."""
    replaced = list(values)
    for place, value in new:
        replaced[place] = value
    return replaced


def _first(shape: Shape, operation: Operation, rows: list[list[Any]]) -> list[list[Any]]:
    """Give the first rows, by the stated order and then by all outputs."""
    assert shape.limit is not None
    ordered = sorted(rows, key=lambda row: rank(tuple(row)))
    # Sorting is stable, so that the most significant key comes last.
    for sort in reversed(shape.order):
        output = sort.output
        ordered.sort(key=lambda row: rank((row[output],)), reverse=sort.is_descending)
    return ordered[: operation.parameters[shape.limit.index]]


def lies_in(position: int, scope: Scope) -> bool:
    """Say whether a ring position lies in one of some ranges."""
    return any(low <= position <= high for low, high in scope)


def rank(key: Key) -> tuple[Any, ...]:
    """Give what keys are ordered by: NULL below everything, NaN above."""
    return tuple((0,) if v is None else (2,) if is_nan(v) else (1, v) for v in key)


def fit(column: ColumnDef, value: Any, kind: DataType) -> Any:
    """Convert a value of some type to a column's type, or say why the column cannot take it."""
    if type(value) is Cause:
        return value
    if value is None:
        return None if column.nullable else Cause.NULL_VALUE
    if column.type.is_number:
        return to_number(number(value, kind), column.type)
    if column.type in (DataType.DATE, DataType.TIMESTAMP) and not in_calendar(value, column.type):
        return Cause.OUT_OF_RANGE
    return value


def identity(key: Key) -> Key:
    """Give something hashable that is equal exactly where keys are."""
    return tuple(map(canonical, key))
