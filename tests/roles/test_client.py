"""The client role: packing, coverage, verdicts, inquiries and resubmission (K16, K17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crescando.client.base import ReadOutcome, Request, SchemaChanged, WriteOutcome
from crescando.consensus.base import Ballot
from crescando.engine.base import Failed, Results, Rows
from crescando.engine.statement import Column, decode_call, decode_shapes
from crescando.engine.written import Count, Written
from crescando.errors import (
    ClosedError,
    CountUnknownError,
    LostError,
    ReadFailedError,
    ReadLostError,
    RefusedError,
)
from crescando.process import Output
from crescando.roles.client import Client
from crescando.roles.completion import Completion, one_by_one
from crescando.roles.inquiry import ASKED_MAX, PROMISED
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import Answered, Attach, Inquire, Inquired, Ping, Pong, Queued, ReadReplica
from crescando.routing.base import ExpelledEvent, NotStable, StableEvent
from crescando.routing.ecast.messages import ConfigRequest, ConfigState, Welcome
from crescando.routing.rubberband import Rubberband
from crescando.schema import DataType
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId, Scope
from tests.roles.stage import ScriptedMulticast, sent
from tests.roles.test_storage import add, insert, read_all
from tests.routing.worlds import storage, super_

ME, ROUTER = ProcessId("client", "me", 1), ProcessId("router", "r1", 1)
S0, S1, LATER = storage(0), storage(1), storage(2)
U1, U2 = super_(1), super_(2)
LOW, HIGH = KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX)
LIMITS = ClientLimits(inquire_s=0.5)


class Desk:
    """A client, its clock, and what its user was told."""

    def __init__(self, limits: ClientLimits = LIMITS, *, connected: Sequence[ProcessId] = (S0, S1)) -> None:
        self.multicast = ScriptedMulticast(ROUTER)
        self.core = Client(
            ME,
            multicast=self.multicast,
            storages=(S0, S1),
            join=b"join",
            config_type=Rubberband,
            limits=limits,
        )
        self.now_s = 0.0
        self.told: dict[int, list[Completion]] = {}
        self.core.on_start(0.0)
        for peer in connected:
            self.core.on_connected(peer, 0.0)
        self.started = self.flush()
        self.stable(1)

    def flush(self) -> Output:
        output = self.core.flush(self.now_s)
        for completion in one_by_one(self.core.take_told()):
            self.told.setdefault(completion.token, []).append(completion)
        return output

    def ask(self, *requests: Request) -> Output:
        """Request operations; the token of each is the number of its message."""
        for offset, request in enumerate(requests):
            self.core.request(self.multicast.next_number + offset, request)
        return self.flush()

    def stable(self, upto: int, *exceptions: NotStable) -> Output:
        self.multicast.events.append(StableEvent(upto, exceptions))
        self.multicast.acknowledged = upto
        return self.flush()

    def tell(self, peer: ProcessId, message: Any) -> Output:
        self.core.on_message(peer, message, self.now_s)
        return self.flush()

    def pass_time(self, seconds: float) -> Output:
        self.now_s += seconds
        return self.flush()

    def outcome(self, token: int) -> Any:
        """Give what an operation ended with, None while it has not."""
        ends = [c for c in self.told.get(token, ()) if not c.is_stable]
        assert len(ends) <= 1, "an outcome is told once"
        return (ends[0].error or ends[0].outcome) if ends else None

    def is_stable(self, token: int) -> bool:
        told = [c for c in self.told.get(token, ()) if c.is_stable]
        assert len(told) <= 1, "stability is told once"
        return bool(told)

    def numbers(self) -> list[list[int]]:
        return [list(range(b.first, b.last + 1)) for b in self.multicast.submitted]


def rows(number: int, scope: Scope, *keys: int, at: int = 50) -> Results:
    keys_ = Column(DataType.INT64, np.array(keys, np.int64))
    one = np.array([number]), np.array([at]), np.array([0])
    answer = Rows(*one, (scope,), np.array([0, len(keys)]), ("k",), (keys_,))
    return Results(S0, ME, at, rows=(answer,))


def written(number: int, *ranges: KeyRange, at: int = 50, affected: int = 1) -> Written:
    return Written.of(number, at, tuple(Count(key_range, affected, 0) for key_range in ranges))


def wrote(number: int, *ranges: KeyRange, at: int = 50) -> Results:
    return Results(S0, ME, at, written=(written(number, *ranges, at=at),))


OWNERS = ConfigState(9, b"", (), (S0, S1))
"""What the router that leads says of the storage processes there are."""


def keys_of(outcome: ReadOutcome) -> list[int]:
    return sorted(int(k) for piece in outcome.pieces for k in piece.columns[0].values)


# Submitting.


def test_the_first_message_is_the_join() -> None:
    desk = Desk()

    assert desk.numbers() == [[1]]
    assert desk.multicast.submitted[0].message(0).kind is MessageKind.CONFIG
    assert desk.multicast.submitted[0].payload == b"join"


def test_the_operations_of_a_turn_share_a_submission_and_their_shapes() -> None:
    desk = Desk()

    desk.ask(add(1, 1), add(2, 2), read_all(), insert(3), add(3, 3))

    (batch,) = desk.multicast.submitted[1:]
    assert desk.numbers()[1:] == [[2, 3, 4, 5, 6]]
    assert len(decode_shapes(batch.shared)) == 3
    assert [decode_call(batch.payload_of(i)).shape for i in range(5)] == [0, 0, 1, 2, 0]
    assert [MessageKind(k).name for k in batch.kind] == ["WRITE", "WRITE", "READ", "WRITE", "WRITE"]
    assert batch.message(0).ranges == add(1, 1).ranges


def test_a_submission_holds_only_so_many_operations() -> None:
    desk = Desk(ClientLimits(batch_operations=2))

    desk.ask(*(add(n, 1) for n in range(5)))

    assert desk.numbers()[1:] == [[2, 3], [4, 5], [6]]


def test_a_submission_holds_only_so_many_bytes() -> None:
    desk = Desk(ClientLimits(batch_bytes=1))

    desk.ask(add(1, 1), add(2, 1))

    assert desk.numbers()[1:] == [[2], [3]]


def test_while_enough_is_on_its_way_operations_gather() -> None:
    desk = Desk()
    desk.multicast.n_unstable = desk.core.limits.open_submissions
    desk.ask(add(1, 1))
    desk.ask(add(2, 1))
    assert desk.numbers()[1:] == []
    assert desk.core.n_in_flight == 2

    desk.multicast.n_unstable -= 1
    desk.flush()

    assert desk.numbers()[1:] == [[2, 3]]


def test_a_configuration_message_goes_behind_everything_requested_before() -> None:
    desk = Desk()
    desk.multicast.n_unstable = 99
    desk.core.request(2, add(1, 1))

    desk.core.configure(77, b"create")
    desk.flush()

    assert desk.numbers()[1:] == [[2], [3]]
    desk.stable(3)
    assert desk.is_stable(77)


def test_a_refused_configuration_message_tells_its_reason() -> None:
    desk = Desk()
    desk.core.configure(77, b"create")
    desk.flush()

    desk.stable(2, NotStable(2, "refused", "the table exists"))

    assert isinstance(desk.outcome(77), RefusedError)
    assert "the table exists" in str(desk.outcome(77))


# Coverage.


def test_a_read_is_complete_when_scopes_cover_all_it_asked_for() -> None:
    desk = Desk()
    desk.ask(read_all())

    desk.tell(S0, rows(2, (LOW,), 1, 3))
    assert desk.outcome(2) is None
    desk.tell(S1, rows(2, (HIGH,), 2))

    assert keys_of(desk.outcome(2)) == [1, 2, 3]
    assert desk.outcome(2).position == 50
    assert desk.core.n_in_flight == 0


def test_an_answer_that_comes_twice_counts_once() -> None:
    desk = Desk()
    desk.ask(read_all())

    for _ in range(3):
        desk.tell(S0, rows(2, (LOW,), 1))
    assert desk.outcome(2) is None
    desk.tell(S1, rows(2, (HIGH,), 2))
    desk.tell(S1, rows(2, (HIGH,), 2))

    assert keys_of(desk.outcome(2)) == [1, 2]


def test_a_write_is_done_when_it_is_stable_and_every_range_is_reported() -> None:
    desk = Desk()
    desk.ask(insert(1), insert(2))
    ranges = insert(1).ranges, insert(2).ranges

    desk.tell(S0, wrote(2, *ranges[0]))
    assert desk.outcome(2) is None
    desk.stable(3)
    assert isinstance(desk.outcome(2), WriteOutcome)
    assert desk.is_stable(3)
    assert desk.outcome(3) is None
    desk.tell(S0, wrote(3, *ranges[1]))

    assert desk.outcome(3).counts[0].affected == 1


def test_a_range_reported_by_two_owners_is_counted_once() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    (point,) = add(1, 1).ranges
    desk.stable(2)

    desk.tell(S0, wrote(2, point))
    desk.tell(S1, wrote(2, point))

    assert len(desk.outcome(2).counts) == 1


def test_results_for_unknown_numbers_are_ignored() -> None:
    desk = Desk()

    desk.tell(S0, rows(99, (FULL_RING,), 1))
    desk.tell(S0, wrote(99, FULL_RING))
    desk.tell(S0, Results(S0, ME, 1, failed=(Failed(99, 1, (), "read", (), "x"),)))

    assert desk.told == {}


# Verdicts.


def test_a_refused_operation_changed_nothing() -> None:
    desk = Desk()
    desk.ask(add(1, 1))

    desk.stable(2, NotStable(2, "refused", "no owner is alive"))

    assert isinstance(desk.outcome(2), RefusedError)
    assert desk.outcome(2).applied == "no"
    assert not desk.is_stable(2)


def test_a_lost_write_is_unknown() -> None:
    desk = Desk()
    desk.ask(add(1, 1))

    desk.stable(2, NotStable(2, "lost", "every owner failed"))

    assert isinstance(desk.outcome(2), LostError)
    assert desk.outcome(2).applied == "unknown"


def test_a_lost_read_is_sent_again_whole() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.tell(S0, rows(2, (LOW,), 1))

    desk.stable(2, NotStable(2, "lost", "its server failed"))

    assert desk.numbers()[-1] == [3]
    assert desk.core.resubmitted == 1
    desk.tell(S1, rows(3, (HIGH,), 8, at=90))
    assert desk.outcome(2) is None
    desk.tell(S1, rows(3, (LOW,), 7, at=90))
    assert keys_of(desk.outcome(2)) == [7, 8]
    assert desk.outcome(2).position == 90


def test_a_lost_read_is_not_moved_behind_an_own_later_write() -> None:
    desk = Desk()
    desk.ask(read_all(), add(1, 1))

    desk.stable(3, NotStable(2, "lost", "its server failed"))

    assert isinstance(desk.outcome(2), ReadLostError)
    assert desk.outcome(2).applied == "no"
    assert desk.core.resubmitted == 0


def test_a_changed_schema_asks_to_prepare_again() -> None:
    desk = Desk()
    desk.ask(add(1, 1))

    desk.tell(S0, Results(S0, ME, 5, failed=(Failed(2, 5, (FULL_RING,), "schema", (), "column gone"),)))

    assert isinstance(desk.outcome(2), SchemaChanged)


def test_an_invalid_operation_is_refused() -> None:
    desk = Desk()
    desk.ask(add(1, 1))

    desk.tell(S0, Results(S0, ME, 5, failed=(Failed(2, 5, (FULL_RING,), "invalid", (), "malformed"),)))

    assert isinstance(desk.outcome(2), RefusedError)


def test_a_read_fails_with_its_smallest_erroneous_key_once_all_have_answered() -> None:
    desk = Desk()
    desk.ask(read_all())

    desk.tell(S0, Results(S0, ME, 5, failed=(Failed(2, 5, (LOW,), "read", (9,), "division by zero"),)))
    assert desk.outcome(2) is None
    desk.tell(S1, Results(S1, ME, 5, failed=(Failed(2, 5, (HIGH,), "read", (4,), "division by zero"),)))

    assert isinstance(desk.outcome(2), ReadFailedError)
    assert "(4,)" in str(desk.outcome(2))


# Asking the owners.


def test_a_stable_operation_without_an_outcome_is_asked_about_after_a_while() -> None:
    desk = Desk()
    desk.ask(add(1, 1), add(2, 1))
    desk.flush()
    desk.stable(3)
    desk.pass_time(LIMITS.inquire_s - 0.01)
    assert not sent(desk.flush(), Inquire)

    output = desk.pass_time(0.02)

    assert [(peer, m.numbers) for peer, m in output.send if isinstance(m, Inquire)] == [
        (S0, (2, 3)),
        (S1, (2, 3)),
    ]


def test_an_unstable_operation_is_not_asked_about() -> None:
    desk = Desk()
    desk.ask(add(1, 1))

    assert not sent(desk.pass_time(100.0), Inquire)


def test_a_lost_session_makes_it_ask_at_once() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)

    desk.core.on_disconnected(S0, desk.now_s)

    assert [peer for peer, m in desk.flush().send if isinstance(m, Inquire)] == [S1]


def test_another_owner_tells_what_a_write_did() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.core.on_disconnected(S0, desk.now_s)
    (inquire,) = sent(desk.flush(), Inquire)

    desk.tell(S1, Inquired(inquire.inquiry, (), (written(2, *add(1, 1).ranges, at=44),)))

    assert isinstance(desk.outcome(2), WriteOutcome)
    assert desk.outcome(2).position == 44


def test_a_queued_write_is_waited_for() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.core.on_disconnected(S0, desk.now_s)
    (inquire,) = sent(desk.flush(), Inquire)

    desk.tell(S1, Inquired(inquire.inquiry, (Queued(2, (), True),), ()))
    assert desk.outcome(2) is None
    desk.tell(S1, wrote(2, *add(1, 1).ranges))

    assert isinstance(desk.outcome(2), WriteOutcome)


def test_a_read_that_nobody_holds_is_sent_again() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    desk.tell(S1, rows(2, (HIGH,), 2))
    desk.core.on_disconnected(S0, desk.now_s)
    (inquire,) = sent(desk.flush(), Inquire)

    desk.tell(S1, Inquired(inquire.inquiry, (), ()))

    assert desk.numbers()[-1] == [3]
    desk.tell(S1, rows(3, (FULL_RING,), 1, 2))
    assert keys_of(desk.outcome(2)) == [1, 2]


def test_a_read_that_is_queued_for_what_is_missing_is_waited_for() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    desk.tell(S1, rows(2, (HIGH,), 2))
    desk.pass_time(1.0)

    desk.tell(S0, Inquired(1, (Queued(2, (LOW,), False),), ()))
    desk.tell(S1, Inquired(1, (), ()))

    assert desk.core.resubmitted == 0
    desk.tell(S0, rows(2, (LOW,), 1))
    assert keys_of(desk.outcome(2)) == [1, 2]


def test_a_queued_read_that_covers_too_little_is_sent_again() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    desk.pass_time(1.0)

    desk.tell(S0, Inquired(1, (Queued(2, (LOW,), False),), ()))
    desk.tell(S1, Inquired(1, (), ()))
    desk.tell(ROUTER, OWNERS)

    assert desk.core.resubmitted == 1


def test_an_owner_that_goes_away_is_not_waited_for() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    desk.pass_time(1.0)
    desk.tell(S1, Inquired(1, (), ()))
    assert desk.core.resubmitted == 0

    desk.core.on_disconnected(S0, desk.now_s)
    desk.flush()

    assert desk.core.resubmitted == 1


def test_the_rest_of_an_old_read_is_ignored_when_it_arrives_late() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    desk.pass_time(1.0)
    for peer in (S0, S1):
        desk.tell(peer, Inquired(1, (), ()))
    desk.tell(ROUTER, OWNERS)
    assert desk.core.resubmitted == 1

    desk.tell(S0, rows(2, (FULL_RING,), 666))
    assert desk.outcome(2) is None
    desk.tell(S0, rows(3, (FULL_RING,), 5))

    assert keys_of(desk.outcome(2)) == [5]


def test_a_new_session_makes_it_ask_at_once() -> None:
    desk = Desk(connected=())
    desk.ask(add(1, 1))
    desk.stable(2)

    assert not sent(desk.pass_time(1.0), Inquire)
    desk.core.on_connected(S1, desk.now_s)
    output = desk.flush()

    assert sent(output, Attach, to=S1)
    assert sent(output, Inquire, to=S1)


# What nobody can tell any more.


def wake(desk: Desk, until_s: float) -> list[tuple[ProcessId, Inquire]]:
    """Let a client's own timers run; gives what it asks the owners."""
    asked: list[tuple[ProcessId, Inquire]] = []
    for _ in range(1000):
        output = desk.flush()
        asked += [(peer, m) for peer, m in output.send if isinstance(m, Inquire)]
        if output.wake_at_s is None or output.wake_at_s > until_s:
            desk.now_s = until_s
            return asked
        desk.now_s = max(desk.now_s, output.wake_at_s)
    raise AssertionError(f"no end of turns at {desk.now_s} s")


