"""The engine around the tables: batches, refused operations, answers by sender."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from crescando.engine.aggregate import accumulator_of
from crescando.engine.arcs import check_held, checked_arcs
from crescando.engine.base import (
    AccessPath,
    Cancelled,
    Engine,
    Explained,
    Failed,
    Partials,
    Piece,
    Results,
    Rows,
)
from crescando.engine.constants import as_value
from crescando.engine.digest import digest_columns
from crescando.engine.kv.loads import KvLoads
from crescando.engine.kv.operators import canonical
from crescando.engine.kv.pieces import VALUE_BYTES, KvImage, take_in
from crescando.engine.kv.pinned import KvPin
from crescando.engine.kv.table import KvTable, ReadError
from crescando.engine.loads import LoadStep
from crescando.engine.operations import Entry, last_position, singles
from crescando.engine.plan import Plan, make_plan
from crescando.engine.statement import Column, Kind, Operation, Shape
from crescando.engine.transactions import Transactions, units
from crescando.engine.validate import StaleShape, validate_parameters
from crescando.engine.values import to_column
from crescando.engine.written import Count, Written, join_written
from crescando.errors import InvariantError, StatementError
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange, ProcessId, Scope

_PLANS_MAX = 4_096

_COUNTERS = (
    "cycles",
    "operations",
    "operations_per_scan_max",
    "operations_per_scan_last",
    "dirty_rows",
    "rows_scanned",
)


class KvEngine:
    """An engine that keeps a dictionary per table; see `engine.base.Engine`."""

    def __init__(self) -> None:
        self._arcs: tuple[KeyRange, ...] = ()
        self._tables: dict[int, KvTable] = {}
        self._plans: dict[tuple[bytes, int], Plan | Exception] = {}
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._main: KvEngine | None = None
        self._loads = KvLoads(self._tables)
        self._pins: tuple[weakref.ref[KvPin], ...] = ()

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        """State the ring arcs whose rows this engine holds; see `engine.base.Engine.set_arcs`."""
        self._arcs = checked_arcs(arcs)
        for table in self._tables.values():
            table.set_arcs(self._arcs)
        self._loads.set_arcs(self._arcs)

    def beside(self, arcs: Sequence[KeyRange]) -> KvEngine:
        """Give an engine for further arcs; see `engine.base.Engine.beside`."""
        if self._main is not None:
            raise InvariantError("an engine beside another one has none beside itself")
        other = KvEngine()
        other._main = self
        other.set_arcs(arcs)
        for table in self._tables.values():
            other.create_table(table.schema)
        return other

    def take_in(self, piece: Piece) -> None:
        """Add rows that another process's engine held; see `engine.base.Engine.take_in`."""
        if piece.records is not None:
            self._loads.take(piece.records)
            return
        table = self._tables.get(piece.table)
        if table is None:
            raise InvariantError(f"a piece of table {piece.table} came, which does not exist")
        if piece.load:
            self._loads.take_in(piece)
            return
        take_in(table, piece)

    def adopt(self, other: Engine) -> None:
        """Take over the arcs and rows of an engine beside this one; see `engine.base.Engine.adopt`."""
        if not isinstance(other, KvEngine) or other._main is not self:
            raise InvariantError("an engine adopts only what was made beside it")
        schemas, others = ({i: t.schema for i, t in each._tables.items()} for each in (self, other))
        if schemas != others:
            raise InvariantError("the engine beside has not caught up: its tables or schemas differ")
        self._loads.merge(other._loads)
        self._arcs = checked_arcs(sorted((*self._arcs, *other._arcs)))
        for table_id, table in self._tables.items():
            table.adopt(other._tables[table_id], self._arcs)
        self._loads.set_arcs(self._arcs)
        self._pins += other._pins
        other._tables, other._arcs, other._main = {}, (), None

    def image(self, scope: Scope) -> KvImage:
        """Take an image of the rows in some ring ranges; see `engine.base.Engine.image`."""
        check_held(scope, self._arcs)
        return KvImage(self._tables.values(), scope, self._loads)

    def pin(self, tables: Sequence[int]) -> KvPin:
        """Pin whole tables as they are now; see `engine.base.Engine.pin`."""
        pin = KvPin([self._tables[table] for table in tables if table in self._tables], self._plan)
        self._pins = (*(each for each in self._pins if each() is not None), weakref.ref(pin))
        return pin

    def weigh(self, scope: Scope) -> tuple[int, int]:
        """Give rows and bytes of some ranges; see `engine.base.Engine.weigh`."""
        image = KvImage(self._tables.values(), scope, self._loads)
        return image.n_rows, image.n_bytes

    def create_table(self, schema: TableSchema) -> None:
        """Make an empty table with catalog ids set."""
        if schema.id in self._tables:
            raise InvariantError(f"table {schema.id} exists already")
        self._tables[schema.id] = KvTable(schema, self._arcs)

    def drop_table(self, table: int) -> None:
        """Drop a table and free its rows."""
        self._tables.pop(table, None)
        self._loads.changed(table)

    def alter_table(self, schema: TableSchema) -> None:
        """Take a table's next schema; see `engine.base.Engine.alter_table`."""
        self._tables[schema.id].alter(schema)
        self._loads.changed(schema.id)

    def execute(self, entries: Sequence[Entry], cancelled: Cancelled | None = None) -> list[Results]:
        """Execute operations one at a time; see `engine.base.Engine.execute`."""
        if not entries:
            return []
        answers: dict[ProcessId, _Answers] = {}
        n_operations = 0
        for is_load, some in groupby(entries, lambda entry: isinstance(entry, LoadStep)):
            if is_load:
                for step in some:
                    assert isinstance(step, LoadStep)
                    answers.setdefault(step.sender, _Answers()).loaded(self._loads.execute(step))
                continue
            operations = singles(entry for entry in some if not isinstance(entry, LoadStep))
            n_operations += len(operations)
            for unit in units(operations):
                self._execute_unit(unit, answers, cancelled)
        self._count(n_operations)
        executed = last_position(entries[-1])
        return [told.results(sender, executed) for sender, told in answers.items()]

    def _execute_unit(
        self, unit: Sequence[Operation], answers: dict[ProcessId, _Answers], cancelled: Cancelled | None
    ) -> None:
        """Execute operations that are executed together."""
        sender, first = unit[0].sender, unit[0]
        if first.shape.kind is Kind.READ and cancelled and (sender, first.number) in cancelled():
            return
        told = answers.setdefault(sender, _Answers())
        for operation, plan in zip(unit, self._plans_of(unit, told), strict=False):
            self._execute(operation, plan, told)

    def explain(self, shape: Shape, parameters: tuple[Any, ...]) -> Explained:
        """Tell how an operation would be executed; see `engine.base.Engine.explain`."""
        table = self._tables.get(shape.table)
        if table is None:
            return Explained(fault=f"table {shape.table} does not exist")
        path = AccessPath("every row, one by one", "scan", 1.0)
        return Explained(shape.kind.value, table.schema.name, len(table), 1, (path,), "python")

    def digest(self, table: int, key_range: KeyRange) -> bytes:
        """Give the order-free digest of the logical rows in a ring range."""
        return digest_columns(self.export(table, key_range))

    def digest_loads(self, key_range: KeyRange) -> bytes:
        """Give the digest of what loads have staged; see `engine.base.Engine.digest_loads`."""
        return self._loads.digest(key_range)

    def export(self, table: int, key_range: KeyRange) -> tuple[Column, ...]:
        """Give all columns, in the schema's order, of the rows in a ring range.

        Raises
        ------
        KeyError
            If there is no such table.
        """
        found = self._tables[table]
        rows = [row.values for row in found.rows_in((key_range,))]
        return tuple(
            _column(column.type, [values[place] for values in rows])
            for place, column in enumerate(found.schema.columns)
        )

    def statistics(self) -> dict[str, int]:
        """Give counters: rows, bytes (an estimate), cycles, operations, rows written, rows scanned."""
        tables = list(self._tables.values())
        pinned = sum(pin.n_bytes for each in self._pins if (pin := each()) is not None)
        n_values = sum(len(table) * len(table.schema.columns) for table in tables)
        return {
            "rows": sum(map(len, tables)),
            "staged_rows": self._loads.n_rows,
            "loads": self._loads.n_open,
            "bytes": VALUE_BYTES * (self._loads.n_values + n_values) + pinned,
            "pinned_bytes": pinned,
            **self._counters,
            "compactions": 0,
        }

    def _count(self, n_operations: int) -> None:
        counters = self._counters
        counters["cycles"] += 1
        counters["operations"] += n_operations
        counters["operations_per_scan_last"] = n_operations
        counters["operations_per_scan_max"] = max(counters["operations_per_scan_max"], n_operations)

    def _plans_of(self, unit: Sequence[Operation], told: _Answers) -> list[Plan]:
        """Give the plans of operations that are executed together; none if one of them cannot be."""
        plans = []
        for operation in unit:
            plan = self._plan_of(operation, told)
            if plan is None:
                return []
            plans.append(plan)
        return plans

    def _plan_of(self, operation: Operation, told: _Answers) -> Plan | None:
        """Give an operation's plan; None, and why, if it cannot be executed."""
        table = self._tables.get(operation.shape.table)
        if table is None:
            told.fail(operation, "schema", f"table {operation.shape.table} does not exist")
            return None
        plan = self._plan(operation.shape, table.schema)
        if not isinstance(plan, Plan):
            told.refuse(operation, plan)
            return None
        try:
            validate_parameters(plan.shape, table.schema, operation.parameters)
        except (StaleShape, StatementError) as fault:
            told.refuse(operation, fault)
            return None
        return plan

    def _execute(self, operation: Operation, plan: Plan, told: _Answers) -> None:
        table = self._tables[operation.shape.table]
        self._counters["rows_scanned"] += len(table)
        if plan.is_read:
            told.read(plan, operation, table.read(plan, operation))
            return
        tally = table.write(plan, operation)
        self._counters["dirty_rows"] += tally.n_affected
        told.wrote(operation, tally.counts())

    def _plan(self, shape: Shape, schema: TableSchema) -> Plan | Exception:
        """Give the plan of a shape, or why it has none; kept by canonical encoding."""
        key = shape.encode(), schema.version
        found = self._plans.get(key)
        if found is None:
            try:
                found = make_plan(shape, schema)
            except (StaleShape, StatementError) as fault:
                found = fault
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = found
        return found


