"""A membership change from its proposal to its end, every interleaving, and what becomes of it afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.testing.exhaustive import Explorer
from crescando.testing.membership_scope import order_of
from crescando.testing.scope import Facts, Left
from crescando.testing.turns import DOWN
from tests.simulation.membership_scopes import (
    CHANGES,
    PAIR,
    PROPOSED,
    STANDSTILLS,
    TRIO,
    follow_up,
    joining,
)
from tests.simulation.small_scopes import R1, R2, R3, Plant

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_comes_to_its_end_in_every_schedule(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    case = CHANGES[name]
    explorer = Explorer(case.scope, case.left, case.script)

    found = explorer.explore(case.depth)
    judged, later = follow_up(explorer)

    record_property("explored", str(found))
    print(f"{name}: {found}; time went on from {judged} states at rest")
    assert not found.violations, "\n".join(map(str, found.violations.values()))
    assert not later, "\n".join(map(str, later.values()))
    assert found.is_whole
    assert judged > 1
    assert not case.changes_leader or found.with_leader_change > 0


def test_a_joiner_votes_where_it_is_a_member_within_the_scope() -> None:
    explorer = Explorer(joining(), Left(), PROPOSED)

    explorer.explore(99)

    start = 3
    votes = [
        key
        for state, _ in explorer.resting()
        for key in explorer.whole.facts(state)
        if key[0] == "vote" and key[3] == R3
    ]
    assert any(int(str(key[2])) >= start for key in votes)


def test_a_leaver_is_let_go_within_the_scope() -> None:
    case = CHANGES["leave_beat"]
    explorer = Explorer(case.scope, case.left, case.script)

    explorer.explore(99)

    assert any(state.lives[2] == DOWN for state, _ in explorer.resting())


@pytest.mark.parametrize("plant", STANDSTILLS, ids=lambda plant: plant.__name__)
def test_a_planted_standstill_is_found(plant: Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case, kinds = plant(patch)
        explorer = Explorer(case.scope, case.left, case.script)
        found = explorer.explore(case.depth)
        _, later = follow_up(explorer)

    assert not found.violations, "it is only afterwards that something is missing"
    assert kinds <= later.keys()
    print(later[min(kinds)])


# Who governs what, as the scope itself works it out.


def facts_of(*values: object, voters: tuple[object, ...] = (R1, R2)) -> Facts:
    """Give the facts of these values voted for in one ballot, from instance 1 on."""
    ballot = Ballot(1, R1)
    facts: dict[tuple[object, ...], object] = {}
    for instance, value in enumerate(values, 1):
        facts["ballot", ballot, instance] = ("inner", value) if isinstance(value, Change) else value
        facts.update({("vote", ballot, instance, voter): True for voter in voters})
    return facts


def test_a_change_governs_from_alpha_instances_later_on() -> None:
    order = order_of(facts_of(Change(0, add=R3), "v", "w"), Membership(0, PAIR), 2)

    assert order.memberships == [Membership(0, PAIR), Membership(1, TRIO, 3)]
    assert order.learned == 3


def test_a_change_in_front_of_another_that_is_not_in_force_is_void() -> None:
    facts = facts_of(Change(0, remove=R3), Change(1, remove=R2), Change(1, remove=R2))

    order = order_of(facts, Membership(0, TRIO), 2)

    assert [known.start for known in order.memberships] == [1, 3, 5]


def test_votes_of_those_who_do_not_govern_an_instance_do_not_count() -> None:
    order = order_of(facts_of("v", voters=(R1, R3)), Membership(0, PAIR), 2)

    assert order.learned == 0
    assert not order.decided
