"""The ring: which storage processes own which ring positions.

Rules of the file: a ring is an immutable value. A process with identifier k
and successor identifier k' holds the *primary partition* ``[k, k')`` (RB13
§6.2); the f - 1 successors hold replicas of it. An *arc* is a piece of a
primary partition that does not wrap around position 0, so the partition of the
highest identifier is two arcs unless the lowest identifier is 0. Arcs are
numbered in ascending order of positions and are all that routing ever
distinguishes: sets of arcs travel through this package as bit masks, bit i for
arc i, and sets of primary partitions likewise, bit i for the process with the
i-th lowest identifier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crescando.errors import SpecError
from crescando.types import RING_MAX, KeyRange, ProcessId

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ring:
    """Storage processes in the order of their identifiers, each at one position.

    Parameters
    ----------
    ids : tuple of int
        Identifiers, strictly ascending ring positions.
    processes : tuple of ProcessId
        The process at each identifier; no process twice.
    replication : int
        f: how many processes own each position.
    promised : int, optional
        How many are to own each position, as many as `replication` by default. More, only while
        all processes there are own everything, since others were taken off the ring by force.

    Attributes
    ----------
    arcs : tuple of KeyRange
        Every arc, ascending; together they are the whole ring.

    Raises
    ------
    SpecError
        If the parameters describe no such ring, in particular if there are
        more replicas than processes.

    References
    ----------
    RB13 §6.2 and Fig. 5 (successor replication).
    """

    ids: tuple[int, ...]
    processes: tuple[ProcessId, ...]
    replication: int
    promised: int = 0
    arcs: tuple[KeyRange, ...] = field(init=False, compare=False, repr=False)
    _starts: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _start_column: U64 = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.promised:
            object.__setattr__(self, "promised", self.replication)
        self._validate()
        starts = self.ids if self.ids[0] == 0 else (0, *self.ids)
        stops = (*(start - 1 for start in starts[1:]), RING_MAX)
        column = np.array(starts, np.uint64)
        column.setflags(write=False)
        object.__setattr__(self, "arcs", tuple(map(KeyRange, starts, stops)))
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_start_column", column)

    def _validate(self) -> None:
        if self.replication < 1:
            raise SpecError(f"replication must be at least 1, not {self.replication}")
        if len(self.processes) < self.replication:
            raise SpecError(
                f"replication {self.replication} needs more replicas than there are storage processes "
                f"({len(self.processes)})"
            )
        if self.replication != min(self.promised, len(self.processes)):
            raise SpecError(
                f"of {self.promised} replicas that are promised {len(self.processes)} processes do not keep "
                f"{self.replication}"
            )
        if len(self.ids) != len(self.processes):
            raise SpecError(f"{len(self.ids)} ring ids were given for {len(self.processes)} processes")
        if len(set(self.processes)) != len(self.processes):
            raise SpecError("a storage process appears twice in the ring")
        if any(low >= high for low, high in zip(self.ids, self.ids[1:], strict=False)):
            raise SpecError("ring ids must be distinct and ascending")
        if self.ids[0] < 0 or self.ids[-1] > RING_MAX:
            raise SpecError(f"ring ids must lie in [0, {RING_MAX}]")

    @property
    def wraps(self) -> bool:
        """Whether the partition of the highest identifier is two arcs (the last and arc 0)."""
        return self.ids[0] != 0

    def primary(self, arc: int) -> int:
        """Give the index of the process whose primary partition holds an arc."""
        return (arc - self.wraps) % len(self.ids)

    def owners(self, arc: int) -> tuple[ProcessId, ...]:
        """Give the f owners of an arc in successor order, the primary one first."""
        first = self.primary(arc)
        n = len(self.ids)
        return tuple(self.processes[(first + r) % n] for r in range(self.replication))

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the arcs a process owns, ascending; none if it has no position."""
        if process not in self.processes:
            return ()
        behind = self.processes.index(process)
        n = len(self.ids)
        return tuple(
            key_range
            for arc, key_range in enumerate(self.arcs)
            if (behind - self.primary(arc)) % n < self.replication
        )

    def mask(self, ranges: Sequence[KeyRange]) -> int:
        """Give the arcs that some range touches, as a bit mask.

        Parameters
        ----------
        ranges : sequence of KeyRange
            Closed and not empty; they may overlap.
        """
        touched = 0
        for low, high in ranges:
            first = bisect_right(self._starts, low) - 1
            last = bisect_right(self._starts, high) - 1
            touched |= (2 << last) - (1 << first)
        return touched

    def arcs_touched(self, low: U64, high: U64) -> tuple[I64, I64]:
        """Give the first and the last arc that each closed range touches.

        Parameters
        ----------
        low, high : ndarray of uint64, shape (n,)

        Returns
        -------
        first, last : ndarray of int64, shape (n,)
            Fresh arrays. Meaningless where ``low > high``.
        """
        first = np.searchsorted(self._start_column, low, side="right") - 1
        last = np.searchsorted(self._start_column, high, side="right") - 1
        return first, last

    def primaries_of(self, arcs: int) -> int:
        """Turn a mask of arcs into the mask of the primary partitions they are pieces of."""
        if not self.wraps:
            return arcs
        return arcs >> 1 | (arcs & 1) << len(self.ids) - 1

    def arcs_of(self, primaries: int) -> int:
        """Turn a mask of primary partitions into the mask of all their arcs."""
        if not self.wraps:
            return primaries
        return primaries << 1 | primaries >> len(self.ids) - 1

    def merged(self, arcs: int) -> tuple[KeyRange, ...]:
        """Give a mask of arcs as maximal ranges, disjoint and ascending."""
        ranges = []
        while arcs:
            first = (arcs & -arcs).bit_length() - 1
            run = arcs >> first
            length = (~run & run + 1).bit_length() - 1
            ranges.append(KeyRange(self.arcs[first].low, self.arcs[first + length - 1].high))
            arcs &= -1 << first + length
        return tuple(ranges)


def spread_ids(n: int) -> tuple[int, ...]:
    """Give n evenly spaced ring identifiers, the first of them 0."""
    return tuple((index << 64) // n for index in range(n))
