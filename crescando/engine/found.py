"""What a scan has matched on rows that are replayed, so that nobody looks it up again.

Rules of the file: pairs are kept while there is room for them, group by group;
of a group that has too many only how many each operation has is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from crescando.engine.events import Part
from crescando.engine.group import Group
from crescando.engine.keys import I64
from crescando.engine.match import Matched
from crescando.engine.values import Errors

PAIRS_KEPT = 1 << 20
"""Pairs that are kept of one part of a pass, about 20 MB; those of broad writes are looked up again,
window by window."""


class Found:
    """The matches of one batch's groups on the rows that its writes may change.

    Parameters
    ----------
    groups : sequence of Group
    n_operations : int
        Of the batch.
    uncertain : iterable of int
        Groups of which no pairs need be kept, since the batch may change what they test.
    """

    def __init__(self, groups: Sequence[Group], n_operations: int, uncertain: Iterable[int]) -> None:
        self._groups = groups
        self._counts: I64 = np.zeros(n_operations, np.int64)
        self._pending: list[tuple[int, Matched]] = []
        self._rows: I64 = np.zeros(0, np.int64)
        self._first = 0
        self._pieces: dict[int, list[tuple[I64, I64, Errors | None]]] = {}
        self._n_left = PAIRS_KEPT
        self._lost = set(uncertain)

    def fresh(self) -> Found:
        """Give one of the same groups in which nothing is found yet."""
        return Found(self._groups, len(self._counts), self._lost)

    def add(self, index: int, found: Matched) -> None:
        """Add what a write matches in the present block, all of which is replayed."""
        if self._keeps(index, found.operations):
            self._pending.append((index, found))

    def place(self, rows: I64, first: int) -> None:
        """Learn which rows of the present block are replayed, ascending, and the first one's image."""
        self._rows, self._first = rows, first
        for index, found in self._pending:
            self._put(index, found)
        self._pending.clear()

    def add_read(self, index: int, found: Matched) -> None:
        """Add what a read matches among the rows that are replayed."""
        if self._keeps(index, found.operations):
            self._put(index, found)

    def _keeps(self, index: int, operations: I64) -> bool:
        """Say whether there is room for matches of a group; those without are counted."""
        if index not in self._lost and len(operations) <= self._n_left:
            self._n_left -= len(operations)
            return True
        self._lost.add(index)
        self._count(index, operations)
        return False

    def _put(self, index: int, found: Matched) -> None:
        images = self._first + np.searchsorted(self._rows, found.rows)
        self._pieces.setdefault(index, []).append((images, found.operations, found.errors))

    def join(self, others: Found, first: int) -> None:
        """Add what was found elsewhere, on images that are numbered from `first` here."""
        self._counts += others._counts
        self._lost |= others._lost
        for index, pieces in others._pieces.items():
            moved = [(images + first, operations, errors) for images, operations, errors in pieces]
            self._pieces.setdefault(index, []).extend(moved)

    def counts(self) -> I64:
        """Give how many matches each operation has, by its place in the batch; ends the finding."""
        for index, pieces in self._pieces.items():
            self._count(index, np.concatenate([operations for _, operations, _ in pieces]))
        return self._counts

    def _count(self, index: int, operations: I64) -> None:
        order = self._groups[index].order
        self._counts[order] += np.bincount(operations, minlength=len(order))

    def has(self, index: int) -> bool:
        """Say whether all matches of a group are kept."""
        return index not in self._lost

    def parts(self, index: int, width: int) -> list[Part]:
        """Give a group's matches as events; `width` is how many times an operation has."""
        order = self._groups[index].order
        return [
            (images, order[operations] * width, index, operations, errors)
            for images, operations, errors in self._pieces.get(index, ())
        ]
