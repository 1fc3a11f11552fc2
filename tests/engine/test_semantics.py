"""What a predicate means, told by small tables: NULL, NaN, full-length texts, exact numbers, ERROR.

The cases come from failures that other engines had in the field.
"""

from __future__ import annotations

import math
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from crescando.engine.functions import is_comparable
from crescando.engine.statement import Apply, Kind, Term
from crescando.engine.validate import DEPTH_MAX
from crescando.errors import TypeMismatchError
from crescando.schema import DataType
from tests.engine.generator import World
from tests.engine.oracle import COMPARISONS, order
from tests.engine.workbench import Bench, apply, par, table

BOOL, INT64, FLOAT64, STRING = DataType.BOOL, DataType.INT64, DataType.FLOAT64, DataType.STRING

SAMPLES: dict[DataType, list[Any]] = {
    BOOL: [False, True],
    DataType.INT8: [-128, 0, 1, 127],
    DataType.INT16: [-32_768, 0, 1],
    DataType.INT32: [-1, 0, 1, 2**31 - 1],
    INT64: [0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    DataType.FLOAT32: [0.0, 0.5, 1.0, math.inf, math.nan],
    FLOAT64: [-0.0, 0.5, 1.0, 2.0**53, 2.0**63, math.inf, -math.inf, math.nan],
    STRING: ["", "\0", "a", "a\0", "\0a", "b", "\U0001d11e", "é"],
    DataType.DATE: [-1, 0, 18_321],
    DataType.TIMESTAMP: [-1, 0, 1_577_836_800_000_000],
}


def bench_of(kind: DataType, values: list[Any]) -> Bench:
    bench = Bench(table(("c", kind)))
    bench.load(*((place, value) for place, value in enumerate(values)))
    return bench


def keys(bench: Bench, where: Term, *parameters: Any) -> set[int]:
    return set(bench.read(where, *parameters, names=("k",)))


@pytest.mark.parametrize("kind", list(SAMPLES))
def test_membership_in_an_empty_list_is_false_for_every_row(kind: DataType) -> None:
    bench = bench_of(kind, [*SAMPLES[kind], None])
    every = set(range(len(SAMPLES[kind]) + 1))
    member = apply("in", bench.col("c"), par(0, kind, True))
    assert keys(bench, member, ()) == set()
    assert keys(bench, apply("not", member), ()) == every
    assert keys(bench, apply("or", member, apply("is_null", bench.col("c"))), ()) == {len(SAMPLES[kind])}
    assert keys(bench, apply("and", apply("not", member), apply("is_null", bench.col("c"))), ()) == {
        len(SAMPLES[kind])
    }


@pytest.mark.parametrize("kind", list(SAMPLES))
def test_membership_with_null_leaves_the_rest_unknown(kind: DataType) -> None:
    values = SAMPLES[kind]
    bench = bench_of(kind, [*values, None])
    member = apply("in", bench.col("c"), par(0, kind, True))
    assert keys(bench, member, (values[0], None)) == {0}
    assert keys(bench, apply("not", member), (values[0], None)) == set()
    assert keys(bench, apply("is_unknown", member), (values[0], None)) == set(range(1, len(values) + 1))


def test_a_predicate_cuts_a_table_into_three_parts() -> None:
    """Rows of p, of NOT p and of p IS UNKNOWN are all rows, none twice; an error fails all three."""
    n_whole = n_failed = 0
    for seed in range(80):
        world = World(Random(seed), plain=False)
        bench = Bench(world.schema)
        shape, parameters = world.refill(0)
        bench.run(bench.operation(shape, *parameters))
        n_rows = bench.engine.statistics()["rows"]
        for shape, make in world.shapes[Kind.READ]:
            if shape.where is None:
                continue
            constants = make()
            parts = [shape.where, apply("not", shape.where), apply("is_unknown", shape.where)]
            results = [bench.run(bench.operation(bench.read_shape(p, "k"), *constants)) for p in parts]
            failed = [result for result in results if result.failed]
            assert len(failed) in (0, 3), (seed, shape.where, constants)
            if not failed:
                counts = [int(result.rows[0].offsets[-1]) for result in results]
                assert sum(counts) == n_rows, (seed, shape.where, constants)
            n_whole += not failed
            n_failed += bool(failed)
    assert n_whole > 200
    assert n_failed > 3


NUMERIC_EDGES = [
    [math.nan],
    [math.nan, 1.0],
    [None, None],
    [math.inf, -math.inf],
    [math.nan, None, math.inf, 0.0, -0.0],
]


@pytest.mark.parametrize("values", NUMERIC_EDGES)
@pytest.mark.parametrize("op", list(COMPARISONS))
def test_an_index_prunes_nothing_that_a_full_scan_finds(values: list[Any], op: str) -> None:
    bench = bench_of(FLOAT64, values)
    test = apply(op, bench.col("c"), par(0, FLOAT64))
    for constant in (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0):
        expected = {
            place
            for place, value in enumerate(values)
            if value is not None and COMPARISONS[op](order(value, constant))
        }
        assert keys(bench, test, constant) == expected
        # Neither of these has an access path.
        assert keys(bench, apply("or", test, test), constant) == expected
        assert keys(bench, apply("is_true", test), constant) == expected


@pytest.mark.parametrize(("left", "right"), list(product(SAMPLES, SAMPLES)))
def test_each_pair_of_types_compares_as_the_model_or_is_refused_alike(
    left: DataType, right: DataType
) -> None:
    bench = bench_of(left, [*SAMPLES[left], None])
    column = bench.col("c")
    if not is_comparable(left, right):
        for op in (*COMPARISONS, "in"):
            with pytest.raises(TypeMismatchError):
                apply(op, column, par(0, right, op == "in"))
        return
    for constant in SAMPLES[right]:
        for op, test in COMPARISONS.items():
            expected = {p for p, value in enumerate(SAMPLES[left]) if test(order(value, constant))}
            assert keys(bench, apply(op, column, par(0, right)), constant) == expected, (op, constant)
        equal = {p for p, value in enumerate(SAMPLES[left]) if order(value, constant) == 0}
        assert keys(bench, apply("in", column, par(0, right, True)), (constant,)) == equal
        low, high = apply(">=", column, par(0, right)), apply("<=", column, par(1, right))
        assert keys(bench, apply("and", low, high), constant, constant) == equal


def test_texts_are_compared_over_their_full_length() -> None:
    texts = SAMPLES[STRING]
    bench = bench_of(STRING, texts)
    column = bench.col("c")
    for place, text in enumerate(texts):
        assert keys(bench, apply("=", column, par(0, STRING)), text) == {place}
        assert keys(bench, apply("in", column, par(0, STRING, True)), (text, "absent")) == {place}
        assert len(keys(bench, apply("<", column, par(0, STRING)), text)) == sorted(texts).index(text)
        assert keys(bench, apply("=", apply("concat", column, par(0, STRING)), par(1, STRING)), "", text) == {
            place
        }
    assert sorted(bench.read(None, names=("c",))) == sorted(texts)


def test_wide_predicates_over_many_columns_and_terms() -> None:
    schema = table(*((f"c{i}", INT64) for i in range(300)))
    bench = Bench(schema)
    bench.load(*((row, *((row * 7 + i) % 11 for i in range(300))) for row in range(100)))
    for width in (1, 2, 31, 32, 33, 64, 65, 128, 300):
        tests = [apply("=", bench.col(f"c{i}"), par(i, INT64)) for i in range(width)]
        constants = [(5 * 7 + i) % 11 for i in range(width)]
        both = tests[0] if width == 1 else Apply("and", tuple(tests), BOOL)
        assert 5 in keys(bench, both, *constants)
        either = tests[0] if width == 1 else Apply("or", tuple(tests), BOOL)
        assert 5 in keys(bench, either, *constants)
        total: Term = bench.col("c0")
        for i in range(1, min(width, 150)):
            total = apply("+", total, bench.col(f"c{i}"))
        assert len(keys(bench, apply(">=", total, par(0, INT64)), 0)) == 100


@pytest.mark.parametrize("n_terms", [2, 100, 5_000])
def test_predicates_of_many_terms_alone_and_shared(n_terms: int) -> None:
    bench = Bench(table(("c", INT64)))
    bench.load(*((row, row % 50) for row in range(300)))
    wide = Apply("or", tuple(apply("=", bench.col("c"), par(i, INT64)) for i in range(n_terms)), BOOL)
    constants = tuple(range(10, 10 + n_terms))
    expected = {row for row in range(300) if 10 <= row % 50 < 10 + n_terms}
    assert keys(bench, wide, *constants) == expected
    narrow = bench.read_shape(apply("=", bench.col("c"), par(0, INT64)), "k")
    shared = [bench.operation(bench.read_shape(wide, "k"), *constants)]
    shared += [bench.operation(narrow, value) for value in range(50)]
    results = bench.run(*shared)
    # Both shapes give the same column, so their answers lie in one piece.
    (rows,) = results.rows
    assert rows.number.tolist() == [operation.number for operation in shared]
    assert np.diff(rows.offsets).tolist() == [len(expected)] + [6] * 50


class TestError:
    """ERROR is combined without order, and only a final ERROR is one."""

    bench = Bench(table(("x", INT64), ("b", BOOL)))
    bench.load((0, 0, True), (1, 1, False), (2, None, None))
    error = apply("=", apply("div", par(0, INT64), bench.col("x")), par(0, INT64))
    """1 / x = 1: ERROR on row 0, TRUE on row 1, UNKNOWN on row 2."""

    def truths(self, term: Term, *parameters: Any) -> list[Any]:
        """Give the predicate's truth per row, 'error' where the row is one."""
        found: list[Any] = []
        for key in range(3):
            row = apply("=", self.bench.col("k"), par(9, INT64))
            given = (*parameters, *([None] * (9 - len(parameters))), key)
            found.append(self._truth(term, row, given))
        return found

    def _truth(self, term: Term, row: Term, given: tuple[Any, ...]) -> Any:
        for truth, test in ((True, term), (False, apply("not", term)), (None, apply("is_unknown", term))):
            shape = self.bench.read_shape(apply("and", row, test), "k")
            results = self.bench.run(self.bench.operation(shape, *given))
            if results.failed:
                assert results.failed[0].text == "division by zero"
                return "error"
            if results.rows[0].offsets[-1]:
                return truth
        raise AssertionError("a predicate is TRUE, FALSE, UNKNOWN or an ERROR")

    def test_alone(self) -> None:
        assert self.truths(self.error, 1) == ["error", True, None]

    def test_and_takes_the_minimum(self) -> None:
        b = self.bench.col("b")
        for pair in ((self.error, b), (b, self.error)):
            assert self.truths(apply("and", *pair), 1) == ["error", False, None]
        for pair in ((self.error, apply("not", b)), (apply("not", b), self.error)):
            assert self.truths(apply("and", *pair), 1) == [False, True, None]

    def test_or_takes_the_maximum(self) -> None:
        b = self.bench.col("b")
        for pair in ((self.error, b), (b, self.error)):
            assert self.truths(apply("or", *pair), 1) == [True, True, None]
        unknown = apply("=", par(1, INT64), par(2, INT64))
        assert self.truths(apply("or", self.error, unknown), 1) == [None, True, None]
        assert self.truths(apply("and", self.error, unknown), 1) == [None, None, None]

    def test_tests_of_truth_do_not_hide_it(self) -> None:
        for op in ("is_true", "is_false", "is_unknown", "not"):
            assert self.truths(apply(op, self.error), 1)[0] == "error"
        ratio = apply("div", par(0, INT64), self.bench.col("x"))
        assert self.truths(apply("is_null", ratio), 1) == ["error", False, True]
        first = apply("=", apply("coalesce", par(0, INT64), ratio), par(0, INT64))
        assert self.truths(first, 1) == ["error", True, True]

    def test_case_meets_only_the_branch_it_takes(self) -> None:
        x = self.bench.col("x")
        ratio = apply("div", par(0, INT64), x)
        guarded = apply("case", apply("=", x, par(1, INT64)), par(1, INT64), ratio)
        assert self.bench.compute(guarded, 1, 0) == [0, 1, None]
        late = apply("case", self.error, par(0, INT64), par(1, INT64))
        failed = self.bench.failure(
            self.bench.operation(self.bench.read_shape(apply("=", late, par(0, INT64)), "k"), 1, 2)
        )
        assert failed.key == (0,)

    def test_the_smallest_cause_wins(self) -> None:
        x = self.bench.col("x")
        overflow = apply("+", apply("+", x, par(0, INT64)), par(1, INT64))
        ratio = apply("div", par(1, INT64), x)
        for pair in ((overflow, ratio), (ratio, overflow)):
            shape = self.bench.read_shape(apply("=", *pair), "k")
            failed = self.bench.failure(self.bench.operation(shape, (1 << 63) - 1, 1))
            assert failed.text == "division by zero"
            assert failed.key == (0,)


@pytest.mark.parametrize("n_rows", [1, 5, 700])
def test_constants_may_be_null_or_errors_by_themselves(n_rows: int) -> None:
    """On few rows, on many, with and without an access path."""
    bench = Bench(table(("x", INT64)), 1 << 16)
    bench.load(*((key, key % 5) for key in range(n_rows)))
    x = bench.col("x")
    never = apply("=", apply("div", par(0, INT64), par(1, INT64)), x)
    for where in (never, apply("or", never, apply("is_null", x)), apply("is_true", never)):
        for operands, error in (
            ((4, 2), None),
            ((4, 0), "division by zero"),
            ((None, 0), None),
            ((4, None), None),
        ):
            operation = bench.operation(bench.read_shape(where, "k"), *operands)
            if error is not None:
                assert bench.failure(operation).text == error
            else:
                expected = [] if None in operands else [key for key in range(n_rows) if key % 5 == 2]
                assert sorted(bench.answer(operation)) == expected
    nothing = apply("=", x, par(0, INT64))
    assert bench.read(nothing, None) == []
    assert bench.read(apply("or", nothing, nothing), None) == []
    member = apply("in", apply("div", par(0, INT64), par(1, INT64)), par(2, INT64, True))
    assert len(bench.read(member, 4, 2, (2,))) == n_rows
    assert bench.failure(bench.operation(bench.read_shape(member), 4, 0, (2,))).key == (0,)


def test_terms_of_the_greatest_depth_are_evaluated() -> None:
    bench = Bench(table(("x", INT64), ("f", FLOAT64)))
    bench.load((1, 5, 0.5), (2, 6, 1.5))
    test: Term = apply("=", bench.col("x"), par(0, INT64))
    deep = test
    for place in range(DEPTH_MAX - 2):
        deep = apply(("and", "or")[place % 2], deep, test)
    assert keys(bench, deep, 5) == {1}
    nested: Term = bench.col("f")
    for _ in range(DEPTH_MAX - 2):
        nested = apply("case", test, nested, bench.col("f")) if _ % 2 else apply("neg", nested)
    assert len(keys(bench, apply("<>", nested, par(1, FLOAT64)), 5, 9.0)) == 2


def test_columns_of_one_row_are_read_before_any_is_assigned() -> None:
    bench = Bench(table(("a", INT64), ("b", INT64)))
    bench.load((1, 10, 20))
    shape = bench.update_shape(None, a=bench.col("b"), b=bench.col("a"))
    bench.write(bench.operation(shape))
    assert bench.read(None) == [(1, 20, 10)]
