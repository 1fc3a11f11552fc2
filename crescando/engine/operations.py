"""Many operations at once, column by column; and the operations of a batch by shape.

Rules of the file: an entry of a batch is one operation, or a run of operations
of one sender and shape that follow one another in the order. What either form
says is the same; runs say it without a Python object for each operation. From
here on the operations of a shape are parallel arrays (`Members`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np

from crescando.engine.keys import I64, Mask
from crescando.engine.statement import Column, Operation, Shape
from crescando.errors import StatementError
from crescando.types import ProcessId, Scope

V = TypeVar("V", ProcessId, Scope)


class Operations(msgspec.Struct, frozen=True):
    """Delivered operations of one sender, shape and scope that follow one another.

    Only for statements whose parameters are single values: no insert, no
    upsert, no IN.

    Attributes
    ----------
    position, number : ndarray of int64, shape (n,)
        Positions ascend; see `Operation`.
    sender : ProcessId
    shape : Shape
    scope : Scope
    parameters : tuple of Column, each of length n
        By `Parameter.index`.
    """

    position: I64
    number: I64
    sender: ProcessId
    shape: Shape
    scope: Scope
    parameters: tuple[Column, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.position), len(self.number), *map(len, self.parameters)}
        if len(lengths) != 1:
            raise StatementError(f"columns of a run of operations have different lengths: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.position)

    def keep(self, kept: Mask) -> Operations:
        """Give some of them; `kept` has shape (n,)."""
        columns = tuple(
            Column(
                column.type,
                column.values[kept],
                None if column.valid is None else column.valid[kept],
                column.dictionary,
            )
            for column in self.parameters
        )
        position, number = self.position[kept], self.number[kept]
        return Operations(position, number, self.sender, self.shape, self.scope, columns)

    def split(self) -> list[Operation]:
        """Give the same operations one by one."""
        columns = [column.to_list() for column in self.parameters]
        rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else [()] * len(self)
        named = zip(self.position.tolist(), self.number.tolist(), rows, strict=True)
        return [
            Operation(position, self.sender, number, self.shape, row, self.scope)
            for position, number, row in named
        ]


Entry = Operation | Operations


def singles(entries: Iterable[Entry]) -> list[Operation]:
    """Give the operations of a batch one by one."""
    found: list[Operation] = []
    for entry in entries:
        if isinstance(entry, Operations):
            found.extend(entry.split())
        else:
            found.append(entry)
    return found


@dataclass(slots=True)
class Members:
    """Some operations of one shape, in order, as parallel arrays.

    Attributes
    ----------
    order : ndarray of int64, shape (n,)
        Places in the batch, ascending.
    position, number, step : ndarray of int64, shape (n,)
        See `Operation`.
    sender, scope : ndarray of int64, shape (n,)
        Indices into `senders` and `scopes`.
    senders : list of ProcessId
    scopes : list of Scope
    given : list of Operations, or of lists of tuple
        The parameters, piece by piece, in order.
    """

    order: I64
    position: I64
    number: I64
    step: I64
    sender: I64
    scope: I64
    senders: list[ProcessId]
    scopes: list[Scope]
    given: list[list[tuple[Any, ...]] | Operations]

    def __len__(self) -> int:
        return len(self.order)

    def keep(self, kept: Mask) -> Members:
        """Give some of them.

        Parameters
        ----------
        kept : ndarray of bool, shape (n,)
        """
        given: list[list[tuple[Any, ...]] | Operations] = []
        start = 0
        for piece in self.given:
            chosen = kept[start : start + len(piece)]
            start += len(piece)
            if isinstance(piece, Operations):
                given.append(piece.keep(chosen))
            else:
                given.append([row for row, wanted in zip(piece, chosen.tolist(), strict=True) if wanted])
        return self._picked(kept, given)

    def _picked(self, places: I64 | Mask, given: list[list[tuple[Any, ...]] | Operations]) -> Members:
        return Members(
            self.order[places],
            self.position[places],
            self.number[places],
            self.step[places],
            self.sender[places],
            self.scope[places],
            self.senders,
            self.scopes,
            given,
        )

    def rows(self) -> list[tuple[Any, ...]]:
        """Give the parameters of each."""
        return [row for given in self.given for row in _rows(given)]

    def sender_of(self, local: int) -> ProcessId:
        """Give who sent one of them."""
        return self.senders[int(self.sender[local])]

    def scope_of(self, local: int) -> Scope:
        """Give the scope of one of them."""
        return self.scopes[int(self.scope[local])]

    def by_sender(self, kept: I64) -> list[tuple[ProcessId, I64]]:
        """Give some of them, ascending, sender by sender in the order in which senders first speak."""
        if len(self.senders) == 1:
            return [(self.senders[0], kept)] if len(kept) else []
        order = np.argsort(self.sender[kept], kind="stable")
        ordered = kept[order]
        cuts = np.diff(self.sender[ordered]).nonzero()[0] + 1
        runs = sorted(np.split(ordered, cuts), key=lambda run: int(run[0])) if len(kept) else []
        return [(self.sender_of(int(run[0])), run) for run in runs]


@dataclass(slots=True)
class _Bunch:
    """The pieces of one shape, as a batch is read."""

    shape: Shape
    order: list[I64] = field(default_factory=list)
    given: list[list[Operation] | Operations] = field(default_factory=list)


def by_shape(entries: Sequence[Entry]) -> list[tuple[Shape, Members]]:
    """Give the operations of a batch, shape by shape in the order of first occurrence.

    Shapes are told apart by identity: a shape that comes twice as two objects
    comes out twice.
    """
    bunches: dict[int, _Bunch] = {}
    start = place = 0
    for at, entry in enumerate(entries):
        if isinstance(entry, Operations):
            _take_singles(bunches, entries[start:at], place - (at - start))
            start = at + 1
            bunch = bunches.setdefault(id(entry.shape), _Bunch(entry.shape))
            bunch.order.append(np.arange(place, place + len(entry)))
            bunch.given.append(entry)
            place += len(entry)
        else:
            place += 1
    _take_singles(bunches, entries[start:], place - (len(entries) - start))
    return [(bunch.shape, _members(bunch)) for bunch in bunches.values()]


def _take_singles(bunches: dict[int, _Bunch], some: Sequence[Any], first: int) -> None:
    """Sort consecutive single operations into their bunches."""
    if not some:
        return
    shapes = list(map(attrgetter("shape"), some))
    ids = np.fromiter(map(id, shapes), np.int64, len(some))
    if (ids == ids[0]).all():
        bunch = bunches.setdefault(int(ids[0]), _Bunch(shapes[0]))
        bunch.order.append(np.arange(first, first + len(some)))
        bunch.given.append(list(some))
        return
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0]
    for places in sorted(np.split(order, starts[1:]), key=lambda places: int(places[0])):
        shape = shapes[int(places[0])]
        bunch = bunches.setdefault(id(shape), _Bunch(shape))
        bunch.order.append(places + first)
        bunch.given.append([some[place] for place in places.tolist()])


def _numbered(items: Sequence[V]) -> tuple[I64, list[V]]:
    """Give each item's index among the distinct ones, and these in the order in which they first occur."""
    ids = np.fromiter(map(id, items), np.int64, len(items))
    if (ids == ids[0]).all():
        return np.zeros(len(items), np.int64), [items[0]]
    # Hashing each object once, not each mention of it.
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    known: dict[V, int] = {}
    numbers = np.empty(len(first), np.int64)
    for place in np.argsort(first).tolist():
        numbers[place] = known.setdefault(items[int(first[place])], len(known))
    return numbers[inverse], list(known)


