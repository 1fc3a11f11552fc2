"""Rows on the move between engines while batches go on: a layout that changes under the differential tests.

What a storage process does with messages is done here by hand: images at a border, pieces as
they travel, an engine beside, a log that is replayed, and the re-cut of arcs at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from crescando import wire
from crescando.engine.base import Image, Piece
from crescando.engine.digest import combine, digest_columns
from crescando.engine.operations import Entry
from crescando.engine.statement import Kind, Operation
from crescando.schema import TableSchema
from crescando.types import RING_MAX, KeyRange
from tests.engine.differential import Answer, Layout
from tests.engine.runs import as_entries

_DECODER = msgspec.msgpack.Decoder(Piece, ext_hook=wire._decode_array)


def travelled(piece: Piece) -> Piece:
    """Give a piece as it arrives elsewhere."""
    return _DECODER.decode(wire.encode_any(piece))


@dataclass
class Copying:
    """A range on its way from one engine to another."""

    sender: int
    receiver: int
    key_range: KeyRange
    keeps: bool
    image: Image
    beside: Any
    digest: bytes
    """Of the rows when the image was taken."""
    digests: list[bytes] = field(default_factory=list)
    """Of the pieces that came."""
    log: list[list[Entry]] = field(default_factory=list)
    """What the receiver has executed since and the engine beside it has not."""

    @property
    def n_taken(self) -> int:
        return len(self.digests)


@dataclass
class Counted:
    """What was done, lest a test prove nothing."""

    copies: int = 0
    pieces: int = 0
    replayed: int = 0
    adopted: int = 0
    dropped: int = 0
    cuts: int = 0
    joins: int = 0


class Moving(Layout):
    """Engines that hand ranges of one table to one another between batches.

    Parameters
    ----------
    schema : TableSchema
    random : Random
    engines : sequence of Engine
        Without arcs or tables.
    """

    def __init__(self, schema: TableSchema, random: Random, engines: Sequence[Any]) -> None:
        cuts = sorted({random.randrange(1, RING_MAX) for _ in engines})
        arcs = [KeyRange(a, b - 1) for a, b in pairwise([0, *cuts, RING_MAX + 1])]
        owners = [[random.randrange(len(engines))] for _ in arcs]
        super().__init__(list(engines), arcs, owners, name="moving")
        self.schema = schema
        self.random = random
        self.copies: list[Copying] = []
        self.counted = Counted()
        self._state_arcs()
        for engine in self.engines:
            engine.create_table(schema)

    def _state_arcs(self) -> None:
        """Tell every engine its arcs, sometimes by way of others."""
        held = [
            [arc for arc, owners in zip(self.arcs, self.owners, strict=True) if number in owners]
            for number in range(len(self.engines))
        ]
        for number, (engine, arcs) in enumerate(zip(self.engines, held, strict=True)):
            if self.arcs_of and self.arcs_of[number] == arcs:
                continue
            if self.random.random() < 0.3:
                engine.set_arcs(joined(arcs))
            engine.set_arcs(arcs)
        self.arcs_of = held

    def execute(self, operations: Sequence[Operation]) -> list[Answer]:
        """Move something, and execute a batch."""
        for copying in list(self.copies):
            self._advance(copying)
        for step in (self._begin, self._cut, self._join):
            if self.random.random() < 0.4:
                step()
        self._state_arcs()
        answers = super().execute(operations)
        writes = [operation for operation in operations if operation.shape.kind is not Kind.READ]
        for copying in self.copies:
            if writes:
                copying.log.append(as_entries(writes, self.random))
        return answers

    def _begin(self) -> None:
        place = self.random.randrange(len(self.arcs))
        arc, owners = self.arcs[place], self.owners[place]
        busy = {copying.receiver for copying in self.copies if meet(copying.key_range, arc)}
        free = [number for number in range(len(self.engines)) if number not in busy and number not in owners]
        if not free or len(self.copies) >= 3:
            return
        sender, receiver = self.random.choice(owners), self.random.choice(free)
        engine = self.engines[sender]
        image = engine.image((arc,))
        beside = self.engines[receiver].beside(self._pieces_of(arc))
        keeps = len(owners) == 1 and self.random.random() < 0.4
        digest = engine.digest(self.schema.id, arc)
        assert image.n_rows == engine.weigh((arc,))[0] == digest_rows(digest)
        self.copies.append(Copying(sender, receiver, arc, keeps, image, beside, digest))
        self.counted.copies += 1

    def _pieces_of(self, arc: KeyRange) -> list[KeyRange]:
        """Give an arc in one or two."""
        if arc.low == arc.high or self.random.random() < 0.5:
            return [arc]
        middle = self.random.randrange(arc.low, arc.high)
        return [KeyRange(arc.low, middle), KeyRange(middle + 1, arc.high)]

    def _advance(self, copying: Copying) -> None:
        if copying.n_taken < copying.image.n_pieces:
            for _ in range(self.random.choice((0, 1, 2, copying.image.n_pieces))):
                if copying.n_taken < copying.image.n_pieces:
                    self._take_in(copying)
            return
        assert combine(copying.digests) == copying.digest
        for _ in range(self.random.choice((0, 1, 2, len(copying.log)))):
            if copying.log:
                copying.beside.execute(copying.log.pop(0))
                self.counted.replayed += 1
        if self.random.random() < 0.1:
            copying.image.close()
            self.copies.remove(copying)
            self.counted.dropped += 1
        elif not copying.log:
            self._adopt(copying)

    def _take_in(self, copying: Copying) -> None:
        piece = travelled(copying.image.piece(copying.n_taken))
        copying.digests.append(digest_columns(piece.columns[: len(self.schema.columns)]))
        copying.beside.take_in(piece)
        self.counted.pieces += 1

    def _adopt(self, copying: Copying) -> None:
        self.engines[copying.receiver].adopt(copying.beside)
        # What it holds now is no cut of the layout's; that is put right before the next batch.
        self.arcs_of[copying.receiver] = []
        copying.image.close()
        self.copies.remove(copying)
        self.counted.adopted += 1
        for arc, owners in zip(self.arcs, self.owners, strict=True):
            if meet(arc, copying.key_range):
                owners.append(copying.receiver)
                if not copying.keeps and copying.sender in owners:
                    owners.remove(copying.sender)
                self.random.shuffle(owners)

    def _cut(self) -> None:
        place = self.random.randrange(len(self.arcs))
        low, high = self.arcs[place]
        if low < high and len(self.arcs) < 12:
            middle = self.random.choice((low, high - 1, self.random.randrange(low, high)))
            self.arcs[place : place + 1] = [KeyRange(low, middle), KeyRange(middle + 1, high)]
            self.owners.insert(place, list(self.owners[place]))
            self.counted.cuts += 1

    def _join(self) -> None:
        fixed = {border for each in self.copies for border in (each.key_range.low, each.key_range.high + 1)}
        alike = [
            place
            for place in range(len(self.arcs) - 1)
            if sorted(self.owners[place]) == sorted(self.owners[place + 1])
            and self.arcs[place + 1].low not in fixed
        ]
        if alike:
            place = self.random.choice(alike)
            self.arcs[place : place + 2] = [KeyRange(self.arcs[place].low, self.arcs[place + 1].high)]
            del self.owners[place + 1]
            self.counted.joins += 1


def digest_rows(digest: bytes) -> int:
    """Give how many rows a digest is of."""
    return int.from_bytes(digest[16:24], "little")


def meet(left: KeyRange, right: KeyRange) -> bool:
    """Say whether two ranges have a position in common."""
    return left.low <= right.high and right.low <= left.high


def joined(arcs: Sequence[KeyRange]) -> list[KeyRange]:
    """Put arcs together that lie side by side."""
    found: list[KeyRange] = []
    for arc in arcs:
        if found and found[-1].high + 1 == arc.low:
            arc = KeyRange(found.pop().low, arc.high)
        found.append(arc)
    return found


Maker = Callable[[], Any]
