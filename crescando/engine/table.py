"""A table's rows in memory: segments of columns, one list of segments per ring arc.

Rules of the file: segments are preallocated and never grow, so that appending
copies nothing; a row's place is nobody's business but the engine's. Deleted
rows are tombstones until their segment is compacted, which happens between
cycles only. Strings are codes of one pool per column. No index is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Value, new_pool
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange

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


def code_dtype(n_codes: int) -> np.dtype[Any]:
    """Give the narrowest type that holds codes of a pool of so many texts."""
    if n_codes <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.int16 if n_codes <= 1 << 15 else np.int32)


class Segment:
    """Some rows of one arc, column by column.

    Attributes
    ----------
    arc : int
        Index of the arc in the engine's list.
    data : dict of int to ndarray, shape (capacity,)
        Physical values by column id; codes in the narrowest type that holds them.
    coded : set of int
        Columns of codes.
    valid : dict of int to ndarray of bool
        Only of columns in which a NULL was ever stored.
    position : ndarray of uint64, shape (capacity,)
        Ring positions.
    alive : ndarray of bool, shape (capacity,), or None
        None while no row is a tombstone.
    n_rows, n_dead : int
        Rows in use, and how many of them are tombstones.
    """

    __slots__ = (
        "_n_touched",
        "alive",
        "arc",
        "capacity",
        "coded",
        "data",
        "n_dead",
        "n_rows",
        "position",
        "valid",
    )

    def __init__(self, arc: int, capacity: int, types: dict[int, DataType]) -> None:
        self.arc = arc
        self.capacity = capacity
        # Codes are as narrow as they can be and widened by the first that does not fit; see `store`.
        self.data = {
            key: np.empty(capacity, np.uint8 if kind.is_textual else PHYSICAL[kind])
            for key, kind in types.items()
        }
        self.coded = {key for key, kind in types.items() if kind.is_textual}
        self.valid: dict[int, Mask] = {}
        self.position: U64 = np.empty(capacity, np.uint64)
        self.alive: Mask | None = None
        self.n_rows = 0
        self.n_dead = 0
        self._n_touched = 0

    @property
    def n_bytes(self) -> int:
        """What the rows take; pages that were never written take no memory."""
        per_row = sum(array.itemsize for array in self.data.values()) + self.position.itemsize
        per_row += len(self.valid) + (self.alive is not None)
        return per_row * max(self.n_rows, self._n_touched)

    def store(self, column_id: int, rows: I64 | slice, values: NDArray[Any], valid: Mask | None) -> None:
        """Write values of one column into some rows."""
        array = self.data[column_id]
        if column_id in self.coded and len(values):
            array = self._widened(column_id, int(values.max()))
        array[rows] = values
        mask = self.valid.get(column_id)
        if mask is None:
            if valid is None or valid.all():
                return
            mask = self.valid[column_id] = np.ones(self.capacity, np.bool_)
        mask[rows] = True if valid is None else valid

    def _widened(self, column_id: int, code: int) -> NDArray[Any]:
        """Give the array of a column of codes, with room for one of them."""
        array = self.data[column_id]
        dtype = code_dtype(code + 1)
        if dtype.itemsize > array.dtype.itemsize:
            wider = np.empty(self.capacity, dtype)
            wider[: self.n_rows] = array[: self.n_rows]
            array = self.data[column_id] = wider
        return array

    def recode(self, column_id: int, codes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Put other codes in the place of a column's, one for each."""
        recoded = np.empty(self.capacity, dtype)
        recoded[: self.n_rows] = codes[self.data[column_id][: self.n_rows]]
        self.data[column_id] = recoded

    def add_column(self, column_id: int, kind: DataType) -> None:
        """Take in a column that is NULL in every row."""
        if kind.is_textual:
            self.coded.add(column_id)
        self.data[column_id] = np.zeros(self.capacity, np.uint8 if kind.is_textual else PHYSICAL[kind])
        self.valid[column_id] = np.zeros(self.capacity, np.bool_)

    def drop_column(self, column_id: int) -> None:
        """Forget a column and its values."""
        self.coded.discard(column_id)
        self.data.pop(column_id, None)
        self.valid.pop(column_id, None)

    def live_rows(self) -> Mask:
        """Give which rows live; shape (n_rows,)."""
        return np.ones(self.n_rows, np.bool_) if self.alive is None else self.alive[: self.n_rows]

    def kill(self, rows: I64) -> None:
        """Make tombstones of some live rows."""
        if self.alive is None:
            self.alive = np.ones(self.capacity, np.bool_)
        self.alive[rows] = False
        self.n_dead += len(rows)

    def take_over(self, other: Segment, start: int) -> int:
        """Copy rows of another segment, from one on, while there is room; gives how many."""
        count = min(self.capacity - self.n_rows, other.n_rows - start)
        source, target = slice(start, start + count), slice(self.n_rows, self.n_rows + count)
        for column_id, array in other.data.items():
            mask = other.valid.get(column_id)
            self.store(column_id, target, array[source], None if mask is None else mask[source])
        self.position[target] = other.position[source]
        self.n_rows += count
        return count

    def compact(self) -> None:
        """Move the live rows together."""
        kept = self.live_rows().nonzero()[0]
        for array in (*self.data.values(), *self.valid.values(), self.position):
            array[: len(kept)] = array[kept]
        self.alive = None
        self._n_touched = max(self._n_touched, self.n_rows)
        self.n_rows, self.n_dead = len(kept), 0


