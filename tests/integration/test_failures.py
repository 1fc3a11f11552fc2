"""Processes killed under load: every acknowledged write counts once, and reads are right (K02, K16, K17)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import crescando
from crescando import agg, errors
from crescando.client.table import Table
from crescando.engine.partition import position_of
from crescando.types import ProcessId
from tests.integration.stores import N_COUNTERS, standstill, with_counters

IN_FLIGHT = 400


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait for something that is bound to happen."""
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.01)


def kill_under_load(
    store: crescando.Store, table: Table, victim: ProcessId | str
) -> list[crescando.WriteHandle]:
    """Kill a process while hundreds of increments are on their way, and submit more after."""
    add = table.prepare_update("k = ?", "v = v + 1")
    with standstill(store):
        before = [add((n % N_COUNTERS,)) for n in range(IN_FLIGHT)]
        before += add.many([(n % N_COUNTERS,) for n in range(IN_FLIGHT)])
        assert store.in_flight() >= 2 * IN_FLIGHT
    # Some are ordered by now, some executed, most neither.
    in_flight = store.in_flight()
    store.cluster.kill(victim)
    assert in_flight >= 100
    return before + [add((n % N_COUNTERS,)) for n in range(IN_FLIGHT)]


def total(table: Table) -> int:
    (row,) = table.aggregate(total=agg.sum("v")).rows()
    return int(row[0])


def replicas_agree(store: crescando.Store) -> None:
    """Every live replica of every range shows the same rows."""
    shown: dict[object, set[tuple[object, ...]]] = {}
    for process, key_range in store.cluster.replicas("counters"):
        rows = sorted(store.cluster.read_replica(process, key_range, "counters").rows())
        shown.setdefault(key_range, set()).add(tuple(rows))
    assert all(len(versions) == 1 for versions in shown.values())


def test_increments_count_once_although_the_lead_router_is_killed_twice() -> None:
    with with_counters(routers=5, storages=3, replication=2, supers=3) as store:
        table = store.table("counters")
        handles = []
        killed = set()
        for _ in range(2):
            lead = store.cluster.status().lead_router
            assert lead is not None
            killed.add(lead)
            handles += kill_under_load(store, table, lead)

            results = [handle.result() for handle in handles]

            assert [result.affected for result in results] == [1] * len(handles)
            positions = [result.position for result in results]
            assert positions == sorted(set(positions))
            assert total(table) == len(handles)
            wait_for(lambda: store.cluster.status().lead_router is not None, "a new leader")
        assert store.cluster.status().lead_router not in killed
        replicas_agree(store)


def test_increments_count_once_although_a_storage_process_is_killed() -> None:
    with with_counters(routers=3, storages=4, replication=3, supers=3) as store:
        table = store.table("counters")

        handles = kill_under_load(store, table, "storage/s2")
        results = [handle.result() for handle in handles]

        assert [result.affected for result in results] == [1] * len(handles)
        assert total(table) == len(handles)
        status = {s.process.node: s for s in store.cluster.status().storages}
        assert (status["s2"].is_alive, status["s2"].reason) == (False, "killed")
        replicas_agree(store)


def test_reads_are_right_while_processes_die() -> None:
    with with_counters(routers=3, storages=4, replication=2, supers=3) as store:
        table = store.table("counters")
        reader = store.session("reader").table("counters")
        submitted, seen, stop = [0], [], threading.Event()
        faults: list[BaseException] = []

        def read() -> None:
            try:
                while not stop.is_set():
                    answer = reader.select(["k", "v"])
                    values = [row[1] for row in answer.rows()]
                    seen.append((answer.position, len(values), sum(values), submitted[0]))
            except BaseException as error:  # noqa: BLE001  # Told by the test.
                faults.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for victim in ("storage/s1", store.cluster.status().lead_router):
                add = table.prepare_update("k = ?", "v = v + 1")
                handles = []
                for burst in range(10):
                    submitted[0] += 50
                    handles += add.many([(n % N_COUNTERS,) for n in range(50)])
                    if burst == 4:
                        assert victim is not None
                        store.cluster.kill(victim)
                for handle in handles:
                    handle.result()
                n_seen = len(seen)
                wait_for(lambda n=n_seen: len(seen) > n or bool(faults), "another read")  # type: ignore[misc]
        finally:
            stop.set()
            thread.join(30)

        assert not faults
        assert [n for _, n, _, _ in seen] == [N_COUNTERS] * len(seen), "no row is missed or doubled"
        assert [p for p, *_ in seen] == sorted({p for p, *_ in seen}), "positions never go back (K04)"
        assert [s for _, _, s, _ in seen] == sorted(s for _, _, s, _ in seen), "sums never go back"
        assert all(got <= known for _, _, got, known in seen)
        assert total(table) == submitted[0]


