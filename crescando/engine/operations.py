"""Many operations at once, column by column; and the operations of a batch by shape.

Rules of the file: an entry of a batch is one operation, a run of operations of
one sender and shape, or several of these whose operations alternate in the
order. What each form says is the same; runs say it without a Python object for
each operation. From here on the operations of a shape are parallel arrays
(`Members`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np

from crescando.engine.keys import I64, Mask
from crescando.engine.loads import LoadStep
from crescando.engine.statement import Column, Operation, Shape
from crescando.errors import StatementError
from crescando.types import ProcessId, Scope

V = TypeVar("V", ProcessId, Scope)


class Operations(msgspec.Struct, frozen=True):
    """Delivered operations of one sender and shape, in order.

    Only for statements whose parameters are single values: no insert, no
    upsert, no IN.

    Attributes
    ----------
    position, number : ndarray of int64, shape (n,)
        Positions ascend; see `Operation`.
    sender : ProcessId
    shape : Shape
    scope : ndarray of int64, shape (n,)
        Index into `scopes`.
    scopes : tuple of Scope
    parameters : tuple of Column, each of length n
        By `Parameter.index`.
    """

    position: I64
    number: I64
    sender: ProcessId
    shape: Shape
    scope: I64
    scopes: tuple[Scope, ...]
    parameters: tuple[Column, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.position), len(self.number), len(self.scope), *map(len, self.parameters)}
        if len(lengths) != 1:
            raise StatementError(f"columns of a run of operations have different lengths: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.position)

    def keep(self, kept: Mask) -> Operations:
        """Give some of them; `kept` has shape (n,)."""
        return self._picked(kept, tuple(column.keep(kept) for column in self.parameters))

    def cut(self, start: int, stop: int) -> Operations:
        """Give operations ``start:stop``, as far as that is easy without the texts of others."""
        columns = tuple(column.slice_apart(start, stop) for column in self.parameters)
        return self._picked(slice(start, stop), columns)

    def _picked(self, places: slice | Mask, columns: tuple[Column, ...]) -> Operations:
        position, number, scope = self.position[places], self.number[places], self.scope[places]
        return Operations(position, number, self.sender, self.shape, scope, self.scopes, columns)

    def rows(self) -> list[tuple[Any, ...]]:
        """Give the parameters of each."""
        columns = [column.to_list() for column in self.parameters]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)

    def split(self) -> list[Operation]:
        """Give the same operations one by one."""
        position, number, scope = self.position.tolist(), self.number.tolist(), self.scope.tolist()
        named = zip(position, number, self.rows(), scope, strict=True)
        return [
            Operation(position, self.sender, number, self.shape, row, self.scopes[scope])
            for position, number, row, scope in named
        ]


Part = Operations | tuple[Operation, ...]
"""Operations of one sender and shape, in order."""


class Interleaved(msgspec.Struct, frozen=True):
    """Operations of one sender that alternate in the order, part by part.

    Attributes
    ----------
    parts : tuple of (Operations, or tuple of Operation)
        Operations that stand alone; none is empty.
    places : tuple of ndarray of int64
        For each part the places of its operations among all of these: ascending,
        and no two alike in any parts.
    """

    parts: tuple[Part, ...]
    places: tuple[I64, ...]

    @property
    def sender(self) -> ProcessId:
        """Who sent them."""
        first = self.parts[0]
        return first.sender if isinstance(first, Operations) else first[0].sender

    def ranks(self) -> list[I64]:
        """Give for each part which of all these operations, counted in order, its own are."""
        whole = np.concatenate(self.places)
        ranks = np.empty(len(whole), np.int64)
        ranks[np.argsort(whole)] = np.arange(len(whole))
        return np.split(ranks, np.cumsum([len(places) for places in self.places])[:-1])

    def split(self) -> list[Operation]:
        """Give the same operations one by one."""
        every = [operation for part in self.parts for operation in _alone(part)]
        return [every[place] for place in np.argsort(np.concatenate(self.places)).tolist()]


def _alone(part: Part) -> Sequence[Operation]:
    return part.split() if isinstance(part, Operations) else part


Plain = Operation | Operations | Interleaved
"""What reads or writes visible rows."""

Entry = Plain | LoadStep


def singles(entries: Iterable[Plain]) -> list[Operation]:
    """Give the operations of a batch one by one."""
    found: list[Operation] = []
    for entry in entries:
        if isinstance(entry, Operation):
            found.append(entry)
        else:
            found.extend(entry.split())
    return found


def last_position(entry: Entry) -> int:
    """Give the position of an entry's last operation."""
    if isinstance(entry, (Operation, LoadStep)):
        return entry.position
    if isinstance(entry, Operations):
        return int(entry.position[-1])
    return max(int(p.position[-1]) if isinstance(p, Operations) else p[-1].position for p in entry.parts)


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

    def pick(self, places: I64) -> Members:
        """Give some of them in another order, without their parameters."""
        return self._picked(places, [])

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


