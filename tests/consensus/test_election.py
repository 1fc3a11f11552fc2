"""Who leads: at once, after silence, after a lost session; and who must not disturb (K08)."""

from __future__ import annotations

import random

import pytest

from crescando.consensus.base import EPOCH_SHIFT, Ballot
from crescando.consensus.multipaxos.messages import (
    Canvass,
    CanvassReply,
    Fetch,
    Heartbeat,
    Nack,
    Prepare,
    Promise,
)
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from tests.consensus.group import R1, R2, R3, STRANGER, Group, led_by_r1


def test_a_single_router_leads_and_decides_at_once() -> None:
    alone: Replica[str] = Replica(R1, Membership(0, (R1,)), PaxosTiming(), random.Random(0))
    alone.on_start(5.0)
    alone.flush(5.0)

    assert alone.is_leader
    assert alone.leader == R1
    assert alone.is_backed(1e9)
    alone.begin_round(5.0)
    assert alone.answered_round == alone.round > 0
    alone.propose("x")
    assert alone.flush(5.0).learned == [(1, "x")]


def test_the_first_member_leads_from_the_start() -> None:
    group = Group()

    group.settle()

    assert group.leaders() == [R1]
    assert group.now_s == 0.0
    assert [group[me].leader for me in group.members] == [R1, R1, R1]


def test_if_the_first_is_not_there_the_next_one_leads() -> None:
    group = Group()
    group.crash(R1)

    group.run(1.5)

    assert group.leaders() == [R2]


def test_a_lost_session_with_the_leader_is_suspicion_at_once() -> None:
    group = led_by_r1()

    group.crash(R1)
    group.run(0.1)

    assert len(group.leaders()) == 1
    assert group.leaders() != [R1]


def test_a_silent_leader_is_replaced_after_the_election_time_and_not_before() -> None:
    group = led_by_r1()
    group.hold(R1)

    group.run(0.8)
    assert group.leaders() == [R1]

    group.run(1.7)
    assert len(group.leaders()) == 1
    assert group.leaders()[0] in (R2, R3)


def test_a_leader_without_a_majority_steps_down() -> None:
    group = led_by_r1()
    group.hold(R1)

    group.run(1.2)

    assert not group[R1].is_leader
    assert not group[R1].can_propose()
    with pytest.raises(RuntimeError):
        group[R1].propose("x")


def test_a_leader_with_a_majority_goes_on_when_one_is_silent() -> None:
    group = led_by_r1()
    before = group[R1].ballot
    group.hold(R3)

    group.run(20.0)

    assert group.leaders() == [R1]
    assert group[R1].ballot == before


def test_backing_counts_from_the_sending_of_the_heartbeat() -> None:
    group = led_by_r1()
    group.paused |= {R1}
    group.run(0.9)

    # The answers are still in the leader's queue when it wakes; they echo old times.
    group.paused.clear()
    group.settle()

    assert group[R1].is_backed(group.now_s)
    assert not group[R1].is_backed(group.now_s + 0.3)


def test_a_round_is_answered_by_a_majority_that_heard_it_under_this_ballot() -> None:
    group = led_by_r1()
    leader = group[R1]
    group.hold(R2)
    group.hold(R3)
    before = leader.answered_round

    leader.begin_round(group.now_s)
    group.turn(R1)
    group.settle()
    unanswered = leader.answered_round
    group.held.clear()
    group.hold(R3)
    group.settle()

    assert unanswered == before
    assert leader.answered_round == leader.round == before + 1


def test_no_round_is_answered_once_a_majority_follows_another() -> None:
    group = led_by_r1()
    group.paused |= {R1}
    group.run(5.0)
    deposed = group[R1]
    before = deposed.answered_round
    assert set(group.leaders()) > {R1}, "it has slept, and believes to lead"

    deposed.begin_round(group.now_s)
    asked = [(peer, m) for peer, m in deposed.flush(group.now_s).send if isinstance(m, Heartbeat)]
    for peer, question in asked:
        group[peer].on_message(R1, question, group.now_s)
        for to, answer in group[peer].flush(group.now_s).send:
            if to == R1:
                deposed.on_message(peer, answer, group.now_s)

    assert {peer for peer, _ in asked} == {R2, R3}
    assert deposed.answered_round <= before


