"""What a sample says of an access path is what joining its rows would find."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.join import Bounds, Join
from crescando.engine.match import BLOCK_ROWS, POINT_BLOCK_ROWS, WIDE_BLOCK_ROWS, Matcher
from crescando.engine.plan import Access, Composite, make_plan
from crescando.engine.sampling import SAMPLE_ROWS, Sample
from crescando.engine.sharing import Sharing
from crescando.engine.statement import Kind, Shape, Term
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
            bounds = Bounds(held, constants)
            low, high, _ = bounds.of(access)
            join = Join(access, bounds, np.arange(len(given)))
            wanted = sum(len(rows) for rows, _ in join.probe(sample, None))
            assert sample.n_within(access, low, high) == wanted, (where, given)
            n_found += wanted
    assert n_found > 10_000


def test_lists_count_each_constant(bench: Bench) -> None:
    held = bench.engine._tables[bench.schema.id]
    sample = Sample(held)
    shape = bench.read_shape(apply("in", bench.col("t"), par(0, INT64, many=True)))
    (access,) = make_plan(shape, bench.schema).accesses
    low, high, _ = Bounds(held, Constants([[((1, 2, 2, None),), ((3,),), ((),)]])).of(access)
    tests = sample.column(access.column)
    assert tests.valid is not None
    values = tests.data[tests.valid]
    assert sample.n_within(access, low, high) == sum(np.count_nonzero(values == value) for value in (1, 2, 3))


class TestHowLongASampleIsGood:
    def small(self) -> Bench:
        bench = Bench(table(("a", INT64), ("s", STRING)))
        bench.load(*((k, k % 3, f"text {k % 50}") for k in range(400)))
        return bench

    def sample_of(self, bench: Bench) -> Sample:
        """Give the sample of the cycle that this runs."""
        both = apply(
            "and",
            apply("=", bench.col("a"), par(0, INT64)),
            apply("=", bench.col("s"), par(1, STRING)),
        )
        (key,) = bench.read(both, 1, "text 1", names=("k",))[:1]
        assert key == 1
        return bench.engine._samples[bench.schema.id]

    def test_it_serves_cycles_while_rows_lie_where_they_lay(self) -> None:
        bench = self.small()
        first = self.sample_of(bench)
        assert self.sample_of(bench) is first
        bench.load((1_000, 1, "text 1"))
        assert self.sample_of(bench) is not first

    def test_it_is_taken_anew_when_so_many_rows_were_updated_that_one_would_show(self) -> None:
        bench = Bench(table(("a", INT64), ("s", STRING)))
        bench.load(*((k, k % 3, f"text {k % 50}") for k in range(4 * SAMPLE_ROWS)))
        first = self.sample_of(bench)
        update = bench.update_shape(apply("=", bench.col("k"), par(0, INT64)), a=par(1, INT64))
        for key in range(100, 104):
            bench.run(bench.operation(update, key, 8))
            assert self.sample_of(bench) is first
        bench.run(bench.operation(update, 104, 8))
        assert self.sample_of(bench) is not first

    def test_an_index_that_became_bad_is_left_at_once(self) -> None:
        bench = Bench(table(("a", INT64), ("b", INT64)))
        bench.load(*((k, 0, k) for k in range(2_000)))
        both = apply("and", *(apply("=", bench.col(n), par(i, INT64)) for i, n in enumerate("ab")))
        for _ in range(3):
            assert bench.read(both, 1, 7, names=("k",)) == []
        held = bench.engine._tables[bench.schema.id]
        bench.run(bench.operation(bench.update_shape(None, a=par(0, INT64)), 1))
        assert bench.read(both, 1, 7, names=("k",)) == [7]
        sample = bench.engine._samples[bench.schema.id]
        plan = make_plan(bench.read_shape(both), bench.schema)
        matcher = Matcher(plan, Constants([[(1, 7)]]), np.zeros(1, np.int64), held, Evaluator(), sample)
        assert isinstance(matcher.path, Access | Composite)
        assert bench.schema.column("b").id in [part.column for part in matcher.path.parts]

    @pytest.mark.parametrize("how", ["arcs", "alter"])
    def test_it_keeps_no_texts_that_are_gone(self, how: str) -> None:
        bench = self.small()
        self.sample_of(bench)
        engine = bench.engine
        texts = weakref.ref(engine._tables[bench.schema.id].pools[2]._heap)
        if how == "arcs":
            engine.set_arcs([])
        else:
            columns = bench.schema.columns[:2]
            engine.alter_table(msgspec.structs.replace(bench.schema, columns=columns, version=2))
        gc.collect()
        assert texts() is None

    def test_it_is_taken_anew_when_rows_and_texts_have_moved(self) -> None:
        bench = self.small()
        held = bench.engine._tables[bench.schema.id]
        before, pool = self.sample_of(bench), held.pools[2]
        gone = apply(">", bench.col("k"), par(0, INT64))
        bench.run(bench.operation(Shape(Kind.DELETE, 1, 1, gone), 100))
        assert self.sample_of(bench) is not before, "rows were compacted"
        before = self.sample_of(bench)
        assert held.pools[2] is pool
        held.pools[2] = pool.rebuilt(np.arange(len(pool)))
        assert self.sample_of(bench) is not before, "codes have another meaning"


def test_only_points_are_looked_for_in_the_largest_blocks(bench: Bench) -> None:
    """A range may want every row: between two blocks of so many nobody could call its read off for long."""
    held = bench.engine._tables[bench.schema.id]
    point = apply("=", bench.col("s"), par(0, STRING))
    low, high = (apply(op, bench.col("i"), par(p, INT64)) for p, op in ((1, ">="), (2, "<=")))
    computed = apply("=", apply("+", bench.col("i"), bench.col("t")), par(1, INT64))
    expected = {
        point: POINT_BLOCK_ROWS,
        apply("and", low, high): WIDE_BLOCK_ROWS,
        apply("or", point, low): BLOCK_ROWS,
        computed: BLOCK_ROWS,
    }
    matchers = []
    for where, block_rows in expected.items():
        plan = make_plan(bench.read_shape(where), bench.schema)
        constants = Constants([[("a", 1, 2)]])
        matchers.append(Matcher(plan, constants, np.zeros(1, np.int64), held, Evaluator()))
        assert matchers[-1].block_rows == block_rows, where
    assert Sharing(dict(enumerate(matchers[:2])), held).block_rows == WIDE_BLOCK_ROWS
    assert Sharing(dict(enumerate(matchers)), held).block_rows == BLOCK_ROWS
    composite = Composite((*make_plan(bench.read_shape(point), bench.schema).accesses,), ())
    ranged = make_plan(bench.read_shape(apply("and", low, high)), bench.schema).accesses
    matchers[0].path = composite
    assert matchers[0].block_rows == POINT_BLOCK_ROWS
    matchers[0].path = Composite((*composite.parts, *ranged), ())
    assert matchers[0].block_rows == WIDE_BLOCK_ROWS