def _members(bunch: _Bunch) -> Members:
    pieces = [_piece(given, order) for given, order in zip(bunch.given, bunch.order, strict=True)]
    return join(pieces)


def _piece(given: list[Operation] | Operations, order: I64) -> Members:
    n = len(given)
    if isinstance(given, Operations):
        zeros = np.zeros(n, np.int64)
        senders, scopes = [given.sender], [given.scope]
        return Members(
            order, given.position, given.number, np.full(n, -1), zeros, zeros, senders, scopes, [given]
        )
    sender, senders = _numbered(list(map(attrgetter("sender"), given)))
    scope, scopes = _numbered(list(map(attrgetter("scope"), given)))
    position = np.fromiter(map(attrgetter("position"), given), np.int64, n)
    number = np.fromiter(map(attrgetter("number"), given), np.int64, n)
    step = np.fromiter(map(attrgetter("step"), given), np.int64, n)
    parameters = list(map(attrgetter("parameters"), given))
    return Members(order, position, number, step, sender, scope, senders, scopes, [parameters])


def merge(pieces: Sequence[Members]) -> Members:
    """Put operations of equal shapes into one order."""
    whole = join(sorted(pieces, key=lambda piece: int(piece.order[0])))
    if (whole.order[1:] > whole.order[:-1]).all():
        return whole
    by_order = np.argsort(whole.order)
    rows = whole.rows()
    return whole._picked(by_order, [[rows[place] for place in by_order.tolist()]])


def _rows(given: list[tuple[Any, ...]] | Operations) -> list[tuple[Any, ...]]:
    """Give the parameters of each operation of a piece."""
    if isinstance(given, Operations):
        return [operation.parameters for operation in given.split()]
    return given


def join(pieces: Sequence[Members]) -> Members:
    """Put operations of one shape together, each piece after the ones before it."""
    if len(pieces) == 1:
        return pieces[0]
    sender, senders = _renumbered([(piece.sender, piece.senders) for piece in pieces])
    scope, scopes = _renumbered([(piece.scope, piece.scopes) for piece in pieces])
    return Members(
        np.concatenate([piece.order for piece in pieces]),
        np.concatenate([piece.position for piece in pieces]),
        np.concatenate([piece.number for piece in pieces]),
        np.concatenate([piece.step for piece in pieces]),
        sender,
        scope,
        senders,
        scopes,
        [given for piece in pieces for given in piece.given],
    )


def _renumbered(pieces: Sequence[tuple[I64, list[V]]]) -> tuple[I64, list[V]]:
    """Put indices into several lists end to end, as indices into one list without duplicates."""
    known: dict[V, int] = {}
    numbers = []
    for index, items in pieces:
        numbers.append(np.array([known.setdefault(item, len(known)) for item in items])[index])
    return np.concatenate(numbers), list(known)
