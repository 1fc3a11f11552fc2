"""FLOAT32: constants of the type are float32s; longer ones are compared as they are, and not stored."""

from __future__ import annotations

import math

import pytest

from crescando.engine.functions import Cause
from crescando.engine.kv import KvEngine
from crescando.engine.statement import Apply
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.workbench import Bench, apply, par, table

FLOAT32, FLOAT64 = DataType.FLOAT32, DataType.FLOAT64
LARGEST = 3.4028234663852886e38


@pytest.fixture(params=["scan", "kv"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Give an engine with the rows of one float32 column."""
    bench = Bench(table(("w", FLOAT32), ("x", FLOAT64)))
    if request.param == "kv":
        bench.engine = KvEngine()  # type: ignore[assignment]
        bench.engine.set_arcs([FULL_RING])
        bench.engine.create_table(bench.schema)
    bench.load((1, 0.5, 1e39), (2, LARGEST, 0.1), (3, math.inf, 1.0), (4, math.nan, 1.0), (5, None, 1.0))
    return bench


@pytest.mark.parametrize("constant", [1e39, -1e39, 0.1, LARGEST * (1 + 2.0**-25)])
def test_a_float32_constant_that_is_none_is_refused(bench: Bench, constant: float) -> None:
    where = apply("<", bench.col("w"), par(0, FLOAT32))
    listed = Apply("in", (bench.col("w"), par(0, FLOAT32, True)), DataType.BOOL)
    assigned = bench.update_shape(None, w=par(0, FLOAT32))

    for operation in (
        bench.operation(bench.read_shape(where), constant),
        bench.operation(bench.read_shape(listed), (0.5, constant)),
        bench.operation(assigned, constant),
    ):
        failed = bench.failure(operation)
        assert (failed.kind, "float32" in failed.text) == ("invalid", True)


@pytest.mark.parametrize(("op", "keys"), [("<", [1, 2]), (">", [3, 4]), ("=", []), ("<>", [1, 2, 3, 4])])
def test_a_constant_beyond_the_column_says_the_same_of_every_finite_row(
    bench: Bench, op: str, keys: list[int]
) -> None:
    told = bench.read(apply(op, bench.col("w"), par(0, FLOAT64)), 1e39, names=("k",))

    assert sorted(told) == keys


def test_storing_what_would_become_infinite_is_rejected(bench: Bench) -> None:
    told = bench.write(bench.operation(bench.update_shape(None, w=par(0, FLOAT64)), 1e39)).counts[0]
    assert (told.affected, told.rejected) == (0, 5)
    assert told.rejection is not None
    assert told.rejection.cause == Cause.OVERFLOW.text

    told = bench.write(bench.operation(bench.update_shape(None, w=bench.col("x")))).counts[0]
    assert (told.affected, told.rejected) == (4, 1)


def test_infinities_are_float32s(bench: Bench) -> None:
    told = bench.write(bench.operation(bench.update_shape(None, w=par(0, FLOAT32)), -math.inf)).counts[0]

    assert told.affected == 5
    assert bench.read(None, names=("w",)) == [-math.inf] * 5
