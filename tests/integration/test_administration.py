"""A cluster that is looked at and changed by its administrators, over their own sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

import crescando
from crescando.administration import moves
from crescando.administration.events import Occurrence
from crescando.administration.moves import Move
from crescando.administration.verbs import Administration
from crescando.cluster import Cluster
from crescando.errors import (
    ClosedError,
    CrescandoError,
    DeadlineError,
    MoveDroppedError,
    NoQuorumError,
    RefusedError,
    SpecError,
    StatementError,
)
from crescando.roles.super import SuperTiming
from crescando.routing.rubberband.happenings import Began, Dropped, Joined, Left, TableChanged
from crescando.spec import ClusterSpec
from crescando.types import ProcessId
from tests.integration.stores import COUNTERS, N_COUNTERS, with_counters
from tests.integration.test_failures import wait_for

SECONDS = 60.0
"""Longer than anything here takes on any machine."""


@pytest.fixture
def store() -> Iterator[crescando.Store[Cluster]]:
    with with_counters(routers=3, storages=4, supers=3, replication=2) as store:
        yield store


@pytest.fixture
def patient() -> Iterator[crescando.Store[Cluster]]:
    """A store whose supers suspect nobody, so that a change waits for a process that was killed."""
    timing = SuperTiming(suspicion_s=600.0, refusals=1_000_000)
    spec = ClusterSpec(routers=3, storages=4, supers=3, replication=2, super_=timing)
    with crescando.open(spec=spec, seed=1) as store:
        store.create_table(COUNTERS).insert({"k": list(range(N_COUNTERS)), "v": [0] * N_COUNTERS}).result()
        yield store


def stuck(store: crescando.Store[Cluster]) -> Move:
    """Begin an expansion whose receiver does not answer."""
    newcomer = store.cluster.start_storage()
    store.cluster.kill(newcomer)
    move = store.cluster.expand(newcomer)
    wait_for(lambda: move.progress.state == "copying", "the change is under way", SECONDS)
    return move


# Looking.


def test_a_status_tells_everything_and_reads_well(store: crescando.Store[Cluster]) -> None:
    newcomer = store.cluster.start_storage()

    status = store.cluster.status()

    assert status.lead_router in {each.process for each in status.routers}
    assert [place.process.node for place in status.ring] == ["s1", "s2", "s3", "s4"]
    assert {place.state for place in status.ring} == {"serving"}
    assert [len(each.owners) for each in status.ranges] == [2, 2, 2, 2]
    assert status.standbys == (newcomer,)
    assert (status.failed, status.unavailable, status.degraded, status.changes) == ((), (), (), ())
    assert not status.stale
    text = str(status)
    assert "ring of 4, 2 copies of each row" in text
    assert "on standby: storage/s5#1" in text
    assert "storage/s3#1  serving" in text


def test_a_status_names_who_failed_and_what_lacks_copies() -> None:
    timing = SuperTiming(suspicion_s=0.5, ping_s=0.1)
    spec = ClusterSpec(routers=1, storages=3, supers=3, replication=2, super_=timing)
    with crescando.open(spec=spec, seed=1) as store:
        store.cluster.kill("s2")
        dead = ProcessId("storage", "s2", 1)
        wait_for(lambda: store.cluster.status().failed == (dead,), "it is voted out", SECONDS)

        status = store.cluster.status()

        assert len(status.degraded) == 2
        assert not status.unavailable
        assert "storage/s2#1  failed (killed)" in str(status)
        assert "fewer copies than promised of 66.7% of the ring" in str(status)


def test_without_a_majority_a_status_says_that_it_is_old() -> None:
    with with_counters(routers=3, storages=2, supers=1, replication=1) as store:
        before = store.cluster.status()
        for router in ("r1", "r2"):
            store.cluster.kill(router)

        def old() -> bool:
            return bool(store.cluster.status(timeout_s=SECONDS).stale)

        wait_for(old, "nobody leads", SECONDS)
        status = store.cluster.status(timeout_s=SECONDS)
        assert status.ring == before.ring
        assert "may be old" in str(status)
        with pytest.raises((NoQuorumError, DeadlineError)):
            store.cluster.expand().result(SECONDS)


def test_a_plan_changes_nothing_and_tells_the_rows(store: crescando.Store[Cluster]) -> None:
    store.cluster.start_storage()

    plan = store.cluster.plan("replace", "s1")

    held = {str(process): n for process, n in rows_of(store).items()}
    assert plan.rows == held["storage/s1#1"]
    assert plan.n_bytes > 0
    assert plan.is_complete
    assert not plan.refusal
    assert f"storage/s1#1 gives up {plan.rows} rows" in str(plan)
    assert not store.cluster.status().changes
    assert not any(isinstance(each.what, Began) for each in store.cluster.events(timeout_s=0.2))


def rows_of(store: crescando.Store[Cluster]) -> dict[ProcessId, int]:
    """Count what each process holds, by reading it."""
    found: dict[ProcessId, int] = {}
    for process, key_range in store.cluster.replicas("counters"):
        n = len(store.cluster.read_replica(process, key_range, "counters").rows())
        found[process] = found.get(process, 0) + n
    return found


def test_one_heavy_position_is_warned_of() -> None:
    with crescando.open(storages=4, replication=1) as store:
        table = store.create_table("visits", like={"page": [1], "n": [1]}, partition_key="page")
        table.insert({"page": [7] * 300 + list(range(100, 200)), "n": [0] * 400}).result()
        store.cluster.start_storage()

        plan = store.cluster.plan("expand")

        (warning,) = plan.warnings
        assert "alone holds 300 rows, more than 1/10 of all" in warning


# What goes wrong.

WRONG: dict[str, tuple[Callable[[Cluster], Move], str]] = {
    "nobody stands by": (lambda cluster: cluster.expand(), "start one"),
    "an unknown process": (lambda cluster: cluster.contract("s17"), "is called s17"),
    "no storage process": (lambda cluster: cluster.replace("router/r1"), "is called router/r1"),
    "a position that is taken": (lambda cluster: cluster.rebalance("s2", at=0), "is taken by storage/s1#1"),
    "one that serves as a newcomer": (lambda cluster: cluster.expand("s2"), "has a ring position already"),
    "nobody to replace by": (lambda cluster: cluster.replace("s2"), "start one"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_fails_with_one_clear_error(name: str, store: crescando.Store[Cluster]) -> None:
    ask, text = WRONG[name]

    move = ask(store.cluster)

    with pytest.raises(SpecError, match=text):
        move.result(SECONDS)
    assert move.progress.state == "failed"
    assert not store.cluster.status().changes


def test_a_ring_of_as_many_processes_as_copies_is_not_contracted() -> None:
    with (
        with_counters(storages=2, replication=2, supers=1) as store,
        pytest.raises(SpecError, match="2 replicas need as many processes"),
    ):
        store.cluster.contract("s1").result(SECONDS)


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.expand(at=-1),
        lambda cluster: cluster.expand(at="middle"),
        lambda cluster: cluster.contract(None),
        lambda cluster: cluster.replace(5),
        lambda cluster: cluster.plan("explode"),
    ],
)
def test_what_no_cluster_can_do_is_said_at_once(
    ask: Callable[[Any], object], store: crescando.Store[Cluster]
) -> None:
    with pytest.raises(SpecError):
        ask(store.cluster)


def test_a_move_that_is_cancelled_leaves_the_layout(
    patient: crescando.Store[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The supers tell what became of it, however long it takes them.
    monkeypatch.setattr(moves, "LOOKS", SECONDS / moves.POLL_S)
    ring = patient.cluster.config().ring
    move = stuck(patient)
    behind = patient.cluster.rebalance("s2", at=99)
    wait_for(lambda: behind.progress.state == "queued", "it is queued", SECONDS)

    def alike() -> bool:
        told = [change.progress for change in patient.cluster.status().changes]
        return told == [move.progress, behind.progress]

    # Each is how things were at some look: a receiver that was late for one is in time for the next.
    wait_for(alike, "a status tells of both what their looks do", SECONDS)

    move.cancel("changed my mind")

    with pytest.raises(MoveDroppedError, match="changed my mind") as dropped:
        move.result(SECONDS)
    assert dropped.value.applied == "no"
    with pytest.raises(MoveDroppedError, match="behind a change that was dropped"):
        behind.result(SECONDS)
    assert patient.cluster.config().ring == ring
    assert (move.progress.state, behind.progress.state) == ("dropped", "dropped")
    assert patient.table("counters").count() == N_COUNTERS
    move.cancel()


def test_whoever_comes_after_a_dead_administrator_finds_the_move_and_may_end_it(
    patient: crescando.Store[Cluster],
) -> None:
    first = Administration(patient.cluster.connect)
    newcomer = patient.cluster.start_storage()
    patient.cluster.kill(newcomer)
    begun = first.expand(newcomer)
    wait_for(lambda: begun.progress.state == "copying", "the change is under way", SECONDS)
    first.leave(SECONDS)
    with pytest.raises(ClosedError, match="the change goes on"):
        begun.result(SECONDS)
    with pytest.raises(ClosedError):
        first.expand()

    (found,) = patient.cluster.moves()
    assert found.change == begun.change
    assert "storage/s5#1 takes ring position" in repr(found)
    found.cancel()

    with pytest.raises(MoveDroppedError):
        found.result(SECONDS)
    assert patient.cluster.moves() == ()


def test_an_administrator_that_was_cut_off_comes_back_under_a_new_name(
    patient: crescando.Store[Cluster],
) -> None:
    move = stuck(patient)
    stream = patient.cluster.events(timeout_s=SECONDS)
    assert next(stream).what == TableChanged("counters", "created")
    # As after its expulsion: nothing more is taken.
    patient.cluster._present().abandon("expelled")

    # The dead receiver does not confirm it, so that nobody waits for it here.
    patient.create_table_nowait("later", like={"a": [1]}, primary_key="a")
    assert len(patient.cluster.status().changes) == 1
    assert TableChanged("later", "created") in (event.what for event in stream)
    move.cancel("enough")

    with pytest.raises(MoveDroppedError, match="enough"):
        move.result(SECONDS)
    patient.close(0.2)


def test_a_deadline_ends_the_wait_and_nothing_else(patient: crescando.Store[Cluster]) -> None:
    move = stuck(patient)

    with pytest.raises(DeadlineError):
        move.result(0.05)
    with pytest.raises(StatementError):
        move.result(-1)

    assert len(patient.cluster.status().changes) == 1


def test_a_standby_and_a_super_are_removed(store: crescando.Store[Cluster]) -> None:
    newcomer = store.cluster.start_storage()

    store.cluster.remove(newcomer)
    store.cluster.remove("u3")

    status = store.cluster.status()
    assert status.standbys == ()
    assert [each.process.node for each in status.supers if each.is_alive] == ["u1", "u2"]
    told = [event.what for event in store.cluster.events(timeout_s=0.3)]
    assert told[-2:] == [Left(newcomer), Left(ProcessId("super", "u3", 1))]


def test_who_holds_a_position_or_has_a_part_is_not_removed(patient: crescando.Store[Cluster]) -> None:
    with pytest.raises(RefusedError, match="while it holds a ring position"):
        patient.cluster.remove("s2")
    with pytest.raises(SpecError, match="is called s9"):
        patient.cluster.remove("s9")
    idle, newcomer = patient.cluster.start_storage(), patient.cluster.start_storage()
    patient.cluster.kill(idle)
    patient.cluster.expand(idle, at=7)
    wait_for(lambda: bool(patient.cluster.status().changes), "the change is under way", SECONDS)
    patient.cluster.rebalance("s1", at=1 << 40)
    patient.cluster.expand(newcomer, at=9)
    wait_for(lambda: len(patient.cluster.status().changes) == 3, "they are queued", SECONDS)

    with pytest.raises(RefusedError, match="has a part in a change"):
        patient.cluster.remove(newcomer)
    assert newcomer in patient.cluster.config().storages


# Events.


def kinds(events: list[Occurrence]) -> list[type]:
    return [type(event.what) for event in events]


def test_events_come_in_order_and_go_on_behind_a_position(store: crescando.Store[Cluster]) -> None:
    newcomer = store.cluster.start_storage()
    stream = store.cluster.events(timeout_s=SECONDS)

    created, joined = islice(stream, 2)

    assert created.what == TableChanged("counters", "created")
    assert joined.what == Joined(newcomer)
    assert created.position < joined.position == stream.position
    store.create_table("later", like={"a": [1]}, primary_key="a")
    (event,) = islice(store.cluster.events(joined.position, timeout_s=SECONDS), 1)
    assert event.what == TableChanged("later", "created")
    assert next(stream) == event


def test_a_stream_goes_on_although_supers_die() -> None:
    spec = ClusterSpec(supers=3, super_=SuperTiming(suspicion_s=0.5, ping_s=0.1))
    with crescando.open(spec=spec, seed=1) as store:
        store.create_table(COUNTERS)
        streamed_while_supers_die(store)


def streamed_while_supers_die(store: crescando.Store[Cluster]) -> None:
    stream = store.cluster.events(timeout_s=SECONDS)
    seen = [next(stream)]
    for n, victim in enumerate(("u1", "u2")):
        store.cluster.kill(victim)
        store.create_table(f"t{n}", like={"a": [1]}, primary_key="a")
        seen.append(next(event for event in stream if isinstance(event.what, TableChanged)))

    assert [event.what.name for event in seen if isinstance(event.what, TableChanged)] == [
        "counters",
        "t0",
        "t1",
    ]
    assert [event.position for event in seen] == sorted({event.position for event in seen})


def test_a_stream_without_events_ends_with_its_time(store: crescando.Store[Cluster]) -> None:
    position = store.cluster.status().position

    assert list(store.cluster.events(position, timeout_s=0.1)) == []


def test_a_stream_ends_with_the_store() -> None:
    store = with_counters()
    stream = store.cluster.events(timeout_s=SECONDS)
    next(stream)

    store.close()

    assert list(stream) == []


# In an event loop.


def test_everything_can_be_awaited(patient: crescando.Store[Cluster]) -> None:
    cluster = patient.cluster
    newcomer = cluster.start_storage()
    cluster.kill(newcomer)

    async def administer() -> list[type]:
        plan = await cluster.plan_nowait("expand")
        assert plan.transformation is not None
        move = cluster.expand(newcomer)
        seen = []
        async for event in cluster.events(timeout_s=SECONDS):
            seen.append(event)
            if isinstance(event.what, Began):
                assert (await cluster.status_nowait()).changes[0].change == event.what.change
                (found,) = await cluster.moves_nowait()
                found.cancel()
            if isinstance(event.what, Dropped):
                break
        with pytest.raises(MoveDroppedError):
            await move
        with pytest.raises(CrescandoError, match="would block the running event loop"):
            cluster.status()
        return kinds(seen)

    assert asyncio.run(administer()) == [TableChanged, Joined, Began, Dropped]