def test_an_owner_that_came_later_is_asked_before_anything_is_given_up() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    output = desk.pass_time(1.0)
    (inquire,) = sent(output, Inquire, to=S0)
    assert sent(output, ConfigRequest, to=ROUTER) == [ConfigRequest(wants_config=False)]

    output = desk.tell(ROUTER, ConfigState(9, b"", (), (S0, S1, LATER)))
    assert output.connect == [LATER]
    for peer in (S0, S1):
        desk.tell(peer, Inquired(inquire.inquiry, (), ()))
    assert desk.outcome(2) is None

    desk.core.on_connected(LATER, desk.now_s)
    output = desk.flush()
    (inquire,) = sent(output, Inquire, to=LATER)
    desk.tell(LATER, Inquired(inquire.inquiry, (), (written(2, FULL_RING),)))

    assert isinstance(desk.outcome(2), WriteOutcome)


def test_an_owner_that_is_none_any_more_is_not_waited_for() -> None:
    desk = Desk(connected=(S0,))
    desk.ask(add(1, 1))
    desk.stable(2)
    (inquire,) = sent(desk.pass_time(1.0), Inquire, to=S0)
    # S1 was not asked, so that this question proves nothing; the next one does.
    desk.tell(S0, Inquired(inquire.inquiry, (), ()))
    desk.tell(ROUTER, OWNERS)
    assert desk.outcome(2) is None
    desk.tell(U1, Ping(desk.now_s, (U1,), (S0,)))

    (inquire,) = sent(desk.pass_time(1.0), Inquire, to=S0)
    desk.tell(S0, Inquired(inquire.inquiry, (), ()))
    desk.tell(ROUTER, ConfigState(9, b"", (), (S0,)))

    assert isinstance(desk.outcome(2), CountUnknownError)


