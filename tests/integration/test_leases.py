"""Leases are renewed by work: what is staged or read lasts as long as that goes on, and no longer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import crescando
from crescando import LoadTicket, PartReceipt, PinTicket, Store
from crescando.cluster import Cluster
from crescando.errors import LoadGoneError, SnapshotExpiredError

LEASE_S = 3.0
"""Long for a busy machine, and short for whoever waits for several of them."""

SHORT_S = 0.5

N_ROWS = 200


@pytest.fixture(scope="module")
def store() -> Iterator[Store[Cluster]]:
    with crescando.open(routers=1, storages=2, supers=1, replication=1) as store:
        store.create_table("seen", like={"id": [1]}, primary_key="id")
        store.table("seen").insert({"id": list(range(N_ROWS))}).result()
        yield store


def test_a_load_lasts_as_long_as_rows_are_staged(store: Store[Cluster]) -> None:
    table = store.create_table("staged", like={"id": [1]}, primary_key="id")
    load = store.begin_load("staged", job="slow", rule="keep", lease_s=LEASE_S)
    ticket, receipts, end_s = load.ticket.encode(), [], time.monotonic() + 2 * LEASE_S

    while time.monotonic() < end_s:
        # Many short tasks, each in a session of its own: none lasts as long as a third of the lease.
        number = len(receipts)
        with (
            store.session(f"task {number}") as session,
            session.stage(LoadTicket.decode(ticket), number, 0) as part,
        ):
            part.write({"id": [number]})
            receipts.append(part.finish().encode())
        time.sleep(LEASE_S / 8)

    assert load.commit(map(PartReceipt.decode, receipts)).inserted == len(receipts) == table.count()


def test_a_load_ends_when_nobody_stages_any_more(store: Store[Cluster]) -> None:
    store.create_table("orphan", like={"id": [1]}, primary_key="id")
    load = store.begin_load("orphan", job="dies", rule="keep", lease_s=SHORT_S)
    with store.session("task") as session, session.stage(load.ticket, 0, 0) as part:
        part.write({"id": [1]})
        while store.cluster.config().loads.find(load.ticket.load) is not None:
            time.sleep(0.02)

        with pytest.raises(LoadGoneError):
            part.finish()


def test_a_pin_lasts_as_long_as_any_of_its_parts_is_read(store: Store[Cluster]) -> None:
    pinned = store.pin("seen", lease_s=LEASE_S)
    first, *others = parts = pinned.parts("seen", 20)
    assert len({part.owners[0] for part in parts}) == 2
    ticket, found, end_s = pinned.ticket.encode(), [], time.monotonic() + 2 * LEASE_S

    with store.session("task") as session:
        while time.monotonic() < end_s:
            # Only one of the processes is asked for rows: the other keeps what it has all the same.
            list(session.read_pinned(PinTicket.decode(ticket), first))
            time.sleep(LEASE_S / 8)
        for part in (first, *others):
            for piece in session.read_pinned(PinTicket.decode(ticket), part):
                found += piece.column("id")

    assert sorted(found) == list(range(N_ROWS))


def test_a_pin_that_nobody_reads_ends(store: Store[Cluster]) -> None:
    pinned = store.pin("seen", lease_s=SHORT_S)
    part, *_ = pinned.parts("seen")
    list(store.read_pinned(pinned.ticket, part))
    time.sleep(2 * SHORT_S)

    with pytest.raises(SnapshotExpiredError):
        list(store.read_pinned(pinned.ticket, part))
