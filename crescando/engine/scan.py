"""The engine that answers by scanning: tables, batches, plans (RB13 §3.1).

Rules of the file: a batch is executed as if one operation at a time, in order,
and shares one pass over each table it names (see `engine.cycle`). What a client
sends is checked here, before anything runs; a faulty operation fails alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from crescando.engine.answers import Answers
from crescando.engine.arcs import check_held, checked_arcs
from crescando.engine.base import Cancelled, Engine, Explained, Failed, Piece, Results
from crescando.engine.constants import Constants
from crescando.engine.cycle import Cycle
from crescando.engine.digest import digest_columns
from crescando.engine.evaluator import Evaluator
from crescando.engine.explain import explain
from crescando.engine.export import export_columns
from crescando.engine.group import Group, cover
from crescando.engine.keys import Mask
from crescando.engine.loads import Begin, LoadStep, Stage
from crescando.engine.operations import Entry, Members, Plain, by_shape, last_position, merge
from crescando.engine.parallel import IN_TURN, Workers
from crescando.engine.pieces import ScanImage, take_in
from crescando.engine.pinned import ScanPin
from crescando.engine.plan import Plan, make_plan
from crescando.engine.reader import Reader
from crescando.engine.sampling import Sample
from crescando.engine.staging import Loads
from crescando.engine.statement import Column, Shape
from crescando.engine.table import Table
from crescando.engine.validate import StaleShape, validate_parameters
from crescando.engine.writer import Tally
from crescando.engine.written import Written
from crescando.errors import InvariantError, StatementError
from crescando.schema import TableSchema
from crescando.types import NO_POSITION, KeyRange, Scope

_PLANS_MAX = 4_096

_COUNTERS = (
    "cycles",
    "operations",
    "operations_per_scan_max",
    "operations_per_scan_last",
    "dirty_rows",
    "rows_scanned",
)


class ScanEngine:
    """An engine that answers by scanning; see `engine.base.Engine`.

    Parameters
    ----------
    block_rows : int, optional
        Rows per block; by default chosen for each pass.
    workers : Workers, optional
        Who scans; by default the caller's thread.

    Both change the time and nothing else.
    """

    def __init__(self, block_rows: int | None = None, workers: Workers = IN_TURN) -> None:
        self._block_rows = block_rows
        self._workers = workers
        self._arcs: tuple[KeyRange, ...] = ()
        self._tables: dict[int, Table] = {}
        self._plans: dict[tuple[bytes, int], Plan | Exception] = {}
        self._evaluator = Evaluator()
        self._executed = int(NO_POSITION)
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._main: ScanEngine | None = None
        self._images: tuple[weakref.ref[ScanImage], ...] = ()
        self._pins: tuple[weakref.ref[ScanPin], ...] = ()
        self._untidy: set[int] = set()
        self._loads = Loads(self._tables)
        self._samples: dict[int, Sample] = {}
        """By table; none where rows, columns or texts go, since a sample may keep texts alive."""

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        """State the ring arcs whose rows this engine holds; see `engine.base.Engine.set_arcs`."""
        self._samples.clear()
        self._arcs = checked_arcs(arcs)
        for table in self._tables.values():
            table.set_arcs(self._arcs)
        self._loads.set_arcs(self._arcs)
        self._untidy.update(self._tables)

    def beside(self, arcs: Sequence[KeyRange]) -> ScanEngine:
        """Give an engine for further arcs; see `engine.base.Engine.beside`."""
        if self._main is not None:
            raise InvariantError("an engine beside another one has none beside itself")
        other = ScanEngine(self._block_rows, self._workers)
        other._main = self
        # What depends on schemas alone is the same for both.
        other._plans, other._evaluator = self._plans, self._evaluator
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
        take_in(table, piece)

    def adopt(self, other: Engine) -> None:
        """Take over the arcs and rows of an engine beside this one; see `engine.base.Engine.adopt`."""
        if not isinstance(other, ScanEngine) or other._main is not self:
            raise InvariantError("an engine adopts only what was made beside it")
        if other._tables.keys() != self._tables.keys():
            raise InvariantError("the engine beside has not caught up: it has other tables")
        arcs = checked_arcs(sorted((*self._arcs, *other._arcs)))
        self._loads.merge(other._loads)
        for table_id, table in self._tables.items():
            table.adopt(other._tables[table_id])
        self._arcs = arcs
        self._loads.set_arcs(arcs)
        self._images += other._images
        self._pins += other._pins
        other._tables, other._samples, other._arcs, other._main = {}, {}, (), None

    def image(self, scope: Scope) -> ScanImage:
        """Take an image of the rows in some ring ranges; see `engine.base.Engine.image`."""
        check_held(scope, self._arcs)
        image = ScanImage(self._tables.values(), scope, self._loads.records())
        self._images = (*(each for each in self._images if each() is not None), weakref.ref(image))
        return image

    def pin(self, tables: Sequence[int]) -> ScanPin:
        """Pin whole tables as they are now; see `engine.base.Engine.pin`."""
        chosen = [self._tables[table] for table in tables if table in self._tables]
        pin = ScanPin(chosen, self._arcs, self._plan, self._evaluator, self._workers)
        self._pins = (*(each for each in self._pins if each() is not None), weakref.ref(pin))
        return pin

    def weigh(self, scope: Scope) -> tuple[int, int]:
        """Give rows and bytes of some ranges; see `engine.base.Engine.weigh`."""
        weights = [table.weigh(scope) for table in self._tables.values()]
        return sum(rows for rows, _ in weights), sum(n_bytes for _, n_bytes in weights)

    def create_table(self, schema: TableSchema) -> None:
        """Make an empty table with catalog ids set."""
        if schema.id in self._tables:
            raise InvariantError(f"table {schema.id} exists already")
        self._tables[schema.id] = Table(schema, self._arcs, self._kin(schema.id))

    def drop_table(self, table: int) -> None:
        """Drop a table and free its rows."""
        self._tables.pop(table, None)
        self._samples.pop(table, None)

    def alter_table(self, schema: TableSchema) -> None:
        """Take a table's next schema; see `engine.base.Engine.alter_table`."""
        self._samples.pop(schema.id, None)
        self._tables[schema.id].alter(schema, self._kin(schema.id))

    def _kin(self, table: int) -> Table | None:
        """Give the table of the main engine that one of ours shares texts with, if there is one."""
        return None if self._main is None else self._main._tables.get(table)

    def execute(self, operations: Sequence[Entry], cancelled: Cancelled | None = None) -> list[Results]:
        """Execute operations, as if one at a time; see `engine.base.Engine.execute`."""
        if not operations:
            return []
        if self._untidy:
            self._tidy_up(self._untidy.pop())
        results: list[Results] = []
        for plain, told in self._stretches(operations):
            results += self._execute_plain(plain, told, cancelled)
        return results

    def _stretches(
        self, operations: Sequence[Entry]
    ) -> Iterator[tuple[list[Plain], list[tuple[LoadStep, Written | Failed]]]]:
        """Give what shares a pass, with the steps of loads that are executed beside it and what they did.

        A step that no visible row depends on hinders no pass.
        """
        plain: list[Plain] = []
        told: list[tuple[LoadStep, Written | Failed]] = []
        for entry in operations:
            if not isinstance(entry, LoadStep):
                plain.append(entry)
                continue
            if plain and not isinstance(entry.work, (Begin, Stage)):
                yield plain, told
                plain, told = [], []
            told.append((entry, self._loads.execute(entry)))
        if plain or told:
            yield plain, told

    def _execute_plain(
        self,
        operations: list[Plain],
        told: list[tuple[LoadStep, Written | Failed]],
        cancelled: Cancelled | None,
    ) -> list[Results]:
        """Execute what shares a pass."""
        senders = [*map(attrgetter("sender"), operations), *(step.sender for step, _ in told)]
        answers = Answers(senders)
        for step, outcome in told:
            answers.loaded(step.sender, outcome)
        by_table: dict[int, list[tuple[Shape, Members]]] = {}
        n_operations = 0
        for shape, members in by_shape(operations):
            by_table.setdefault(shape.table, []).append((shape, members))
            n_operations += len(members)
        work: list[tuple[Table, list[Group]]] = []
        for table_id, bunches in by_table.items():
            table = self._tables.get(table_id)
            if table is None:
                for _, members in bunches:
                    answers.refused(members, "schema", f"table {table_id} does not exist")
                continue
            work.append((table, self._group(table, bunches, answers)))
        refused = answers.transactions.refused
        for table, groups in work:
            kept = _without(groups, refused) if refused else groups
            if kept:
                self._execute_on(table, kept, n_operations, answers, cancelled)
        last = (*map(last_position, operations[-1:]), *(step.position for step, _ in told[-1:]))
        # What was staged late has a place before what was executed meanwhile.
        self._executed = max(self._executed, *last)
        self._count(n_operations)
        return answers.results(self._executed)

    def _tidy_up(self, table_id: int) -> None:
        """Compact a table that rows have left, since perhaps nobody asks anything of it any more."""
        table = self._tables.get(table_id)
        if table is not None:
            self._samples.pop(table_id, None)
            table.compact()
            if table.shares_pools:
                self._untidy.add(table_id)

    def explain(self, shape: Shape, parameters: tuple[Any, ...]) -> Explained:
        """Tell how an operation would be executed; see `engine.base.Engine.explain`."""
        table = self._tables.get(shape.table)
        if table is None:
            return Explained(fault=f"table {shape.table} does not exist")
        plan = self._plan(shape, table)
        if isinstance(plan, Exception):
            return Explained(fault=str(plan))
        try:
            validate_parameters(shape, table.schema, parameters)
        except (StaleShape, StatementError) as fault:
            return Explained(fault=str(fault))
        with np.errstate(all="ignore"):
            return explain(table, plan, parameters, self._evaluator, self._block_rows)

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
        return export_columns(self._tables[table], key_range)

    def statistics(self) -> dict[str, int]:
        """Give counters: rows, bytes, cycles, operations, sharing, dirty rows, rows scanned, compactions.

        Another thread than the one that executes may ask, and gets about what is there.
        """
        tables = list(self._tables.values())
        pinned = self._kept_bytes(self._pins)
        return {
            "rows": sum(table.n_rows for table in tables),
            "staged_rows": sum(table.n_hidden for table in tables),
            "loads": self._loads.n_open,
            "bytes": sum(table.n_bytes for table in tables) + self._kept_bytes((*self._images, *self._pins)),
            "pinned_bytes": pinned,
            **self._counters,
            "compactions": sum(table.n_compactions for table in tables),
        }

    def _kept_bytes(self, kept_by: Iterable[weakref.ref[ScanImage] | weakref.ref[ScanPin]]) -> int:
        """Give what is in memory for some images and pins only."""
        kept: dict[int, int] = {}
        for image in (each() for each in kept_by):
            if image is not None:
                kept |= image.array_bytes()
        if kept:
            for table in list(self._tables.values()):
                for array_id in table.array_ids():
                    kept.pop(array_id, None)
        return sum(kept.values())

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

    def _execute_on(
        self,
        table: Table,
        groups: list[Group],
        n_operations: int,
        answers: Answers,
        cancelled: Cancelled | None,
    ) -> None:
        """Run one cycle over one table."""
        if not self._arcs:
            # A process that waits for its first range executes everything, to no effect.
            nothing = Tally(n_operations, ())
            for group in groups:
                if group.plan.is_read:
                    answers.read(Reader(group, table.key_ids, self._evaluator), self._workers)
                else:
                    answers.wrote(group, nothing)
            return
        table.compact()
        n_stored = table.n_stored
        # Rows that are NULL or ERROR hold anything, on which arithmetic may complain in vain.
        with np.errstate(all="ignore"):
            sample = self._sample(table)
            cycle = Cycle(table, groups, self._arcs, n_operations, self._evaluator, sample)
            cycle.scan(self._block_rows, self._workers, cancelled)
            cycle.finish(answers, self._workers)
        sample.note_changed(cycle.n_dirty)
        self._counters["dirty_rows"] += cycle.n_dirty
        self._counters["rows_scanned"] += n_stored

    def _sample(self, table: Table) -> Sample:
        """Give a sample of a table's rows: the last one, as long as it is good."""
        sample = self._samples.get(table.schema.id)
        if sample is None or not sample.is_good():
            sample = self._samples[table.schema.id] = Sample(table)
        return sample

    def _group(self, table: Table, bunches: list[tuple[Shape, Members]], answers: Answers) -> list[Group]:
        """Group operations by plan; those that cannot be executed fail here."""
        by_plan: dict[int, tuple[Plan, list[Members]]] = {}
        for shape, members in bunches:
            plan = self._plan(shape, table)
            if isinstance(plan, Exception):
                kind = "schema" if isinstance(plan, StaleShape) else "invalid"
                answers.refused(members, kind, str(plan))
                continue
            by_plan.setdefault(id(plan), (plan, []))[1].append(members)
        groups = (self._make_group(table, plan, merge(pieces), answers) for plan, pieces in by_plan.values())
        return [group for group in groups if group is not None]

    def _make_group(self, table: Table, plan: Plan, members: Members, answers: Answers) -> Group | None:
        constants = Constants(members.given)
        if plan.gives_rows or not constants.check(plan.parameters) or not _has_limits(plan, constants):
            members = members.keep(_sound(plan, table, members, answers))
            if len(members) == 0:
                return None
            constants = Constants(members.given)
        return Group(plan, members, constants, cover(members, self._arcs) if plan.is_read else None)