def test_a_write_that_no_owner_has_a_record_of_is_durable_and_its_count_unknown() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    (inquire,) = sent(desk.pass_time(1.0), Inquire, to=S0)

    desk.tell(S0, Inquired(inquire.inquiry, (), ()))
    assert desk.outcome(2) is None
    desk.tell(S1, Inquired(inquire.inquiry, (), ()))
    assert desk.outcome(2) is None, "there may be owners that it does not know"
    desk.tell(ROUTER, OWNERS)

    error = desk.outcome(2)
    assert isinstance(error, CountUnknownError)
    assert error.applied == "yes"
    assert "durable; how many rows it affected is not known any more" in str(error)
    assert desk.is_stable(2)
    assert desk.core.n_in_flight == 0


def test_a_write_whose_other_owner_cannot_be_reached_is_asked_about_for_a_while() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.core.on_disconnected(S0, desk.now_s)
    begin_s = desk.now_s

    while desk.outcome(2) is None:
        for _, inquire in wake(desk, desk.now_s + 0.1):
            desk.tell(S1, Inquired(inquire.inquiry, (), ()))
        assert desk.now_s < begin_s + 2 * LIMITS.give_up_s

    assert isinstance(desk.outcome(2), CountUnknownError)
    assert desk.now_s >= begin_s + LIMITS.give_up_s


