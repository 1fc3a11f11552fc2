"""The application role (RB13 Alg. 1): numbers, fencing, duplicates, gaps and sending again."""

from __future__ import annotations

from typing import Any

import pytest

from crescando.consensus.base import Ballot
from crescando.process import Output
from crescando.routing.base import ExpelledEvent, NotStable, StableEvent
from crescando.routing.batch import Delivery, Submission
from crescando.routing.ecast.application import RECONNECT_S, Application
from crescando.routing.ecast.messages import (
    Confirm,
    Deliver,
    Expelled,
    Fenced,
    Hello,
    Outdated,
    Pulse,
    Resume,
    Route,
    Stable,
    Welcome,
)
from crescando.routing.ecast.stability import entry_of
from crescando.types import NO_POSITION, ProcessId, position
from tests.ecast.parties import CLIENT, R1, R2, S0, S1, batch, of, point, write
from tests.ecast.test_stability import Learner

B1, B2 = Ballot(1, R1), Ballot(2, R2)


def connected(me: ProcessId = CLIENT) -> Application:
    """Give an application process with sessions to both routers, its hellos said."""
    app = Application(me, (R1, R2))
    app.on_start(0.0)
    for peer in (R1, R2):
        app.on_connected(peer, 0.0)
    app.flush(0.0)
    return app


def led(me: ProcessId = CLIENT, *, learned: int = 0) -> Application:
    """Give one that takes r1 for the leader."""
    app = connected(me)
    app.on_message(R1, Welcome(B1, True, R1, learned), 0.0)
    app.flush(0.0)
    return app


def deliver(instance: int, previous: int, *, ballot: Ballot = B1, n: int = 1) -> Deliver:
    """Give what a leader sends S0 of one instance with n writes."""
    learner = Learner()
    learned = learner.mseq.learn(instance, batch(of(*(write(i, point(S0, S1)) for i in range(1, n + 1)))))
    entry = entry_of(instance, learned.runs, set())
    return Deliver(ballot, instance, previous, entry.last[S0], entry.deliveries[S0])


def routed(output: Output) -> list[tuple[ProcessId, int, int]]:
    """Give what was sent into the order: to whom, and the first and last number."""
    return [
        (peer, message.submission.first, message.submission.last)
        for peer, message in output.send
        if isinstance(message, Route)
    ]


def sent(output: Output, kind: type[Any]) -> list[Any]:
    return [message for _, message in output.send if isinstance(message, kind)]


def positions(app: Application) -> list[int]:
    return [int(at) for event in app.take_events() if isinstance(event, Delivery) for at in event.position]


# Submitting.


def test_sessions_with_all_routers_are_asked_for_and_begin_with_hello() -> None:
    app = Application(CLIENT, (R1, R2))
    app.on_start(0.0)
    assert app.flush(0.0).connect == [R1, R2]

    app.on_connected(R2, 0.0)

    assert app.flush(0.0).send == [(R2, Hello())]


@pytest.mark.parametrize("wrong", [of(write(2)), of(write(1, sender=S0))])
def test_numbers_are_given_once_and_in_order(wrong: Submission) -> None:
    with pytest.raises(ValueError, match="once, in order"):
        connected().submit(wrong)


def test_nothing_is_sent_before_a_leader_has_said_where_it_stands() -> None:
    app = connected()
    app.submit(of(write(1), write(2)))

    app.on_message(R2, Welcome(B1, False, R1, 0), 0.0)

    assert routed(app.flush(0.0)) == []


def test_messages_go_to_the_leader_once_in_order() -> None:
    app = led()
    app.submit(of(write(1), write(2)))
    app.submit(of(write(3)))

    assert routed(app.flush(0.0)) == [(R1, 1, 2), (R1, 3, 3)]
    assert routed(app.flush(0.0)) == []
    assert app.n_unstable == 2


def test_a_new_leader_is_sent_everything_from_its_watermark_on() -> None:
    app = led()
    for number in (1, 3, 5):
        app.submit(of(write(number), write(number + 1)))
    app.flush(0.0)

    app.on_message(R2, Welcome(B2, True, R2, 3), 0.0)

    assert routed(app.flush(0.0)) == [(R2, 4, 4), (R2, 5, 6)]


def test_a_leader_that_missed_something_is_sent_it_again() -> None:
    app = led()
    app.submit(of(write(1), write(2), write(3)))
    app.flush(0.0)

    app.on_message(R1, Welcome(B1, True, R1, 1), 0.0)

    assert routed(app.flush(0.0)) == [(R1, 2, 3)]


def test_what_is_sent_again_carries_the_newest_acknowledgement() -> None:
    app = led()
    app.submit(of(write(1)))
    app.submit(of(write(2)))
    app.flush(0.0)
    app.on_message(R1, Stable(1, ()), 0.0)

    app.on_message(R2, Welcome(B2, True, R2, 1), 0.0)

    (again,) = sent(app.flush(0.0), Route)
    assert again.submission.acknowledged == 1


