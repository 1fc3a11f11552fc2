"""A client's snapshot reads: whole, again until one attempt is answered, never behind its session."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crescando.client.base import ReadOutcome, SchemaChanged
from crescando.engine.base import Failed, Results, Rows
from crescando.engine.statement import Column, decode_call, decode_shapes, encode_parameters
from crescando.errors import ClosedError, NoQuorumError, ReadLostError, RefusedError
from crescando.process import Output
from crescando.roles.answers import answers_of
from crescando.roles.limits import ClientLimits
from crescando.roles.patience import Patience
from crescando.roles.snapshot import LIFE_S, PATIENCE_S, PAUSE_S, RETRY_S, SnapshotReads
from crescando.routing.base import ExpelledEvent
from crescando.routing.batch import HEADER_BYTES
from crescando.routing.ecast.messages import Inject, Quorum, ReadRefused
from crescando.schema import DataType
from crescando.types import FULL_RING, ProcessId
from tests.roles.stage import sent
from tests.roles.test_client import HIGH, LOW, ME, ROUTER, S0, S1, Desk, keys_of, rows, wrote
from tests.roles.test_runs import ARCS, reach
from tests.roles.test_storage import add, read_all

OTHER_ROUTER = ProcessId("router", "r2", 1)
SNAPSHOT = replace(read_all(), isolation="snapshot")


def asked(output: Output) -> list[Inject]:
    return sent(output, Inject)


def numbers(output: Output) -> list[int]:
    return [n for m in asked(output) for n in range(m.reads.first, m.reads.last + 1)]


def ask(desk: Desk, *tokens: int) -> Output:
    for token in tokens:
        desk.core.request(token, SNAPSHOT)
    return desk.flush()


def refuse(desk: Desk, *attempts: int, is_final: bool = False) -> Output:
    return desk.tell(ROUTER, ReadRefused(attempts, "because", is_final))


def test_the_reads_of_a_turn_are_one_message_to_the_lead_router() -> None:
    desk = Desk()

    output = ask(desk, 100, 101, 102)

    (message,) = sent(output, Inject, to=ROUTER)
    assert len(message.reads) == 3
    assert message.reads.sender == ME
    assert decode_shapes(message.reads.shared) == (SNAPSHOT.shape.encode(),)
    assert decode_call(message.reads.payload_of(2)).shape == 0
    assert desk.numbers() == [[1]], "nothing was ordered but the join"


def test_a_read_is_done_when_every_scope_has_answered() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))

    desk.tell(S0, rows(-number, (LOW,), 1, at=70))
    assert desk.outcome(100) is None
    desk.tell(S1, rows(-number, (HIGH,), 2, at=70))

    outcome = desk.outcome(100)
    assert isinstance(outcome, ReadOutcome)
    assert outcome.position == 70
    assert keys_of(outcome) == [1, 2]
    assert desk.core.n_in_flight == 0


def test_answers_of_two_attempts_never_mix() -> None:
    desk = Desk()
    (first,) = numbers(ask(desk, 100))
    desk.tell(S0, rows(-first, (LOW,), 1, at=70))
    refuse(desk, first)
    (second,) = numbers(desk.pass_time(RETRY_S))

    desk.tell(S1, rows(-first, (HIGH,), 2, at=70))
    desk.tell(S1, rows(-second, (HIGH,), 22, at=90))
    assert desk.outcome(100) is None
    desk.tell(S0, rows(-second, (LOW,), 11, at=90))

    assert first != second
    assert keys_of(desk.outcome(100)) == [11, 22]


def test_an_answer_of_another_position_is_dropped() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))

    desk.tell(S0, rows(-number, (LOW,), 1, at=70))
    desk.tell(S1, rows(-number, (HIGH,), 2, at=71))

    assert desk.outcome(100) is None


def test_a_refused_read_is_asked_again_after_ever_longer_pauses() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))
    pauses = []

    for _ in range(6):
        refuse(desk, number)
        start_s = desk.now_s
        found: list[int] = []
        while not found:
            found = numbers(desk.pass_time(RETRY_S / 4))
        (number,) = found
        pauses.append(int((desk.now_s - start_s) / RETRY_S))

    assert pauses == [1, 2, 4, 8, 16, 20]
    assert desk.outcome(100) is None


def full(desk: Desk, *attempts: int) -> Output:
    return desk.tell(ROUTER, ReadRefused(attempts, "too many reads wait at the router", pauses=True))


def test_a_router_that_has_too_many_reads_makes_all_wait_and_nobody_fails() -> None:
    desk = Desk()
    first, second = numbers(ask(desk, 100)) + numbers(ask(desk, 101))

    outputs = [full(desk, first), full(desk, second), ask(desk, 102), desk.pass_time(PAUSE_S * 0.9)]
    again = desk.pass_time(PAUSE_S * 0.2)

    assert not any(asked(output) for output in outputs)
    assert outputs[-1].wake_at_s is not None
    assert len(numbers(again)) == 3
    assert desk.core.n_in_flight == 3
    assert all(desk.outcome(token) is None for token in (100, 101, 102))


def test_pauses_grow_until_a_read_is_answered() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))
    pauses = []

    for answers in (False,) * 8 + (True,):
        if answers:
            desk.tell(S0, rows(-number, (FULL_RING,), 1, at=70))
            (number,) = numbers(ask(desk, 101))
        full(desk, number)
        start_s = desk.now_s
        found: list[int] = []
        while not found:
            found = numbers(desk.pass_time(PAUSE_S / 4))
        (number,) = found
        pauses.append(int((desk.now_s - start_s) / PAUSE_S))

    assert pauses == [1, 2, 4, 8, 16, 32, 50, 50, 1]


def test_what_open_reads_weigh_is_bounded_and_the_rest_waits() -> None:
    one = HEADER_BYTES + len(encode_parameters(SNAPSHOT.shape, SNAPSHOT.parameters))
    desk = Desk(ClientLimits(snapshot_bytes=2 * one))
    first = numbers(ask(desk, 100, 101, 102))

    second = numbers(refuse(desk, first[0], is_final=True))

    assert len(first) == 2
    assert len(second) == 1
    assert desk.core.n_in_flight == 2


def test_a_read_that_weighs_more_than_the_bound_is_sent_alone() -> None:
    desk = Desk(ClientLimits(snapshot_bytes=1))

    first = numbers(ask(desk, 100, 101))
    second = numbers(desk.tell(S0, rows(-first[0], (FULL_RING,), 1)))

    assert (len(first), len(second)) == (1, 1)


def test_a_final_refusal_ends_it() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))

    refuse(desk, number, is_final=True)

    error = desk.outcome(100)
    assert isinstance(error, RefusedError)
    assert error.applied == "no"
    assert desk.core.n_in_flight == 0


def test_a_schema_that_changed_asks_to_prepare_again() -> None:
    desk = Desk()
    (number,) = numbers(ask(desk, 100))

    desk.tell(S0, Results(S0, ME, 5, failed=(Failed(-number, 5, (LOW,), "schema", (), "changed"),)))

    assert isinstance(desk.outcome(100), SchemaChanged)


@pytest.mark.parametrize("lost", [ROUTER, S0])
def test_a_session_that_ends_may_have_carried_something(lost: ProcessId) -> None:
    desk = Desk()
    (first,) = numbers(ask(desk, 100))

    desk.core.on_disconnected(lost, desk.now_s)

    (second,) = numbers(desk.flush())
    assert second != first


def test_reads_move_to_a_new_leader() -> None:
    desk = Desk()
    (first,) = numbers(ask(desk, 100))

    desk.multicast.lead = None
    assert not asked(desk.flush())
    desk.multicast.lead = OTHER_ROUTER

    (message,) = sent(desk.flush(), Inject, to=OTHER_ROUTER)
    assert message.reads.first != first


def test_an_attempt_that_takes_too_long_is_made_again_with_more_patience() -> None:
    desk = connected(ROUTER)
    ask(desk, 100)

    assert not asked(desk.pass_time(PATIENCE_S * 0.99))
    assert len(numbers(desk.pass_time(PATIENCE_S * 0.02))) == 1
    assert not asked(desk.pass_time(PATIENCE_S * 1.5))
    assert len(numbers(desk.pass_time(PATIENCE_S * 0.6))) == 1


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_a_read_that_nobody_can_answer_is_not_asked_again_for_ever(how: str) -> None:
    desk = connected(ROUTER)
    output = ask(desk, 100)
    begin_s = desk.now_s

    while desk.outcome(100) is None:
        assert desk.now_s <= begin_s + 2 * LIFE_S
        desk.tell(ROUTER, Quorum(True))
        if how == "refused":
            refuse(desk, *numbers(output))
        output = desk.pass_time(RETRY_S * 20)

    assert isinstance(desk.outcome(100), ReadLostError)
    assert desk.now_s >= begin_s + LIFE_S
    assert desk.core.n_in_flight == 0
    assert not asked(desk.pass_time(1.0))


def test_the_core_wakes_for_what_is_due_and_not_for_what_nobody_can_take() -> None:
    desk = Desk()
    output = ask(desk, 100)
    assert output.wake_at_s == pytest.approx(desk.now_s + PATIENCE_S)

    desk.multicast.lead = None
    desk.now_s += 2 * PATIENCE_S
    output = desk.flush()

    assert output.wake_at_s is None or output.wake_at_s > desk.now_s


def test_a_read_carries_what_its_session_has_seen_and_written() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.tell(S0, wrote(2, FULL_RING, at=55))
    desk.stable(2)

    (message,) = asked(ask(desk, 100))

    assert (message.seen, message.written) == (55, 2)


def test_a_read_waits_until_its_sessions_writes_are_numbered() -> None:
    desk = Desk(ClientLimits(open_submissions=1, stall_s=10.0))
    desk.multicast.n_unstable = 1
    desk.core.request(7, add(1, 1))

    held = ask(desk, 100)
    desk.multicast.n_unstable = 0
    released = desk.flush()

    assert not asked(held)
    (message,) = asked(released)
    assert message.written == 2


def test_a_read_waits_for_no_write_that_its_session_submitted_later() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.core.request(100, SNAPSHOT)
    desk.core.request(8, add(2, 2))
    desk.core.request(101, SNAPSHOT)

    output = desk.flush()

    assert desk.numbers()[-1] == [3]
    assert [(len(message.reads), message.written) for message in asked(output)] == [(1, 2), (1, 3)]


def test_another_attempt_waits_for_no_later_write_either() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    (first,) = numbers(ask(desk, 100))
    desk.ask(add(2, 2), add(3, 3))

    refuse(desk, first)
    (message,) = asked(desk.pass_time(2 * RETRY_S))

    assert message.written == 2


def test_a_read_sees_a_write_before_it_that_was_numbered_with_later_ones() -> None:
    desk = Desk(ClientLimits(open_submissions=1, stall_s=10.0))
    desk.multicast.n_unstable = 1
    desk.core.request(7, add(1, 1))
    desk.core.request(100, SNAPSHOT)
    desk.core.request(8, add(2, 2))
    desk.core.request(9, add(3, 3))
    assert not asked(desk.flush())

    desk.multicast.n_unstable = 0
    (message,) = asked(desk.flush())

    assert desk.numbers()[-1] == [2, 3, 4]
    assert message.written == 2


def test_what_is_open_is_bounded_and_the_rest_waits() -> None:
    desk = Desk(ClientLimits(snapshot_reads=2))
    first = numbers(ask(desk, 100, 101, 102))

    second = numbers(desk.tell(S0, rows(-first[0], (FULL_RING,), 1)))

    assert len(first) == 2
    assert len(second) == 1
    assert desk.core.n_in_flight == 2


def test_an_expelled_client_asks_nothing_more() -> None:
    desk = Desk()
    ask(desk, 100)

    desk.multicast.events.append(ExpelledEvent(500, 1))
    desk.flush()

    assert isinstance(desk.outcome(100), ClosedError)


# No majority of routers.


def connected(*routers: ProcessId, limits: ClientLimits | None = None) -> Desk:
    desk = Desk(limits or ClientLimits())
    for router in routers:
        desk.core.on_connected(router, desk.now_s)
    desk.flush()
    return desk


def fill(desk: Desk) -> None:
    """One numbered write, one numbered read, a write and a snapshot read that wait, a question."""
    desk.ask(add(1, 1), read_all())
    desk.multicast.n_unstable = 1 << 20
    desk.core.request(200, add(2, 2))
    desk.core.request(201, SNAPSHOT)
    desk.core.ask_config(202)
    desk.core.configure(203, b"change") if False else None
    desk.flush()


def outcomes(desk: Desk) -> dict[int, Any]:
    return {token: desk.outcome(token) for token in (2, 3, 200, 201, 202)}


def test_hope_ends_when_every_router_says_so() -> None:
    desk = connected(ROUTER, OTHER_ROUTER)
    fill(desk)

    desk.tell(ROUTER, Quorum(False))
    assert not any(outcomes(desk).values())
    desk.tell(OTHER_ROUTER, Quorum(False))

    told = outcomes(desk)
    assert all(isinstance(error, NoQuorumError) for error in told.values())
    assert {token: error.applied for token, error in told.items()} == {
        2: "unknown",
        3: "no",
        200: "no",
        201: "no",
        202: "no",
    }
    assert "majority" in str(told[2])
    assert "bring a majority of the routers back" in str(told[2])


def test_hope_ends_when_no_router_is_reached_for_long() -> None:
    desk = connected(ROUTER, limits=ClientLimits(unreachable_s=2.0))
    fill(desk)
    desk.core.on_disconnected(ROUTER, desk.now_s)
    desk.flush()

    desk.pass_time(1.9)
    assert not any(outcomes(desk).values())
    desk.pass_time(0.2)

    assert all(isinstance(error, NoQuorumError) for error in outcomes(desk).values())


def test_new_operations_are_refused_while_it_lasts_and_taken_again_afterwards() -> None:
    desk = connected(ROUTER)
    desk.tell(ROUTER, Quorum(False))

    for token, request in ((100, add(1, 1)), (101, SNAPSHOT)):
        desk.core.request(token, request)
    desk.core.configure(102, b"change")
    desk.flush()
    desk.tell(ROUTER, Quorum(True))
    output = ask(desk, 103)

    assert [desk.outcome(token).applied for token in (100, 101, 102)] == ["no"] * 3
    assert len(asked(output)) == 1
    assert desk.outcome(103) is None


def test_what_is_stable_already_is_waited_for() -> None:
    desk = connected(ROUTER)
    desk.ask(add(1, 1))
    desk.stable(2)

    desk.tell(ROUTER, Quorum(False))
    assert desk.outcome(2) is None
    desk.tell(S0, wrote(2, FULL_RING))

    assert not isinstance(desk.outcome(2), Exception)


def test_a_sequential_write_that_failed_so_does_not_hold_up_later_snapshot_reads() -> None:
    desk = connected(ROUTER)
    fill(desk)
    desk.tell(ROUTER, Quorum(False))
    desk.tell(ROUTER, Quorum(True))

    output = ask(desk, 300)

    assert len(asked(output)) == 1


def test_only_routers_speak_of_majorities() -> None:
    super_ = ProcessId("super", "u1", 1)
    desk = connected(ROUTER, super_)

    desk.tell(ROUTER, Quorum(False))

    desk.core.request(100, add(1, 1))
    desk.flush()
    assert isinstance(desk.outcome(100), NoQuorumError)


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(NoQuorumError("because", "no")))

    assert (error.reason, error.applied) == ("because", "no")


def story(seed: int, *, is_alone: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Let answers to many reads come in any order, whole and in parts, now and then twice or of the past."""
    if is_alone:
        monkeypatch.setattr(SnapshotReads, "on_rows", lambda _, rows: ([], list(answers_of(rows))))
    rng = random.Random(seed)
    desk = Desk()
    tokens = list(range(100, 112))
    for token in tokens:
        desk.core.request(token, replace(SNAPSHOT, ranges=reach(rng)))
    found = numbers(desk.flush())
    steps = []
    for _ in range(30):
        some = sorted(rng.sample(found, rng.randrange(1, 8)))
        if rng.random() < 0.2:
            rng.shuffle(some)
        scopes = tuple(tuple(sorted(rng.sample(ARCS, rng.randrange(1, 4)))) for _ in range(2))
        # Now and then of an attempt's other position, which is nobody's.
        places = np.array([70 + n + (rng.random() < 0.1) for n in some])
        which = np.array([rng.randrange(2) for _ in some])
        keys = Column(DataType.INT64, np.array(some, np.int64))
        told = Rows(-np.array(some), places, which, scopes, np.arange(len(some) + 1), ("k",), (keys,))
        desk.tell(S0, Results(S0, ME, 50, rows=(told,)))
        if rng.random() < 0.1:
            refuse(desk, rng.choice(found))
            found = sorted({*found, *numbers(desk.pass_time(RETRY_S))})
        ends = [desk.outcome(token) for token in tokens]
        steps.append([None if end is None else (end.position, keys_of(end)) for end in ends])
    stable = [desk.is_stable(token) for token in tokens]
    return steps, stable, desk.core.n_in_flight, desk.core._seen, desk.core._direct.snapshots.open_bytes


