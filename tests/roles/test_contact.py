"""Whom a client hears, and what it therefore waits for no more."""

from __future__ import annotations

import pytest

from crescando.errors import CrescandoError, OperationError, ReadLostError, RefusedError
from crescando.process import Output
from crescando.roles.contact import LOOKS, Contact
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import Ping, Pong, ReadReplica
from crescando.routing.ecast.messages import Quorum
from crescando.types import FULL_RING, ProcessId
from tests.roles.stage import sent
from tests.roles.test_client import LIMITS, ROUTER, S0, S1, Desk, wrote
from tests.roles.test_snapshot import SNAPSHOT, asked, connected
from tests.roles.test_storage import add, read_all

PATIENCE_S, ALONE_S = 10.0, 60.0
STEP_S = PATIENCE_S / LOOKS


class Watch:
    """A contact with two processes, of which some answer what they are asked."""

    def __init__(self, *, answering: tuple[ProcessId, ...] = (S0,)) -> None:
        self.contact = Contact((S0, S1), PATIENCE_S, ALONE_S)
        self.answering = answering
        self.now_s = 100.0
        for process in (S0, S1):
            self.contact.on_connected(process, self.now_s)
            self.contact.hear(process, self.now_s)

    def run(self, seconds: float, next_number: int = 5) -> None:
        end_s = self.now_s + seconds
        while True:
            for peer in self.contact.look(self.now_s, next_number):
                if peer in self.answering:
                    self.contact.hear(peer, self.now_s)
            if self.now_s >= end_s:
                return
            self.now_s = min(end_s, self.now_s + STEP_S / 2)


def test_nobody_is_silent_who_answers() -> None:
    watch = Watch(answering=(S0, S1))

    watch.run(100.0)

    assert not watch.contact.silent
    assert watch.contact.hopeless == 0


def test_one_that_does_not_answer_in_an_open_session_is_silent_after_a_while() -> None:
    watch = Watch()

    watch.run(PATIENCE_S - STEP_S)
    assert not watch.contact.silent
    watch.run(2 * STEP_S)

    assert watch.contact.silent == {S1}
    assert watch.contact.hopeless == 5


def test_what_was_submitted_later_is_not_hopeless_yet() -> None:
    watch = Watch()
    watch.run(PATIENCE_S / 2, next_number=5)

    watch.run(PATIENCE_S / 2 + STEP_S, next_number=9)

    assert watch.contact.hopeless == 5
    watch.run(PATIENCE_S / 2, next_number=9)
    assert watch.contact.hopeless == 9


def test_one_whose_session_ended_is_silent_and_heard_again_when_it_speaks() -> None:
    watch = Watch()
    watch.contact.on_disconnected(S1, watch.now_s)
    watch.run(PATIENCE_S + STEP_S)
    assert watch.contact.silent == {S1}

    watch.contact.on_connected(S1, watch.now_s)
    watch.contact.hear(S1, watch.now_s)
    watch.answering = (S0, S1)
    watch.run(5.0)

    assert not watch.contact.silent
    assert watch.contact.hopeless == 0


def test_a_client_without_any_session_is_more_patient_and_lets_everybody_come_back() -> None:
    watch = Watch()
    for process in (S0, S1):
        watch.contact.on_disconnected(process, watch.now_s)
    watch.run(ALONE_S - STEP_S)
    assert not watch.contact.silent

    watch.contact.on_connected(S0, watch.now_s)
    watch.run(PATIENCE_S - STEP_S)
    assert not watch.contact.silent
    watch.run(2 * STEP_S)

    assert watch.contact.silent == {S1}


def test_sessions_that_begin_again_and_again_without_a_word_are_no_sign_of_life() -> None:
    watch = Watch()

    for _ in range(4):
        watch.contact.on_disconnected(S1, watch.now_s)
        watch.run(STEP_S)
        watch.contact.on_connected(S1, watch.now_s)
        watch.run(STEP_S)

    assert watch.contact.silent == {S1}
    assert watch.contact.hopeless == 5


def test_nor_are_they_for_a_client_that_hears_nobody() -> None:
    watch = Watch(answering=())

    for _ in range(int(ALONE_S / STEP_S)):
        for process in (S0, S1):
            watch.contact.on_disconnected(process, watch.now_s)
        watch.run(STEP_S)
        watch.contact.on_connected(S0, watch.now_s)

    watch.run(2 * STEP_S)

    assert watch.contact.silent == {S0, S1}
    assert watch.contact.hopeless == 5


def test_a_client_that_hears_nobody_is_alone_though_its_sessions_last() -> None:
    watch = Watch(answering=())

    watch.run(ALONE_S - STEP_S)
    assert not watch.contact.silent
    watch.contact.hear(S0, watch.now_s)
    watch.answering = (S0,)
    watch.run(PATIENCE_S - STEP_S)
    assert not watch.contact.silent, "the other has as long to come back"
    watch.run(2 * STEP_S)

    assert watch.contact.silent == {S1}


