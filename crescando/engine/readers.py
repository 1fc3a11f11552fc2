"""The readers of a pass: one for all shapes whose answers have the same columns.

Rules of the file: reads that give the same stored columns differ in what they
look for only, so one `Reader` collects the rows of all of them, and lays them
out once. Reads that compute, group or limit have a reader for each shape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Source
from crescando.engine.group import Group
from crescando.engine.keys import I64, Mask
from crescando.engine.operations import join
from crescando.engine.plan import Plan
from crescando.engine.reader import Reader
from crescando.engine.statement import ColumnRef
from crescando.engine.values import Errors
from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class _Seat:
    """Whose reader a group of reads has, and what its reads are called there.

    Attributes
    ----------
    family : int
    numbers : ndarray of int64, shape (n_operations,), or None
        The place of each of the group's reads among those of the family; None if it has only these.
    """

    family: int
    numbers: I64 | None


class Families:
    """Which groups of a batch share a reader.

    Parameters
    ----------
    groups : sequence of Group
    key_ids : tuple of int
        Columns of the primary or hidden key.
    evaluator : Evaluator
    """

    def __init__(self, groups: Sequence[Group], key_ids: tuple[int, ...], evaluator: Evaluator) -> None:
        self._key_ids = key_ids
        self._evaluator = evaluator
        alike: dict[object, list[int]] = {}
        for index, group in enumerate(groups):
            if group.plan.is_read:
                alike.setdefault(_columns(group.plan) or index, []).append(index)
        self._groups: list[Group] = []
        self.seats: dict[int, _Seat] = {}
        for family, indices in enumerate(alike.values()):
            if len(indices) == 1:
                self._groups.append(groups[indices[0]])
                self.seats[indices[0]] = _Seat(family, None)
            else:
                self._unite(family, indices, groups)

    def _unite(self, family: int, indices: Sequence[int], groups: Sequence[Group]) -> None:
        """Seat the reads of several groups together, in the batch's order."""
        whole = join([groups[index].members for index in indices])
        order = np.argsort(whole.order)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(len(order))
        start = 0
        for index in indices:
            stop = start + len(groups[index].members)
            self.seats[index] = _Seat(family, numbers[start:stop])
            start = stop
        # Columns have no parameters: what each shape was given stays with its own group.
        self._groups.append(Group(groups[indices[0]].plan, whole.pick(order), Constants([])))

    def __len__(self) -> int:
        return len(self._groups)

    def reader(self, family: int) -> Reader:
        """Give a reader that has read nothing yet."""
        return Reader(self._groups[family], self._key_ids, self._evaluator)


class Readers:
    """What the reads of a batch have read in some part of the table.

    Parameters
    ----------
    families : Families
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._made: dict[int, Reader] = {}

    def _reader(self, family: int) -> Reader:
        reader = self._made.get(family)
        if reader is None:
            reader = self._made[family] = self._families.reader(family)
        return reader

    def add(self, index: int, source: Source, rows: I64, operations: I64, errors: Errors | None) -> None:
        """Add pairs of a group, by its index; see `Reader.add`."""
        seat = self._families.seats[index]
        if seat.numbers is not None:
            operations = seat.numbers[operations]
        self._reader(seat.family).add(source, rows, operations, errors)

    def cancel(self, wanted: Collection[tuple[ProcessId, int]]) -> None:
        """Forget reads, by sender and number; see `Reader.cancel`."""
        for family in range(len(self._families)):
            self._reader(family).cancel(wanted)

    def cancelled(self, index: int) -> Mask | None:
        """Give which reads of a group, by its index, are not waited for any more; None if there are none."""
        seat = self._families.seats[index]
        reader = self._made.get(seat.family)
        if reader is None or reader.cancelled is None or seat.numbers is None:
            return None if reader is None else reader.cancelled
        return reader.cancelled[seat.numbers]

    def join(self, other: Readers) -> None:
        """Add what was read elsewhere; those readers are not used any more."""
        for family, reader in other._made.items():
            if family in self._made:
                self._made[family].join(reader)
            else:
                self._made[family] = reader

    def all(self) -> Iterator[Reader]:
        """Give the reader of every family, also of those that found nothing."""
        return map(self._reader, range(len(self._families)))


def _columns(plan: Plan) -> tuple[tuple[str, int], ...]:
    """Give names and columns that the reads of a shape give, or nothing if they do more than that."""
    shape = plan.shape
    if shape.is_grouped or shape.limit is not None:
        return ()
    terms = [projection.term for projection in shape.projections]
    if not all(isinstance(term, ColumnRef) for term in terms):
        return ()
    return tuple((p.name, p.term.column) for p in shape.projections if isinstance(p.term, ColumnRef))