@pytest.mark.parametrize("seed", range(60))
def test_together_is_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = story(seed, is_alone=False, monkeypatch=monkeypatch)

    assert together == story(seed, is_alone=True, monkeypatch=monkeypatch)


def test_who_answers_slowly_is_not_asked_ever_more() -> None:
    """Answers take three times what an attempt is given at first, as on a host with too much to do."""
    desk = connected(ROUTER)
    n_attempts = 0
    for token in range(100, 130):
        output, due = ask(desk, token), list[tuple[float, int]]()
        while desk.outcome(token) is None:
            due += [(desk.now_s + 3 * PATIENCE_S, number) for number in numbers(output)]
            n_attempts += len(numbers(output))
            output = desk.pass_time(0.05 * PATIENCE_S)
            for _, number in [each for each in due if each[0] <= desk.now_s]:
                desk.tell(S0, rows(-number, (FULL_RING,), 1, at=70))
            due = [each for each in due if each[0] > desk.now_s]
        assert isinstance(desk.outcome(token), ReadOutcome)
        desk.tell(ROUTER, Quorum(True))

    assert n_attempts <= 30 + 3, "only of the first read there are several"


def test_patience_comes_back_when_answers_are_fast_again() -> None:
    patience = Patience(1.0, 32.0)
    for _ in range(20):
        patience.answered(10.0)
    assert 10.0 < patience.seconds < 20.0
    patience.missed(15.0)
    assert patience.seconds == 30.0
    patience.missed(30.0)
    assert patience.seconds == 32.0, "never more"

    for _ in range(40):
        patience.answered(0.01)
    assert patience.seconds == 1.0, "never less"
