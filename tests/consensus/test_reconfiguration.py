"""Members that join, leave, fail and return, while the order goes on (design of R-alpha)."""

from __future__ import annotations

import random

import pytest

from crescando.consensus.membership import Change, Memberships
from crescando.consensus.multipaxos.messages import Accept, Accepted, Petition, Prepare, Removed, Snapshot
from crescando.consensus.multipaxos.reconfiguration import Reconfiguration
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId
from tests.consensus.group import R1, R2, R3, Group, led_by_r1, router

R4, R5 = router(4), router(5)
R3_AGAIN = ProcessId("router", "r3", 2)
STEADY = PaxosTiming(removal_s=1e6)


def values(n: int, first: int = 0) -> list[str]:
    return [f"v{i}" for i in range(first, first + n)]


def say(group: Group, n: int, first: int = 0) -> None:
    """Let the leader order some values, each when there is room."""
    for value in values(n, first):
        (leader,) = group.leaders()
        group.propose(leader, value)
        group.settle()


def check(group: Group, *members: ProcessId) -> None:
    """All these agree, about the values and about who they are."""
    group.run(1.0)
    longest = max((group.learned[me] for me in members), key=len)
    for me in members:
        assert group.learned[me] == longest, me
        assert group[me].membership.members == members


def test_nothing_is_remembered_of_what_former_members_said() -> None:
    group = led_by_r1(timing=STEADY)
    leader = group[R1]
    for number in range(4, 12):
        group.join(router(number))
        group.run(1.0)
        assert group.change(R1, add=router(number), resizes=True) == ""
        group.run(1.0)
        for me in group.members:
            if me not in group.crashed:
                group[me].attest(group[R1].learned, b"same")
        group.run(0.5)
        reported = set(leader.attestations.reported)
        assert group.change(R1, remove=router(number), resizes=True) == ""
        group.run(1.0)
        assert reported == {R2, R3, router(number)}, "what it says is of use while it is a member"

    assert leader.attestations.reported.keys() == {R2, R3}
    for told in (leader._tenure.answered_s, leader._tenure.learned_by, leader._tenure.answered_round):
        assert told.keys() == {R2, R3}


def test_a_petitioner_stands_by_while_every_place_is_taken() -> None:
    group = led_by_r1(timing=STEADY)

    group.join(R4)
    group.run(3.0)

    assert group[R1].membership.members == (R1, R2, R3)
    assert not group[R4].is_member


def test_a_joiner_gets_a_snapshot_and_the_tail_and_counts() -> None:
    group = led_by_r1(timing=STEADY)
    say(group, 5)
    group.join(R4)
    group.run(1.0)

    assert group.change(R1, add=R4, resizes=True) == ""
    group.run(1.0)
    say(group, 20, 5)

    check(group, R1, R2, R3, R4)
    assert group.values(R4) == values(25)
    assert [m for _, to, m in group.messages(Snapshot) if to == R4]
    assert [m for me, _, m in group.messages(Accepted) if me == R4]


def test_an_idle_group_completes_a_change_by_no_ops() -> None:
    group = led_by_r1(timing=STEADY)
    group.join(R4)
    group.run(1.0)

    group.change(R1, add=R4, resizes=True)
    group.run(1.0)

    assert group[R1].membership.start <= group[R1].learned
    assert group[R1].memberships.is_settled(group[R1].learned)
    assert group.values(R1) == []


def test_one_that_knows_only_followers_learns_from_them_whom_to_ask() -> None:
    group = led_by_r1(timing=STEADY)
    group.isolate(R3)
    group.crash(R3)

    group.join(R4, R2)
    group.disconnect(R4, R1)
    group.run(1.0)
    group.connect(R4, R1)
    group.run(1.0)

    assert R1 in group[R4].peers
    assert R4 in group[R1].reconfiguration.petitioners


