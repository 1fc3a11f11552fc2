"""GROUP BY: the groups of many reads and their aggregates, kept as arrays.

Rules of the file: rows are factorised piece by piece, and a piece's groups are
appended under provisional numbers; now and then all that was appended is
factorised again, so that equal groups become one. The same merging serves
clients, whose pieces are scopes. NULL is a group of its own, NaN equals NaN and
-0.0 equals 0.0. The order of groups means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from crescando.engine.aggregate import States, accumulator_of, merge_states
from crescando.engine.distinct import factorise, words
from crescando.engine.keys import I64
from crescando.engine.statement import Aggregate, Column
from crescando.engine.values import Value, concatenate, from_column, one_zero, to_column

GROUPS_MAX = 1 << 22
"""Groups, and distinct values, that one read may have in one process's scope; a bound
for memory: some hundred MiB. Beyond it the read fails, alone."""

_PENDING_MIN = 1 << 16


class Grouping:
    """The groups of some reads of one shape, as they grow.

    Parameters
    ----------
    aggregates : sequence of Aggregate
    n_keys : int
        Grouping terms; without any each read is one group.
    n_operations : int
    """

    def __init__(self, aggregates: Sequence[Aggregate], n_keys: int, n_operations: int) -> None:
        self._accumulators = [accumulator_of(aggregate) for aggregate in aggregates]
        self._n_keys = n_keys
        self._n_operations = n_operations
        self._operations: list[I64] = []
        self._keys: list[list[Value]] = []
        self._n_groups = 0 if n_keys else n_operations
        self._n_compacted = 0
        self._n_checked = 0

    def add(self, operations: I64, keys: Sequence[Value], values: Sequence[Value | None]) -> None:
        """Add rows.

        Parameters
        ----------
        operations : ndarray of int64, shape (n,)
        keys : sequence of Value, shape (n,)
            The grouping terms, without errors.
        values : sequence of Value or None, shape (n,)
            The aggregates' arguments, without errors; None for count(*).
        """
        if not self._n_keys:
            for accumulator, value in zip(self._accumulators, values, strict=True):
                accumulator.add(operations, self._n_operations, value)
            return
        rows, numbers = factorise([operations, *(word for key in keys for word in words(key))])
        self._operations.append(operations[rows])
        self._keys.append([one_zero(key.take(rows)) for key in keys])
        for accumulator, value in zip(self._accumulators, values, strict=True):
            accumulator.add(numbers, len(rows), value, self._n_groups)
        self._n_groups += len(rows)
        self._compact_if_many()

    def join(self, others: Grouping) -> None:
        """Add the groups of the same reads that were counted elsewhere."""
        first = self._n_groups if self._n_keys else 0
        for accumulator, other in zip(self._accumulators, others._accumulators, strict=True):
            accumulator.join(other, first)
        if self._n_keys:
            self._operations.extend(others._operations)
            self._keys.extend(others._keys)
            self._n_groups += others._n_groups
            self._compact_if_many()

    def _compact_if_many(self) -> None:
        if self._n_groups > max(_PENDING_MIN, 2 * self._n_compacted):
            self._compact()

    def crowded(self, *, is_last: bool = False) -> list[int]:
        """Give the reads with more than `GROUPS_MAX` groups or distinct values, so far.

        Looks only when all reads together have grown to twice what they were, or at the end.
        """
        size = max([self._n_groups, *(accumulator.n_entries for accumulator in self._accumulators)])
        if size <= GROUPS_MAX or (size <= 2 * self._n_checked and not is_last):
            return []
        self._compact()
        self._n_checked = max(
            [self._n_groups, *(len(accumulator.groups()) for accumulator in self._accumulators)]
        )
        counts = np.bincount(self._owners(), minlength=self._n_operations) if self._n_keys else np.zeros(1)
        crowded = counts > GROUPS_MAX
        for accumulator in self._accumulators:
            if accumulator.keeps_values:
                owners = accumulator.groups()
                owners = self._owners()[owners] if self._n_keys else owners
                crowded = crowded | (np.bincount(owners, minlength=self._n_operations) > GROUPS_MAX)
        return [int(operation) for operation in crowded.nonzero()[0]]

    def drop(self, operations: Sequence[int]) -> None:
        """Forget the groups of some reads."""
        place = np.arange(self._n_operations)
        place[list(operations)] = -1
        self._number(place, self._n_operations, keeps_operations=True)

    def _owners(self) -> I64:
        """Give the read of each group."""
        if not self._n_keys:
            return np.arange(self._n_operations)
        return np.concatenate([np.zeros(0, np.int64), *self._operations])

    def _compact(self) -> None:
        """Make one of groups that are equal."""
        if len(self._operations) > 1:
            owners = self._owners()
            keys = self._joined()
            rows, numbers = factorise([owners, *(word for key in keys for word in words(key))])
            self._operations, self._keys = [owners[rows]], [[key.take(rows) for key in keys]]
            self._n_groups = len(rows)
            for accumulator in self._accumulators:
                accumulator.renumber(numbers)
        self._n_compacted = self._n_groups

    def _joined(self) -> list[Value]:
        lengths = [len(piece) for piece in self._operations]
        return [concatenate([keys[place] for keys in self._keys], lengths) for place in range(self._n_keys)]

    def lay_out(self, place: I64, n_places: int) -> tuple[I64, list[Value], list[States]]:
        """Give all groups, read by read; ends the counting.

        Parameters
        ----------
        place : ndarray of int64, shape (n_operations,)
            Where in the layout each read's groups lie; below 0 to leave them out.
        n_places : int

        Returns
        -------
        offsets : ndarray of int64, shape (n_places + 1,)
        keys : list of Value, empty if nothing was grouped
        states : list of States
        """
        self._compact()
        offsets = self._number(place, n_places, keeps_operations=False)
        keys = self._keys[0] if self._keys else []
        return offsets, keys, [accumulator.states() for accumulator in self._accumulators]

    def _number(self, place: I64, n_places: int, *, keeps_operations: bool) -> I64:
        places = place[self._owners()]
        order = np.argsort(places, kind="stable")
        order = order[int(np.count_nonzero(places < 0)) :]
        offsets = np.zeros(n_places + 1, np.int64)
        np.cumsum(np.bincount(places[order], minlength=n_places), out=offsets[1:])
        numbers = np.full(len(places), -1)
        numbers[order] = order if keeps_operations and not self._n_keys else np.arange(len(order))
        for accumulator in self._accumulators:
            accumulator.renumber(numbers)
        if self._n_keys and self._operations:
            self._operations = [self._owners()[order]]
            self._keys = (
                [[key.take(order) for key in self._joined()]]
                if len(self._keys) > 1
                else [[key.take(order) for key in self._keys[0]]]
            )
            self._n_groups = self._n_compacted = len(order)
        return offsets


def merge_groups(
    pieces: Sequence[tuple[int, Sequence[Column], Sequence[States]]],
) -> tuple[int, list[Column], list[States]]:
    """Merge what several processes gave for one read.

    Parameters
    ----------
    pieces : sequence of (n_groups, keys, states)
        At least one; each with the groups of one scope.

    Returns
    -------
    n_groups : int
    keys : list of Column, each of `n_groups` rows
    states : list of States
    """
    lengths = [n_groups for n_groups, _, _ in pieces]
    starts = np.cumsum([0, *lengths])
    first = pieces[0][1]
    if first:
        filled = [place for place, length in enumerate(lengths) if length] or [0]
        keys = [
            concatenate(
                [from_column(pieces[place][1][key]) for place in filled], [lengths[place] for place in filled]
            )
            for key in range(len(first))
        ]
        rows, numbers = factorise([word for key in keys for word in words(key)])
        keys = [key.take(rows) for key in keys]
        n_groups = len(rows)
    else:
        keys, n_groups = [], 1
        numbers = np.zeros(int(starts[-1]), np.int64)
    split = [numbers[start:stop] for start, stop in pairwise(starts.tolist())]
    states = [
        merge_states([piece[2][place] for piece in pieces], split) for place in range(len(pieces[0][2]))
    ]
    return n_groups, [to_column(key) for key in keys], states
