"""The proposer of one ballot: what phase 1 found binds it (Lamport 2001, §2.2 and §3)."""

from __future__ import annotations

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos.leader import Leader
from crescando.consensus.multipaxos.messages import Accept, Promise, Vote
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId
from tests.consensus.group import R1, R2, R3, STRANGER

BALLOT = Ballot(7, R1)
MEMBERSHIP = Membership(0, (R1, R2, R3))


def vote(instance: int, attempt: int, value: str | None, *, chosen: bool = False) -> Vote[str]:
    return Vote(instance, Ballot(attempt, R2), value, chosen)


def promise(*votes: Vote[str], ballot: Ballot = BALLOT) -> Promise[str]:
    return Promise(ballot, votes, 0, 0)


def prepared(*promises: Promise[str], first: int = 1) -> tuple[Leader[str], dict[int, str | None], list[int]]:
    """Give a leader that has carried out what some promises found: what was decided, what is open."""
    leader: Leader[str] = Leader(BALLOT, first)
    for peer, given in zip((R1, R2, R3), promises, strict=False):
        leader.on_promise(peer, given)
    decided: dict[int, str | None] = {}
    while leader.has_found_votes:
        instance = leader.next_instance
        found = leader.take_found()
        if found is not None and found.is_chosen:
            assert not isinstance(found.value, Change)
            decided[instance] = found.value
    return leader, decided, sorted(leader.open)


def test_enough_promises_for_one_membership_are_not_enough_for_the_next() -> None:
    leader: Leader[str] = Leader(BALLOT, 1, is_prepared=True)
    r4, r5 = ProcessId("router", "r4", 1), ProcessId("router", "r5", 1)
    grown = Membership(2, (R1, R2, R3, r4, r5), 9)
    leader.on_promise(R1, promise())
    leader.on_promise(R2, promise())

    answers = [leader.may_propose(membership) for membership in (MEMBERSHIP, grown, MEMBERSHIP)]
    leader.on_promise(r5, promise())

    assert answers == [True, False, True]
    assert leader.may_propose(grown), "INV-8"


def test_a_quorum_of_promises_ends_phase_1() -> None:
    leader: Leader[str] = Leader(BALLOT, 1)

    leader.on_promise(R2, promise())
    leader.on_promise(R2, promise())
    assert not leader.may_propose(MEMBERSHIP)

    leader.on_promise(R3, promise())
    assert leader.may_propose(MEMBERSHIP)


def test_promises_of_other_ballots_and_strangers_do_not_count() -> None:
    leader: Leader[str] = Leader(BALLOT, 1)

    leader.on_promise(R2, promise(ballot=Ballot(6, R1)))
    leader.on_promise(STRANGER, promise())
    leader.on_promise(R3, promise())

    assert not leader.may_propose(MEMBERSHIP)


def test_a_larger_membership_needs_further_promises() -> None:
    leader: Leader[str] = Leader(BALLOT, 1)
    larger = Membership(1, (R1, R2, R3, STRANGER), 9)

    leader.on_promise(R1, promise())
    leader.on_promise(R2, promise())
    assert leader.may_propose(MEMBERSHIP)
    assert not leader.may_propose(larger)

    leader.on_promise(STRANGER, promise())
    assert leader.may_propose(larger)


def test_a_promise_that_comes_late_binds_what_is_not_proposed_yet() -> None:
    leader, _, _ = prepared(promise(), promise())
    assert leader.propose("mine") == 1

    leader.on_promise(R3, promise(vote(1, 3, "too late"), vote(3, 3, "c")))

    assert leader.open[1].value == "mine"
    assert leader.has_found_votes
    assert [leader.take_found(), leader.take_found()] == [None, vote(3, 3, "c")]
    assert {instance: record.value for instance, record in leader.open.items()} == {
        1: "mine",
        2: None,
        3: "c",
    }


def test_the_vote_of_the_highest_ballot_is_proposed_again() -> None:
    leader, decided, proposed = prepared(promise(vote(1, 3, "old")), promise(vote(1, 5, "new")))

    assert (decided, proposed) == ({}, [1])
    assert leader.accept_message(1, 0) == Accept(BALLOT, 1, "new", 0)


def test_the_order_of_promises_does_not_matter() -> None:
    leader, _, _ = prepared(promise(vote(1, 5, "new")), promise(vote(1, 3, "old")))

    assert leader.open[1].value == "new"


def test_holes_below_the_highest_vote_become_no_ops() -> None:
    leader, _, proposed = prepared(promise(vote(2, 3, "b")), promise(vote(5, 4, "e")))

    assert proposed == [1, 2, 3, 4, 5]
    assert [leader.open[i].value for i in proposed] == [None, "b", None, None, "e"]
    assert leader.propose("f") == 6


def test_a_no_op_voted_for_stays_a_no_op() -> None:
    leader, _, _ = prepared(promise(vote(1, 3, "x")), promise(vote(1, 5, None)))

    assert leader.open[1].value is None


def test_chosen_votes_win_over_any_ballot_and_need_no_proposal() -> None:
    leader, decided, proposed = prepared(
        promise(vote(1, 3, "decided", chosen=True), vote(2, 6, "open")), promise(vote(1, 6, "other"))
    )

    assert decided == {1: "decided"}
    assert proposed == [2]
    assert 1 not in leader.open


def test_instances_known_to_be_decided_are_left_alone() -> None:
    leader, decided, proposed = prepared(promise(vote(4, 3, "d")), promise(), first=4)

    assert (decided, proposed) == ({}, [4])
    assert leader.propose("e") == 5


def test_without_votes_the_first_proposal_takes_the_first_instance() -> None:
    leader, decided, proposed = prepared(promise(), promise(), first=9)

    assert (decided, proposed) == ({}, [])
    assert [leader.propose("x"), leader.propose("y")] == [9, 10]


def test_an_instance_is_decided_once_a_quorum_has_accepted() -> None:
    leader, _, _ = prepared(promise(), promise())
    instance = leader.propose("x")

    assert not leader.on_accepted(R1, instance, MEMBERSHIP)
    assert not leader.on_accepted(R1, instance, MEMBERSHIP)
    assert not leader.on_accepted(STRANGER, instance, MEMBERSHIP)
    assert leader.on_accepted(R3, instance, MEMBERSHIP)
    leader.open.pop(instance)
    assert not leader.on_accepted(R2, instance, MEMBERSHIP)
