"""Pinned tables show what they had when they were pinned, whatever happens to them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from crescando.engine import holding, pieces, reader
from crescando.engine import pinned as pins
from crescando.engine import table as tables
from crescando.engine.base import PinnedRead, PinnedTables, ReadFault
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.segment import Still
from crescando.engine.statement import ColumnRef, Kind, Operation, Projection, Shape, Term
from crescando.engine.table import Table
from crescando.errors import StatementError
from crescando.schema import DataType, TableSchema
from crescando.types import FULL_RING, KeyRange
from tests.engine.differential import CLIENTS, bag
from tests.engine.evolving import Evolving
from tests.engine.workbench import Bench, apply, par, table

N_ROUNDS = 16


@dataclass
class Read:
    """A read that a pin is asked some rounds later, and what an engine of the other kind answered at once."""

    shape: Shape
    parameters: tuple[Any, ...]
    key_range: KeyRange
    n_strips: int
    rows: list[tuple[Any, ...]] | None
    key: tuple[Any, ...]
    """If it fails: the key that is told."""


@dataclass
class Pinned:
    pin: PinnedTables
    reads: list[Read]
    rounds: int


class Pinning(Evolving):
    """Tables that evolve and move, of which pins are taken."""

    def __init__(self, seed: int, kind: str) -> None:
        self.pinned: list[Pinned] = []
        super().__init__(seed, kind)
        self.counts |= {"pinned": 0, "rows": 0, "faults": 0, "pieces": 0}

    def round(self) -> None:
        self._look_at_pins()
        super().round()
        self._pin()

    def _pin(self) -> None:
        random = self.random
        number = random.randrange(len(self.moving.engines))
        arcs = self.moving.arcs_of[number]
        if not arcs or random.random() < 0.2:
            return
        schemas = random.sample(self.schemas, random.randint(1, len(self.schemas)))
        pin = self.moving.engines[number].pin([schema.id for schema in schemas])
        assert {schema.id for schema in pin.schemas} == {schema.id for schema in schemas}
        reads = [self._pinned_read(random.choice(schemas), random.choice(arcs)) for _ in range(4)]
        self.pinned.append(Pinned(pin, reads, random.choice((0, 1, 4, 12))))

    def _pinned_read(self, schema: TableSchema, arc: KeyRange) -> Read:
        random = self.random
        key_range = arc
        if random.random() < 0.5:
            low = random.randint(arc.low, arc.high)
            key_range = KeyRange(low, random.randint(low, arc.high))
        where, parameters = self._where(schema)
        columns = random.sample(schema.columns, random.randint(1, len(schema.columns)))
        outputs = tuple(Projection(c.name, ColumnRef(c.id, c.type)) for c in columns)
        shape = Shape(Kind.READ, schema.id, schema.version, where, outputs)
        self._position += 1
        scope = (key_range,)
        operation = Operation(self._position, CLIENTS[0], self._position, shape, parameters, scope)
        (results,) = self.still.execute([operation])
        rows: list[tuple[Any, ...]] | None = None
        key: tuple[Any, ...] = ()
        if results.failed:
            key = results.failed[0].key
        else:
            rows = [
                row for each in results.rows for row in zip(*(c.to_list() for c in each.columns), strict=True)
            ]
        n_strips = min(random.choice((1, 2, 7, 50)), key_range.high - key_range.low + 1)
        return Read(shape, parameters, key_range, n_strips, rows, key)

    def _where(self, schema: TableSchema) -> tuple[Term | None, tuple[Any, ...]]:
        random = self.random
        if random.random() < 0.2:
            return None, ()
        where, low, high = self._keys(schema)
        if random.random() < 0.3:
            # A key that is divisible fails the read.
            key = ColumnRef(schema.columns[0].id, DataType.INT64)
            rest = apply("%", key, par(0, DataType.INT64))
            quotient = apply("div", par(1, DataType.INT64), rest)
            below = apply("<", key, par(3, DataType.INT64))
            where = apply("and", below, apply(">", quotient, par(2, DataType.INT64)))
            return where, (40, 100, random.randrange(-50, 50), random.choice((40, 100, 500)))
        texts = [column for column in schema.columns if column.type is DataType.STRING]
        if texts and random.random() < 0.5:
            column = ColumnRef(random.choice(texts).id, DataType.STRING)
            return apply(">=", column, par(0, DataType.STRING)), (f"{random.randrange(16):x}",)
        return where, (low, high)

    def _look_at_pins(self) -> None:
        for each in list(self.pinned):
            each.rounds -= 1
            if each.rounds > 0:
                continue
            self.pinned.remove(each)
            for read in each.reads:
                self._look_at_pin(each.pin, read)
            each.pin.close()
            self.counts["pinned"] += 1

    def _look_at_pin(self, pin: PinnedTables, read: Read) -> None:
        found = read_all(pin, read, self.random.choice((1, 300, 1 << 20)))
        if read.rows is None:
            assert isinstance(found, ReadFault)
            assert repr(found.key) == repr(read.key)
            self.counts["faults"] += 1
            return
        assert not isinstance(found, ReadFault)
        assert bag([row for rows in found for row in rows]) == bag(read.rows)
        self.counts["rows"] += len(read.rows)
        self.counts["pieces"] += len(found)


def read_all(pin: PinnedTables, read: Read, bytes_max: int) -> list[list[tuple[Any, ...]]] | ReadFault:
    """Give all rows of a read of a pin, piece by piece."""
    pinned = pin.read(read.shape, read.parameters, read.key_range, read.n_strips)
    for _ in range(10_000):
        if pinned.look():
            break
    pieces: list[list[tuple[Any, ...]]] = []
    strip = offset = 0
    while strip < read.n_strips:
        given = pinned.give(strip, offset, bytes_max)
        if isinstance(given, ReadFault):
            return given
        assert given.names == tuple(each.name for each in read.shape.projections)
        pieces.append(list(zip(*(column.to_list() for column in given.columns), strict=True)))
        assert (given.strip, given.offset) > (strip, offset), "it does not get on"
        strip, offset = given.strip, given.offset
    return pieces


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what happens to many rows happen to few."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_048)
    monkeypatch.setattr(pins, "LOOK_ROWS", 8)
    monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 4)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 64)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MIN", 16)


def evolve(seed: int, kind: str, n_rounds: int = N_ROUNDS) -> Pinning:
    world = Pinning(seed, kind)
    for _ in range(n_rounds):
        world.round()
    return world


@pytest.mark.parametrize(("chunk", "kind"), [(0, "scan"), (1, "scan"), (0, "kv")])
@pytest.mark.usefixtures("small")
def test_pins_show_what_they_had(chunk: int, kind: str, kernels_in_turn: str) -> None:
    worlds = [evolve(seed, kind) for seed in range(810_000 + 3 * chunk, 810_003 + 3 * chunk)]
    total = {name: sum(world.counts[name] for world in worlds) for name in worlds[0].counts}
    print(f"on kernels of {kernels_in_turn}: {total}")
    assert min(total[name] for name in ("alter", "pinned", "rows", "faults", "pieces")) >= 2, total


Plant = Callable[[pytest.MonkeyPatch], None]


def _plant_shared_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes go into arrays that a still has."""
    monkeypatch.setattr(Still, "has", lambda self, array: False)


