"""Which membership governs which instance, and which changes are void."""

from __future__ import annotations

import pytest

from crescando.consensus.membership import LEAVERS_MAX, MEMBERS_MAX, Change, Memberships
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId
from tests.consensus.group import R1, R2, R3, router

R4, R5 = router(4), router(5)
ALPHA = 8


def genesis(*members: ProcessId) -> Memberships:
    return Memberships.begin(ALPHA, Membership(0, members or (R1, R2, R3)))


def again(process: ProcessId) -> ProcessId:
    return ProcessId(process.role, process.node, process.incarnation + 1)


def test_a_change_governs_from_alpha_instances_later() -> None:
    known = genesis()

    assert known.learn(10, Change(0, add=R4))

    assert known.of(17).members == (R1, R2, R3)
    assert known.of(18).members == (R1, R2, R3, R4)
    assert not known.is_settled(16)
    assert known.is_settled(17)


def test_a_quorum_of_each_membership_from_an_instance_on_is_needed() -> None:
    known = genesis()
    known.learn(10, Change(0, add=R4))

    assert not known.is_quorum({R1, R2}, 17), "not of the new one"
    assert not known.is_quorum({R1, R4, R5}, 17), "not of the old one"
    assert known.is_quorum({R1, R2, R4}, 17)
    assert known.is_quorum({R1, R3, R4}, 18)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(0, add=R2), "a member already"),
        (Change(0, remove=R4), "no member"),
        (Change(1, add=R4), "0 is the newest"),
        (Change(0), "exactly one member"),
        (Change(0, add=R4, remove=R1), "exactly one member"),
    ],
)
def test_what_cannot_be_is_void(change: Change, reason: str) -> None:
    known = genesis()

    assert reason in known.fault_of(change)
    assert not known.learn(1, change)
    assert known.newest.number == 0


def test_a_second_change_while_one_is_in_flight_is_void() -> None:
    known = genesis()
    known.learn(10, Change(0, add=R4))

    assert not known.learn(17, Change(1, add=R5))
    assert known.learn(18, Change(1, add=R5))


def test_the_same_change_learned_twice_takes_place_once() -> None:
    known = genesis()
    change = Change(0, add=R4)
    known.learn(1, change)

    assert not known.learn(30, change)
    assert known.newest.members == (R1, R2, R3, R4)


def test_the_last_member_cannot_be_removed() -> None:
    assert "last member" in genesis(R1).fault_of(Change(0, remove=R1))


def test_a_group_has_a_greatest_size() -> None:
    known = genesis(*(router(i) for i in range(1, MEMBERS_MAX + 1)))

    assert str(MEMBERS_MAX) in known.fault_of(Change(0, add=router(MEMBERS_MAX + 1)))


def test_a_former_member_returns_only_as_a_new_incarnation() -> None:
    known = genesis()
    known.learn(1, Change(0, remove=R3))

    assert "new incarnation" in known.fault_of(Change(1, add=R3))
    assert known.learn(9, Change(1, add=again(R3)))
    assert known.newest.members == (R1, R2, again(R3))


def test_an_older_incarnation_of_a_node_never_follows_a_newer_one() -> None:
    known = genesis()
    known.learn(1, Change(0, remove=R3))
    known.learn(9, Change(1, add=again(again(R3))))
    known.learn(17, Change(2, remove=again(again(R3))))

    assert "new incarnation" in known.fault_of(Change(3, add=again(R3)))


def test_a_leaver_is_a_former_member_only_when_it_is_let_go() -> None:
    known = genesis()
    known.learn(1, Change(0, remove=R3))
    known.forget_before(20)

    assert R3 in known.everyone()
    assert not known.was_member(R3)

    del known.leavers[R3]
    assert known.was_member(R3)
    assert not known.was_member(again(R3)), "that one has yet to come"


def test_the_leavers_that_are_remembered_are_few() -> None:
    known = genesis()
    for i in range(3 * LEAVERS_MAX):
        newcomer = ProcessId("router", "r9", i + 2)
        known.learn(100 * i + 1, Change(known.newest.number, add=newcomer))
        known.learn(100 * i + 50, Change(known.newest.number, remove=newcomer))

    assert len(known.leavers) == LEAVERS_MAX


def test_only_a_change_that_resizes_moves_the_size() -> None:
    known = genesis()
    known.learn(1, Change(0, remove=R3))
    assert known.size == 3

    known.learn(9, Change(1, add=R4))
    known.learn(17, Change(2, add=R5, resizes=True))
    assert known.size == 4


def test_it_travels_as_a_value() -> None:
    known = genesis()
    known.learn(1, Change(0, remove=R3))
    known.learn(9, Change(1, add=R4, resizes=True))

    assert Memberships.decode(known.encode()) == known


def test_the_former_are_the_last_of_each_node_that_has_no_member_and_no_leaver() -> None:
    known = genesis()
    assert known.former() == ()

    known.learn(1, Change(0, remove=R1))
    known.learn(9, Change(1, remove=R2))
    assert known.former() == (), "both are leavers, who answer still"
    known.forget_before(100)
    known.forget_leavers(100)
    assert known.former() == (R1, R2)

    known.learn(100, Change(2, add=again(R2)))
    assert known.former() == (R1,), "whoever is back knows"
