"""Rows of some ring arcs in memory, in one list of segments per arc.

Rules of the file: a row's place is nobody's business but the engine's, which
re-cuts the arcs when it is told to. Deleted rows are tombstones until their
segment is compacted, which happens between cycles only. Whose rows these are, and
what the codes of their texts stand for, is somebody else's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from crescando.engine.arcs import NONE, WHOLE, arc_of, cover_arc
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64
from crescando.engine.placing import Placing
from crescando.engine.segment import Block, Segment
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Value
from crescando.schema import DataType
from crescando.types import KeyRange, Scope

U64 = NDArray[np.uint64]

SEGMENT_ROWS_MIN, SEGMENT_ROWS_MAX = 256, 1 << 20
"""Segments double from one to the other, so that small tables stay small."""

SMALL_ROWS = 1 << 16
"""Smaller segments are put together once they are full: a scan pays for each, however small it is."""


class Holding:
    """Rows with the same columns that lie in some arcs.

    Parameters
    ----------
    arcs : tuple of KeyRange
        Ascending.
    types : dict of int to DataType
        By column id.
    pools : dict of int to Pool
        Of those with texts; shared with whoever else has codes of them.
    placing : Placing or None
        What ring positions follow from.

    Attributes
    ----------
    segments : list of list of Segment
        By arc.
    n_compactions : int
    """

    def __init__(
        self,
        arcs: tuple[KeyRange, ...],
        types: dict[int, DataType],
        pools: dict[int, Pool],
        placing: Placing | None,
    ) -> None:
        self._arcs = arcs
        self.types = types
        self.pools = pools
        self._placing = placing
        self.segments: list[list[Segment]] = [[] for _ in arcs]
        self.n_compactions = 0

    @property
    def n_rows(self) -> int:
        """How many live rows."""
        return sum(segment.n_rows - segment.n_dead for arc in self.segments for segment in arc)

    @property
    def n_stored(self) -> int:
        """How many rows a scan meets, tombstones included."""
        return sum(segment.n_rows for arc in self.segments for segment in arc)

    @property
    def kinds(self) -> list[tuple[int, DataType]]:
        """Everything that is stored of a row, in the order in which it travels: column ids and types."""
        return list(self.types.items())

    @property
    def segment_bytes(self) -> int:
        """What the segments take, about."""
        return sum(segment.n_bytes for arc in self.segments for segment in arc)

    def weigh_segments(self, scope: Scope) -> tuple[int, int]:
        """Count the rows in a scope, and give what they take without their texts, about."""
        chosen = self.chosen(scope)
        n_rows = sum(segment.count(within) for segment, within in chosen)
        if n_rows == 0:
            return 0, 0
        n_bytes = sum(segment.n_bytes for segment, _ in chosen) * n_rows
        return n_rows, n_bytes // sum(segment.n_rows for segment, _ in chosen)

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
                rows = rows[self.room(arc, len(rows)).take_over(segment, rows) :]

    def hang_over(self, other: Self) -> None:
        """Take over the arcs and segments of another one, whose columns and codes are the same."""
        held = sorted(
            [*zip(self._arcs, self.segments, strict=True), *zip(other._arcs, other.segments, strict=True)],
            key=itemgetter(0),
        )
        self._arcs, self.segments = tuple(arc for arc, _ in held), [segments for _, segments in held]
        for place, segments in enumerate(self.segments):
            for segment in segments:
                segment.arc = place
        other._arcs, other.segments = (), []

    def drop_column(self, column_id: int) -> None:
        """Forget a column and its values."""
        del self.types[column_id]
        for segment in self.all_segments():
            segment.drop_column(column_id)

    def all_segments(self) -> Iterator[Segment]:
        """Give all segments, arc by arc."""
        for arc in self.segments:
            yield from arc

    def array_ids(self) -> Iterator[int]:
        """Give what the arrays of all segments are known by."""
        for segment in self.all_segments():
            yield from segment.array_ids()

    def blocks(self, n_rows_max: int) -> Iterator[Block]:
        """Give all rows in blocks, arc by arc."""
        for arc in self.segments:
            for segment in arc:
                for start in range(0, segment.n_rows, n_rows_max):
                    stop = min(start + n_rows_max, segment.n_rows)
                    yield Block(segment, start, stop, self.types, self.pools)

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
            segment = self.room(arc, len(positions) - done)
            count = min(segment.capacity - segment.n_rows, len(positions) - done)
            target = slice(segment.n_rows, segment.n_rows + count)
            source = slice(done, done + count)
            for column_id, value in columns.items():
                valid = None if value.valid is None else value.valid[source]
                segment.store(column_id, target, value.data[source], valid)
            segment.place(target, positions[source])
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

    def room(self, arc: int, n_rows: int) -> Segment:
        """Give a segment of an arc with free rows, as many as are coming if it must be a new one."""
        segments = self.segments[arc]
        if segments and segments[-1].n_rows < segments[-1].capacity:
            return segments[-1]
        held = sum(segment.capacity for segment in segments)
        capacity = min(max(held, _power_above(n_rows), SEGMENT_ROWS_MIN), SEGMENT_ROWS_MAX)
        segments.append(Segment(arc, capacity, self.types, self._placing))
        return segments[-1]

    def compact_segments(self) -> None:
        """Rewrite segments of which more than a quarter is dead; call between cycles only."""
        for arc in self.segments:
            for segment in arc:
                if segment.is_sparse:
                    segment.compact()
                    self.n_compactions += 1
            arc[:] = self._united([segment for segment in arc if segment.n_rows])

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
                    capacity = min(capacity, SEGMENT_ROWS_MAX)
                    united.append(Segment(last.arc, capacity, self.types, self._placing))
                count = united[-1].take_over(each, rows)
                rows, left = rows[count:], left - count
        return [*(each for each in full if each not in moving), *united, last]


def _power_above(count: int) -> int:
    """Give the lowest power of two that is not below a positive number."""
    return 1 << (count - 1).bit_length()
