"""What was missed is fetched, what was forgotten comes as a snapshot, and what is kept is bounded (K03)."""

from __future__ import annotations

from crescando.consensus.multipaxos.follower import FETCH_INSTANCES_MAX
from crescando.consensus.multipaxos.messages import Accept, Accepted, Decided, Fetch, Snapshot
from crescando.consensus.multipaxos.timing import PaxosTiming
from tests.consensus.group import R1, R2, R3, Group, led_by_r1, router


def with_absent_r3(n_values: int, timing: PaxosTiming | None = None) -> tuple[Group, list[str]]:
    """Give a group in which r3 has missed some values, cut off."""
    group = led_by_r1(timing=timing)
    group.isolate(R3)
    values = [f"v{i}" for i in range(n_values)]
    for value in values:
        group.propose(R1, value)
        group.settle()
    group.run(0.5)
    assert group.values(R3) == []
    return group, values


def test_a_returning_member_fetches_what_it_missed() -> None:
    group, values = with_absent_r3(2 * FETCH_INSTANCES_MAX + 5)

    group.connect(R1, R3)
    group.settle()

    assert group.values(R3) == values
    assert [len(m.values) for _, b, m in group.messages(Decided) if b == R3] == [
        FETCH_INSTANCES_MAX,
        FETCH_INSTANCES_MAX,
        5,
    ]
    assert not group.messages(Snapshot)


def test_one_request_is_on_its_way_at_a_time() -> None:
    group, _ = with_absent_r3(10)
    group.connect(R1, R3)
    group.held.add((R3, R1))

    group.run(1.0)

    assert len([m for a, _, m in group.messages(Fetch) if a == R3]) == 1


def test_a_lost_request_is_made_again_in_the_next_session() -> None:
    group, values = with_absent_r3(10)
    group.held |= {(R3, R1), (R3, R2)}
    group.rejoin(R3)
    group.settle()
    group.isolate(R3)
    group.held.clear()

    group.rejoin(R3)
    group.settle()

    assert group.values(R3) == values


def test_a_follower_is_caught_up_before_it_leads() -> None:
    group, values = with_absent_r3(10)
    group.crash(R1)
    group.connect(R2, R3)

    group.run(3.0)

    assert len(group.leaders()) == 1
    assert [group.values(me) for me in (R2, R3)] == [values, values]


def test_values_are_forgotten_once_everybody_has_learned_them() -> None:
    group = led_by_r1()

    group.propose(R1, *"abcdefgh")
    group.run(0.5)

    assert [group[me].learner.trimmed for me in group.members] == [8, 8, 8]
    assert [len(group[me].acceptor.votes) for me in group.members] == [0, 0, 0]


def test_values_are_kept_for_a_member_that_has_not_learned_them() -> None:
    group, _ = with_absent_r3(10)

    assert [group[me].learner.trimmed for me in (R1, R2)] == [0, 0]


def test_values_are_kept_for_a_bounded_lag_only() -> None:
    group, _ = with_absent_r3(20, PaxosTiming(lag=4))

    assert [group[me].learner.trimmed for me in (R1, R2)] == [16, 16]


def test_one_that_lags_further_gets_a_snapshot_and_goes_on_behind_it() -> None:
    group, values = with_absent_r3(20, PaxosTiming(lag=4))

    group.connect(R1, R3)
    group.settle()
    group.propose(R1, "next")
    group.run(0.5)

    assert [b for _, b, _ in group.messages(Snapshot)] == [R3]
    assert group.values(R3) == [*values, "next"]
    group.check_agreement()


def test_an_old_snapshot_changes_nothing() -> None:
    group, values = with_absent_r3(3)

    group[R1].on_message(R2, Snapshot(2, ("wrong",), group[R1].memberships.encode()), group.now_s)
    output = group[R1].flush(group.now_s)

    assert output.install is None
    assert group.values(R1) == values
    assert group[R1].learned == 3


def test_a_snapshot_replaces_what_was_learned_in_the_same_turn() -> None:
    group, values = with_absent_r3(6)
    group[R3].on_message(R1, Decided(1, tuple(values[:2]), 6), group.now_s)

    group[R3].on_message(R1, Snapshot(4, ((1, "s"),), group[R1].memberships.encode()), group.now_s)
    group[R3].on_message(R1, Decided(5, tuple(values[4:]), 6), group.now_s)
    output = group[R3].flush(group.now_s)

    assert output.install == (4, ((1, "s"),))
    assert output.learned == [(5, values[4]), (6, values[5])]


def test_decided_values_that_are_known_already_change_nothing() -> None:
    group, values = with_absent_r3(3)

    group[R2].on_message(R1, Decided(1, ("x", "y", "z"), 3), group.now_s)

    assert group[R2].flush(group.now_s).learned == []
    assert group[R2].learner.values_from(1, 9, 1 << 20) == tuple(values)


def test_a_fetch_beyond_what_is_learned_is_answered_with_nothing() -> None:
    group, _ = with_absent_r3(3)

    group[R1].on_message(R2, Fetch(9), group.now_s)

    (answer,) = [m for _, m in group[R1].flush(group.now_s).send if isinstance(m, Decided)]
    assert answer == Decided(9, (), 3)


def test_a_deposed_leader_vouches_for_no_vote_where_a_rival_decided() -> None:
    group = led_by_r1(5)
    others = (R3, router(4), router(5))
    group.held |= {link for me in (R1, R2) for peer in others for link in ((me, peer), (peer, me))}
    group.propose(R1, "v")
    group.settle()
    assert group[R2].acceptor.votes[1].value == "v"
    group.paused.add(R1)
    group.run(3.0)
    (rival,) = (me for me in group.leaders() if me != R1)
    group.propose(rival, "w")
    group.settle()
    assert group.values(rival) == ["w"]

    # The late answer to what r1 asked before it led tells it the value, and no word of a ballot.
    group[R1].on_message(R3, Decided(1, ("w",), 1), group.now_s)
    group.paused.clear()
    group.turn(R1)
    group.settle()

    assert group[R1].is_leader
    assert group.values(R1) == ["w"]
    assert "v" not in group.values(R2)
    assert group[R1].propose("x") == 2
    group.turn(R1)
    group.held.clear()
    group.run(3.0)
    group.check_agreement()
    assert group.values(R2)[0] == "w"


def test_a_leader_proposes_nothing_where_a_rival_decided() -> None:
    group = led_by_r1()
    group.hold(R1)

    group[R1].on_message(R2, Decided(1, ("w",), 1), group.now_s)

    assert group[R1].propose("v") == 2


def test_a_proposal_that_waited_is_answered_although_its_instance_was_learned_meanwhile() -> None:
    group = led_by_r1()
    late = group.timing.window + 1
    group[R2].on_message(R1, Accept(group[R1].ballot, late, "v", 0), group.now_s)
    assert not [m for _, m in group[R2].flush(group.now_s).send if isinstance(m, Accepted)]

    group[R2].on_message(R3, Decided(1, tuple("abcdefghv"), late), group.now_s)

    assert (R1, Accepted(group[R1].ballot, late)) in group[R2].flush(group.now_s).send
