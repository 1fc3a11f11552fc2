"""Images share arrays until they must not, and pieces have a size; engines beside leave nothing behind."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.engine import holding, pieces
from crescando.engine import table as tables
from crescando.engine.base import Image
from crescando.engine.counted import Counted
from crescando.engine.digest import combine, digest_columns
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Column, Kind, Shape
from crescando.errors import InvariantError
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.moves import travelled
from tests.engine.workbench import Bench, apply, par
from tests.engine.workbench import table as declare

INT64, STRING = DataType.INT64, DataType.STRING
LOW, HIGH = KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX)


def loaded(n_rows: int = 1_000, text: str = "text {}") -> Bench:
    bench = Bench(declare(("x", INT64), ("s", STRING)))
    bench.load(*((k, k, text.format(k)) for k in range(n_rows)))
    return bench


def digest_of(image: Image, n_columns: int = 3) -> bytes:
    found = (travelled(image.piece(place)) for place in range(image.n_pieces))
    return combine([digest_columns(piece.columns[:n_columns]) for piece in found])


def change(bench: Bench, low: int, high: int, **values: Any) -> None:
    k = bench.col("k")
    where = apply("and", apply(">=", k, par(0, INT64)), apply("<", k, par(1, INT64)))
    assigned = {name: par(2, bench.col(name).type) for name in values}
    bench.write(bench.operation(bench.update_shape(where, **assigned), low, high, *values.values()))


def remove(bench: Bench, low: int, high: int) -> None:
    k = bench.col("k")
    where = apply("and", apply(">=", k, par(0, INT64)), apply("<", k, par(1, INT64)))
    bench.write(bench.operation(Shape(Kind.DELETE, 1, 1, where), low, high))


class TestSharing:
    def test_an_array_is_copied_when_it_is_first_changed_and_only_then(self) -> None:
        bench = loaded()
        (segment,) = bench.engine._tables[1].segments[0]
        image = bench.engine.image((FULL_RING,))
        before = dict(segment.data)
        wanted = bench.engine.digest(1, FULL_RING)

        bench.load(*((k, k, "new") for k in range(2_000, 2_010)))
        plain = {i: lane for i, lane in before.items() if not isinstance(lane, Counted)}
        assert plain
        assert all(segment.data[i] is lane for i, lane in plain.items())
        change(bench, 5, 6, x=-1)
        copied = segment.data[bench.col("x").column]
        assert copied is not before[bench.col("x").column]
        change(bench, 6, 9, x=-2)
        assert segment.data[bench.col("x").column] is copied
        assert segment.data[0] is before[0]
        assert digest_of(image) == wanted

    def test_a_closed_image_lets_writes_go_in_place(self) -> None:
        bench = loaded()
        (segment,) = bench.engine._tables[1].segments[0]
        x = bench.col("x").column
        kept, closed = (bench.engine.image((FULL_RING,)) for _ in range(2))
        array = segment.data[x]
        closed.close()
        change(bench, 5, 6, x=-1)
        assert segment.data[x] is not array
        kept.close()
        again = bench.engine.image((FULL_RING,))
        again.close()
        array = segment.data[x]
        change(bench, 6, 7, x=-1)
        assert segment.data[x] is array
        with pytest.raises(InvariantError, match="open image"):
            closed.piece(0)

    def test_an_image_that_nobody_has_is_no_hindrance(self) -> None:
        bench = loaded()
        (segment,) = bench.engine._tables[1].segments[0]
        x = bench.col("x").column
        image = bench.engine.image((FULL_RING,))
        array = segment.data[x]
        gone = weakref.ref(image)
        gc.disable()
        try:
            del image
            assert gone() is None
            change(bench, 6, 7, x=-1)
            assert segment.data[x] is array
        finally:
            gc.enable()

    def test_what_only_images_keep_is_counted_once(self) -> None:
        bench = loaded()
        before = bench.engine.statistics()["bytes"]
        images = [bench.engine.image((FULL_RING,)) for _ in range(2)]
        assert bench.engine.statistics()["bytes"] == before
        change(bench, 0, 1_000, x=-1)
        assert bench.engine.statistics()["bytes"] == before + 2 * 1_000  # Such numbers lie in two bytes.
        bench.engine.drop_table(1)
        assert bench.engine.statistics()["bytes"] >= 1_000 * (2 + 2)
        for image in images:
            image.close()
        assert bench.engine.statistics()["bytes"] == 0

    def test_many_images_show_each_its_own_moment(self) -> None:
        bench = loaded(300)
        images = []
        for turn in range(12):
            images.append((bench.engine.image((FULL_RING,)), bench.engine.digest(1, FULL_RING)))
            change(bench, turn * 20, turn * 20 + 30, s=f"turn {turn}")
            remove(bench, turn * 25, turn * 25 + 10)
            bench.load(*((1_000 + 10 * turn + k, k, f"{turn}") for k in range(10)))
            if turn % 4 == 3:
                image, wanted = images.pop(turn % 3)
                assert digest_of(image) == wanted
                image.close()
        assert all(digest_of(image) == wanted for image, wanted in images)


class TestPieces:
    def test_they_weigh_about_what_they_should(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 16)
        bench = loaded(4_000, "{:0100d}")
        image = bench.engine.image((FULL_RING,))
        sizes = [image.piece(place).n_bytes for place in range(image.n_pieces)]

        assert digest_of(image) == bench.engine.digest(1, FULL_RING)
        assert max(sizes) <= 1.3 * (1 << 16)
        assert min(sizes[:-1]) >= 0.5 * (1 << 16)
        assert 0.5 * sum(sizes) <= image.n_bytes <= 2 * sum(sizes)
        assert 0.5 * sum(sizes) <= bench.engine.weigh((FULL_RING,))[1] <= 2 * sum(sizes)

    def test_long_texts_among_short_ones_do_not_make_them_heavy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 15)
        bench = loaded(4_000)
        # All of them lie together.
        bench.load(*((k, k, f"{k}" * 700) for k in range(4_000, 4_100)))
        image = bench.engine.image((FULL_RING,))
        found = [image.piece(place) for place in range(image.n_pieces)]

        assert max(piece.n_bytes for piece in found) <= (pieces.UNEVEN + 1) << 15
        assert sum(len(piece.position) for piece in found) == image.n_rows == 4_100
        assert digest_of(image) == bench.engine.digest(1, FULL_RING)

    def test_a_text_that_all_rows_have_travels_once_in_each(self) -> None:
        bench = Bench(declare(("x", INT64), ("s", STRING)))
        long = "x" * (1 << 20)
        bench.load(*((k, k, long if k % 2 else None) for k in range(5_000)))
        image = bench.engine.image((FULL_RING,))

        assert image.n_pieces == 1
        (column,) = image.piece(0).columns[2:]
        assert len(column.texts) == 1
        assert digest_of(image) == bench.engine.digest(1, FULL_RING)

    def test_rows_of_many_small_segments_share_a_piece(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 256)
        bench = loaded(5_000)
        assert len(bench.engine._tables[1].segments[0]) > 10
        assert bench.engine.image((FULL_RING,)).n_pieces == 1

    def test_only_rows_of_the_scope_are_given(self) -> None:
        bench = loaded()
        scope = (KeyRange(0, RING_MAX // 5), KeyRange(RING_MAX // 3, RING_MAX // 2))
        remove(bench, 100, 300)
        image = bench.engine.image(scope)
        assert digest_of(image) == combine([bench.engine.digest(1, each) for each in scope])
        assert bench.engine.weigh(scope)[0] == image.n_rows
        assert bench.engine.image(()).n_pieces == 0

    @pytest.mark.parametrize("engine", [ScanEngine(), KvEngine()])
    def test_ranges_that_are_not_held_are_refused(self, engine: Any) -> None:
        engine.set_arcs([LOW])
        with pytest.raises(InvariantError, match="does not lie in the arcs"):
            engine.image((KeyRange(5, LOW.high + 1),))


class TestBeside:
    def test_one_that_is_dropped_leaves_no_rows_and_lets_texts_be_collected(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 16)
        source = loaded(2_000, "moved {}")
        bench = loaded(100)
        bench.engine.set_arcs([LOW])
        bench.engine.execute([bench.operation(bench.read_shape(None))])
        beside = bench.engine.beside([HIGH])
        image = source.engine.image((HIGH,))
        for place in range(image.n_pieces):
            beside.take_in(travelled(image.piece(place)))
        stored = bench.engine._tables[1]
        assert len(stored.pools[3 - 1]) > 900
        assert beside.statistics()["rows"] == image.n_rows
        assert beside.statistics()["bytes"] < image.n_bytes
        remove(bench, 0, 60)
        bench.read(None)
        assert len(stored.pools[2]) > 900
        gone = [weakref.ref(beside), weakref.ref(beside._tables[1])]
        gc.disable()
        try:
            del beside
            assert [each() for each in gone] == [None, None]
        finally:
            gc.enable()
        before = bench.engine.digest(1, LOW)
        bench.read(None)
        assert len(stored.pools[2]) < 100
        assert bench.engine.digest(1, LOW) == before

    def test_texts_are_shared_and_collected_again_after_adoption(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 16)
        bench = loaded(1_000)
        image = bench.engine.image((HIGH,))
        wanted = [bench.engine.digest(1, arc) for arc in (LOW, HIGH)]
        bench.engine.set_arcs([LOW])
        beside = bench.engine.beside([HIGH])
        assert beside._tables[1].pools[2] is bench.engine._tables[1].pools[2]
        for place in range(image.n_pieces):
            beside.take_in(travelled(image.piece(place)))
        bench.engine.adopt(beside)
        assert [bench.engine.digest(1, arc) for arc in (LOW, HIGH)] == wanted
        remove(bench, 10, 1_000)
        # As when as many again have come.
        bench.engine._tables[1]._pool_sizes.clear()
        bench.read(None)
        assert len(bench.engine._tables[1].pools[2]) < 20

    def test_columns_and_tables_may_come_and_go_meanwhile(self) -> None:
        bench = loaded(100)
        first = bench.schema
        bench.engine.set_arcs([LOW])
        beside = bench.engine.beside([HIGH])
        added = ColumnDef("t", STRING, True, 4)
        second = msgspec.structs.replace(first, columns=(*first.columns[:2], added), version=2)
        other = TableSchema("u", (ColumnDef("k", INT64, False), ColumnDef("s", STRING)), "k", ()).with_ids(2)
        changed = msgspec.structs.replace(other, columns=other.columns[:1], version=2)

        bench.engine.alter_table(second)
        bench.engine.create_table(other)
        bench.engine.alter_table(changed)
        with pytest.raises(InvariantError, match="has not caught up: it has other tables"):
            bench.engine.adopt(beside)
        beside.create_table(other)
        with pytest.raises(InvariantError, match="schemas differ"):
            bench.engine.adopt(beside)
        # A column that the main engine has dropped already has texts of its own.
        assert 2 not in bench.engine._tables[2].pools
        beside.alter_table(second)
        assert beside._tables[1].pools[4] is bench.engine._tables[1].pools[4]
        with pytest.raises(InvariantError, match="schemas differ"):
            bench.engine.adopt(beside)
        beside.alter_table(changed)
        bench.engine.adopt(beside)
        assert bench.engine._arcs == (LOW, HIGH)

    @pytest.mark.parametrize("make", [ScanEngine, KvEngine])
    def test_only_what_was_made_beside_is_adopted_and_once(self, make: Any) -> None:
        engine = make()
        engine.set_arcs([LOW])
        beside = engine.beside([HIGH])
        for stranger in (make(), make().beside([HIGH]), engine):
            with pytest.raises(InvariantError, match="made beside it"):
                engine.adopt(stranger)
        with pytest.raises(InvariantError, match="none beside itself"):
            beside.beside([LOW])
        with pytest.raises(InvariantError, match="disjoint"):
            engine.adopt(engine.beside([KeyRange(5, 6)]))
        engine.adopt(beside)
        with pytest.raises(InvariantError, match="made beside it"):
            engine.adopt(beside)


@pytest.mark.parametrize("make", [ScanEngine, KvEngine])
class TestTakingIn:
    def made(self, make: Any) -> Any:
        bench = loaded(50)
        engine = make()
        engine.set_arcs([LOW, HIGH])
        engine.create_table(bench.schema)
        return engine, bench.engine.image((FULL_RING,)).piece(0)

    def test_a_piece_is_taken_in_as_it_was(self, make: Any) -> None:
        engine, piece = self.made(make)
        engine.take_in(piece)
        assert combine([engine.digest(1, LOW), engine.digest(1, HIGH)]) == digest_columns(piece.columns)

    def test_pieces_that_do_not_fit_are_refused_whole(self, make: Any) -> None:
        engine, piece = self.made(make)
        k, x, s = piece.columns

        def other(**changes: Any) -> Any:
            return msgspec.structs.replace(piece, **changes)

        torn = Column(STRING, s.values + 1, None, s.dictionary)
        for malformed, text in (
            (other(version=2), "follows version 2"),
            (other(table=9), "does not exist"),
            (other(columns=(k, x)), "2 columns of 3"),
            (other(columns=(k, s, x)), "'x' of another type"),
            (other(position=piece.position[1:]), "type or length"),
            (other(position=piece.position.astype(np.int64)), "ring positions"),
            (other(columns=(k, x, torn)), "outside its dictionary"),
        ):
            with pytest.raises(InvariantError, match=text):
                engine.take_in(malformed)
        engine.set_arcs([LOW])
        with pytest.raises(InvariantError, match="outside the arcs"):
            engine.take_in(piece)
        assert engine.statistics()["rows"] == 0


class TestCutting:
    def test_arcs_that_stay_keep_their_segments(self) -> None:
        bench = loaded()
        bench.engine.set_arcs([LOW, HIGH])
        low, high = (list(arc) for arc in bench.engine._tables[1].segments)
        middle = HIGH.low + HIGH.low // 2
        parts = [KeyRange(HIGH.low, middle), KeyRange(middle + 1, RING_MAX)]

        bench.engine.set_arcs([LOW, *parts])
        assert bench.engine._tables[1].segments[0] == low
        assert [segment.arc for arc in bench.engine._tables[1].segments for segment in arc] == [0, 1, 2]
        pieces_of_high = [segment for arc in bench.engine._tables[1].segments[1:] for segment in arc]
        assert sum(segment.n_rows for segment in pieces_of_high) == sum(segment.n_rows for segment in high)
        bench.engine.set_arcs([HIGH])
        assert bench.engine._tables[1].segments == [pieces_of_high]
        assert {segment.arc for segment in pieces_of_high} == {0}

    def test_rows_are_divided_a_segment_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 512)
        monkeypatch.setattr(holding, "SMALL_ROWS", 0)
        tracemalloc.start()
        try:
            bench = Bench(declare(*((f"x{place}", INT64) for place in range(40))))
            for first in range(0, 10_000, 500):
                bench.load(*((k, *range(40)) for k in range(first, first + 500)))
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            bench.engine.set_arcs([LOW, HIGH])
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert before > bench.engine.statistics()["bytes"]
        assert most < 1.25 * before
        assert bench.engine.statistics()["rows"] == 10_000

    def test_what_is_dropped_is_given_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 16)
        bench = loaded(5_000, "{:0200d}")
        other = declare().with_ids(2)
        bench.engine.create_table(other)
        bench.read(None)
        before = bench.engine.statistics()["bytes"]
        quarter = KeyRange(0, RING_MAX // 4)
        bench.engine.set_arcs([quarter])
        assert 1_000 < bench.engine.statistics()["rows"] < 1_500
        # The texts go with the next batches, whatever these ask for.
        shape = Shape(Kind.DELETE, 2, 1, None)
        for _ in range(2):
            bench.engine.execute([bench.operation(shape)])
        assert bench.engine.statistics()["bytes"] < 0.3 * before
        # A process on standby is asked nothing.
        bench.engine.set_arcs([])
        assert bench.engine.statistics()["bytes"] < 0.001 * before
        bench.engine.set_arcs([FULL_RING])
        bench.load((1, 1, "again"))
        assert bench.read(None) == [(1, 1, "again")]