class Block:
    """Consecutive rows of a segment, as a source of columns (see `engine.frame`)."""

    __slots__ = ("pools", "segment", "start", "stop", "types")

    def __init__(
        self, segment: Segment, start: int, stop: int, types: dict[int, DataType], pools: dict[int, Pool]
    ) -> None:
        self.segment = segment
        self.start = start
        self.stop = stop
        self.types = types
        self.pools = pools

    @property
    def n_rows(self) -> int:
        """How many rows, tombstones included."""
        return self.stop - self.start

    def column(self, column_id: int) -> Value:
        """Give one column; shape (n_rows,)."""
        valid = self.segment.valid.get(column_id)
        return Value(
            self.types[column_id],
            self.segment.data[column_id][self.start : self.stop],
            None if valid is None else valid[self.start : self.stop],
            None,
            self.pools.get(column_id),
        )

    def positions(self) -> U64:
        """Give the ring positions; shape (n_rows,)."""
        return self.segment.position[self.start : self.stop]

    def live(self) -> Mask | None:
        """Give which rows live, or None if all do."""
        alive = self.segment.alive
        return None if alive is None else alive[self.start : self.stop]


class Table:
    """All rows that one engine owns of a table.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    arcs : sequence of KeyRange
        The engine's arcs, ascending.
    """

    def __init__(self, schema: TableSchema, arcs: Sequence[KeyRange]) -> None:
        self.schema = schema
        self.types: dict[int, DataType] = {column.id: column.type for column in schema.columns}
        if not schema.primary_key:
            self.types[HIDDEN_POSITION] = self.types[HIDDEN_ORDINAL] = DataType.INT64
        self.key_ids = key_ids(schema)
        self.pools = {c.id: new_pool(c.type) for c in schema.columns if c.type.is_textual}
        self.segments: list[list[Segment]] = [[] for _ in arcs]
        self.n_compactions = 0
        self.n_collections = 0
        self._pool_sizes: dict[int, int] = {}

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
        """What segments and texts take, about."""
        segments = sum(segment.n_bytes for arc in self.segments for segment in arc)
        return segments + sum(pool.n_bytes for pool in self.pools.values())

    def alter(self, schema: TableSchema) -> None:
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
                self.pools[column_id] = new_pool(kind)
            for segment in self._all_segments():
                segment.add_column(column_id, kind)
        self.schema = schema

    def _all_segments(self) -> Iterator[Segment]:
        for arc in self.segments:
            yield from arc

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
            segment = self._room(arc)
            count = min(segment.capacity - segment.n_rows, len(positions) - done)
            target = slice(segment.n_rows, segment.n_rows + count)
            source = slice(done, done + count)
            for column_id, value in columns.items():
                valid = None if value.valid is None else value.valid[source]
                segment.store(column_id, target, value.data[source], valid)
            segment.position[target] = positions[source]
            segment.n_rows += count
            done += count

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

    def _room(self, arc: int) -> Segment:
        """Give a segment of an arc with free rows."""
        segments = self.segments[arc]
        if segments and segments[-1].n_rows < segments[-1].capacity:
            return segments[-1]
        held = sum(segment.capacity for segment in segments)
        capacity = min(max(held, SEGMENT_ROWS_MIN), SEGMENT_ROWS_MAX)
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
        for column_id, pool in self.pools.items():
            if len(pool) > self._pool_sizes.get(column_id, POOL_TEXTS_MIN):
                self._collect(column_id, pool)

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
            done = 0
            while done < each.n_rows:
                if not united or united[-1].n_rows == united[-1].capacity:
                    capacity = max(1 << (left - 1).bit_length(), SEGMENT_ROWS_MIN)
                    united.append(Segment(last.arc, min(capacity, SEGMENT_ROWS_MAX), self.types))
                count = united[-1].take_over(each, done)
                done, left = done + count, left - count
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


def key_ids(schema: TableSchema) -> tuple[int, ...]:
    """Give the column ids of the primary or hidden key."""
    if schema.primary_key:
        return tuple(schema.column(name).id for name in schema.primary_key)
    return (HIDDEN_POSITION, HIDDEN_ORDINAL)
