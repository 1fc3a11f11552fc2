"""Order keys and exact comparison of integers with floats."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.keys import equal_to, float_keys, key_intervals, less_than, order_keys
from crescando.engine.scaled import compare_floats
from tests.engine.oracle import COMPARISONS, order

WHOLE = [0, 1, -1, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1]
WHOLE += [2**63 - 1, 2**63 - 512, -(2**63), -(2**63) + 1]
REAL = [0.0, -0.0, 0.5, -0.5, 1.0, 7.25, 2.0**53, 2.0**53 + 2, 2.0**62, 2.0**63, -(2.0**63), -1e300, 1e300]
REAL += [math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.0**63 - 1024]


@pytest.mark.parametrize(("left_kind", "right_kind"), list(product("if", "if")))
def test_comparisons_are_those_of_the_numbers_themselves(left_kind: str, right_kind: str) -> None:
    left = WHOLE if left_kind == "i" else REAL
    right = WHOLE if right_kind == "i" else REAL
    for a, b in product(left, right):
        x = np.array([a], np.int64 if left_kind == "i" else np.float64)
        y = np.array([b], np.int64 if right_kind == "i" else np.float64)
        assert bool(less_than(x, y)[0]) == (order(a, b) < 0), (a, b)
        assert bool(equal_to(x, y)[0]) == (order(a, b) == 0), (a, b)


@given(st.integers(-(2**63), 2**63 - 1), st.floats())
def test_integers_and_floats_compare_exactly(whole: int, real: float) -> None:
    found = int(compare_floats(np.array([whole]), np.array([real]), 0)[0])
    assert found == order(whole, real)


@given(st.lists(st.floats(), min_size=2))
def test_float_keys_sort_as_the_floats_do(values: list[float]) -> None:
    keys = float_keys(np.array(values)).tolist()
    for (a, x), (b, y) in product(zip(values, keys, strict=True), repeat=2):
        assert (x > y) - (x < y) == order(a, b)


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(("column_kind", "constant_kind"), list(product("if", "if")))
def test_intervals_hold_exactly_the_keys_that_satisfy(op: str, column_kind: str, constant_kind: str) -> None:
    column = WHOLE if column_kind == "i" else REAL
    constants = WHOLE if constant_kind == "i" else REAL
    dtype = np.int64 if constant_kind == "i" else np.float64
    low, high = key_intervals(column_kind == "f", op, np.array(constants, dtype))
    keys = order_keys(np.array(column, np.int64 if column_kind == "i" else np.float64))
    for place, constant in enumerate(constants):
        for value, key in zip(column, keys.tolist(), strict=True):
            holds = COMPARISONS[op](order(value, constant))
            assert (low[place] <= key <= high[place]) == holds, (value, op, constant)
