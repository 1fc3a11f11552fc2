"""The engine that answers by scanning: tables, batches, plans (RB13 §3.1).

Rules of the file: a batch is executed as if one operation at a time, in order,
and shares one pass over each table it names (see `engine.cycle`). What a client
sends is checked here, before anything runs; a faulty operation fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.answers import Answers
from crescando.engine.base import Results
from crescando.engine.constants import Constants
from crescando.engine.cycle import Cycle
from crescando.engine.digest import digest_columns
from crescando.engine.evaluator import Evaluator
from crescando.engine.group import Group, cover
from crescando.engine.plan import Plan, make_plan
from crescando.engine.statement import Column, Operation, Shape
from crescando.engine.table import Table
from crescando.engine.validate import StaleShape, validate_parameters
from crescando.engine.values import Value, concatenate, empty, to_column
from crescando.errors import InvariantError, StatementError
from crescando.schema import TableSchema
from crescando.types import NO_POSITION, KeyRange

BLOCK_ROWS = 1 << 16
"""Rows per block: a few columns of a block stay in the second-level cache (measured)."""

_PLANS_MAX = 4_096


class ScanEngine:
    """An engine that answers by scanning; see `engine.base.Engine`.

    Parameters
    ----------
    block_rows : int
        Rows per block; changes speed and nothing else.
    """

    def __init__(self, block_rows: int = BLOCK_ROWS) -> None:
        self._block_rows = block_rows
        self._arcs: tuple[KeyRange, ...] = ()
        self._tables: dict[int, Table] = {}
        self._plans: dict[tuple[bytes, int], Plan | Exception] = {}
        self._evaluator = Evaluator()
        self._executed = int(NO_POSITION)
        self._counters = dict.fromkeys(
            ("cycles", "operations", "operations_per_scan_max", "operations_per_scan_last", "dirty_rows"), 0
        )

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        """State the ring arcs this engine owns; see `engine.base.Engine.set_arcs`."""
        if self._tables:
            raise InvariantError("arcs are stated before any table exists")
        self._arcs = tuple(KeyRange(*arc) for arc in arcs)

    def create_table(self, schema: TableSchema) -> None:
        """Make an empty table with catalog ids set."""
        if schema.id in self._tables:
            raise InvariantError(f"table {schema.id} exists already")
        self._tables[schema.id] = Table(schema, self._arcs)

    def drop_table(self, table: int) -> None:
        """Drop a table and free its rows."""
        self._tables.pop(table, None)

    def alter_table(self, schema: TableSchema) -> None:
        """Take a table's next schema; see `engine.base.Engine.alter_table`."""
        self._tables[schema.id].alter(schema)

    def execute(self, operations: Sequence[Operation]) -> list[Results]:
        """Execute operations, as if one at a time; see `engine.base.Engine.execute`."""
        if not operations:
            return []
        answers = Answers()
        by_table: dict[int, list[Operation]] = {}
        for operation in operations:
            by_table.setdefault(operation.shape.table, []).append(operation)
            answers.expect(operation.sender)
        for table_id, some in by_table.items():
            table = self._tables.get(table_id)
            if table is None:
                for operation in some:
                    answers.failed(operation, "schema", f"table {table_id} does not exist")
                continue
            self._execute_on(table, some, answers)
        self._executed = operations[-1].position
        self._count(len(operations))
        return answers.results(self._executed)

    def digest(self, table: int, key_range: KeyRange) -> bytes:
        """Give the order-free digest of the logical rows in a ring range."""
        return digest_columns(self.export(table, key_range))

    def export(self, table: int, key_range: KeyRange) -> tuple[Column, ...]:
        """Give all columns, in the schema's order, of the rows in a ring range.

        Raises
        ------
        KeyError
            If there is no such table.
        """
        found = self._tables[table]
        ids = [column.id for column in found.schema.columns]
        pieces: list[list[Value]] = [[empty(found.types[column_id])] for column_id in ids]
        lengths = [0]
        low, high = np.uint64(key_range.low), np.uint64(key_range.high)
        for block in found.blocks(self._block_rows):
            positions = block.positions()
            inside = (positions >= low) & (positions <= high)
            live = block.live()
            rows = (inside if live is None else inside & live).nonzero()[0]
            lengths.append(len(rows))
            for place, column_id in enumerate(ids):
                pieces[place].append(block.column(column_id).take(rows))
        return tuple(to_column(concatenate(piece, lengths)) for piece in pieces)

    def statistics(self) -> dict[str, int]:
        """Give counters: rows, bytes, cycles, operations, sharing, dirty rows, compactions."""
        tables = self._tables.values()
        return {
            "rows": sum(table.n_rows for table in tables),
            "bytes": sum(table.n_bytes for table in tables),
            **self._counters,
            "compactions": sum(table.n_compactions for table in tables),
        }

    def _count(self, n_operations: int) -> None:
        counters = self._counters
        counters["cycles"] += 1
        counters["operations"] += n_operations
        counters["operations_per_scan_last"] = n_operations
        counters["operations_per_scan_max"] = max(counters["operations_per_scan_max"], n_operations)

    def _plan(self, shape: Shape, table: Table) -> Plan | Exception:
        """Give the plan of a shape, or why it has none; kept by canonical encoding."""
        key = (shape.encode(), table.schema.version)
        found = self._plans.get(key)
        if found is None:
            try:
                found = make_plan(shape, table.schema)
            except (StaleShape, StatementError) as fault:
                found = fault
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = found
        return found

    def _execute_on(self, table: Table, operations: list[Operation], answers: Answers) -> None:
        """Run one cycle over one table."""
        groups = self._group(table, operations, answers)
        if not groups:
            return
        table.compact()
        # Rows that are NULL or ERROR hold anything, on which arithmetic may complain in vain.
        with np.errstate(all="ignore"):
            cycle = Cycle(table, groups, self._arcs, len(operations), self._evaluator)
            cycle.scan(self._block_rows)
            cycle.finish(answers)
        self._counters["dirty_rows"] += cycle.n_dirty

    def _group(self, table: Table, operations: list[Operation], answers: Answers) -> list[Group]:
        """Group operations by shape; those that cannot be executed fail here."""
        by_shape: dict[int, list[int]] = {}
        for place, operation in enumerate(operations):
            by_shape.setdefault(id(operation.shape), []).append(place)
        by_plan: dict[int, tuple[Plan, list[int]]] = {}
        for places in by_shape.values():
            plan = self._plan(operations[places[0]].shape, table)
            if isinstance(plan, Exception):
                kind = "schema" if isinstance(plan, StaleShape) else "invalid"
                for place in places:
                    answers.failed(operations[place], kind, str(plan))
                continue
            by_plan.setdefault(id(plan), (plan, []))[1].extend(places)
        groups = []
        for plan, places in by_plan.values():
            group = self._make_group(table, plan, [(p, operations[p]) for p in sorted(places)], answers)
            if group is not None:
                groups.append(group)
        return groups

    def _make_group(
        self, table: Table, plan: Plan, members: list[tuple[int, Operation]], answers: Answers
    ) -> Group | None:
        constants = Constants([operation.parameters for _, operation in members])
        if plan.gives_rows or not constants.check(plan.parameters) or not _has_limits(plan, constants):
            members = [member for member in members if _is_sound(plan, table, member[1], answers)]
            if not members:
                return None
            constants = Constants([operation.parameters for _, operation in members])
        some = [operation for _, operation in members]
        coverage = cover(some, self._arcs) if plan.is_read else None
        return Group(plan, some, np.array([place for place, _ in members]), constants, coverage)


def _has_limits(plan: Plan, constants: Constants) -> bool:
    """Say whether every operation's limit is a number of rows, if the shape has one."""
    if plan.shape.limit is None:
        return True
    limits = constants.scalar(plan.shape.limit)
    return (limits.valid is None or bool(limits.valid.all())) and bool((limits.data >= 0).all())


def _is_sound(plan: Plan, table: Table, operation: Operation, answers: Answers) -> bool:
    """Check one operation's parameters; a fault fails it alone."""
    try:
        validate_parameters(plan.shape, table.schema, operation.parameters)
    except StaleShape as fault:
        answers.failed(operation, "schema", str(fault))
        return False
    except StatementError as fault:
        answers.failed(operation, "invalid", str(fault))
        return False
    return True