class _Answers:
    """What one sender is told."""

    def __init__(self) -> None:
        self._transactions = Transactions()
        self._written: list[Written] = []
        self._failed: list[Failed] = []
        self._partials: list[Partials] = []
        self._reads: dict[int, tuple[Plan, list[tuple[Operation, list[list[Any]]]]]] = {}

    def fail(self, operation: Operation, kind: str, text: str, key: tuple[Any, ...] = ()) -> None:
        failed = Failed(operation.number, operation.position, operation.scope, kind, key, text)
        if operation.step >= 0:
            self._transactions.refuse(operation.sender, operation.step, failed)
        else:
            self._failed.append(failed)

    def wrote(self, operation: Operation, counts: tuple[Count, ...]) -> None:
        step = max(operation.step, 0)
        self._written.append(Written.of(operation.number, operation.position, counts, step))

    def loaded(self, outcome: Written | Failed) -> None:
        if isinstance(outcome, Failed):
            self._failed.append(outcome)
        else:
            self._written.append(outcome)

    def refuse(self, operation: Operation, fault: Exception) -> None:
        self.fail(operation, "schema" if isinstance(fault, StaleShape) else "invalid", str(fault))

    def read(self, plan: Plan, operation: Operation, found: list[list[Any]] | ReadError) -> None:
        if isinstance(found, ReadError):
            self.fail(operation, "read", found.cause.text, found.key)
        elif plan.shape.is_grouped:
            self._partials.append(_partials(plan.shape, operation, found))
        else:
            self._reads.setdefault(id(plan), (plan, []))[1].append((operation, found))

    def results(self, sender: ProcessId, executed: int) -> Results:
        return Results(
            process=ProcessId("", ""),
            to=sender,
            executed=executed,
            rows=tuple(_rows(plan.shape, reads) for plan, reads in self._reads.values()),
            partials=tuple(self._partials),
            written=(join_written(self._written),) if self._written else (),
            failed=(*self._failed, *(failed for _, failed in self._transactions.failed())),
        )


