"""Shapes that share an indexed column: one look at each row for the operations of all of them.

Rules of the file: shapes with the same comparison of one column and different
rests, projections or assignments have their constants in one index; the pairs
it gives are split by shape, and each shape checks its own rest on them. What is
found is the same as shape by shape, in another order. Composite and computed
paths, and shapes without a path, go alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from crescando.engine import kernels
from crescando.engine.frame import Source
from crescando.engine.index import Pairs
from crescando.engine.join import index_column
from crescando.engine.keys import I64, Mask
from crescando.engine.match import POINT_BLOCK_ROWS, Matched, Matcher
from crescando.engine.plan import Access
from crescando.engine.table import Table

Skipped = Callable[[int], Mask | None]
"""Gives the operations of a group to leave out."""


class SharedJoin:
    """The constants of several groups, indexed by one column.

    Parameters
    ----------
    matchers : mapping of int to Matcher
        By index of the group; the paths of all compare the same column, all with
        points or all with intervals.
    table : Table
    """

    def __init__(self, matchers: Mapping[int, Matcher], table: Table) -> None:
        self._table = table
        self._paths: list[Access] = []
        self._matchers = list(matchers.values())
        self._groups = list(matchers)
        for matcher in matchers.values():
            assert isinstance(matcher.path, Access)
            self._paths.append(matcher.path)
        sizes = np.array([matcher.constants.n for matcher in self._matchers])
        self._starts = np.cumsum(sizes) - sizes
        self._place = np.repeat(np.arange(len(sizes)), sizes)
        self._build()

    def _count_texts(self) -> int:
        pool = self._table.pools.get(self._paths[0].column)
        return 0 if pool is None else len(pool)

    def _build(self) -> None:
        self._n_texts = self._count_texts()
        lows, highs, owners = [], [], []
        for path, matcher, start in zip(self._paths, self._matchers, self._starts, strict=True):
            low, high, owner = matcher.bounds.of(path)
            lows.append(low)
            highs.append(high)
            owners.append(owner + start)
        low, high, owner = np.concatenate(lows), np.concatenate(highs), np.concatenate(owners)
        self._index = index_column(self._paths[0], self._table, low, high, owner)

    def probe(self, source: Source) -> Iterator[tuple[int, Pairs]]:
        """Give the pairs for which the comparisons hold, group by group, in pieces."""
        if self._n_texts != self._count_texts():
            self._build()
        for rows, owners in self._index.pairs(source, self._paths[0].column):
            yield from self._split(rows, owners)

    def _split(self, rows: I64, owners: I64) -> Iterator[tuple[int, Pairs]]:
        """Give pairs of rows and numbers of operations among all as pairs of each group."""
        place = self._place[owners]
        order, offsets = kernels.active().group_order(place, len(self._groups))
        for found in (offsets[1:] > offsets[:-1]).nonzero()[0].tolist():
            some = order[offsets[found] : offsets[found + 1]]
            yield self._groups[found], (rows[some], owners[some] - self._starts[found])


class Sharing:
    """Matchers of one batch, ready to be matched with the blocks of a scan.

    Parameters
    ----------
    matchers : mapping of int to Matcher
        By index of the group.
    table : Table
    """

    def __init__(self, matchers: Mapping[int, Matcher], table: Table) -> None:
        self._matchers = matchers
        alike: dict[tuple[int, bool], dict[int, Matcher]] = {}
        for index, matcher in matchers.items():
            if isinstance(matcher.path, Access):
                key = matcher.path.column, matcher.path.is_point
                alike.setdefault(key, {})[index] = matcher
        shared = [some for some in alike.values() if len(some) > 1]
        self._joins = [SharedJoin(some, table) for some in shared]
        self._alone = [index for index in matchers if not any(index in some for some in shared)]

    @property
    def n_looks(self) -> int:
        """How many times each row is looked at."""
        return sum(self._matchers[index].n_looks for index in self._alone) + len(self._joins)

    @property
    def block_rows(self) -> int:
        """How many rows to look at in one go."""
        return min((matcher.block_rows for matcher in self._matchers.values()), default=POINT_BLOCK_ROWS)

    def get_ready(self) -> None:
        """Make the indices of the groups that have one to themselves, which else the first block does."""
        for index in self._alone:
            self._matchers[index].get_ready()

    def match(self, source: Source, live: Mask | None, skipped: Skipped) -> Iterator[tuple[int, Matched]]:
        """Give the matching pairs of each group, in pieces.

        Parameters
        ----------
        source : Source
        live : ndarray of bool, shape (source.n_rows,), or None
        skipped : callable
        """
        if source.n_rows == 0:
            return
        for index in self._alone:
            for found in self._matchers[index].match(source, None, skipped(index), live):
                yield index, found
        for join in self._joins:
            for index, (rows, operations) in join.probe(source):
                for found in self._matchers[index].check(source, rows, operations, skipped(index), live):
                    yield index, found
