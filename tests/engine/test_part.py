"""A pass in parts: nothing depends on how many there are, nor on who does them, nor when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest

from crescando.engine import cycle, parallel
from crescando.engine.base import Results, Rows
from crescando.engine.dictionary import Pool
from crescando.engine.heap import Texts
from crescando.engine.parallel import IN_TURN, Workers
from crescando.engine.part import Part
from crescando.engine.scan import ScanEngine
from crescando.engine.segment import Block
from crescando.engine.statement import Kind, Shape
from crescando.scanning import Team
from crescando.schema import DataType
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.differential import Play, Shares, one_engine, split
from tests.engine.workbench import Bench, apply, par, table

T = TypeVar("T")
INT64, STRING = DataType.INT64, DataType.STRING


class Backwards:
    """Does the last task first."""

    def __init__(self, width: int) -> None:
        self.width = width

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        return [task() for task in reversed(tasks)][::-1]


@pytest.fixture(autouse=True)
def however_little_there_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "PART_LOOKS_MIN", 1)
    monkeypatch.setattr(parallel, "VALUES_MIN", 1)


def test_a_block_that_was_scanned_keeps_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a table together would be a second table, as wide as its declared types."""
    kept: list[int] = []
    finish = cycle.Cycle.finish

    def look(self: cycle.Cycle, *arguments: Any) -> None:
        kept.extend(len(block._kept or ()) for block in blocks)
        finish(self, *arguments)

    blocks: list[Block] = []
    read = Part._read

    def reading(self: Part, block: Block, *arguments: Any) -> None:
        read(self, block, *arguments)
        assert block._kept, "a column is worked out for the block as long as it is scanned"
        blocks.append(block)

    bench = Bench(table(("v", INT64)), block_rows=64)
    bench.load(*((k, k % 9) for k in range(400)))
    shape = bench.read_shape(apply("=", apply("+", bench.col("v"), par(0, INT64)), par(1, INT64)))
    monkeypatch.setattr(cycle.Cycle, "finish", look)
    monkeypatch.setattr(Part, "_read", reading)

    assert len(bench.answer(bench.operation(shape, 1, 4))) == len(range(3, 400, 9))

    assert len(blocks) > 5
    assert kept == [0] * len(blocks)


@pytest.fixture(scope="module")
def teams() -> Iterator[dict[int, Team]]:
    teams = {width: Team(width) for width in (2, 3, 5)}
    yield teams
    for team in teams.values():
        team.close(10)


@pytest.mark.parametrize("seed", range(200_000, 200_008))
def test_random_batches_in_any_number_of_parts_equal_the_oracle(
    seed: int, kernel_set: str, teams: dict[int, Team]
) -> None:
    with closing(Play(seed, plain=False, others=())) as game:
        schema = game.world.schema
        game.layouts += [
            one_engine(schema, 64, workers=teams[2]),
            one_engine(schema, 4_096, workers=teams[3]),
            one_engine(schema, 16, workers=teams[5]),
            one_engine(schema, 64, workers=Backwards(3)),
            split(schema, Random(seed), 2, 1, 64, teams[2]),
        ]
        for _ in range(6):
            game.next_batch(Shares(), 9)


def rows_of(results: Sequence[Results]) -> Rows:
    ((rows,),) = (result.rows for result in results)
    return rows


