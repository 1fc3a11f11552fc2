"""Tables pinned at one place of the order, and reads of them (extracts).

Rules of the file: a pinned table is made of stills (see `engine.segment`) and looks at nothing
else, so that no later write, layout or compaction shows in it. A read finds its rows block
by block, with the matching of the shared scan, and keeps which they are; then it
gives them strip by strip, columns only, as long answers are given. So it is done in steps, and
the scanning thread serves in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crescando.engine.arcs import NONE, PART, cover_arc, lie_in
from crescando.engine.base import ReadFault, Rows, Strips
from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.group import Group
from crescando.engine.keys import I64
from crescando.engine.match import Matcher
from crescando.engine.operations import by_shape
from crescando.engine.parallel import Workers
from crescando.engine.plan import Plan
from crescando.engine.reader import Reader
from crescando.engine.segment import Block, Segment, Still
from crescando.engine.statement import PHYSICAL, ColumnRef, Kind, Operation, Shape
from crescando.engine.table import Table
from crescando.engine.validate import StaleShape, validate_parameters
from crescando.errors import StatementError
from crescando.schema import TableSchema
from crescando.types import KeyRange, ProcessId, Scope

LOOK_ROWS = 1 << 16
"""Rows that one step looks at."""

NOBODY = ProcessId("", "")

Planner = Callable[[Shape, Table], Plan | Exception]


def check_pinned_read(
    shape: Shape,
    parameters: tuple[Any, ...],
    schema: TableSchema,
    plan: Plan | Exception,
    key_range: KeyRange,
    n_strips: int,
) -> Plan:
    """Give the plan of a read that can be given strip by strip.

    Raises
    ------
    StatementError
        If it cannot.
    """
    if isinstance(plan, Exception):
        raise StatementError(str(plan))
    try:
        validate_parameters(shape, schema, parameters)
    except StaleShape as fault:
        raise StatementError(str(fault)) from fault
    if shape.kind is not Kind.READ or shape.is_grouped or shape.limit is not None:
        raise StatementError("of a pinned table rows are read, without groups, aggregates, order and limit")
    if not 0 <= key_range.low <= key_range.high or not 0 < n_strips <= key_range.high - key_range.low + 1:
        raise StatementError(f"{key_range} is no range of {n_strips} strips")
    return plan


def strip_of(position: int, key_range: KeyRange, n_strips: int) -> int:
    """Give in which strip of a range a position lies."""
    width = -(-(key_range.high - key_range.low + 1) // n_strips)
    return (position - key_range.low) // width


class ScanPin:
    """Some tables as they were; see `engine.base.PinnedTables`.

    Parameters
    ----------
    tables : iterable of Table
    arcs : sequence of KeyRange
    planner : callable
    evaluator : Evaluator
    workers : Workers
    """

    def __init__(
        self,
        tables: Iterable[Table],
        arcs: Sequence[KeyRange],
        planner: Planner,
        evaluator: Evaluator,
        workers: Workers,
    ) -> None:
        self._tables: dict[int, Table] = {}
        self._stills: list[Still] = []
        for table in tables:
            pinned, stills = table.still()
            self._tables[table.schema.id] = pinned
            self._stills += stills
        self._arcs = tuple(arcs)
        self._planner = planner
        self._evaluator = evaluator
        self._workers = workers
        self.schemas: tuple[TableSchema, ...] = tuple(table.schema for table in self._tables.values())

    def weigh(self, table: int, scope: Scope) -> tuple[int, int]:
        """Give rows and bytes of some ranges; see `engine.base.PinnedTables.weigh`."""
        return self._tables[table].weigh(scope)

    def read(
        self, shape: Shape, parameters: tuple[Any, ...], key_range: KeyRange, n_strips: int
    ) -> ScanPinnedRead:
        """Begin a read; see `engine.base.PinnedTables.read`."""
        table = self._tables.get(shape.table)
        if table is None:
            raise StatementError(f"table {shape.table} is not pinned")
        made = self._planner(shape, table)
        plan = check_pinned_read(shape, parameters, table.schema, made, key_range, n_strips)
        chosen = [place for place, arc in enumerate(self._arcs) if cover_arc((key_range,), arc) != NONE]
        parts = [(segment, self._arcs[place]) for place in chosen for segment in table.segments[place]]
        operation = Operation(0, NOBODY, 0, shape, parameters, (key_range,))
        return ScanPinnedRead(table, parts, plan, operation, n_strips, self._evaluator, self._workers)

    def close(self) -> None:
        """Let go of the memory; see `engine.base.PinnedTables.close`."""
        for still in self._stills:
            still.close()
        self._stills, self._tables = [], {}

    def array_bytes(self) -> dict[int, int]:
        """Give what its rows take in each array, by the array's id."""
        kept: dict[int, int] = {}
        for still in self._stills:
            kept |= still.array_bytes()
        for table in self._tables.values():
            kept |= {id(pool): pool.n_bytes for pool in table.pools.values()}
        return kept


