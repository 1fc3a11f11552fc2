"""Snapshot reads through the public surface, and what is told when no majority of routers is left."""

from __future__ import annotations

import time

import pytest

import crescando
from crescando import agg, col
from crescando.errors import NoQuorumError, UnknownTableError
from tests.integration.stores import N_COUNTERS, with_counters


def test_a_session_reads_its_own_writes_without_waiting_for_them() -> None:
    with with_counters(routers=3, storages=3, replication=2) as store:
        table = store.table("counters")
        add = table.prepare_update("k = ?", "v = v + 1")
        positions = []

        for n in range(1, 61):
            add((7,))
            answer = table.select(["v"], col("k") == 7, isolation="snapshot")
            assert answer.rows() == [(n,)]
            positions.append(answer.position)

        assert positions == sorted(positions)


def test_every_kind_of_read_takes_an_isolation() -> None:
    with with_counters(storages=2, replication=1) as store:
        table = store.table("counters")

        assert table.count(isolation="snapshot") == N_COUNTERS
        assert table.count("v > 0", isolation="snapshot") == 0
        assert table.aggregate(isolation="snapshot", top=agg.max("k")).rows() == [(N_COUNTERS - 1,)]
        ordered = table.select(["k"], order_by=["k desc"], limit=2, isolation="snapshot")
        assert ordered.rows() == [(39,), (38,)]
        get = table.prepare_select(["k"], "k = ?", isolation="snapshot")
        assert [handle.result().rows() for handle in get.many([(1,), (2,)])] == [[(1,)], [(2,)]]
        totals = table.prepare_aggregate("k < ?", isolation="snapshot", n=agg.count())
        assert totals((5,)).result().rows() == [(5,)]


def test_a_table_made_anew_is_found_and_a_dropped_one_missed() -> None:
    with with_counters() as store:
        other = store.session("other")
        table = other.table("counters")
        store.drop_table("counters")

        with pytest.raises(UnknownTableError):
            table.count(isolation="snapshot")


def test_snapshot_reads_go_on_although_routers_and_storages_are_killed() -> None:
    with with_counters(routers=3, storages=3, replication=2, supers=3) as store:
        table = store.table("counters")
        get = table.prepare_select(["k"], "k = ?", isolation="snapshot")

        for victim in (store.cluster.status().lead_router, "storage/s2"):
            handles = get.many([(n % N_COUNTERS,) for n in range(400)])
            assert victim is not None
            store.cluster.kill(victim)
            handles += get.many([(n % N_COUNTERS,) for n in range(400)])
            for n, handle in enumerate(handles):
                assert handle.result(20).rows() == [(n % 400 % N_COUNTERS,)]
            assert table.count(isolation="snapshot", timeout_s=20) == N_COUNTERS


def test_without_a_majority_of_routers_everything_fails_fast_and_says_why() -> None:
    with with_counters(routers=3) as store:
        table = store.table("counters")
        store.cluster.kill("router/r1")
        assert table.count() == N_COUNTERS

        start_s = time.monotonic()
        store.cluster.kill("router/r2")
        sent = table.update(None, {"v": 1})
        with pytest.raises(NoQuorumError, match="majority of the routers back") as first:
            sent.result(20)
        took_s = time.monotonic() - start_s

        assert first.value.applied == "unknown"
        assert took_s < 12.0, "two election times, and more for a slow machine; 20 s were allowed"
        for ask in (
            lambda: table.insert({"k": 1000, "v": 0}).result(20),
            lambda: table.count(timeout_s=20),
            lambda: table.count(isolation="snapshot", timeout_s=20),
        ):
            start_s = time.monotonic()
            with pytest.raises(NoQuorumError) as later:
                ask()
            assert later.value.applied == "no"
            assert time.monotonic() - start_s < 10.0


def test_a_store_without_a_majority_closes_at_once() -> None:
    store = with_counters(routers=3)
    for router in ("router/r1", "router/r2"):
        store.cluster.kill(router)
    with pytest.raises(NoQuorumError):
        store.table("counters").insert({"k": 1000, "v": 0}).result(20)

    start_s = time.monotonic()
    store.close(60.0)

    assert time.monotonic() - start_s < 30.0
    assert isinstance(store, crescando.Store)
