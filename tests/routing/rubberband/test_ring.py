from __future__ import annotations

import random

import numpy as np
import pytest

from crescando.errors import SpecError
from crescando.routing.rubberband.ring import Ring, spread_ids
from crescando.types import RING_MAX, KeyRange
from tests.routing.worlds import random_ids, storage


def ring(ids: list[int], f: int) -> Ring:
    return Ring(tuple(ids), tuple(storage(i) for i in range(len(ids))), f)


def test_lowest_id_0_gives_one_arc_per_process() -> None:
    assert ring([0, 100], 1).arcs == (KeyRange(0, 99), KeyRange(100, RING_MAX))


def test_partition_of_the_highest_id_wraps_as_two_arcs() -> None:
    wrapping = ring([20, 30, 40, 50], 1)

    assert wrapping.arcs[0] == KeyRange(0, 19)
    assert wrapping.owned_arcs(storage(3)) == (KeyRange(0, 19), KeyRange(50, RING_MAX))


def test_arcs_are_owned_by_a_process_and_its_successors() -> None:
    # RB13 Fig. 6: f = 3, processes a, b, c, d at 20, 30, 40, 50.
    figure = ring([20, 30, 40, 50], 3)

    assert figure.owners(1) == (storage(0), storage(1), storage(2))
    assert figure.owners(0) == (storage(3), storage(0), storage(1))
    assert figure.owned_arcs(storage(0)) == (
        KeyRange(0, 19),
        KeyRange(20, 29),
        KeyRange(40, 49),
        KeyRange(50, RING_MAX),
    )


def test_process_without_a_position_owns_nothing() -> None:
    assert ring([0], 1).owned_arcs(storage(9)) == ()


def test_highest_position_can_be_an_id() -> None:
    edge = ring([0, RING_MAX], 1)

    assert edge.arcs == (KeyRange(0, RING_MAX - 1), KeyRange(RING_MAX, RING_MAX))
    assert edge.mask([KeyRange(RING_MAX, RING_MAX)]) == 0b10


@pytest.mark.parametrize("seed", range(100))
def test_owned_arcs_and_touched_arcs_agree_with_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 12)
    some = ring(sorted(random_ids(rng, n)), rng.randint(1, n))
    lows = np.array([rng.randrange(1 << 64) for _ in range(20)] + [0, RING_MAX], np.uint64)
    highs = np.maximum(lows, np.array([rng.randrange(1 << 64) for _ in range(22)], np.uint64))

    first, last = some.arcs_touched(lows, highs)

    assert some.arcs[0].low == 0
    assert some.arcs[-1].high == RING_MAX
    assert all(a.high + 1 == b.low for a, b in zip(some.arcs, some.arcs[1:], strict=False))
    for process in some.processes:
        owned = [arc for i, arc in enumerate(some.arcs) if process in some.owners(i)]
        assert some.owned_arcs(process) == tuple(owned)
    for low, high, a, b in zip(lows.tolist(), highs.tolist(), first.tolist(), last.tolist(), strict=True):
        touched = [i for i, arc in enumerate(some.arcs) if arc.low <= high and low <= arc.high]
        assert touched == list(range(a, b + 1))
        assert some.mask([KeyRange(low, high)]) == sum(1 << i for i in touched)
        assert some.merged(some.mask([KeyRange(low, high)])) == (
            KeyRange(some.arcs[a].low, some.arcs[b].high),
        )


@pytest.mark.parametrize(
    ("ids", "f", "complaint"),
    [
        ([0, 1], 3, "more replicas"),
        ([], 1, "more replicas"),
        ([0], 0, "at least 1"),
        ([5, 5], 1, "distinct"),
        ([5, 4], 1, "ascending"),
        ([0, RING_MAX + 1], 1, "must lie in"),
        ([-1], 1, "must lie in"),
    ],
)
def test_impossible_ring_is_refused(ids: list[int], f: int, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        ring(ids, f)


@pytest.mark.parametrize(("n", "f", "promised"), [(3, 2, 3), (3, 3, 2), (4, 2, 9)])
def test_a_ring_keeps_as_many_copies_as_are_promised_and_it_can(n: int, f: int, promised: int) -> None:
    with pytest.raises(SpecError, match="do not keep"):
        Ring(tuple(range(n)), tuple(map(storage, range(n))), f, promised)


def test_process_cannot_have_two_positions() -> None:
    with pytest.raises(SpecError, match="twice"):
        Ring((0, 1), (storage(0), storage(0)), 1)


def test_spread_ids_are_even_and_begin_at_0() -> None:
    assert spread_ids(4) == (0, 1 << 62, 1 << 63, 3 << 62)
    gaps = np.diff(np.array(spread_ids(7), dtype=object))
    assert max(gaps) - min(gaps) <= 1