def test_an_owner_that_comes_back_before_tells_what_the_write_did() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.core.on_disconnected(S0, desk.now_s)
    for _, inquire in wake(desk, LIMITS.give_up_s - 1.0):
        desk.tell(S1, Inquired(inquire.inquiry, (), ()))

    desk.core.on_connected(S0, desk.now_s)
    question = sent(desk.flush(), Inquire, to=S0)[-1]
    desk.tell(S0, Inquired(question.inquiry, (), (written(2, *add(1, 1).ranges),)))

    assert isinstance(desk.outcome(2), WriteOutcome)


def test_without_any_session_it_asks_nobody_and_yet_comes_to_an_end() -> None:
    desk = Desk(connected=())
    desk.ask(add(1, 1))
    desk.ask(read_all())
    desk.stable(3)

    assert wake(desk, LIMITS.alone_s - 1.0) == []
    assert desk.outcome(2) is None, "it may be cut off itself, and come back"
    assert wake(desk, LIMITS.alone_s + 5.0) == []

    assert isinstance(desk.outcome(2), CountUnknownError)
    assert isinstance(desk.outcome(3), ReadLostError)
    assert desk.flush().wake_at_s is None


def test_an_owner_that_keeps_silent_in_an_open_session_is_not_waited_for_without_end() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)

    for _ in range(200):
        for _, inquire in wake(desk, desk.now_s + 0.5):
            desk.tell(S1, Inquired(inquire.inquiry, (), ()))

    assert isinstance(desk.outcome(2), CountUnknownError)


