"""Shapes that compare one column share an index and answer as if each had its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crescando.engine.join import ColumnIndex
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.sharing import SharedJoin
from crescando.engine.statement import Kind, Operation, Projection, Shape, Term
from crescando.schema import DataType
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.reports import reports
from tests.engine.workbench import CLIENT, Bench, apply, par, table

INT64, STRING, FLOAT64 = DataType.INT64, DataType.STRING, DataType.FLOAT64
TEXTS = ("", "a", "ab", "b", "ba", "c\0", "ß")
PATTERNS = ("", "%", "a%", "a", "a_", "_a", "%a", "b%%", "c\0", "c\0%", "ß%", None)
HALF = KeyRange(0, RING_MAX // 2)


def _bench(engine: Any) -> Bench:
    bench = Bench(table(("s", STRING), ("v", INT64), ("f", FLOAT64)))
    engine.set_arcs([HALF, KeyRange(RING_MAX // 2 + 1, RING_MAX)])
    engine.create_table(bench.schema)
    bench.engine = engine
    rng = np.random.default_rng(1)
    rows = []
    for k in range(400):
        text = None if rng.random() < 0.1 else TEXTS[int(rng.integers(len(TEXTS)))]
        rows.append((k, text, int(rng.integers(50)), float(rng.integers(8)) / 2))
    engine.execute([bench.insert(*rows)])
    one = Shape(Kind.DELETE, 1, 1, apply("=", bench.col("k"), par(0, INT64)))
    engine.execute([bench.operation(one, k) for k in range(0, 400, 7)])  # Tombstones.
    return bench


def _tests(bench: Bench) -> list[tuple[Term, Any]]:
    """Give predicates whose parameters begin at 0, and what draws these."""
    column = bench.col
    equal = apply("=", column("s"), par(0, STRING))
    above, below = apply(">=", column("v"), par(0, INT64)), apply("<", column("v"), par(1, INT64))
    between = apply("and", above, below)
    risky = apply("=", apply("div", par(2, INT64), apply("-", column("v"), par(3, INT64))), par(4, INT64))
    text = lambda rng: TEXTS[int(rng.integers(len(TEXTS)))]  # noqa: E731
    number = lambda rng: int(rng.integers(50))  # noqa: E731
    return [
        (equal, lambda rng: (text(rng),)),
        (apply("in", column("s"), par(0, STRING, many=True)), lambda rng: ((text(rng), None, text(rng)),)),
        (
            apply("and", equal, apply("<", column("f"), apply("+", par(1, FLOAT64), column("v")))),
            lambda rng: (text(rng), -float(number(rng))),
        ),
        (between, lambda rng: (number(rng), number(rng))),
        (apply("and", between, apply("is_null", column("s"))), lambda rng: (number(rng), number(rng))),
        (apply("and", between, risky), lambda rng: (number(rng), number(rng), 9, number(rng), 3)),
        (apply(">", column("s"), par(0, STRING)), lambda rng: (text(rng),)),
        (apply("like", column("s"), par(0, STRING)), lambda rng: (text(rng) + "%",)),
        (
            apply("like", column("s"), par(0, STRING)),
            lambda rng: (PATTERNS[int(rng.integers(len(PATTERNS)))],),
        ),
    ]


def _operations(bench: Bench, seed: int, n: int, share_of_writes: float) -> list[Operation]:
    rng = np.random.default_rng(seed)
    tests = _tests(bench)
    reads, writes = [], []
    for where, _ in tests:
        outputs = (Projection("k", bench.col("k")), Projection("v", bench.col("v")))
        reads.append(Shape(Kind.READ, 1, 1, where, outputs))
        writes.append(bench.update_shape(where, f=apply("+", bench.col("f"), bench.col("v"))))
    found = []
    for _ in range(n):
        kind = int(rng.integers(len(tests)))
        shape = (writes if rng.random() < share_of_writes else reads)[kind]
        bench.position += 1
        at, scope = bench.position, ((HALF,) if rng.random() < 0.3 else (FULL_RING,))
        found.append(Operation(at, CLIENT, at, shape, tests[kind][1](rng), scope))
    return found


def _outcome(engine: Any, seed: int, share_of_writes: float, size: int) -> tuple[Any, ...]:
    bench = _bench(engine)
    operations = _operations(bench, seed, 120, share_of_writes)
    answers: dict[int, Any] = {}
    for start in range(0, len(operations), size):
        for results in engine.execute(operations[start : start + size]):
            for part in results.rows:
                columns = [column.to_list() for column in part.columns]
                tuples, offsets = list(zip(*columns, strict=True)), part.offsets.tolist()
                for place, number in enumerate(part.number.tolist()):
                    answers.setdefault(number, []).extend(tuples[offsets[place] : offsets[place + 1]])
            answers |= {failed.number: (failed.key, failed.text) for failed in results.failed}
            answers |= {written.number: written.counts for written in reports(results.written)}
    ordered = {n: sorted(found) if isinstance(found, list) else found for n, found in answers.items()}
    return ordered, engine.digest(1, FULL_RING)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share_of_writes", [0.0, 0.3])
def test_shapes_that_share_a_column_answer_as_alone(seed: int, share_of_writes: float) -> None:
    together = _outcome(ScanEngine(64), seed, share_of_writes, 120)
    assert together == _outcome(ScanEngine(64), seed, share_of_writes, 1)
    assert together == _outcome(KvEngine(), seed, share_of_writes, 120)


@pytest.mark.parametrize("rows_per_text", [0, 1 << 40], ids=["codes", "ranks"])
@pytest.mark.parametrize("size", [1, 120])
def test_ranges_of_texts_are_found_by_codes_as_by_ranks(
    rows_per_text: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = []
    probe = ColumnIndex.probe

    def watched(self: ColumnIndex, column: Any) -> Any:
        ranked.append(self.is_ranked)
        return probe(self, column)

    monkeypatch.setattr(ColumnIndex, "probe", watched)
    monkeypatch.setattr("crescando.engine.join._ROWS_PER_TEXT", rows_per_text)
    assert _outcome(ScanEngine(64), 3, 0.3, size) == _outcome(KvEngine(), 3, 0.3, 120)
    assert any(ranked) == (rows_per_text > 0)


def test_they_do_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare nothing."""
    sizes = []
    make = SharedJoin.__init__

    def counting(self: SharedJoin, matchers: Any, table: Any) -> None:
        sizes.append(len(matchers))
        make(self, matchers, table)

    monkeypatch.setattr(SharedJoin, "__init__", counting)
    _outcome(ScanEngine(64), 0, 0.3, 120)
    assert sum(sizes) >= 10