def test_a_leader_that_was_forsaken_may_be_backed_but_no_round_of_its_is_answered() -> None:
    """Why reads ask: sessions end at the followers alone, and these elect while the leader is backed."""
    group = led_by_r1()
    group[R1].begin_round(group.now_s)
    group.turn(R1)
    group.settle()
    group.hold(R1)
    for follower in (R2, R3):
        group[follower].on_disconnected(R1, group.now_s)
        group.turn(follower)
    group.run(0.1)
    (successor,) = set(group.leaders()) - {R1}
    group.propose(successor, "decided without r1")
    group.settle()

    group[R1].begin_round(group.now_s)
    begun = group[R1].round
    group.turn(R1)

    assert group.values(successor) == ["decided without r1"]
    assert group[R1].is_leader
    assert group[R1].is_backed(group.now_s), "an answer of less than an election time ago"
    assert group[R1].answered_round < begun
    group.held.clear()
    for follower in (R2, R3):
        group[follower].on_connected(R1, group.now_s)
        group.turn(follower)
    group.settle()
    assert not group[R1].is_leader
    assert group[R1].answered_round == 0


def test_a_new_leader_counts_no_answers_of_its_former_ballot() -> None:
    group = led_by_r1()
    group[R1].begin_round(group.now_s)
    group.turn(R1)
    group.settle()
    answered = group[R1].answered_round
    group[R1].observe(Ballot(group[R1].ballot.attempt + 1, R2), group.now_s)

    assert answered > 0
    assert group[R1].answered_round == 0


def test_a_cut_off_member_that_returns_does_not_unseat_a_working_leader() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=1e6))
    before = group[R1].ballot
    for _ in range(20):
        group.isolate(R3)
        group.run(30.0)
        group.rejoin(R3)
        group.run(1.0)

        assert group.leaders() == [R1]
        assert group[R3].leader == R1
    assert group.ballots() == {before}
    assert group.messages(Canvass), "the cut-off member did try"
    assert not [record for record in group.messages(Prepare) if record[0] == R3]


def test_a_deaf_member_does_not_unseat_a_working_leader() -> None:
    group = led_by_r1()
    before = group[R1].ballot
    group.held |= {(R1, R3), (R2, R3)}

    group.run(30.0)

    assert group.leaders() == [R1]
    assert group.ballots() == {before}


def test_a_returning_former_leader_follows_the_new_one() -> None:
    group = led_by_r1()
    group.isolate(R1)
    group.run(5.0)
    (successor,) = [me for me in group.leaders() if me != R1]
    ballot = group[successor].ballot

    group.rejoin(R1)
    group.run(1.0)

    assert group.leaders() == [successor]
    assert group.ballots() == {ballot}


@pytest.mark.parametrize("is_timer_first", [True, False])
def test_a_paused_member_does_not_canvass_when_it_wakes(is_timer_first: bool) -> None:
    group = led_by_r1()
    group.paused |= {R3}
    group.run(10.0)
    asked = len(group.messages(Canvass))

    group.paused.clear()
    if is_timer_first:
        group.turn(R3)
    group.settle()
    group.run(1.0)

    assert len(group.messages(Canvass)) == asked
    assert group.leaders() == [R1]
    assert group[R3].leader == R1


def test_a_paused_leader_that_wakes_makes_way() -> None:
    group = led_by_r1()
    group.paused |= {R1}
    group.run(5.0)
    (successor,) = [me for me in group.leaders() if me != R1]

    group.paused.clear()
    group.turn(R1)
    group.run(1.0)

    assert group.leaders() == [successor]
    group.check_agreement()


def test_a_member_that_hears_the_leader_grants_nothing() -> None:
    group = led_by_r1()

    group[R2].on_message(R3, Canvass(99, 0), group.now_s)
    output = group[R2].flush(group.now_s)

    (reply,) = [message for peer, message in output.send if peer == R3]
    assert isinstance(reply, CanvassReply)
    assert not reply.is_granted
    assert group[R2].ballot == group[R1].ballot


def test_a_pre_vote_binds_nobody() -> None:
    group = Group()
    group.crash(R1)

    group[R3].on_message(R2, Canvass(7, 0), 0.5)
    group[R3].on_message(R2, Canvass(7, 0), 0.5)
    output = group[R3].flush(0.5)

    assert [message.is_granted for _, message in output.send] == [True, True]
    assert group[R3].ballot.attempt == 0