def test_a_read_is_sent_again_although_one_owner_keeps_silent() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.stable(2)
    for _, inquire in wake(desk, 1.0):
        desk.tell(S1, Inquired(inquire.inquiry, (), ()))
    assert desk.core.resubmitted == 0

    wake(desk, 1.0 + LIMITS.answer_s)

    assert desk.core.resubmitted == 1


def test_what_an_owner_promises_is_waited_for_however_long_it_takes() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)

    for _ in range(200):
        for peer, inquire in wake(desk, desk.now_s + 0.5):
            queued = (Queued(2, (FULL_RING,), True),) if peer == S1 else ()
            desk.tell(peer, Inquired(inquire.inquiry, queued, ()))

    assert desk.now_s >= 100.0
    assert desk.outcome(2) is None


def test_an_owner_that_promised_is_not_asked_again_and_again_unless_its_session_ends() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)

    n_asked = 0
    for _ in range(40):
        for peer, inquire in wake(desk, desk.now_s + LIMITS.inquire_s):
            n_asked += peer == S1
            desk.tell(peer, Inquired(inquire.inquiry, (Queued(2, (FULL_RING,), True),), ()))
    assert n_asked == 40 // (1 + PROMISED)

    desk.core.on_disconnected(S0, desk.now_s)
    assert sent(desk.flush(), Inquire, to=S1)


