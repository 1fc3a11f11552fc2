"""The rows that reads with the same outputs answer with: all of them, or the first few.

Rules of the file: rows come in any order and the answer does not depend on it.
Plain columns of stored rows stay where they are until all rows are known, and
are then copied once, into the place that they have in the answer: rows that
answer a read directly are changed by no write of the batch.
For `TopRows` the order of a read's rows is total: the stated sort, then all
output columns, so that rows which tie in everything are the same row to
whoever reads them, and every layout keeps the same ones (NULL first ascending,
NaN above everything). Of each read little more than its limit is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.cutting import ANSWER_BYTES_MAX
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, KEY_MAX, KEY_MIN, Mask
from crescando.engine.packed import Lane, Packed
from crescando.engine.parallel import IN_TURN, Workers, worth
from crescando.engine.segment import Block
from crescando.engine.statement import PHYSICAL, ColumnRef, Sort, Term
from crescando.engine.values import Value, as_integers, concatenate

_PENDING_MIN = 1 << 14


@dataclass(slots=True)
class _Piece:
    """Some rows.

    Attributes
    ----------
    operations : ndarray of int64, shape (n,)
    values : sequence of Value or None, shape (n,)
        The outputs; None for those that are still in the table.
    block : Block or None
        Where the columns among the outputs still are.
    rows : ndarray of int64 or None
        Rows of the block's segment.
    """

    operations: I64
    values: Sequence[Value | None]
    block: Block | None = None
    rows: I64 | None = None

    def column(self, output: int, column_id: int) -> tuple[Lane, Lane | None, Pool | None]:
        """Give a column among the outputs: data, where they are valid, and the pool; at `rows`, if any."""
        if self.block is None:
            value = self.values[output]
            assert value is not None
            return value.data, value.valid, value.pool
        segment = self.block.segment
        return segment.data[column_id], segment.valid.get(column_id), self.block.pools.get(column_id)

    def keep(self, kept: Mask) -> _Piece:
        """Give some of the rows."""
        return _Piece(
            self.operations[kept],
            [None if value is None else value.take(kept) for value in self.values],
            self.block,
            None if self.rows is None else self.rows[kept],
        )


class AllRows:
    """Rows of some reads, as they are found.

    Parameters
    ----------
    terms : sequence of Term
        The outputs. Those that are columns may be left in the table until all rows are known.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self._row_bytes = sum(PHYSICAL[term.type].itemsize + 1 for term in terms)
        self._pieces: list[_Piece] = []
        self._n_pending = 0
        self._n_checked = 0

    def add(
        self,
        operations: I64,
        values: Sequence[Value | None],
        block: Block | None = None,
        rows: I64 | None = None,
    ) -> None:
        """Add rows.

        Parameters
        ----------
        operations : ndarray of int64, shape (n,)
        values : sequence of Value or None, shape (n,)
            The outputs, without errors; None for columns that are left where they are.
        block : Block, optional
            Where they are left.
        rows : ndarray of int64, shape (n,), optional
            Rows of the block.
        """
        if block is not None and rows is not None and block.start:
            rows = rows + block.start
        self._pieces.append(_Piece(operations, values, block, rows))
        self._n_pending += len(operations)

    def join(self, others: AllRows) -> None:
        """Add the rows that were found elsewhere, behind ours."""
        self._pieces.extend(others._pieces)
        self._n_pending += others._n_pending

    def crowded(self) -> list[int]:
        """Give the reads whose rows so far weigh more than one answer may, their texts left out.

        Looks only when all reads together have grown to twice what they were.
        """
        n_rows = self._n_pending
        if n_rows <= 2 * self._n_checked:
            return []
        # Never more than what is weighed at the end: who is told depends on no layout.
        if n_rows * self._row_bytes <= ANSWER_BYTES_MAX:
            return []
        self._n_checked = n_rows
        counts = np.bincount(self._operations())
        found = (counts * self._row_bytes > ANSWER_BYTES_MAX).nonzero()[0]
        return [int(operation) for operation in found]

    def drop(self, operations: Sequence[int]) -> None:
        """Forget the rows of some reads."""
        self._pieces = [piece.keep(~np.isin(piece.operations, operations)) for piece in self._pieces]
        self._n_pending = sum(len(piece.operations) for piece in self._pieces)

    def lay_out(self, place: I64, n_places: int, workers: Workers = IN_TURN) -> tuple[I64, list[Value]]:
        """Give all rows, read by read.

        Parameters
        ----------
        place : ndarray of int64, shape (n_operations,)
            Where in the layout each read's rows lie; below 0 to leave them out.
        n_places : int
        workers : Workers, optional
            Who copies the rows.

        Returns
        -------
        offsets : ndarray of int64, shape (n_places + 1,)
        values : list of Value, empty if there are no rows at all
        """
        if not self._pieces:
            return np.zeros(n_places + 1, np.int64), []
        self._unite()
        at, offsets = kernels.active().group_places(place[self._operations()], n_places)
        n_rows = int(offsets[-1])
        rooms = [
            self._room(output, term.column, n_rows) if isinstance(term, ColumnRef) else None
            for output, term in enumerate(self._terms)
        ]
        computed = [output for output, room in enumerate(rooms) if room is None]
        workers = worth(workers, n_rows * len(rooms))
        if len(computed) < len(rooms):
            # Each takes some rows of all columns: one column takes longer than another.
            bounds = [len(at) * share // workers.width for share in range(workers.width + 1)]
            workers.run([partial(self._copy, rooms, at, start, stop) for start, stop in pairwise(bounds)])
        values: list[Value] = []
        if computed:
            order = np.empty(n_rows + 1, np.int64)
            order[at] = np.arange(len(at))
            values = workers.run([partial(self._computed, output, order[:n_rows]) for output in computed])
        made = dict(zip(computed, values, strict=True))
        return offsets, [
            made[output] if room is None else room.slice(0, n_rows) for output, room in enumerate(rooms)
        ]

    def _operations(self) -> I64:
        operations = [piece.operations for piece in self._pieces]
        return operations[0] if len(operations) == 1 else np.concatenate(operations)

    def _unite(self) -> None:
        """Put consecutive pieces together that are all in one segment and only there."""
        united: list[_Piece] = []
        for _, some in groupby(self._pieces, _segment_id):
            pieces = list(some)
            first = pieces[0]
            if len(pieces) > 1 and first.rows is not None and not any(map(_is_given, first.values)):
                operations = np.concatenate([piece.operations for piece in pieces])
                rows = np.concatenate([piece.rows for piece in pieces if piece.rows is not None])
                pieces = [_Piece(operations, first.values, first.block, rows)]
            united.extend(pieces)
        self._pieces = united

    def _room(self, output: int, column_id: int, n_rows: int) -> Value:
        """Make room for a column; all rows that are left out go to one place more than there are rows."""
        columns = [piece.column(output, column_id) for piece in self._pieces]
        has_mask = any(mask is not None for _, mask, _ in columns)
        return Value(
            self._terms[output].type,
            np.empty(n_rows + 1, PHYSICAL[self._terms[output].type]),
            np.ones(n_rows + 1, np.bool_) if has_mask else None,
            None,
            columns[-1][2],
        )

    def _copy(self, rooms: Sequence[Value | None], at: I64, start: int, stop: int) -> None:
        """Copy the columns of rows ``start:stop``, of all pieces end to end, to their places."""
        end = 0
        for piece in self._pieces:
            begin, end = end, end + len(piece.operations)
            some = slice(max(start - begin, 0), max(min(stop, end) - begin, 0))
            if some.start >= some.stop:
                continue
            places = at[begin:end][some]
            rows = None if piece.rows is None else piece.rows[some]
            for output, room in enumerate(rooms):
                column = self._terms[output]
                if room is None or not isinstance(column, ColumnRef):
                    continue
                values, mask, _ = piece.column(output, column.column)
                if rows is None:
                    values, mask = values[some], None if mask is None else mask[some]
                _put(room.data, places, values, rows)
                if mask is not None:
                    assert room.valid is not None
                    _put(room.valid, places, mask, rows)

    def _computed(self, output: int, order: I64) -> Value:
        """Give an output that is no column, its rows in another order."""
        return self._joined(output).take(order)

    def _joined(self, output: int) -> Value:
        """Give an output's values end to end, all of which are given."""
        values = [value for piece in self._pieces if (value := piece.values[output]) is not None]
        return concatenate(values, [len(piece.operations) for piece in self._pieces])


def _segment_id(piece: _Piece) -> int:
    return 0 if piece.block is None else id(piece.block.segment)


def _is_given(value: Value | None) -> bool:
    return value is not None


def _put(into: NDArray[Any], places: I64, values: Lane, rows: I64 | None) -> None:
    """Put values, or those of some rows, into some places."""
    if rows is None:
        into[places] = values[:]
    elif isinstance(values, Packed):
        into[places] = values[rows]
    else:
        kernels.active().scatter(as_integers(into), places, as_integers(values), rows)


class TopRows(AllRows):
    """The first rows of some reads.

    Parameters
    ----------
    terms : sequence of Term
        The outputs.
    order : sequence of Sort
    limits : ndarray of int64, shape (n_operations,)
        How many rows each read keeps.
    """

    def __init__(self, terms: Sequence[Term], order: Sequence[Sort], limits: I64) -> None:
        super().__init__(terms)
        self._order = tuple(order)
        self._limits = limits
        self._n_cut = 0
        self._worst: Value | None = None
        """First sort key of the last row that each full read would keep."""
        self._is_full = np.zeros(len(limits), np.bool_)

    @property
    def first_output(self) -> int:
        """The output column that decides first."""
        return self._order[0].output if self._order else 0

    def candidates(self, operations: I64, key: Value) -> I64 | None:
        """Give the rows that may be among the first, by their first sort key; None for all."""
        worst = self._worst
        if worst is None or key.pool is not worst.pool:
            return None
        bound = np.where(self._is_full, self._first_keys(worst), KEY_MAX)
        return (self._first_keys(key) <= bound[operations]).nonzero()[0]

    def crowded(self) -> list[int]:
        """Give the reads whose first rows weigh too much; see `AllRows.crowded`."""
        # Rows that will not stay do not count: where they are cut off depends on the layout.
        return super().crowded() if self._n_pending == self._n_cut else []

    def add(
        self,
        operations: I64,
        values: Sequence[Value | None],
        block: Block | None = None,
        rows: I64 | None = None,
    ) -> None:
        """Add rows, of which nothing is left in the table; see `AllRows.add`."""
        super().add(operations, values, block, rows)
        self._cut_if_many()

    def join(self, others: AllRows) -> None:
        """Add the rows that were found elsewhere; see `AllRows.join`."""
        super().join(others)
        self._cut_if_many()

    def _cut_if_many(self) -> None:
        if self._n_pending > max(_PENDING_MIN, 2 * self._n_cut):
            self._cut()

    def lay_out(self, place: I64, n_places: int, workers: Workers = IN_TURN) -> tuple[I64, list[Value]]:
        """Give the first rows, read by read and in order; see `AllRows.lay_out`."""
        if self._pieces:
            self._cut()
        return super().lay_out(place, n_places, workers)

    def _cut(self) -> None:
        """Keep the first rows only, in order."""
        operations = self._operations()
        values = [self._joined(output) for output in range(len(self._terms))]
        kept = self._roughly(operations, values[self.first_output])
        operations, values = operations[kept], [value.take(kept) for value in values]
        keys: list[I64] = []
        for sort in (*self._order, *(Sort(place, False) for place in range(len(values)))):
            keys.extend(sort_keys(values[sort.output], is_descending=sort.is_descending))
        order = np.lexsort((*reversed(keys), operations))
        kept = order[_ranks(operations[order]) < self._limits[operations[order]]]
        operations, values = operations[kept], [value.take(kept) for value in values]
        self._pieces = [_Piece(operations, values)]
        self._n_pending = self._n_cut = len(kept)
        self._note_worst(operations, values[self.first_output])

    def _roughly(self, operations: I64, key: Value) -> I64:
        """Give the rows that the first sort key does not rule out."""
        keys = self._first_keys(key)
        order = np.lexsort((keys, operations))
        ordered = operations[order]
        ranks = _ranks(ordered)
        at_limit = (ranks == self._limits[ordered] - 1).nonzero()[0]
        bound = np.full(len(self._limits), KEY_MAX)
        bound[ordered[at_limit]] = keys[order[at_limit]]
        # Rows that tie with the last one are told apart by the other keys.
        return (keys <= bound[operations]).nonzero()[0]

    def _note_worst(self, operations: I64, key: Value) -> None:
        counts = np.bincount(operations, minlength=len(self._limits))
        self._is_full = (counts >= self._limits) & (counts > 0)
        if self._is_full.any():
            last = np.maximum(np.cumsum(counts) - 1, 0)
            self._worst = key.take(last)

    def _first_keys(self, key: Value) -> I64:
        """Give one integer per row that never orders two rows wrongly, though it may not tell them apart."""
        keys = key.keys().astype(np.int64, copy=False)
        if key.valid is not None:
            keys = np.where(key.valid, keys, np.int64(KEY_MIN))
        return ~keys if self._order and self._order[0].is_descending else keys


def sort_keys(value: Value, *, is_descending: bool) -> list[I64]:
    """Give integers that order rows exactly, most significant first; NULL first ascending."""
    keys = value.keys().astype(np.int64, copy=False)
    if value.valid is None:
        return [~keys if is_descending else keys]
    valid = value.valid.astype(np.int64)
    keys = np.where(value.valid, keys, np.int64(0))
    return [~valid, ~keys] if is_descending else [valid, keys]


def _ranks(operations: I64) -> I64:
    """Give each row's place among those of its read; reads lie one after the other."""
    fresh = np.append(True, operations[1:] != operations[:-1])
    starts = np.maximum.accumulate(np.where(fresh, np.arange(len(operations)), 0))
    return np.arange(len(operations)) - starts
