"""The rows that reads of one shape answer with: all of them, or the first few.

Rules of the file: rows come in any order and the answer does not depend on it.
For `TopRows` the order of a read's rows is total: the stated sort, then all
output columns, so that rows which tie in everything are the same row to
whoever reads them, and every layout keeps the same ones (NULL first ascending,
NaN above everything). Of each read little more than its limit is held.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine import kernels
from crescando.engine.cutting import ANSWER_BYTES_MAX
from crescando.engine.keys import I64, KEY_MAX, KEY_MIN
from crescando.engine.statement import PHYSICAL, Sort
from crescando.engine.values import Value, concatenate

_PENDING_MIN = 1 << 14


class AllRows:
    """Rows of some reads, as they are found."""

    def __init__(self) -> None:
        self._operations: list[I64] = []
        self._pieces: list[list[Value]] = []
        self._n_pending = 0
        self._n_checked = 0

    def add(self, operations: I64, values: Sequence[Value]) -> None:
        """Add rows.

        Parameters
        ----------
        operations : ndarray of int64, shape (n,)
        values : sequence of Value, shape (n,)
            The outputs, without errors.
        """
        self._operations.append(operations)
        self._pieces.append(list(values))
        self._n_pending += len(operations)

    def join(self, others: AllRows) -> None:
        """Add the rows that were found elsewhere, behind ours."""
        self._operations.extend(others._operations)
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
        per_row = sum(PHYSICAL[value.type].itemsize + 1 for value in self._pieces[0])
        if n_rows * per_row <= ANSWER_BYTES_MAX:
            return []
        self._n_checked = n_rows
        counts = np.bincount(np.concatenate(self._operations))
        found = (counts * per_row > ANSWER_BYTES_MAX).nonzero()[0]
        return [int(operation) for operation in found]

    def drop(self, operations: Sequence[int]) -> None:
        """Forget the rows of some reads."""
        kept = [~np.isin(piece, operations) for piece in self._operations]
        self._pieces = [
            [value.take(rows) for value in piece] for piece, rows in zip(self._pieces, kept, strict=True)
        ]
        self._operations = [piece[rows] for piece, rows in zip(self._operations, kept, strict=True)]
        self._n_pending = sum(map(len, self._operations))

    def lay_out(self, place: I64, n_places: int) -> tuple[I64, list[Value]]:
        """Give all rows, read by read.

        Parameters
        ----------
        place : ndarray of int64, shape (n_operations,)
            Where in the layout each read's rows lie; below 0 to leave them out.
        n_places : int

        Returns
        -------
        offsets : ndarray of int64, shape (n_places + 1,)
        values : list of Value, empty if there are no rows at all
        """
        if not self._pieces:
            return np.zeros(n_places + 1, np.int64), []
        places = place[np.concatenate(self._operations)]
        order, offsets = kernels.active().group_order(places, n_places)
        return offsets, [value.take(order) for value in self._joined()]

    def _joined(self) -> list[Value]:
        lengths = [len(operations) for operations in self._operations]
        return [
            concatenate([piece[column] for piece in self._pieces], lengths)
            for column in range(len(self._pieces[0]))
        ]


class TopRows(AllRows):
    """The first rows of some reads.

    Parameters
    ----------
    order : sequence of Sort
    limits : ndarray of int64, shape (n_operations,)
        How many rows each read keeps.
    """

    def __init__(self, order: Sequence[Sort], limits: I64) -> None:
        super().__init__()
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

    def add(self, operations: I64, values: Sequence[Value]) -> None:
        """Add rows; see `AllRows.add`."""
        super().add(operations, values)
        self._cut_if_many()

    def join(self, others: AllRows) -> None:
        """Add the rows that were found elsewhere; see `AllRows.join`."""
        super().join(others)
        self._cut_if_many()

    def _cut_if_many(self) -> None:
        if self._n_pending > max(_PENDING_MIN, 2 * self._n_cut):
            self._cut()

    def lay_out(self, place: I64, n_places: int) -> tuple[I64, list[Value]]:
        """Give the first rows, read by read and in order; see `AllRows.lay_out`."""
        if self._pieces:
            self._cut()
        return super().lay_out(place, n_places)

    def _cut(self) -> None:
        """Keep the first rows only, in order."""
        operations, values = np.concatenate(self._operations), self._joined()
        kept = self._roughly(operations, values[self.first_output])
        operations, values = operations[kept], [value.take(kept) for value in values]
        keys: list[I64] = []
        for sort in (*self._order, *(Sort(place, False) for place in range(len(values)))):
            keys.extend(sort_keys(values[sort.output], is_descending=sort.is_descending))
        order = np.lexsort((*reversed(keys), operations))
        kept = order[_ranks(operations[order]) < self._limits[operations[order]]]
        operations, values = operations[kept], [value.take(kept) for value in values]
        self._operations, self._pieces = [operations], [values]
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
