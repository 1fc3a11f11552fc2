"""Images of ring ranges, and the pieces in which they travel (partial live migration, RB13 §6.4).

Rules of the file: an image shares the arrays of the segments it was taken of
(see `engine.segment`) and looks at nothing else, so that whatever becomes of the
tables, a piece is the same whenever it is asked for. Where it is cut is settled
when it is taken, by counting rows; only where texts are of very different lengths
they are weighed. A piece has the texts that its rows use, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crescando.engine.base import Piece
from crescando.engine.dictionary import Pool
from crescando.engine.export import Extract, extract, gather
from crescando.engine.holding import Holding
from crescando.engine.incoming import own
from crescando.engine.keys import Mask
from crescando.engine.loads import LoadRecords
from crescando.engine.segment import Still
from crescando.engine.statement import PHYSICAL, Column
from crescando.engine.table import Table
from crescando.engine.validate import validate_piece, validate_staged
from crescando.engine.values import Value, distinct_codes
from crescando.errors import InvariantError
from crescando.schema import TableSchema
from crescando.types import Scope

PIECE_BYTES = 1 << 20
"""About what a piece weighs."""

UNEVEN = 4
"""A piece may weigh so many times as much, if the texts of some rows are longer than those of most."""

CHUNK_ROWS = 1 << 10
"""Rows are counted in so many at a time, to find where to cut."""


class _Run(NamedTuple):
    """Rows of a still, some of which may be dead, or outside the scope if there is one."""

    still: Still
    start: int
    stop: int
    scope: Scope | None

    @property
    def extract(self) -> Extract:
        """The rows that live and lie in the scope."""
        return extract(self.still, self.scope, self.start, self.stop)


class RowsImage:
    """The rows of a table in some ring ranges, visible ones or those that a load has staged, as they were.

    Parameters
    ----------
    schema : TableSchema
    rows : Holding
        The table's own.
    scope : Scope
    load : str
        By which load they are staged; empty if they are visible.
    """

    def __init__(self, schema: TableSchema, rows: Holding, scope: Scope, load: str = "") -> None:
        self._table, self._version, self._load = schema.id, schema.version, load
        self._types = rows.kinds
        self._pools = {i: pool for i, pool in rows.pools.items() if i in rows.types}
        chosen = [(segment.still(), within) for segment, within in rows.chosen(scope) if segment.n_rows]
        self.stills = [still for still, _ in chosen]
        self.n_rows = 0
        plain = 8 + sum(PHYSICAL[kind].itemsize + 1 for _, kind in self._types)
        # Of few texts each comes but once in a piece, however many of its rows have it.
        texts = (pool.text_bytes // max(len(pool), PIECE_BYTES // plain) for pool in self._pools.values())
        self._row_bytes = plain + sum(texts)
        self.pieces = self._cut(chosen)

    @property
    def n_bytes(self) -> int:
        """What all pieces weigh, about."""
        return self.n_rows * self._row_bytes

    def _cut(self, chosen: Sequence[tuple[Still, Scope | None]]) -> list[list[_Run]]:
        """Share out the rows to pieces, and count them."""
        n_rows_max = max(PIECE_BYTES // self._row_bytes, 1)
        pieces: list[list[_Run]] = []
        room = 0
        for still, within in chosen:
            for start, stop, count in _chunks(still, within, max(min(n_rows_max // 8, CHUNK_ROWS), 1)):
                if count == 0:
                    continue
                if count > room:
                    pieces.append([])
                    room = max(n_rows_max, count)
                runs = pieces[-1]
                room -= count
                self.n_rows += count
                if runs and runs[-1].still is still and runs[-1].stop == start:
                    start = runs.pop().start
                runs.append(_Run(still, start, stop, within))
        uneven = [i for i, pool in self._pools.items() if _is_uneven(pool, n_rows_max)]
        if not uneven:
            return pieces
        return [each for piece in pieces for each in self._evened(piece, uneven)]

    def _evened(self, runs: list[_Run], uneven: list[int]) -> Iterator[list[_Run]]:
        """Cut a piece in halves until its texts weigh little enough."""
        extracts = [run.extract for run in runs]
        n_rows = sum(each.n_rows for each in extracts)
        if n_rows <= 1 or sum(self._text_bytes(i, extracts) for i in uneven) <= UNEVEN * PIECE_BYTES:
            yield runs
            return
        left: list[_Run] = []
        right: list[_Run] = []
        half, done = n_rows // 2, 0
        for run, each in zip(runs, extracts, strict=True):
            if done + each.n_rows <= half:
                left.append(run)
            elif done >= half:
                right.append(run)
            else:
                middle = each.place_of(half - done)
                left.append(run._replace(stop=middle))
                right.append(run._replace(start=middle))
            done += each.n_rows
        yield from self._evened(left, uneven)
        yield from self._evened(right, uneven)

    def _text_bytes(self, column_id: int, extracts: Sequence[Extract]) -> int:
        values, valid = gather(column_id, PHYSICAL[dict(self._types)[column_id]], extracts)
        pool = self._pools[column_id]
        used, _ = distinct_codes(values if valid is None else values[valid], len(pool))
        return pool.bytes_of(used)

    def piece(self, index: int) -> Piece:
        """Give some of the rows."""
        extracts = [run.extract for run in self.pieces[index]]
        position = np.empty(sum(each.n_rows for each in extracts), np.uint64)
        start = 0
        for each in extracts:
            stop = start + each.n_rows
            each.gather(each.source.position, position[start:stop])
            start = stop
        columns = []
        for column_id, kind in self._types:
            values, valid = gather(column_id, PHYSICAL[kind], extracts)
            pool = self._pools.get(column_id)
            if pool is None:
                columns.append(Column(kind, values, valid))
                continue
            here: Mask | slice = slice(None) if valid is None else valid
            used, places = distinct_codes(values[here], len(pool))
            codes = np.zeros(len(values), np.int32)
            codes[here] = places
            columns.append(Column(kind, codes, valid, pool.take(used)))
        return Piece(self._table, self._version, position, tuple(columns), self._load)


class ScanImage:
    """The rows of some ring ranges as they were; see `engine.base.Image`.

    Parameters
    ----------
    tables : iterable of Table
    scope : Scope
    records : LoadRecords
    """

    def __init__(self, tables: Iterable[Table], scope: Scope, records: LoadRecords) -> None:
        self._head = [] if records.is_empty else [Piece(0, 0, np.zeros(0, np.uint64), (), records=records)]
        self._tables = []
        for table in tables:
            self._tables.append(RowsImage(table.schema, table, scope))
            for load, hidden in table.hidden.items():
                self._tables.append(RowsImage(table.schema, hidden, scope, load))
        self._firsts = np.cumsum([0, *(len(each.pieces) for each in self._tables)])
        self.n_rows = sum(each.n_rows for each in self._tables)
        self.n_bytes = sum(each.n_bytes for each in self._tables)
        self.n_pieces = len(self._head) + int(self._firsts[-1])
        self._is_closed = False

    def piece(self, index: int) -> Piece:
        """Give some of the rows; see `engine.base.Image.piece`."""
        if not 0 <= index < self.n_pieces or self._is_closed:
            raise InvariantError(f"an open image of {self.n_pieces} pieces was asked for number {index}")
        if index < len(self._head):
            return self._head[index]
        index -= len(self._head)
        table = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._tables[table].piece(index - int(self._firsts[table]))

    def close(self) -> None:
        """Let go of the memory; see `engine.base.Image.close`."""
        for table in self._tables:
            for still in table.stills:
                still.close()
        self._tables = []
        self._is_closed = True

    def array_bytes(self) -> dict[int, int]:
        """Give what its rows take in each array, by the array's id."""
        kept: dict[int, int] = {}
        for table in self._tables:
            for still in table.stills:
                kept |= still.array_bytes()
        return kept


