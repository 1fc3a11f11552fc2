"""The storage role: in order, a cycle at a time, and every outcome kept until its client has it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.client.base import Request
from crescando.engine import answers, cutting
from crescando.engine.base import Results
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Kind, Operation, encode_call, encode_parameters, encode_shapes
from crescando.process import Output
from crescando.roles.areas import TableChange
from crescando.roles.cycles import Execution
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Answered, Attach, Inquire, Inquired, Ping, Pong, ReadReplica, Taken
from crescando.roles.outbox import PIECES_OPEN_MAX
from crescando.roles.storage import Storage
from crescando.routing.base import ExpelledEvent
from crescando.routing.batch import Delivery, Message, gather, submission
from crescando.routing.ecast.messages import Lease, LeaseRequest
from crescando.routing.rubberband import (
    AddColumn,
    CreateTable,
    DropTable,
    Leave,
    Rubberband,
    Suspect,
    encode_message,
)
from crescando.schema import ColumnDef, DataType
from crescando.testing.workload import SCHEMA, Workload
from crescando.types import FULL_RING, MessageKind, ProcessId, Scope, position
from tests.engine.reports import reports
from tests.roles.stage import ScriptedMulticast, sent
from tests.routing.worlds import storage, super_

ME, OTHER = storage(0), storage(1)
ROUTER = ProcessId("router", "r1", 1)
ALICE, BOB = ProcessId("client", "alice", 1), ProcessId("client", "bob", 1)
GENESIS = Rubberband.genesis(storages=[ME, OTHER], replication=2, supers=[super_(0)], clients=[ALICE, BOB])
CREATE = encode_message(CreateTable(SCHEMA))
CONFIG = GENESIS.apply(Message(super_(0), 1, MessageKind.CONFIG, -1, (), 0, CREATE))
WORK = Workload(SCHEMA.with_ids(0))


def insert(*keys: int) -> Request:
    return WORK._put("insert", list(keys), [10 * key for key in keys], 1)


def add(amount: int, key: int) -> Request:
    return WORK._where("add_by_key", (amount, key))


def add_to_all(amount: int) -> Request:
    return WORK._where("add_by_group", (amount, 1))


def read_all() -> Request:
    return WORK._where("read_all", ())


def configure(body: Any) -> bytes:
    return encode_message(body)


def payload_of(request: Request, shape: int = 0) -> bytes:
    return encode_call(shape, encode_parameters(request.shape, request.parameters))


class Desk:
    """A storage process, its engine, and the order that reaches it."""

    def __init__(self, *, config: Rubberband = CONFIG, limits: StorageLimits | None = None) -> None:
        self.multicast = ScriptedMulticast(ROUTER)
        self.core = Storage(
            ME, multicast=self.multicast, config=config, config_type=Rubberband, limits=limits
        )
        self.engine = ScanEngine(block_rows=8)
        self.engine.set_arcs(config.owned_arcs(ME))
        self.instance = 0
        self.now_s = 0.0
        self.core.on_start(0.0)
        self.work: list[Execution] = []
        for request in sent(self.flush(), LeaseRequest, to=ROUTER):
            self.core.on_message(ROUTER, Lease(request.sent_s, -1), 0.0)
        self.run()
        for client in (ALICE, BOB):
            self.core.on_message(client, Attach(), 0.0)

    def deliver(
        self,
        sender: ProcessId,
        first: int,
        *parts: Request | bytes,
        scope: Scope = (FULL_RING,),
    ) -> None:
        """Deliver consecutive messages; bytes are configuration messages."""
        shapes: dict[bytes, int] = {}
        messages = []
        for number, part in enumerate(parts, first):
            if isinstance(part, bytes):
                messages.append(Message(sender, number, MessageKind.CONFIG, -1, (), 0, part))
                continue
            code = shapes.setdefault(part.shape.encode(), len(shapes))
            kind = MessageKind.READ if part.shape.kind is Kind.READ else MessageKind.WRITE
            payload = payload_of(part, code)
            messages.append(Message(sender, number, kind, part.shape.table, part.ranges, 0, payload))
        self.deliver_part(self.part(messages, encode_shapes(tuple(shapes)), scope))

    def part(self, messages: Sequence[Message], shared: bytes, scope: Scope = (FULL_RING,)) -> Delivery:
        self.instance += 1
        picked = np.arange(len(messages), dtype=np.int64)
        batch = submission(messages, shared=shared)
        return gather(batch, picked, np.zeros_like(picked), (scope,), position(self.instance, 0) + picked)

    def deliver_part(self, part: Delivery) -> None:
        self.multicast.events.append(part)

    def flush(self) -> Output:
        output = self.core.flush(self.now_s)
        if output.execute is not None:
            self.work.append(output.execute)
        return output

    def execute(self) -> Output:
        """Do the running cycle's work and tell the core; gives what the next turn sends."""
        result = self.work.pop(0).run(self.engine)
        self.core.on_executed(result, self.now_s)
        return self.flush()

    def run(self) -> list[Results]:
        """Take turns until nothing is queued; gives all results that were sent."""
        found = sent(self.flush(), Results)
        while self.work:
            found += sent(self.execute(), Results)
        return found

    def tell(self, peer: ProcessId, message: Any) -> Output:
        self.core.on_message(peer, message, self.now_s)
        return self.flush()

    def rows(self) -> dict[int, tuple[int, int]]:
        """Give what the engine holds."""
        asker = ProcessId("client", "test", 1)
        operation = Operation(1 << 60, asker, 1, read_all().shape, (), (FULL_RING,))
        (results,) = self.engine.execute([operation])
        k, v, g = (column.values.tolist() for column in results.rows[0].columns)
        return dict(zip(k, zip(v, g, strict=True), strict=True))


