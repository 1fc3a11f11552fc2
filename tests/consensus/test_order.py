"""One order at all members, whoever leads and however many believe to."""

from __future__ import annotations

import random

import pytest

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.messages import Accept, Accepted, Heartbeat, Prepare, Promise
from crescando.consensus.multipaxos.timing import PaxosTiming
from tests.consensus.group import R1, R2, R3, Group, led_by_r1


def test_values_are_learned_everywhere_in_the_order_of_proposal() -> None:
    group = led_by_r1()

    group.propose(R1, "a", "b", "c")
    group.run(0.3)

    assert [group.values(me) for me in group.members] == [["a", "b", "c"]] * 3


def test_the_leader_learns_after_one_round_trip() -> None:
    group = led_by_r1()

    group.propose(R1, "a")
    assert group.values(R1) == []
    group.deliver(R1, R2)
    assert group.values(R1) == []
    group.deliver(R2, R1)

    assert group.values(R1) == ["a"]


def test_the_window_bounds_the_open_instances() -> None:
    group = led_by_r1(timing=PaxosTiming(window=2))
    assert group[R1].can_propose()

    group.propose(R1, "a", "b")
    assert not group[R1].can_propose()
    assert group[R1].n_open == 2
    assert group[R1].open_values() == ["a", "b"]

    group.settle()
    assert group[R1].can_propose()
    assert group[R1].n_open == 0


def test_only_a_leader_may_propose() -> None:
    group = led_by_r1()

    assert not group[R2].can_propose()
    with pytest.raises(RuntimeError):
        group[R2].propose("x")


def test_a_vote_of_another_ballot_proves_nothing() -> None:
    group = led_by_r1()
    mine, other = group[R1].ballot, Ballot(9, R3)
    group[R2].on_message(R1, Accept(mine, 1, "mine", 0), group.now_s)

    group[R2].on_message(R3, Heartbeat(other, 1, 0, group.now_s), group.now_s)
    output = group[R2].flush(group.now_s)

    assert output.learned == []
    assert [type(message).__name__ for peer, message in output.send if peer == R3] == [
        "Fetch",
        "HeartbeatReply",
    ]


def test_a_vote_of_the_same_ballot_is_learned_when_its_opener_says_so() -> None:
    group = led_by_r1()
    ballot = group[R1].ballot
    group[R2].on_message(R1, Accept(ballot, 1, "a", 0), group.now_s)
    assert group[R2].flush(group.now_s).learned == []

    group[R2].on_message(R1, Accept(ballot, 2, "b", 1), group.now_s)

    assert group[R2].flush(group.now_s).learned == [(1, "a")]


def test_a_vote_of_a_deposed_leader_for_its_open_instance_is_proposed_again() -> None:
    group = led_by_r1()
    group.propose(R1, "a")
    group.deliver(R1, R2)

    group.crash(R1)
    group.run(1.0)

    assert [group.values(me) for me in (R2, R3)] == [["a"], ["a"]]


def test_what_nobody_else_voted_for_may_vanish_and_leaves_no_trace() -> None:
    group = led_by_r1()
    group.hold(R1)
    group.propose(R1, "lonely")
    group.isolate(R1)
    group.run(2.0)
    (successor,) = [me for me in group.leaders() if me != R1]
    group.propose(successor, "b")
    group.held.clear()

    group.rejoin(R1)
    group.run(2.0)

    assert [group.values(me) for me in group.members] == [["b"]] * 3
    group.check_agreement()


def test_a_hole_left_by_a_deposed_leader_becomes_a_no_op() -> None:
    group = led_by_r1()
    group.hold(R1)
    group.propose(R1, "a", "b")
    # Of two accepts only the second reaches r2, as if their sessions had changed in between.
    first, second = list(group.links[R1, R2])[-2:]
    assert (first.instance, second.instance) == (1, 2)
    group[R2].on_message(R1, second, group.now_s)
    group.turn(R2)

    group.crash(R1)
    group.run(1.0)

    assert group.learned[R2] == [(1, None), (2, "b")]
    group.check_agreement()


def test_two_leaders_at_once_are_safe() -> None:
    group = led_by_r1()
    group.hold(R1)
    group.paused |= {R1}
    group.run(3.0)
    (successor,) = [me for me in group.leaders() if me != R1]
    assert set(group.leaders()) == {R1, successor}

    group.paused.clear()
    group[R1].propose("old")
    group[successor].propose("new")
    old_first = [group[R1].flush(group.now_s)]
    group.turn(successor)
    group.settle()
    assert group.values(successor) == ["new"]
    for peer, message in old_first[0].send:
        group[peer].on_message(R1, message, group.now_s)
        group.turn(peer)
    group.held.clear()
    group.run(3.0)

    assert group.leaders() == [successor]
    assert [group.values(me) for me in group.members] == [["new"]] * 3
    group.check_agreement()