def test_a_member_learns_what_it_missed_from_a_leader_that_it_never_heard_of() -> None:
    new, leaders = router(6), set()
    for seed in range(12):
        group = Group(5, timing=STEADY, seed=seed)
        group.run(0.25)
        group.join(new)
        group.run(1.0)
        group.isolate(R3)
        assert group.change(R1, add=new, resizes=True) == ""
        group.run(1.0)
        group.isolate(R1)
        group.run(5.0)
        (leader,) = (me for me in group.leaders() if me != R1)
        leaders.add(leader)
        group.propose(leader, "v")
        group.run(1.0)

        group.connect(R3, leader)
        group.run(2.0)

        assert new in group[R3].membership.members, seed
        assert group.values(R3) == ["v"], seed
    assert new in leaders


def test_a_member_learns_what_it_missed_from_a_joiner_when_nobody_else_is_left() -> None:
    group = led_by_r1(2, timing=PaxosTiming(window=1, removal_s=1e6))
    group.join(R3)
    group.run(1.0)
    assert group.change(R1, add=R3, resizes=True) == ""
    assert isinstance(group.deliver(R1, R2), Accept)
    assert isinstance(group.deliver(R2, R1), Accepted)
    group.disconnect(R1, R2)
    group.settle()
    group.propose(R1, "v")
    group.settle()
    assert group[R1].learned == 2
    assert not group[R2].learned

    group.crash(R1)
    group.run(5.0)

    assert len(group.leaders()) == 1, "r2 and r3 are a majority of the three"
    assert group.learned[R2] == group.learned[R3]
    assert group.values(R2) == ["v"], "r1 has decided it with r3"
    assert group[R2].membership.members == (R1, R2, R3)


def lone_router_with_r2_beside_it() -> Group:
    group = Group(1, timing=STEADY)
    group.run(2.0)
    group.propose(R1, "v")
    group.join(R2)
    group.run(0.5)
    return group


def test_a_leader_gives_those_of_a_new_membership_the_time_to_answer() -> None:
    group = lone_router_with_r2_beside_it()
    before = group[R1].ballot

    group.change(R1, add=R2, resizes=True)
    group.run(3.0)

    assert group.leaders() == [R1]
    assert group[R1].ballot == before
    check(group, R1, R2)
    assert group.values(R2) == ["v"]


def test_a_joiner_without_which_nobody_can_lead_is_told_what_there_is() -> None:
    group = lone_router_with_r2_beside_it()
    group.paused.add(R2)
    group.change(R1, add=R2, resizes=True)
    group.disconnect(R1, R2)
    group.run(3.0)
    assert not group.leaders(), "r1 alone is no majority of the two"
    assert not group[R2].is_member

    group.paused.clear()
    group.connect(R1, R2)
    group.run(5.0)

    assert group.leaders() == [R1]
    check(group, R1, R2)


def test_a_joiner_does_not_vote_before_it_holds_what_was_decided() -> None:
    group = led_by_r1(timing=STEADY)
    say(group, 5)
    for peer in (R1, R2, R3):
        group.held.add((peer, R4))
    group.join(R4)
    group.run(1.0)
    group.change(R1, add=R4, resizes=True)
    group.run(1.0)
    say(group, 30, 5)

    waiting = list(group.links[R1, R4])
    group.held.clear()
    for message in waiting:
        group[R4].on_message(R1, message, group.now_s)
        if isinstance(message, Accept | Prepare):
            answers = [m for _, m in group[R4].flush(group.now_s).send]
            assert not [m for m in answers if isinstance(m, Accepted)]
    group.links[R1, R4].clear()
    group.disconnect(R1, R4)
    group.connect(R1, R4)
    check(group, R1, R2, R3, R4)