def counts(results: Results) -> list[tuple[int, int]]:
    """Give the number and the affected rows of each write."""
    return [(w.number, sum(count.affected for count in w.counts)) for w in reports(results.written)]


# Order.


def test_operations_are_executed_in_the_order_of_delivery() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1), add(5, 1))
    desk.deliver(BOB, 1, add(7, 1), read_all())

    results = desk.run()

    assert desk.rows() == {1: (22, 1)}
    assert [(r.to, counts(r)) for r in results] == [(ALICE, [(1, 1), (2, 1)]), (BOB, [(1, 1)])]
    assert {r.process for r in results} == {ME}


def test_catalog_changes_take_effect_between_the_operations_around_them() -> None:
    desk = Desk(config=GENESIS)
    desk.deliver(
        ALICE,
        1,
        CREATE,
        insert(1),
        configure(DropTable("accounts")),
        configure(CreateTable(SCHEMA)),
        read_all(),
    )
    desk.flush()

    steps = desk.work[0].steps

    kinds = [len(step) if isinstance(step, list) else type(step) for step in steps]
    assert kinds == [TableChange, 1, TableChange, TableChange, 1]
    results = desk.run()
    assert [count for r in results for count in counts(r)] == [(2, 1)]
    # The table was made anew under another id: what was prepared for the first one is refused.
    assert [(failed.number, failed.kind) for r in results for failed in r.failed] == [(5, "schema")]


def test_a_column_added_in_mid_batch_is_there_for_what_follows() -> None:
    desk = Desk()

    desk.deliver(
        ALICE, 1, insert(1), configure(AddColumn("accounts", ColumnDef("x", DataType.INT8))), insert(2)
    )
    results = desk.run()

    assert [table.column_names for table in desk.core.config.tables] == [("k", "v", "g", "x")]
    assert desk.rows() == {1: (10, 1), 2: (20, 1)}
    assert [count for r in results for count in counts(r)] == [(1, 1), (3, 1)]


def test_what_arrives_during_a_cycle_rides_on_the_next() -> None:
    desk = Desk()
    desk.run()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()
    desk.deliver(ALICE, 2, add(1, 1))
    desk.deliver(ALICE, 3, add(1, 1))

    assert desk.flush().execute is None
    assert desk.core.n_queued == 2

    desk.execute()
    (second,) = desk.work
    assert [len(step) for step in second.steps if isinstance(step, list)] == [2]
    assert desk.core.n_queued == 0


def test_a_cycle_takes_only_so_many_operations() -> None:
    desk = Desk(limits=StorageLimits(cycle_operations=2))
    desk.run()
    desk.deliver(ALICE, 1, *(insert(key) for key in range(5)))

    desk.flush()

    assert desk.core.n_queued == 3
    assert [counts(r) for r in desk.run()] == [[(1, 1), (2, 1)], [(3, 1), (4, 1)], [(5, 1)]]
    assert desk.core.executed == position(1, 4)


