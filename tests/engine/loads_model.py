"""Loads as ordinary operations: the oracle of atomic loads.

Rules of the file: nothing is hidden here and nothing is shown. What is staged is a list of
rows in Python; at the place of the commit each of them is executed as an operation of its own
on an engine that knows of no load.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from crescando.engine.kv import KvEngine
from crescando.engine.loads import (
    Abort,
    Begin,
    Commit,
    LoadCount,
    LoadRule,
    LoadStep,
    LoadWork,
    LoadWrite,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.statement import (
    Assignment,
    Column,
    ColumnRef,
    Kind,
    Operation,
    Projection,
    Shape,
    Term,
)
from crescando.engine.written import Count
from crescando.schema import TableSchema
from crescando.types import FULL_RING, ProcessId
from tests.engine.generator import as_column
from tests.engine.oracle import canonical, rank
from tests.engine.reports import reports
from tests.engine.workbench import apply, par

ME = ProcessId("client", "model")
RESERVED, DUPLICATE = "key reserved by a load under way", "duplicate key"
NULL = "NULL in a column that is not nullable"

Values = dict[int, Any]
Key = tuple[Any, ...]


@dataclass
class Told:
    """What a step of a load must tell: why it is refused, or its counts."""

    refused: str = ""
    affected: Counter[LoadCount] = field(default_factory=Counter)
    rejected: dict[LoadCount, list[tuple[Any, str]]] = field(default_factory=dict)

    def reject(self, count: LoadCount, key: Key, cause: str) -> None:
        """Note a rejected row."""
        self.rejected.setdefault(count, []).append((rank(key), cause))


@dataclass
class Staged:
    """An open load."""

    begin: Begin
    rows: dict[tuple[int, int, int, int], Values] = field(default_factory=dict)
    """By partition, chunk, row and attempt."""
    is_sealed: bool = False


class Model:
    """The oracle, with the whole ring."""

    def __init__(self) -> None:
        self.engine = KvEngine()
        self.engine.set_arcs([FULL_RING])
        self.schemas: dict[int, TableSchema] = {}
        self.loads: dict[str, Staged] = {}
        self.jobs: dict[str, int] = {}

    @property
    def n_staged(self) -> int:
        """How many rows are staged."""
        return sum(len(load.rows) for load in self.loads.values() if load.begin.table in self.schemas)

    def follow(self, schemas: dict[int, TableSchema]) -> None:
        """Take over the catalog."""
        for table in self.schemas.keys() - schemas.keys():
            self.engine.drop_table(table)
        for table, schema in schemas.items():
            if table not in self.schemas:
                self.engine.create_table(schema)
            elif schema != self.schemas[table]:
                self.engine.alter_table(schema)
        self.schemas = dict(schemas)

    # Ordinary operations.

    def execute(self, operation: Operation) -> tuple[Count | None, list[tuple[Any, ...]]]:
        """Execute an operation; gives what a write did, or the rows of a read."""
        shape, parameters = operation.shape, operation.parameters
        refused = 0
        if shape.kind in (Kind.INSERT, Kind.UPSERT):
            schema = self.schemas[shape.table]
            rows = rows_of(shape.columns, parameters)
            reserved = self._reserved(shape.table)
            free = [row for row in rows if canonical_key(schema, row) not in reserved]
            refused = len(rows) - len(free)
            if refused:
                parameters = columns_of(schema, shape.columns, free)
        count, answer = self._run(shape, parameters, operation.position)
        if count is not None and refused:
            return Count(FULL_RING, count.affected, count.rejected + refused), answer
        return count, answer

    def _run(
        self, shape: Shape, parameters: tuple[Any, ...], position: int = 0
    ) -> tuple[Count | None, list[tuple[Any, ...]]]:
        (results,) = self.engine.execute([Operation(position, ME, 1, shape, parameters, (FULL_RING,))])
        assert not results.failed, results.failed
        answer = [
            row for rows in results.rows for row in zip(*(c.to_list() for c in rows.columns), strict=True)
        ]
        told = reports(results.written)
        return (told[0].counts[0] if told else None), answer

    def _reserved(self, table: int, but: Staged | None = None) -> set[Key]:
        schema = self.schemas[table]
        if not schema.primary_key:
            return set()
        return {
            canonical_key(schema, row)
            for load in self.loads.values()
            if load.is_sealed and load.begin.table == table and load is not but
            for row in load.rows.values()
        }

    # Steps of loads.

    def step(self, step: LoadStep) -> Told:
        """Execute a step."""
        told, work = Told(), step.work
        told.refused = self._refusal(work)
        if told.refused:
            return told
        if isinstance(work, Begin):
            self.loads[work.load] = Staged(work)
        elif isinstance(work, Abort):
            load = self.loads.pop(work.load, None)
            if load is not None and load.begin.table in self.schemas:
                told.affected[LoadCount.DISCARDED] = len(load.rows)
        elif isinstance(work, Stage):
            self._stage(self.loads[work.load], work, told)
        else:
            self._end(self.loads[work.load], work, told, step.position)
        return told

    def _refusal(self, work: LoadWork) -> str:
        if isinstance(work, Abort):
            return ""
        if isinstance(work, (Begin, Commit, Seal, Publish)) and self.jobs.get(work.job, -2) >= work.epoch:
            return "repeat"
        if isinstance(work, Begin):
            return "load" if work.load in self.loads else ""
        load = self.loads.get(work.load)
        if load is None:
            return "load"
        schema = self.schemas.get(load.begin.table)
        if schema is None or any(schema.column_by_id(i) is None for i in load.begin.columns):
            return "schema"
        is_strict = load.begin.write is LoadWrite.INSERT and load.begin.rule is LoadRule.FAIL
        fits = {
            Stage: not load.is_sealed,
            Commit: not load.is_sealed and not is_strict,
            Seal: is_strict,
            Publish: load.is_sealed,
        }
        return "" if fits[type(work)] else "load"

    def _stage(self, load: Staged, work: Stage, told: Told) -> None:
        schema = self.schemas[load.begin.table]
        for row, values in enumerate(rows_of(load.begin.columns, work.columns)):
            missing = [
                i for i, value in values.items() if value is None and not schema.column_by_id(i).nullable
            ]  # type: ignore[union-attr]
            if missing:
                told.reject(LoadCount.STAGED, key_of(schema, values), NULL)
                continue
            load.rows[work.partition, work.chunk, row, work.attempt] = values
            told.affected[LoadCount.STAGED] += 1

    def _end(self, load: Staged, work: Commit | Seal | Publish, told: Told, position: int) -> None:
        begin, schema = load.begin, self.schemas[load.begin.table]
        if isinstance(work, Seal) and load.is_sealed:
            told.affected[LoadCount.RESERVED] = len(load.rows)
            return
        if not isinstance(work, Publish):
            wins = set(work.winners)
            load.rows = {at: row for at, row in load.rows.items() if (at[0], at[3]) in wins}
        if isinstance(work, Seal):
            self._seal(load, schema, told)
            return
        del self.loads[begin.load]
        self.jobs[begin.job] = begin.epoch
        if begin.write is LoadWrite.OVERWRITE:
            count, _ = self._run(Shape(Kind.DELETE, schema.id, schema.version), ())
            assert count is not None
            told.affected[LoadCount.DELETED] += count.affected
        for at in sorted(load.rows):
            self._show(begin, schema, load.rows[at], told, position, at)

    def _seal(self, load: Staged, schema: TableSchema, told: Told) -> None:
        kept: dict[tuple[int, int, int, int], Values] = {}
        seen: set[Key] = set()
        reserved = self._reserved(schema.id)
        for at in sorted(load.rows):
            row = load.rows[at]
            key = canonical_key(schema, row)
            if schema.primary_key and key in seen:
                told.reject(LoadCount.DUPLICATE, key_of(schema, row), DUPLICATE)
                continue
            seen.add(key)
            if schema.primary_key and self._there(schema, row):
                told.reject(LoadCount.CLASHING, key_of(schema, row), DUPLICATE)
            elif schema.primary_key and key in reserved:
                told.reject(LoadCount.CLASHING, key_of(schema, row), RESERVED)
            else:
                kept[at] = row
                told.affected[LoadCount.RESERVED] += 1
        load.rows, load.is_sealed = kept, True

    def _show(
        self, begin: Begin, schema: TableSchema, row: Values, told: Told, position: int, at: Any
    ) -> None:
        key = key_of(schema, row)
        is_born = begin.write not in (LoadWrite.UPDATE, LoadWrite.DELETE)
        if is_born and canonical_key(schema, row) in self._reserved(schema.id):
            told.reject(LoadCount.INSERTED, key, RESERVED)
            return
        if begin.write is LoadWrite.DELETE:
            told.affected[LoadCount.DELETED if self._delete(schema, row) else LoadCount.MISSING] += 1
        elif begin.write is LoadWrite.UPDATE:
            told.affected[LoadCount.UPDATED if self._update(schema, row) else LoadCount.MISSING] += 1
        elif begin.write is LoadWrite.UPSERT:
            was_there = self._there(schema, row)
            count = self._bring(Kind.UPSERT, begin, schema, row, position)
            if count.rejected:
                told.reject(LoadCount.INSERTED, key, NULL)
            else:
                told.affected[LoadCount.UPDATED if was_there else LoadCount.INSERTED] += 1
        elif begin.write is LoadWrite.INSERT and begin.rule is not LoadRule.REPLACE:
            # Rows of a table without a key are told apart by position and ordinal: each has its own.
            place = position * 1_000_000 + len(told.affected) + sum(told.affected.values())
            count = self._bring(Kind.INSERT, begin, schema, row, place)
            told.affected[LoadCount.KEPT if count.rejected else LoadCount.INSERTED] += 1
        else:
            is_replaced = bool(schema.primary_key) and self._delete(schema, row)
            place = position * 1_000_000 + len(told.affected) + sum(told.affected.values())
            assert not self._bring(Kind.INSERT, begin, schema, row, place).rejected
            told.affected[LoadCount.REPLACED if is_replaced else LoadCount.INSERTED] += 1

    def _where(self, schema: TableSchema, row: Values) -> tuple[Term, tuple[Any, ...]]:
        columns = [schema.column(name) for name in schema.primary_key]
        tests = [apply("=", ColumnRef(c.id, c.type), par(n, c.type)) for n, c in enumerate(columns)]
        where = tests[0] if len(tests) == 1 else apply("and", *tests)
        return where, tuple(row[column.id] for column in columns)

    def _there(self, schema: TableSchema, row: Values) -> bool:
        where, key = self._where(schema, row)
        column = schema.columns[0]
        output = (Projection("k", ColumnRef(column.id, column.type)),)
        _, rows = self._run(Shape(Kind.READ, schema.id, schema.version, where, output), key)
        return bool(rows)

    def _delete(self, schema: TableSchema, row: Values) -> bool:
        where, key = self._where(schema, row)
        count, _ = self._run(Shape(Kind.DELETE, schema.id, schema.version, where), key)
        assert count is not None
        return bool(count.affected)

    def _update(self, schema: TableSchema, row: Values) -> bool:
        where, key = self._where(schema, row)
        given = [c for c in schema.columns if c.id in row and c.name not in schema.primary_key]
        assigned = tuple(
            Assignment(column.id, par(len(key) + place, column.type)) for place, column in enumerate(given)
        )
        shape = Shape(Kind.UPDATE, schema.id, schema.version, where, assignments=assigned)
        count, _ = self._run(shape, (*key, *(row[column.id] for column in given)))
        assert count is not None
        assert not count.rejected
        return bool(count.affected)

    def _bring(self, kind: Kind, begin: Begin, schema: TableSchema, row: Values, position: int) -> Count:
        shape = Shape(kind, schema.id, schema.version, columns=begin.columns)
        count, _ = self._run(shape, columns_of(schema, begin.columns, [row]), position)
        assert count is not None
        return count


def rows_of(column_ids: tuple[int, ...], columns: tuple[Column, ...]) -> list[Values]:
    """Give columns row by row."""
    lists = [column.to_list() for column in columns]
    return [dict(zip(column_ids, row, strict=True)) for row in zip(*lists, strict=True)]


def columns_of(schema: TableSchema, column_ids: tuple[int, ...], rows: list[Values]) -> tuple[Column, ...]:
    """Give rows column by column."""
    kinds = [schema.column_by_id(column_id).type for column_id in column_ids]  # type: ignore[union-attr]
    return tuple(as_column(kind, [row[i] for row in rows]) for i, kind in zip(column_ids, kinds, strict=True))


def key_of(schema: TableSchema, row: Values) -> Key:
    """Give the primary key of a row; nothing without one."""
    return tuple(row[schema.column(name).id] for name in schema.primary_key)


def canonical_key(schema: TableSchema, row: Values) -> Key:
    """Give what is equal exactly where keys are."""
    return tuple(map(canonical, key_of(schema, row)))
