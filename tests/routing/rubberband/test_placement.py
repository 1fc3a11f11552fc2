"""Weights of ranges, and positions, against a count of single rows."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from crescando.routing.rubberband.keyspace import Expand, Rebalance, transformed
from crescando.routing.rubberband.placement import (
    Weights,
    _candidates,
    best_position,
    cut,
    cut_at,
    loads,
)
from crescando.routing.rubberband.ring import Ring
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.routing.worlds import storage

SEEDS = range(20)


def some(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(RING_MAX) for _ in range(n)]


def a_ring(rng: random.Random, n: int, replication: int) -> Ring:
    return Ring(tuple(sorted(some(rng, n))), tuple(map(storage, range(n))), replication)


def weighed(rows: list[int], parts: tuple[KeyRange, ...]) -> Weights:
    return Weights.of(
        {part: (n := sum(part.low <= row <= part.high for row in rows), 10 * n) for part in parts}
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_processes_hold_is_counted_row_by_row(seed: int) -> None:
    rng = random.Random(seed)
    ring = a_ring(rng, rng.randint(2, 7), rng.randint(1, 2))
    rows = [rng.randrange(RING_MAX) for _ in range(300)]
    weights = weighed(rows, cut_at(ring.ids))

    counted: Counter[object] = Counter()
    for row in rows:
        arc = next(place for place, (low, high) in enumerate(ring.arcs) if low <= row <= high)
        counted.update(ring.owners(arc))

    assert loads(ring, weights) == {process: counted[process] for process in ring.processes}
    assert weights.n_rows == 300
    assert sum(map(weights.bytes_in, ring.arcs)) == 3000


@pytest.mark.parametrize("seed", SEEDS)
def test_a_share_of_a_range_lies_below_the_position_that_is_told(seed: int) -> None:
    rng = random.Random(seed)
    parts = cut_at(some(rng, 12))
    weights = Weights.of({part: (rng.choice((0, 0, rng.randrange(10_000))), 0) for part in parts})
    low, high = sorted(some(rng, 2))
    key_range = KeyRange(low, high)

    for part in range(9):
        at = weights.share(key_range, part, 8)

        assert low <= at <= high
        if weights.rows_in(key_range):
            below = weights.rows_in(KeyRange(low, at - 1)) if at > low else 0
            assert abs(below - weights.rows_in(key_range) * part // 8) <= 2


@pytest.mark.parametrize("width", [1, 2, 5, 16, 1 << 40, 1 << 64])
def test_a_range_is_cut_into_all_of_it(width: int) -> None:
    parts = list(cut(KeyRange(0, width - 1), 16))

    assert len(parts) == min(16, width)
    assert parts[0].low == 0
    assert parts[-1].high == width - 1
    assert all(left.high + 1 == right.low for left, right in pairwise(parts))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_newcomer_halves_the_heaviest_of_single_copies(seed: int) -> None:
    rng = random.Random(seed)
    ring = a_ring(rng, 4, 1)
    rows = [rng.randrange(RING_MAX) for _ in range(2000)]
    weights = weighed(rows, tuple(part for arc in cut_at(ring.ids) for part in cut(arc, 64)))
    before = sorted(loads(ring, weights).values())

    at = best_position(ring, storage(9), weights)
    after = loads(transformed(ring, Expand(storage(9), at)), weights)

    second = before[-2]
    assert max(after.values()) <= max(second, before[-1] // 2 + before[-1] // 16)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("replication", [1, 2, 3])
def test_no_position_of_many_tried_at_random_is_much_better(seed: int, replication: int) -> None:
    rng = random.Random(seed)
    ring = a_ring(rng, 5, replication)
    heavy = rng.randrange(RING_MAX)
    rows = [
        rng.randrange(RING_MAX) if rng.random() < 0.5 else (heavy + rng.randrange(1 << 60)) % RING_MAX
        for _ in range(1000)
    ]
    weights = weighed(rows, tuple(part for arc in cut_at(ring.ids) for part in cut(arc, 32)))
    mover = rng.choice([storage(9), ring.processes[2]])
    change = Rebalance if mover in ring.processes else Expand

    def heaviest(at: int) -> int:
        return max(loads(transformed(ring, change(mover, at)), weights).values())

    chosen = heaviest(best_position(ring, mover, weights))

    assert chosen <= 1.13 * min(heaviest(rng.randrange(RING_MAX)) for _ in range(100))


@pytest.mark.parametrize("seed", SEEDS)
def test_of_the_positions_that_are_tried_none_is_better_as_rings_tell_it(seed: int) -> None:
    rng = random.Random(seed)
    ring = a_ring(rng, rng.randint(3, 6), rng.randint(1, 3))
    parts = [part for arc in cut_at(ring.ids) for part in cut(arc, 8)]
    weights = Weights.of({part: (rng.randrange(100), 0) for part in parts})
    mover = rng.choice([storage(9), ring.processes[1]])
    change = Rebalance if mover in ring.processes else Expand

    def score(at: int) -> tuple[int, int, int]:
        borne = loads(transformed(ring, change(mover, at)), weights).values()
        return max(borne), sum(each * each for each in borne), at

    tried = set(_candidates(ring, weights, None)) - set(ring.ids)

    assert best_position(ring, mover, weights) == min(tried, key=score)


def test_an_empty_ring_is_divided_by_its_width() -> None:
    ring = Ring((0,), (storage(0),), 1)

    at = best_position(ring, storage(1), Weights())

    assert at == 1 << 63


def test_ranges_that_are_not_the_whole_ring_are_refused() -> None:
    with pytest.raises(ValueError, match="whole ring"):
        Weights.of({KeyRange(1, RING_MAX): (1, 1)})
    assert Weights.of({FULL_RING: (1, 1)}).n_rows == 1
