"""Fused arithmetic is bit for bit what NumPy computes, in the calling thread's own objects."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numexpr
import numpy as np
import pytest

from crescando.engine import evaluator, terms
from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame
from crescando.engine.statement import Apply, ColumnRef, Term
from crescando.engine.values import Value
from crescando.schema import DataType
from tests.engine.differential import Shares
from tests.engine.test_differential import play

FLOAT64, INT32 = DataType.FLOAT64, DataType.INT32


class Columns:
    """Random columns: 0-2 FLOAT64 (with NULLs in 1), 3 FLOAT32, 4 INT32."""

    def __init__(self, n_rows: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.n_rows = n_rows
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324])
        self.values = []
        for _ in range(3):
            data = random.standard_normal(n_rows) * 10.0 ** random.integers(-300, 300, n_rows)
            data[random.integers(0, n_rows, n_rows // 10)] = random.choice(edges, n_rows // 10)
            self.values.append(Value(FLOAT64, data))
        self.values[1].valid = random.random(n_rows) < 0.9
        single = random.standard_normal(n_rows).astype(np.float32)
        self.values.append(Value(DataType.FLOAT32, single))
        self.values.append(Value(INT32, random.integers(-9, 9, n_rows).astype(np.int32)))

    def column(self, column_id: int) -> Value:
        return self.values[column_id]


def random_tree(random: Random, depth: int) -> Term:
    if depth == 0 or random.random() < 0.15:
        place = random.randrange(5)
        return ColumnRef(place, FLOAT64 if place < 3 else (DataType.FLOAT32, INT32)[place - 3])
    if random.random() < 0.15:
        return Apply("neg", (float_tree(random, depth - 1),), FLOAT64)
    op = random.choice(("+", "-", "*", "*", "+", "div"))
    return Apply(op, (float_tree(random, depth - 1), random_tree(random, depth - 1)), FLOAT64)


def float_tree(random: Random, depth: int) -> Term:
    return ColumnRef(random.randrange(3), FLOAT64) if depth == 0 else random_tree(random, depth)


def compute(term: Term, source: Columns, engine: Evaluator) -> Value:
    with np.errstate(all="ignore"):
        return terms.evaluate(term, Frame(source, Constants([()]), None, 0, engine))


@pytest.mark.parametrize("seed", range(30))
def test_fused_trees_equal_the_numpy_path_bit_for_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    source = Columns(random.choice((1, 1_999, 2_000, 2_001, 5_000)), seed)
    term = Apply("+", (float_tree(random, 4), random_tree(random, 4)), FLOAT64)
    plain = compute(term, source, Evaluator())

    monkeypatch.setattr(terms, "ROWS_MIN", 1)
    monkeypatch.setattr(evaluator, "OPERATORS_MIN", 1)
    fused = compute(term, source, Evaluator())

    known = plain.known()
    assert (fused.known() == known).all()
    found, expected = (value.spread(source.n_rows).data[known] for value in (fused, plain))
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("n_columns", [2, 15, 16, 17, 18, 40, 300])
@pytest.mark.parametrize("shape", ["chain", "balanced"])
def test_a_tree_over_many_columns_is_split(
    n_columns: int, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(n_columns)
    source = Columns(2_500, 1)
    source.values = [Value(FLOAT64, random.standard_normal(2_500)) for _ in range(n_columns)]
    parts: list[Term] = [ColumnRef(place, FLOAT64) for place in range(n_columns)] * 2
    if shape == "chain":
        term = parts[0]
        for part in parts[1:190]:
            term = Apply("-", (term, part), FLOAT64)
    else:
        while len(parts) > 1:
            joined = [Apply("*", pair, FLOAT64) for pair in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*joined, *parts[2 * len(joined) :]]
        term = parts[0]
    plain = compute(term, source, Evaluator())

    monkeypatch.setattr(terms, "ROWS_MIN", 1)
    written = recorded(monkeypatch)
    fused = compute(term, source, Evaluator())

    np.testing.assert_array_equal(fused.data, plain.data)
    assert written
    assert all(len(set(re.findall(r"x\d+", text))) <= evaluator.OPERANDS_MAX for text in written)


def recorded(patch: pytest.MonkeyPatch) -> list[str]:
    """Record every text that numexpr is given."""
    texts: list[str] = []
    compiled = numexpr.NumExpr

    def recording(text: str, signature: list[tuple[str, type]]) -> object:
        assert {kind for _, kind in signature} == {np.float64}
        texts.append(text)
        return compiled(text, signature)

    patch.setattr(numexpr, "NumExpr", recording)
    return texts


def test_numexpr_sees_only_operands_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "ROWS_MIN", 1)
    monkeypatch.setattr(evaluator, "OPERATORS_MIN", 1)
    texts = recorded(monkeypatch)

    for seed in range(30):
        compute(float_tree(Random(seed), 5), Columns(500, seed), Evaluator())
    for seed in range(300_020, 300_023):
        play(seed, Shares(), (), 4)

    assert len(texts) > 20
    assert [text for text in texts if not re.fullmatch(r"(x\d+|[()+*-]| )+", text)] == []


@pytest.mark.parametrize("kind", [INT32, DataType.INT64, DataType.decimal(18, 2)])
def test_whole_numbers_and_decimals_are_never_fused(kind: DataType) -> None:
    wide = DataType.INT64 if kind.is_integer else kind
    term = Apply("+", (ColumnRef(0, kind), ColumnRef(1, kind)), wide)
    for _ in range(5):
        term = Apply("-", (Apply("+", (term, term), wide), ColumnRef(1, kind)), wide)

    assert Evaluator().plan(term) is None
    # As operands they are worked out exactly first.
    mixed = Apply("*", (term, ColumnRef(2, FLOAT64)), FLOAT64)
    mixed = Apply("+", (Apply("neg", (mixed,), FLOAT64), mixed), FLOAT64)
    assert Evaluator().plan(mixed) == ("((-(x0 * x1)) + (x0 * x1))", (term, ColumnRef(2, FLOAT64)))


_SETTINGS = """
import os, threading
import numpy as np, numexpr

