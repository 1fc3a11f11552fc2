"""Partial aggregates: exact, mergeable in any order, equal to one pass over everything."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.aggregate import Accumulator, States, finish, merge_states
from crescando.engine.dictionary import Pool
from crescando.engine.values import Value
from crescando.errors import ReadFailedError
from crescando.schema import DataType
from tests.engine import oracle
from tests.engine.generator import as_column
from tests.engine.oracle import canonical

FLOAT64, INT64, STRING = DataType.FLOAT64, DataType.INT64, DataType.STRING


ONE = np.zeros(1, np.int64)


def state_of(function: str, kind: DataType, values: list[Any]) -> States:
    accumulator = Accumulator(function, kind)
    column = as_column(kind, values)
    value = Value(kind, column.values, column.valid, None, Pool(column.dictionary))
    accumulator.add(np.zeros(len(values), np.int64), 1, value)
    return accumulator.states()


def merged(function: str, kind: DataType, pieces: list[list[Any]]) -> Any:
    states = [state_of(function, kind, piece) for piece in pieces]
    return finish(merge_states(states, [ONE] * len(states)), 1).to_list()[0]


def pieces_of(values: list[Any], seed: int) -> list[list[Any]]:
    """Shuffle values and cut them into pieces, some of them empty."""
    random = Random(seed)
    shuffled = random.sample(values, len(values))
    cuts = sorted(random.choices(range(len(values) + 1), k=3))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]


floats = st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), max_size=40)


@given(floats, st.integers(0, 9))
def test_float_sums_equal_fsum_in_any_order(values: list[float | None], seed: int) -> None:
    expected = oracle.aggregate("sum", None, values)
    assert canonical(merged("sum", FLOAT64, pieces_of(values, seed))) == canonical(expected)


@given(st.lists(st.floats(width=32), max_size=20), st.integers(0, 9))
def test_float32_sums_and_averages(values: list[float], seed: int) -> None:
    for function in ("sum", "avg", "min", "max"):
        found = merged(function, DataType.FLOAT32, pieces_of(list(values), seed))
        assert canonical(found) == canonical(oracle.aggregate(function, None, list(values)))


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20), st.integers(0, 9))
def test_integer_sums_are_exact_until_the_end(values: list[int | None], seed: int) -> None:
    expected = oracle.aggregate("sum", None, values)
    if expected == "overflow":
        with pytest.raises(ReadFailedError, match="overflow"):
            merged("sum", INT64, pieces_of(values, seed))
    else:
        assert merged("sum", INT64, pieces_of(values, seed)) == expected
    assert merged("avg", INT64, pieces_of(values, seed)) == oracle.aggregate("avg", None, values)


def test_an_overflow_of_one_piece_is_none_of_the_whole() -> None:
    top = (1 << 63) - 1
    assert merged("sum", INT64, [[top, top], [-top]]) == top


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_many_pieces_does_not_wrap(sign: int) -> None:
    """As of so many blocks: each piece fits 53 bits, and all of them together no 64."""
    whole = Accumulator("sum", INT64)
    for _ in range(2_049):
        whole.add(np.zeros(1, np.int64), 1, Value(INT64, np.array([sign << 52])))

    with pytest.raises(ReadFailedError, match=str(2_049 << 52)):
        finish(whole.states(), 1)
    whole.add(np.zeros(2, np.int64), 1, Value(INT64, np.array([-sign << 62, -sign << 61])))
    assert finish(whole.states(), 1).to_list() == [sign * ((2_049 << 52) - (3 << 61))]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([5e-324, 5e-324], 1e-323),
        ([1e16, 1.0, -1e16], 1.0),
        ([0.1] * 10, 1.0),
        ([-0.0], 0.0),
    ],
)
def test_float_sums_at_the_edges(values: list[float], expected: float) -> None:
    for seed in range(5):
        assert canonical(merged("sum", FLOAT64, pieces_of(values, seed))) == canonical(expected)


def test_nothing_sums_to_null_and_counts_to_zero() -> None:
    for function in ("sum", "avg", "min", "max"):
        assert merged(function, INT64, [[], [None]]) is None
    assert merged("count", INT64, [[], [None, 3], [4]]) == 2


def test_extremes_of_texts_dates_and_nan() -> None:
    texts = ["b", "a\0", "a", "\U0001d11e", None, ""]
    assert merged("min", STRING, pieces_of(texts, 1)) == ""
    assert merged("max", STRING, pieces_of(texts, 2)) == "\U0001d11e"
    assert math.isnan(merged("max", FLOAT64, [[1.0], [math.nan], [math.inf]]))
    assert merged("min", FLOAT64, [[math.nan], [math.inf]]) == math.inf
    assert merged("max", DataType.BOOL, [[False], [True]]) is True
    assert merged("min", DataType.DATE, [[5, -7], [3]]) == -7


def test_states_of_different_aggregates_do_not_merge() -> None:
    with pytest.raises(ValueError, match="one aggregate"):
        merge_states([state_of("sum", INT64, [1]), state_of("min", INT64, [1])], [ONE, ONE])
    with pytest.raises(ValueError, match="at least one"):
        merge_states([], [])