def test_a_joiner_holds_back_the_trimming_of_the_tail() -> None:
    group = led_by_r1(timing=STEADY)
    say(group, 5)
    group.run(1.0)
    group.join(R4)
    group.run(1.0)
    for peer in (R1, R2, R3):
        group.held.add((peer, R4))
    group.change(R1, add=R4, resizes=True)
    group.run(0.3)
    joined = group[R1].membership.start - group[R1].memberships.alpha
    say(group, 100, 5)
    group.run(1.0)

    assert group[R1].learner.trimmed <= joined
    group.held.clear()
    check(group, R1, R2, R3, R4)
    assert group[R1].learner.trimmed > joined


def test_a_removed_member_is_told_when_it_is_not_needed_any_more() -> None:
    group = led_by_r1(timing=STEADY)
    say(group, 5)

    assert group.change(R1, remove=R3, resizes=True) == ""
    group.run(1.0)

    assert "removed" in group.stopped[R3]
    assert group[R1].membership.members == (R1, R2)
    say(group, 5, 5)
    check(group, R1, R2)


def test_a_leaver_answers_until_a_quorum_has_learned_what_it_had_a_part_in() -> None:
    group = led_by_r1(4, timing=STEADY)
    group.isolate(R3)
    group.isolate(R4)
    group.connect(R1, R4)
    say(group, 5)
    group.run(0.2)
    assert group.values(R2) == values(5), "decided by r1, r2 and r4"

    group.disconnect(R1, R2)
    group.connect(R1, R3)
    group.hold(R3)
    group.change(R1, remove=R4)
    group.run(0.5)
    assert R4 not in group.stopped, "r2 and r3 have not learned everything yet"

    group.held.clear()
    for a in group.members:
        group.rejoin(a)
    group.run(2.0)
    assert "removed" in group.stopped[R4]
    check(group, R1, R2, R3)


def test_a_leader_that_is_removed_leads_until_the_change_is_in_force() -> None:
    group = led_by_r1(timing=STEADY)
    say(group, 3)

    group.change(R1, remove=R1)
    group.run(2.0)

    assert "removed" in group.stopped[R1]
    (leader,) = group.leaders()
    assert leader in (R2, R3)
    say(group, 3, 3)
    check(group, R2, R3)


def test_a_member_that_is_silent_for_the_removal_time_is_removed() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=5.0))
    group.crash(R3)
    group.run(4.5)
    assert group[R1].membership.members == (R1, R2, R3)

    group.run(2.0)

    assert group[R1].membership.members == (R1, R2)
    say(group, 3)
    check(group, R1, R2)


def test_a_change_comes_although_the_window_is_full_at_every_heartbeat() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=2.0, window=1))
    group.crash(R3)
    for i in range(30):
        group.propose(R1, f"v{i}")
        group.held.add((R2, R1))
        group.run(0.15)
        group.held.clear()
        group.settle()
        while not group[R1].can_propose():
            group.run(0.01)

    assert group[R1].membership.members == (R1, R2)


def test_of_two_that_live_under_one_name_the_member_stays() -> None:
    known = Memberships.begin(8, Membership(0, (R1, R2, R3)))
    care = Reconfiguration(R1, removal_s=5.0, minimum=2)
    care.on_petition(R3_AGAIN)

    assert not list(care.wishes(known, (R2, R3), 0.0))
    assert list(care.wishes(known, (R2,), 0.0)) == [Change(0, remove=R3)]


def test_a_wish_that_cannot_be_does_not_hinder_the_next() -> None:
    known = Memberships.begin(8, Membership(0, (R1, R2, R3)))
    care = Reconfiguration(R1, removal_s=5.0, minimum=2)
    care.on_petition(R3_AGAIN)
    list(care.wishes(known, (), 0.0))

    assert list(care.wishes(known, (), 6.0)) == [
        Change(0, remove=R3),
        Change(0, remove=R2),
        Change(0, remove=R3),
    ]


def test_followers_forget_a_leaver_that_nobody_needs() -> None:
    group = led_by_r1(timing=STEADY)
    group.change(R1, remove=R3)
    group.run(2.0)

    assert group[R2].memberships.leavers == {}
    assert group[R2].peers == (R1,)


