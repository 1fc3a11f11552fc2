"""Routers that are added, removed and restarted while a store is at work."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest

import crescando
from crescando import agg
from crescando.consensus.membership import MEMBERS_MAX
from crescando.errors import CrescandoError, SpecError
from crescando.spec import ClusterSpec
from tests.integration.stores import N_COUNTERS, with_counters
from tests.integration.test_failures import wait_for


class Load:
    """Increments of one counter from a thread of their own, while a block lasts."""

    def __init__(self, store: crescando.Store) -> None:
        self.done = 0
        self.errors: list[Exception] = []
        self._table = store.table("counters")
        self._begun, self._end = Event(), Event()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        add = self._table.prepare_update("k = ?", "v = v + 1")
        self._begun.set()
        while not self._end.is_set():
            try:
                self.done += sum(handle.result().affected for handle in [add((7,)) for _ in range(20)])
            except CrescandoError as error:
                self.errors.append(error)

    def check(self) -> None:
        """Everything acknowledged counts once, and nothing failed."""
        assert not self.errors
        assert self.done > 0
        assert self._table.aggregate(total=agg.sum("v")).rows() == [(self.done,)]

    def __enter__(self) -> Load:
        self._thread.start()
        # To prepare takes long where much else is to be done: what is tried would be over before.
        assert self._begun.wait(120.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def store() -> Iterator[crescando.Store]:
    with with_counters(routers=3, storages=2, replication=2) as store:
        yield store


def alive(store: crescando.Store) -> list[str]:
    return sorted(str(status.process) for status in store.cluster.status().routers if status.is_alive)


def test_every_router_is_replaced_by_another_while_writes_go_on(store: crescando.Store) -> None:
    with Load(store) as load:
        for node in ("r1", "r2", "r3"):
            store.cluster.add_router()
            store.cluster.remove_router(f"router/{node}")

    load.check()
    assert alive(store) == ["router/r4#1", "router/r5#1", "router/r6#1"]


def test_a_killed_router_comes_back_as_a_new_incarnation(store: crescando.Store) -> None:
    with Load(store) as load:
        for node in ("r1", "r2", "r1"):
            store.cluster.kill(f"router/{node}")
            store.cluster.restart_router(f"router/{node}")

    load.check()
    assert alive(store) == ["router/r1#3", "router/r2#2", "router/r3#1"]


def test_a_session_that_begins_after_all_routers_are_new_finds_them(store: crescando.Store) -> None:
    for node in ("r1", "r2", "r3"):
        store.cluster.restart_router(f"router/{node}")

    with store.session("late") as session:
        assert session.table("counters").aggregate(n=agg.count()).rows() == [(N_COUNTERS,)]


def test_a_standby_takes_the_place_of_a_router_that_died() -> None:
    spec = ClusterSpec(routers=3, storages=1, standby_routers=1)
    with crescando.open(spec=spec, seed=1) as store:
        wait_for(lambda: store.cluster.status().lead_router is not None, "somebody leads")
        lead = store.cluster.status().lead_router
        assert lead is not None
        store.cluster.kill(lead)

        wait_for(lambda: "r4" in {member.node for member in store.cluster.routers()}, "r4 is a member")
        assert lead not in store.cluster.routers()


def test_a_store_of_one_router_grows_and_moves_to_the_new_one() -> None:
    with with_counters(routers=1, storages=1, replication=1) as store:
        with Load(store) as load:
            store.cluster.add_router()
            store.cluster.remove_router("router/r1")
        load.check()

        assert alive(store) == ["router/r2#1"]


@pytest.mark.parametrize("routers", [1, 2])
def test_a_router_without_which_there_is_no_majority_is_not_restarted(routers: int) -> None:
    with with_counters(routers=routers, storages=1, replication=1) as store:
        with pytest.raises(CrescandoError, match="no majority"):
            store.cluster.restart_router("router/r1")

        assert store.table("counters").aggregate(n=agg.count()).rows() == [(N_COUNTERS,)]


def test_a_router_that_is_refused_does_not_go_on(store: crescando.Store) -> None:
    for _ in range(MEMBERS_MAX - 3):
        store.cluster.add_router()

    with pytest.raises(CrescandoError, match="at most"):
        store.cluster.add_router()

    assert len(alive(store)) == MEMBERS_MAX


def test_the_last_router_cannot_be_removed() -> None:
    with crescando.open() as store, pytest.raises(CrescandoError, match="last member"):
        store.cluster.remove_router("router/r1")


def test_what_is_no_router_cannot_be_removed(store: crescando.Store) -> None:
    with pytest.raises(SpecError, match="no router"):
        store.cluster.remove_router("storage/s1")
    with pytest.raises(SpecError, match="no process"):
        store.cluster.remove_router("router/r9")


def test_a_removal_that_leaves_no_majority_alive_is_refused(store: crescando.Store) -> None:
    store.cluster.kill("router/r3")

    with pytest.raises(CrescandoError, match="no majority"):
        store.cluster.remove_router("router/r2")


def test_removing_a_router_twice_changes_nothing_the_second_time(store: crescando.Store) -> None:
    store.cluster.remove_router("router/r3")

    store.cluster.remove_router("router/r3")

    assert alive(store) == ["router/r1#1", "router/r2#1"]


def test_an_even_number_of_routers_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="no more failures than 3"):
        ClusterSpec(routers=4)