def bench(workers: Workers, block_rows: int = 8) -> Bench:
    """Give a table of two arcs with texts, NULLs and tombstones."""
    made = Bench(table(("s", STRING), ("v", INT64)))
    made.engine = ScanEngine(block_rows, workers)
    made.engine.set_arcs([KeyRange(0, RING_MAX // 3), KeyRange(RING_MAX // 3 + 1, RING_MAX)])
    made.engine.create_table(made.schema)
    rows = [(k, None if k % 5 == 0 else f"text {k % 37}", k % 11) for k in range(500)]
    made.engine.execute([made.insert(*rows)])
    delete = Shape(Kind.DELETE, 1, 1, apply("=", made.col("v"), par(0, INT64)))
    made.engine.execute([made.operation(delete, 3)])
    return made


@pytest.mark.parametrize("workers", [Backwards(2), Backwards(7), None], ids=["2", "7", "3 threads"])
def test_rows_are_the_same_to_the_last_bit_and_in_the_same_order(
    workers: Workers | None, teams: dict[int, Team]
) -> None:
    found = []
    for each in (IN_TURN, workers or teams[3]):
        made = bench(each)
        more = apply("+", made.col("v"), par(0, INT64))
        update = made.update_shape(apply("<", made.col("k"), par(1, INT64)), v=more)
        read = made.read_shape(apply("=", made.col("v"), par(0, INT64)), "k", "s")
        batch = [
            made.operation(read, 4),
            made.operation(update, 1, 100),
            *(made.operation(read, v) for v in range(11)),
        ]
        found.append(rows_of(made.engine.execute(batch)))
    one, many = found
    assert one.offsets.tolist() == many.offsets.tolist()
    assert int(one.offsets[-1]) > 300
    for left, right in zip(one.columns, many.columns, strict=True):
        assert left.values.tobytes() == right.values.tobytes()
        assert left.texts == right.texts
        assert (left.valid is None and right.valid is None) or (left.valid == right.valid).all()  # type: ignore[union-attr]


def test_parts_have_equally_many_rows_and_miss_none() -> None:
    made = bench(IN_TURN)
    stored = made.engine._tables[1]
    for n_parts in (1, 2, 3, 7, 499, 600):
        for block_rows in (1, 7, 64, 1_000):
            parts = stored.parts(n_parts, block_rows)
            sizes = [sum(block.n_rows for block in blocks) for blocks in parts]
            whole = [(block.segment.arc, at) for part in parts for block in part for at in span(block)]
            assert whole == [(b.segment.arc, at) for b in stored.blocks(1_000) for at in span(b)]
            assert max(sizes) - min(sizes) <= 1
            assert all(0 < block.n_rows <= block_rows for part in parts for block in part)


def span(block: Block) -> range:
    return range(block.start, block.stop)


def test_an_error_in_one_part_is_raised_and_nothing_has_changed(
    monkeypatch: pytest.MonkeyPatch, teams: dict[int, Team]
) -> None:
    made = bench(teams[3])
    before = made.engine.digest(1, FULL_RING)
    column = Block.column

    def broken(self: Block, column_id: int) -> Any:
        if self.segment.arc == 1 and self.start > 100:
            raise MemoryError("no memory for this block")
        return column(self, column_id)

    update = made.update_shape(apply("=", made.col("s"), par(1, STRING)), v=par(0, INT64))
    with monkeypatch.context() as patch:
        patch.setattr(Block, "column", broken)
        with pytest.raises(MemoryError, match="this block"):
            made.engine.execute([made.operation(update, 1, "text 1")])

    assert made.engine.digest(1, FULL_RING) == before


def test_little_work_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "PART_LOOKS_MIN", 1 << 17)
    monkeypatch.setattr(parallel, "VALUES_MIN", 1 << 16)
    handed: list[int] = []

    class Watched(Backwards):
        def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
            handed.append(len(tasks))
            return super().run(tasks)

    made = bench(Watched(4))
    assert set(handed) == {1}
    monkeypatch.setattr(cycle, "PART_LOOKS_MIN", 200)
    read = made.read_shape(apply("=", made.col("v"), par(0, INT64)), "k")
    made.run(made.operation(read, 1))
    assert handed[-1] == 2


def test_threads_may_ask_a_pool_at_once_for_what_it_has_not_worked_out(kernel_set: str) -> None:
    random = np.random.default_rng(5)
    for round_ in range(20):
        texts = [f"{number:x}" for number in random.integers(0, 1 << 20, 3_000)]
        grown = Pool(texts[:1_000])
        if round_ % 2:
            grown.ranks()
        grown.intern(texts[1_000:])
        pool = grown.rebuilt(np.arange(0, len(grown), 2)) if round_ % 3 == 0 else grown
        asked = Texts.of(texts)
        meeting = threading.Barrier(4)
        found: list[Any] = []

        def ask(pool: Pool = pool, asked: Texts = asked, meeting: Any = meeting, found: Any = found) -> None:
            meeting.wait(10)
            found.append(
                (pool.ranks().tolist(), pool.find_texts(asked).tolist(), pool.places_of(asked).tolist())
            )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        ordered = sorted(range(len(pool)), key=pool.texts.to_list().__getitem__)
        assert [found[0]] * 4 == found
        assert [found[0][0][code] for code in ordered] == list(range(len(pool)))
        known = {text: code for code, text in enumerate(pool.texts.to_list())}
        assert found[0][1] == [known.get(text, -1) for text in texts]