def _plant_later_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin the live segments instead of stills."""
    monkeypatch.setattr(Table, "still", lambda self: (self, []))


def _plant_lost_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a strip anew where it went on."""
    give = pins.ScanPinnedRead.give
    monkeypatch.setattr(
        pins.ScanPinnedRead, "give", lambda self, strip, offset, n: give(self, strip, offset // 2, n)
    )


def _plant_wrong_strip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the range where its arc is cut."""
    monkeypatch.setattr(pins, "cover_arc", lambda scope, arc: 1)


@pytest.mark.parametrize(
    "plant", [_plant_shared_writes, _plant_later_rows, _plant_lost_offset, _plant_wrong_strip]
)
@pytest.mark.usefixtures("small")
def test_what_is_planted_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(820_000, 820_020):
        try:
            evolve(seed, "scan")
        except Exception as error:  # noqa: BLE001  # Whatever it was, it was noticed.
            print(f"seed {seed}: {type(error).__name__}")
            return
    pytest.fail("twenty seeds did not show it")


@pytest.mark.parametrize("make", [lambda: ScanEngine(64), KvEngine])
def test_what_cannot_be_given_strip_by_strip_is_refused(make: Callable[[], Any]) -> None:
    bench = Bench(table(("v", DataType.INT64)))
    engine = make()
    engine.set_arcs([FULL_RING])
    engine.create_table(bench.schema)
    pin = engine.pin([1])
    plain = bench.read_shape(None)
    assert pin.read(plain, (), FULL_RING, 3).look() in (False, True)
    write = Shape(Kind.DELETE, 1, 1)
    for shape, key_range, n_strips in (
        (write, FULL_RING, 1),
        (bench.read_shape(apply("=", bench.col("k"), par(0, DataType.INT64))), FULL_RING, 1),
        (plain, FULL_RING, 0),
        (plain, KeyRange(5, 4), 1),
        (plain, KeyRange(5, 6), 3),
    ):
        with pytest.raises(StatementError):
            pin.read(shape, (), key_range, n_strips)
    other = Shape(Kind.READ, 2, 1, None, plain.projections)
    with pytest.raises(StatementError, match="not pinned"):
        pin.read(other, (), FULL_RING, 1)


def test_memory_that_a_pin_keeps_is_told_and_freed() -> None:
    bench = Bench(table(("v", DataType.INT64)))
    bench.load(*((k, k) for k in range(5_000)))
    assert bench.engine.statistics()["pinned_bytes"] == 0
    pin = bench.engine.pin([1])
    assert bench.engine.statistics()["pinned_bytes"] == 0, "nothing was written since"
    before = bench.engine.statistics()["bytes"]
    bench.write(bench.operation(bench.update_shape(None, v=par(0, DataType.INT64)), 7))
    assert bench.engine.statistics()["pinned_bytes"] == 5_000 * 2
    assert bench.engine.statistics()["bytes"] == before + 5_000 * 2
    pin.close()
    assert bench.engine.statistics()["pinned_bytes"] == 0


def test_texts_longer_than_most_make_shorter_pieces() -> None:
    bench = Bench(table(("s", DataType.STRING)))
    bench.load(*((k, "x" * (200_000 if k % 50 == 0 else 1)) for k in range(2_000)))
    pin = bench.engine.pin([1])
    read = Read(bench.read_shape(None), (), FULL_RING, 4, None, ())
    found = read_all(pin, read, 4 << 20)
    assert not isinstance(found, ReadFault)
    assert sum(map(len, found)) == 2_000
    assert max(sum(len(text) for _, text in rows) for rows in found) < 10 << 20
    assert len(found) >= 2


def test_a_long_text_that_many_rows_share_fails_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one of many texts, so that the mean says nothing of it."""
    monkeypatch.setattr(reader, "ANSWER_BYTES_MAX", 1 << 20)
    bench = Bench(table(("s", DataType.STRING)))
    bench.load(*((k, "x" * 20_000 if k % 5 == 0 else f"{k}") for k in range(1_000)))
    pin = bench.engine.pin([1])
    read = Read(bench.read_shape(None), (), FULL_RING, 4, None, ())
    found = read_all(pin, read, 4 << 20)
    assert not isinstance(found, ReadFault)
    assert sum(map(len, found)) == 1_000
    assert len(found) > 1


def test_positions_at_the_end_of_the_ring_are_in_the_last_strip() -> None:
    position = np.array([0, (1 << 64) - 1], np.uint64)
    assert [pins.strip_of(int(at), FULL_RING, 7) for at in position] == [0, 6]


def test_a_read_goes_on_where_it_was_though_its_rows_are_found_by_another_path() -> None:
    bench = Bench(table(("s", DataType.STRING)))
    texts = ["aa", "ab", "ac"]
    bench.load(*((k, texts[k % 3]) for k in range(240)))
    pin = bench.engine.pin([1])
    column = bench.col("s")
    where = apply("and", apply(">=", column, par(0, column.type)), apply("<", column, par(1, column.type)))
    shape = bench.read_shape(where)

    def begin() -> PinnedRead:
        read = pin.read(shape, ("a", "b"), FULL_RING, 1)
        while not read.look():
            pass
        return read

    given = begin().give(0, 0, 400)
    assert not isinstance(given, ReadFault)
    assert given.offset
    # New texts of the live table, in the range that is asked for, are in the pool of the pinned one.
    bench.load(*((1_000 + k, f"a{k:03d}") for k in range(200)))
    rest = begin().give(0, given.offset, 1 << 20)
    assert not isinstance(rest, ReadFault)
    keys = [*given.columns[0].to_list(), *rest.columns[0].to_list()]
    assert sorted(keys) == list(range(240))