# Confirmations.


def test_confirmations_are_withheld_while_the_queue_is_over_its_budget() -> None:
    desk = Desk(limits=StorageLimits(queue_bytes=5_000))
    desk.run()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()
    assert desk.multicast.holds[-1] is False

    desk.deliver(ALICE, 2, *(insert(key) for key in range(2, 200)))
    desk.flush()
    assert desk.multicast.holds[-1] is True

    desk.run()
    assert desk.multicast.holds[-1] is False
    assert len(desk.rows()) == 199


def test_confirmations_are_withheld_while_a_cycle_does_not_end() -> None:
    limits = StorageLimits(queue_s=5.0)
    desk = Desk(limits=limits)
    desk.run()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()

    desk.core.flush(5.0)
    assert desk.multicast.holds[-1] is False
    desk.core.flush(5.1)
    assert desk.multicast.holds[-1] is True

    desk.run()
    assert desk.multicast.holds[-1] is False


# Malformed payloads.

GOOD = insert(1)


def malformed() -> dict[str, tuple[Message, bytes]]:
    """Give messages that no honest client sends, each with what its submission shares."""
    shapes = encode_shapes((GOOD.shape.encode(),))
    payload = payload_of(GOOD)

    def message(body: bytes, kind: MessageKind = MessageKind.WRITE, table: int = 0) -> Message:
        return Message(ALICE, 1, kind, table, GOOD.ranges, 0, body)

    junk_columns = encode_call(0, msgspec.msgpack.encode(("no", "columns")))
    foreign = msgspec.structs.replace(GOOD.shape, table=7)
    return {
        "payload is no call": (message(b"\xc1junk"), shapes),
        "payload is empty": (message(b""), shapes),
        "no such shape": (message(payload_of(GOOD, 3)), shapes),
        "shape below zero": (message(payload_of(GOOD, -1)), shapes),
        "parameters are junk": (message(encode_call(0, b"\xc1")), shapes),
        "parameters do not fit": (message(junk_columns), shapes),
        "shape is junk": (message(payload), encode_shapes((b"\xc1junk",))),
        "shapes are junk": (message(payload), b"\xc1junk"),
        "no shapes": (message(payload), b""),
        "a write in the guise of a read": (message(payload, MessageKind.READ), shapes),
        "a read in the guise of a write": (
            message(payload_of(read_all())),
            encode_shapes((read_all().shape.encode(),)),
        ),
        "another table than it was routed by": (message(payload), encode_shapes((foreign.encode(),))),
    }


@pytest.mark.parametrize("name", malformed())
def test_what_no_honest_client_sends_is_refused_and_the_order_goes_on(name: str) -> None:
    message, shared = malformed()[name]
    desk = Desk()
    desk.deliver_part(desk.part([message], shared))
    desk.deliver(ALICE, 2, insert(4))

    results = desk.run()

    failed = [(f.number, f.kind) for r in results for f in r.failed]
    assert failed == [(1, "invalid")]
    assert [count for r in results for count in counts(r)] == [(2, 1)]
    assert desk.rows() == {4: (40, 1)}


@pytest.mark.parametrize("name", malformed())
def test_every_replica_refuses_it_alike(name: str) -> None:
    message, shared = malformed()[name]
    texts = []
    for scope in ((FULL_RING,), ()):
        desk = Desk()
        desk.deliver_part(desk.part([message], shared, scope))
        texts.append([f.text for r in desk.run() for f in r.failed])
        assert desk.rows() == {}

    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "parameters",
    [
        (),
        (1,),
        ("a", 1),
        (b"x", 1),
        ([1, 2], 1),
        ({"a": 1}, 1),
        (1 << 63, 1),
        (1.5, 1),
        (True, 1),
        (dt.datetime(2013, 7, 4, tzinfo=dt.UTC), 1),
        (np.array([1, 2]), 1),
    ],
)
def test_parameters_of_a_foreign_type_are_refused_alike(parameters: tuple[object, ...]) -> None:
    shape = add(1, 1).shape
    payload = encode_call(0, encode_parameters(shape, parameters))
    message = Message(ALICE, 2, MessageKind.WRITE, 0, (FULL_RING,), 0, payload)
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.deliver_part(desk.part([message], encode_shapes((shape.encode(),))))
    desk.deliver(ALICE, 3, insert(2))

    results = desk.run()

    assert [(f.number, f.kind) for r in results for f in r.failed] == [(2, "invalid")]
    assert desk.rows() == {1: (10, 1), 2: (20, 1)}