def test_a_deposed_leader_is_not_followed_back() -> None:
    app = led()
    app.on_message(R2, Welcome(B2, True, R2, 0), 0.0)
    app.submit(of(write(1)))

    app.on_message(R1, Welcome(B1, True, R1, 0), 0.0)

    assert app.lead == R2
    assert routed(app.flush(0.0)) == [(R2, 1, 1)]


def test_a_leader_that_says_it_does_not_lead_is_believed() -> None:
    app = led()

    app.on_message(R1, Welcome(B2, False, R2, 0), 0.0)
    app.submit(of(write(1)))

    assert app.lead is None
    assert routed(app.flush(0.0)) == []


# Delivering.


def test_what_is_delivered_is_confirmed_once_a_turn() -> None:
    app = led(S0)

    app.on_message(R1, deliver(1, NO_POSITION), 0.0)
    app.on_message(R1, deliver(2, position(1, 0)), 0.0)

    assert positions(app) == [position(1, 0), position(2, 0)]
    assert app.flush(0.0).send == [(R1, Confirm(position(2, 0)))]
    assert app.flush(0.0).send == []


def test_a_duplicate_is_confirmed_and_not_delivered() -> None:
    app = led(S0)
    app.on_message(R1, deliver(1, NO_POSITION), 0.0)
    app.flush(0.0)
    app.take_events()

    app.on_message(R1, deliver(1, NO_POSITION), 0.0)

    assert app.take_events() == []
    assert sent(app.flush(0.0), Confirm) == [Confirm(position(1, 0))]


def test_of_what_is_partly_known_only_the_rest_is_delivered() -> None:
    app = led(S0)
    app.on_message(R1, deliver(1, NO_POSITION, n=2), 0.0)
    app.take_events()

    app.on_message(R1, deliver(1, NO_POSITION, n=5), 0.0)

    assert positions(app) == [position(1, index) for index in (2, 3, 4)]


def test_a_lower_ballot_is_answered_with_the_higher_and_not_delivered() -> None:
    app = led(S0)
    app.on_message(R2, Pulse(B2, NO_POSITION), 0.0)

    app.on_message(R1, deliver(1, NO_POSITION, ballot=B1), 0.0)
    app.on_message(R1, Pulse(B1, position(9, 0)), 0.0)

    assert app.take_events() == []
    assert app.delivered == NO_POSITION
    assert app.flush(0.0).send == [(R1, Fenced(B2)), (R1, Fenced(B2))]
    assert app.fenced == 1


def test_a_delivery_of_a_higher_ballot_fences_the_lower() -> None:
    app = led(S0)

    app.on_message(R2, deliver(1, NO_POSITION, ballot=B2), 0.0)
    app.on_message(R1, deliver(2, position(1, 0), ballot=B1), 0.0)

    assert positions(app) == [position(1, 0)]
    assert app.flush(0.0).send == [(R1, Fenced(B2)), (R2, Confirm(position(1, 0)))]


def test_a_gap_resets_the_session_and_delivers_nothing() -> None:
    app = led(S0)

    app.on_message(R1, deliver(3, position(2, 0)), 0.0)

    assert app.take_events() == []
    output = app.flush(0.0)
    assert output.reset == [R1]
    assert sent(output, Confirm) == []


def test_after_a_reset_the_session_resumes_where_delivery_stands() -> None:
    app = led(S0)
    app.on_message(R1, deliver(1, NO_POSITION), 0.0)
    app.flush(0.0)
    app.on_disconnected(R1, 0.0)
    app.on_connected(R1, 0.1)
    app.flush(0.1)

    app.on_message(R1, Welcome(B1, True, R1, 0), 0.1)

    assert sent(app.flush(0.1), Resume) == [Resume(B1, position(1, 0), position(1, 0))]


def test_a_pulse_moves_the_position_of_one_that_is_not_addressed() -> None:
    app = led(S0)

    app.on_message(R1, Pulse(B1, position(7, 3)), 0.0)
    app.on_message(R1, Pulse(B1, position(5, 0)), 0.0)

    assert app.delivered == position(7, 3)
    app.on_message(R1, deliver(8, position(7, 3)), 0.0)
    assert positions(app) == [position(8, 0)]


def test_held_confirmations_are_sent_when_the_hold_ends() -> None:
    app = led(S0)
    app.hold_confirms(True)
    app.on_message(R1, deliver(1, NO_POSITION), 0.0)
    assert app.flush(0.0).send == []
    assert positions(app) == [position(1, 0)]

    app.hold_confirms(False)

    assert app.flush(0.0).send == [(R1, Confirm(position(1, 0)))]


