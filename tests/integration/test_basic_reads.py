"""Basic reads through the public surface: their sessions' guarantees, failures, and the end of a majority."""

from __future__ import annotations

import time

import pytest

from crescando import agg, col
from crescando.client.base import Isolation
from crescando.errors import NoQuorumError, StatementError
from tests.integration.stores import COUNTERS, N_COUNTERS, with_counters

LEVELS: tuple[Isolation, ...] = ("basic", "snapshot", "sequential")


def test_a_session_reads_its_own_writes_without_waiting_for_them_and_never_goes_back() -> None:
    with with_counters(routers=3, storages=4, replication=2) as store:
        table = store.table("counters")
        add = table.prepare_update("k = ?", "v = v + 1")
        positions = []

        for n in range(1, 61):
            add((7,))
            answer = table.select(["v"], col("k") == 7, isolation=LEVELS[n % 3])
            assert answer.rows() == [(n,)]
            positions.append(answer.position)
            other = table.select(["v"], col("k") == n % N_COUNTERS, isolation=LEVELS[n // 3 % 3])
            positions.append(other.position)

        assert positions == sorted(positions)


def test_every_kind_of_read_can_be_basic() -> None:
    with with_counters(storages=3, replication=2) as store:
        table = store.table("counters")

        assert table.count(isolation="basic") == N_COUNTERS
        assert table.count("v > 0", isolation="basic") == 0
        assert table.aggregate(isolation="basic", top=agg.max("k")).rows() == [(N_COUNTERS - 1,)]
        ordered = table.select(["k"], order_by=["k desc"], limit=2, isolation="basic")
        assert ordered.rows() == [(39,), (38,)]
        assert ordered.position <= ordered.latest
        get = table.prepare_select(["k"], "k = ?", isolation="basic")
        assert [handle.result().rows() for handle in get.many([(1,), (2,)])] == [[(1,)], [(2,)]]
        totals = table.prepare_aggregate("k < ?", isolation="basic", n=agg.count())
        assert totals((5,)).result().rows() == [(5,)]


def test_thousands_of_basic_reads_at_once_take_no_place_in_the_order() -> None:
    with with_counters(routers=3, storages=4, replication=2) as store:
        table = store.table("counters")
        get = table.prepare_select(["k"], "k = ?", isolation="basic")
        get((1,)).result(20)
        before = store.cluster.status().position

        handles = get.many([(n % N_COUNTERS,) for n in range(5000)])

        assert [handle.result(20).rows() for handle in handles] == [[(n % N_COUNTERS,)] for n in range(5000)]
        assert store.cluster.status().position == before


def test_an_unknown_isolation_names_those_there_are() -> None:
    levels = "'sequential' or 'snapshot' or 'basic'"
    with with_counters() as store, pytest.raises(StatementError, match=levels):
        store.table("counters").count(isolation="dirty")  # type: ignore[arg-type]


def test_a_table_that_another_session_made_or_dropped_is_known_as_to_other_reads() -> None:
    with with_counters(storages=2) as store:
        other = store.session("other")
        assert other.table("counters").count(isolation="basic") == N_COUNTERS
        store.drop_table("counters")
        store.create_table(COUNTERS)
        store.table("counters").insert({"k": 5, "v": 55}).result(20)

        answer = other.table("counters").select(["v"], "k = 5", isolation="basic")

        assert answer.rows() == [(55,)]


def test_basic_reads_go_on_although_routers_and_storages_are_killed() -> None:
    with with_counters(routers=3, storages=4, replication=2, supers=3) as store:
        table = store.table("counters")
        get = table.prepare_select(["k"], "k = ?", isolation="basic")

        for victim in (store.cluster.status().lead_router, "storage/s2"):
            handles = get.many([(n % N_COUNTERS,) for n in range(400)])
            assert victim is not None
            store.cluster.kill(victim)
            handles += get.many([(n % N_COUNTERS,) for n in range(400)])
            for n, handle in enumerate(handles):
                assert handle.result(20).rows() == [(n % 400 % N_COUNTERS,)]
            assert table.count(isolation="basic", timeout_s=20) == N_COUNTERS


def test_without_a_majority_of_routers_basic_reads_end_with_the_lease() -> None:
    with with_counters(routers=3, storages=2, replication=2) as store:
        table = store.table("counters")
        assert table.count(isolation="basic") == N_COUNTERS
        for router in ("router/r1", "router/r2"):
            store.cluster.kill(router)

        ended: NoQuorumError | None = None
        begin_s = time.monotonic()
        while ended is None:
            assert time.monotonic() < begin_s + 60.0
            try:
                assert table.count(isolation="basic", timeout_s=20) == N_COUNTERS
            except NoQuorumError as error:
                ended = error

        assert ended.applied == "no"
        assert "majority of the routers back" in str(ended)
        start_s = time.monotonic()
        with pytest.raises(NoQuorumError):
            table.count(isolation="basic", timeout_s=20)
        assert time.monotonic() - start_s < 10.0
