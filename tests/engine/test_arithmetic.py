"""Arithmetic equals Python's integers and floats, errors included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.arithmetic import BINARY, UNARY, round_half_away
from crescando.schema import DataType
from tests.engine import oracle
from tests.engine.oracle import Err, canonical

edge = st.sampled_from([0, 1, -1, 2, -2, 3, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
whole = st.one_of(edge, st.integers(-(2**63), 2**63 - 1))
real = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, -7.5, 3.0, math.inf, -math.inf, math.nan]))


def agree(found: object, errors: np.ndarray | None, expected: object) -> None:  # type: ignore[type-arg]
    if isinstance(expected, Err):
        assert errors is not None
        assert errors[0] == expected.cause
    else:
        assert errors is None or errors[0] == 0
        assert canonical(found) == canonical(expected)


@pytest.mark.parametrize("op", sorted(BINARY))
@given(a=whole, b=whole)
def test_integers(op: str, a: int, b: int) -> None:
    data, errors = BINARY[op](np.array([a]), np.array([b]), False)
    agree(data[0].item(), errors, oracle.arithmetic(op, a, b, False))


@pytest.mark.parametrize("op", sorted(BINARY))
@given(a=real, b=real)
def test_floats(op: str, a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        data, errors = BINARY[op](np.array([a]), np.array([b]), True)
    agree(data[0].item(), errors, oracle.arithmetic(op, a, b, True))


@pytest.mark.parametrize("op", sorted(UNARY))
@pytest.mark.parametrize("kind", [DataType.INT8, DataType.INT64])
def test_unary_integers_keep_their_type(op: str, kind: DataType) -> None:
    bounds = np.iinfo(kind.value)
    for value in (bounds.min, bounds.min + 1, -1, 0, bounds.max):
        data, errors = UNARY[op](np.array([value], kind.value))
        results = {"neg": -value, "abs": abs(value), "floor": value}
        agree(data[0].item(), errors, oracle.bounded(results[op], kind))
        assert data.dtype == np.dtype(kind.value)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(2.5, None, 3.0), (-2.5, None, -3.0), (0.5, 0, 1.0), (2.675, 2, 2.67), (1250, -2, 1300), (-7, 3, -7)],
)
def test_round_takes_ties_of_the_exact_value_away_from_zero(
    value: float, digits: int | None, expected: float
) -> None:
    data, errors = round_half_away(np.array([value]), None if digits is None else np.array([digits]))
    assert errors is None
    assert data[0] == expected


def test_round_passes_what_is_not_a_number() -> None:
    data, _ = round_half_away(np.array([math.inf, math.nan, 1e300, 5e-324]), np.array([2]))
    assert data[0] == math.inf
    assert math.isnan(data[1])
    assert data[2:].tolist() == [1e300, 0.0]
