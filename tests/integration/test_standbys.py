"""Storage and super processes that an embedded store starts later, and that come back."""

from __future__ import annotations

from functools import partial

import pytest

import crescando
from crescando.errors import RefusedError, SpecError
from crescando.roles.following import configure
from crescando.roles.super import Super
from crescando.routing.rubberband import Suspect
from crescando.types import ProcessId
from tests.integration.stores import COUNTERS, with_counters
from tests.integration.test_failures import wait_for


def storage(node: str, incarnation: int = 1) -> ProcessId:
    return ProcessId("storage", node, incarnation)


def test_a_storage_process_that_starts_later_stands_by() -> None:
    with with_counters(storages=2, replication=2) as store:
        cluster = store.cluster

        assert cluster.start_storage() == storage("s3")
        assert cluster.start_storage("spare") == storage("spare")

        config = cluster.config()
        assert config.storages == {storage("s1"), storage("s2"), storage("s3"), storage("spare")}
        assert set(config.ring.processes) == {storage("s1"), storage("s2")}
        assert [each.process for each in cluster.status().storages if each.is_alive] == [
            storage(node) for node in ("s1", "s2", "s3", "spare")
        ]
        # Tables come and go, and those that stand by follow.
        store.drop_table("counters")
        store.create_table(COUNTERS).insert({"k": [1], "v": [7]}).result()
        assert store.table("counters").select(["v"]).rows() == [(7,)]


def test_a_node_comes_back_as_a_new_incarnation_when_its_process_has_ended() -> None:
    with with_counters(storages=2, replication=2, supers=3) as store:
        cluster = store.cluster
        with pytest.raises(SpecError, match=r"storage/s1#1 runs; end it first"):
            cluster.start_storage("s1")

        cluster.kill("storage/s1")

        assert cluster.start_storage("s1") == storage("s1", 2)
        assert cluster.start_super("u9") == ProcessId("super", "u9", 1)
        cluster.kill("super/u9")
        assert cluster.start_super("u9") == ProcessId("super", "u9", 2)


def test_a_super_that_starts_later_votes_with_the_others() -> None:
    with with_counters(storages=2, replication=2, supers=1) as store:
        cluster = store.cluster
        added = [cluster.start_super(), cluster.start_super()]
        # Clients ask supers for sessions, and the supers they know tell them of the others.
        wait_for(lambda: all(map(partial(hears_clients, store), added)), "the client does not find them")
        cluster.kill("super/u1")
        wait_for(lambda: len(cluster.config().supers) == 2, "the first super is not voted out")

        cluster.kill("storage/s2")

        wait_for(lambda: cluster.config().failed == {storage("s2")}, "the dead process is not voted out")
        assert len(store.table("counters").select(["k"]).rows()) == 40


def hears_clients(store: crescando.Store, me: ProcessId) -> bool:
    """Say whether a super has heard every client there is."""
    core = store.cluster._processes[me].core
    assert isinstance(core, Super)
    return all(core.has_heard(client) for client in store.cluster.config().clients)


def accuse(store: crescando.Store, accused: ProcessId, voter: ProcessId | None = None) -> None:
    """Let a super vote against somebody, by default the only one there is."""
    me = voter or next(iter(store.cluster.config().supers))

    def vote() -> None:
        hosted = store.cluster._processes[me]
        assert isinstance(hosted.core, Super)
        assert hosted.pump is not None
        configure(hosted.core.multicast, me, Suspect(accused))
        hosted.pump.need_turn()

    store.cluster._loop.call(vote)


def test_one_that_lives_and_was_voted_out_comes_back_as_another() -> None:
    with with_counters(storages=2, replication=2) as store:
        cluster = store.cluster

        accuse(store, storage("s2"))

        back = storage("s2", 2)
        wait_for(lambda: back in cluster.config().storages, "it does not come back")
        assert not cluster._processes[storage("s2")].is_running
        # It stands by, and then takes the place that nobody else wants.
        wait_for(
            lambda: set(cluster.config().ring.processes) == {storage("s1"), back}, "it stands by for ever"
        )
        assert len(store.table("counters").select(["k"]).rows()) == 40


def test_a_standby_that_is_asked_to_leave_ends_and_stays_away() -> None:
    with with_counters(storages=2, replication=2) as store:
        cluster = store.cluster
        spare = cluster.start_storage()

        assert cluster.remove(spare) == spare

        wait_for(lambda: not cluster._processes[spare].is_running, "it goes on")
        assert cluster._processes[spare].reason.startswith("left the cluster at position")
        assert cluster.config().storages == {storage("s1"), storage("s2")}
        assert [process for process in cluster._processes if process.node == spare.node] == [spare]
        assert len(store.table("counters").select(["k"]).rows()) == 40


def test_a_super_may_leave_too() -> None:
    with with_counters(storages=2, replication=2, supers=3) as store:
        leaver = store.cluster.remove("super/u2")

        assert leaver == ProcessId("super", "u2", 1)
        assert store.cluster.config().supers == {ProcessId("super", name, 1) for name in ("u1", "u3")}


def test_one_with_a_ring_position_does_not_leave_and_goes_on() -> None:
    with with_counters(storages=2, replication=2) as store:
        with pytest.raises(RefusedError, match="storage/s2#1 cannot leave while it holds a ring position"):
            store.cluster.remove("s2")

        assert store.cluster.config().storages == {storage("s1"), storage("s2")}
        assert len(store.table("counters").select(["k"]).rows()) == 40
        # Should it be taken for dead now, that is no leave.
        accuse(store, storage("s2"))
        wait_for(lambda: storage("s2", 2) in store.cluster.config().storages, "it does not come back")


def test_one_that_is_no_member_cannot_leave() -> None:
    with with_counters(storages=2, replication=2) as store, pytest.raises(SpecError, match="s9"):
        store.cluster.remove("s9")
