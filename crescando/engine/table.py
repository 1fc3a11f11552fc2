"""A table's rows in memory: segments of columns, one list of segments per ring arc.

Rules of the file: a row's place is nobody's business but the engine's, which
re-cuts the arcs when it is told to. Deleted rows are tombstones until their
segment is compacted, which happens between cycles only. Strings are codes of
one pool per column. A table *beside* another one, its *kin*, has rows of the
same table in further arcs and shares the kin's pools; while there is one, codes
keep their meaning: no pool is cleared of unused texts. No index is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from crescando.engine.arcs import NONE, WHOLE, arc_of, cover_arc
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64
from crescando.engine.segment import Block, Segment, code_dtype
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Value, new_pool
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange, Scope

U64 = NDArray[np.uint64]

POOL_TEXTS_MIN = 4_096
"""Smaller pools are not looked at for unused texts."""

SEGMENT_ROWS_MIN, SEGMENT_ROWS_MAX = 256, 1 << 20
"""Segments double from one to the other, so that small tables stay small."""

SMALL_ROWS = 1 << 16
"""Smaller segments are put together once they are full: a scan pays for each, however small it is."""

HIDDEN_POSITION, HIDDEN_ORDINAL = -1, -2
"""Column ids of the hidden key of a table without a primary key: the position of
the insert in the order, and the row's ordinal in it."""


