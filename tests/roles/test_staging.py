"""The loads at one storage process: bytes beside the order, fetched by whoever lacks them, and bounded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.client.base import LOAD_REPEAT, load_digest
from crescando.engine.base import Failed
from crescando.engine.loads import Commit, LoadStep, Seal, Stage
from crescando.engine.statement import Column, Kind, Shape, encode_parameters
from crescando.roles.limits import StorageLimits
from crescando.roles.load_messages import (
    CHUNK_BYTES_MAX,
    AskStaged,
    Bring,
    Brought,
    ChunkOrder,
    Lack,
    StagedTold,
    Unknown,
    decode_chunk,
    encode_chunk,
)
from crescando.roles.staging import AGAIN_S, FETCH_S, SAID_MAX, VAIN_MAX, Staging
from crescando.routing.rubberband.loads import Load, LoadOrder, Loads, digest_of
from crescando.routing.rubberband.messages import HaveLoad, Winner
from crescando.schema import DataType
from crescando.types import KeyRange, LoadId, ProcessId, Scope

ME, OTHER, THIRD = (ProcessId("storage", f"s{number}") for number in range(3))
WORKER, DRIVER = ProcessId("client", "w"), ProcessId("client", "d")
LOAD = LoadId(DRIVER, 2)
HERE: Scope = (KeyRange(0, 100),)


def rows(*keys: int) -> bytes:
    columns = (Column(DataType.INT64, np.array(keys, np.int64)),)
    return encode_parameters(Shape(Kind.INSERT, 0, 1), columns)


ONE_LOAD = Loads((Load(LOAD, 0, "j", 0, "insert", "fail", (0,), 60_000),))


@dataclass(frozen=True)
class Layout:
    loads: Loads = ONE_LOAD
    storages: frozenset[ProcessId] = frozenset({ME, OTHER, THIRD})
    owners: frozenset[ProcessId] = frozenset({ME, OTHER})

    def holders(self, scope: Scope) -> frozenset[ProcessId]:
        return self.owners


@dataclass
class Host:
    limits: StorageLimits = field(default_factory=StorageLimits)
    put: list[LoadStep] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.layout = Layout()
        self.staging = Staging(
            ME,
            self.limits,
            put=lambda step, shape, n_bytes: self.put.append(step),
            fail=lambda client, failed: self.failed.append(failed),
        )
        self.staging.follow(self.layout)
        for peer in (WORKER, DRIVER):
            self.staging.on_connected(peer)

    def say(self, peer: ProcessId, message: Any) -> bool:
        return self.staging.on_message(peer, message, self.now_s)

    def order(self, payload: bytes, number: int = 5, holders: tuple[ProcessId, ...] = (), **more: Any) -> Any:
        chunk = ChunkOrder(LOAD, 0, 7, number, 2, load_digest(payload), HERE, holders)
        return self.staging.order(replace_chunk(chunk, more), WORKER, number, 100 + number, HERE)

    def turn(self, delivered: int = 1000) -> list[tuple[ProcessId, Any]]:
        self.staging.flush(self.now_s, delivered=delivered)
        return self.staging.take_to_send()

    def change(self, **changes: Any) -> None:
        """Let the configuration's load be another."""
        load = msgspec.structs.replace(self.layout.loads.open[0], **changes)
        self.layout = replace(self.layout, loads=Loads((load,)))
        self.staging.follow_orders((), DRIVER, 8, 190, self.layout)

    def end(self, kind: Any) -> bool:
        load = self.layout.loads.open[0]
        after = replace(self.layout, loads=Loads())
        orders = [LoadOrder(kind, load, (Winner(0, 7, 1, 2),))]
        return self.staging.follow_orders(orders, DRIVER, 9, 200, after)


def replace_chunk(chunk: ChunkOrder, more: dict[str, Any]) -> ChunkOrder:
    return msgspec.structs.replace(chunk, **more)


def test_bytes_that_are_here_are_staged_at_the_place_of_their_order() -> None:
    host, payload = Host(), rows(1, 2)
    host.say(WORKER, Bring(load_digest(payload), payload))
    assert host.turn() == [(WORKER, Brought(load_digest(payload)))]
    assert host.order(payload) is None

    (step,) = host.put
    assert isinstance(step.work, Stage)
    assert (step.position, step.number, step.sender) == (105, 5, WORKER)
    assert step.work.columns[0].values.tolist() == [1, 2]