def test_what_is_reported_as_refused_is_not_visible() -> None:
    with with_counters(routers=3, storages=2, replication=1, supers=3) as store:
        table = store.table("counters")
        add = table.prepare_update("k = ?", "v = v + 1")
        with standstill(store):
            handles = {n: add((n % N_COUNTERS,)) for n in range(IN_FLIGHT)}
        lead = store.cluster.status().lead_router
        assert lead is not None
        store.cluster.kill(lead)
        outcomes: dict[str, int] = {"yes": 0, "no": 0, "unknown": 0}
        for handle in handles.values():
            try:
                handle.result()
                outcomes["yes"] += 1
            except errors.OperationError as error:
                outcomes[error.applied] += 1

        assert outcomes["yes"] <= total(table) <= outcomes["yes"] + outcomes["unknown"]
        assert outcomes["yes"], "some are acknowledged"


def test_the_last_replica_s_death_is_told_and_other_ranges_go_on() -> None:
    with with_counters(storages=2, replication=1) as store:
        schema = store.table("counters").schema
        victim, lost_range = store.cluster.replicas("counters")[0]
        lost = [k for k in range(N_COUNTERS) if lost_range.low <= position_of(schema, k) <= lost_range.high]
        kept = [k for k in range(N_COUNTERS) if k not in lost]
        assert lost
        assert kept

        # A session's numbers become stable in order, so each question has a session of its own.
        tables = {name: store.session(name).table("counters") for name in ("kept", "soon", "later", "reader")}
        store.cluster.kill(victim)

        handles = [tables["kept"].update("k = ?", "v = v + 1", (k,)) for k in kept]
        assert [handle.result().affected for handle in handles] == [1] * len(kept)
        soon = tables["soon"].update("k = ?", {"v": 1}, (lost[0],))
        wait_for(lambda: victim in store.cluster.config().pending, "the suspicion of a majority")
        with pytest.raises(errors.RefusedError) as caught:
            tables["later"].update("k = ?", {"v": 1}, (lost[0],)).result()
        with pytest.raises(errors.RefusedError):
            tables["reader"].select()

        assert caught.value.applied == "no"
        # Ordered before anybody knew that its only owner is dead: unknown, rightly.
        with pytest.raises(errors.DeadlineError):
            soon.result(timeout_s=0.1)
        store.close(timeout_s=0.2)


def test_without_a_majority_of_routers_nothing_is_guessed() -> None:
    store = with_counters(routers=3)
    table = store.table("counters")
    for router in ("router/r1", "router/r2"):
        store.cluster.kill(router)

    handle = table.update("k = 1", {"v": 5})
    with pytest.raises(errors.OperationError) as caught:
        handle.result(timeout_s=0.5)

    assert caught.value.applied == "unknown"
    begin_s = time.monotonic()
    store.close(timeout_s=0.5)
    assert time.monotonic() - begin_s < 5.0
    with pytest.raises(errors.DeadlineError):
        handle.result(timeout_s=0)


def test_a_change_of_the_catalog_ends_with_its_session() -> None:
    store = with_counters(routers=3)
    for router in ("router/r1", "router/r2"):
        store.cluster.kill(router)
    handle = store.create_table_nowait("late", like={"k": [1]}, primary_key="k")
    assert not handle.done()

    store.close(timeout_s=0.1)

    assert handle.done()
    with pytest.raises(errors.DeadlineError, match="closed before"):
        handle.result(timeout_s=0)


def test_a_killed_process_is_named_in_the_status_and_can_be_killed_again() -> None:
    with with_counters(storages=2, replication=2) as store:
        store.cluster.kill("storage/s1")
        store.cluster.kill("storage/s1")

        alive = {str(s.process): s.is_alive for s in store.cluster.status().storages}

        assert alive == {"storage/s1#1": False, "storage/s2#1": True}
        with pytest.raises(errors.SpecError, match="storage/s2"):
            store.cluster.kill("storage/s9")