def test_everybody_hears_at_once_that_a_change_is_in_force() -> None:
    group = led_by_r1(timing=PaxosTiming(heartbeat_s=0.3, removal_s=1e6))
    group.join(R4)
    group.run(1.0)
    at_s = group.now_s

    group.change(R1, add=R4, resizes=True)
    group.settle()

    assert group.now_s == at_s
    for me in (R1, R2, R3):
        assert [known.members for known in group[me].memberships.governing] == [(R1, R2, R3, R4)]


def test_a_member_that_left_before_it_knew_does_not_displace_its_successor() -> None:
    known = Memberships.begin(8, Membership(0, (R1, R2, R3)))
    known.learn(1, Change(0, remove=R3))
    known.learn(9, Change(1, add=R3_AGAIN))
    care = Reconfiguration(R1, removal_s=5.0, minimum=2)

    care.on_petition(R3)

    assert R3 in known.leavers
    assert not list(care.wishes(known, (), 0.0))


def test_a_session_that_ends_is_not_silence() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=5.0))
    group.run(20.0)

    group.disconnect(R1, R3)
    group.run(4.0)
    group.connect(R1, R3)
    group.run(10.0)

    assert group[R1].membership.number == 0


def test_removal_stops_at_the_minimum() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=5.0, minimum=3))
    group.crash(R3)
    group.run(30.0)

    assert group[R1].membership.members == (R1, R2, R3)
    assert not group[R1].request_change(Change(0, remove=R3)), "unless it is asked for"


def test_a_standby_takes_the_place_of_a_member_that_was_removed() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=2.0))
    group.join(R4)
    group.run(1.0)
    group.crash(R2)
    group.run(5.0)

    say(group, 3)
    check(group, R1, R3, R4)


def test_a_node_that_returns_replaces_its_former_incarnation_at_once() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=1e6, minimum=3))
    say(group, 3)
    group.crash(R3)
    group.join(R3_AGAIN)
    group.run(2.0)

    say(group, 3, 3)
    check(group, R1, R2, R3_AGAIN)


def test_a_member_that_was_cut_off_learns_of_its_removal_and_disturbs_nobody() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=3.0))
    before = group[R1].ballot
    group.isolate(R3)
    group.run(10.0)
    assert group[R3].membership.number == 0

    group.rejoin(R3)
    group.run(1.0)

    assert "removed" in group.stopped[R3]
    assert group[R1].ballot == before
    assert group.leaders() == [R1]


def test_a_former_identity_cannot_petition() -> None:
    group = led_by_r1(timing=PaxosTiming(removal_s=1.5))
    group.crash(R3)
    group.run(4.0)
    group.crashed.clear()

    group[R1].on_message(R3, Petition(0), group.now_s)
    group.connect(R1, R3)
    group.run(1.0)

    assert "removed" in group.stopped[R3]
    assert group[R1].membership.members == (R1, R2)


def test_an_isolated_leader_cannot_change_the_membership() -> None:
    group = led_by_r1(timing=STEADY)
    group.hold(R1)

    assert group.change(R1, remove=R3) == ""
    group.run(3.0)
    (leader,) = group.leaders()
    assert leader != R1
    assert {group[me].membership.number for me in (R1, R2, R3)} == {0}
    group.held.clear()
    group.run(3.0)

    # The one that believed to lead said it to nobody in time; or, had it been heard, to all alike.
    assert len({group[me].membership for me in (R1, R2, R3)}) == 1
    say(group, 3)


def test_only_a_leader_takes_a_change_and_one_at_a_time() -> None:
    group = led_by_r1(timing=STEADY)
    group.join(R4)
    group.join(R5)
    group.run(1.0)

    assert "does not lead" in group.change(R2, remove=R3)
    assert group.change(R1, add=R4) == ""
    assert "in flight" in group.change(R1, add=R5)
    group.run(1.0)
    assert group.change(R1, add=R5) == ""
    assert "in flight" in group.change(R1, add=R5)
    group.run(1.0)
    assert "already" in group.change(R1, add=R5)
    check(group, R1, R2, R3, R4, R5)