def take_in(table: Table, piece: Piece) -> None:
    """Add the rows of a piece to a table.

    Raises
    ------
    InvariantError
        If it does not fit the schema, has rows outside the table's arcs, or is of a load that is not known.
    """
    schema = table.schema
    target: Holding = table
    if piece.load:
        hidden = table.hidden.get(piece.load)
        if hidden is None:
            raise InvariantError(f"rows of load {piece.load!r} came, which is not open")
        validate_staged(piece, schema, hidden.kinds)
        target = hidden
    else:
        validate_piece(piece, schema)
    arcs = table.arc_of(piece.position)
    if len(arcs) and int(arcs.min()) < 0:
        raise InvariantError(
            f"a piece of table {schema.name!r} has rows outside the arcs that they should lie in"
        )
    values: dict[int, Value] = {
        column_id: own(column, slice(None), table.pools.get(column_id))
        for (column_id, _), column in zip(target.kinds, piece.columns, strict=True)
    }
    target.take_in(arcs, values, piece.position)


def _chunks(still: Still, scope: Scope | None, n_rows: int) -> Iterator[tuple[int, int, int]]:
    """Give stretches of about so many rows, and how many rows of each live and lie in a scope."""
    bounds = [*range(0, still.n_rows, n_rows), still.n_rows]
    inside = still.inside(scope, 0, still.n_rows)
    counts = np.diff(bounds) if inside is None else np.add.reduceat(inside, bounds[:-1], dtype=np.int64)
    for (start, stop), count in zip(pairwise(bounds), counts.tolist(), strict=True):
        yield start, stop, count


def _is_uneven(pool: Pool, n_rows: int) -> bool:
    """Say whether some texts are so long that so many rows may weigh much more than most do."""
    most = UNEVEN * PIECE_BYTES // 2
    if pool.longest * n_rows <= most or pool.text_bytes <= most:
        return False
    lengths = pool.texts.lengths
    return int(lengths[lengths * n_rows > most].sum()) > most
