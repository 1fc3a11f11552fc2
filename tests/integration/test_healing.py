"""Storage processes killed under load: standbys take their places, and nothing is lost."""

from __future__ import annotations

import threading

import crescando
from crescando import agg
from crescando.roles.healing import HealingPolicy
from crescando.roles.super import SuperTiming
from crescando.spec import ClusterSpec
from crescando.types import ProcessId
from tests.integration.stores import COUNTERS, N_COUNTERS
from tests.integration.test_failures import replicas_agree, wait_for
from tests.integration.test_standbys import accuse

WAIT_S = 120.0


def healing_store(n: int, f: int, policy: HealingPolicy | None = None) -> crescando.Store:
    """Open a store whose supers heal it, with counters 0 … 39, each at 0."""
    spec = ClusterSpec(
        routers=3,
        storages=n,
        supers=3,
        replication=f,
        super_=SuperTiming(suspicion_s=1.5, ping_s=0.25),
        healing=policy or HealingPolicy("replace", delay_s=0.5),
    )
    store = crescando.open(spec=spec, seed=1)
    table = store.create_table(COUNTERS)
    table.insert({"k": list(range(N_COUNTERS)), "v": [0] * N_COUNTERS}).result()
    return store


def is_whole(store: crescando.Store) -> bool:
    """Say whether every ring member lives and nothing is under way."""
    config = store.cluster.config()
    return not config.failed and not config.changes


class Load:
    """Increments every counter again and again, and sums them up, until it is stopped."""

    def __init__(self, store: crescando.Store) -> None:
        self._table = store.table("counters")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.increments = 0
        self.failed: list[Exception] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._table.update("k >= 0", set={"v": crescando.col("v") + 1}).result(60)
                self.increments += 1
                (total,) = self._table.aggregate(total=agg.sum("v")).rows()
                assert total[0] == N_COUNTERS * self.increments
            except Exception as error:  # noqa: BLE001  # The test tells.
                self.failed.append(error)
                return

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(120)


def test_two_of_six_killed_at_once_are_replaced_under_load() -> None:
    with healing_store(6, 3) as store:
        cluster = store.cluster
        standbys = {cluster.start_storage(), cluster.start_storage()}
        load = Load(store)

        cluster.kill("storage/s2")
        cluster.kill("storage/s3")

        wait_for(lambda: bool(cluster.config().failed), "nobody is voted out", WAIT_S)
        wait_for(lambda: is_whole(store), "they are not replaced", WAIT_S)
        load.stop()
        assert load.failed == []
        assert load.increments > 0
        config = cluster.config()
        assert standbys < set(config.ring.processes)
        assert len(config.ring.processes) == 6
        replicas_agree(store)
        # Now those that held everything may die in turn.
        for node in ("s1", "s4"):
            cluster.kill(f"storage/{node}")
        rows = store.table("counters").select(["k", "v"]).rows()
        assert sorted(rows) == [(k, load.increments) for k in range(N_COUNTERS)]


def test_a_standby_that_dies_while_it_receives_is_followed_by_the_next() -> None:
    with healing_store(3, 2) as store:
        cluster = store.cluster
        first = cluster.start_storage()
        cluster.kill("storage/s2")
        wait_for(lambda: bool(cluster.config().changes) or is_whole(store), "nothing begins", WAIT_S)
        cluster.kill(first)

        second = cluster.start_storage()

        wait_for(lambda: second in cluster.config().ring.processes and is_whole(store), "no cure", WAIT_S)
        replicas_agree(store)
        assert len(store.table("counters").select(["k"]).rows()) == N_COUNTERS


def test_the_ring_shrinks_when_nobody_comes() -> None:
    with healing_store(4, 2, HealingPolicy("shrink", shrink_after_s=1.0)) as store:
        store.cluster.kill("storage/s3")

        wait_for(lambda: bool(store.cluster.config().failed), "nobody is voted out", WAIT_S)
        wait_for(lambda: is_whole(store), "it does not shrink", WAIT_S)
        assert store.cluster.config().ring.processes == tuple(
            ProcessId("storage", node, 1) for node in ("s1", "s2", "s4")
        )
        replicas_agree(store)


def test_one_taken_for_dead_comes_back_and_takes_its_own_place() -> None:
    with healing_store(3, 2) as store:
        cluster = store.cluster
        victim = ProcessId("storage", "s2", 1)
        for voter in sorted(cluster.config().supers)[:2]:
            accuse(store, victim, voter)

        back = ProcessId("storage", "s2", 2)
        wait_for(lambda: back in cluster.config().ring.processes and is_whole(store), "no return", WAIT_S)
        replicas_agree(store)
