"""`check_config` finds bugs in Configs by their rule, and lets sound ones pass."""

from __future__ import annotations

import random

import pytest

from crescando.routing.base import Config
from crescando.routing.batch import Message
from crescando.routing.broadcast import Broadcast
from crescando.routing.rubberband import Rubberband
from crescando.testing.conformance import ConformanceError, check_config
from crescando.testing.conformance.scopes import first_hole
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId
from tests.conformance import faulty
from tests.routing.worlds import random_ring, simple


def test_broadcast_passes() -> None:
    report = check_config(lambda: Broadcast(faulty.MEMBERS))

    assert report.routed > 300
    assert report.refused > 100
    assert report.suspected > 100
    assert report.swapped > 50


def ring() -> Rubberband:
    return simple(5, 3, n_supers=3)


def test_rubberband_passes() -> None:
    report = check_config(ring, limit_s=0.5)

    assert report.routed > 150
    assert report.suspected > 10
    assert report.swapped > 50


@pytest.mark.parametrize("seed", range(6))
def test_random_rings_pass(seed: int) -> None:
    check_config(lambda: random_ring(random.Random(seed)), seeds=5, steps=60, limit_s=0.5, elsewhere=False)


BUGS: list[tuple[type, set[str]]] = [
    (faulty.Random, {"determinism"}),
    (faulty.Clock, {"determinism"}),
    (faulty.Numbered, {"determinism"}),
    (faulty.Hashing, {"second process"}),
    (faulty.UnsortedEncoding, {"canonical encoding", "second process"}),
    (faulty.Mutating, {"immutability"}),
    (faulty.Stranger, {"unknown process"}),
    (faulty.SuspectsStranger, {"unknown process"}),
    (faulty.Overlapping, {"overlapping scopes"}),
    (faulty.Missing, {"missing scope"}),
    (faulty.UnscopedRead, {"scopes"}),
    (faulty.ScopedConfiguration, {"scopes"}),
    (faulty.LosesState, {"encoding"}),
    (faulty.CannotDecode, {"encoding"}),
    (faulty.LatestFailed, {"prefix"}),
    (faulty.Forgetful, {"suspects"}),
    (faulty.SuspectsTooFew, {"suspects"}),
    (faulty.Raising, {"refusal"}),
    (faulty.RefusesLate, {"refusal"}),
    (faulty.Copying, {"apply"}),
    (faulty.OtherType, {"apply"}),
    (faulty.ConstantDigest, {"digest"}),
    (faulty.ShortDigest, {"digest"}),
    (faulty.Disagreeing, {"members"}),
    (faulty.WrongRuns, {"route"}),
]


@pytest.mark.parametrize(("kind", "rules"), BUGS, ids=[kind.__name__ for kind, _ in BUGS])
def test_a_planted_bug_is_found_and_its_rule_named(kind: type, rules: set[str]) -> None:
    faulty.LatestFailed.failed.clear()

    with pytest.raises(ConformanceError) as caught:
        check_config(faulty.genesis_of(kind))

    assert caught.value.rule in rules, str(caught.value)
    assert str(caught.value).startswith(caught.value.rule + ": ")


def test_a_slow_plug_in_is_reported() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_config(faulty.genesis_of(faulty.Slow), limit_s=0.001)

    assert caught.value.rule == "slow"


def test_a_check_that_met_nothing_says_so() -> None:
    def only_reads(rng: random.Random, config: Config, sender: ProcessId, number: int) -> Message:
        return Message(sender, number, MessageKind.READ, 0, (FULL_RING,), 0, b"")

    with pytest.raises(ValueError, match="shows nothing"):
        check_config(lambda: Broadcast(faulty.MEMBERS), only_reads, seeds=2, elsewhere=False)


def test_a_class_that_no_other_process_can_import_is_told() -> None:
    class Local(Broadcast):
        pass

    with pytest.raises(ValueError, match="elsewhere=False"):
        check_config(lambda: Local(faulty.MEMBERS), seeds=2)
    check_config(lambda: Local(faulty.MEMBERS), seeds=2, elsewhere=False)


def test_holes_are_found_to_the_position() -> None:
    halves = [KeyRange(0, 9), KeyRange(11, RING_MAX)]

    assert first_hole([FULL_RING], halves) == 10
    assert first_hole([KeyRange(3, 9), KeyRange(11, 12)], halves) is None
    assert first_hole([KeyRange(0, RING_MAX)], [KeyRange(0, RING_MAX - 1)]) == RING_MAX
    assert first_hole([KeyRange(5, 5)], []) == 5
