"""Numbers of any scale are compared, rounded and turned into floats as exact fractions say."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from crescando.engine.keys import float_keys, key_intervals
from crescando.engine.scaled import UNITS_MAX, compare_floats, compare_units, round_to, to_floats

SCALES = (0, 1, 2, 9, 15, 17, 18)


def units(random: Random) -> int:
    size = random.choice((3, 100, 10**9, 2**53 + 5, UNITS_MAX))
    return random.choice((0, 1, -1, UNITS_MAX, -UNITS_MAX, random.randint(-size, size)))


def real(random: Random, near: int, scale: int) -> float:
    """Give a float that is near a number, or one of the ends of the floats."""
    value = near / 10**scale
    value = random.choice((value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf)))
    special = (0.0, -0.0, 5e-324, -5e-324, 1e-301, -1e-301, 1e300, -1e300, math.inf, -math.inf, 2.0**63)
    return value if random.random() < 0.8 else random.choice(special)


def sign(left: Fraction, right: Fraction) -> int:
    return (left > right) - (left < right)


@pytest.mark.parametrize("scale", SCALES)
def test_floats_are_compared_exactly(scale: int) -> None:
    random = Random(scale)
    left = [units(random) for _ in range(4_000)]
    right = [real(random, each, scale) for each in left]

    found = compare_floats(np.array(left), np.array(right), scale).tolist()

    for whole, other, told in zip(left, right, found, strict=True):
        if math.isinf(other):
            assert told == (-1 if other > 0 else 1)
        else:
            assert told == sign(Fraction(whole, 10**scale), Fraction(other)), (whole, other)


@pytest.mark.parametrize("scales", [(a, b) for a in SCALES for b in SCALES])
def test_two_scales_are_compared_exactly(scales: tuple[int, int]) -> None:
    random = Random(sum(scales))
    left = [units(random) for _ in range(1_000)]
    right = [
        min(
            max(
                round(Fraction(each, 10 ** scales[0]) * 10 ** scales[1]) + random.choice((0, 0, 1, -1)),
                -(10**18),
            ),
            10**18,
        )
        for each in left
    ]

    found = compare_units(np.array(left), np.array(right), *scales).tolist()

    wanted = [
        sign(Fraction(a, 10 ** scales[0]), Fraction(b, 10 ** scales[1]))
        for a, b in zip(left, right, strict=True)
    ]
    assert found == wanted


@pytest.mark.parametrize("scale", SCALES)
def test_the_nearest_float_is_given(scale: int) -> None:
    random = Random(scale)
    numbers = [units(random) for _ in range(3_000)]

    assert to_floats(np.array(numbers), scale).tolist() == [each / 10**scale for each in numbers]


@pytest.mark.parametrize("target", [-25, -19, -18, -17, -1, 0, 1, 2, 9])
def test_ties_are_rounded_away_from_zero(target: int) -> None:
    random = Random(target)
    numbers = [*(units(random) for _ in range(2_000)), 5, -5, 15, 25, 500_000_000, -500_000_000]
    context = Context(prec=100, rounding=ROUND_HALF_UP)

    found = round_to(np.array(numbers), 9, target).tolist()

    for number, told in zip(numbers, found, strict=True):
        exact = Decimal(number).scaleb(target - 9, context=context)
        assert told == int(exact.to_integral_value(ROUND_HALF_UP, context)), number


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("column_scale", [0, 2, 18])
@pytest.mark.parametrize("constant_scale", [0, 3, 18, None])
def test_an_interval_holds_the_numbers_that_satisfy_a_comparison(
    op: str, column_scale: int, constant_scale: int | None
) -> None:
    random = Random(7)
    column = np.array(sorted({units(random) for _ in range(60)}))
    constants = [
        units(random) if constant_scale is not None else real(random, units(random), column_scale)
        for _ in range(60)
    ]
    if constant_scale == column_scale:
        constants[:20] = column[:20].tolist()

    low, high = key_intervals(False, op, np.array(constants), column_scale, constant_scale or 0)

    for constant, least, most in zip(constants, low.tolist(), high.tolist(), strict=True):
        for number in column.tolist():
            told = least <= number <= most
            if constant_scale is None and math.isinf(constant):
                order = -1 if constant > 0 else 1
            else:
                order = sign(
                    Fraction(number, 10**column_scale), Fraction(constant) / 10 ** (constant_scale or 0)
                )
            assert told == holds(op, order), (number, op, constant)


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("scale", [1, 17, 18])
def test_a_float_column_is_compared_exactly_with_decimal_constants(op: str, scale: int) -> None:
    random = Random(scale)
    constants = [units(random) for _ in range(80)]
    column = [real(random, each, scale) for each in constants]

    low, high = key_intervals(True, op, np.array(constants), 0, scale)

    for value, key in zip(column, float_keys(np.array(column)).tolist(), strict=True):
        for constant, least, most in zip(constants, low.tolist(), high.tolist(), strict=True):
            order = (
                (1 if value > 0 else -1)
                if math.isinf(value)
                else sign(Fraction(value), Fraction(constant, 10**scale))
            )
            assert (least <= key <= most) == holds(op, order), (value, op, constant)


def holds(op: str, order: int) -> bool:
    return {"=": order == 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]