@dataclass(slots=True)
class _Found:
    """Which rows of one segment are wanted, strip by strip."""

    block: Block
    rows: list[I64] = field(default_factory=list)
    strips: list[I64] = field(default_factory=list)
    order: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows of the segment: those of each strip together."""
    ends: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where each strip's rows end, behind a 0; shape (n_strips + 1,)."""

    def settle(self, n_strips: int) -> None:
        """Sort what was found by strip, and within each as it is stored.

        Whoever goes on within a strip may have its rows found anew, by another path then: texts that
        came to the live table meanwhile are in the same pool.
        """
        none = np.zeros(0, np.int64)
        rows = np.concatenate([none, *self.rows])
        strips = np.concatenate([none, *self.strips])
        self.rows, self.strips = [], []
        if (rows[1:] < rows[:-1]).any():
            ordered = np.argsort(rows, kind="stable")
            rows, strips = rows[ordered], strips[ordered]
        self.ends = np.append(0, np.cumsum(np.bincount(strips, minlength=n_strips)))
        # Few strips have short numbers, which are sorted in fewer passes.
        kind = np.uint16 if n_strips <= 1 << 16 else np.int64
        self.order = rows if n_strips == 1 else rows[np.argsort(strips.astype(kind), kind="stable")]


class ScanPinnedRead:
    """One read of a pinned table; see `engine.base.PinnedRead`.

    Parameters
    ----------
    table : Table
        Made of stills.
    parts : sequence of (Segment, KeyRange)
        Where its rows may be, and the arc that each segment lies in.
    plan : Plan
    operation : Operation
        Its scope is one range.
    n_strips : int
    evaluator : Evaluator
    workers : Workers
    """

    def __init__(
        self,
        table: Table,
        parts: Sequence[tuple[Segment, KeyRange]],
        plan: Plan,
        operation: Operation,
        n_strips: int,
        evaluator: Evaluator,
        workers: Workers,
    ) -> None:
        self._table = table
        ((_, members),) = by_shape([operation])
        constants = Constants(members.given)
        self._group = Group(plan, members, constants)
        self._evaluator = evaluator
        self._workers = workers
        self._matcher = Matcher(plan, constants, self._group.every, table, evaluator)
        (self._range,) = operation.scope
        self._n_strips = n_strips
        self._width = -(-(self._range.high - self._range.low + 1) // n_strips)
        self._found: list[_Found] = []
        self._left: deque[tuple[_Found, Block, bool]] = deque()
        for segment, arc in parts:
            found = _Found(Block(segment, 0, segment.n_rows, table.types, table.pools))
            self._found.append(found)
            is_cut = cover_arc((self._range,), arc) == PART
            for start in range(0, segment.n_rows, LOOK_ROWS):
                stop = min(start + LOOK_ROWS, segment.n_rows)
                block = Block(segment, start, stop, table.types, table.pools)
                self._left.append((found, block, is_cut))
        self._is_settled = False
        self._erring = self._reader()
        self._fault: ReadFault | None = None
        self._row_bytes = self._weigh_row(plan.shape)

    def _reader(self) -> Reader:
        return Reader(self._group, self._table.key_ids, self._evaluator)

    def _weigh_row(self, shape: Shape) -> int:
        """Give about what a row of the answer weighs."""
        weight = 0
        for projection in shape.projections:
            term = projection.term
            weight += PHYSICAL[term.type].itemsize + 1
            pool = self._table.pools.get(term.column) if isinstance(term, ColumnRef) else None
            if pool is not None:
                weight += pool.text_bytes // max(len(pool), 1)
            elif term.type.is_textual:
                weight += 16
        return max(weight, 1)

    @property
    def n_bytes(self) -> int:
        """What it keeps in memory; see `engine.base.PinnedRead.n_bytes`."""
        return sum(
            found.order.nbytes + found.ends.nbytes + 2 * sum(rows.nbytes for rows in found.rows)
            for found in self._found
        )

    # Finding.

    def look(self) -> bool:
        """Look at some more rows; see `engine.base.PinnedRead.look`."""
        if self._left:
            with np.errstate(all="ignore"):
                self._look_at(*self._left.popleft())
            return False
        if not self._is_settled:
            self._is_settled = True
            for found in self._found:
                found.settle(self._n_strips)
            self._found = [found for found in self._found if len(found.order)]
            _, failed = self._erring.answers()
            for failure in failed.values():
                self._fault = ReadFault(failure.key, failure.text)
        return True

    def _look_at(self, found: _Found, block: Block, is_cut: bool) -> None:
        live = block.live()
        if is_cut:
            inside = lie_in(block.positions(), (self._range,))
            if not inside.any():
                return
            live = inside if live is None else inside & live
        for matched in self._matcher.match(block, None, None, live):
            rows = matched.rows
            if matched.errors is not None and matched.errors.any():
                bad = matched.errors != 0
                self._erring.add(block, rows[bad], matched.operations[bad], matched.errors[bad])
                rows = rows[~bad]
            found.rows.append(rows + block.start)
            if self._n_strips == 1:
                # The width may be more than a position can be.
                found.strips.append(np.zeros(len(rows), np.int64))
                continue
            at = block.positions(rows) - np.uint64(self._range.low)
            found.strips.append((at // np.uint64(self._width)).astype(np.int64))

    # Giving.

    def give(self, strip: int, offset: int, bytes_max: int) -> Strips | ReadFault:
        """Give rows from a place on; see `engine.base.PinnedRead.give`."""
        if self._fault is not None:
            return self._fault
        n_rows_max = max(bytes_max // self._row_bytes, 1)
        while True:
            chosen, after = self._choose(min(strip, self._n_strips), offset, n_rows_max)
            pieces, fault = self._answer(chosen)
            is_long = len(pieces) > 1 if fault is None else not fault.key
            if is_long and n_rows_max > 1:
                # Their texts are longer than those of most, or so many rows have the same long one.
                n_rows_max //= 2
                continue
            if fault is not None:
                self._fault = fault
                return fault
            rows = pieces[0]
            return Strips(rows.names, rows.columns, *after)

    def _choose(
        self, strip: int, offset: int, n_rows_max: int
    ) -> tuple[list[tuple[Block, I64]], tuple[int, int]]:
        """Give the rows of whole strips, or some of one that is begun or too large; and the place behind."""
        ends = sum((found.ends for found in self._found), np.zeros(self._n_strips + 1, np.int64))
        last = int(np.searchsorted(ends, int(ends[strip]) + n_rows_max, "right")) - 1
        if not offset and last > strip:
            return self._between(strip, last, 0, n_rows_max), (last, 0)
        if strip == self._n_strips:
            return [], (strip, 0)
        behind = offset + n_rows_max
        after = (strip, behind) if behind < int(ends[strip + 1] - ends[strip]) else (strip + 1, 0)
        return self._between(strip, strip + 1, offset, n_rows_max), after

    def _between(self, strip: int, last: int, skipped: int, wanted: int) -> list[tuple[Block, I64]]:
        """Give so many rows of some strips, segment by segment, without the first ones."""
        chosen: list[tuple[Block, I64]] = []
        for found in self._found:
            rows = found.order[int(found.ends[strip]) : int(found.ends[last])]
            some = rows[skipped : skipped + wanted]
            skipped = max(skipped - len(rows), 0)
            wanted -= len(some)
            if len(some):
                chosen.append((found.block, some))
        return chosen

    def _answer(self, chosen: Iterable[tuple[Block, I64]]) -> tuple[list[Rows], ReadFault | None]:
        reader = self._reader()
        with np.errstate(all="ignore"):
            for block, rows in chosen:
                reader.add(block, rows, np.zeros(len(rows), np.int64), None)
            pieces, failed = reader.answers(self._workers)
        for failure in failed.values():
            return [], ReadFault(failure.key, failure.text)
        return [piece for _, piece in pieces if isinstance(piece, Rows)], None