def _without(groups: list[Group], refused: tuple[int, ...]) -> list[Group]:
    """Leave out the writes of transactions of which nothing may happen."""
    left = []
    for group in groups:
        members = group.members
        kept = (members.step < 0) | ~np.isin(members.position, refused)
        if kept.all():
            left.append(group)
        elif kept.any():
            members = members.keep(kept)
            left.append(Group(group.plan, members, Constants(members.given)))
    return left


def _has_limits(plan: Plan, constants: Constants) -> bool:
    """Say whether every operation's limit is a number of rows, if the shape has one."""
    if plan.shape.limit is None:
        return True
    limits = constants.scalar(plan.shape.limit)
    return (limits.valid is None or bool(limits.valid.all())) and bool((limits.data >= 0).all())


def _sound(plan: Plan, table: Table, members: Members, answers: Answers) -> Mask:
    """Check each operation's parameters; a fault fails it alone. Shape (n_operations,)."""
    sound = np.ones(len(members), np.bool_)
    for local, parameters in enumerate(members.rows()):
        try:
            validate_parameters(plan.shape, table.schema, parameters)
        except (StaleShape, StatementError) as fault:
            sound[local] = False
            kind = "schema" if isinstance(fault, StaleShape) else "invalid"
            answers.failed(members, local, kind, str(fault))
    return sound
