"""Loads of the key-value engine: staged rows in dictionaries, shown one by one.

Rules of the file: the steps do exactly what their contract says, row after row; see
`crescando.engine.loads`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from crescando.engine.base import Failed, Piece
from crescando.engine.constants import as_value
from crescando.engine.digest import digest_columns
from crescando.engine.functions import Cause
from crescando.engine.kv.table import Key, KvTable, Row, identity, lies_in, rank
from crescando.engine.loads import (
    Abort,
    Begin,
    Commit,
    LoadCount,
    LoadRecords,
    LoadRule,
    LoadStep,
    LoadWrite,
    OpenLoad,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.partition import ring_positions
from crescando.engine.records import Records, Refused, Rejected, check_stage, part_of, place, tell
from crescando.engine.statement import Column
from crescando.engine.validate import validate_staged
from crescando.engine.values import to_column
from crescando.engine.written import Rejection, Written
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange, Scope

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")

_Place = tuple[int, int, int]
"""Of a staged row: its partition and attempt, its chunk and row, and its ring position."""


@dataclass(slots=True)
class HiddenRows:
    """The rows of one load that are out of sight.

    Attributes
    ----------
    column_ids : list of int
        The columns that are given, and exist.
    rows : dict
        Values by column id, hidden key behind them; not changed once they are here.
    is_sealed : bool
    """

    column_ids: list[int]
    rows: dict[_Place, dict[int, Any]] = field(default_factory=dict)
    hidden_keys: dict[_Place, Key] = field(default_factory=dict)
    is_sealed: bool = False

    @property
    def n_values(self) -> int:
        """How many values there are, places included."""
        return len(self.rows) * (len(self.column_ids) + 3)

    def kinds(self, schema: TableSchema) -> list[tuple[int, DataType]]:
        """Everything that travels of a row."""
        kinds = []
        for column_id in self.column_ids:
            column = schema.column_by_id(column_id)
            assert column is not None
            kinds.append((column_id, column.type))
        hidden = [] if schema.primary_key else [-1, -2]
        return kinds + [(column_id, DataType.INT64) for column_id in (*hidden, -3, -4)]

    def keep(self, places: Iterable[_Place]) -> None:
        """Let all other rows go."""
        kept = set(places)
        self.rows = {at: row for at, row in self.rows.items() if at in kept}
        self.hidden_keys = {at: key for at, key in self.hidden_keys.items() if at in kept}

    def within(self, scope: Scope) -> list[_Place]:
        """Give the rows that lie in some ring ranges."""
        return [at for at in self.rows if lies_in(at[2], scope)]

    def columns(self, schema: TableSchema, places: Sequence[_Place]) -> tuple[Column, ...]:
        """Give everything that travels of some rows."""
        lists: dict[int, list[Any]] = {
            column_id: [self.rows[at][column_id] for at in places] for column_id in self.column_ids
        }
        if not schema.primary_key:
            lists[-1], lists[-2] = ([self.hidden_keys[at][n] for at in places] for n in (0, 1))
        lists[-3], lists[-4] = ([at[n] for at in places] for n in (0, 1))
        return tuple(to_column(as_value(lists[i], kind)) for i, kind in self.kinds(schema))


class _Shares:
    """What one step did, arc by arc."""

    def __init__(self, arcs: tuple[KeyRange, ...]) -> None:
        self._arcs = arcs
        self._affected = np.zeros((len(LoadCount), len(arcs)), np.int64)
        self._failures: dict[int, list[tuple[Any, Cause, Key]]] = {}

    def add(self, count: LoadCount, arc: int) -> None:
        self._affected[count, arc] += 1

    def reject(self, count: LoadCount, arc: int, key: Key, cause: Cause) -> None:
        cell = int(count) * len(self._arcs) + arc
        self._failures.setdefault(cell, []).append((rank(key), cause, key))

    def written(self, step: LoadStep) -> Written:
        rejected = {}
        for cell, failures in self._failures.items():
            _, cause, key = min(failures, key=lambda failure: failure[:2])
            rejected[cell] = Rejected(len(failures), Rejection(key, cause.text))
        return tell(step, self._arcs, self._affected, rejected)


class KvLoads:
    """The loads of one engine.

    Parameters
    ----------
    tables : dict of int to KvTable
        The engine's own.
    """

    def __init__(self, tables: dict[int, KvTable]) -> None:
        self._tables = tables
        self._arcs: tuple[KeyRange, ...] = ()
        self._records = Records()
        self._hidden: dict[str, HiddenRows] = {}

    @property
    def n_open(self) -> int:
        """How many are open."""
        return len(self._records.loads)

    @property
    def n_rows(self) -> int:
        """How many rows are staged."""
        return sum(len(hidden.rows) for hidden in self._hidden.values())

    @property
    def n_values(self) -> int:
        """How many values they have, their places included."""
        return sum(hidden.n_values for hidden in self._hidden.values())

    def records(self) -> LoadRecords:
        """Give what is known beside the rows."""
        return self._records.state()

    def set_arcs(self, arcs: tuple[KeyRange, ...]) -> None:
        """Learn what the engine holds; drop the rows that lie elsewhere."""
        self._arcs = arcs
        if not arcs:
            self.take(LoadRecords())
        for hidden in self._hidden.values():
            hidden.keep(hidden.within(arcs))
        self._reserve()

    def take(self, records: LoadRecords) -> None:
        """Take over what another engine knows; nothing is staged here."""
        self._records.take(records)
        self._hidden = {}
        for load in records.loads:
            self._hide(load)

    def _hide(self, load: OpenLoad) -> None:
        schema = self._schema(load.begin.table)
        if schema is not None:
            given = [i for i in load.begin.columns if schema.column_by_id(i) is not None]
            self._hidden[load.begin.load] = HiddenRows(given, is_sealed=load.sealed_at >= 0)

    def merge(self, other: KvLoads) -> None:
        """Take over what the engine that is to be adopted has.

        Raises
        ------
        InvariantError
            If this one has arcs, and other records.
        """
        if not self._arcs:
            self.take(other.records())
        elif self.records() != other.records():
            raise InvariantError("the engine beside has not caught up: it knows other loads")
        for load, hidden in other._hidden.items():
            self._hidden[load].rows.update(hidden.rows)
            self._hidden[load].hidden_keys.update(hidden.hidden_keys)

    def changed(self, table: int) -> None:
        """Learn that a table has another schema, or is gone."""
        schema = self._schema(table)
        for load in self._records.loads.values():
            if load.begin.table != table:
                continue
            if schema is None:
                self._hidden.pop(load.begin.load, None)
                continue
            hidden = self._hidden[load.begin.load]
            hidden.column_ids = [i for i in hidden.column_ids if schema.column_by_id(i) is not None]
        self._reserve()

    def _schema(self, table: int) -> TableSchema | None:
        found = self._tables.get(table)
        return None if found is None else found.schema

    def _reserve(self) -> None:
        """Tell tables which keys must not be born."""
        for table in self._tables.values():
            table.reserved = set()
        for load in self._records.loads.values():
            hidden = self._hidden.get(load.begin.load)
            if hidden is not None and hidden.is_sealed:
                table = self._tables[load.begin.table]
                if table.schema.primary_key:
                    table.reserved.update(identity(self._key(table, row)) for row in hidden.rows.values())

    def _key(self, table: KvTable, row: dict[int, Any]) -> Key:
        return tuple(row[table.schema.column(name).id] for name in table.schema.primary_key)

    def execute(self, step: LoadStep) -> Written | Failed:
        """Execute a step."""
        shares = _Shares(self._arcs)
        if self._arcs:
            try:
                self._carry_out(step, shares)
            except Refused as refused:
                return Failed(step.number, step.position, step.scope, refused.kind, (), str(refused))
            self._reserve()
        return shares.written(step)

    def _carry_out(self, step: LoadStep, shares: _Shares) -> None:
        work, records = step.work, self._records
        if isinstance(work, Begin):
            records.begin(work, step.position, self._schema(work.table))
            self._hide(records.loads[work.load])
        elif isinstance(work, Stage):
            self._stage(work, step.position, shares)
        elif isinstance(work, Abort):
            records.loads.pop(work.load, None)
            hidden = self._hidden.pop(work.load, None)
            for at in () if hidden is None else hidden.rows:
                shares.add(LoadCount.DISCARDED, self._arc_of(at))
        else:
            self._show(work, step.position, shares)

    def _arc_of(self, at: _Place) -> int:
        return next(n for n, arc in enumerate(self._arcs) if arc.low <= at[2] <= arc.high)

    def _stage(self, work: Stage, position: int, shares: _Shares) -> None:
        load, schema = self._records.open(work.load, self._schema)
        if load.sealed_at >= 0:
            raise Refused("load", f"load {work.load!r} is sealed; nothing more can be staged")
        check_stage(work, load.begin, schema)
        table, hidden = self._tables[load.begin.table], self._hidden[work.load]
        given = dict(zip(load.begin.columns, work.columns, strict=True))
        positions = ring_positions(schema, given[schema.column(schema.partition_key).id]).tolist()
        lists = {column_id: column.to_list() for column_id, column in given.items()}
        for row, ring in enumerate(positions):
            at = part_of(work.partition, work.attempt), place(work.chunk, row), ring
            if not lies_in(ring, self._arcs):
                continue
            if at in hidden.rows:
                shares.add(LoadCount.STAGED, self._arc_of(at))
                continue
            values = {column_id: items[row] for column_id, items in lists.items()}
            key = self._key(table, values) or (position, row)
            cause = table.fault_of_given(values)
            if cause is not None:
                shares.reject(LoadCount.STAGED, self._arc_of(at), key, cause)
                continue
            hidden.rows[at] = values
            if not schema.primary_key:
                hidden.hidden_keys[at] = key
            shares.add(LoadCount.STAGED, self._arc_of(at))

    def _show(self, work: Commit | Seal | Publish, position: int, shares: _Shares) -> None:
        load, _ = self._records.to_end(work, self._schema)
        table, hidden = self._tables[load.begin.table], self._hidden[work.load]
        if isinstance(work, Seal) and load.sealed_at >= 0:
            # Whoever sealed it was not told.
            for at in hidden.rows:
                shares.add(LoadCount.RESERVED, self._arc_of(at))
            return
        if not isinstance(work, Publish):
            winners = {part_of(*winner) for winner in work.winners}
            hidden.keep(at for at in hidden.rows if at[0] in winners)
        if isinstance(work, Seal):
            self._seal(table, hidden, shares)
            self._records.seal(load, position)
            return
        # Its own keys are reserved for itself.
        hidden.is_sealed = False
        self._reserve()
        if load.begin.write is LoadWrite.OVERWRITE:
            for ring in table.clear():
                shares.add(LoadCount.DELETED, self._arc_of((0, 0, ring)))
        for at in sorted(hidden.rows):
            self._show_row(table, load.begin, hidden, at, shares)
        del self._hidden[work.load]
        self._records.commit(work, position)

    def _seal(self, table: KvTable, hidden: HiddenRows, shares: _Shares) -> None:
        seen: set[Key] = set()
        kept: list[_Place] = []
        for at in sorted(hidden.rows):
            arc, row = self._arc_of(at), hidden.rows[at]
            if table.schema.primary_key:
                key = self._key(table, row)
                known = identity(key)
                if known in seen:
                    shares.reject(LoadCount.DUPLICATE, arc, key, Cause.DUPLICATE_KEY)
                    continue
                seen.add(known)
                cause = Cause.DUPLICATE_KEY if table.get(key) is not None else None
                if cause is None and known in table.reserved:
                    cause = Cause.RESERVED_KEY
                if cause is not None:
                    shares.reject(LoadCount.CLASHING, arc, key, cause)
                    continue
            kept.append(at)
            shares.add(LoadCount.RESERVED, arc)
        hidden.keep(kept)
        hidden.is_sealed = True

    def _show_row(
        self, table: KvTable, begin: Begin, hidden: HiddenRows, at: _Place, shares: _Shares
    ) -> None:
        arc, row = self._arc_of(at), hidden.rows[at]
        key = self._key(table, row) or hidden.hidden_keys[at]
        known, write = table.get(key), begin.write
        if write in (LoadWrite.UPDATE, LoadWrite.DELETE):
            if known is None:
                shares.add(LoadCount.MISSING, arc)
            elif write is LoadWrite.UPDATE:
                table.put(known, row)
                shares.add(LoadCount.UPDATED, arc)
            else:
                table.remove(key)
                shares.add(LoadCount.DELETED, arc)
            return
        if known is None:
            cause = table.fault_of_birth(row, key)
            if cause is not None:
                shares.reject(LoadCount.INSERTED, arc, key, cause)
                return
            table.add([Row(table.values_of(row), key, at[2])])
            shares.add(LoadCount.INSERTED, arc)
        elif write is LoadWrite.UPSERT:
            table.put(known, row)
            shares.add(LoadCount.UPDATED, arc)
        elif write is LoadWrite.INSERT and begin.rule is not LoadRule.REPLACE:
            shares.add(LoadCount.KEPT, arc)
        else:
            table.remove(key)
            table.add([Row(table.values_of(row), key, at[2])])
            shares.add(LoadCount.REPLACED, arc)

    def pieces(self, scope: Scope) -> list[tuple[TableSchema, str, HiddenRows]]:
        """Give what is staged in some ring ranges, as it is now."""
        found = []
        for load, hidden in self._hidden.items():
            schema = self._tables[self._records.loads[load].begin.table].schema
            places = hidden.within(scope)
            if places:
                some = HiddenRows(list(hidden.column_ids), dict(hidden.rows), dict(hidden.hidden_keys))
                some.keep(places)
                found.append((schema, load, some))
        return found

    def take_in(self, piece: Piece) -> None:
        """Add staged rows of another process's engine.

        Raises
        ------
        InvariantError
            If they do not fit the schema, lie outside the arcs, or are of a load that is not known.
        """
        hidden = self._hidden.get(piece.load)
        schema = self._schema(piece.table)
        if hidden is None or schema is None:
            raise InvariantError(f"rows of load {piece.load!r} came, which is not open")
        kinds = hidden.kinds(schema)
        validate_staged(piece, schema, kinds)
        columns = zip(kinds, piece.columns, strict=True)
        lists = {column_id: column.to_list() for (column_id, _), column in columns}
        for row, ring in enumerate(piece.position.tolist()):
            if not lies_in(ring, self._arcs):
                raise InvariantError(f"staged rows of table {schema.name!r} lie outside the arcs")
            values: dict[int, Any] = {column_id: items[row] for column_id, items in lists.items()}
            at = values.pop(-3), values.pop(-4), ring
            if not schema.primary_key:
                hidden.hidden_keys[at] = values.pop(-1), values.pop(-2)
            hidden.rows[at] = values
        self._reserve()

    def digest(self, key_range: KeyRange) -> bytes:
        """Give the digest of the records, and of what is staged in a range."""
        told: list[Any] = [self.records()]
        for load in self._records.loads.values():
            hidden, schema = self._hidden.get(load.begin.load), self._schema(load.begin.table)
            if hidden is not None and schema is not None:
                told.append(digest_columns(hidden.columns(schema, hidden.within((key_range,)))))
        return hashlib.blake2b(_ENCODER.encode(told), digest_size=16).digest()
