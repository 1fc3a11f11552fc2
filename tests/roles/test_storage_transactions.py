"""The storage role and transactions: one message, one cycle, one outcome."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from crescando.client.base import Request
from crescando.engine.statement import STEPS_MAX, Call, encode_call, encode_parameters, encode_shapes
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Inquire, Inquired
from crescando.routing.batch import Message
from crescando.types import FULL_RING, MessageKind
from tests.engine.reports import reports
from tests.roles.stage import sent
from tests.roles.test_storage import ALICE, BOB, Desk, add, add_to_all, counts, insert, read_all


def call(request: Request, shape: int) -> Call:
    return Call(shape, encode_parameters(request.shape, request.parameters))


def transaction(*requests: Request) -> tuple[bytes, bytes]:
    """Give the payload of several writes, and what its submission shares."""
    shapes: dict[bytes, int] = {}
    calls = [call(each, shapes.setdefault(each.shape.encode(), len(shapes))) for each in requests]
    first, *then = calls
    return encode_call(first.shape, first.parameters, tuple(then)), encode_shapes(tuple(shapes))


def deliver(desk: Desk, number: int, *requests: Request, scope: Any = (FULL_RING,)) -> None:
    payload, shared = transaction(*requests)
    message = Message(ALICE, number, MessageKind.WRITE, 0, (FULL_RING,), 0, payload)
    desk.deliver_part(desk.part([message], shared, scope))


def test_a_transaction_has_one_outcome_with_the_counts_of_its_steps() -> None:
    desk = Desk()
    deliver(desk, 1, insert(1, 2), add(5, 1), add_to_all(1))
    (results,) = desk.run()
    (written,) = reports(results.written)
    assert written.number == 1
    affected = [0, 0, 0]
    for count in written.counts:
        affected[count.step] += count.affected
    assert affected == [2, 1, 2]
    assert desk.rows() == {1: (16, 1), 2: (21, 1)}


def test_a_cycle_takes_it_whole() -> None:
    desk = Desk(limits=StorageLimits(cycle_operations=2))
    desk.run()
    deliver(desk, 1, insert(1), add(1, 1), add(2, 1), add(4, 1))
    desk.deliver(BOB, 1, add(8, 1))
    desk.flush()
    (execution,) = desk.work
    assert [len(step) for step in execution.steps if isinstance(step, list)] == [4]
    desk.run()
    assert desk.rows() == {1: (25, 1)}


def test_whoever_reports_nothing_tells_of_it_when_asked() -> None:
    desk = Desk()
    deliver(desk, 1, insert(1), add(1, 1), scope=())
    assert not [written for results in desk.run() for written in results.written]
    (answer,) = sent(desk.tell(ALICE, Inquire(1, (1,))), Inquired)
    (written,) = reports(answer.written)
    assert sorted({count.step for count in written.counts}) == [0, 1]


def malformed() -> dict[str, tuple[bytes, bytes, MessageKind]]:
    good, shapes = transaction(insert(1), add(1, 1))
    with_read = transaction(insert(1), read_all())
    reads = transaction(read_all(), read_all())
    elsewhere = add(1, 1)
    foreign = msgspec.structs.replace(elsewhere.shape, table=7)
    swapped = transaction(Request(foreign, elsewhere.parameters, elsewhere.ranges), insert(1))
    nested = encode_call(0, b"", (Call(0, b"", (Call(0, b""),)),))
    many = encode_call(0, b"", (Call(0, b""),) * STEPS_MAX)
    junk = encode_call(1, call(add(1, 1), 1).parameters, (Call(0, b"\xc1"),))
    return {
        "a read among its writes": (*with_read, MessageKind.WRITE),
        "reads in the guise of reads": (*reads, MessageKind.READ),
        "writes in the guise of a read": (good, shapes, MessageKind.READ),
        "its first write's table is not that of the header": (*swapped, MessageKind.WRITE),
        "a transaction in a transaction": (nested, shapes, MessageKind.WRITE),
        "too many steps": (many, shapes, MessageKind.WRITE),
        "parameters of a step are junk": (junk, shapes, MessageKind.WRITE),
    }


@pytest.mark.parametrize("name", malformed())
def test_what_no_honest_client_sends_is_refused_whole(name: str) -> None:
    payload, shared, kind = malformed()[name]
    desk = Desk()
    desk.deliver_part(desk.part([Message(ALICE, 1, kind, 0, (FULL_RING,), 0, payload)], shared))
    desk.deliver(ALICE, 2, insert(4))
    results = desk.run()
    assert [(f.number, f.kind) for r in results for f in r.failed] == [(1, "invalid")]
    assert [count for r in results for count in counts(r)] == [(2, 1)]
    assert desk.rows() == {4: (40, 1)}


def test_a_step_on_a_table_that_is_gone_refuses_the_whole() -> None:
    elsewhere = add(1, 1)
    foreign = msgspec.structs.replace(elsewhere.shape, table=7)
    desk = Desk()
    deliver(desk, 1, insert(1), Request(foreign, elsewhere.parameters, elsewhere.ranges))
    (results,) = desk.run()
    assert [(f.number, f.kind, f.text) for f in results.failed] == [
        (1, "schema", "write 2 of the transaction: table 7 does not exist")
    ]
    assert desk.rows() == {}