def test_alone_for_very_long_it_waits_for_nobody() -> None:
    watch = Watch()
    for process in (S0, S1):
        watch.contact.on_disconnected(process, watch.now_s)

    watch.run(ALONE_S + STEP_S)

    assert watch.contact.silent == {S0, S1}
    assert watch.contact.hopeless == 5


def test_a_pause_of_this_very_process_is_held_against_nobody() -> None:
    watch = Watch(answering=())
    watch.run(STEP_S)

    watch.now_s += 1000.0
    watch.run(0.0)

    assert not watch.contact.silent
    assert watch.contact.hopeless == 0


def test_while_nothing_waits_there_is_nothing_to_wake_for() -> None:
    watch = Watch()
    watch.run(STEP_S)
    assert watch.contact.wake_at_s is not None

    watch.contact.rest()

    assert watch.contact.wake_at_s is None


# What the client makes of it.


def silence(desk: Desk, *, of: ProcessId, seconds: float = LIMITS.give_up_s + 2 * STEP_S) -> list[Output]:
    """Let time pass in which every other storage process answers, and a router speaks."""
    end_s = desk.now_s + seconds
    outputs = []
    while desk.now_s < end_s:
        outputs += [desk.pass_time(STEP_S / 2), desk.tell(ROUTER, Quorum(True))]
        for peer, message in [*outputs[-2].send, *outputs[-1].send]:
            if isinstance(message, Ping) and peer != of:
                outputs.append(desk.tell(peer, Pong(message.sent_s)))
    return outputs


def test_what_a_silent_process_may_never_confirm_is_unknown() -> None:
    desk = connected(ROUTER, limits=LIMITS)
    desk.ask(add(1, 1), read_all())
    desk.core.configure(77, b"create")
    desk.flush()

    silence(desk, of=S1)

    write, read, change = (desk.outcome(token) for token in (2, 3, 77))
    assert isinstance(write, OperationError)
    assert isinstance(read, ReadLostError)
    assert [error.applied for error in (write, read, change)] == ["unknown", "no", "unknown"]
    assert str(S1) in str(write)
    assert desk.core.n_in_flight == 0
    assert desk.flush().wake_at_s is None


def test_what_is_only_slow_is_waited_for() -> None:
    desk = connected(ROUTER, limits=LIMITS)
    desk.ask(add(1, 1))

    silence(desk, of=ProcessId("storage", "nobody", 1), seconds=100.0)
    assert desk.outcome(2) is None
    desk.tell(S0, wrote(2, FULL_RING))
    desk.stable(2)

    assert not isinstance(desk.outcome(2), Exception)


def test_what_was_confirmed_is_not_unknown() -> None:
    desk = connected(ROUTER, limits=LIMITS)
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.tell(S0, wrote(2, FULL_RING))

    silence(desk, of=S1)

    assert not isinstance(desk.outcome(2), Exception)


def test_a_read_of_a_replica_that_keeps_silent_ends() -> None:
    desk = connected(ROUTER, limits=LIMITS)
    desk.core.ask(900, S1, lambda number: ReadReplica(number, 0, FULL_RING, (0,)))
    desk.flush()

    silence(desk, of=S1)

    assert isinstance(desk.outcome(900), CrescandoError)
    assert desk.flush().wake_at_s is None


def test_a_replica_may_be_read_although_nothing_was_asked_of_anybody_for_long() -> None:
    desk = connected(ROUTER, limits=LIMITS)
    desk.pass_time(2 * LIMITS.alone_s)

    desk.core.ask(900, S1, lambda number: ReadReplica(number, 0, FULL_RING, (0,)))
    desk.flush()

    assert desk.outcome(900) is None


def test_what_cannot_even_be_sent_ends_and_holds_no_read_up() -> None:
    desk = connected(ROUTER, limits=ClientLimits(open_submissions=1, stalled_submissions=1))
    desk.ask(add(1, 1))
    desk.multicast.n_unstable = 1
    desk.core.request(200, add(2, 2))
    desk.core.request(201, SNAPSHOT)
    desk.flush()

    outputs = silence(desk, of=S1)

    assert desk.outcome(2).applied == "unknown"
    assert isinstance(desk.outcome(200), RefusedError)
    (message,) = [inject for output in outputs for inject in asked(output)][:1]
    assert message.written == 2


@pytest.mark.parametrize("n", [1, 3])
def test_signs_of_life_are_asked_for_only_while_something_waits(n: int) -> None:
    desk = connected(ROUTER, limits=LIMITS)
    assert not any(sent(desk.pass_time(STEP_S), Ping) for _ in range(10))

    desk.ask(*(add(1, key) for key in range(n)))

    assert any(sent(desk.pass_time(STEP_S), Ping) for _ in range(3))
