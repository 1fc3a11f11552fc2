"""Our side at the engine's own interface: operations in, columns out.

Rules of the file: what is timed is what a storage process does, beginning with
operations made from Python values and ending with arrays or Arrow tables. With
two threads one engine scans its rows in two parts at once, as a storage process
does that is given two threads; its answers are whole, as with one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.tickets.work import (
    OUTPUTS,
    Changes,
    Points,
    Prefixes,
    Spans,
    TextSpans,
)
from crescando.client.arrow import arrow_table
from crescando.client.columns import text_column
from crescando.client.inference import schema_from
from crescando.client.intake import take_in
from crescando.client.loading import load_requests
from crescando.client.template import bind_template
from crescando.client.textual import read_template, update_template
from crescando.engine.base import Results, Rows
from crescando.engine.operations import Entry, Operations
from crescando.engine.plan import make_plan
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import PHYSICAL, Column, Kind, Operation, Shape
from crescando.scanning import Team
from crescando.schema import DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, ProcessId, Scope

CLIENT = ProcessId("client", "bench")
TABLE_ID = 1


def schema_of(table: pa.Table) -> TableSchema:
    """Give the schema that a table of tickets gets."""
    return schema_from("tickets", table, primary_key="ticket_id").with_ids(TABLE_ID)


def slices_of(table: pa.Table, n_rows: int) -> list[pa.Table]:
    """Cut a table, so that loading it needs no second copy of the whole."""
    return [table.slice(start, n_rows) for start in range(0, len(table), n_rows)]


class EngineSide:
    """An engine that holds a table of tickets.

    Parameters
    ----------
    table : pyarrow.Table
    threads : int
        In how many it scans.
    arcs : int
        Ring arcs of the engine, equal parts of the ring.
    """

    def __init__(self, table: pa.Table, threads: int = 1, arcs: int = 1) -> None:
        self.schema = schema_of(table)
        self.n_rows = len(table)
        self._position = 0
        self._prepared: dict[tuple[str, tuple[str, ...]], Shape] = {}
        bounds = [RING_MAX * place // arcs for place in range(arcs + 1)]
        bounds[0] = -1
        self.arcs = tuple(KeyRange(low + 1, high) for low, high in pairwise(bounds))
        self.engine = ScanEngine(workers=Team(threads))
        self.engine.set_arcs(self.arcs)
        self.engine.create_table(self.schema)
        for piece in slices_of(table, 1 << 20):
            self.load(piece)

    def load(self, table: pa.Table) -> None:
        """Insert rows as a client would have them inserted, and a storage process that finds them waiting."""
        operations = []
        for request in load_requests(Kind.INSERT, self.schema, take_in(self.schema, table)):
            self._position += 1
            operations.append(
                Operation(
                    self._position, CLIENT, self._position, request.shape, request.parameters, (FULL_RING,)
                )
            )
        (results,) = self.engine.execute(operations)
        assert not results.failed, results.failed
        assert not results.written[0].remarks, results.written[0].remarks

    def read(self, where: str, sample: Sequence[Any], columns: Sequence[str] = OUTPUTS) -> Shape:
        """Give the shape of a read, prepared once; `sample` are constants of the right types."""
        key = where, tuple(columns)
        if key not in self._prepared:
            template = read_template(list(columns), where)
            self._prepared[key] = bind_template(template, self.schema, dict(enumerate(sample))).shape
        return self._prepared[key]

    def update(self, where: str, set_list: str, sample: Sequence[Any]) -> Shape:
        """Give the shape of an update; constants of the SET list come first."""
        return bind_template(update_template(where, set_list), self.schema, dict(enumerate(sample))).shape

    def operations(
        self, shape: Shape, parameters: Sequence[tuple[Any, ...]], scope: Scope = (FULL_RING,)
    ) -> list[Operations]:
        """Give operations of one shape, in order: one run, its constants as columns."""
        return self.run(shape, list(zip(*parameters, strict=True)), scope)

    def run(
        self, shape: Shape, constants: Sequence[Sequence[Any]], scope: Scope = (FULL_RING,)
    ) -> list[Operations]:
        """Give operations of one shape, in order, of which each constant is a sequence of Python values."""
        count = len(constants[0])
        begin = self._position + 1
        self._position += count
        numbers = np.arange(begin, begin + count)
        kinds = {each.index: each.type for each in make_plan(shape, self.schema).parameters}
        columns = tuple(_column(kinds[index], values) for index, values in enumerate(constants))
        whole = np.zeros(count, np.int64)
        return [Operations(numbers, numbers, CLIENT, shape, whole, (scope,), columns)]

    def execute(self, operations: Sequence[Entry]) -> list[Results]:
        """Execute a batch."""
        return self.engine.execute(operations)

    def rows(self, operations: Sequence[Entry]) -> list[Rows]:
        """Execute reads of one shape; give their rows, as columns of numbers and codes."""
        found: list[Rows] = []
        for results in self.execute(operations):
            assert not results.failed, results.failed[:1]
            found.extend(results.rows)
        return found

    def arrow(self, operations: Sequence[Operations]) -> pa.Table:
        """Execute reads of one shape; give their rows with real texts, in the operations' order."""
        return arrow_of(self.rows(operations), int(operations[0].position[0]))

    def affected(self, operations: Sequence[Entry]) -> int:
        """Execute writes; give how many rows they changed."""
        affected = 0
        for results in self.execute(operations):
            assert not results.failed, results.failed[:1]
            affected += sum(int(written.affected.sum()) for written in results.written)
        return affected

    def miles(self) -> int:
        """Give a checksum of the column that updates change."""
        names = self.schema.column_names
        columns = self.engine.export(TABLE_ID, FULL_RING)
        miles, tickets = (columns[names.index(name)].values for name in ("miles", "ticket_id"))
        return int(np.sum(miles.astype(np.int64) * (tickets % 1000)))

    # The work of the measures.

    def points(self, work: Points) -> pa.Table:
        """Do reads of one value each."""
        outputs = OUTPUTS if work.column == "rloc" else ("ticket_id", "document")
        shape = self.read(f"{work.column} = ?", ["x"], outputs)
        return self.arrow(self.run(shape, [work.keys]))

    def spans(self, work: Spans) -> pa.Table:
        """Do reads of an origin and a range; bounds in physical units."""
        shape = self.read(f"origin = ? and {work.column} between ? and ?", ["x", *span_sample(work.column)])
        return self.arrow(self.run(shape, [work.keys, work.lows, work.highs]))

    def prefixes(self, work: Prefixes) -> pa.Table:
        """Do reads by the beginning of a text."""
        shape = self.read("document like ?", ["x%"], ("ticket_id", "document"))
        return self.arrow(self.run(shape, [[prefix + "%" for prefix in work.prefixes]]))

    def text_spans(self, work: TextSpans) -> pa.Table:
        """Do reads of a range of texts."""
        shape = self.read("document between ? and ?", ["x", "x"], ("ticket_id", "document"))
        return self.arrow(self.run(shape, [work.lows, work.highs]))

    def changes(self, work: Changes) -> int:
        """Do updates; give how many rows they changed."""
        shape = self.update("rloc = ?", "miles = miles + ?", [1, "x"])
        return self.affected(self.run(shape, [work.deltas, work.keys]))


def _column(kind: DataType, values: Sequence[Any]) -> Column:
    if kind is DataType.STRING:
        return text_column(kind, values, None)
    return Column(kind, np.array(values, PHYSICAL[kind]))


def span_sample(column: str) -> list[Any]:
    """Give two constants of a range column's type."""
    if column == "dep_date":
        return [dt.date(2024, 1, 1)] * 2
    return [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 2


def arrow_of(parts: Sequence[Rows], first: int) -> pa.Table:
    """Give the rows of all pieces as one table, in the operations' order.

    Parameters
    ----------
    parts : sequence of Rows
    first : int
        Number of the operation that is 0 in the column ``op``.
    """
    tables, orders = [], []
    for rows in parts:
        op = np.repeat(rows.number - first, np.diff(rows.offsets))
        tables.append(arrow_table(rows.names, rows.columns).add_column(0, "op", pa.array(op)))
        orders.append(op)
    if len(tables) == 1:
        return tables[0]
    ops = np.concatenate(orders)
    whole = pa.concat_tables(tables)
    if (np.diff(ops) >= 0).all():
        return whole
    return whole.take(pa.array(np.argsort(ops, kind="stable")))
