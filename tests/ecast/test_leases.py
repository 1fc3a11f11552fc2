"""Leases of storage processes: who is answered, when, and with which position (RB13 §6.7)."""

from __future__ import annotations

import itertools

import pytest

from crescando.consensus.base import Ballot
from crescando.routing.ecast.leases import REQUESTS_MAX
from crescando.routing.ecast.messages import Confirm, Expelled, Lease, LeaseRequest, Pulse
from crescando.routing.rubberband import Suspect
from crescando.types import ProcessId, position
from tests.ecast.parties import R2, S0, S1, S2, U0, configure, point, write
from tests.ecast.test_reads import Stage
from tests.routing.worlds import storage


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.lead()
    return stage


def leases(stage: Stage, to: ProcessId = S0) -> list[Lease]:
    return stage.of(Lease, to=to)


def test_a_member_is_answered_with_its_own_time_and_the_position_reached(stage: Stage) -> None:
    stage.learn(write(1), write(2))

    stage.tell(S0, LeaseRequest(17.25))

    assert leases(stage) == [Lease(17.25, position(1, 1))]


def test_it_is_answered_only_when_a_majority_has_answered_a_later_question(stage: Stage) -> None:
    stage.order.answers = False
    stage.order.begin_round(stage.now_s)

    stage.tell(S0, LeaseRequest(1.0))
    stage.order.answered = stage.order.round
    stage.flush()
    held = list(leases(stage))
    stage.order.answered = stage.order.round
    stage.flush()

    assert not held, "what was asked before the request came proves nothing for it"
    assert [lease.sent_s for lease in leases(stage)] == [1.0]


def test_without_a_majority_nobody_is_answered(stage: Stage) -> None:
    stage.order.answers = False

    for n in range(50):
        stage.tell(S0, LeaseRequest(float(n)))
        stage.now_s += 1.0
        stage.flush()

    assert not leases(stage)
    assert len(stage.router.leases._held[S0]) <= REQUESTS_MAX


def test_requests_that_come_faster_than_rounds_are_answered_all_the_same(stage: Stage) -> None:
    stage.order.answers = False
    answered = []

    for n in range(30):
        stage.tell(S0, LeaseRequest(float(n)))
        if n % 3 == 2:
            stage.order.answered = stage.order.round
            stage.flush()
        answered = [lease.sent_s for lease in leases(stage)]

    assert len(answered) >= 8
    assert answered == sorted(answered)
    assert answered[-1] >= 24.0


def test_a_router_that_does_not_lead_answers_nothing(stage: Stage) -> None:
    stage.order.depose(Ballot(9, R2))
    stage.flush()

    stage.tell(S0, LeaseRequest(1.0))

    assert not leases(stage)


def test_what_was_asked_under_another_leadership_is_not_answered(stage: Stage) -> None:
    stage.order.answers = False
    stage.tell(S0, LeaseRequest(1.0))

    stage.order.depose(Ballot(9, R2))
    stage.flush()
    stage.order.lead(attempt=10)
    stage.order.answers, stage.order.answered = True, stage.order.round + 5
    stage.flush()

    assert not leases(stage)
    assert not stage.router.leases.proof


def test_a_process_that_was_declared_failed_is_told_so(stage: Stage) -> None:
    stage.order.answers = False
    stage.tell(S0, LeaseRequest(1.0))
    stage.order.answers = True

    stage.learn(configure(1, Suspect(S0), sender=U0))
    stage.order.answered = stage.order.round
    stage.flush()
    stage.sent.clear()
    stage.tell(S0, LeaseRequest(2.0))

    assert not leases(stage)
    assert stage.of(Expelled, to=S0)


def test_a_process_that_has_not_joined_is_neither_answered_nor_expelled(stage: Stage) -> None:
    stranger = storage(9)
    stage.tell(stranger, LeaseRequest(1.0))

    assert not leases(stage, stranger)
    assert not stage.of(Expelled, to=stranger)


def test_who_is_addressed_rarely_is_told_how_far_the_order_is_before_its_lease(stage: Stage) -> None:
    (away,) = [s for s in (S0, S1, S2) if s not in (S0, S1)]
    stage.learn(write(1, point(S0, S1)))
    stage.sent.clear()

    stage.tell(away, LeaseRequest(1.0))

    told = [m for peer, m in stage.sent if peer == away and isinstance(m, Pulse | Lease)]
    assert isinstance(told[0], Pulse)
    assert isinstance(told[-1], Lease)
    assert [m.idle for m in told if isinstance(m, Pulse)] == [position(1, 0)] * (len(told) - 1)


def test_nobody_is_told_of_a_place_behind_what_is_still_to_be_sent(stage: Stage) -> None:
    stage.router.limits = type(stage.router.limits)(credit_bytes=1)
    for n in range(1, 5):
        stage.learn(write(n))
    stage.sent.clear()

    stage.tell(S0, LeaseRequest(1.0))

    pulses = stage.of(Pulse, to=S0)
    assert pulses
    assert all(pulse.idle < position(4, 0) for pulse in pulses)
    for at in itertools.count(1):
        stage.tell(S0, Confirm(position(at, 0)))
        if at == 4:
            break
    stage.tell(S0, LeaseRequest(2.0))
    assert stage.of(Pulse, to=S0)[-1].idle == position(4, 0)