def _partials(shape: Shape, operation: Operation, found: list[list[Any]]) -> Partials:
    """Give the groups of one read, each with one state per aggregate."""
    n_keys = len(shape.group_by)
    numbers: dict[tuple[Any, ...], int] = {}
    keys: list[list[Any]] = []
    groups = []
    for values in found:
        identity = tuple(map(canonical, values[:n_keys]))
        if identity not in numbers:
            numbers[identity] = len(numbers)
            keys.append(values[:n_keys])
        groups.append(numbers[identity])
    n_groups = len(numbers) if n_keys else 1
    states = []
    for place, aggregate in enumerate(shape.aggregates, n_keys):
        accumulator = accumulator_of(aggregate)
        value = None
        if aggregate.term is not None:
            value = as_value([values[place] for values in found], aggregate.term.type)
        accumulator.add(np.array(groups, np.int64), n_groups, value)
        states.append(accumulator.states())
    return Partials(
        number=np.array([operation.number]),
        position=np.array([operation.position]),
        scope=np.zeros(1, np.int64),
        scopes=(operation.scope,),
        offsets=np.array([0, n_groups]),
        keys=tuple(
            _column(term.type, [key[place] for key in keys]) for place, term in enumerate(shape.group_by)
        ),
        states=tuple(states),
    )


def _rows(shape: Shape, reads: list[tuple[Operation, list[list[Any]]]]) -> Rows:
    """Put the answers of the reads of one shape end to end."""
    operations = [operation for operation, _ in reads]
    numbers: dict[Any, int] = {}
    scope = [numbers.setdefault(operation.scope, len(numbers)) for operation in operations]
    offsets = np.zeros(len(reads) + 1, np.int64)
    np.cumsum([len(found) for _, found in reads], out=offsets[1:])
    rows = [values for _, found in reads for values in found]
    return Rows(
        number=np.array([operation.number for operation in operations], np.int64),
        position=np.array([operation.position for operation in operations], np.int64),
        scope=np.array(scope, np.int64),
        scopes=tuple(numbers),
        offsets=offsets,
        names=tuple(projection.name for projection in shape.projections),
        columns=tuple(
            _column(projection.term.type, [values[place] for values in rows])
            for place, projection in enumerate(shape.projections)
        ),
    )


def _column(kind: DataType, values: list[Any]) -> Column:
    return to_column(as_value(values, kind))
