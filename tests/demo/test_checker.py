"""The checker's own rules, one small case each."""

from __future__ import annotations

import pytest

from crescando.demo.checker import Verdict, check_order, check_ring
from crescando.demo.operations import Operation, Purge, ReadTail
from crescando.demo.record import Answered, Record, Written
from crescando.types import RING_MAX, KeyRange, ProcessId

READ: Operation = ReadTail("N1")
WRITE: Operation = Purge("JFK", "2013-01-01T00:00:00Z", "2013-01-01T01:00:00Z")


def faults_of(*told: tuple[str, int], agent: int = 0, moved_max: int = 0) -> int:
    """Check one session that was told these positions, in the order of submission."""
    records = [
        Record(
            agent,
            sequence,
            READ if kind == "read" else WRITE,
            Answered(position, None) if kind == "read" else Written(position, 0, 0),
            0.001,
        )
        for sequence, (kind, position) in enumerate(told)
    ]
    verdict = Verdict()
    check_order(records, verdict, moved_max=moved_max)
    return verdict.order_faults


def test_ascending_positions_are_in_order() -> None:
    assert faults_of(("read", 1), ("write", 4), ("read", 6), ("write", 9)) == 0


@pytest.mark.parametrize(
    "told",
    [
        (("write", 4), ("write", 3)),
        (("write", 4), ("read", 3)),
        (("read", 4), ("write", 3)),
        (("read", 4), ("read", 3)),
        (("read", 4), ("read", 4)),
        (("write", 5), ("read", 8), ("write", 7), ("read", 9)),
    ],
)
def test_positions_against_the_order_of_submission_are_faults(told: tuple[tuple[str, int], ...]) -> None:
    assert faults_of(*told) > 0


def test_positions_of_loading_are_unique_and_below_all() -> None:
    record = Record(0, 0, READ, Answered(10, None), 0.001)
    faults = []
    for loaded in ((), (3, 4), (3, 3), (3, 10), (3, 11)):
        verdict = Verdict()
        check_order([record], verdict, moved_max=0, loaded=loaded)
        faults.append(verdict.order_faults)

    assert faults == [0, 0, 1, 1, 1]


def test_read_sent_again_may_lie_behind_later_reads() -> None:
    told = (("write", 1), ("read", 9), ("read", 3), ("read", 4), ("write", 12))

    assert faults_of(*told, moved_max=1) == 0
    assert faults_of(*told, moved_max=0) == 1


def test_read_sent_again_may_not_cross_its_sessions_write() -> None:
    assert faults_of(("read", 9), ("write", 5), moved_max=5) > 0


STORAGES = tuple(ProcessId("storage", f"s{index}") for index in range(3))
HALVES = (KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX))


def ring_faults(*owned: tuple[ProcessId, KeyRange], n_replicas_min: int = 2) -> int:
    """Check a ring."""
    verdict = Verdict()
    check_ring(owned, n_replicas_min, verdict)
    return verdict.ring_faults


def test_covered_ring_has_no_faults() -> None:
    assert ring_faults(*((process, half) for process in STORAGES[:2] for half in HALVES)) == 0


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        (HALVES[0],),
        (HALVES[1],),
        (HALVES[0], KeyRange(RING_MAX // 2, RING_MAX)),
        (HALVES[0], KeyRange(RING_MAX // 2 + 2, RING_MAX)),
        (HALVES[0], KeyRange(RING_MAX // 2 + 1, RING_MAX - 1)),
    ],
)
def test_ring_with_a_hole_or_an_overlap_has_faults(ranges: tuple[KeyRange, ...]) -> None:
    assert ring_faults(*((process, each) for process in STORAGES[:2] for each in ranges)) > 0


def test_same_owner_named_twice_is_one_replica() -> None:
    assert ring_faults(*((STORAGES[0], half) for half in HALVES for _ in range(2))) == 2
