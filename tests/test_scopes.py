"""Arithmetic of ring ranges, against sets of positions."""

from __future__ import annotations

import random

import pytest

from crescando.scopes import common, covers, cut, merged, subtract
from crescando.types import RING_MAX, KeyRange, Scope

WIDTH = 24


def drawn(rng: random.Random) -> Scope:
    ends = sorted(rng.sample(range(WIDTH), 2 * rng.randrange(4)))
    return tuple(KeyRange(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True))


def positions(ranges: object) -> list[int]:
    """Give every position of some ranges, one that is in two of them twice."""
    return [at for low, high in ranges for at in range(low, high + 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(200))
def test_ranges_are_what_their_positions_are(seed: int) -> None:
    rng = random.Random(seed)
    a, b = drawn(rng), drawn(rng)
    in_a, in_b = set(positions(a)), set(positions(b))

    assert positions(subtract(a, b)) == sorted(in_a - in_b)
    assert positions(common(a, b)) == sorted(in_a & in_b)
    assert positions(merged((*a, *b))) == sorted(in_a | in_b)
    assert covers(a, b) == (in_b <= in_a)
    borders = sorted(rng.sample(range(WIDTH), rng.randrange(6)))
    pieces = cut(a, borders)
    assert positions(pieces) == positions(a)
    begins = {low for low, _ in a} | (set(borders) & in_a)
    assert {low for low, _ in pieces} == begins


def test_ranges_that_touch_are_merged_and_the_ends_of_the_ring_are_positions_like_others() -> None:
    low, high = KeyRange(0, 9), KeyRange(10, RING_MAX)

    assert merged((high, low)) == (KeyRange(0, RING_MAX),)
    assert cut((KeyRange(0, RING_MAX),), (0, 10)) == (low, high)
    assert cut((KeyRange(0, RING_MAX),), (RING_MAX,)) == (
        KeyRange(0, RING_MAX - 1),
        KeyRange(RING_MAX, RING_MAX),
    )
