"""A ring that is contracted by force below the copies that are promised, and expanded again, under load."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from crescando.roles.healing import HealingPolicy
from crescando.routing.rubberband.keyspace import Contract, Expand, Transformation
from crescando.testing.crash_matrix import SPEC
from crescando.testing.elastic import ElasticCluster
from crescando.testing.elastic_run import judge_elastic
from crescando.testing.simulation import EVENTS_MAX, load, run_to_rest
from tests.simulation.judge import TwinJudge, world_of
from tests.simulation.runs import small_engine

SPAN_S = 6.0


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_serves_and_expansions_bring_the_copies_back(seed: int) -> None:
    spec = replace(SPEC, storages=3, replication=3, healing=HealingPolicy("wait"))
    world = ElasticCluster(seed, engine=small_engine, spec=spec, n_standbys=0)
    scripts = [world.add_client(name) for name in ("c1", "c2")]
    load(world, 0.05, SPAN_S)
    ring = world.newest().ring
    kept: list[int] = []

    def change(transformation: Transformation) -> None:
        kept.append(world.newest().ring.replication)
        assert world.begin(scripts[0], world.newest(), transformation) is not None

    first, second, _ = zip(ring.processes, ring.ids, strict=True)
    for when_s, transformation in (
        (1.0, Contract(first[0], force=True)),
        (2.0, Contract(second[0], force=True)),
        (3.0, Expand(*first)),
        (4.5, Expand(*second)),
    ):
        world.time.call_at(when_s, partial(change, transformation))
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    run_to_rest(world)
    verdict = judge_elastic(world, [], TwinJudge(), world_of)

    assert verdict.is_correct, f"seed {seed}: {verdict.violations[:5]}"
    assert verdict.counted["changes_ended"] == 4
    assert kept == [3, 2, 1, 2]
    assert world.newest().ring == ring
