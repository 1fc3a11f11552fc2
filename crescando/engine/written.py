"""What writes did: columns for the many that only affected rows, remarks for the few that did more.

Rules of the file: nothing here costs a Python object for each write but
`Written.reports`, which whoever tells a user calls last. The writes of one
`Written` ascend in position; those of a transaction follow one another, told
apart by their step, and are never parted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

import msgspec
import numpy as np

from crescando.engine.aggregate import column_bytes
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import Column, Scalar
from crescando.types import KeyRange, Scope


class Rejection(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The smallest rejected key of one write in one range, and its cause."""

    key: tuple[Scalar, ...]
    cause: str


class Count(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one write did to the rows of one ring arc (or part of an arc)."""

    key_range: KeyRange
    affected: int
    rejected: int
    rejection: Rejection | None = None
    returned: tuple[Column, ...] = ()
    """A row per row affected, if the write returns any; empty also if they are too many."""
    step: int = 0
    """Which write of the transaction did it."""


class Report(msgspec.Struct, frozen=True, gc=False):
    """What one write, or one transaction, did: arc by arc, and step by step."""

    number: int
    position: int
    counts: tuple[Count, ...]


class Remark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one write did in one arc beside affecting rows.

    Attributes
    ----------
    write, arc : int
        Indices into the writes and arcs of a `Written`.
    rejected, rejection, returned
        As of `Count`.
    """

    write: int
    arc: int
    rejected: int
    rejection: Rejection | None = None
    returned: tuple[Column, ...] = ()

    @property
    def returned_bytes(self) -> int:
        """What the rows it returns take in memory, about."""
        return sum(map(column_bytes, self.returned))


class Written(msgspec.Struct, frozen=True, array_like=True):
    """What writes of one sender did in the ring arcs that a process owns *and* they touch.

    Attributes
    ----------
    number, position, step : ndarray of int64, shape (n,)
        Ascending in position and step; the writes of a transaction share number and position.
    arcs : tuple of KeyRange
    affected : ndarray of int64, shape (n * n_arcs,)
        Rows that write i affected in arc j, at ``i * n_arcs + j``.
    remarks : tuple of Remark
        Ascending by write and arc.
    """

    number: I64
    position: I64
    step: I64
    arcs: tuple[KeyRange, ...]
    affected: I64
    remarks: tuple[Remark, ...] = ()

    @classmethod
    def of(cls, number: int, position: int, counts: Sequence[Count], step: int = 0) -> Written:
        """Give what one write did."""
        remarks = tuple(
            Remark(0, arc, count.rejected, count.rejection, count.returned)
            for arc, count in enumerate(counts)
            if count.rejected or count.returned
        )
        return cls(
            np.array([number], np.int64),
            np.array([position], np.int64),
            np.array([step], np.int64),
            tuple(count.key_range for count in counts),
            np.array([count.affected for count in counts], np.int64),
            remarks,
        )

    def __len__(self) -> int:
        return len(self.number)

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        columns = self.number.nbytes + self.position.nbytes + self.step.nbytes + self.affected.nbytes
        return columns + sum(_REMARK_BYTES + remark.returned_bytes for remark in self.remarks)

    @property
    def begins(self) -> Mask:
        """Where a write stands alone or is the first of its transaction; shape (n,)."""
        fresh = np.ones(len(self), np.bool_)
        fresh[1:] = self.number[1:] != self.number[:-1]
        return fresh

    def matrix(self) -> I64:
        """Give the rows affected, shape (n, n_arcs)."""
        return self.affected.reshape(len(self), len(self.arcs))

    def keep(self, writes: I64 | Mask | slice) -> Written:
        """Give some of the writes, in the order in which they are named."""
        number = self.number[writes]
        remarks: tuple[Remark, ...] = ()
        if self.remarks:
            place = np.full(len(self), -1)
            place[writes] = np.arange(len(number))
            moved = zip(self.remarks, place[[each.write for each in self.remarks]].tolist(), strict=True)
            remarks = tuple(msgspec.structs.replace(each, write=to) for each, to in moved if to >= 0)
            remarks = tuple(sorted(remarks, key=attrgetter("write", "arc")))
        affected = self.matrix()[writes].ravel()
        return Written(number, self.position[writes], self.step[writes], self.arcs, affected, remarks)

    def after(self, number: int) -> Written:
        """Give the writes whose number is above one."""
        return self.keep(slice(int(np.searchsorted(self.number, number, side="right")), None))

    def within(self, scope: Scope) -> Written:
        """Give what the writes did in the arcs that lie in a scope."""
        return self._of_arcs([place for place, arc in enumerate(self.arcs) if _is_within(arc, scope)])

    def touching(self, scope: Scope) -> Written:
        """Give what the writes did in the arcs of which anything lies in a scope."""
        return self._of_arcs([place for place, arc in enumerate(self.arcs) if _touches(arc, scope)])

    def _of_arcs(self, kept: list[int]) -> Written:
        if len(kept) == len(self.arcs):
            return self
        places = {arc: place for place, arc in enumerate(kept)}
        return msgspec.structs.replace(
            self,
            arcs=tuple(self.arcs[arc] for arc in kept),
            affected=self.matrix()[:, kept].ravel(),
            remarks=tuple(
                msgspec.structs.replace(remark, arc=places[remark.arc])
                for remark in self.remarks
                if remark.arc in places
            ),
        )

    def without_returned(self, writes: Container[int]) -> Written:
        """Give the same without the rows that some writes returned."""
        remarks = tuple(
            msgspec.structs.replace(remark, returned=()) if remark.write in writes else remark
            for remark in self.remarks
        )
        return msgspec.structs.replace(self, remarks=remarks)

    def reports(self) -> Iterator[Report]:
        """Give what each write or transaction did."""
        told, numbers, positions = self._counts(), self.number.tolist(), self.position.tolist()
        begins = self.begins
        if begins.all():
            yield from map(Report, numbers, positions, told)
            return
        starts = begins.nonzero()[0].tolist()
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            counts = tuple(count for some in told[start:stop] for count in some)
            yield Report(numbers[start], positions[start], counts)

    def _counts(self) -> list[tuple[Count, ...]]:
        """Give the counts of each write; those that affected as many rows share them."""
        known: dict[tuple[int, ...], tuple[Count, ...]] = {}

        def plain(row: tuple[int, ...]) -> tuple[Count, ...]:
            told = known[row] = tuple(
                Count(arc, affected, 0) for arc, affected in zip(self.arcs, row, strict=True)
            )
            return told

        n_arcs = len(self.arcs)
        rows = zip(*(self.affected[arc::n_arcs].tolist() for arc in range(n_arcs)), strict=True)
        told = [known.get(row) or plain(row) for row in rows]
        if not n_arcs:
            told = [()] * len(self)
        for write, remarks in groupby(self.remarks, attrgetter("write")):
            of_arc = {remark.arc: remark for remark in remarks}
            told[write] = tuple(_remarked(count, of_arc.get(arc)) for arc, count in enumerate(told[write]))
        for write in self.step.nonzero()[0].tolist():
            step = int(self.step[write])
            told[write] = tuple(msgspec.structs.replace(count, step=step) for count in told[write])
        return told


_REMARK_BYTES = 256
"""What a remark takes beside returned rows, about."""


def _remarked(count: Count, remark: Remark | None) -> Count:
    if remark is None:
        return count
    return Count(count.key_range, count.affected, remark.rejected, remark.rejection, remark.returned)


def _is_within(key_range: KeyRange, scope: Scope) -> bool:
    return any(low <= key_range.low and key_range.high <= high for low, high in scope)


def _touches(key_range: KeyRange, scope: Scope) -> bool:
    return any(low <= key_range.high and key_range.low <= high for low, high in scope)


def join_written(pieces: Sequence[Written]) -> Written:
    """Put what some writes did in the same arcs into the order of their positions."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *map(len, pieces)]).tolist()
    whole = Written(
        np.concatenate([piece.number for piece in pieces]),
        np.concatenate([piece.position for piece in pieces]),
        np.concatenate([piece.step for piece in pieces]),
        pieces[0].arcs,
        np.concatenate([piece.affected for piece in pieces]),
        tuple(
            msgspec.structs.replace(remark, write=start + remark.write)
            for start, piece in zip(starts, pieces, strict=False)
            for remark in piece.remarks
        ),
    )
    return whole.keep(np.lexsort((whole.step, whole.position)))


def cut_written(written: Written, piece_bytes: int) -> list[Written]:
    """Cut into pieces whose returned rows weigh about so many bytes; a transaction stays whole."""
    if not any(remark.returned for remark in written.remarks):
        return [written]
    weights = np.zeros(len(written), np.int64)
    for remark in written.remarks:
        weights[remark.write] += remark.returned_bytes
    begins = written.begins
    pieces = (np.cumsum(weights) - weights) // piece_bytes
    pieces = pieces[begins][np.cumsum(begins) - 1]
    cuts = [0, *(np.diff(pieces).nonzero()[0] + 1).tolist(), len(written)]
    return [written.keep(slice(start, stop)) for start, stop in pairwise(cuts)]
