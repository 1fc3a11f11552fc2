"""Pinned snapshots at a storage process: taken at their place, kept under a lease, never shown after it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from crescando.client.pinned import (
    Fetch,
    Fetched,
    Hold,
    Kept,
    PinAnswer,
    PinFault,
    PinId,
    PinQuestion,
    Release,
    Renew,
)
from crescando.engine import pinned
from crescando.engine.statement import Kind, Shape, encode_parameters
from crescando.roles import pinning, pins
from crescando.roles.limits import StorageLimits
from crescando.roles.memory import Memory
from crescando.roles.messages import AskPinned, PinAnswered
from crescando.routing.rubberband import DropTable, Pin, encode_message
from crescando.types import FULL_RING, KeyRange, ProcessId
from tests.engine.workbench import apply, par
from tests.roles.stage import sent
from tests.roles.test_storage import ALICE, BOB, Desk, add, insert, read_all

SHAPE = read_all().shape


def fetch(pin: PinId, strip: int = 0, n_strips: int = 1, shape: Shape = SHAPE, *parameters: Any) -> Fetch:
    encoded = encode_parameters(shape, parameters)
    return Fetch(pin, shape.encode(), encoded, FULL_RING, n_strips, strip, 0)


class PinDesk(Desk):
    """A storage process of which pins are asked."""

    def pin(self, number: int, lease_s: float = 60.0, client: ProcessId = ALICE) -> PinId:
        """Let a pin be delivered."""
        self.deliver(client, number, encode_message(Pin((0,), lease_s)))
        return PinId(client, number)

    def ask(self, question: PinQuestion, peer: ProcessId = BOB) -> PinAnswer:
        """Ask, and give the one answer."""
        self.core.on_message(peer, AskPinned(7, question), self.now_s)
        answers = sent(self.flush(), PinAnswered, to=peer)
        while self.work:
            answers += sent(self.execute(), PinAnswered, to=peer)
        (answered,) = answers
        assert answered.request == 7
        answer: PinAnswer = answered.answer
        return answer

    def fetch(self, pin: PinId) -> dict[int, int] | PinFault:
        """Give all rows of a pin: values by key."""
        answer = self.ask(fetch(pin))
        if isinstance(answer, PinFault):
            return answer
        assert isinstance(answer, Fetched)
        assert (answer.strip, answer.offset) == (1, 0)
        keys, values, _ = (column.values.tolist() for column in answer.columns)
        return dict(zip(keys, values, strict=True))


def test_a_pin_shows_what_was_delivered_before_it_and_nothing_after() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1), add(5, 1))
    pin = desk.pin(4)
    desk.deliver(ALICE, 5, add(100, 1), insert(2))
    desk.run()

    assert desk.fetch(pin) == {1: 15}
    assert desk.rows() == {1: (115, 1), 2: (20, 1)}
    held = desk.ask(Hold(pin))
    assert isinstance(held, Kept)
    assert sum(held.holding.rows[0]) == 1
    assert held.holding.position == int(desk.core.following.position)
    assert [schema.name for schema in held.holding.tables] == ["accounts"]


def test_what_is_asked_before_its_place_is_executed_waits() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1))
    desk.flush()
    pin = desk.pin(3)
    desk.core.on_message(BOB, AskPinned(7, fetch(pin)), 0.0)
    desk.flush()
    # It is known only when the delivery has been taken.
    desk.core.on_message(BOB, AskPinned(8, Hold(pin)), 0.0)
    assert not sent(desk.execute(), PinAnswered, to=ALICE)

    found: dict[int, Any] = {}
    while desk.work:
        found |= {each.request: each.answer for each in sent(desk.execute(), PinAnswered, to=BOB)}
    assert isinstance(found[8], Kept)


def test_a_table_that_is_dropped_stays_pinned() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1, 2))
    pin = desk.pin(3)
    desk.deliver(ALICE, 4, encode_message(DropTable("accounts")))
    desk.run()

    assert desk.fetch(pin) == {1: 10, 2: 20}


def test_a_lease_is_counted_here_and_ends_here() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1))
    pin = desk.pin(3, lease_s=10.0)
    desk.run()

    desk.now_s = 9.9
    assert desk.fetch(pin) == {1: 10}
    assert desk.flush().wake_at_s is not None
    desk.now_s = 10.0
    over = desk.fetch(pin)
    assert isinstance(over, PinFault)
    assert (over.kind, "its lease of 10 s is over" in over.text) == ("over", True)
    desk.run()
    assert desk.engine.statistics()["pinned_bytes"] == 0
    assert len(desk.core.pins) == 0


def test_a_lease_that_ends_while_rows_are_found_shows_none_of_them() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1))
    pin = desk.pin(3, lease_s=10.0)
    desk.run()
    desk.core.on_message(BOB, AskPinned(7, fetch(pin)), 9.0)
    desk.flush()
    desk.now_s = 11.0

    answers: list[Any] = []
    while desk.work:
        answers += sent(desk.execute(), PinAnswered, to=BOB)

    assert [answered.answer.kind for answered in answers] == ["over"]


def test_a_lease_is_renewed_from_now_on_and_never_shortened() -> None:
    desk = PinDesk()
    pin = desk.pin(2, lease_s=10.0)
    desk.run()
    desk.now_s = 5.0
    assert isinstance(desk.ask(Renew(pin, 2.0)), Kept)
    desk.now_s = 9.0
    assert isinstance(desk.ask(Renew(pin, 10.0)), Kept)
    desk.now_s = 18.9
    assert isinstance(desk.ask(Hold(pin)), Kept)
    desk.now_s = 19.0
    assert isinstance(desk.ask(Renew(pin, 10.0)), PinFault)


def test_releasing_is_done_once_and_may_come_first() -> None:
    desk = PinDesk()
    pin = desk.pin(2)
    desk.run()
    for _ in range(2):
        told = desk.ask(Release(pin))
        assert isinstance(told, PinFault)
        assert (told.kind, "it was closed" in told.text) == ("over", True)
    early = PinId(ALICE, 3)
    desk.ask(Release(early))
    desk.pin(3)
    desk.run()
    assert isinstance(desk.ask(Hold(early)), PinFault)
    assert len(desk.core.pins) == 0


def test_what_was_never_pinned_here_is_told_at_once() -> None:
    desk = PinDesk()
    told = desk.ask(fetch(PinId(BOB, 1)))
    assert isinstance(told, PinFault)
    assert told.kind == "unknown"
    assert str(desk.core.me) in told.text


def test_a_range_that_this_process_did_not_own_is_not_read() -> None:
    desk = PinDesk()
    pin = desk.pin(2)
    desk.run()
    desk.core.pins._pins[pin].holding = replace_arcs(desk.core.pins._pins[pin].holding)
    told = desk.ask(fetch(pin))
    assert isinstance(told, PinFault)
    assert told.kind == "unknown"
    assert "did not own" in told.text


def replace_arcs(holding: Any) -> Any:
    return msgspec.structs.replace(holding, arcs=(KeyRange(0, 5),))


def test_more_pins_than_may_be_kept_are_refused_and_say_why() -> None:
    desk = PinDesk(limits=StorageLimits(pins=2))
    kept = [desk.pin(2), desk.pin(3)]
    refused = desk.pin(4)
    desk.run()
    told = desk.ask(Hold(refused))
    assert isinstance(told, PinFault)
    assert (told.kind, "close some of them" in told.text) == ("over", True)
    assert all(isinstance(desk.ask(Hold(pin)), Kept) for pin in kept)


def test_pins_that_keep_too_much_let_no_new_one_in() -> None:
    desk = PinDesk(limits=StorageLimits(pinned_bytes=1))
    desk.deliver(ALICE, 2, insert(*range(20)))
    first = desk.pin(3)
    second = desk.pin(4)
    desk.deliver(ALICE, 5, add(1, 3))
    third = desk.pin(6)
    desk.run()
    assert isinstance(desk.ask(Hold(first)), Kept)
    assert isinstance(desk.ask(Hold(second)), Kept), "nothing was kept from being freed by then"
    told = desk.ask(Hold(third))
    assert isinstance(told, PinFault)
    assert "and may keep 1" in told.text


def test_at_the_watermark_the_oldest_pins_go_and_not_the_process() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(*range(24)))
    old = desk.pin(3)
    desk.run()
    desk.deliver(ALICE, 4, add(1, 3))
    # Its rows are those of the table.
    young = desk.pin(5)
    desk.run()
    # It is full from now on, whatever goes, but not over its limit.
    desk.core.memory = Memory(1 << 40, 0.0)
    for number in range(6, 12):
        desk.deliver(BOB, number, read_all())
        desk.run()
    told = desk.ask(Hold(old))
    assert isinstance(told, PinFault)
    assert "its memory was needed" in told.text
    assert isinstance(desk.ask(Hold(young)), Kept), "it keeps nothing, and goes"
    assert not desk.core.stopped


def test_what_is_over_before_its_place_is_executed_is_let_go_of_all_the_same() -> None:
    desk = PinDesk(limits=StorageLimits(cycle_operations=4))
    desk.deliver(ALICE, 2, insert(*range(8)))
    desk.run()
    # More than one cycle takes, and the pin behind it.
    desk.deliver(ALICE, 3, *(add(1, key % 8) for key in range(20)))
    pin = desk.pin(23)
    desk.flush()
    desk.core.on_message(ALICE, AskPinned(1, Release(pin)), desk.now_s)
    desk.run()
    desk.deliver(ALICE, 24, add(1, 3))
    desk.run()
    assert desk.engine.statistics()["pinned_bytes"] == 0
    assert not desk.core.pins._images._pins


@pytest.mark.parametrize("lease_s", [math.inf, math.nan, 1e9, 0.0, -1.0])
def test_no_lease_lasts_for_ever(lease_s: float) -> None:
    desk = PinDesk()
    pin = desk.pin(2, lease_s=10.0)
    desk.run()
    told = desk.ask(Renew(pin, lease_s))
    assert isinstance(told, PinFault)
    assert told.kind == "invalid"
    desk.now_s = 10.0
    assert isinstance(desk.ask(Hold(pin)), PinFault)


def test_questions_do_not_pile_up_before_a_pin_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "WAITING_MAX", 2)
    desk = PinDesk()
    pin = desk.pin(2)
    desk.flush()
    for request in range(3):
        desk.core.on_message(BOB, AskPinned(request, Hold(pin)), 0.0)
    (busy,) = sent(desk.flush(), PinAnswered, to=BOB)
    assert (busy.request, busy.answer.kind) == (2, "busy")
    assert [each.request for each in sent(desk.execute(), PinAnswered, to=BOB)] == [0, 1]


def test_many_reads_at_once_get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "READS_MAX", 4)
    monkeypatch.setattr(pinning, "TURNS_MAX", 2)
    monkeypatch.setattr(pinned, "LOOK_ROWS", 8)
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(*range(40)))
    pin = desk.pin(3)
    desk.run()
    clients = [ProcessId("client", f"c{number}", 1) for number in range(9)]
    # Each asks for another range, whose rows are found in some steps of one cycle each.
    for number, client in enumerate(clients):
        asked = msgspec.structs.replace(fetch(pin), key_range=KeyRange(number, FULL_RING.high))
        desk.core.on_message(client, AskPinned(number, asked), 0.0)
    answered = sent(desk.flush(), PinAnswered)
    for _ in range(200):
        if desk.work:
            answered += sent(desk.execute(), PinAnswered)
    assert sorted(each.request for each in answered) == list(range(9))
    assert all(isinstance(each.answer, Fetched) for each in answered)


def test_the_process_stops_only_when_there_is_no_pin_to_let_go_of() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(*range(24)))
    desk.pin(3)
    desk.run()
    desk.core.memory = type(desk.core.memory)(1, 0.5)
    desk.deliver(ALICE, 4, add(1, 3))
    desk.flush()
    assert not desk.execute().stop
    assert len(desk.core.pins) == 0
    desk.deliver(ALICE, 5, add(1, 3))
    desk.flush()
    stops = [desk.execute().stop for _ in range(2) if desk.work]
    assert any("memory is exhausted" in stop for stop in stops)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": b"nonsense"},
        {"parameters": b"\xff"},
        {"strip": -1},
        {"strip": 5},
        {"offset": -1},
        {"n_strips": 0, "strip": 0},
        {"n_strips": 1 << 40},
        {"shape": Shape(Kind.DELETE, 0, 1).encode()},
        {"shape": Shape(Kind.READ, 9, 1, projections=SHAPE.projections).encode()},
    ],
)
def test_what_no_honest_client_asks_is_refused_alone(change: dict[str, Any]) -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1))
    pin = desk.pin(3)
    desk.run()
    told = desk.ask(msgspec.structs.replace(fetch(pin), **change))
    assert isinstance(told, PinFault)
    assert told.kind == "invalid"
    assert desk.fetch(pin) == {1: 10}


def test_too_many_questions_of_one_client_are_refused_for_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "FETCHES_OF_ONE_MAX", 2)
    desk = PinDesk()
    pin = desk.pin(2)
    desk.run()
    for request in range(4):
        desk.core.on_message(BOB, AskPinned(request, fetch(pin)), 0.0)
    desk.core.on_message(ALICE, AskPinned(9, fetch(pin)), 0.0)
    told = sent(desk.flush(), PinAnswered, to=BOB)
    assert [each.answer.kind for each in told] == ["busy", "busy"]
    while desk.work:
        desk.execute()
    assert isinstance(desk.fetch(pin), dict)


def test_who_went_away_is_not_answered_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "FETCHES_OF_ONE_MAX", 1)
    desk = PinDesk()
    pin = desk.pin(2)
    desk.run()
    desk.core.on_message(BOB, AskPinned(1, fetch(pin)), 0.0)
    desk.core.on_disconnected(BOB, 0.0)
    assert isinstance(desk.fetch(pin), dict)


def test_an_erroneous_row_fails_the_read_and_names_its_key() -> None:
    desk = PinDesk()
    desk.deliver(ALICE, 2, insert(1, 2, 3))
    pin = desk.pin(3)
    desk.run()
    key, value = SHAPE.projections[0].term, SHAPE.projections[1].term
    rest = apply("-", key, par(0, key.type))
    where = apply(">", apply("div", value, rest), par(1, value.type))
    shape = Shape(Kind.READ, 0, 1, where, SHAPE.projections)
    told = desk.ask(fetch(pin, 0, 1, shape, 2, 0))
    assert isinstance(told, PinFault)
    assert (told.kind, told.key) == ("read", (2,))
