"""What the ranges of the ring weigh, and which position would even that out.

Rules of the file: weights are known for ranges that together are the ring, and
are taken to be spread evenly inside each, so that the finer the ranges are cut
where much lies, the truer is what is said. A process bears what it holds: its
own partition and its replicas of those before (RB13 §6.2). A position is good
if it makes the heaviest process lighter; of equal ones the one by which the
others are more alike. Everything follows from the arguments alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from crescando.routing.rubberband.keyspace import Rebalance, transformed
from crescando.routing.rubberband.ring import Ring
from crescando.types import FULL_RING, RING_MAX, KeyRange, ProcessId

Weight = tuple[int, int]
"""Rows, and what they take in bytes."""

CANDIDATES = 8
"""Parts of equal weight into which a partition is cut, for positions to be tried."""

EMPTY_ROWS = 1 << 40
"""What an empty ring is taken to hold, so that a position in it is chosen by width."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the ring holds, range by range.

    Parameters
    ----------
    ranges : tuple of KeyRange
        Ascending; together they are the whole ring.
    rows, n_bytes : tuple of int
        Of each range; every row counted once, however many processes hold it.
    """

    ranges: tuple[KeyRange, ...] = (FULL_RING,)
    rows: tuple[int, ...] = (0,)
    n_bytes: tuple[int, ...] = (0,)
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _rows_before: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _bytes_before: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.ranges or self.ranges[0].low != 0 or self.ranges[-1].high != RING_MAX:
            raise ValueError("the ranges are not the whole ring")
        object.__setattr__(self, "_starts", tuple(low for low, _ in self.ranges))
        object.__setattr__(self, "_rows_before", (0, *accumulate(self.rows)))
        object.__setattr__(self, "_bytes_before", (0, *accumulate(self.n_bytes)))

    @classmethod
    def of(cls, known: Mapping[KeyRange, Weight]) -> Weights:
        """Give the weights of ranges that together are the ring."""
        ranges = tuple(sorted(known))
        return cls(ranges, tuple(known[each][0] for each in ranges), tuple(known[each][1] for each in ranges))

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self._rows_before[-1]

    def rows_in(self, key_range: KeyRange) -> int:
        """Give the rows of any range."""
        return self._up_to(self._rows_before, key_range.high + 1) - self._up_to(
            self._rows_before, key_range.low
        )

    def bytes_in(self, key_range: KeyRange) -> int:
        """Give what the rows of any range take."""
        return self._up_to(self._bytes_before, key_range.high + 1) - self._up_to(
            self._bytes_before, key_range.low
        )

    def _up_to(self, before: tuple[int, ...], at: int) -> int:
        """Give what lies below a position."""
        if at > RING_MAX:
            return before[-1]
        index = bisect_right(self._starts, at) - 1
        low, high = self.ranges[index]
        return before[index] + (before[index + 1] - before[index]) * (at - low) // (high - low + 1)

    def rows_below(self, at: int) -> int:
        """Give the rows below a position."""
        return self._up_to(self._rows_before, at)

    def share(self, key_range: KeyRange, part: int, parts: int) -> int:
        """Give the position in a range below which a share of its rows lies, the range's low end or above."""
        rows = self.rows_in(key_range)
        if not rows:
            return min(key_range.low + (key_range.high - key_range.low + 1) * part // parts, key_range.high)
        wanted = self._up_to(self._rows_before, key_range.low) + rows * part // parts
        index = min(bisect_right(self._rows_before, wanted) - 1, len(self.ranges) - 1)
        low, high = self.ranges[index]
        here = self._rows_before[index + 1] - self._rows_before[index]
        at = low + (wanted - self._rows_before[index]) * (high - low + 1) // max(1, here)
        return min(max(at, key_range.low), key_range.high)

    def or_widths(self) -> Weights:
        """Give these weights, or, of an empty ring, weights by which a range counts by its width."""
        return self if self.n_rows else Weights(rows=(EMPTY_ROWS,))

    def heavier_than(self, rows: float) -> tuple[KeyRange, ...]:
        """Give the ranges that hold more rows than so many."""
        return tuple(each for each, here in zip(self.ranges, self.rows, strict=True) if here > rows)


def cut(key_range: KeyRange, parts: int) -> Iterator[KeyRange]:
    """Cut a range into parts of equal width, fewer if it is narrower than that."""
    low, high = key_range
    width = high - low + 1
    parts = min(parts, width)
    bounds = [low + width * part // parts for part in range(parts + 1)]
    for start, stop in pairwise(bounds):
        yield KeyRange(start, stop - 1)


def cut_at(ids: Iterable[int]) -> tuple[KeyRange, ...]:
    """Cut the whole ring at some positions."""
    starts = sorted({0, *ids})
    return tuple(map(KeyRange, starts, [*(start - 1 for start in starts[1:]), RING_MAX]))


def loads(ring: Ring, weights: Weights) -> dict[ProcessId, int]:
    """Give the rows that each process of a ring holds."""
    return {process: sum(map(weights.rows_in, ring.owned_arcs(process))) for process in ring.processes}


def partition(ring: Ring, index: int) -> tuple[KeyRange, ...]:
    """Give the pieces of the partition of which a process is the first owner, in ring order."""
    return tuple(arc for place, arc in enumerate(ring.arcs) if ring.primary(place) == index)


def best_position(
    ring: Ring, process: ProcessId, weights: Weights, *, only_beside: Collection[int] | None = None
) -> int:
    """Give the free position at which a process, new on the ring or not, lightens the heaviest one most.

    Parameters
    ----------
    ring : Ring
    process : ProcessId
        Of no position, or to be moved from the one it has.
    weights : Weights
    only_beside : collection of int, optional
        Indices of the partitions in which to look; all by default.
    """
    weights = weights.or_widths()
    others = [at for at, each in zip(ring.ids, ring.processes, strict=True) if each != process]
    below = [weights.rows_below(at) for at in others]
    best: tuple[int, int, int] | None = None
    for at in sorted(set(_candidates(ring, weights, only_beside)) - set(ring.ids)):
        place = bisect_left(others, at)
        borne = _borne(
            [*below[:place], weights.rows_below(at), *below[place:]], weights.n_rows, ring.replication
        )
        score = max(borne), sum(each * each for each in borne), at
        if best is None or score < best:
            best = score
    if best is None:
        raise ValueError("no position of the ring is free")
    return best[2]


def _borne(below: list[int], n_rows: int, replication: int) -> list[int]:
    """Give what the processes of a ring hold, from the rows that lie below each of their positions."""
    parts = [stop - start for start, stop in pairwise(below)]
    parts.append(n_rows - below[-1] + below[0])
    return [sum(parts[place - r] for r in range(replication)) for place in range(len(parts))]


def _candidates(ring: Ring, weights: Weights, only_beside: Collection[int] | None) -> Iterator[int]:
    for index in range(len(ring.ids)):
        if only_beside is not None and index not in only_beside:
            continue
        pieces = sorted(partition(ring, index), key=lambda piece: piece.low < ring.ids[index])
        rows = [weights.rows_in(piece) for piece in pieces]
        for part in range(1, CANDIDATES):
            wanted = sum(rows) * part // CANDIDATES
            place = min(bisect_left(list(accumulate(rows)), wanted), len(pieces) - 1)
            behind = wanted - sum(rows[:place])
            at = weights.share(pieces[place], behind, max(1, rows[place]))
            # Two positions beside each other are as good, should one of them be taken.
            yield from (at, min(at + 1, RING_MAX))


MOVERS = 4
"""So many of the lightest processes are thought of, to be moved beside the heaviest one."""


class Lightening(NamedTuple):
    """A move of one process, and what the heaviest process holds before and after it."""

    change: Rebalance
    before: int
    after: int

    @property
    def gain(self) -> float:
        """By which share the heaviest process becomes lighter."""
        return 1 - self.after / self.before if self.before else 0.0


def lightening(ring: Ring, weights: Weights, movable: Collection[ProcessId]) -> Lightening | None:
    """Give the move of one of the lightest processes that lightens the heaviest one most, if any can move.

    A process beside which another one settles gives up what it held for longest; so positions
    are looked for only where the heaviest process holds something.
    """
    weights = weights.or_widths()
    borne = loads(ring, weights)
    before = max(borne.values())
    heaviest = max(sorted(borne), key=borne.__getitem__)
    place, n = ring.processes.index(heaviest), len(ring.processes)
    beside = [(place - r) % n for r in range(ring.replication)]
    movers = sorted(set(movable) - {heaviest}, key=lambda process: (borne[process], process))[:MOVERS]
    best: Lightening | None = None
    for process in movers:
        change = Rebalance(process, best_position(ring, process, weights, only_beside=beside))
        after = max(loads(transformed(ring, change), weights).values())
        if best is None or after < best.after:
            best = Lightening(change, before, after)
    return best
