"""Supers that see different things: what one of them believes has no effect."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from crescando.roles.super import Super
from crescando.routing.rubberband import Rubberband
from crescando.routing.rubberband.membership import Membership
from crescando.spec import ClusterSpec
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.judge import ConfigJudge, judge_order
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

SPEC = ClusterSpec(routers=3, storages=4, supers=3, replication=2)
LONE = ProcessId("super", "u1", 1)
SPAN_S = 25.0


def suspected(seed: int, *, both: bool) -> tuple[set[ProcessId], int]:
    """Cut one super off from all storage processes; gives who was declared failed, and its accusations.

    `both` says in which directions nothing gets through.
    """
    world = SimulatedCluster(seed, engine=small_engine, spec=SPEC)
    storages = world.assembly.names.storages
    client = world.add_client("c1")
    pairs = {(storage, LONE) for storage in storages}
    if both:
        pairs |= {(LONE, storage) for storage in storages}
    world.time.call_at(1.0, partial(world.network.faults.cut.update, pairs))
    when_s = 0.05
    while when_s < SPAN_S:
        when_s += client.rng.expovariate(2.0)
        world.time.call_at(when_s, partial(world.burst, client, client.rng.choice((1, 3))))
    world.time.run_until(SPAN_S, events_max=400_000)
    known = world.trace.learned.values()
    learned = sorted({instance: batch for each in known for instance, batch in each}.items())
    q = judge_order(learned, world.assembly.config, ConfigJudge())
    lone = world.nodes[LONE].core
    assert isinstance(lone, Super)
    assert isinstance(q.view, Rubberband)
    return set(q.suspected), lone.suspicions


@pytest.mark.parametrize("seed", range(6))
def test_a_lone_super_cut_off_from_all_storage_has_nobody_declared_failed(seed: int) -> None:
    gone, accusations = suspected(seed, both=seed % 2 == 0)

    assert gone == set(), f"seed {seed}"
    assert accusations >= SPEC.storages, f"seed {seed}: it has not even noticed"


@pytest.mark.parametrize(("supers", "left"), [(1, 0), (3, 1)])
def test_what_waits_for_the_dead_without_a_majority_of_supers_ends_when_more_are_started(
    supers: int, left: int
) -> None:
    spec = replace(SPEC, supers=supers)
    world = SimulatedCluster(0, engine=small_engine, spec=spec)
    client = world.add_client("c1")
    world.time.run_until(1.0)
    for victim in [*world.alive("super")[left:], world.alive("storage")[0]]:
        world.crash(victim, "crash")
    world.burst(client, 40)
    world.time.run_until(20.0)
    assert not world.is_at_rest, "nothing waits for the dead"
    assert world.suspected() == set()

    world.start(ProcessId("super", "late", 1))
    world.time.run_until(40.0)

    assert world.is_at_rest
    dead = {process for process, node in world.nodes.items() if not node.is_alive}
    assert world.suspected() == dead | ({client.core.me} if not left else set())


def test_planted_suspicion_by_one_super_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def convicted(self: Membership) -> tuple[ProcessId, ...]:
        return tuple(sorted({accused for accused, _ in self.votes}))

    monkeypatch.setattr(Membership, "convicted", convicted)

    gone, _ = suspected(0, both=True)

    assert {process.role for process in gone} == {"storage"}
