"""What a follower does not route: nothing of it is missing when that follower leads."""

from __future__ import annotations

import numpy as np
import pytest

from crescando.consensus.base import Ballot
from crescando.process import Output
from crescando.routing.ecast import mseq as mseq_module
from crescando.routing.ecast.backlog import REFUSING_MAX, Refusing
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import (
    Confirm,
    Deliver,
    Hello,
    Outdated,
    Pulse,
    Resume,
    Stable,
    StableUpTo,
    Welcome,
)
from crescando.routing.ecast.snapshot import take_snapshot
from crescando.routing.rubberband import Suspect
from crescando.types import ProcessId, Verdict, position
from tests.ecast.parties import CONFIG, R2, S0, S1, S2, U0, batch, configure, of, point, write
from tests.ecast.test_router import Desk, to
from tests.routing.worlds import CLIENT

NO_TABLE = 9
R3 = ProcessId("router", "r3", 1)


def follower(*values: object) -> Desk:
    """A follower that has learned one instance per submission."""
    desk = Desk(leads=False)
    for value in values:
        desk.order.learn(batch(value))  # type: ignore[arg-type]
    desk.flush()
    return desk


def lead(desk: Desk) -> None:
    desk.order.lead()
    desk.flush()


def refusals(desk: Desk) -> list[tuple[int, str]]:
    """Give what the client is told to be refused when it comes to this leader."""
    stables = to(desk.take(CLIENT, Hello()), CLIENT, Stable)
    return [(e.number, e.verdict) for stable in stables for e in stable.exceptions]


def test_a_follower_routes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def route(*_: object) -> None:
        raise AssertionError("routed")

    monkeypatch.setattr(mseq_module, "route", route)

    desk = follower(of(write(1, point(S0, S1))), of(write(2)))
    desk.take(R2, StableUpTo(1, ()))

    assert desk.router.n_pending == 1
    assert desk.router.mseq.learned_of(CLIENT) == 2


def test_a_new_leader_sends_what_it_kept_unrouted() -> None:
    desk = follower(of(write(1, point(S0, S1))), of(write(2, point(S1, S2))))
    desk.take(R2, StableUpTo(2, (), unstable=(2,)))

    lead(desk)
    output = desk.resume()

    sent = {peer: [m.instance for m in to(output, peer, Deliver)] for peer in (S0, S1, S2)}
    assert sent == {S0: [], S1: [2], S2: [2]}


@pytest.mark.parametrize(
    "notice",
    [
        pytest.param(StableUpTo(2, (), refusing=(1,)), id="named"),
        pytest.param(StableUpTo(2, (), refusing_since=2), id="older than the list"),
    ],
)
def test_what_was_refused_outlives_the_instance(notice: StableUpTo) -> None:
    desk = follower(of(write(1), write(2, table=NO_TABLE)), of(write(3)))

    desk.take(R2, notice)
    assert desk.router.n_pending == 0
    lead(desk)

    assert refusals(desk) == [(2, Verdict.REFUSED.value)]


def test_a_leader_names_what_routing_refused() -> None:
    desk, other = Desk(), follower()
    desk.resume()
    for value in (of(write(1)), of(write(2, table=NO_TABLE)), of(write(3))):
        desk.order_now(value)
        other.order.learn(batch(value))
    for peer in (S0, S1, S2):
        desk.take(peer, Confirm(position(9, 0)))
    desk.now_s += desk.router.limits.pulse_s

    (notice,) = to(desk.flush(), R2, StableUpTo)
    other.take(R2, notice)
    lead(other)

    assert notice.refusing == (2,)
    assert refusals(other) == [(2, Verdict.REFUSED.value)]


def test_a_refusal_made_up_for_late_is_forgotten_with_what_acknowledges_it() -> None:
    desk = follower(of(write(1, table=NO_TABLE)), of(write(2), acknowledged=1))

    lead(desk)

    assert desk.router.mseq.refused == {}