def test_a_repeated_accepted_counts_once() -> None:
    group = led_by_r1(5)
    group.propose(R1, "a")
    accepted = Accepted(group[R1].ballot, 1)

    for _ in range(5):
        group[R1].on_message(R2, accepted, group.now_s)
    assert group[R1].flush(group.now_s).learned == []

    group[R1].on_message(R3, accepted, group.now_s)
    assert group[R1].flush(group.now_s).learned == [(1, "a")]


def test_answers_to_an_older_ballot_are_ignored() -> None:
    group = led_by_r1()
    group.propose(R1, "a")
    stale = Ballot(0, R1)

    group[R1].on_message(R2, Accepted(stale, 1), group.now_s)
    group[R1].on_message(R2, Promise(stale, (), 0, 0), group.now_s)

    assert group[R1].flush(group.now_s).learned == []
    assert group[R1].is_leader


def test_a_repeated_accept_is_answered_again_and_changes_nothing() -> None:
    group = led_by_r1()
    accept = Accept(group[R1].ballot, 1, "a", 0)

    for _ in range(3):
        group[R2].on_message(R1, accept, group.now_s)
    output = group[R2].flush(group.now_s)

    assert output.send == [(R1, Accepted(group[R1].ballot, 1))] * 3
    assert len(group[R2].acceptor.votes) == 1


def test_open_instances_are_said_again_when_a_session_begins() -> None:
    group = led_by_r1()
    group.hold(R2)
    group.hold(R3)
    group.propose(R1, "a")
    group.disconnect(R1, R3)
    group.held.clear()

    group.connect(R1, R3)
    group.deliver(R1, R3)
    group.deliver(R1, R3)
    group.deliver(R3, R1)
    group.deliver(R3, R1)

    assert group.values(R1) == ["a"]


def test_phase_1_is_said_again_when_a_session_begins() -> None:
    group = Group()
    group.isolate(R1)
    group.connect(R1, R2)
    group.now_s = 1.2
    while not group.messages(Prepare):
        group.run(0.05)
        for link in group.deliverable():
            group.deliver(*link)
    (a, b, _) = group.messages(Prepare)[0]
    group.disconnect(a, b)

    group.connect(a, b)
    group.run(3.0)

    assert len(group.leaders()) == 1


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_walks_end_in_agreement(n: int, first: int) -> None:
    for seed in range(first, first + 20):
        _walk(n, seed)


def _walk(n: int, seed: int) -> None:
    """Deliver, cut, join, pause, propose and let time pass at random; then heal."""
    rng = random.Random(seed)
    timing = PaxosTiming(window=rng.choice((1, 4)), lag=rng.choice((2, 1024)))
    group = Group(n, timing=timing, seed=seed)
    proposed = 0
    for _ in range(400):
        links = group.deliverable()
        a, b = rng.sample(group.members, 2)
        match rng.choices(
            ("deliver", "propose", "time", "cut", "join", "pause", "go"), (60, 15, 8, 4, 8, 2, 4)
        )[0]:
            case "deliver" if links:
                group.deliver(*rng.choice(links))
            case "propose":
                leaders = [me for me in group.leaders() if group[me].can_propose() and me not in group.paused]
                if leaders:
                    proposed += 1
                    group.propose(rng.choice(leaders), f"v{proposed}")
            case "time":
                group.now_s += rng.choice((0.01, 0.1, 0.4, 1.1))
                for me in group.members:
                    group.turn(me)
            case "cut":
                group.disconnect(a, b)
            case "join":
                group.connect(a, b)
            case "pause" if len(group.paused) < (n - 1) // 2:
                group.paused |= {a}
            case "go":
                group.paused.clear()
    group.paused.clear()
    for me in group.members:
        group.rejoin(me)
    group.run(10.0)
    (leader,) = group.leaders()
    group.propose(leader, "last")
    group.run(2.0)

    group.check_agreement()
    for me in group.members:
        values = group.values(me)
        assert values[-1] == "last", f"seed {seed}: {me} learned {values[-3:]}"
        assert len(values) == len(set(values)), f"seed {seed}: a value was learned twice"


def test_a_vote_that_comes_when_all_is_decided_is_quiet() -> None:
    group = led_by_r1()
    group.propose(R1, "a")
    group.deliver(R1, R2)
    group.deliver(R1, R3)

    group.deliver(R2, R1)
    assert not group[R1].is_quiet
    group.deliver(R3, R1)

    assert group[R1].is_quiet
    assert group.values(R1) == ["a"]