def test_of_thousands_that_are_slow_the_oldest_are_asked_about_until_something_is_lost() -> None:
    desk = Desk()
    n = 3 * ASKED_MAX
    desk.ask(*[add(1, 1)] * n)
    desk.stable(1 + n)

    def asked(until_s: float) -> tuple[list[int], Inquire]:
        found = [inquire for peer, inquire in wake(desk, until_s) if peer == S1]
        return [number for inquire in found for number in inquire.numbers], found[-1]

    numbers, inquire = asked(desk.now_s + LIMITS.inquire_s)
    assert numbers == list(range(2, 2 + ASKED_MAX))
    for owner in (S0, S1):
        desk.tell(owner, Inquired(inquire.inquiry, tuple(Queued(k, (FULL_RING,), True) for k in numbers), ()))
    numbers, inquire = asked(desk.now_s + LIMITS.inquire_s)
    assert numbers == list(range(2 + ASKED_MAX, 2 + 2 * ASKED_MAX))

    # Nobody answers: then all of those whose turn it is not yet are asked about at once.
    numbers, _ = asked(desk.now_s + LIMITS.answer_s + 2 * LIMITS.inquire_s)
    assert set(numbers) >= set(range(2 + 2 * ASKED_MAX, 2 + n))


def test_a_pause_of_its_own_is_not_time_spent_asking() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.stable(2)
    desk.core.on_disconnected(S0, desk.now_s)
    desk.flush()

    (inquire,) = sent(desk.pass_time(1000.0), Inquire, to=S1)
    desk.tell(S1, Inquired(inquire.inquiry, (), ()))
    assert desk.outcome(2) is None
    desk.core.on_connected(S0, desk.now_s)
    question = sent(desk.flush(), Inquire, to=S0)[-1]
    desk.tell(S0, Inquired(question.inquiry, (), (written(2, *add(1, 1).ranges),)))

    assert isinstance(desk.outcome(2), WriteOutcome)


def test_a_read_is_not_sent_again_for_ever() -> None:
    limits = ClientLimits(resubmissions=3)
    desk = Desk(limits)
    desk.ask(read_all())

    for number in range(2, 9):
        desk.stable(number, NotStable(number, "lost", "its server failed"))

    assert isinstance(desk.outcome(2), ReadLostError)
    assert desk.core.resubmitted == 3
    assert desk.core._resubmissions == {}


def test_owners_are_told_what_has_been_answered() -> None:
    desk = Desk()
    desk.ask(add(1, 1), add(2, 1))
    desk.stable(3)

    assert not sent(desk.tell(S0, wrote(2, *add(1, 1).ranges)), Answered)
    output = desk.tell(S0, wrote(3, *add(1, 1).ranges))

    assert {(peer, m.upto) for peer, m in output.send if isinstance(m, Answered)} == {(S0, 3), (S1, 3)}


# Expulsion.


def test_what_an_expelled_client_has_not_ordered_is_void() -> None:
    desk = Desk()
    desk.ask(add(1, 1), add(2, 1))
    desk.core.configure(77, b"create")
    desk.flush()
    desk.multicast.n_unstable = 99
    desk.core.request(88, add(3, 1))

    desk.multicast.events.append(ExpelledEvent(500, 2))
    desk.flush()

    assert desk.outcome(2) is None
    assert isinstance(desk.outcome(3), RefusedError)
    assert isinstance(desk.outcome(77), RefusedError)
    assert isinstance(desk.outcome(88), ClosedError)
    desk.stable(2)
    desk.tell(S0, wrote(2, *add(1, 1).ranges))
    assert isinstance(desk.outcome(2), WriteOutcome)


def test_an_expelled_client_takes_no_more() -> None:
    desk = Desk()
    desk.multicast.events.append(ExpelledEvent(500, 1))
    desk.flush()

    desk.core.request(5, add(1, 1))
    desk.core.configure(6, b"x")
    desk.flush()

    for token in (5, 6):
        assert isinstance(desk.outcome(token), ClosedError)
        assert "500" in str(desk.outcome(token))