class Table:
    """All rows that one engine has of a table.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    arcs : tuple of KeyRange
        The engine's arcs, ascending.
    kin : Table, optional
        The table that this one is made beside.
    """

    def __init__(self, schema: TableSchema, arcs: tuple[KeyRange, ...], kin: Table | None = None) -> None:
        self.schema = schema
        self._arcs = arcs
        self.types: dict[int, DataType] = {column.id: column.type for column in schema.columns}
        if not schema.primary_key:
            self.types[HIDDEN_POSITION] = self.types[HIDDEN_ORDINAL] = DataType.INT64
        self.key_ids = key_ids(schema)
        self.pools = {c.id: _pool(c.id, c.type, kin) for c in schema.columns if c.type.is_textual}
        self.segments: list[list[Segment]] = [[] for _ in arcs]
        self.n_compactions = 0
        self.n_collections = 0
        self._pool_sizes: dict[int, int] = {}
        self._is_beside = kin is not None
        self._beside: WeakSet[Table] = WeakSet()
        if kin is not None:
            kin._beside.add(self)

    @property
    def n_rows(self) -> int:
        """How many live rows."""
        return sum(segment.n_rows - segment.n_dead for arc in self.segments for segment in arc)

    @property
    def n_stored(self) -> int:
        """How many rows a scan meets, tombstones included."""
        return sum(segment.n_rows for arc in self.segments for segment in arc)

    @property
    def n_bytes(self) -> int:
        """What segments and texts take, about; texts of a table beside another are the other's."""
        segments = sum(segment.n_bytes for arc in self.segments for segment in arc)
        return segments + (0 if self._is_beside else self._text_bytes)

    @property
    def _text_bytes(self) -> int:
        return sum(pool.n_bytes for pool in list(self.pools.values()))

    def weigh(self, scope: Scope) -> tuple[int, int]:
        """Count the rows in a scope, and give what they take with their share of the texts, about."""
        chosen = self.chosen(scope)
        n_rows = sum(segment.count(within) for segment, within in chosen)
        if n_rows == 0:
            return 0, 0
        n_bytes = sum(segment.n_bytes for segment, _ in chosen) * n_rows
        n_bytes //= sum(segment.n_rows for segment, _ in chosen)
        return n_rows, n_bytes + self._text_bytes * n_rows // self.n_rows

    def chosen(self, scope: Scope) -> list[tuple[Segment, Scope | None]]:
        """Give the segments that may have rows in a scope; None beside those that lie in it as they are."""
        found: list[tuple[Segment, Scope | None]] = []
        for arc, segments in zip(self._arcs, self.segments, strict=True):
            covered = cover_arc(scope, arc)
            if covered != NONE:
                found += [(segment, None if covered == WHOLE else scope) for segment in segments]
        return found

    def set_arcs(self, arcs: tuple[KeyRange, ...]) -> None:
        """Cut the rows at other arcs, and drop those that lie in none.

        Segments stay as they are where an arc does, or lies within a new one; of the others one
        is copied at a time.
        """
        n_rows = self.n_rows
        before, self._arcs = zip(self._arcs, self.segments, strict=True), arcs
        self.segments = [[] for _ in arcs]
        for arc, segments in before:
            meeting = [place for place, each in enumerate(arcs) if cover_arc((each,), arc) != NONE]
            is_whole = len(meeting) == 1 and cover_arc((arcs[meeting[0]],), arc) == WHOLE
            while segments:
                segment = segments.pop(0)
                if is_whole:
                    self._place(segment, meeting[0])
                elif meeting:
                    self._divide(segment)
        if self.n_rows < n_rows:
            # Texts that went with them are looked for even if no new ones come.
            self._pool_sizes.clear()
            if self.n_rows == 0 and not self.shares_pools:
                # Nobody may ever ask a process without a range for anything.
                self.pools = {column_id: Pool(binary=pool.binary) for column_id, pool in self.pools.items()}

    def _place(self, segment: Segment, arc: int) -> None:
        segment.arc = arc
        self.segments[arc].append(segment)

    def _divide(self, segment: Segment) -> None:
        """Put the rows of a segment into the arcs they lie in."""
        place = arc_of(segment.position[: segment.n_rows], self._arcs)
        place[~segment.live_rows()] = -1
        counts = np.bincount(place[place >= 0], minlength=len(self._arcs))
        for arc in counts.nonzero()[0].tolist():
            if counts[arc] == segment.n_rows - segment.n_dead:
                self._place(segment, arc)
                return
            rows = (place == arc).nonzero()[0]
            while len(rows):
                rows = rows[self._room(arc, len(rows)).take_over(segment, rows) :]

    def adopt(self, other: Table) -> None:
        """Take over the arcs and segments of a table that was made beside this one.

        Raises
        ------
        InvariantError
            If their schemas or pools differ.
        """
        if self.schema != other.schema:
            raise InvariantError(f"table {self.schema.name!r} was not caught up with: its schemas differ")
        if any(pool is not other.pools[column_id] for column_id, pool in self.pools.items()):
            raise InvariantError(f"table {self.schema.name!r} has other texts than the one beside it")
        held = sorted(
            [*zip(self._arcs, self.segments, strict=True), *zip(other._arcs, other.segments, strict=True)],
            key=itemgetter(0),
        )
        self._arcs, self.segments = tuple(arc for arc, _ in held), [segments for _, segments in held]
        for place, segments in enumerate(self.segments):
            for segment in segments:
                segment.arc = place
        other._arcs, other.segments = (), []
        self._beside.discard(other)

    def alter(self, schema: TableSchema, kin: Table | None = None) -> None:
        """Take the table's next schema: new columns are NULL, missing ones are forgotten."""
        before = {column.id: column.type for column in self.schema.columns}
        after = {column.id: column.type for column in schema.columns}
        for column_id in before.keys() - after.keys():
            del self.types[column_id]
            self.pools.pop(column_id, None)
            self._pool_sizes.pop(column_id, None)
            for segment in self._all_segments():
                segment.drop_column(column_id)
        for column_id in sorted(after.keys() - before.keys()):
            kind = self.types[column_id] = after[column_id]
            if kind.is_textual:
                self.pools[column_id] = _pool(column_id, kind, kin)
            for segment in self._all_segments():
                segment.add_column(column_id, kind)
        self.schema = schema

    def _all_segments(self) -> Iterator[Segment]:
        for arc in self.segments:
            yield from arc

    def array_ids(self) -> Iterator[int]:
        """Give what the arrays of all segments are known by."""
        for segment in self._all_segments():
            yield from segment.array_ids()

    def blocks(self, n_rows_max: int) -> Iterator[Block]:
        """Give all rows in blocks, arc by arc."""
        for arc in self.segments:
            for segment in arc:
                for start in range(0, segment.n_rows, n_rows_max):
                    stop = min(start + n_rows_max, segment.n_rows)
                    yield Block(segment, start, stop, self.types, self.pools)

    def parts(self, n_parts: int, n_rows_max: int) -> list[list[Block]]:
        """Give all rows in blocks, arc by arc, in parts of equally many rows."""
        held, done = self.n_stored, 0
        parts: list[list[Block]] = [[] for _ in range(n_parts)]
        for segment in self._all_segments():
            start = 0
            while start < segment.n_rows:
                place = done * n_parts // held
                left = -(-(place + 1) * held // n_parts) - done
                stop = start + min(segment.n_rows - start, n_rows_max, left)
                parts[place].append(Block(segment, start, stop, self.types, self.pools))
                done += stop - start
                start = stop
        return parts

    def sample(self, n_rows: int) -> Iterator[tuple[Block, I64]]:
        """Give about `n_rows` rows, evenly spread, as rows of blocks."""
        held = self.n_stored
        step = max(held // n_rows, 1)
        for block in self.blocks(held or 1):
            yield block, np.arange(0, block.n_rows, step)

    def append(self, arc: int, columns: dict[int, Value], positions: U64) -> None:
        """Add rows to an arc.

        Parameters
        ----------
        arc : int
        columns : dict of int to Value, shape (n,)
            Every column, strings in codes of the table's own pools.
        positions : ndarray of uint64, shape (n,)
        """
        done = 0
        while done < len(positions):
            segment = self._room(arc, len(positions) - done)
            count = min(segment.capacity - segment.n_rows, len(positions) - done)
            target = slice(segment.n_rows, segment.n_rows + count)
            source = slice(done, done + count)
            for column_id, value in columns.items():
                valid = None if value.valid is None else value.valid[source]
                segment.store(column_id, target, value.data[source], valid)
            segment.position[target] = positions[source]
            segment.n_rows += count
            done += count

    def arc_of(self, positions: U64) -> I64:
        """Give the index of the arc each position lies in, or -1."""
        return arc_of(positions, self._arcs)

    def take_in(self, arcs: I64, columns: dict[int, Value], positions: U64) -> None:
        """Add rows to the arcs they lie in; columns that are not given are NULL.

        Parameters
        ----------
        arcs : ndarray of int64, shape (n,)
        columns, positions
            As in `append`.
        """
        if len(arcs) == 0:
            return
        for column_id, kind in self.types.items():
            if column_id not in columns:
                nothing = np.zeros(len(arcs), np.bool_)
                data = np.zeros(len(arcs), PHYSICAL[kind])
                columns = {**columns, column_id: Value(kind, data, nothing, None, self.pools.get(column_id))}
        if (arcs == arcs[0]).all():
            self.append(int(arcs[0]), columns, positions)
            return
        for arc in np.unique(arcs).tolist():
            rows = (arcs == arc).nonzero()[0]
            some = {column_id: value.take(rows) for column_id, value in columns.items()}
            self.append(arc, some, positions[rows])

    def _room(self, arc: int, n_rows: int) -> Segment:
        """Give a segment of an arc with free rows, as many as are coming if it must be a new one."""
        segments = self.segments[arc]
        if segments and segments[-1].n_rows < segments[-1].capacity:
            return segments[-1]
        held = sum(segment.capacity for segment in segments)
        capacity = min(max(held, _power_above(n_rows), SEGMENT_ROWS_MIN), SEGMENT_ROWS_MAX)
        segments.append(Segment(arc, capacity, self.types))
        return segments[-1]

    def compact(self) -> None:
        """Rewrite segments of which more than a quarter is dead, and pools that are mostly unused.

        Call between cycles only.
        """
        for arc in self.segments:
            for segment in arc:
                if segment.n_dead * 4 > segment.n_rows:
                    segment.compact()
                    self.n_compactions += 1
            arc[:] = self._united([segment for segment in arc if segment.n_rows])
        if not self.shares_pools:
            for column_id, pool in self.pools.items():
                if len(pool) > self._pool_sizes.get(column_id, POOL_TEXTS_MIN):
                    self._collect(column_id, pool)

    @property
    def shares_pools(self) -> bool:
        """Whether codes have a meaning elsewhere, too."""
        return self._is_beside or bool(self._beside)

    def _united(self, arc: list[Segment]) -> list[Segment]:
        """Put the rows of mostly empty and of small segments together: only an arc's last one is filled up.

        Smaller segments go along, lest many be left; so a row moves as often as its segment doubles.
        """
        if len(arc) < 2:
            return arc
        *full, last = arc
        sparse = [each for each in full if 4 * each.n_rows < each.capacity > SEGMENT_ROWS_MIN]
        small = [each for each in full if each.capacity < SMALL_ROWS and each not in sparse]
        if len(small) > 1:
            sparse += small
        if not sparse:
            return arc
        n_rows = sum(each.n_rows for each in sparse)
        moving = [each for each in full if each in sparse or each.n_rows <= n_rows]
        for each in moving:
            each.compact()
        left = sum(each.n_rows for each in moving)
        united: list[Segment] = []
        for each in moving:
            rows = np.arange(each.n_rows)
            while len(rows):
                if not united or united[-1].n_rows == united[-1].capacity:
                    capacity = max(_power_above(left), SEGMENT_ROWS_MIN)
                    united.append(Segment(last.arc, min(capacity, SEGMENT_ROWS_MAX), self.types))
                count = united[-1].take_over(each, rows)
                rows, left = rows[count:], left - count
        return [*(each for each in full if each not in moving), *united, last]

    def _collect(self, column_id: int, pool: Pool) -> None:
        """Drop the texts of a column that no row has, if they are more than half of all.

        Rows change their codes, which nobody sees. Looking at all rows is paid for
        by the texts that came since the last time.
        """
        used = np.zeros(len(pool), np.bool_)
        for segment in self._all_segments():
            rows = segment.live_rows()
            valid = segment.valid.get(column_id)
            if valid is not None:
                rows = rows & valid[: segment.n_rows]
            used[segment.data[column_id][: segment.n_rows][rows]] = True
        # A code must exist for rows that are NULL.
        used[0] |= not used.any()
        kept = used.nonzero()[0]
        if 2 * len(kept) < len(pool):
            codes = np.zeros(len(pool), np.int32)
            codes[kept] = np.arange(len(kept), dtype=np.int32)
            for segment in self._all_segments():
                segment.recode(column_id, codes, code_dtype(len(kept)))
            pool = self.pools[column_id] = pool.rebuilt(kept)
            self.n_collections += 1
        self._pool_sizes[column_id] = max(2 * len(kept), 3 * len(pool) // 2, POOL_TEXTS_MIN)


def _pool(column_id: int, kind: DataType, kin: Table | None) -> Pool:
    """Give a column's pool: the kin's if it has one."""
    shared = None if kin is None else kin.pools.get(column_id)
    return new_pool(kind) if shared is None else shared


def _power_above(count: int) -> int:
    """Give the lowest power of two that is not below a positive number."""
    return 1 << (count - 1).bit_length()


def key_ids(schema: TableSchema) -> tuple[int, ...]:
    """Give the column ids of the primary or hidden key."""
    if schema.primary_key:
        return tuple(schema.column(name).id for name in schema.primary_key)
    return (HIDDEN_POSITION, HIDDEN_ORDINAL)