def settings():
    return (
        numexpr.get_num_threads(), numexpr.nthreads, np.geterr(), np.get_printoptions(),
        np.geterrcall(), np.getbufsize(), dict(os.environ),
    )

before = settings()
import crescando
assert settings() == before, "importing changed them"
from crescando import col
from crescando.engine import evaluator, terms
terms.ROWS_MIN = evaluator.OPERATORS_MIN = 1
with crescando.open() as store:
    table = store.create_table("t", like=[{"k": 1, "a": 1.0, "b": 2.0}], primary_key="k")
    table.insert([{"k": k, "a": k / 3, "b": k / 7} for k in range(3_000)]).result()
    assert table.count((col("a") + col("b") * 2.0 - col("a")) > 5.0) > 1_000
    table.update(col("k") >= 0, {"a": col("a") + col("b") * 2.0 - col("a")}).result()
    assert settings() == before, "use changed them"
assert settings() == before
"""


def test_global_settings_are_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _SETTINGS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_thread_does_the_work() -> None:
    operands = [np.random.default_rng(place).random(1 << 20) for place in range(4)]
    text, engine = "(((x0 + x1) * x2) - x3)", Evaluator()
    engine.run(text, operands, 1 << 20)

    began = time.process_time(), time.thread_time()
    for _ in range(10):
        engine.run(text, operands, 1 << 20)
    whole, own = time.process_time() - began[0], time.thread_time() - began[1]

    assert whole < 1.5 * own, (whole, own)


def test_a_program_that_failed_is_not_used_again() -> None:
    engine = Evaluator()
    good = [np.ones(10), np.ones(10)]
    with pytest.raises(ValueError, match=r"."):
        engine.run("(x0 + x1)", [np.ones(10), np.ones(9)], 10)

    assert engine.run("(x0 + x1)", good, 10).tolist() == [2.0] * 10


def test_many_threads_share_one_evaluator() -> None:
    texts = ["((x0 * x1) + x0)", "(((x0 - x1) * x1) - x0)", "(-(x0 * (x1 + x1)))"]
    plain = [lambda a, b: a * b + a, lambda a, b: (a - b) * b - a, lambda a, b: -(a * (b + b))]
    engine, go = Evaluator(), threading.Barrier(32)

    def work(place: int) -> bool:
        random = np.random.default_rng(place)
        n_rows = 5_000 + 137 * place
        a, b = random.standard_normal(n_rows), random.standard_normal(n_rows)
        which = place % len(texts)
        expected = plain[which](a, b)
        go.wait(30)
        return all(np.array_equal(engine.run(texts[which], [a, b], n_rows), expected) for _ in range(60))

    # Somebody else in the process uses numexpr as anybody would, on several threads.
    large = np.arange(300_000.0)
    with ThreadPoolExecutor(33) as pool:
        done = [pool.submit(work, place) for place in range(32)]
        other = pool.submit(
            lambda: [numexpr.evaluate("large * 2 + 1", {"large": large}, {}) for _ in range(40)]
        )
        assert all(each.result() for each in done)
        assert all(np.array_equal(found, large * 2 + 1) for found in other.result())
    assert all(len(stock) <= 32 for stock in engine._programs.values())


def test_engines_in_many_threads_do_not_disturb_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "ROWS_MIN", 1)
    monkeypatch.setattr(evaluator, "OPERATORS_MIN", 1)
    term = Apply("+", (float_tree(Random(5), 4), random_tree(Random(6), 4)), FLOAT64)
    sources = [Columns(3_000, seed) for seed in range(8)]
    expected = [compute(term, source, Evaluator()) for source in sources]

    def work(place: int) -> bool:
        own = Evaluator()
        found = [compute(term, sources[place], own) for _ in range(20)]
        known = expected[place].known()
        return all(
            np.array_equal(value.data[known], expected[place].data[known], equal_nan=True) for value in found
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_random_batches_with_everything_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "ROWS_MIN", 1)
    monkeypatch.setattr(evaluator, "OPERATORS_MIN", 1)
    for seed in range(300_000, 300_010):
        play(seed, Shares(), (), 6)
