"""A client's basic reads: to the owners directly, whole, again until answered, never behind its session."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crescando.client.base import ReadOutcome, SchemaChanged, WriteOutcome
from crescando.engine.base import Failed, Results, Rows
from crescando.engine.statement import Column
from crescando.errors import (
    ClosedError,
    CountUnknownError,
    NoQuorumError,
    ReadCancelledError,
    ReadLostError,
    RefusedError,
)
from crescando.process import Output
from crescando.roles.layout import ASK_S
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import BasicRefused, Forget, Inquire, Inquired, ReadBasic
from crescando.roles.snapshot import LIFE_S, PATIENCE_S
from crescando.roles.standing import AVOID_S, AVOIDED, FORGET_S, GOOD, SLOW, Standings
from crescando.routing.base import ExpelledEvent
from crescando.routing.batch import Message
from crescando.routing.ecast.messages import ConfigRequest, ConfigState, Inject, Quorum, ReadRefused
from crescando.routing.rubberband import CreateTable, Rubberband, Suspect, encode_message
from crescando.schema import DataType
from crescando.testing.workload import SCHEMA
from crescando.types import KeyRange, MessageKind, ProcessId
from tests.roles import test_client
from tests.roles.stage import sent
from tests.roles.test_client import ME, ROUTER, S0, S1, keys_of, wrote
from tests.roles.test_storage import WORK, add, read_all
from tests.routing.worlds import storage, super_

S2, S3 = storage(2), storage(3)
ALL = (S0, S1, S2, S3)
CREATE = encode_message(CreateTable(SCHEMA))


def layout(n: int = 4, replication: int = 2, *, has_table: bool = True, clients: Any = (ME,)) -> Rubberband:
    config = Rubberband.genesis(
        storages=[storage(i) for i in range(n)],
        replication=replication,
        supers=[super_(0)],
        clients=clients,
    )
    create = Message(super_(0), 1, MessageKind.CONFIG, -1, (), 0, CREATE)
    return config.apply(create) if has_table else config


BASIC = replace(read_all(), isolation="basic")


def by_key(key: int) -> Any:
    return replace(WORK._where("read_by_key", (key,)), isolation="basic")


class Desk(test_client.Desk):
    """A client that has been told of a layout."""

    def __init__(
        self, limits: ClientLimits = test_client.LIMITS, *, config: Rubberband | None = None, n: int = 4
    ) -> None:
        super().__init__(limits, connected=[storage(i) for i in range(n)])
        self.core.on_connected(ROUTER, 0.0)
        self.config = config or layout(n)
        self.tell_layout(5)

    def tell_layout(self, at: int, config: Rubberband | None = None) -> Output:
        return self.tell(ROUTER, ConfigState(at, (config or self.config).encode()))


def asked(output: Output) -> dict[ProcessId, ReadBasic]:
    found: dict[ProcessId, ReadBasic] = {}
    for peer, message in output.send:
        if isinstance(message, ReadBasic):
            assert peer not in found, "one message a storage process"
            found[peer] = message
    return found


def ask(desk: Desk, *tokens: int, request: Any = BASIC) -> Output:
    for token in tokens:
        desk.core.request(token, request)
    return desk.flush()


def numbers(output: Output) -> set[int]:
    return {n for message in asked(output).values() for n in message.reads.number.tolist()}


def answer(process: ProcessId, message: ReadBasic, *, at: int, key: int = 0) -> Results:
    """Give what a storage process answers: one row, its key, for each read."""
    n = len(message.reads)
    rows = Rows(
        -message.reads.number,
        np.full(n, at),
        message.reads.scope,
        message.reads.scopes,
        np.arange(n + 1),
        ("k",),
        (Column(DataType.INT64, np.full(n, key, np.int64)),),
    )
    return Results(process, ME, at, rows=(rows,))


def answer_all(desk: Desk, output: Output, *, at: int = 50, step: int = 0) -> None:
    for place, (process, message) in enumerate(asked(output).items()):
        desk.tell(process, answer(process, message, at=at + step * place, key=place))


def test_reads_that_come_together_are_one_message_to_each_owner() -> None:
    desk = Desk()

    output = ask(desk, *range(100, 400))

    sizes = [len(message.reads) for message in asked(output).values()]
    assert 2 <= len(sizes) <= 4
    assert numbers(output) == set(range(1, 301))
    assert not sent(output, Inject)
    assert desk.numbers() == [[1]], "nothing was ordered but the join"
    assert min(sizes) > 50, "load is spread"


def test_the_scopes_of_a_read_cover_what_it_asks_for_and_are_owned_by_whom_they_are_sent_to() -> None:
    desk = Desk()

    output = ask(desk, 100)

    pieces: list[KeyRange] = []
    for process, message in asked(output).items():
        (scope,) = message.reads.scopes
        pieces += scope
        owned = desk.config.owned_arcs(process)
        assert all(any(arc.low <= low and high <= owned[-1].high for arc in owned) for low, high in scope)
    pieces.sort()
    assert (pieces[0].low, pieces[-1].high) == (0, (1 << 64) - 1)
    assert all(a.high + 1 == b.low for a, b in itertools.pairwise(pieces))


def test_an_answer_states_the_lowest_and_the_highest_position_of_its_parts() -> None:
    desk = Desk()

    answer_all(desk, ask(desk, 100), at=70, step=3)

    outcome = desk.outcome(100)
    assert isinstance(outcome, ReadOutcome)
    assert (outcome.position, outcome.latest) == (70, 73)
    assert sorted(place for _, place in outcome.places) == [70, 73]
    assert keys_of(outcome) == [0, 1]
    assert desk.core.n_in_flight == 0
    assert all(message.seen == 73 for message in asked(ask(desk, 101)).values())


def test_parts_of_one_position_are_one_answer_of_it() -> None:
    desk = Desk()

    answer_all(desk, ask(desk, 100), at=70)

    assert desk.outcome(100).places == ()
    assert desk.outcome(100).latest == 70


def test_every_owner_is_told_what_the_session_has_seen_by_any_kind_of_operation() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.tell(S0, wrote(2, *add(1, 1).ranges, at=66))
    desk.stable(2)
    assert isinstance(desk.outcome(2), WriteOutcome)

    output = ask(desk, 100)

    assert {message.seen for message in asked(output).values()} == {66}
    answer_all(desk, output, at=80)
    snapshot = ask(desk, 101, request=replace(BASIC, isolation="snapshot"))
    assert [message.seen for message in sent(snapshot, Inject)] == [80]


def test_a_read_waits_for_the_outcomes_of_its_session_s_earlier_writes_and_for_no_later_one() -> None:
    desk = Desk()
    desk.core.request(2, add(1, 1))
    desk.core.request(100, BASIC)
    desk.core.request(3, add(2, 2))
    output = desk.flush()
    assert not asked(output)

    desk.stable(3)
    output = desk.tell(S0, wrote(2, *add(1, 1).ranges, at=66))

    assert {message.seen for message in asked(output).values()} == {66}
    assert desk.outcome(3) is None


def test_a_read_waits_for_a_write_that_has_no_number_yet() -> None:
    desk = Desk(ClientLimits(open_submissions=1, stall_s=10.0))
    desk.multicast.n_unstable = 1
    desk.core.request(2, add(1, 1))
    assert not asked(ask(desk, 100))

    desk.multicast.n_unstable = 0
    assert not asked(desk.flush())
    desk.stable(2)

    assert asked(desk.tell(S0, wrote(2, *add(1, 1).ranges, at=66)))


def test_a_write_of_which_nobody_can_tell_is_behind_whatever_the_leader_has_reached() -> None:
    desk = Desk(ClientLimits(inquire_s=0.1, answer_s=0.1))
    desk.ask(add(1, 1))
    desk.stable(2)
    for _ in range(20):
        for question in sent(desk.pass_time(0.2), Inquire, to=S0):
            for process in ALL:
                desk.tell(process, Inquired(question.inquiry, (), ()))
        if desk.outcome(2) is not None:
            break
        desk.tell_layout(6)
    assert isinstance(desk.outcome(2), CountUnknownError)

    output = ask(desk, 100)
    assert not asked(output)
    assert sent(output, ConfigRequest, to=ROUTER)
    output = desk.tell_layout(99)

    assert {message.seen for message in asked(output).values()} == {99}


def test_without_a_layout_one_is_asked_for_and_a_client_that_is_no_member_of_it_waits() -> None:
    desk = Desk(config=layout(clients=()))
    output = ask(desk, 100)
    assert not asked(output)
    assert sent(output, ConfigRequest, to=ROUTER)

    assert not asked(desk.pass_time(ASK_S / 2))
    assert sent(desk.pass_time(ASK_S), ConfigRequest)

    assert asked(desk.tell_layout(9, layout()))


def test_an_older_layout_is_not_taken() -> None:
    desk = Desk()
    desk.tell_layout(3, layout(2))

    assert {message.laid for message in asked(ask(desk, 100)).values()} == {5}


# Attempts.


def refuse(desk: Desk, process: ProcessId, message: ReadBasic, **fields: Any) -> Output:
    refused = BasicRefused(tuple(message.reads.number.tolist()), "because", **fields)
    return desk.tell(process, refused)


def test_a_refusal_carries_the_layout_by_which_the_whole_read_is_asked_again() -> None:
    desk = Desk()
    first = asked(ask(desk, 100))
    (one, message), (other, late) = first.items()
    dead = next(process for process in ALL if process not in first)
    voted = Message(super_(0), 2, MessageKind.CONFIG, -1, (), 0, encode_message(Suspect(dead)))
    changed = desk.config.apply(voted)
    assert changed != desk.config

    again = asked(refuse(desk, one, message, position=77, layout=changed.encode()))

    assert {m.laid for m in again.values()} == {77}
    assert dead not in again
    assert not numbers_of(first) & numbers_of(again)
    desk.tell(other, answer(other, late, at=70, key=9))
    assert desk.outcome(100) is None
    for process, m in again.items():
        desk.tell(process, answer(process, m, at=80, key=1))
    assert set(keys_of(desk.outcome(100))) == {1}, "answers of two attempts never mix"


def numbers_of(messages: dict[ProcessId, ReadBasic]) -> set[int]:
    return {n for message in messages.values() for n in message.reads.number.tolist()}


def test_a_malformed_layout_is_not_taken_and_the_leader_is_asked() -> None:
    desk = Desk()
    (process, message), *_ = asked(ask(desk, 100)).items()

    output = refuse(desk, process, message, position=77, layout=b"nonsense")

    assert sent(output, ConfigRequest, to=ROUTER)
    assert {m.laid for m in asked(output).values()} == {5}


def point(desk: Desk) -> tuple[Any, set[ProcessId]]:
    """Give a read of one key, and who owns it."""
    request = by_key(3)
    return request, set(desk.config.live_owners(request.ranges[0]))


def test_a_busy_replica_is_avoided_while_another_one_is_there() -> None:
    desk = Desk()
    request, owners = point(desk)
    (first,) = asked(ask(desk, 100, request=request)).items()
    busy = first[0]

    again = asked(refuse(desk, *first, is_busy=True))

    (other,) = owners - {busy}
    assert set(again) == {other}
    others = [set(asked(ask(desk, token, request=request))) for token in range(200, 220)]
    assert others == [{other}] * 20
    desk.pass_time(AVOID_S)
    later = set().union(*(asked(ask(desk, token, request=request)) for token in range(300, 320)))
    assert busy in later, "and asked again after a while"


def test_the_last_replica_is_asked_though_it_is_busy_but_ever_more_rarely() -> None:
    desk = Desk(n=1, config=layout(1, 1))
    output, gaps = ask(desk, 100), []

    for _ in range(7):
        since_s = desk.now_s
        output = refuse(desk, S0, asked(output)[S0], is_busy=True)
        while not asked(output):
            output = desk.pass_time(0.005)
        gaps.append(desk.now_s - since_s)

    assert gaps[0] == 0.0
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 0.15


def test_a_silent_owner_is_given_up_and_the_other_one_asked() -> None:
    desk = Desk()
    request, owners = point(desk)
    (silent,) = asked(ask(desk, 100, request=request))

    assert not asked(desk.pass_time(0.99 * PATIENCE_S))
    again = desk.pass_time(0.02 * PATIENCE_S)

    assert set(asked(again)) == owners - {silent}
    answer_all(desk, again)
    assert isinstance(desk.outcome(100), ReadOutcome)


def test_only_who_owes_an_answer_is_taken_for_silent() -> None:
    desk = Desk()
    output = ask(desk, 100)
    (quick, message), (slow, _) = asked(output).items()
    desk.tell(quick, answer(quick, message, at=50))

    desk.pass_time(PATIENCE_S)

    standings = desk.core._direct.basics._standings
    assert standings.rank(slow, desk.now_s) == AVOIDED
    assert standings.rank(quick, desk.now_s) == GOOD


def test_a_lost_session_makes_the_whole_read_be_asked_again_of_others() -> None:
    desk = Desk()
    request, owners = point(desk)
    (gone,) = asked(ask(desk, 100, request=request))

    desk.core.on_disconnected(gone, desk.now_s)
    output = desk.flush()

    assert set(asked(output)) == owners - {gone}


def test_a_lost_session_disturbs_no_read_that_it_owes_nothing() -> None:
    desk = Desk()
    output = ask(desk, 100)
    uninvolved = next(process for process in ALL if process not in asked(output))

    desk.core.on_disconnected(uninvolved, desk.now_s)
    assert not asked(desk.flush())

    answer_all(desk, output)
    assert isinstance(desk.outcome(100), ReadOutcome)


def test_a_range_without_any_reachable_owner_is_waited_for() -> None:
    desk = Desk()
    request, owners = point(desk)
    for process in owners:
        desk.core.on_disconnected(process, desk.now_s)
    assert not asked(ask(desk, 100, request=request))

    desk.core.on_connected(min(owners), desk.now_s)
    output = desk.pass_time(0.5)

    assert set(asked(output)) == {min(owners)}


def test_an_answer_withheld_for_want_of_a_lease_is_asked_for_again() -> None:
    desk = Desk()
    (process, message), *_ = asked(ask(desk, 100)).items()

    output = desk.tell(process, ReadRefused(tuple(message.reads.number.tolist()), "no lease"))

    assert asked(output)
    assert process not in asked(output)


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_a_read_that_nobody_can_answer_is_not_asked_again_for_ever(how: str) -> None:
    desk = Desk()
    output = ask(desk, 100)
    begin_s = desk.now_s

    while desk.outcome(100) is None:
        assert desk.now_s <= begin_s + 2 * LIFE_S
        desk.tell(ROUTER, Quorum(True))
        if how == "refused":
            for process, message in asked(output).items():
                refuse(desk, process, message, is_busy=True)
        output = desk.pass_time(0.5)

    assert isinstance(desk.outcome(100), ReadLostError)
    assert desk.core.n_in_flight == 0
    assert not asked(desk.pass_time(1.0))


def test_what_the_layout_refuses_is_final_only_when_it_is_no_old_layout() -> None:
    desk = Desk(config=layout(has_table=False))

    output = ask(desk, 100)
    assert desk.outcome(100) is None
    assert sent(output, ConfigRequest)
    desk.tell_layout(9)
    desk.pass_time(0.5)

    assert isinstance(desk.outcome(100), RefusedError)
    assert desk.outcome(100).applied == "no"

    ask(desk, 101)
    desk.tell_layout(12, layout())
    assert asked(desk.pass_time(0.5))


def test_a_schema_that_changed_asks_to_prepare_again() -> None:
    desk = Desk()
    (process, message), *_ = asked(ask(desk, 100)).items()
    number = int(message.reads.number[0])
    failed = Failed(-number, 5, message.reads.scopes[0], "schema", (), "changed")

    desk.tell(process, Results(process, ME, 5, failed=(failed,)))

    assert isinstance(desk.outcome(100), SchemaChanged)


def test_a_cancelled_read_ends_wherever_it_is() -> None:
    desk = Desk()
    ask(desk, 100)
    desk.core.cancel([100])
    output = desk.flush()
    assert isinstance(desk.outcome(100), ReadCancelledError)
    assert {n for message in sent(output, Forget) for n in message.numbers} == {-1}

    desk.core.request(2, add(1, 1))
    ask(desk, 101)
    desk.core.cancel([101])
    desk.flush()
    assert isinstance(desk.outcome(101), ReadCancelledError)
    assert desk.core.n_in_flight == 1


def test_what_is_open_is_bounded_and_the_rest_waits() -> None:
    desk = Desk(ClientLimits(basic_reads=100, batch_operations=50))

    for token in range(100, 400):
        desk.core.request(token, BASIC)
    sent_reads = {
        n
        for _, message in desk.flush().send
        if isinstance(message, ReadBasic)
        for n in message.reads.number.tolist()
    }

    assert len(sent_reads) == 100
    assert desk.core.n_in_flight == 300


def test_an_expelled_client_asks_nothing_more() -> None:
    desk = Desk()
    ask(desk, 100)
    desk.multicast.events.append(ExpelledEvent(500, 1))
    desk.flush()

    output = ask(desk, 101)

    assert isinstance(desk.outcome(100), ClosedError)
    assert isinstance(desk.outcome(101), ClosedError)
    assert not asked(output)


# No majority of routers.


def test_without_a_majority_reads_go_on_as_long_as_storage_processes_answer() -> None:
    desk = Desk()
    desk.tell(ROUTER, Quorum(False))

    output = ask(desk, 100)
    answer_all(desk, output)
    assert isinstance(desk.outcome(100), ReadOutcome)

    output = ask(desk, 101)
    for process, message in asked(output).items():
        refuse(desk, process, message, is_busy=True)
    error = desk.outcome(101)
    assert isinstance(error, NoQuorumError)
    assert error.applied == "no"
    assert desk.core.n_in_flight == 0


def test_without_a_majority_and_a_layout_nobody_waits() -> None:
    desk = Desk(config=layout(clients=()))
    ask(desk, 100)

    desk.tell(ROUTER, Quorum(False))
    ask(desk, 101)

    assert all(isinstance(desk.outcome(token), NoQuorumError) for token in (100, 101))


def test_without_a_majority_a_silent_owner_ends_it() -> None:
    desk = Desk()
    ask(desk, 100)
    desk.tell(ROUTER, Quorum(False))
    assert desk.outcome(100) is None

    desk.pass_time(PATIENCE_S)

    assert isinstance(desk.outcome(100), NoQuorumError)


def test_other_reads_and_writes_fail_at_once_beside_basic_ones() -> None:
    desk = Desk()
    desk.tell(ROUTER, Quorum(False))

    desk.core.request_all([(100, BASIC), (101, add(1, 1)), (102, replace(BASIC, isolation="snapshot"))])
    output = desk.flush()

    assert asked(output)
    assert desk.outcome(100) is None
    assert all(isinstance(desk.outcome(token), NoQuorumError) for token in (101, 102))


# Standing.


def test_who_takes_much_longer_than_the_fastest_is_slow_until_nobody_asks_it_any_more() -> None:
    standings = Standings()
    for _ in range(20):
        standings.answered(S0, 0.01, 5.0)
        standings.answered(S1, 0.2, 5.0)

    assert standings.rank(S0, 5.1) == GOOD
    assert standings.rank(S1, 5.1) == SLOW
    assert standings.rank(S1, 5.0 + FORGET_S) == GOOD
    assert standings.rank(S2, 5.1) == GOOD


def test_when_all_are_slow_none_is() -> None:
    standings = Standings()
    for process in ALL:
        standings.answered(process, 3.0, 5.0)

    assert {standings.rank(process, 5.1) for process in ALL} == {GOOD}


def test_an_answer_ends_the_avoiding() -> None:
    standings = Standings()
    for _ in range(5):
        standings.avoid(S0, 5.0)
    assert standings.rank(S0, 5.0 + 0.9 * AVOID_S) == AVOIDED
    assert standings.rank(S0, 5.0 + AVOID_S) == GOOD, "what was refused together counts once"
    standings.avoid(S0, 6.0)

    standings.answered(S0, 0.001, 6.01)

    assert standings.rank(S0, 6.02) == GOOD


def test_slow_replicas_are_avoided_while_another_is_there() -> None:
    desk = Desk()
    request, owners = point(desk)
    slow, quick = sorted(owners)
    for token in range(100, 140):
        output = ask(desk, token, request=request)
        ((process, message),) = asked(output).items()
        desk.now_s += 0.2 if process == slow else 0.001
        desk.tell(process, answer(process, message, at=50))

    chosen = [next(iter(asked(ask(desk, token, request=request)))) for token in range(200, 220)]

    assert chosen == [quick] * 20


def test_who_answers_slowly_is_not_asked_ever_more() -> None:
    """Answers take three times what an attempt is given at first, as on a host with too much to do."""
    desk = Desk()
    n_attempts = 0
    for token in range(100, 130):
        output = ask(desk, token, request=by_key(token))
        due: list[tuple[float, ProcessId, ReadBasic]] = []
        while desk.outcome(token) is None:
            due += [(desk.now_s + 3 * PATIENCE_S, *each) for each in asked(output).items()]
            n_attempts += len(asked(output))
            output = desk.pass_time(0.05 * PATIENCE_S)
            for _, process, message in [each for each in due if each[0] <= desk.now_s]:
                desk.tell(process, answer(process, message, at=50))
            due = [each for each in due if each[0] > desk.now_s]
        assert isinstance(desk.outcome(token), ReadOutcome)

    assert n_attempts <= 30 + 3, "only of the first read there are several"