def test_a_new_leader_knows_how_far_destinations_must_be_although_it_routed_nothing() -> None:
    desk, other = Desk(), follower()
    desk.resume()
    value = of(write(1, point(S0, S1)))
    desk.order_now(value)
    other.order.learn(batch(value))
    for peer in (S0, S1):
        desk.take(peer, Confirm(position(1, 0)))
    desk.now_s += desk.router.limits.pulse_s
    other.take(R2, *to(desk.flush(), R2, StableUpTo))
    lead(other)

    output = other.take(S0, Resume(other.order.ballot, -1, -1))

    assert to(output, S0, Outdated) == [Outdated(position(1, 0))]


def test_what_was_learned_under_a_deposed_leader_is_not_routed_twice() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1, point(S0, S1))))
    desk.order.depose(Ballot(3, R2))
    desk.flush()
    desk.order.learn(batch(of(write(2, point(S0, S1)))))
    desk.flush()

    desk.order.lead(4)
    desk.flush()
    output = desk.resume(S0)

    assert [m.instance for m in to(output, S0, Deliver)] == [1, 2]


def test_an_instance_that_was_dropped_before_an_older_one_is_named_all_the_same() -> None:
    values = (of(write(1, point(S0, S1))), of(write(2, table=NO_TABLE)), of(write(3, point(S0, S1))))
    first, second = follower(*values), follower(*values)

    first.take(R2, StableUpTo(3, (), unstable=(1,), refusing=(2,)))
    lead(first)
    first.now_s += first.router.limits.pulse_s
    (notice,) = to(first.flush(), R2, StableUpTo)
    second.take(R2, notice)
    lead(second)

    assert notice.unstable == (1,)
    assert notice.refusing == (2,)
    assert refusals(second) == [(2, Verdict.REFUSED.value)]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_nobody_waits_for_one_that_was_declared_failed_by_an_instance_that_is_gone(by_snapshot: bool) -> None:
    desk = follower(of(write(1, point(S0, S1))), of(configure(1, Suspect(S0), sender=U0)))
    # A Config need not tell everybody of every change: whom the first one still waits for may not be told.
    desk.take(R2, StableUpTo(2, (), unstable=(1,)))
    if by_snapshot:
        desk.order.output.snapshot_for.append(R2)
        desk.flush()
        ((_, instance, snapshot),) = desk.order.snapshots
        desk = follower()
        desk.order.learned = instance
        desk.order.output.install = (instance, snapshot)
        desk.flush()
    lead(desk)
    desk.resume()

    output = desk.take(S1, Confirm(position(1, 0)))

    assert [m.upto for m in to(output, CLIENT, Stable)] == [1]
    assert desk.router.n_pending == 0


def test_what_lies_below_a_snapshot_is_not_taken_to_be_known() -> None:
    donor = Desk()
    values = (of(write(1, table=NO_TABLE)), of(write(2, point(S0, S1))))
    for value in values:
        donor.order_now(value)
    joiner, lagging = follower(), follower(*values)
    joiner.order.learned = 2
    joiner.order.output.install = (2, take_snapshot(donor.router.mseq, donor.router.window))
    joiner.flush()
    lead(joiner)
    joiner.now_s += joiner.router.limits.pulse_s

    (notice,) = to(joiner.flush(), R2, StableUpTo)
    lagging.take(R2, notice)
    lead(lagging)

    assert (notice.refusing, notice.refusing_since) == ((), 3)
    assert refusals(lagging) == [(1, Verdict.REFUSED.value)]


def test_the_list_of_refusing_instances_is_bounded_and_says_how_far_back_it_reaches() -> None:
    refusing = Refusing()
    noted = np.arange(10, 10 + 2 * (REFUSING_MAX + 5), 2).tolist()
    for instance in (*noted[1::2], *noted[::2], *noted[5:20]):
        refusing.note(instance)

    assert refusing.instances() == tuple(noted[5:])
    assert refusing.since == noted[4] + 1


