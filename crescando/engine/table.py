"""A table's rows in memory: those that are visible, and those that loads have staged.

Rules of the file: strings are codes of one pool per column, which hidden rows share, so that
they are shown by hanging their segments over. A table *beside* another one, its *kin*,
has rows of the same table in further arcs and shares the kin's pools; while there is one, codes
keep their meaning: no pool is cleared of unused texts. No index is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from crescando.engine.dictionary import Pool
from crescando.engine.holding import Holding
from crescando.engine.keys import I64, Mask
from crescando.engine.partition import placing
from crescando.engine.segment import Block, Segment, Still, code_dtype
from crescando.engine.values import Value, new_pool
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import KeyRange, Scope

U64 = NDArray[np.uint64]

POOL_TEXTS_MIN = 4_096
"""Smaller pools are not looked at for unused texts."""

RESERVED_ROWS = 1 << 18
"""Reserved keys are looked at in so many rows at a time."""

HIDDEN_POSITION, HIDDEN_ORDINAL = -1, -2
"""Column ids of the hidden key of a table without a primary key: the position of
the insert in the order, and the row's ordinal in it."""

STAGED_PART, STAGED_ROW = -3, -4
"""Column ids of a hidden row's place in its load: partition and attempt, chunk and row, each pair as
one number with the first one in its upper half."""


class Hidden(Holding):
    """Rows of one load that are out of sight.

    Parameters
    ----------
    table : Table
        Whose rows they are to be.
    column_ids : iterable of int
        The columns that are given.

    Attributes
    ----------
    is_sealed : bool
        Whether the keys of these rows are reserved.
    chunks : set of (int, int)
        Of which part and chunk rows were staged; perhaps of more.
    """

    def __init__(self, table: Table, column_ids: Iterable[int]) -> None:
        types = {column_id: table.types[column_id] for column_id in column_ids}
        if not table.schema.primary_key:
            types |= dict.fromkeys(table.key_ids, DataType.INT64)
        types |= dict.fromkeys((STAGED_PART, STAGED_ROW), DataType.INT64)
        super().__init__(table.arcs, types, table.pools, placing(table.schema))
        self.is_sealed = False
        self.chunks: set[tuple[int, int]] = set()

    def take_in(self, arcs: I64, columns: dict[int, Value], positions: U64) -> None:
        """Add rows to the arcs they lie in; see `Holding.take_in`."""
        super().take_in(arcs, columns, positions)
        if len(arcs):
            part, row = columns[STAGED_PART].data, columns[STAGED_ROW].data
            begins = np.append(True, (part[1:] != part[:-1]) | (row[1:] >> 32 != row[:-1] >> 32))
            self.chunks.update(zip(part[begins].tolist(), (row[begins] >> 32).tolist(), strict=True))

    def hang_over(self, other: Hidden) -> None:
        """Take over the arcs and segments of another one; see `Holding.hang_over`."""
        super().hang_over(other)
        self.chunks |= other.chunks

    def knows(self, part: int, row: I64, positions: U64) -> Mask:
        """Say which rows of a chunk are staged already, since the chunk comes twice.

        Parameters
        ----------
        part : int
        row : ndarray of int64, shape (n,)
        positions : ndarray of uint64, shape (n,)
            What lies elsewhere is not the same row.
        """
        known = np.zeros(len(row), np.bool_)
        if len(row) == 0 or (part, int(row[0]) >> 32) not in self.chunks:
            return known
        there: set[tuple[int, int]] = set()
        for segment in self.all_segments():
            rows = segment.data[STAGED_ROW][: segment.n_rows]
            same = segment.data[STAGED_PART][: segment.n_rows] == part
            same &= rows >> 32 == row[0] >> 32
            there.update(
                zip(rows[same].tolist(), segment.position[: segment.n_rows][same].tolist(), strict=True)
            )
        return np.array([each in there for each in zip(row.tolist(), positions.tolist(), strict=True)])