def test_pairs_of_the_wrong_shape_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    split = SharedJoin._split

    def planted(self: SharedJoin, rows: Any, owners: Any) -> Any:
        for group, pairs in split(self, rows, owners):
            yield self._groups[0] if len(pairs[1]) % 5 == 0 else group, pairs

    monkeypatch.setattr(SharedJoin, "_split", planted)
    alone = _outcome(ScanEngine(64), 0, 0.0, 1)
    try:
        assert _outcome(ScanEngine(64), 0, 0.0, 120) != alone
    except IndexError:
        """An operation that the other shape has not."""


def test_reads_that_give_the_same_columns_are_answered_in_one_piece_in_their_order() -> None:
    bench = _bench(ScanEngine(64))
    by_text, by_number = (
        bench.read_shape(apply("=", bench.col(name), par(0, kind)), "k", "v")
        for name, kind in (("s", STRING), ("v", INT64))
    )
    other = bench.read_shape(apply("=", bench.col("v"), par(0, INT64)), "v", "k")
    batch = []
    for number in range(20):
        batch += [bench.operation(by_text, "a"), bench.operation(by_number, number)]
        batch.append(bench.operation(other, number))
    numbers = [operation.number for operation in batch]
    alike, alone = bench.run(*batch).rows
    assert alike.number.tolist() == [number for place, number in enumerate(numbers) if place % 3 < 2]
    assert alone.number.tolist() == numbers[2::3]
    assert np.diff(alike.offsets)[1::2].tolist() == np.diff(alone.offsets).tolist()
    assert set(np.diff(alike.offsets)[::2].tolist()) == {len(bench.answer(bench.operation(by_text, "a")))}


def test_columns_of_one_name_are_not_taken_for_each_other() -> None:
    bench = _bench(ScanEngine(64))
    where = apply("<", bench.col("v"), par(0, INT64))
    shapes = [
        Shape(Kind.READ, 1, 1, where, (Projection("same", bench.col(name)),)) for name in ("k", "v", "k")
    ]
    batch = [bench.operation(shape, 25) for shape in shapes]
    expected = [sorted(bench.answer(bench.operation(shape, 25))) for shape in shapes]
    found: dict[int, list[int]] = {}
    for rows in bench.run(*batch).rows:
        for at, number in enumerate(rows.number.tolist()):
            low, high = rows.offsets[at : at + 2].tolist()
            found[number] = sorted(rows.columns[0].values[low:high].tolist())
    assert [found[operation.number] for operation in batch] == expected
