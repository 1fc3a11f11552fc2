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
from crescando.engine.arcs import lie_in
from crescando.engine.base import Image, Piece
from crescando.engine.digest import combine, digest_columns
from crescando.engine.loads import LoadStep
from crescando.engine.operations import Entry
from crescando.engine.statement import Kind, Operation
from crescando.schema import TableSchema
from crescando.types import RING_MAX, KeyRange, Scope
from tests.engine.differential import Answer, Layout
from tests.engine.runs import as_entries

Action = Callable[[Any], Any]
"""What is done to an engine."""

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
    told: Told
    schemas: dict[int, TableSchema]
    n_taken: int = 0
    log: list[Action] = field(default_factory=list)
    """What the receiver has executed since and the engine beside it has not."""


@dataclass
class Told:
    """What an image must give: the digest of each table's rows in its scope when it was taken."""

    scope: Scope
    wanted: dict[int, bytes]
    n_staged_wanted: int = 0
    """Rows that loads had staged."""
    n_staged: int = 0
    found: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, piece: Piece, schema: TableSchema) -> None:
        """Note a piece."""
        assert piece.version == schema.version
        n_hidden = 0 if schema.primary_key else 2
        assert len(piece.position)
        if piece.load:
            self.n_staged += len(piece.position)
            assert lie_in(piece.position, self.scope).all()
            return
        assert len(piece.columns) == len(schema.columns) + n_hidden
        assert lie_in(piece.position, self.scope).all()
        digest = digest_columns(piece.columns[: len(schema.columns)])
        self.found.setdefault(piece.table, []).append(digest)

    def check(self) -> None:
        """Compare all pieces with what was there."""
        for table, wanted in self.wanted.items():
            assert combine(self.found.get(table, [])) == wanted, f"table {table} was not imaged as it was"
        assert self.found.keys() <= self.wanted.keys()
        assert self.n_staged == self.n_staged_wanted, "staged rows were not imaged as they were"


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
    """Engines that hand ranges to one another between batches.

    Parameters
    ----------
    schemas : sequence of TableSchema
    random : Random
    engines : sequence of Engine
        Without arcs or tables.
    """

    def __init__(self, schemas: Sequence[TableSchema], random: Random, engines: Sequence[Any]) -> None:
        cuts = sorted({random.randrange(1, RING_MAX) for _ in engines})
        arcs = [KeyRange(a, b - 1) for a, b in pairwise([0, *cuts, RING_MAX + 1])]
        owners = [[random.randrange(len(engines))] for _ in arcs]
        super().__init__(list(engines), arcs, owners, name="moving")
        self.schemas: dict[int, TableSchema] = {}
        self.random = random
        self.copies: list[Copying] = []
        self.counted = Counted()
        self._state_arcs()
        for schema in schemas:
            self.create(schema)

    def create(self, schema: TableSchema) -> None:
        """Make a table everywhere."""
        self.schemas[schema.id] = schema
        self._everywhere(lambda engine: engine.create_table(schema))

    def alter(self, schema: TableSchema) -> None:
        """Give a table its next schema everywhere."""
        self.schemas[schema.id] = schema
        self._everywhere(lambda engine: engine.alter_table(schema))

    def drop(self, table: int) -> None:
        """Drop a table everywhere."""
        del self.schemas[table]
        self._everywhere(lambda engine: engine.drop_table(table))

    def _everywhere(self, action: Action) -> None:
        for engine in self.engines:
            action(engine)
        for copying in self.copies:
            copying.log.append(action)

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

    def execute(self, operations: Sequence[Operation | LoadStep]) -> list[Answer]:
        """Move something, and execute a batch."""
        self.move()
        answers = super().execute(operations)
        writes = [o for o in operations if isinstance(o, LoadStep) or o.shape.kind is not Kind.READ]
        for copying in self.copies if writes else ():
            copying.log.append(replaying(as_entries(writes, self.random)))
        return answers

    def move(self) -> None:
        """Take some steps."""
        for copying in list(self.copies):
            self._advance(copying)
        for step in (self._begin, self._cut, self._join):
            if self.random.random() < 0.4:
                step()
        self._state_arcs()

    def image(self, number: int, scope: Scope) -> tuple[Image, Told]:
        """Take an image of an engine."""
        engine = self.engines[number]
        image = engine.image(scope)
        wanted = {table: combine([engine.digest(table, each) for each in scope]) for table in self.schemas}
        n_staged = engine.weigh(scope)[0] - sum(map(digest_rows, wanted.values()))
        assert image.n_rows == engine.weigh(scope)[0]
        assert n_staged >= 0 if engine.statistics()["staged_rows"] else n_staged == 0
        return image, Told(scope, wanted, n_staged)

    def _begin(self) -> None:
        place = self.random.randrange(len(self.arcs))
        arc, owners = self.arcs[place], self.owners[place]
        busy = {copying.receiver for copying in self.copies if meet(copying.key_range, arc)}
        free = [number for number in range(len(self.engines)) if number not in busy and number not in owners]
        if not free or len(self.copies) >= 3:
            return
        sender, receiver = self.random.choice(owners), self.random.choice(free)
        image, told = self.image(sender, (arc,))
        beside = self.engines[receiver].beside(self._pieces_of(arc))
        keeps = len(owners) == 1 and self.random.random() < 0.4
        self.copies.append(Copying(sender, receiver, arc, keeps, image, beside, told, dict(self.schemas)))
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
        copying.told.check()
        for _ in range(self.random.choice((0, 1, 2, len(copying.log)))):
            if copying.log:
                copying.log.pop(0)(copying.beside)
                self.counted.replayed += 1
        if self.random.random() < 0.1:
            copying.image.close()
            self.copies.remove(copying)
            self.counted.dropped += 1
        elif not copying.log:
            self._adopt(copying)

    def _take_in(self, copying: Copying) -> None:
        piece = travelled(copying.image.piece(copying.n_taken))
        if piece.records is None:
            copying.told.add(piece, copying.schemas[piece.table])
        copying.beside.take_in(piece)
        copying.n_taken += 1
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
            if self.random.random() < 0.5:
                middle = self._position_in(place, middle)
            self.arcs[place : place + 1] = [KeyRange(low, middle), KeyRange(middle + 1, high)]
            self.owners.insert(place, list(self.owners[place]))
            self.counted.cuts += 1

    def _position_in(self, place: int, otherwise: int) -> int:
        """Give where a row lies, or the position below, so that it lies at a border."""
        arc = self.arcs[place]
        image = self.engines[self.owners[place][0]].image((arc,))
        at = otherwise
        if image.n_pieces:
            positions = image.piece(self.random.randrange(image.n_pieces)).position.tolist()
            at = self.random.choice(positions or [otherwise]) - self.random.randrange(2)
        image.close()
        return at if arc.low <= at < arc.high else otherwise

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


def replaying(entries: list[Entry]) -> Action:
    """Give what executes a batch once more."""
    return lambda engine: engine.execute(entries)
