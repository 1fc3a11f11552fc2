"""What a scan has matched on rows that are replayed, so that nobody looks it up again.

Rules of the file: pairs are kept while there is room for them, group by group;
of the groups that have too many only how many each operation has is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.events import Part
from crescando.engine.group import Group
from crescando.engine.keys import I64
from crescando.engine.values import Errors

PAIRS_KEPT = 1 << 20
"""Pairs that are kept of one batch, about 20 MB; a broad write's are looked up again, window by window."""


class Found:
    """The matches of one batch's groups on the rows that its writes may change.

    Parameters
    ----------
    groups : sequence of Group
    n_operations : int
        Of the batch.
    """

    def __init__(self, groups: Sequence[Group], n_operations: int) -> None:
        self._groups = groups
        self._counts: I64 = np.zeros(n_operations, np.int64)
        self._pending: list[tuple[int, I64, I64, Errors | None]] = []
        self._pieces: dict[int, list[tuple[I64, I64, Errors | None]]] = {}
        self._left = PAIRS_KEPT
        self._is_lost = [False] * len(groups)

    def add(self, index: int, rows: I64, operations: I64, errors: Errors | None) -> None:
        """Add matches of a group on rows of the present block."""
        self._left -= len(rows)
        if self._left < 0 or self._is_lost[index]:
            self._is_lost[index] = True
            self._count(index, operations)
        else:
            self._pending.append((index, rows, operations, errors))

    def end_block(self, images: I64) -> None:
        """Learn which image each row of the present block has."""
        for index, rows, operations, errors in self._pending:
            self._pieces.setdefault(index, []).append((images[rows], operations, errors))
        self._pending.clear()

    def _count(self, index: int, operations: I64) -> None:
        order = self._groups[index].order
        self._counts[order] += np.bincount(operations, minlength=len(order))

    def counts(self) -> I64:
        """Give how many matches each operation has, by its place in the batch; ends the finding."""
        for index, pieces in self._pieces.items():
            self._count(index, np.concatenate([operations for _, operations, _ in pieces]))
        return self._counts

    def parts(self, indices: Sequence[int], width: int) -> tuple[dict[int, list[Part]], list[int]]:
        """Give the events of some groups, and the groups whose matches were too many to keep.

        Parameters
        ----------
        indices : sequence of int
        width : int
            Times of one operation.
        """
        known: dict[int, list[Part]] = {}
        for index in indices:
            if not self._is_lost[index]:
                order = self._groups[index].order
                known[index] = [
                    (images, order[operations] * width, index, operations, errors)
                    for images, operations, errors in self._pieces.get(index, ())
                ]
        return known, [index for index in indices if self._is_lost[index]]
