"""Fused arithmetic is bit for bit what NumPy computes, in the calling thread's own objects."""

from __future__ import annotations

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
    np.testing.assert_array_equal(
        fused.spread(source.n_rows).data[known], plain.spread(source.n_rows).data[known]
    )


def test_wide_trees_go_through_numpy() -> None:
    term: Term = ColumnRef(0, FLOAT64)
    for place in range(1, 300):
        term = Apply("+", (term, ColumnRef(place, FLOAT64)), FLOAT64)
    assert isinstance(term, Apply)
    assert Evaluator().plan(term) is None


def test_global_settings_are_left_alone() -> None:
    before = numexpr.get_num_threads(), np.geterr()
    for seed in range(3):
        play(seed, Shares(), (), 2)
    assert (numexpr.get_num_threads(), np.geterr()) == before


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
