"""Cutting a failing schedule down: exactly the faults it takes, always the same, never one that passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from crescando.testing.faults import Fault
from crescando.testing.order_faults import ORDER_KINDS
from crescando.testing.order_run import run_order_seed
from crescando.testing.shrink import shrink
from crescando.testing.verdict import Verdict
from tests.simulation.planted_worlds import run_shy

Predicate = Callable[[Sequence[Fault]], bool]


class Subject:
    """A run that fails where a predicate says so, and remembers what it was asked."""

    def __init__(self, fails: Predicate) -> None:
        self.fails = fails
        self.asked: list[tuple[Fault, ...]] = []

    def __call__(self, faults: Sequence[Fault]) -> Verdict:
        self.asked.append(tuple(faults))
        return Verdict(7, ["planted"] if self.fails(faults) else [], list(faults))


def schedule(n: int, seed: int = 0) -> list[Fault]:
    rng = random.Random(seed)
    return [Fault(f"kind{i}", float(i), rng.uniform(0.02, 2.0), rng.randrange(1 << 30)) for i in range(n)]


def needs(*kinds: str) -> Predicate:
    return lambda faults: set(kinds) <= {fault.kind for fault in faults}


def kinds_of(verdict: Verdict) -> list[str]:
    return [fault.kind for fault in verdict.faults]


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 9, 16])
def test_any_two_faults_are_found_among_many(n: int) -> None:
    for first in range(n):
        for second in range(first + 1, n):
            wanted = [f"kind{first}", f"kind{second}"]

            assert kinds_of(shrink(Subject(needs(*wanted)), schedule(n))) == wanted


def test_any_set_of_faults_is_found_among_many() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        n = rng.randint(1, 12)
        wanted = sorted(rng.sample(range(n), rng.randint(0, n)))

        least = shrink(Subject(needs(*(f"kind{i}" for i in wanted))), schedule(n, seed))

        assert kinds_of(least) == [f"kind{i}" for i in wanted], f"seed {seed}"


def test_what_fails_without_any_fault_is_cut_down_to_none() -> None:
    assert shrink(Subject(lambda faults: True), schedule(9)).faults == []


def test_faults_are_made_as_short_as_they_may_be() -> None:
    def fails(faults: Sequence[Fault]) -> bool:
        lengths = {fault.kind: fault.length_s for fault in faults}
        return lengths.get("kind2", 0.0) > 0.3 and "kind4" in lengths

    least = shrink(Subject(fails), schedule(6))

    long, short = least.faults
    assert 0.3 < long.length_s <= 0.6, "half of it would not fail"
    assert 0.005 < short.length_s <= 0.01
    before = {fault.kind: fault for fault in schedule(6)}
    for fault in least.faults:
        was = before[fault.kind]
        assert (fault.when_s, fault.choice) == (was.when_s, was.choice)


def test_of_the_least_schedule_nothing_can_be_left_out_once_it_is_short() -> None:
    """A fault that matters only to a long one goes when that one has become short."""

    def fails(faults: Sequence[Fault]) -> bool:
        lengths = {fault.kind: fault.length_s for fault in faults}
        return "kind1" in lengths and ("kind3" in lengths or lengths["kind1"] < 0.1)

    least = shrink(Subject(fails), schedule(5))

    assert kinds_of(least) == ["kind1"]
    assert least.faults[0].length_s < 0.1


def test_a_schedule_that_passes_is_never_given_whatever_the_run_is_like() -> None:
    """Even of a run without rhyme or reason, and no fault fewer would fail."""
    for seed in range(150):

        def fails(faults: Sequence[Fault], seed: int = seed) -> bool:
            asked = ";".join(f"{fault.kind} {fault.length_s:.6f}" for fault in faults)
            return len(faults) == 8 or random.Random(f"{seed}/{asked}").random() < 0.3

        subject = Subject(fails)
        least = shrink(subject, schedule(8, seed))

        assert not least.is_correct, f"seed {seed}"
        assert fails(least.faults), f"seed {seed}"
        for index in range(len(least.faults)):
            fewer = [*least.faults[:index], *least.faults[index + 1 :]]
            assert not fails(fewer), f"seed {seed}: {fewer} fails as well"
        assert all(
            asked[i].when_s < asked[i + 1].when_s for asked in subject.asked for i in range(len(asked) - 1)
        )


def test_shrinking_is_the_same_every_time() -> None:
    one, other = Subject(needs("kind3", "kind8")), Subject(needs("kind3", "kind8"))

    assert shrink(one, schedule(11)) == shrink(other, schedule(11))
    assert one.asked == other.asked


def test_it_does_not_take_many_runs() -> None:
    subject = Subject(needs("kind5", "kind20"))

    shrink(subject, schedule(32))

    assert len(subject.asked) < 150


def test_a_schedule_that_passes_cannot_be_cut_down() -> None:
    with pytest.raises(ValueError, match="seed 7 does not fail"):
        shrink(Subject(needs("nothing of the kind")), schedule(3))


@pytest.mark.simulation
def test_a_fault_of_the_product_that_takes_two_faults_is_cut_down_to_those() -> None:
    """Routers that never ask again: some sessions must end, and a router that is needed for it must go."""
    for seed in range(300):
        verdict = run_shy(seed)
        if verdict.is_correct:
            continue

        def run(faults: Sequence[Fault], seed: int = seed) -> Verdict:
            return run_shy(seed, faults=faults)

        least = shrink(run, verdict.faults)
        print(f"seed {seed}: {len(verdict.faults)} faults, of which it takes {kinds_of(least)}")
        assert least.violations == run(least.faults).violations != []
        assert all(
            run([*least.faults[:i], *least.faults[i + 1 :]]).is_correct for i in range(len(least.faults))
        )
        if len(least.faults) == 2 < len(verdict.faults):
            break
    else:
        pytest.fail("no seed takes two faults")

    first, second = least.faults
    assert {first.kind, second.kind} <= {*ORDER_KINDS}
    assert {first.choice, second.choice} <= {fault.choice for fault in verdict.faults}
    assert run([]).is_correct
    assert run_order_seed(seed, faults=least.faults).is_correct, "it fails without the fault too"
    assert shrink(run, verdict.faults).trace_digest == least.trace_digest
