"""Small scopes of the order, every interleaving: nothing goes wrong, and what is planted is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from crescando.testing.exhaustive import Explorer
from crescando.testing.scope import Left
from crescando.testing.whole import END, SETTLE, Whole
from tests.simulation.membership_scopes import RECONFIGURATION_PLANTS
from tests.simulation.small_scopes import CASES, LED, PLANTS, R2, Plant, group, only, promise_without_votes

pytestmark = pytest.mark.simulation

SCHEDULES = 100_000
"""Each scope has more distinct schedules than this."""


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_of_a_scope_is_correct(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    case = CASES[name]

    found = case.explore()

    record_property("explored", str(found))
    print(f"{name}: {found}")
    assert not found.violations, "\n".join(map(str, found.violations.values()))
    assert found.schedules >= SCHEDULES
    assert found.is_whole or found.depth == case.depth
    assert not case.changes_leader or found.with_leader_change > 0


@pytest.mark.parametrize("plant", [*PLANTS, *RECONFIGURATION_PLANTS], ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, record_property: Callable[[str, object], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case, kinds = plant(patch)
        found = case.explore(until=kinds)

    named = sorted(kinds & found.violations.keys())
    assert named, f"looked for {sorted(kinds)}: {found}"
    violation = found.violations[named[0]]
    record_property("violation", violation.text)
    print(f"{plant.__name__}: after {len(violation.schedule)} actions: {violation.text}")
    assert len(violation.schedule) == found.depth + 1, "the shortest schedule is given"


def test_schedules_carried_out_one_by_one_are_as_many_as_were_counted() -> None:
    explorer = Explorer(group((("a1", "a2"), ("b1",))), Left(wake=2, crash=1, reset=1), LED)

    schedules, faults = explorer.carry_out(6)
    found = explorer.explore(6)

    assert schedules == found.schedules
    assert schedules >= SCHEDULES
    assert not faults
    assert not found.violations


def test_a_scope_that_is_explored_to_its_ends_counts_schedules_of_every_length() -> None:
    explorer = Explorer(group((("a1",),), waking=only()), Left(), LED)

    found = explorer.explore(99)

    assert found.is_whole
    assert (found.schedules, []) == explorer.carry_out(found.depth)
    assert explorer.carry_out(found.depth) == explorer.carry_out(found.depth + 1)


def test_a_session_that_ends_takes_everything_with_it_and_begins_anew_at_either_end() -> None:
    whole = Whole(group())
    state = whole.first(Left(reset=1), (*LED, ("ask", 0, 0)))
    assert ("deliver", 0, 1) in whole.actions(state)

    state, _ = whole.act(state, ("reset", 0, 1))

    queues = dict(zip(whole.links, state.queues, strict=True))
    assert queues[0, 1][0] == queues[1, 0][0] == END
    assert len(queues[0, 1]) == len(queues[1, 0]) == 2
    assert not [action for action in whole.actions(state) if action[0] == "reset"], "none is left"
    for link in ((0, 1), (0, 1), (1, 0), (1, 0), (0, 1)):
        state, _ = whole.act(state, ("deliver", *link))
    assert "Accept(" in whole.describe(state, ("deliver", 0, 1)), "what was lost is said again"


def test_what_a_crashed_process_is_sent_is_lost() -> None:
    whole = Whole(group())
    state = whole.first(Left(crash=1), LED)

    state, _ = whole.act(state, ("crash", 1))
    state, _ = whole.act(state, ("ask", 0, 0))

    queues = dict(zip(whole.links, state.queues, strict=True))
    assert not queues[0, 1]
    assert len(queues[0, 2]) == 1
    kinds = Counter(action[0] for action in whole.actions(state))
    assert kinds["deliver"] == 3, "two are told of the end, and one is asked to accept"


def test_a_script_in_which_something_is_wrong_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        case, _ = promise_without_votes(patch)

    whole = Whole(case.scope)
    voted = (("ask", 0, 0), ("deliver", 0, 2), ("crash", 0), ("deliver", 0, 1), ("deliver", 0, 2))
    elected = (("wake", 1), ("deliver", 1, 2), ("deliver", 2, 1), ("deliver", 1, 2), ("deliver", 2, 1))
    with pytest.raises(AssertionError, match="the script itself"):
        whole.first(Left(), (*LED, *voted, *elected, ("ask", 1, 1), SETTLE))


def test_a_leader_change_is_counted() -> None:
    led = Explorer(group((("a1",),), waking=only(R2)), Left(wake=1, crash=1), LED)

    before, after = led.explore(6), Explorer(led.scope, led.first.left, LED).explore(7)

    assert not before.with_leader_change
    assert 0 < after.with_leader_change < after.schedules