def by_shape(entries: Sequence[Plain]) -> list[tuple[Shape, Members]]:
    """Give the operations of a batch, shape by shape in the order of first occurrence.

    Shapes are told apart by identity: a shape that comes twice as two objects
    comes out twice.
    """
    bunches: dict[int, _Bunch] = {}
    start = place = 0
    for at, entry in enumerate(entries):
        if isinstance(entry, Operation):
            place += 1
            continue
        alone = entries[start:at]
        _take(bunches, alone, np.arange(place - len(alone), place))
        start = at + 1
        parts, ranks = _parts(entry)
        for part, rank in zip(parts, ranks, strict=True):
            _take(bunches, part, rank + place)
        place += sum(map(len, parts))
    alone = entries[start:]
    _take(bunches, alone, np.arange(place - len(alone), place))
    return [(bunch.shape, _members(bunch)) for bunch in bunches.values()]


def _parts(entry: Operations | Interleaved) -> tuple[Sequence[Part], list[I64]]:
    """Give the parts of an entry, and where the operations of each come in it."""
    if isinstance(entry, Interleaved):
        return entry.parts, entry.ranks()
    return (entry,), [np.arange(len(entry))]


def _take(bunches: dict[int, _Bunch], some: Sequence[Any] | Operations, order: I64) -> None:
    """Take a run, or single operations, at some places in the batch."""
    if isinstance(some, Operations):
        bunch = bunches.setdefault(id(some.shape), _Bunch(some.shape))
        bunch.order.append(order)
        bunch.given.append(some)
    elif some:
        _take_singles(bunches, some, order)


def _take_singles(bunches: dict[int, _Bunch], some: Sequence[Any], order: I64) -> None:
    """Sort single operations into their bunches."""
    shapes = list(map(attrgetter("shape"), some))
    ids = np.fromiter(map(id, shapes), np.int64, len(some))
    if (ids == ids[0]).all():
        bunch = bunches.setdefault(int(ids[0]), _Bunch(shapes[0]))
        bunch.order.append(order)
        bunch.given.append(list(some))
        return
    by_id = np.argsort(ids, kind="stable")
    ordered = ids[by_id]
    starts = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0]
    for places in sorted(np.split(by_id, starts[1:]), key=lambda places: int(places[0])):
        shape = shapes[int(places[0])]
        bunch = bunches.setdefault(id(shape), _Bunch(shape))
        bunch.order.append(order[places])
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
    return merge(pieces)


def _piece(given: list[Operation] | Operations, order: I64) -> Members:
    n = len(given)
    if isinstance(given, Operations):
        step, sender = np.full(n, -1), np.zeros(n, np.int64)
        senders, scopes = [given.sender], list(given.scopes)
        return Members(
            order, given.position, given.number, step, sender, given.scope, senders, scopes, [given]
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
    return given.rows() if isinstance(given, Operations) else given


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