class Table(Holding):
    """All rows that one engine has of a table.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    arcs : tuple of KeyRange
        The engine's arcs, ascending.
    kin : Table, optional
        The table that this one is made beside.

    Attributes
    ----------
    hidden : dict of str to Hidden
        By load; what is done to the rows of the table as a whole is done to these, too.
    """

    def __init__(self, schema: TableSchema, arcs: tuple[KeyRange, ...], kin: Table | None = None) -> None:
        self.schema = schema
        types = {column.id: column.type for column in schema.columns}
        if not schema.primary_key:
            types[HIDDEN_POSITION] = types[HIDDEN_ORDINAL] = DataType.INT64
        pools = {c.id: _pool(c.id, c.type, kin) for c in schema.columns if c.type.is_textual}
        super().__init__(arcs, types, pools, placing(schema))
        self.key_ids = key_ids(schema)
        self.hidden: dict[str, Hidden] = {}
        self.n_collections = 0
        self._pool_sizes: dict[int, int] = {}
        self._is_beside = kin is not None
        self._beside: WeakSet[Table] = WeakSet()
        if kin is not None:
            kin._beside.add(self)

    @property
    def arcs(self) -> tuple[KeyRange, ...]:
        """The arcs, ascending."""
        return self._arcs

    @property
    def kinds(self) -> list[tuple[int, DataType]]:
        """The schema's columns in its order, and the hidden key behind them."""
        kinds = [(column.id, column.type) for column in self.schema.columns]
        if not self.schema.primary_key:
            kinds += [(key_id, self.types[key_id]) for key_id in self.key_ids]
        return kinds

    @property
    def n_hidden(self) -> int:
        """How many rows loads have staged."""
        return sum(hidden.n_rows for hidden in list(self.hidden.values()))

    @property
    def n_bytes(self) -> int:
        """What segments and texts take, about; texts of a table beside another are the other's."""
        segments = sum(each.segment_bytes for each in self._holdings())
        return segments + (0 if self._is_beside else self._text_bytes)

    @property
    def _text_bytes(self) -> int:
        return sum(pool.n_bytes for pool in list(self.pools.values()))

    def _holdings(self) -> list[Holding]:
        return [self, *self.hidden.values()]

    def reserved_blocks(self) -> Iterator[Block]:
        """Give the hidden rows whose keys are reserved."""
        for hidden in self.hidden.values():
            if hidden.is_sealed:
                yield from hidden.blocks(RESERVED_ROWS)

    def still(self) -> tuple[Table, list[Still]]:
        """Give the visible rows as they are now, to be read as long as the stills are open; costs no copy."""
        table = Table(self.schema, self.arcs)
        table.pools = dict(self.pools)
        stills: list[Still] = []
        for arc, segments in enumerate(self.segments):
            for segment in segments:
                if segment.n_rows:
                    stills.append(segment.still())
                    table.segments[arc].append(Segment.of_still(stills[-1], arc, segment.coded.copy()))
        return table, stills

    def weigh(self, scope: Scope) -> tuple[int, int]:
        """Count the rows in a scope, hidden ones too, and give what they take with their texts, about."""
        weights = [each.weigh_segments(scope) for each in self._holdings()]
        n_rows, n_bytes = (sum(column) for column in zip(*weights, strict=True))
        if n_rows == 0:
            return 0, 0
        return n_rows, n_bytes + self._text_bytes * n_rows // (self.n_rows + self.n_hidden)

    def set_arcs(self, arcs: tuple[KeyRange, ...]) -> None:
        """Cut the rows at other arcs, and drop those that lie in none; see `Holding.set_arcs`."""
        n_rows = self.n_rows + self.n_hidden
        super().set_arcs(arcs)
        for hidden in self.hidden.values():
            hidden.set_arcs(arcs)
        left = self.n_rows + self.n_hidden
        if left < n_rows:
            self.look_for_texts()
            if left == 0 and not self.shares_pools:
                # Nobody may ever ask a process without a range for anything.
                for column_id, pool in self.pools.items():
                    self.pools[column_id] = Pool(binary=pool.binary)

    def look_for_texts(self) -> None:
        """Have texts that went with rows be looked for, even if no new ones come."""
        self._pool_sizes.clear()

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
        for load, hidden in other.hidden.items():
            self.hidden[load].hang_over(hidden)
        self.hang_over(other)
        self._beside.discard(other)

    def alter(self, schema: TableSchema, kin: Table | None = None) -> None:
        """Take the table's next schema: new columns are NULL, missing ones are forgotten."""
        before = {column.id: column.type for column in self.schema.columns}
        after = {column.id: column.type for column in schema.columns}
        for column_id in before.keys() - after.keys():
            for each in self._holdings():
                if column_id in each.types:
                    each.drop_column(column_id)
            self.pools.pop(column_id, None)
            self._pool_sizes.pop(column_id, None)
        for column_id in sorted(after.keys() - before.keys()):
            kind = self.types[column_id] = after[column_id]
            if kind.is_textual:
                self.pools[column_id] = _pool(column_id, kind, kin)
            for segment in self.all_segments():
                segment.add_column(column_id, kind)
        self.schema = schema

    def _every_segment(self) -> Iterator[Segment]:
        """Give the segments of hidden rows, too."""
        return chain.from_iterable(each.all_segments() for each in self._holdings())

    def array_ids(self) -> Iterator[int]:
        """Give what the arrays of all segments are known by."""
        for segment in self._every_segment():
            yield from segment.array_ids()
        yield from map(id, list(self.pools.values()))

    def parts(self, n_parts: int, n_rows_max: int) -> list[list[Block]]:
        """Give all rows in blocks, arc by arc, in parts of equally many rows."""
        held, done = self.n_stored, 0
        parts: list[list[Block]] = [[] for _ in range(n_parts)]
        for segment in self.all_segments():
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

    def compact(self) -> None:
        """Rewrite segments of which more than a quarter is dead, and pools that are mostly unused.

        Call between cycles only.
        """
        self.compact_segments()
        if not self.shares_pools:
            for column_id, pool in self.pools.items():
                if len(pool) > self._pool_sizes.get(column_id, POOL_TEXTS_MIN):
                    self._collect(column_id, pool)

    @property
    def shares_pools(self) -> bool:
        """Whether codes have a meaning elsewhere, too."""
        return self._is_beside or bool(self._beside)

    def _collect(self, column_id: int, pool: Pool) -> None:
        """Drop the texts of a column that no row has, if they are more than half of all.

        Rows change their codes, which nobody sees. Looking at all rows is paid for
        by the texts that came since the last time.
        """
        used = np.zeros(len(pool), np.bool_)
        for segment in self._every_segment():
            if column_id not in segment.data:
                continue
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
            for segment in self._every_segment():
                if column_id in segment.data:
                    segment.recode(column_id, codes, code_dtype(len(kept)))
            pool = self.pools[column_id] = pool.rebuilt(kept)
            self.n_collections += 1
        self._pool_sizes[column_id] = max(2 * len(kept), 3 * len(pool) // 2, POOL_TEXTS_MIN)


def _pool(column_id: int, kind: DataType, kin: Table | None) -> Pool:
    """Give a column's pool: the kin's if it has one."""
    shared = None if kin is None else kin.pools.get(column_id)
    return new_pool(kind) if shared is None else shared


def key_ids(schema: TableSchema) -> tuple[int, ...]:
    """Give the column ids of the primary or hidden key."""
    if schema.primary_key:
        return tuple(schema.column(name).id for name in schema.primary_key)
    return (HIDDEN_POSITION, HIDDEN_ORDINAL)