def test_bytes_that_lie_about_their_digest_end_the_session() -> None:
    host, payload = Host(), rows(1, 2)

    assert not host.say(WORKER, Bring(load_digest(b"others"), payload))
    assert not host.say(OTHER, Bring(b"short", payload))
    assert not host.say(WORKER, Bring(load_digest(b""), bytes(CHUNK_BYTES_MAX + 1)))
    assert host.staging.n_bytes == 0


def test_there_is_a_budget_for_bytes_that_nobody_has_ordered_and_they_expire() -> None:
    host = Host(StorageLimits(stage_bytes=len(rows(1)) + 10, stage_s=60.0))
    first, second = rows(1), rows(2)
    host.say(WORKER, Bring(load_digest(first), first))
    host.say(WORKER, Bring(load_digest(second), second))
    refused = host.turn()[1][1]
    assert refused.digest == load_digest(second)
    assert "wait for their order" in refused.refusal

    host.now_s = 61.0
    host.turn()
    assert host.staging.n_bytes == 0
    host.say(WORKER, Bring(load_digest(second), second))
    assert host.turn() == [(WORKER, Brought(load_digest(second)))]


def test_what_is_lacking_is_fetched_from_those_whom_order_and_layout_name() -> None:
    host, payload = Host(), rows(1, 2)
    digest = load_digest(payload)
    assert host.order(payload, holders=(THIRD,)) is None
    assert not host.put, "nothing is staged, and nothing waits"
    assert host.turn() == []
    assert host.staging.needed() == {THIRD}
    host.staging.on_connected(THIRD)
    host.staging.asked_in(THIRD)
    assert host.turn() == [(THIRD, Lack(digest))]
    host.say(THIRD, Unknown(digest))
    host.staging.on_connected(OTHER)
    assert host.turn() == [(OTHER, Lack(digest))]
    host.now_s = FETCH_S
    assert host.turn() == [(WORKER, Lack(digest))], "who does not answer is not waited for"
    host.say(OTHER, Bring(digest, payload))

    (step,) = host.put
    assert (step.position, step.number) == (105, 5), "under the place of its order, though it came late"
    assert host.staging.n_lacking == 0
    assert not host.staging.needed()
    # It has them for others now.
    host.say(THIRD, Lack(digest))
    assert host.turn() == [(THIRD, Bring(digest, payload))]


COUNTS = ((0, 7),)


def test_a_driver_is_told_what_is_lacking_and_what_is_lost() -> None:
    host, payload = Host(), rows(1, 2)
    digest = load_digest(payload)
    host.staging.on_connected(OTHER)
    host.order(payload)
    host.say(DRIVER, AskStaged(1, LOAD, 5000, COUNTS))
    assert (DRIVER, StagedTold(1, -1)) in host.turn()
    host.say(DRIVER, AskStaged(2, LOAD, 105, COUNTS))
    assert (DRIVER, StagedTold(2, 1)) in host.turn()

    for n_asked in range(1, VAIN_MAX + 1):
        for peer in (OTHER, WORKER):
            host.say(peer, Unknown(digest))
            host.turn()
        host.turn()
        host.say(DRIVER, AskStaged(3, LOAD, 105, COUNTS))
        (told,) = [message for _, message in host.turn() if isinstance(message, StagedTold)]
        # Whoever lacked them may have got them since.
        assert bool(told.lost) == (n_asked == VAIN_MAX)
        host.now_s += AGAIN_S
        host.turn()
    assert "nobody who can be asked has the rows of 1 chunks" in told.lost
    # Somebody may come back who has them.
    host.now_s += FETCH_S
    assert any(isinstance(message, Lack) for _, message in host.turn())
    host.say(OTHER, Bring(digest, payload))


def test_an_image_that_lacks_a_chunk_gets_it_behind() -> None:
    host, payload = Host(), rows(1, 2)
    host.order(payload)
    assert host.staging.late((KeyRange(200, 300),)) == []
    (late,) = host.staging.late((KeyRange(50, 60),))
    assert late.content is None
    host.say(OTHER, Bring(load_digest(payload), payload))

    assert late.content is not None
    assert (late.content.payload, late.content.position) == (payload, 105)


def test_a_load_that_ends_is_waited_for_no_more() -> None:
    host, payload = Host(), rows(1, 2)
    host.order(payload)
    (late,) = host.staging.late(HERE)
    host.end("abort")

    assert host.staging.n_lacking == 0
    assert [failed.kind for failed in host.failed] == ["load"]
    assert late.content is not None
    assert late.content.payload == b""
    assert host.order(payload, 6).kind == "load", "of a load that is not open nothing is taken"


