"""Whole clusters in which storage processes die, and standbys that join take their places, under one seed."""

from __future__ import annotations

import random
from functools import partial

import pytest

from crescando.roles.healing import HealingPolicy
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import Rubberband
from crescando.spec import ClusterSpec
from crescando.testing.faults import Fault, draw_faults
from crescando.testing.judge import ConfigJudge
from crescando.testing.simulation import judge_cluster, load, run_to_rest
from crescando.types import ProcessId
from tests.simulation.runs import small_engine
from tests.simulation.test_joining import HealingCluster

KINDS = (
    "crash_storage",
    "crash_storage",
    "crash_super",
    "crash_router",
    "pause",
    "partition",
    "reset",
    "slow",
)
N_JOINERS = 4
SPAN_S = 14.0
HEALED_S = 15.0
EVENTS_MAX = 1_000_000


def spec_of(rng: random.Random) -> ClusterSpec:
    n = rng.randint(3, 5)
    return ClusterSpec(
        routers=3,
        storages=n,
        supers=3,
        replication=rng.randint(2, min(3, n)),
        healing=HealingPolicy("replace", delay_s=0.5),
    )


def newest(world: HealingCluster) -> Rubberband:
    """Give the configuration after everything that some router has learned."""
    routers = [node.core for node in world.nodes.values() if isinstance(node.core, Router) and node.is_alive]
    config: Rubberband = max(routers, key=lambda router: router.mseq.position).mseq.config
    return config


def run(seed: int) -> tuple[list[str], list[Fault], int]:
    """Give what was wrong with a run, its faults, and how many processes have taken places."""
    rng = random.Random(f"healing/{seed}")
    world = HealingCluster(seed, engine=small_engine, spec=spec_of(rng))
    for name in ("c1", "c2"):
        world.add_client(name)
    faults = draw_faults(world.rng, span_s=SPAN_S, kinds=KINDS)
    for number in range(N_JOINERS):
        me = ProcessId("storage", f"late{number}", 1)
        world.time.call_at(rng.uniform(0.1, SPAN_S), partial(world.start, me))
    for fault in faults:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    load(world, 0.05, SPAN_S)
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    world.heal()
    run_to_rest(world)
    world.time.run_until(world.time.now_s() + HEALED_S, events_max=EVENTS_MAX)
    violations = list(judge_cluster(world, faults, ConfigJudge(), lambda config: config).violations)
    config = newest(world)
    if config.failed and config.standbys:
        violations.append(f"healing: {sorted(config.failed)} were not replaced by any of {config.standbys}")
    if config.changes:
        violations.append(f"healing: {len(config.changes)} changes have not ended")
    first = world.assembly.config.ring.processes
    return violations, faults, sum(process not in first for process in config.ring.processes)


@pytest.mark.parametrize("first", [0, 5])
def test_standbys_take_the_places_of_the_dead_and_nothing_is_lost(first: int) -> None:
    healed = 0
    for seed in range(first, first + 5):
        violations, faults, n = run(seed)
        assert not violations, f"seed {seed}, faults {faults}: {violations[:5]}"
        healed += n

    assert healed >= 2
