"""Snapshot reads at a storage process: in their place among what is delivered, or refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from crescando.client.base import Request
from crescando.engine.base import Results
from crescando.engine.statement import Kind, encode_shapes
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Inquire, Inquired
from crescando.routing.base import ReadsEvent
from crescando.routing.batch import Delivery, Message
from crescando.routing.ecast.messages import ReadRefused
from crescando.types import MessageKind, ProcessId
from tests.roles.stage import sent
from tests.roles.test_storage import ALICE, BOB, Desk, add, insert, payload_of, read_all


def part(desk: Desk, at: int, *requests: Request, first: int = 1, client: ProcessId = ALICE) -> Delivery:
    """Give a client's part of a snapshot read's delivery."""
    messages = [
        Message(client, number, MessageKind.READ, request.shape.table, request.ranges, 0, payload_of(request))
        for number, request in enumerate(requests, first)
    ]
    made = desk.part(messages, encode_shapes((requests[0].shape.encode(),)))
    return msgspec.structs.replace(made, position=np.full(len(messages), at, np.int64))


def inject(desk: Desk, at: int, *parts: Delivery, refusal: str = "") -> None:
    desk.multicast.events.append(ReadsEvent(at, parts, refusal))


def values(results: list[Results]) -> dict[int, list[int]]:
    """Give the values that each read answered, by its number."""
    found: dict[int, list[int]] = {}
    for result in results:
        for rows in result.rows:
            for index, number in enumerate(rows.number.tolist()):
                low, high = int(rows.offsets[index]), int(rows.offsets[index + 1])
                found[number] = rows.columns[1].values[low:high].tolist()
    return found


def test_a_read_shows_what_was_delivered_before_it_and_nothing_after() -> None:
    desk = Desk()
    desk.deliver(ALICE, 2, insert(1), add(5, 1))
    inject(desk, 77, part(desk, 77, read_all(), read_all()))
    desk.deliver(ALICE, 4, add(100, 1))

    results = desk.run()

    assert values(results) == {-1: [15], -2: [15]}
    assert {rows.position.tolist()[0] for r in results for rows in r.rows} == {77}
    assert desk.rows() == {1: (115, 1)}


def test_each_client_gets_its_own() -> None:
    desk = Desk()
    desk.deliver(ALICE, 2, insert(1))
    inject(desk, 77, part(desk, 77, read_all(), first=4), part(desk, 77, read_all(), first=9, client=BOB))

    results = desk.run()

    assert {(r.to, n) for r in results for rows in r.rows for n in rows.number.tolist()} == {
        (ALICE, -4),
        (BOB, -9),
    }


def test_a_refused_read_does_not_run() -> None:
    desk = Desk()
    inject(desk, 77, part(desk, 77, read_all(), read_all()), refusal="its router leads no more")

    output = desk.flush()

    (refused,) = sent(output, ReadRefused, to=ALICE)
    assert refused.numbers == (1, 2)
    assert not refused.is_final
    assert "leads no more" in refused.reason
    assert not desk.run()


def test_reads_are_refused_while_the_queue_is_over_its_budget() -> None:
    desk = Desk(limits=StorageLimits(queue_bytes=2000))
    desk.deliver(ALICE, 2, insert(1), insert(2), insert(3))
    inject(desk, 77, part(desk, 77, read_all()))

    output = desk.flush()

    (refused,) = sent(output, ReadRefused, to=ALICE)
    assert "over budget" in refused.reason


def test_what_is_waiting_stays_bounded_however_many_reads_come() -> None:
    desk = Desk(limits=StorageLimits(queue_bytes=100_000))
    desk.deliver(ALICE, 2, insert(1))
    desk.flush()

    for first in range(1, 20_000, 100):
        inject(desk, 77, part(desk, 77, *[read_all()] * 100, first=first))
        desk.flush()

    assert desk.core.waiting.n_bytes <= 100_000 + 100 * 2048


@pytest.mark.parametrize("kind", [MessageKind.READ, MessageKind.WRITE])
def test_a_write_in_disguise_never_runs(kind: MessageKind) -> None:
    desk = Desk()
    request = insert(1)
    assert request.shape.kind is not Kind.READ
    made = part(desk, 77, request)
    inject(desk, 77, msgspec.structs.replace(made, kind=np.full(1, kind, np.uint8)))

    (results,) = desk.run()

    assert [failed.kind for failed in results.failed] == ["invalid"]
    assert desk.rows() == {}


def test_an_inquiry_knows_nothing_of_reads_outside_the_order() -> None:
    desk = Desk()
    inject(desk, 77, part(desk, 77, read_all()))
    desk.flush()

    output = desk.tell(ALICE, Inquire(1, (1, -1)))

    (answer,) = sent(output, Inquired)
    assert answer.queued == ()