def test_a_repeat_is_told_and_does_nothing() -> None:
    host = Host()
    assert not host.end("repeat")

    assert [(failed.kind, failed.text) for failed in host.failed] == [("repeat", LOAD_REPEAT)]
    assert not host.put


def test_bytes_that_are_no_rows_fail_alike_wherever_they_are() -> None:
    for junk in (b"", b"junk", b"\x93\x01\x02\x03"):
        host = Host()
        host.say(WORKER, Bring(load_digest(junk), junk))
        host.order(junk)
        assert [failed.kind for failed in host.failed] == ["invalid"]
        assert not host.put


def test_an_order_that_no_honest_client_sends_is_none() -> None:
    chunk = ChunkOrder(LOAD, 0, 7, 5, 2, bytes(16), HERE, (OTHER,))
    assert decode_chunk(encode_chunk(chunk)) == chunk
    for wrong in (
        {"partition": -1},
        {"attempt": 1 << 42},
        {"partition": 1 << 20},
        {"digest": bytes(15)},
        {"holders": (OTHER,) * 65},
        {"ranges": (KeyRange(5, 4),)},
    ):
        with pytest.raises(ValueError, match="chunk"):
            decode_chunk(encode_chunk(replace_chunk(chunk, wrong)))


def test_bytes_that_are_brought_again_are_kept_longer_and_the_oldest_go_first() -> None:
    host, first, second = Host(StorageLimits(stage_s=60.0)), rows(1), rows(2)
    for payload in (first, second):
        host.say(WORKER, Bring(load_digest(payload), payload))
    host.now_s = 30.0
    host.say(WORKER, Bring(load_digest(first), first))
    assert host.staging.wake_at_s == 60.0
    host.now_s = 61.0
    host.turn()
    assert host.staging.n_bytes == len(first)
    assert host.staging.wake_at_s == 90.0


def test_of_what_is_staged_the_oldest_bytes_give_way() -> None:
    payloads = [rows(number) for number in range(4)]
    host = Host(StorageLimits(stage_kept_bytes=2 * len(payloads[0])))
    host.say(WORKER, Bring(load_digest(payloads[3]), payloads[3]))
    for number, payload in enumerate(payloads[:3]):
        host.say(WORKER, Bring(load_digest(payload), payload))
        host.order(payload, number)
    host.turn()
    for payload in payloads:
        host.say(OTHER, Lack(load_digest(payload)))
    assert [type(message) for _, message in host.turn()] == [Unknown, Bring, Bring, Bring]


def test_what_counts_is_said_in_the_order_before_its_driver_is_told() -> None:
    host, payload = Host(), rows(1, 2)
    host.order(payload)
    question = AskStaged(1, LOAD, upto=105, attempts=((0, 7),))
    host.say(DRIVER, question)
    assert (DRIVER, StagedTold(1, 1)) in host.turn()
    host.say(OTHER, Bring(load_digest(payload), payload))
    host.say(DRIVER, question)
    assert host.turn() == []
    assert host.staging.take_to_say() == [], "more may be staged as long as it is not closed"

    host.change(is_closed=True)
    assert host.order(rows(3), 6).kind == "load"
    assert host.turn() == []
    have = digest_of(question.attempts)
    assert host.staging.take_to_say() == [HaveLoad(LOAD, have)]
    host.turn()
    assert host.staging.take_to_say() == [], "it is said once"
    host.change(is_closed=True, have=((ME, have),))
    assert host.turn() == [(DRIVER, StagedTold(1, 0))]


def test_nothing_is_said_of_what_lacks_bytes_nor_of_ever_more_choices() -> None:
    host, payload = Host(), rows(1, 2)
    host.order(payload)
    host.change(is_closed=True)
    host.say(DRIVER, AskStaged(1, LOAD, upto=105, attempts=((0, 7),)))
    assert (DRIVER, StagedTold(1, 1)) in host.turn()
    assert host.staging.take_to_say() == []
    for attempt in range(100, 200):
        host.say(DRIVER, AskStaged(1, LOAD, upto=105, attempts=((0, attempt),)))
        host.turn()
    assert len(host.staging.take_to_say()) == SAID_MAX


@pytest.mark.parametrize(("kind", "work"), [("commit", Commit), ("seal", Seal)])
def test_the_end_of_a_load_waits_for_nobody(kind: str, work: type) -> None:
    host, payload = Host(), rows(1, 2)
    host.order(payload, attempt=8)
    assert host.end(kind), "its sender waits for an outcome"

    (step,) = host.put
    assert isinstance(step.work, work)
    assert host.staging.n_lacking == 0
    assert [failed.kind for failed in host.failed] == ["load"]
