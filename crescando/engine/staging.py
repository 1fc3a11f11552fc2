"""Loads in one engine: what is known of them, and rows that are kept out of sight until they are shown.

Rules of the file: a step that cannot be executed changes nothing, and whether it can depends
on the records alone, which all engines with an arc have alike. An engine without arcs has no
records: it takes those of the first ranges that it gets.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from crescando.engine.base import Failed
from crescando.engine.digest import digest_columns
from crescando.engine.export import export_hidden
from crescando.engine.incoming import own, row_errors
from crescando.engine.keys import I64
from crescando.engine.loads import (
    Abort,
    Begin,
    Commit,
    LoadCount,
    LoadRecords,
    LoadStep,
    OpenLoad,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.partition import ring_positions
from crescando.engine.records import Records, Refused, check_stage, part_of, place
from crescando.engine.showing import Shares, drop_losers, publish, seal, show
from crescando.engine.table import HIDDEN_ORDINAL, HIDDEN_POSITION, STAGED_PART, STAGED_ROW, Hidden, Table
from crescando.engine.values import Value, one_zero
from crescando.engine.written import Written
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class Loads:
    """The loads of one scan engine.

    Parameters
    ----------
    tables : dict of int to Table
        The engine's own.
    """

    def __init__(self, tables: dict[int, Table]) -> None:
        self._tables = tables
        self._arcs: tuple[KeyRange, ...] = ()
        self._records = Records()

    @property
    def n_open(self) -> int:
        """How many are open."""
        return len(self._records.loads)

    def records(self) -> LoadRecords:
        """Give what is known beside the rows."""
        return self._records.state()

    def set_arcs(self, arcs: tuple[KeyRange, ...]) -> None:
        """Learn what the engine holds."""
        self._arcs = arcs
        if not arcs:
            self.take(LoadRecords())

    def take(self, records: LoadRecords) -> None:
        """Take over what another engine knows; nothing is staged here."""
        self._records.take(records)
        for table in self._tables.values():
            table.hidden.clear()
        for load in records.loads:
            self._hide(load)

    def _hide(self, load: OpenLoad) -> None:
        table = self._tables.get(load.begin.table)
        if table is not None:
            given = [column_id for column_id in load.begin.columns if column_id in table.types]
            hidden = table.hidden[load.begin.load] = Hidden(table, given)
            hidden.is_sealed = load.sealed_at >= 0

    def merge(self, other: Loads) -> None:
        """Take over the records of the engine that is to be adopted.

        Raises
        ------
        InvariantError
            If this one has arcs, and other records.
        """
        if not self._arcs:
            self.take(other.records())
        elif self.records() != other.records():
            raise InvariantError("the engine beside has not caught up: it knows other loads")

    def execute(self, step: LoadStep) -> Written | Failed:
        """Execute a step."""
        shares = Shares(self._arcs)
        if self._arcs:
            try:
                self._carry_out(step, shares)
            except Refused as refused:
                return Failed(step.number, step.position, step.scope, refused.kind, (), str(refused))
        return shares.written(step)

    def _carry_out(self, step: LoadStep, shares: Shares) -> None:
        work, records = step.work, self._records
        if isinstance(work, Begin):
            records.begin(work, step.position, self._schema(work.table))
            self._hide(records.loads[work.load])
        elif isinstance(work, Stage):
            self._stage(work, step.position, shares)
        elif isinstance(work, Abort):
            load = records.loads.pop(work.load, None)
            table = None if load is None else self._tables.get(load.begin.table)
            if table is not None:
                hidden = table.hidden.pop(work.load)
                shares.add_segments(LoadCount.DISCARDED, hidden)
                table.look_for_texts()
        else:
            self._show(work, step.position, shares)

    def _schema(self, table: int) -> TableSchema | None:
        found = self._tables.get(table)
        return None if found is None else found.schema

    def _show(self, work: Commit | Seal | Publish, position: int, shares: Shares) -> None:
        load, _ = self._records.to_end(work, self._schema)
        table = self._tables[load.begin.table]
        hidden = table.hidden[work.load]
        if isinstance(work, Publish):
            publish(table, hidden, shares)
        elif load.sealed_at >= 0:
            # Whoever sealed it was not told.
            shares.add_segments(LoadCount.RESERVED, hidden)
            return
        else:
            drop_losers(hidden, work.winners)
            if isinstance(work, Seal):
                seal(table, hidden, shares)
                self._records.seal(load, position)
                return
            show(table, hidden, load.begin, shares)
        del table.hidden[work.load]
        table.look_for_texts()
        self._records.commit(work, position)

    def _stage(self, work: Stage, position: int, shares: Shares) -> None:
        load, schema = self._records.open(work.load, self._schema)
        if load.sealed_at >= 0:
            raise Refused("load", f"load {work.load!r} is sealed; nothing more can be staged")
        check_stage(work, load.begin, schema)
        table = self._tables[load.begin.table]
        given = dict(zip(load.begin.columns, work.columns, strict=True))
        positions = ring_positions(schema, given[schema.column(schema.partition_key).id])
        arcs = table.arc_of(positions)
        rows: I64 = np.arange(len(arcs))
        if len(arcs) and int(arcs.min()) < 0:
            rows = (arcs >= 0).nonzero()[0]
        hidden = table.hidden[work.load]
        part, first = part_of(work.partition, work.attempt), place(work.chunk, 0)
        known = hidden.knows(part, first + rows, positions[rows])
        if known.any():
            shares.add(LoadCount.STAGED, arcs[rows[known]])
            rows = rows[~known]
        every: I64 | slice = slice(None) if len(rows) == len(arcs) else rows
        values = {i: own(column, every, table.pools.get(i)) for i, column in given.items()}
        for key_id in table.key_ids if schema.primary_key else ():
            values[key_id] = one_zero(values[key_id])
        arcs, positions = arcs[every], positions[every]
        errors = row_errors(table, values, len(rows))
        values[STAGED_PART] = Value(DataType.INT64, np.full(len(rows), part))
        values[STAGED_ROW] = Value(DataType.INT64, first + rows)
        if not schema.primary_key:
            values[HIDDEN_POSITION] = Value(DataType.INT64, np.full(len(rows), position))
            values[HIDDEN_ORDINAL] = Value(DataType.INT64, rows)
        if errors.any():
            bad, kept = errors.nonzero()[0], (errors == 0).nonzero()[0]
            keys = [values[key_id].take(bad) for key_id in table.key_ids]
            shares.reject(LoadCount.STAGED, arcs[bad], keys, errors[bad])
            values = {column_id: value.take(kept) for column_id, value in values.items()}
            arcs, positions = arcs[kept], positions[kept]
        hidden.take_in(arcs, values, positions)
        shares.add(LoadCount.STAGED, arcs)

    def digest(self, key_range: KeyRange) -> bytes:
        """Give the digest of the records, and of what is staged in a range."""
        told: list[Any] = [self.records()]
        for load in self._records.loads.values():
            table = self._tables.get(load.begin.table)
            if table is not None:
                told.append(digest_columns(export_hidden(table.hidden[load.begin.load], key_range)))
        return hashlib.blake2b(_ENCODER.encode(told), digest_size=16).digest()