def test_a_new_leader_completes_a_change_that_the_old_one_began() -> None:
    group = led_by_r1(timing=STEADY)
    group.join(R4)
    group.run(1.0)
    group.change(R1, add=R4, resizes=True)
    for link in ((R1, R2), (R1, R3)):
        message = group.deliver(*link)
        assert isinstance(message, Accept)
        assert isinstance(message.value, Change)

    group.crash(R1)
    group.run(3.0)

    assert group[R2].membership.members == (R1, R2, R3, R4)
    assert group[R2].memberships.is_settled(group[R2].learned)
    say(group, 3)
    group.run(0.2)
    assert group.values(R4) == values(3)


def test_an_epoch_that_has_ended_is_not_listened_to() -> None:
    group = led_by_r1(timing=STEADY)
    before = group[R1].ballot

    group.join(R4, epoch=3)
    group.run(1.0)

    assert "epoch 3" in group.stopped[R1], "a router of an old epoch stops"
    assert before.epoch == 0


def test_a_petitioner_of_an_old_epoch_stops() -> None:
    group = Group(1, timing=STEADY)
    group[R1].epoch = 2
    group[R1].on_message(R4, Petition(1), 0.0)
    group[R1].on_connected(R4, 0.0)

    group[R1].on_message(R4, Petition(1), 0.0)

    assert (R4, Removed(2, 0)) in group[R1].flush(0.0).send


def crash_if_majorities_stay(group: Group, victim: ProcessId) -> None:
    """Crash a router unless a membership that anybody holds for present would lose its majority."""
    alive = {me for me in group.members if me not in group.crashed} - {victim}
    if all(known.is_quorum(alive) for me in alive for known in group[me].memberships.governing):
        group.crash(victim)


def test_a_change_that_would_leave_no_majority_is_refused() -> None:
    group = led_by_r1(5, timing=STEADY)
    group.crash(R4)
    group.crash(R5)

    assert "no majority of the 4" in group.change(R1, remove=R3)
    assert group.change(R1, remove=R4) == ""


@pytest.mark.parametrize("seed", range(30))
def test_changes_at_random_keep_agreement_and_life(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    timing = PaxosTiming(window=rng.choice((1, 2, 8)), lag=rng.choice((2, 16, 1024)), removal_s=2.0)
    group = Group(3, timing=timing, seed=seed)
    group.run(0.5)
    said = 0
    for _ in range(40):
        leaders = group.leaders()
        roll = rng.random()
        alive = [me for me in group.members if me not in group.crashed]
        members = group[leaders[0]].membership.members if leaders else ()
        if roll < 0.55 and leaders and group[leaders[-1]].can_propose():
            said += 1
            group.propose(leaders[-1], f"{seed}-{said}")
        elif roll < 0.65 and len(group.members) < 9:
            group.join(router(len(group.members) + 1), *alive)
        elif roll < 0.75 and leaders and len(members) > 3:
            group.change(leaders[-1], remove=rng.choice(members))
        elif roll < 0.8:
            crash_if_majorities_stay(group, rng.choice(alive))
        elif roll < 0.9:
            a, b = rng.sample(alive, 2) if len(alive) > 1 else (R1, R1)
            group.disconnect(a, b)
        group.run(rng.choice((0.0, 0.02, 0.3, 1.5)))
        for a in alive:
            group.rejoin(a)
    group.run(20.0)

    (leader,) = group.leaders()
    group.propose(leader, "last")
    group.run(2.0)
    chosen: dict[int, str | None] = {}
    for me, learned in group.learned.items():
        assert [instance for instance, _ in learned] == list(range(1, len(learned) + 1)), me
        for instance, value in learned:
            assert chosen.setdefault(instance, value) == value, (me, instance)
    for member in group[leader].membership.members:
        if member not in group.crashed:
            assert group.values(member)[-1] == "last", member