def test_a_candidate_that_has_forgotten_less_than_others_have_trimmed_is_not_granted() -> None:
    group = led_by_r1()
    group.propose(R1, *"abcdef")
    group.run(1.0)
    assert group[R2].learner.trimmed == 6
    group.disconnect(R1, R2)

    group[R2].on_message(R3, Canvass(50, 2), group.now_s)
    group[R2].on_message(R3, Canvass(50, 6), group.now_s)
    output = group[R2].flush(group.now_s)

    replies = [message.is_granted for _, message in output.send if isinstance(message, CanvassReply)]
    assert replies == [False, True]


def test_a_heartbeat_of_a_lower_ballot_is_nacked() -> None:
    group = led_by_r1()
    stale = Heartbeat(Ballot(0, R3), 0, 0, group.now_s)

    group[R2].on_message(R3, stale, group.now_s)
    output = group[R2].flush(group.now_s)

    assert (R3, Nack(group[R1].ballot)) in output.send
    assert group[R2].leader == R1


def test_a_leader_that_hears_of_a_higher_ballot_steps_down() -> None:
    group = led_by_r1()

    group[R1].observe(Ballot(50, R3), group.now_s)

    assert not group[R1].is_leader
    group.run(5.0)
    assert len(group.leaders()) == 1


def candidate_r3() -> Group:
    """Give a group in which r3 has opened a ballot with the leave of r2 and waits for promises."""
    group = Group()
    for peer in (R1, R2):
        group.hold(peer)
    group[R3].on_message(R2, CanvassReply(1, False, Ballot(0, R1), 0), 0.0)
    group.now_s = 2.5
    group.turn(R3)
    (attempt,) = {m.attempt for a, _, m in group.messages(Canvass) if a == R3}
    group[R3].on_message(R2, CanvassReply(attempt, True, Ballot(0, R1), 0), group.now_s)
    group.turn(R3)
    assert group.messages(Prepare)[-1][2] == Prepare(Ballot(attempt, R3), 1)
    return group


def test_a_candidate_that_lacks_what_a_promiser_has_forgotten_learns_it_first() -> None:
    group = candidate_r3()

    group[R3].on_message(R1, Promise(group[R3].ballot, (), 9, 8), group.now_s)
    output = group[R3].flush(group.now_s)

    assert not group[R3].is_leader
    assert (R1, Fetch(1)) in output.send


def test_a_promise_that_comes_after_a_quorum_of_others_changes_nothing() -> None:
    group = candidate_r3()
    group[R3].on_message(R2, Promise(group[R3].ballot, (), 0, 0), group.now_s)
    group.turn(R3)
    assert group[R3].is_leader

    group[R3].on_message(R1, Promise(group[R3].ballot, (), 9, 8), group.now_s)

    assert group[R3].is_leader


def test_what_a_stranger_says_of_itself_is_ignored() -> None:
    group = led_by_r1()
    before = group[R1].ballot
    high = Ballot(99, STRANGER)

    for message in (Canvass(99, 9), CanvassReply(99, True, high, 9), Nack(high), Promise(high, (), 9, 9)):
        for me in (R1, R2):
            group[me].on_message(STRANGER, message, group.now_s)
            assert group[me].flush(group.now_s).send == []

    assert group.ballots() == {before}
    assert group.leaders() == [R1]


def test_a_leader_that_became_a_member_unnoticed_is_followed_like_any_other() -> None:
    group = led_by_r1()

    group[R2].on_message(STRANGER, Prepare(Ballot(99, STRANGER), 1), group.now_s)
    group[R2].on_message(STRANGER, Heartbeat(Ballot(99, STRANGER), 0, 0, 0.0), group.now_s)

    assert group[R2].ballot == Ballot(99, STRANGER)
    assert group[R2].leader == STRANGER


def test_nothing_is_sent_to_a_member_without_a_session() -> None:
    group = Group()
    group.isolate(R1)
    group.sent.clear()

    group.run(3.0)

    assert {(a, b) for a, b, _ in group.sent} <= {(R2, R3), (R3, R2)}


def test_a_ballot_that_somebody_outside_names_is_not_outdone() -> None:
    """The next attempt would belong to another epoch, and whoever hears of one stops for good."""
    group = led_by_r1()

    for member in (R1, R2, R3):
        group[member].observe(Ballot((1 << EPOCH_SHIFT) - 1, R3), group.now_s)

    group.run(5.0)
    assert len(group.leaders()) == 1
    assert all(group[member].ballot.attempt < 100 for member in (R1, R2, R3))
    assert group.stopped == {}