def test_decoded_shapes_are_remembered_within_a_bound() -> None:
    desk = Desk(limits=StorageLimits(shapes=2))

    desk.deliver(ALICE, 1, insert(1), add(1, 1), add_to_all(1), read_all(), insert(2))
    desk.run()

    assert len(desk.core.arrivals.shapes) == 2
    assert desk.rows() == {1: (12, 1), 2: (20, 1)}


def test_decoded_shapes_are_remembered_within_a_bound_of_bytes() -> None:
    size = len(add(1, 1).shape.encode())
    desk = Desk(limits=StorageLimits(shapes_bytes=2 * size))

    desk.deliver(ALICE, 1, insert(1), add(1, 1), add_to_all(1), read_all(), insert(2), add(2, 2))
    desk.run()

    assert sum(map(len, desk.core.arrivals.shapes)) <= 2 * size
    assert desk.rows() == {1: (12, 1), 2: (22, 1)}


# Results and ledgers.


def test_only_the_scope_of_a_write_is_reported() -> None:
    desk = Desk()
    first, second = CONFIG.owned_arcs(ME)[:2]
    desk.deliver(ALICE, 1, insert(*range(20)), scope=(first,))

    (results,) = desk.run()

    assert [count.key_range for count in reports(results.written)[0].counts] == [first]
    assert first != second


def test_a_write_without_a_scope_is_not_reported_but_known() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(*range(20)), scope=())

    assert desk.run() == []

    (answer,) = sent(desk.tell(ALICE, Inquire(5, (1,))), Inquired)
    assert answer.inquiry == 5
    assert answer.queued == ()
    assert [(w.number, sum(c.affected for c in w.counts)) for w in reports(answer.written)] == [(1, 20)]


def test_a_client_without_a_session_gets_nothing_and_may_ask_later() -> None:
    desk = Desk()
    desk.core.on_disconnected(ALICE, 0.0)
    desk.deliver(ALICE, 1, insert(1), read_all())
    assert desk.run() == []

    desk.tell(ALICE, Attach())

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1, 2))), Inquired)
    assert [w.number for w in reports(answer.written)] == [1]
    assert answer.queued == ()


def test_a_refused_write_is_told_again_to_a_client_that_was_away() -> None:
    message, shared = malformed()["parameters are junk"]
    desk = Desk()
    desk.core.on_disconnected(ALICE, 0.0)
    desk.deliver_part(desk.part([message], shared))
    assert desk.run() == []

    desk.tell(ALICE, Attach())

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1,))), Inquired)
    assert [(failed.number, failed.kind) for failed in answer.failed] == [(1, "invalid")]
    desk.tell(ALICE, Answered(1))
    (forgotten,) = sent(desk.tell(ALICE, Inquire(2, (1,))), Inquired)
    assert forgotten.failed == ()


def test_what_is_queued_is_promised_and_then_reported_for_all_it_owns() -> None:
    desk = Desk()
    desk.run()
    first = CONFIG.owned_arcs(ME)[0]
    desk.deliver(BOB, 1, insert(50))
    desk.flush()
    desk.deliver(ALICE, 1, insert(*range(20)), read_all(), scope=(first,))
    desk.flush()

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1, 2, 3))), Inquired)

    assert [(q.number, q.scope, q.is_write) for q in answer.queued] == [
        (1, (first,), True),
        (2, (first,), False),
    ]
    assert answer.written == ()
    (write,) = [w for r in desk.run() if r.to == ALICE for w in reports(r.written)]
    assert {count.key_range for count in write.counts} == set(CONFIG.owned_arcs(ME))


