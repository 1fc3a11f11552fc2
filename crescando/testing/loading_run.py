"""One seed of a cluster into which rows are loaded while it grows, shrinks and heals: run, healed, judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from crescando.client.base import WriteOutcome
from crescando.engine.base import Engine
from crescando.testing.checkers import Violations
from crescando.testing.elastic import ELASTIC_KINDS, draw_elastic_faults
from crescando.testing.elastic_run import judge_elastic
from crescando.testing.faults import Fault
from crescando.testing.judge import ConfigJudge
from crescando.testing.loading import LoadingCluster
from crescando.testing.loading_judge import check_counts
from crescando.testing.simulation import EVENTS_MAX, SPAN_S, Facts, load, run_to_rest
from crescando.testing.verdict import Verdict

LOADS = 5
"""Loads that begin while there are load and faults."""


SHORT_LEASE_MS = 6_000
"""Such a lease is over long before a run is."""


def run_loading_seed(
    seed: int,
    *,
    engine: Callable[[], Engine],
    faults: Sequence[Fault] | None = None,
    kinds: tuple[str, ...] = ELASTIC_KINDS,
    n_loads: int = LOADS,
) -> Verdict:
    """Run one seed; see `simulation.run_seed` for the parameters."""
    world = LoadingCluster(seed, engine=engine)
    drawn = draw_elastic_faults(world.rng, span_s=SPAN_S, kinds=kinds)
    drawn = drawn if faults is None else list(faults)
    for number in range(1, 5):
        world.add_client(f"c{number}")
    for fault in drawn:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    load(world, 0.05, SPAN_S)
    rng = random.Random(f"{seed}/begins")
    for _ in range(n_loads):
        world.time.call_at(rng.uniform(0.2, SPAN_S), world.plan)
    for _ in range(3):
        world.time.call_at(rng.uniform(0.2, SPAN_S), world.administer)
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    world.aims.clear()
    world.heal()
    # In peace a load ends well, if anybody is left to load.
    world.later(1.0, world.plan)
    run_to_rest(world)
    return judge_elastic(world, drawn, ConfigJudge(), lambda config: config, further=(check_loads,))


def check_loads(world: LoadingCluster, facts: Facts) -> Violations:
    """Every load has ended, what was told of it is true, and nothing that was staged is left behind."""
    found = list(world.found_in_loads)
    told = {
        (key, what): outcome
        for key, (what, _) in world.load_tokens.items()
        if isinstance(outcome := world.outcomes_of_loads.get(key), (WriteOutcome, Exception))
    }
    found += check_counts(facts.q, world.workload, told)
    for key, (what, _) in world.load_tokens.items():
        if key[0] in facts.correct and key not in world.outcomes_of_loads:
            found.append(f"loads: {key[0]} waits for its {what} {key[1]} for ever")
    config = facts.layouts.last
    found += [
        f"loads: {each.id} is open, though its lease of {each.lease_ms} ms was over long ago"
        for each in config.loads.open
        if each.lease_ms <= SHORT_LEASE_MS
    ]
    for process, core in world.storages().items():
        world.counted["chunks_late"] = world.counted.get("chunks_late", 0) + core.staging.n_late
        if process not in facts.correct:
            continue
        if core.staging.n_lacking and not config.loads.open:
            found.append(f"loads: {process} lacks bytes for ever")
        statistics = world.nodes[process].engine.statistics()
        if config.owned_arcs(process) and not config.loads.open and statistics["staged_rows"]:
            found.append(f"loads: {process} has {statistics['staged_rows']} rows of loads that have ended")
    for arc in config.ring.arcs:
        digests = {
            world.nodes[process].engine.digest_loads(arc)
            for process in world.storages()
            if process in facts.correct and arc in config.owned_arcs(process)
        }
        if len(digests) > 1:
            found.append(f"loads: owners of {arc} have staged different things")
    return found