def test_a_resumption_confirms_nothing_that_is_held_and_the_end_of_the_hold_does() -> None:
    app = led(S0)
    app.on_message(R1, deliver(1, NO_POSITION), 0.0)
    app.flush(0.0)
    app.hold_confirms(True)
    app.on_message(R1, deliver(2, position(1, 0)), 0.0)
    app.flush(0.0)

    app.on_message(R2, Welcome(B2, True, R2, 0), 0.0)
    output = app.flush(0.0)
    assert output.send == [(R2, Resume(B2, position(2, 0), position(1, 0)))]

    app.hold_confirms(False)
    assert app.flush(0.0).send == [(R2, Confirm(position(2, 0)))]


def test_one_that_lost_its_state_ends_and_calls_nothing_of_its_own_void() -> None:
    app = led(S0)
    app.submit(of(write(1, sender=S0)))
    app.flush(0.0)

    app.on_message(R1, Outdated(position(9, 0)), 0.0)
    app.on_message(R1, Outdated(position(9, 0)), 0.0)

    assert app.take_events() == [ExpelledEvent(position(9, 0), 1, is_outdated=True)]


# Credit.


def test_only_the_leader_s_grants_count() -> None:
    app = connected()
    size = of(write(1)).n_bytes
    app.on_message(R1, Welcome(B1, True, R1, 0, size), 0.0)
    for number in (1, 2, 3, 4):
        app.submit(of(write(number)))
    assert routed(app.flush(0.0)) == [(R1, 1, 1)]

    app.on_message(R2, Stable(0, (), 1 << 20), 0.0)
    app.on_message(R2, Pulse(B1, 0, 1 << 20), 0.0)
    assert routed(app.flush(0.0)) == []

    app.on_message(R1, Pulse(B1, 0, 2 * size), 0.0)
    assert routed(app.flush(0.0)) == [(R1, 2, 2)]
    app.on_message(R1, Stable(2, (), size), 0.0)
    assert routed(app.flush(0.0)) == [(R1, 3, 3)]
    assert app.n_unstable == 2


# What became of it.


def test_stable_numbers_leave_the_window_and_are_told_once() -> None:
    app = led()
    for number in (1, 2, 3):
        app.submit(of(write(number)))
    refused = NotStable(2, "refused", "no such table")

    app.on_message(R1, Stable(2, (refused,)), 0.0)
    app.on_message(R1, Stable(2, (refused,)), 0.0)
    app.on_message(R1, Stable(1, ()), 0.0)

    assert app.take_events() == [StableEvent(2, (refused,))]
    assert (app.acknowledged, app.n_unstable) == (2, 1)


def test_exceptions_told_before_are_not_told_again() -> None:
    app = led()
    app.submit(of(write(1), write(2)))
    first, second = NotStable(1, "lost", "x"), NotStable(2, "lost", "y")
    app.on_message(R1, Stable(1, (first,)), 0.0)
    app.take_events()

    app.on_message(R1, Stable(2, (first, second)), 0.0)

    assert app.take_events() == [StableEvent(2, (second,))]


def test_an_expelled_process_learns_it_once_and_sends_no_more() -> None:
    app = led()
    for number in (1, 2, 3):
        app.submit(of(write(number)))

    app.on_message(R1, Expelled(position(4, 0), 2), 0.0)
    app.on_message(R2, Expelled(position(4, 0), 2), 0.0)

    assert app.take_events() == [ExpelledEvent(position(4, 0), 2)]
    assert routed(app.flush(0.0)) == []
    assert app.n_unstable == 2
    app.on_message(R1, Stable(2, ()), 0.0)
    assert app.take_events() == [StableEvent(2, ())]


# Sessions.


def test_a_lost_or_refused_session_is_asked_for_again_after_a_pause() -> None:
    app = led()
    app.on_disconnected(R1, 1.0)
    app.on_refused(R2, 1.0)

    output = app.flush(1.0)
    assert output.connect == []
    assert output.wake_at_s == 1.0 + RECONNECT_S
    assert app.lead is None

    output = app.flush(1.0 + RECONNECT_S)
    assert output.connect == [R1, R2]
    assert output.wake_at_s is None


def test_no_confirmation_goes_to_a_router_that_is_gone() -> None:
    app = led(S0)
    app.on_message(R1, deliver(1, NO_POSITION), 0.0)

    app.on_disconnected(R1, 0.0)

    assert app.flush(0.0).send == []


def test_messages_of_others_than_routers_are_ignored() -> None:
    app = led(S0)
    stranger = ProcessId("storage", "s9", 1)

    for message in (
        deliver(1, NO_POSITION),
        Stable(9, ()),
        Expelled(1, 0),
        Welcome(Ballot(9, stranger), True, stranger, 0),
    ):
        app.on_message(stranger, message, 0.0)

    assert app.take_events() == []
    assert app.flush(0.0).send == []
    assert (app.lead, app.is_expelled, app.acknowledged) == (R1, False, 0)
