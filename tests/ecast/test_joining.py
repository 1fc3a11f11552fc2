"""A process that joins is told the configuration after its join, by whoever leads (RB13 §6.1)."""

from __future__ import annotations

from typing import Any

import pytest

from crescando import wire
from crescando.routing.batch import Delivery, Submission
from crescando.routing.ecast.messages import Deliver, Hello, Resume
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.snapshot import restore, take_snapshot
from crescando.routing.ecast.stability import Window, entry_of
from crescando.routing.rubberband import CreateTable, Join, Rubberband, Suspect
from crescando.types import NO_POSITION, ProcessId
from tests.ecast.parties import CLIENT, CONFIG, S0, S1, U0, batch, configure, of, write
from tests.ecast.test_router import Desk, to
from tests.routing.worlds import after, schema

NEW, LATE = ProcessId("storage", "s7", 1), ProcessId("super", "u7", 1)
JOIN = of(configure(1, Join(NEW), sender=NEW))
AFTER = after(CONFIG, (NEW, Join(NEW)))


def entry(*submissions: Submission, config: Rubberband = CONFIG) -> Any:
    return entry_of(1, MSeq(config).learn(1, batch(*submissions)).runs, set())


def configs(parts: tuple[Delivery, ...]) -> list[bytes]:
    return [part.config for part in parts]


@pytest.mark.parametrize("joiner", [NEW, LATE])
def test_only_the_joiner_is_told_and_only_of_its_own_join(joiner: ProcessId) -> None:
    found = entry(
        of(configure(1, CreateTable(schema("a")))),
        of(configure(1, Join(joiner), sender=joiner)),
        of(configure(2, CreateTable(schema("b")))),
    )

    expected = after(CONFIG, (CLIENT, CreateTable(schema("a"))), (joiner, Join(joiner)))
    assert configs(found.deliveries[joiner]) == [expected.encode(), b""]
    assert configs(found.deliveries[S0]) == [b"", b"", b""]
    assert configs(found.deliveries[U0]) == [b"", b"", b""]


def test_two_that_join_in_one_instance_are_each_told_what_comes_before() -> None:
    found = entry(JOIN, of(configure(1, Join(LATE), sender=LATE)))

    assert configs(found.deliveries[NEW]) == [AFTER.encode(), b""]
    assert configs(found.deliveries[LATE]) == [after(AFTER, (LATE, Join(LATE))).encode()]


def test_a_join_that_is_refused_tells_nothing() -> None:
    without = after(CONFIG, (U0, Suspect(S0)))
    # It holds its ring position still, so it cannot come back as the old one.
    found = entry(of(configure(1, Join(S0), sender=S0)), of(write(1)), config=without)

    assert S0 not in found.deliveries
    assert configs(found.deliveries[S1]) == [b""]


def test_clients_are_no_destinations_and_are_told_nothing() -> None:
    client = ProcessId("client", "c9", 1)

    assert client not in entry(of(configure(1, Join(client), sender=client))).deliveries


def test_it_travels() -> None:
    part = entry(JOIN).deliveries[NEW][0]

    carried = wire.decode(wire.encode(Deliver(Desk().order.ballot, 1, -1, 9, (part,)))).parts[0]

    assert carried.config == AFTER.encode()
    assert Rubberband.decode(carried.config) == AFTER
    assert part.n_bytes > len(AFTER.encode())


def hello(desk: Desk, peer: ProcessId) -> None:
    desk.hello(peer)
    desk.router.on_message(peer, Resume(desk.order.ballot, NO_POSITION, NO_POSITION), desk.now_s)
    desk.flush()


def test_a_leader_tells_it_again_in_a_new_session() -> None:
    desk = Desk()
    hello(desk, NEW)
    first = to(desk.order_now(JOIN, of(configure(1, CreateTable(schema("a"))))), NEW, Deliver)
    assert first[0].parts[0].config == AFTER.encode()

    desk.router.on_disconnected(NEW, 0.0)
    desk.router.on_connected(NEW, 0.0)
    again = desk.take(NEW, Hello(), Resume(desk.order.ballot, NO_POSITION, NO_POSITION))

    assert to(again, NEW, Deliver)[0].parts[0].config == AFTER.encode()


def test_a_new_leader_tells_it_though_the_configuration_has_gone_on() -> None:
    desk = Desk(leads=False)
    desk.order.learn(batch(JOIN, of(configure(1, CreateTable(schema("a"))))))
    desk.flush()
    desk.order.lead(2)
    desk.flush()

    desk.hello(NEW)
    output = desk.take(NEW, Resume(desk.order.ballot, NO_POSITION, NO_POSITION))

    assert to(output, NEW, Deliver)[0].parts[0].config == AFTER.encode()
    assert desk.router.mseq.config != AFTER


def test_a_router_that_took_a_snapshot_over_tells_it_too() -> None:
    mseq, window = MSeq(CONFIG), Window[Rubberband]()
    window.add(entry_of(1, mseq.learn(1, batch(of(write(1)), JOIN)).runs, set()))
    mseq.learn(2, batch(of(configure(2, CreateTable(schema("a"))))))

    _, restored = restore(take_snapshot(mseq, window), Rubberband)

    (found,) = restored.entries.values()
    assert configs(found.deliveries[NEW]) == [AFTER.encode()]
    assert found.awaited == {S0, S1, *CONFIG.storages, U0, NEW}
