"""A store whose storage processes come and go while it is written and read, against a serial oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import crescando
from crescando.administration.moves import Move
from crescando.administration.verbs import Administration
from crescando.client.base import Isolation
from crescando.cluster import Cluster
from crescando.errors import MoveDroppedError, SpecError
from crescando.roles.healing import HealingPolicy
from crescando.roles.super import SuperTiming
from crescando.routing.rubberband.happenings import Began, Dropped, Ended, Failed
from crescando.spec import ClusterSpec
from crescando.types import ProcessId
from tests.integration.mixed_load import SCHEMA, Mixed
from tests.integration.stores import COUNTERS, N_COUNTERS
from tests.integration.test_failures import replicas_agree, wait_for

SECONDS = 300.0
"""Longer than anything here takes on any machine."""

N_ROWS = 20_000
LEVELS: tuple[Isolation, ...] = ("sequential", "snapshot", "basic")


def opened(replication: int, *, storages: int = 4, suspicion_s: float = 30.0) -> crescando.Store[Cluster]:
    """Open a store that takes nobody for dead who only waits for a processor, unless it is told to."""
    timing = SuperTiming(suspicion_s=suspicion_s, ping_s=min(0.5, suspicion_s / 5))
    spec = ClusterSpec(
        routers=3,
        storages=storages,
        supers=3,
        replication=replication,
        super_=timing,
        healing=HealingPolicy(action="wait"),
    )
    return crescando.open(spec=spec, seed=1, timeout_s=SECONDS)


def await_traffic(load: Mixed, until: Callable[[], bool] = lambda: True) -> None:
    """Wait until every stream has gone on, and something has happened."""
    before = load.counts_now()

    def has_gone_on() -> bool:
        return bool(load.faults) or (
            until() and all(now > before[name] for name, now in load.counts_now().items())
        )

    wait_for(has_gone_on, f"streams go on from {before}", SECONDS)


def held(store: crescando.Store[Cluster]) -> dict[str, int]:
    """Give the rows that engines hold, of all tables, by storage process."""
    return {
        name: counters["rows"]
        for name, counters in store.cluster.statistics().items()
        if name.startswith("storage/")
    }


def check_nothing_is_left(store: crescando.Store[Cluster], table: str = SCHEMA.name) -> None:
    """Every engine holds what its process owns, and nothing else."""
    config = store.cluster.config()
    owned = {str(process): 0 for process in config.storages}
    for process, key_range in store.cluster.replicas(table):
        owned[str(process)] += len(store.cluster.read_replica(process, key_range, table))
    assert {name: rows for name, rows in held(store).items() if name in owned} == owned


@pytest.mark.parametrize("replication", [1, 3])
def test_a_store_grows_and_shrinks_under_load(replication: int) -> None:
    with opened(replication) as store:
        cluster = store.cluster
        with Mixed(store, n_rows=N_ROWS, levels=LEVELS, seed=replication) as load:
            await_traffic(load)
            newcomer = cluster.start_storage()
            for begin in (cluster.expand, lambda: cluster.contract(newcomer)):
                move = begin()
                await_traffic(load, move.done)
                moved = move.result(SECONDS)
                assert moved.rows > N_ROWS * replication // 10
                assert move.progress.percent == 100
            await_traffic(load)

        load.check()
        assert cluster.status().standbys == (newcomer,)
        assert len(cluster.config().ring.processes) == 4
        check_nothing_is_left(store)
        assert held(store)[str(newcomer)] == 0


def test_the_oracle_notices_a_write_that_is_missing() -> None:
    with opened(2) as store:
        with Mixed(store, n_rows=100, levels=LEVELS, seed=3) as load:
            await_traffic(load)
        # The last of those that write a whole row: nothing behind it hides that it is missing.
        rows = [each for each in load.done if each.text.startswith(("upsert", "delete"))]
        load.done.remove(max(rows, key=lambda each: (each.text.startswith("upsert"), each.position)))

        with pytest.raises(AssertionError, match="faults, such as"):
            load.check()


def test_every_transformation_and_several_at_once_under_load() -> None:
    with opened(2) as store:
        cluster = store.cluster
        with Mixed(store, n_rows=3_000, levels=LEVELS, seed=7) as load:
            newcomers = [cluster.start_storage() for _ in range(3)]
            moves = [
                cluster.expand(at=1 << 60),
                cluster.expand(),
                # It has its place only when the first one has ended.
                cluster.rebalance(newcomers[0], at=3 << 60),
                cluster.replace("s2", by=newcomers[2]),
                cluster.contract("s4"),
                cluster.rebalance("s3"),
            ]
            await_traffic(load, lambda: all(move.done() for move in moves))
            for move in moves:
                move.result(SECONDS)

        load.check()
        ring = cluster.config().ring
        assert {process.node for process in ring.processes} == {"s1", "s3", "s5", "s6", "s7"}
        assert dict(zip(ring.processes, ring.ids, strict=True))[newcomers[0]] == 3 << 60
        check_nothing_is_left(store)
        kinds = [type(event.what) for event in cluster.events(timeout_s=0.3)]
        assert kinds.count(Began) == kinds.count(Ended) == 6


def with_counters(replication: int, *, suspicion_s: float = 30.0) -> crescando.Store[Cluster]:
    store = opened(replication, suspicion_s=suspicion_s)
    rows = {"k": list(range(N_COUNTERS)), "v": [0] * N_COUNTERS}
    store.create_table(COUNTERS).insert(rows).result()
    return store


def counted(store: crescando.Store[Cluster]) -> int:
    return store.table("counters").count()


def test_two_administrators_at_once_both_have_their_way() -> None:
    with with_counters(2) as store:
        other = Administration(store.cluster.connect)
        try:
            first, second = store.cluster.start_storage(), store.cluster.start_storage()
            moves = [store.cluster.expand(first), other.expand(second)]
            moves += [store.cluster.rebalance("s2", at=5), other.rebalance("s3", at=7)]

            for move in moves:
                move.result(SECONDS)
        finally:
            other.leave(10)

        assert {first, second} <= set(store.cluster.config().ring.processes)
        assert counted(store) == N_COUNTERS
        replicas_agree(store)


def test_a_change_ends_although_its_administrator_dies() -> None:
    with with_counters(2) as store:
        other = Administration(store.cluster.connect)
        newcomer = store.cluster.start_storage()
        move = other.expand(newcomer)
        wait_for(lambda: move.progress.state != "planning" or move.done(), "it is ordered", SECONDS)
        other.leave(10)

        wait_for(
            lambda: newcomer in store.cluster.config().ring.processes and not store.cluster.moves(),
            "it ends",
            SECONDS,
        )
        assert counted(store) == N_COUNTERS
        replicas_agree(store)


def test_a_standby_that_dies_while_it_is_to_receive_drops_the_change() -> None:
    with with_counters(2, suspicion_s=1.0) as store:
        ring = store.cluster.config().ring
        newcomer = store.cluster.start_storage()
        store.cluster.kill(newcomer)
        move = store.cluster.expand(newcomer)
        behind = store.cluster.rebalance("s2", at=5)

        with pytest.raises(MoveDroppedError, match=r"storage/s5#1") as dropped:
            move.result(SECONDS)
        with pytest.raises(MoveDroppedError):
            behind.result(SECONDS)

        assert dropped.value.applied == "no"
        assert store.cluster.config().ring == ring
        assert counted(store) == N_COUNTERS
        told = [event.what for event in store.cluster.events(timeout_s=0.3)]
        assert Failed(newcomer) in told
        assert sum(isinstance(what, Dropped) for what in told) == 2
        # Another one takes its place.
        again = store.cluster.start_storage()
        store.cluster.expand(again).result(SECONDS)
        replicas_agree(store)


def test_a_sender_that_dies_drops_the_change_and_the_next_plan_does_without_it() -> None:
    with with_counters(2, suspicion_s=1.0) as store:
        newcomer = store.cluster.start_storage()
        plan = store.cluster.plan("expand")
        sender = plan.copies[0].sender
        store.cluster.kill(sender)

        def ends(move: Move) -> bool:
            wait_for(move.done, "it ends in some way", SECONDS)
            if move.progress.state == "done":
                return True
            with pytest.raises(MoveDroppedError, match=str(sender)):
                move.result()
            return False

        wait_for(lambda: ends(store.cluster.expand(newcomer)), "it goes without the sender", SECONDS)

        assert newcomer in store.cluster.config().ring.processes
        spare = store.cluster.start_storage()
        store.cluster.replace(sender, by=spare).result(SECONDS)
        assert not store.cluster.status().degraded
        assert counted(store) == N_COUNTERS
        replicas_agree(store)


def test_a_process_that_failed_is_taken_off_the_ring() -> None:
    with with_counters(2, suspicion_s=1.0) as store:
        store.cluster.kill("s2")
        dead = ProcessId("storage", "s2", 1)
        wait_for(lambda: store.cluster.status().failed == (dead,), "it is voted out", SECONDS)
        assert len(store.cluster.status().degraded) == 2

        store.cluster.contract("s2").result(SECONDS)

        status = store.cluster.status()
        assert [place.process.node for place in status.ring] == ["s1", "s3", "s4"]
        assert not status.degraded
        assert counted(store) == N_COUNTERS
        replicas_agree(store)


def test_by_force_fewer_copies_are_kept_than_promised_and_expansions_bring_them_back() -> None:
    with opened(3, storages=3) as store:
        cluster = store.cluster
        with Mixed(store, n_rows=2_000, levels=LEVELS, seed=11) as load:
            await_traffic(load)
            with pytest.raises(SpecError, match="3 replicas need as many processes"):
                cluster.contract("s2").result(SECONDS)
            for node in ("s2", "s3"):
                cluster.contract(node, force=True).result(SECONDS)
                await_traffic(load)
            status = cluster.status()
            assert [place.process.node for place in status.ring] == ["s1"]
            assert status.replication == 3
            assert len(status.degraded) == len(status.ranges)
            with pytest.raises(SpecError, match="nobody else holds anything"):
                cluster.contract("s1", force=True).result(SECONDS)
            for _ in range(2):
                cluster.expand().result(SECONDS)
            await_traffic(load)

        load.check()
        assert not cluster.status().degraded
        check_nothing_is_left(store)


def test_tables_come_and_go_during_a_move() -> None:
    with opened(2) as store:
        tables = [store.create_table(f"t{n}", like={"k": [1], "s": ["x"]}, primary_key="k") for n in range(3)]
        for table in tables:
            table.insert({"k": list(range(4_000)), "s": [f"text {k}" for k in range(4_000)]}).result()
        newcomer = store.cluster.start_storage()
        moves = [store.cluster.expand(newcomer), store.cluster.rebalance("s2", at=5 << 60)]
        made = 0
        while not all(move.done() for move in moves):
            table = store.create_table(f"new{made}", like={"k": [1]}, primary_key="k")
            table.insert({"k": [1, 2, 3]}).result()
            if made == 0:
                store.drop_table("t1")
            made += 1
        for move in moves:
            move.result(SECONDS)

        assert made
        names = {"t0", "t2", *(f"new{n}" for n in range(made))}
        assert set(store.tables()) == names
        for name in sorted(names):
            assert store.table(name).count() == (4_000 if name.startswith("t") else 3)
        shown: dict[object, set[tuple[object, ...]]] = {}
        for name in sorted(names):
            for process, key_range in store.cluster.replicas(name):
                rows = tuple(sorted(store.cluster.read_replica(process, key_range, name).rows()))
                shown.setdefault((name, key_range), set()).add(rows)
        assert all(len(versions) == 1 for versions in shown.values())


def test_large_rows_move_too() -> None:
    with opened(1, storages=2) as store:
        table = store.create_table("large", like={"k": [1], "b": [b""]}, primary_key="k")
        # Several times what one piece of a copy holds otherwise.
        blobs = {k: bytes([k]) * (3 << 20) for k in range(3)}
        for k, blob in blobs.items():
            table.insert([{"k": k, "b": blob}]).result()
        newcomer = store.cluster.start_storage()

        store.cluster.expand(newcomer).result(SECONDS)
        store.cluster.contract("s1").result(SECONDS)

        assert dict(table.select(["k", "b"]).rows()) == blobs


def test_a_move_can_be_awaited() -> None:
    with with_counters(1) as store:

        async def grow_and_shrink() -> tuple[ProcessId, ...]:
            newcomer = await asyncio.to_thread(store.cluster.start_storage)
            await store.cluster.expand()
            await store.cluster.contract(newcomer).wait(SECONDS)
            return (await store.cluster.status_nowait()).standbys

        (standby,) = asyncio.run(grow_and_shrink())

        assert standby.node == "s5"
        assert counted(store) == N_COUNTERS
