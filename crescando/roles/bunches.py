"""Operations of one client that wait together: those of one shape, and those of several in turn.

Rules of the file: what waits together need not be executed together; everything here can be
cut where a cycle has no more room. What one operation weighs is known for all of a bunch
at once, on average.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from crescando.engine.base import I64
from crescando.engine.operations import Entry, Interleaved, Operations, Part
from crescando.engine.statement import Kind, Shape
from crescando.types import ProcessId

_READ = Kind.READ

WEIGHT_BYTES = 1024
"""So many bytes of an operation count as one more when its time is estimated: an insert has many rows."""

_NOWHERE: I64 = np.zeros(1, np.int64)
"""Where the only operation of a bunch lies among its own."""


class Bunch(msgspec.Struct, eq=False, gc=False):
    """Operations of one client and shape, in order.

    Attributes
    ----------
    shape : Shape
    work : Operations or tuple of Operation
    bytes_each : int
        What each takes in memory, about.
    places : ndarray of int64, shape (n,)
        Where its operations lie among those that were delivered together.
    each_s : float
        The time each was expected to take when they came, the scan apart.
    arrival : int
        Its number among all that ever waited.
    n_entering : int
        How many of its first operations the next cycle takes.
    """

    shape: Shape
    work: Part
    bytes_each: int
    places: I64 = _NOWHERE
    each_s: float = 0.0
    arrival: int = 0
    n_entering: int = 0

    def __len__(self) -> int:
        return len(self.work)

    @property
    def weight(self) -> float:
        """How many plain operations each counts as."""
        return max(1.0, self.bytes_each / WEIGHT_BYTES)

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.bytes_each * len(self.work)

    @property
    def expected_s(self) -> float:
        """The time it was expected to take."""
        return self.each_s * len(self.work)

    @property
    def sender(self) -> ProcessId:
        """Whose operations they are."""
        work = self.work
        return work.sender if isinstance(work, Operations) else work[0].sender

    @property
    def is_read(self) -> bool:
        """Whether they change nothing."""
        return self.shape.kind is _READ

    @property
    def numbers(self) -> list[int]:
        """The numbers of its operations."""
        work = self.work
        return work.number.tolist() if isinstance(work, Operations) else [each.number for each in work]

    @property
    def last_position(self) -> int:
        """The position of its last operation."""
        work = self.work
        return int(work.position[-1]) if isinstance(work, Operations) else work[-1].position

    @property
    def entries(self) -> Sequence[Entry]:
        """What the engine is to execute."""
        return (self.work,) if isinstance(self.work, Operations) else self.work

    def cut(self, start: int, stop: int) -> Bunch:
        """Give operations ``start:stop``."""
        if start == 0 and stop == len(self.work):
            return self
        work = self.work
        part = work.cut(start, stop) if isinstance(work, Operations) else work[start:stop]
        return self._with(part, self.places[start:stop])

    def without_reads(self, numbers: Collection[int]) -> tuple[Bunch, list[int]]:
        """Leave out reads by their numbers; gives the rest, and the numbers of those."""
        own = self.numbers
        gone = [number for number in own if number in numbers] if self.is_read else []
        if not gone:
            return self, gone
        kept, work = ~np.isin(own, gone), self.work
        left: Part
        if isinstance(work, Operations):
            left = work.keep(kept)
        else:
            left = tuple(each for each in work if each.number not in numbers)
        return self._with(left, self.places[kept]), gone

    def _with(self, work: Part, places: I64) -> Bunch:
        return Bunch(self.shape, work, self.bytes_each, places, self.each_s, self.arrival)

    def enter(self) -> tuple[Bunch, Bunch | None]:
        """Give what the next cycle takes, and what it leaves."""
        n, self.n_entering = self.n_entering, 0
        return self.cut(0, n), self.cut(n, len(self)) if n < len(self) else None


class Mixture:
    """Operations of one client that must be executed in order, of several shapes.

    Parameters
    ----------
    bunches : sequence of Bunch
        None is empty, and no place is in two of them.

    Attributes
    ----------
    places : ndarray of int64, shape (n,)
        The places of all operations; ascending.
    codes : ndarray of int64, shape (n,)
        Which of the bunches each operation is in, in order.
    """

    __slots__ = ("bunches", "codes", "places")

    def __init__(self, bunches: Sequence[Bunch]) -> None:
        self.bunches = tuple(bunches)
        places = np.concatenate([bunch.places for bunch in self.bunches])
        order = np.argsort(places)
        self.places: I64 = places[order]
        self.codes: I64 = np.repeat(np.arange(len(self.bunches)), list(map(len, self.bunches)))[order]

    @classmethod
    def _of(cls, bunches: Sequence[Bunch], places: I64, codes: I64) -> Mixture:
        """Give a part of a mixture that has been put in order; `bunches` may be empty ones."""
        part = cls.__new__(cls)
        left = np.array([len(bunch) > 0 for bunch in bunches])
        part.bunches = tuple(bunch for bunch in bunches if len(bunch))
        part.places, part.codes = places, (np.cumsum(left) - 1)[codes]
        return part

    def __len__(self) -> int:
        return len(self.places)

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return sum([bunch.n_bytes for bunch in self.bunches])

    @property
    def expected_s(self) -> float:
        """The time it was expected to take, the scans apart."""
        return sum([bunch.expected_s for bunch in self.bunches])

    @property
    def sender(self) -> ProcessId:
        """Whose operations they are."""
        return self.bunches[0].sender

    @property
    def last_position(self) -> int:
        """The position of the last operation."""
        return max([bunch.last_position for bunch in self.bunches])

    @property
    def entries(self) -> Sequence[Entry]:
        """What the engine is to execute."""
        if len(self.bunches) == 1:
            return self.bunches[0].entries
        parts, places = [bunch.work for bunch in self.bunches], [bunch.places for bunch in self.bunches]
        return (Interleaved(tuple(parts), tuple(places)),)

    def split(self, n: int) -> tuple[Mixture, Mixture | None]:
        """Give the first operations, at least one, and the others."""
        if n >= len(self.places):
            return self, None
        bound = int(self.places[n])
        cuts = [int(np.searchsorted(bunch.places, bound)) for bunch in self.bunches]
        front = [bunch.cut(0, at) for bunch, at in zip(self.bunches, cuts, strict=True)]
        rest = [bunch.cut(at, len(bunch)) for bunch, at in zip(self.bunches, cuts, strict=True)]
        return (
            Mixture._of(front, self.places[:n], self.codes[:n]),
            Mixture._of(rest, self.places[n:], self.codes[n:]),
        )

    def without_reads(self, numbers: Collection[int]) -> tuple[Mixture, list[int]]:
        """Leave out reads by their numbers; gives the rest, and the numbers of those."""
        split = [bunch.without_reads(numbers) for bunch in self.bunches]
        gone = [number for _, some in split for number in some]
        return (Mixture([left for left, _ in split if len(left)]), gone) if gone else (self, gone)
