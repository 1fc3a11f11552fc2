"""Hot rows run ahead, and end up as if they had gone step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crescando.engine import streaks
from crescando.engine.kv import KvEngine
from crescando.engine.order import Replay
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Kind, Operation, Shape
from crescando.engine.values import Value
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.differential import Shares
from tests.engine.reports import reports
from tests.engine.test_differential import play
from tests.engine.workbench import Bench, apply, par, table

INT8, INT64, STRING, MONEY = DataType.INT8, DataType.INT64, DataType.STRING, DataType.decimal(4, 2)


def _bench(engine: Any) -> Bench:
    bench = Bench(table(("small", INT8), ("wide", INT64, False), ("name", STRING), ("fare", MONEY)))
    engine.set_arcs([FULL_RING])
    engine.create_table(bench.schema)
    bench.engine = engine
    bench.load((0, 0, 0, "a", 0), (1, None, 1, "b", 9_000), (2, 120, 1 << 61, None, None))
    return bench


def _operations(bench: Bench, seed: int, n: int) -> list[Operation]:
    """Give operations of nine kinds on three hot rows."""
    rng = np.random.default_rng(seed)
    column = bench.col
    one = apply("=", column("k"), par(0, INT64))
    shapes = [
        bench.update_shape(one, small=apply("+", column("small"), par(1, INT8))),
        bench.update_shape(one, small=par(1, INT8)),
        bench.update_shape(one, wide=apply("-", column("wide"), par(1, INT64)), small=par(1, INT64)),
        bench.update_shape(None, wide=apply("+", par(0, INT64), column("wide"))),
        bench.update_shape(one, wide=par(1, INT64)),
        bench.update_shape(one, name=par(1, STRING)),
        bench.update_shape(one, fare=apply("+", column("fare"), par(1, MONEY))),
        bench.read_shape(one),
        bench.read_shape(None, "wide", "name"),
    ]
    found = []
    for kind in rng.integers(0, len(shapes), n).tolist():
        key, number = int(rng.integers(0, 3)), int(rng.integers(-30, 31))
        constant: Any = None if rng.random() < 0.02 else f"n{number % 5}" if kind == 5 else number
        parameters = {3: (constant,), 7: (key,), 8: ()}.get(kind, (key, constant))
        found.append(bench.operation(shapes[kind], *parameters))
    return found


def _outcome(
    seed: int,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Bench, int, int], list[Operation]] = _operations,
    engine: Callable[[], Any] = ScanEngine,
) -> tuple[Any, ...]:
    monkeypatch.setattr(streaks, "_LONG", length)
    monkeypatch.setattr(streaks, "_FIRST", length)
    bench = _bench(engine())
    results = bench.run(*make(bench, seed, 300))
    rows = []
    for part in results.rows:
        columns = [column.to_list() for column in part.columns]
        for place, number in enumerate(part.number.tolist()):
            some = slice(int(part.offsets[place]), int(part.offsets[place + 1]))
            rows.append((number, sorted(zip(*(c[some] for c in columns), strict=True), key=repr)))
    rows.sort()
    return (
        rows,
        reports(results.written),
        sorted(bench.read(None), key=repr),
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_hot_row_ends_as_if_step_by_step(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _outcome(seed, 1, monkeypatch) == _outcome(seed, 1 << 30, monkeypatch)


def _key_operations(bench: Bench, seed: int, n: int) -> list[Operation]:
    """Give operations on three hot keys, two of which name no row at first, that test nothing but the key."""
    rng = np.random.default_rng(seed)
    column = bench.col
    one = apply("=", column("k"), par(0, INT64))
    shapes = [
        bench.update_shape(one, small=apply("+", column("small"), par(1, INT8))),
        bench.update_shape(one, wide=par(1, INT64), name=par(2, STRING)),
        bench.read_shape(one),
        bench.read_shape(None),
        Shape(Kind.DELETE, 1, 1, one),
    ]
    shares = [0.15, 0.1, 0.15, 0.05, 0.05 if seed % 2 else 0.005]
    found = []
    for _ in range(n):
        key, number = int(rng.integers(2, 5)), int(rng.integers(-30, 31))
        drawn = rng.random()
        kind = int(np.searchsorted(np.cumsum(shares), drawn))
        if kind < len(shapes):
            parameters = ((key, number), (key, number, f"n{number % 5}"), (key,), (), (key,))[kind]
            found.append(bench.operation(shapes[kind], *parameters))
        elif drawn < 0.75:
            rows = [(key, number, number), (key, number + 1, None)]
            found.append(bench.insert(*rows, kind=Kind.UPSERT, names=("k", "small", "wide")))
        elif drawn < 0.95:
            rows = [(key, number, f"m{number % 3}", number), (key + 1, number, None, number)]
            found.append(bench.insert(*rows, kind=Kind.UPSERT, names=("k", "wide", "name", "fare")))
        else:
            found.append(bench.insert((key, 1, number, "new", None)))
    return found


@pytest.mark.parametrize("seed", range(16))
def test_a_hot_key_ends_as_if_step_by_step(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [_outcome(seed, length, monkeypatch, _key_operations) for length in (1, 4, 1 << 30)]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0] == _outcome(seed, 1, monkeypatch, _key_operations, KvEngine)


@pytest.mark.parametrize("kind", [Kind.UPSERT, Kind.INSERT])
def test_writes_that_name_one_key_take_few_rounds(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = Replay._apply
    rounds = []

    def counting(self: Any, writes: Any) -> None:
        rounds.append(len(writes.code))
        applied(self, writes)

    monkeypatch.setattr(Replay, "_apply", counting)
    bench = Bench(table(("v", INT64)))
    read = bench.read_shape(apply("=", bench.col("k"), par(0, INT64)))
    writes = [bench.insert((7, n), kind=kind) for n in range(5_000)]
    results = bench.run(*writes, bench.operation(read, 7))
    assert results.rows[0].columns[1].to_list() == [4_999 if kind is Kind.UPSERT else 0]
    assert sum(c.affected for w in reports(results.written) for c in w.counts) == (
        5_000 if kind is Kind.UPSERT else 1
    )
    assert sum(c.rejected for w in reports(results.written) for c in w.counts) == (
        0 if kind is Kind.UPSERT else 4_999
    )
    assert len(rounds) < 10


@pytest.mark.differential
def test_streaks_of_any_length_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaks, "_LONG", 1)
    monkeypatch.setattr(streaks, "_PIECE", 2)
    for seed in range(700_000, 700_040):
        play(seed, Shares(), (), 6)


def test_most_writes_of_a_hot_row_are_in_streaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare the rounds with themselves."""
    store = streaks.Streaks.store
    counted = []

    def counting(self: Any, streak: streaks.Streak) -> None:
        counted.append(len(streak.writes.code))
        store(self, streak)

    monkeypatch.setattr(streaks.Streaks, "store", counting)
    assert _outcome(3, 4, monkeypatch)
    assert sum(counted) > 60


def test_a_planted_bug_in_a_streak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = streaks._Puts.versions

    def planted(self: Any, base: Value, first: Any, owner: Any) -> Any:
        found, wrong = versions(self, base, first, owner)
        if self._added is not None:
            found.value.data[:] = np.roll(found.value.data, 1)
        return found, wrong

    monkeypatch.setattr(streaks._Puts, "versions", planted)
    assert any(_outcome(seed, 1, monkeypatch) != _outcome(seed, 1 << 30, monkeypatch) for seed in range(3))
