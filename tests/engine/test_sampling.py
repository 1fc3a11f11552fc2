"""What a sample says of an access path is what joining its rows would find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crescando.engine.constants import Constants
from crescando.engine.join import Join, bounds
from crescando.engine.plan import make_plan
from crescando.engine.sampling import SAMPLE_ROWS, Sample
from crescando.engine.statement import Term
from crescando.schema import DataType
from tests.engine.workbench import Bench, apply, par, table

INT64, STRING, FLOAT64, INT8 = DataType.INT64, DataType.STRING, DataType.FLOAT64, DataType.INT8
NUMBERS = (-(2**63), -3, 0, 1, 2, 5, 2**63 - 1, None)
FRACTIONS = (float("-inf"), -0.0, 0.0, 0.5, float("inf"), float("nan"), None)
TEXTS = ("", "a", "a\0", "b", "absent", None)


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench(table(("i", INT64), ("t", INT8), ("s", STRING), ("f", FLOAT64)))
    rng = np.random.default_rng(3)
    draw = lambda values: values[int(rng.integers(len(values)))]  # noqa: E731
    rows = [
        (k, draw(NUMBERS), None if k % 9 == 0 else k % 5, draw((*TEXTS[:4], None)), draw(FRACTIONS))
        for k in range(3 * SAMPLE_ROWS)
    ]
    bench.load(*rows)
    return bench


def _tests(bench: Bench) -> list[tuple[Term, tuple[Any, ...], int]]:
    """Give predicates with what their constants are drawn from, and how many they have."""
    found: list[tuple[Term, tuple[Any, ...], int]] = []
    columns = {"i": (INT64, NUMBERS), "t": (INT64, NUMBERS), "s": (STRING, TEXTS), "f": (FLOAT64, FRACTIONS)}
    for name, (kind, values) in columns.items():
        found.append((apply("=", bench.col(name), par(0, kind)), values, 1))
        if kind is not STRING:
            found += [(apply(op, bench.col(name), par(0, kind)), values, 1) for op in ("<", "<=", ">", ">=")]
            above, below = (
                apply(">", bench.col(name), par(0, kind)),
                apply("<=", bench.col(name), par(1, kind)),
            )
            found.append((apply("and", above, below), values, 2))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_counts_what_a_join_finds(bench: Bench, seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = bench.engine._tables[bench.schema.id]
    sample = Sample(held)
    n_found = 0
    for where, values, n_constants in _tests(bench):
        plan = make_plan(bench.read_shape(where), bench.schema)
        given = [tuple(values[p] for p in rng.integers(len(values), size=n_constants)) for _ in range(20)]
        constants = Constants([given])
        for access in plan.accesses:
            low, high, _ = bounds(access, held, constants)
            join = Join(access, held, constants, np.arange(len(given)))
            wanted = sum(len(rows) for rows, _ in join.probe(sample, None))
            assert sample.n_within(access, low, high) == wanted, (where, given)
            n_found += wanted
    assert n_found > 10_000


def test_lists_count_each_constant(bench: Bench) -> None:
    held = bench.engine._tables[bench.schema.id]
    sample = Sample(held)
    shape = bench.read_shape(apply("in", bench.col("t"), par(0, INT64, many=True)))
    (access,) = make_plan(shape, bench.schema).accesses
    low, high, _ = bounds(access, held, Constants([[((1, 2, 2, None),), ((3,),), ((),)]]))
    tests = sample.column(access.column)
    assert tests.valid is not None
    values = tests.data[tests.valid]
    assert sample.n_within(access, low, high) == sum(np.count_nonzero(values == value) for value in (1, 2, 3))