def test_a_promise_about_a_write_that_is_refused_is_kept_no_longer() -> None:
    desk = Desk()
    desk.run()
    desk.deliver(BOB, 1, insert(50))
    desk.flush()
    write = insert(1)
    stale = msgspec.structs.replace(write.shape, table=77)
    desk.deliver(ALICE, 1, Request(stale, write.parameters, write.ranges))
    desk.flush()

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1,))), Inquired)
    results = desk.run()

    assert [q.number for q in answer.queued] == [1]
    assert [f.number for r in results for f in r.failed] == [1]
    assert not any(ledger.report_all for ledger in desk.core.reporter.ledgers)


def test_outcomes_are_forgotten_once_the_client_has_them() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1), insert(2), insert(3))
    desk.run()

    desk.tell(ALICE, Answered(2))
    desk.tell(ALICE, Answered(1))

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1, 2, 3))), Inquired)
    assert [w.number for w in reports(answer.written)] == [3]


def test_outcomes_that_a_client_never_takes_are_bounded() -> None:
    desk = Desk(limits=StorageLimits(records=3))
    for number in range(1, 8):
        desk.deliver(ALICE, number, insert(number))
        desk.run()

    (answer,) = sent(desk.tell(ALICE, Inquire(1, tuple(range(1, 8)))), Inquired)

    assert [written.number for written in reports(answer.written)] == [5, 6, 7]


def vote_out(desk: Desk, client: ProcessId, number: int = 2) -> None:
    desk.deliver(super_(0), number, encode_message(Suspect(client)))
    desk.run()
    assert not desk.core.config.is_member(client)


def known_of(desk: Desk, client: ProcessId, *numbers: int) -> list[int]:
    (answer,) = sent(desk.tell(client, Inquire(1, numbers)), Inquired)
    return [written.number for written in reports(answer.written)]


def test_a_client_that_was_voted_out_may_come_back_and_ask_for_a_while() -> None:
    limits = StorageLimits(gone_s=60.0)
    desk = Desk(limits=limits)
    desk.deliver(ALICE, 1, insert(1))
    desk.run()
    desk.deliver(ALICE, 2, insert(2))
    vote_out(desk, ALICE)

    # The second was still queued when it was voted out.
    assert known_of(desk, ALICE, 1, 2) == [1, 2]
    desk.tell(ALICE, Answered(1))
    assert known_of(desk, ALICE, 1, 2) == [2]
    assert (desk.flush().wake_at_s or math.inf) <= limits.gone_s
    desk.core.flush(limits.gone_s)

    assert known_of(desk, ALICE, 2) == []
    assert len(desk.core.reporter.ledgers) == 0


def test_of_those_that_were_voted_out_so_much_is_kept_and_the_longest_gone_is_forgotten_first() -> None:
    desk = Desk(limits=StorageLimits(gone_records=3))
    for client in (ALICE, BOB):
        for number in (1, 2):
            desk.deliver(client, number, insert(number + 10 * (client == BOB)))
        desk.run()
    vote_out(desk, ALICE, 2)
    assert known_of(desk, ALICE, 1, 2) == [1, 2]

    vote_out(desk, BOB, 3)

    assert known_of(desk, ALICE, 1, 2) == []
    assert known_of(desk, BOB, 1, 2) == [1, 2]


def test_nothing_is_kept_of_a_client_that_left_or_to_which_nothing_is_owed() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.deliver(BOB, 1, insert(2))
    desk.run()
    desk.tell(BOB, Answered(1))

    desk.deliver(ALICE, 2, encode_message(Leave(ALICE)))
    vote_out(desk, BOB)

    assert not desk.core.config.is_member(ALICE)
    assert len(desk.core.reporter.ledgers) == 0


def test_one_client_is_told_nothing_about_anothers_operations() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.run()

    (answer,) = sent(desk.tell(BOB, Inquire(1, (1,))), Inquired)

    assert (answer.queued, answer.written) == ((), ())


def test_a_replica_shows_its_rows_behind_all_it_has_queued() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1), add(5, 1))
    desk.core.on_message(BOB, ReadReplica(9, 0, FULL_RING, (0, 1)), 0.0)

    results = [r for r in desk.run() if r.to == BOB]

    (rows,) = results[0].rows
    assert rows.number.tolist() == [-9]
    assert [column.values.tolist() for column in rows.columns] == [[1], [15]]


