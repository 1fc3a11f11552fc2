"""Long answers in pieces: every row once, in the piece where it belongs, and none too large."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from crescando.engine import answers, cutting, reader, rowset
from crescando.engine.cutting import cut
from crescando.engine.statement import Aggregate, Kind, Shape
from crescando.schema import DataType
from tests.engine.workbench import Bench, par, table
from tests.engine.workbench import apply as applied


@pytest.mark.parametrize("seed", range(40))
def test_every_row_and_every_read_is_in_its_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(cutting, "PIECE_BYTES", random.choice((1, 5, 20, 1000)))
    lengths = [random.choice((0, 0, 1, 3, 30)) for _ in range(random.randrange(1, 9))]
    offsets = np.cumsum([0, *lengths])
    weight = np.array([random.choice((1, 2, 9)) for _ in range(sum(lengths))], np.int64)
    parts: dict[int, list[tuple[int, int]]] = {read: [] for read in range(len(lengths))}
    last_stop = 0
    going_on: tuple[int, int] | None = None
    for piece in cut(weight, offsets):
        assert piece.start == last_stop
        last_stop = piece.stop
        part = piece.part
        assert (part > 0) == (going_on is not None)
        if going_on is not None:
            assert (piece.first, part) == going_on
        for read in range(piece.first, piece.last):
            low, high = np.clip(offsets[read : read + 2], piece.start, piece.stop).tolist()
            assert len(parts[read]) == (part if read == piece.first else 0)
            parts[read].append((low, high))
        going_on = (piece.last - 1, len(parts[piece.last - 1])) if piece.has_more else None
    assert going_on is None
    assert last_stop == len(weight)
    for read, found in parts.items():
        assert sum(high - low for low, high in found) == lengths[read]
        assert found


SCHEMA = table(("s", DataType.STRING), ("n", DataType.INT64))


def loaded() -> Bench:
    bench = Bench(SCHEMA)
    bench.load(*((k, f"text {k}", k % 7) for k in range(1000)))
    return bench


def run(bench: Bench, *operations: Any) -> list[Any]:
    return bench.engine.execute(operations)


def test_long_answers_come_in_several_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cutting, answers):
        monkeypatch.setattr(module, "PIECE_BYTES", 4_000)
    bench = loaded()
    where = applied("<", bench.col("k"), par(0, DataType.INT64))
    shape = bench.read_shape(where)
    given = run(bench, bench.operation(shape, 3), bench.operation(shape, 1000), bench.operation(shape, 2))
    assert len(given) > 5
    assert all(results.n_bytes < 9_000 for results in given)
    found: dict[int, list[Any]] = {}
    for results in given:
        for rows in results.rows:
            tuples = list(zip(*(column.to_list() for column in rows.columns), strict=True))
            for place, number in enumerate(rows.number.tolist()):
                start, stop = rows.offsets[place : place + 2].tolist()
                found.setdefault(number, []).extend(tuples[start:stop])
    assert [sorted(rows) for rows in found.values()] == [
        [(k, f"text {k}", k % 7) for k in range(n)] for n in (3, 1000, 2)
    ]


def test_many_groups_come_in_several_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cutting, answers):
        monkeypatch.setattr(module, "PIECE_BYTES", 4_000)
    bench = loaded()
    aggregates = (Aggregate("max", bench.col("s"), "m"), Aggregate("sum", bench.col("n"), "t"))
    shape = Shape(Kind.READ, 1, 1, None, aggregates=aggregates, group_by=(bench.col("s"),))
    given = run(bench, bench.operation(shape))
    assert len(given) > 5
    assert sum(len(partials.keys[0]) for results in given for partials in results.partials) == 1000
    pieces = [partials for results in given for partials in results.partials]
    assert [piece.part for piece in pieces] == list(range(len(pieces)))
    assert [piece.has_more for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_a_read_over_its_budget_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = loaded()
    where = applied("<", bench.col("k"), par(0, DataType.INT64))
    shape = bench.read_shape(where)
    monkeypatch.setattr(cutting, "PIECE_BYTES", 10_000)
    for module in (rowset, reader):
        monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 10_000)
    (results,) = run(
        bench, bench.operation(shape, 3), bench.operation(shape, 1000), bench.operation(shape, 400)
    )
    assert [failed.kind for failed in results.failed] == ["read", "read"]
    assert "narrow the predicate" in results.failed[0].text
    assert [rows.number.tolist() for rows in results.rows] == [[2]]


def test_too_many_groups_or_distinct_values_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crescando.engine.grouping.GROUPS_MAX", 500)
    bench = loaded()
    where = applied("<", bench.col("k"), par(0, DataType.INT64))
    distinct = (Aggregate("count_distinct", bench.col("s"), "d"),)
    for shape in (
        Shape(Kind.READ, 1, 1, where, group_by=(bench.col("s"),)),
        Shape(Kind.READ, 1, 1, where, aggregates=distinct),
        Shape(Kind.READ, 1, 1, where, aggregates=distinct, group_by=(bench.col("n"),)),
    ):
        (results,) = run(bench, *(bench.operation(shape, n) for n in (500, 501, 7)))
        assert [failed.number for failed in results.failed] == [bench.position - 1]
        assert "groups or distinct values" in results.failed[0].text
        (partials,) = results.partials
        assert partials.number.tolist() == [bench.position - 2, bench.position]