def test_a_read_of_an_expelled_client_is_not_sent_again() -> None:
    desk = Desk()
    desk.ask(read_all())
    desk.multicast.events.append(ExpelledEvent(500, 2))
    desk.flush()

    desk.stable(2, NotStable(2, "lost", "its server failed"))

    assert isinstance(desk.outcome(2), ReadLostError)
    assert desk.core.n_in_flight == 0


def test_what_an_expelled_client_is_never_told_of_is_unknown() -> None:
    desk = Desk()
    desk.core.on_connected(ROUTER, 0.0)
    desk.ask(add(1, 1), read_all())
    desk.core.configure(77, b"create")
    desk.multicast.events.append(ExpelledEvent(500, 4))
    desk.flush()

    for _ in range(3):
        assert desk.outcome(2) is None
        desk.pass_time((LIMITS.verdict_s - 0.1) / 3)
        for storage_process in (S0, S1):
            desk.tell(storage_process, Pong(0.0))
    assert desk.outcome(2) is None
    desk.pass_time(0.2)

    assert [desk.outcome(token).applied for token in (2, 3, 77)] == ["unknown", "no", "unknown"]
    assert desk.flush().wake_at_s is None


def test_what_an_expelled_client_is_told_to_be_stable_is_asked_about() -> None:
    desk = Desk()
    desk.ask(add(1, 1))
    desk.multicast.events.append(ExpelledEvent(500, 2))
    desk.flush()
    desk.stable(2)

    (inquire,) = sent(desk.pass_time(1.0), Inquire, to=S0)
    desk.tell(S0, Inquired(inquire.inquiry, (), (written(2, *add(1, 1).ranges),)))

    assert isinstance(desk.outcome(2), WriteOutcome)


def test_a_client_that_the_routers_have_forgotten_takes_nothing_for_void() -> None:
    desk = Desk()
    desk.ask(add(1, 1), add(2, 1))
    desk.stable(2)

    desk.multicast.events.append(ExpelledEvent(500, 0))
    desk.flush()

    assert desk.outcome(3).applied == "unknown"
    assert desk.outcome(2) is None, "it is stable, and may be asked about"


def test_nor_does_a_client_that_was_never_told_of_anything() -> None:
    desk = Desk()
    desk.multicast.acknowledged = 0
    desk.ask(add(1, 1), read_all())
    desk.core.configure(77, b"create")
    desk.flush()

    desk.multicast.events.append(ExpelledEvent(500, 0))
    desk.flush()

    assert [desk.outcome(token).applied for token in (2, 3, 77)] == ["unknown", "no", "unknown"]


def test_an_expelled_client_asks_no_router_for_the_configuration() -> None:
    desk = Desk()
    desk.multicast.events.append(ExpelledEvent(500, 1))
    desk.flush()

    desk.core.ask_config(6)
    desk.flush()

    assert isinstance(desk.outcome(6), ClosedError)


# The rest.


def test_storages_are_attached_and_asked_for_again_when_lost() -> None:
    desk = Desk()
    assert set(desk.started.connect) == {S0, S1}
    assert [peer for peer, m in desk.started.send if isinstance(m, Attach)] == [S0, S1]

    desk.core.on_disconnected(S0, 0.0)
    desk.core.on_refused(S1, 0.0)
    assert desk.flush().connect == []

    assert set(desk.pass_time(LIMITS.inquire_s).connect) == {S0, S1}


def test_pings_are_answered() -> None:
    assert sent(Desk().tell(S0, Ping(4.0)), Pong) == [Pong(4.0)]


def test_sessions_are_kept_with_the_supers_that_pings_name() -> None:
    desk = Desk()

    assert desk.tell(U1, Ping(4.0, (U1, U2))).connect == [U1, U2]
    assert desk.tell(U1, Ping(4.5, (U1, U2))).connect == []
    desk.core.on_refused(U2, desk.now_s)
    assert desk.pass_time(LIMITS.inquire_s).connect == [U2]

    desk.tell(U1, Ping(5.0, (U1,)))
    desk.core.on_refused(U2, desk.now_s)
    assert desk.pass_time(LIMITS.inquire_s).connect == []