def test_only_so_many_reads_of_a_replica_wait_for_a_cycle() -> None:
    desk = Desk(limits=StorageLimits(replica_reads=1))
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()

    desk.tell(BOB, ReadReplica(1, 0, FULL_RING, (0,)))
    (refused,) = sent(desk.tell(BOB, ReadReplica(2, 0, FULL_RING, (0,))), Results)

    assert [(failed.number, failed.kind) for failed in refused.failed] == [(-2, "read")]
    assert [rows.number.tolist() for r in desk.run() if r.to == BOB for rows in r.rows] == [[-1]]


def test_a_replica_of_a_table_that_is_not_there_says_so() -> None:
    desk = Desk()
    desk.core.on_message(BOB, ReadReplica(9, 77, FULL_RING, (0,)), 0.0)

    results = [r for r in desk.run() if r.to == BOB]

    assert [f.number for r in results for f in r.failed] == [-9]


# Life and death.


def test_pings_are_answered_also_during_a_scan() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()

    assert sent(desk.tell(super_(0), Ping(3.0)), Pong) == [Pong(3.0)]


def test_an_expelled_process_stops() -> None:
    desk = Desk()
    desk.multicast.events.append(ExpelledEvent(17, 0))

    assert desk.flush().stop == "expelled at position 17"


# Slow readers.


def test_a_client_that_takes_nothing_holds_up_nobody_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cutting, answers):
        monkeypatch.setattr(module, "PIECE_BYTES", 24)
    desk = Desk()
    desk.deliver(ALICE, 1, *(insert(k) for k in range(1, 8)))
    desk.run()

    desk.deliver(ALICE, 8, read_all())
    desk.deliver(BOB, 1, add(1, 1))
    sent_first = desk.run()
    pieces = [results for results in sent_first if results.rows]
    assert len(pieces) == PIECES_OPEN_MAX
    assert [counts(results) for results in sent_first if results.to == BOB] == [[(1, 1)]]

    # Who asks meanwhile hears that the answer is on its way.
    (inquired,) = sent(desk.tell(ALICE, Inquire(1, (8,))), Inquired)
    assert [queued.number for queued in inquired.queued] == [8]
    while pieces[-1].rows[0].has_more:
        pieces += sent(desk.tell(ALICE, Taken(1)), Results)
    assert [results.rows[0].part for results in pieces] == list(range(len(pieces)))
    assert sum(len(results.rows[0].columns[0]) for results in pieces) == 7
    (inquired,) = sent(desk.tell(ALICE, Inquire(2, (8,))), Inquired)
    assert inquired.queued == ()


def test_what_waits_for_a_client_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cutting, answers):
        monkeypatch.setattr(module, "PIECE_BYTES", 24)
    desk = Desk()
    desk.deliver(ALICE, 1, *(insert(k) for k in range(1, 9)), read_all())
    desk.run()

    desk.core.on_disconnected(ALICE, 0.0)
    (inquired,) = sent(desk.tell(ALICE, Inquire(1, (9,))), Inquired)
    assert inquired.queued == ()
    assert sent(desk.tell(ALICE, Taken(4)), Results) == []


def test_whoever_is_told_little_is_told_first() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1), *[read_all()] * 10)
    desk.deliver(BOB, 1, read_all())

    assert [results.to for results in desk.run()] == [BOB, ALICE]


def entering(worked_s: float, took_s: float) -> int:
    """Give how many of 600 reads share a cycle, if those of the cycles before took so long."""
    desk = Desk()
    first = 1
    for _ in range(12):
        desk.deliver(ALICE, first, *[read_all()] * 16)
        first += 16
        desk.flush()
        while desk.work:
            result = desk.work.pop().run(desk.engine)
            told = dataclasses.replace(result, took_s=took_s, worked_s=worked_s)
            desk.core.on_executed(told, desk.now_s)
            desk.flush()
    desk.deliver(ALICE, first, *[read_all()] * 600)
    desk.flush()
    return 600 - len(desk.core.waiting)


def test_what_cycles_take_decides_how_many_operations_share_the_next_one() -> None:
    # Of what is slow twice as many as were tried; of what is not as many as a cycle's time is enough for.
    assert entering(worked_s=5.0, took_s=5.0) <= 32
    assert entering(worked_s=0.0005, took_s=0.0005) > 100


def test_a_cycle_that_waited_for_a_core_is_no_reason_to_share_less() -> None:
    assert entering(worked_s=0.0005, took_s=5.0) > 100