def test_configurations_are_followed_without_routing() -> None:
    desk = follower(of(write(1)))

    assert desk.router.mseq.config is CONFIG
    assert desk.router.n_pending == 1


# A backlog that is too large for one turn.

SLICED = RouterLimits(slice_instances=4, slice_messages=10)


def sliced_follower(n: int, n_messages: int = 1) -> Desk:
    desk = Desk(leads=False, limits=SLICED)
    for first in range(1, n * n_messages + 1, n_messages):
        desk.order.learn(batch(of(*(write(first + i, point(S0, S1)) for i in range(n_messages)))))
    desk.flush()
    return desk


def leads(output: Output) -> bool:
    return any(message.is_leader for message in to(output, CLIENT, Welcome))


@pytest.mark.parametrize(("n", "n_messages", "a_turn"), [(11, 1, 4), (8, 6, 2), (3, 50, 1), (4, 1, 4)])
def test_a_new_leader_routes_a_slice_a_turn_and_leads_when_all_is_routed(
    n: int, n_messages: int, a_turn: int
) -> None:
    desk = sliced_follower(n, n_messages)

    desk.order.lead()
    routed = []
    for _ in range(n):
        desk.now_s += 0.25
        output = desk.flush()
        routed.append(len(desk.router.window.entries))
        if leads(output):
            break
        assert output.wake_at_s == desk.now_s, "it wakes at once"
        assert not [message for _, message in output.send if type(message) is Pulse]

    assert routed == [*range(a_turn, n, a_turn), n]
    assert [m.instance for m in to(desk.resume(), S0, Deliver)] == list(range(1, n + 1))
    assert output.wake_at_s is None or output.wake_at_s > desk.now_s


def test_what_is_learned_meanwhile_comes_behind_what_was_not_routed() -> None:
    desk = sliced_follower(6)
    desk.order.lead()
    desk.flush()

    desk.order.learn(batch(of(write(7, point(S0, S1)))))
    while not leads(desk.flush()):
        pass

    assert [m.instance for m in to(desk.resume(), S0, Deliver)] == list(range(1, 8))


def test_one_that_is_deposed_before_it_has_routed_all_goes_on_with_the_rest_later() -> None:
    desk = sliced_follower(9)
    desk.order.lead()
    desk.flush()
    desk.order.depose(Ballot(3, R2))
    deposed = desk.flush()

    desk.take(R2, StableUpTo(9, (), unstable=(3, 4, 5, 6, 7, 8, 9)))
    desk.order.lead(4)
    while not leads(desk.flush()):
        pass

    assert deposed.wake_at_s is None or deposed.wake_at_s > desk.now_s
    resumed = desk.resume(S0, at=position(2, 0))
    assert [m.instance for m in to(resumed, S0, Deliver)] == [3, 4, 5, 6, 7, 8, 9]


def test_what_comes_meanwhile_is_turned_away_and_taken_later() -> None:
    desk = sliced_follower(9)
    desk.order.lead()
    desk.flush()

    (welcome,) = to(desk.route(of(write(10))), CLIENT, Welcome)

    assert not welcome.is_leader
    assert desk.order.proposed == []
    assert leads(desk.flush())
    desk.route(of(write(10)))
    assert desk.proposed() == [[(CLIENT, 10, 10)]]


def test_a_snapshot_is_given_when_all_is_routed_and_to_nobody_who_is_gone() -> None:
    desk = sliced_follower(9)
    desk.order.output.snapshot_for += [R2, R3]
    first = desk.flush()
    desk.router.on_disconnected(R3, desk.now_s)
    assert first.wake_at_s == desk.now_s
    assert desk.order.snapshots == []

    desk.flush()
    desk.order.learn(batch(of(write(10, point(S0, S1)))))
    desk.flush()

    ((peer, instance, snapshot),) = desk.order.snapshots
    assert (peer, instance) == (R2, 10)
    assert [entry.instance for entry in snapshot.entries] == list(range(1, 11))
