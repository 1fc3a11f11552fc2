"""The shared scan: one pass over the rows for all pending operations (RB13 §3.1).

Rules of the file: a cycle executes a batch as if one operation at a time, in
order. It reads the stored rows once, block by block, and changes none of them
until every answer is known: writes find the rows they may change (which become
images, see `engine.order`), reads are answered from the rows that no write
touches, and the images are replayed in order and put back at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crescando.engine.base import Failed, Results
from crescando.engine.constants import Constants
from crescando.engine.digest import digest_columns
from crescando.engine.evaluator import Evaluator
from crescando.engine.group import Group, cover
from crescando.engine.images import Images, Origins
from crescando.engine.incoming import KeySlots, arrive
from crescando.engine.keys import I64, Mask
from crescando.engine.match import Matcher
from crescando.engine.order import Replay
from crescando.engine.plan import Plan, make_plan
from crescando.engine.reader import Reader
from crescando.engine.statement import Column, Operation, Shape
from crescando.engine.table import Block, Table
from crescando.engine.validate import StaleShape, validate_parameters
from crescando.engine.values import Value, concatenate, empty, to_column
from crescando.engine.writer import Tally, Writer
from crescando.errors import InvariantError, StatementError
from crescando.schema import TableSchema
from crescando.types import NO_POSITION, KeyRange, ProcessId

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
        if plan.gives_rows or not constants.check(plan.parameters):
            members = [member for member in members if _is_sound(plan, table, member[1], answers)]
            if not members:
                return None
            constants = Constants([operation.parameters for _, operation in members])
        some = [operation for _, operation in members]
        coverage = cover(some, self._arcs) if plan.is_read else None
        return Group(plan, some, np.array([place for place, _ in members]), constants, coverage)


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


class Cycle:
    """One pass over one table.

    Parameters
    ----------
    table : Table
    groups : sequence of Group
    arcs : sequence of KeyRange
    n_operations : int
        Operations of the batch, in the groups or failed before.
    evaluator : Evaluator
    """

    def __init__(
        self,
        table: Table,
        groups: Sequence[Group],
        arcs: Sequence[KeyRange],
        n_operations: int,
        evaluator: Evaluator,
    ) -> None:
        self._table = table
        self._groups = groups
        self._arcs = arcs
        self._evaluator = evaluator
        self._origins = Origins()
        self._tally = Tally(n_operations, arcs)
        self._pairs: I64 = np.zeros(n_operations, np.int64)
        self._incoming = {i: arrive(g, table, arcs) for i, g in enumerate(groups) if g.plan.gives_rows}
        self._slots = KeySlots(table, tuple(self._incoming.values())) if self._incoming else None
        self._slot_images: I64 = np.full(0 if self._slots is None else self._slots.n_slots, -1)
        self._readers = {
            i: Reader(g, table.key_ids, evaluator) for i, g in enumerate(groups) if g.plan.is_read
        }
        self._matchers = {
            i: Matcher(g.plan, g.constants, g.every, table, evaluator)
            for i, g in enumerate(groups)
            if not g.plan.gives_rows
        }

    @property
    def n_dirty(self) -> int:
        """How many stored rows the batch may have changed."""
        return self._origins.n_rows

    def scan(self, block_rows: int) -> None:
        """Match every block: gather the rows that writes may change, answer reads on the others."""
        for block in self._table.blocks(block_rows):
            live = block.live()
            rows = None if live is None else live.nonzero()[0]
            dirty = self._find_dirty(block, rows)
            self._read(block, rows, dirty)

    def _find_dirty(self, block: Block, living: I64 | None) -> Mask | None:
        """Mark the rows that a write matches at their stored values, or whose key is named."""
        dirty: Mask | None = None
        for index, group in enumerate(self._groups):
            if group.plan.is_read or group.plan.gives_rows:
                continue
            for found in self._matchers[index].match(block, living):
                if dirty is None:
                    dirty = np.zeros(block.n_rows, np.bool_)
                dirty[found.rows] = True
                self._note(group, found.operations)
        rows, slots = (None, None) if self._slots is None else self._slots.find(block)
        if rows is not None and len(rows):
            if dirty is None:
                dirty = np.zeros(block.n_rows, np.bool_)
            dirty[rows] = True
        if dirty is None:
            return None
        gathered = dirty.nonzero()[0]
        first = self._origins.add(block, gathered)
        if rows is not None:
            self._slot_images[slots] = first + np.searchsorted(gathered, rows)
        return dirty

    def _note(self, group: Group, operations: I64) -> None:
        """Count matches on rows that will be replayed."""
        counts = np.bincount(operations, minlength=len(group.order))
        self._pairs[group.order] += counts

    def _read(self, block: Block, rows: I64 | None, dirty: Mask | None) -> None:
        """Answer reads from the rows that no write touches."""
        arc = block.segment.arc
        for index, reader in self._readers.items():
            group = self._groups[index]
            coverage = group.coverage
            assert coverage is not None
            for found in self._matchers[index].match(block, rows, coverage.skipped(arc)):
                at, operations, errors = found.rows, found.operations, found.errors
                kept = coverage.visible(operations, arc, block.positions()[at])
                if dirty is not None:
                    touched = dirty[at]
                    self._note(group, operations[touched])
                    kept = ~touched if kept is None else kept & ~touched
                if kept is not None:
                    at, operations = at[kept], operations[kept]
                    errors = None if errors is None else errors[kept]
                reader.add(block, at, operations, errors)

    def finish(self, answers: Answers) -> None:
        """Replay the images, put them back, and hand out all answers."""
        if self._origins.n_rows or self._incoming:
            self._replay()
        for reader in self._readers.values():
            answers.read(reader)
        for group in self._groups:
            if not group.plan.is_read:
                answers.wrote(group, self._tally)

    def _replay(self) -> None:
        images = self._make_images()
        writer = Writer(self._table, images, self._tally, self._evaluator)
        for rows in self._incoming.values():
            bad = rows.error.nonzero()[0]
            keys = [rows.values[key].take(bad) for key in self._table.key_ids]
            order = rows.group.order[rows.operation[bad]]
            self._tally.rejected(order, rows.arc[bad], keys, rows.error[bad])
        replay = Replay(
            self._table,
            images,
            self._groups,
            self._incoming,
            self._slot_images,
            self._matchers,
            self._readers,
            writer,
            self._evaluator,
        )
        replay.run(self._pairs)
        written = frozenset[int]().union(*(g.plan.assigned for g in self._groups if not g.plan.is_read))
        # A row that dies and is born again in one batch differs in any column.
        images.write_back(images.column_ids if self._incoming else written)

    def _make_images(self) -> Images:
        if self._slots is None:
            used = frozenset[int]().union(*(group.plan.used for group in self._groups))
            return Images(self._table, self._origins, 0, used | set(self._table.key_ids))
        void = (self._slot_images < 0).nonzero()[0]
        images = Images(self._table, self._origins, len(void), self._table.types)
        born = images.n_stored + np.arange(len(void))
        self._slot_images[void] = born
        images.is_key_group[self._slot_images] = True
        images.arc[born] = self._slots.arc[void]
        images.position[born] = self._slots.position[void]
        for key_id, key in zip(self._table.key_ids, self._slots.keys, strict=True):
            images.store(key_id, born, key.take(void))
        return images


class Answers:
    """Results by sender, in the order in which senders first spoke."""

    def __init__(self) -> None:
        self._parts: dict[ProcessId, tuple[list[Any], list[Any], list[Any], list[Any]]] = {}

    def expect(self, sender: ProcessId) -> None:
        """Fix a sender's place."""
        if sender not in self._parts:
            self._parts[sender] = ([], [], [], [])

    def failed(self, operation: Operation, kind: str, text: str) -> None:
        """Tell that an operation was not executed."""
        fault = Failed(operation.number, operation.position, operation.scope, kind, (), text)
        self._parts[operation.sender][3].append(fault)

    def read(self, reader: Reader) -> None:
        """Tell what the reads of a group answered."""
        operations = reader.operations
        for sender, rows in reader.rows():
            self._parts[sender][0].append(rows)
        for local, partials in reader.partials().items():
            self._parts[operations[local].sender][1].append(partials)
        for local, failed in reader.failed().items():
            self._parts[operations[local].sender][3].append(failed)

    def wrote(self, group: Group, tally: Tally) -> None:
        """Tell what the writes of a group did."""
        for operation, written in zip(group.operations, tally.written(group), strict=True):
            self._parts[operation.sender][2].append(written)

    def results(self, executed: int) -> list[Results]:
        """Give one `Results` per sender; `process` is left to the role."""
        nobody = ProcessId("", "")
        return [
            Results(nobody, sender, executed, tuple(rows), tuple(partials), tuple(written), tuple(failed))
            for sender, (rows, partials, written, failed) in self._parts.items()
        ]