def test_sessions_are_kept_with_the_storages_that_any_super_names() -> None:
    desk = Desk()
    s2 = ProcessId("storage", "s2", 1)

    assert desk.tell(U1, Ping(4.0, (U1, U2), (S0, S1, s2))).connect == [U1, U2, s2]
    desk.core.on_connected(s2, desk.now_s)
    assert sent(desk.flush(), Attach, to=s2) == [Attach()]
    assert s2 in desk.core.reachable

    # Of two supers one may not know yet who has joined, or who is gone.
    assert desk.tell(U2, Ping(4.1, (U1, U2), (S0, S1))).connect == []
    desk.tell(U1, Ping(4.2, (U1, U2), (S0, s2)))
    desk.core.on_refused(S1, desk.now_s)
    assert desk.pass_time(LIMITS.inquire_s).connect == [S1]

    # Now both know; an old session of one that is gone disturbs nobody.
    desk.tell(U2, Ping(5.0, (U1, U2), (S0, s2)))
    desk.core.on_refused(S1, desk.now_s)
    assert desk.pass_time(LIMITS.inquire_s).connect == []
    desk.core.on_connected(S1, desk.now_s)
    desk.core.on_disconnected(S1, desk.now_s)
    assert S1 not in desk.core.reachable
    assert desk.pass_time(LIMITS.inquire_s).connect == []


def test_the_configuration_is_asked_of_the_leader_and_again_of_its_successor() -> None:
    desk = Desk()
    desk.core.ask_config(77)
    assert sent(desk.flush(), ConfigRequest, to=ROUTER)
    other = ProcessId("router", "r2", 1)
    desk.multicast.lead = other

    output = desk.tell(other, Welcome(Ballot(2, other), True, other, 0))
    assert sent(output, ConfigRequest, to=other)

    desk.tell(other, ConfigState(9, b"config"))
    assert desk.outcome(77) == ConfigState(9, b"config")


def test_a_replica_is_asked_directly_and_answers_under_a_negative_number() -> None:
    desk = Desk()
    desk.core.ask(77, S1, lambda number: ReadReplica(number, 0, LOW, (0,)))
    (request,) = sent(desk.flush(), ReadReplica, to=S1)

    desk.tell(S1, rows(-request.request, (LOW,), 3, at=12))

    assert keys_of(desk.outcome(77)) == [3]
    assert desk.outcome(77).position == 12


@pytest.mark.parametrize("how", ["no session", "goes away", "fails"])
def test_a_replica_that_cannot_answer_is_an_error(how: str) -> None:
    desk = Desk(connected=() if how == "no session" else (S0, S1))
    desk.core.ask(77, S1, lambda number: ReadReplica(number, 0, LOW, (0,)))
    desk.flush()

    if how == "goes away":
        desk.core.on_disconnected(S1, 0.0)
        desk.flush()
    elif how == "fails":
        desk.tell(S1, Results(S1, ME, 1, failed=(Failed(-1, 1, (), "invalid", (), "no such table"),)))

    assert isinstance(desk.outcome(77), Exception)


def test_two_replica_reads_do_not_answer_each_other() -> None:
    desk = Desk()
    for token, process in ((70, S0), (71, S1)):
        desk.core.ask(token, process, lambda number: ReadReplica(number, 0, LOW, (0,)))
    desk.core.on_disconnected(S0, 0.0)
    desk.core.ask(72, S1, lambda number: ReadReplica(number, 0, LOW, (0,)))
    requests = [m.request for m in sent(desk.flush(), ReadReplica)]

    assert len(set(requests)) == 3


def test_a_client_whose_submissions_all_stall_waits_for_an_answer_and_not_for_the_past() -> None:
    desk = Desk(ClientLimits(open_submissions=1, stalled_submissions=2, stall_s=0.02))
    desk.multicast.n_unstable = 1
    desk.ask(add(1, 1))
    first = desk.flush().wake_at_s
    desk.multicast.n_unstable = 2
    later = desk.pass_time(1.0)

    assert first is not None
    assert later.wake_at_s is None or later.wake_at_s > desk.now_s
    desk.multicast.n_unstable = 0
    desk.flush()
    assert desk.numbers()[-1] == [2]


def test_so_many_operations_are_on_their_way_and_the_others_wait_for_one_to_end() -> None:
    desk = Desk(ClientLimits(open_operations=2, stall_s=0.5))
    desk.ask(add(1, 1), add(1, 1))
    late = desk.ask(add(1, 1))
    assert desk.numbers() == [[1], [2, 3]]
    assert late.wake_at_s is not None
    assert late.wake_at_s <= 0.5

    desk.tell(S0, wrote(2, *add(1, 1).ranges))
    assert desk.numbers()[-1] == [2, 3]
    desk.stable(2)
    assert desk.numbers()[-1] == [4]


def test_operations_that_end_late_hold_up_others_for_a_while_only() -> None:
    desk = Desk(ClientLimits(open_operations=2, stall_s=0.5))
    desk.ask(add(1, 1), add(1, 1))
    desk.ask(add(2, 2))
    desk.pass_time(0.4)
    assert desk.numbers()[-1] == [2, 3]
    desk.pass_time(0.2)
    assert desk.numbers()[-1] == [4]
