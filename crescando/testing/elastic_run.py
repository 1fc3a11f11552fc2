"""One seed of a cluster that grows, shrinks and heals: run under faults, healed, judged."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crescando.engine.base import Engine
from crescando.testing.checkers import Violations
from crescando.testing.elastic import ELASTIC_KINDS, ElasticCluster, draw_elastic_faults
from crescando.testing.factories import Factories
from crescando.testing.faults import Fault
from crescando.testing.judge import ConfigJudge, Judge
from crescando.testing.layouts import outside
from crescando.testing.simulation import EVENTS_MAX, SPAN_S, Check, Facts, judge_cluster, load, run_to_rest
from crescando.testing.stages import WatchedEngine
from crescando.testing.verdict import Verdict

CHANGES_MIN = 3
"""Transformations that begin while there are load and faults."""

LONGER_S = 6.0
"""Further time that a run may take for it."""


def run_elastic_seed(
    seed: int,
    *,
    engine: Callable[[], Engine],
    judge: Judge | None = None,
    view: Callable[[Any], Any] = lambda config: config,
    factories: Factories | None = None,
    faults: Sequence[Fault] | None = None,
    kinds: tuple[str, ...] = ELASTIC_KINDS,
    cluster: Callable[..., ElasticCluster] = ElasticCluster,
    further: Sequence[Check] = (),
) -> Verdict:
    """Run one seed; see `simulation.run_seed` for the parameters.

    Parameters
    ----------
    cluster : callable
        Makes the world.
    further : sequence of Check
        What is checked beside.
    """
    world = cluster(seed, engine=engine, factories=factories)
    drawn = draw_elastic_faults(world.rng, span_s=SPAN_S, kinds=kinds)
    drawn = drawn if faults is None else list(faults)
    for number in range(1, 4):
        world.add_client(f"c{number}")
    for fault in drawn:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    load(world, 0.05, SPAN_S)
    _administer(world, SPAN_S)
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    _run_longer(world, SPAN_S + LONGER_S)
    world.counted["under_faults"] = len(world.stages.known)
    world.aims.clear()
    world.heal()
    # Faults may leave nobody who could have begun enough.
    _run_longer(world, world.time.now_s() + LONGER_S)
    world.counted["begun_under_load"] = len(world.stages.known)
    # One more in peace: it must end.
    world.later(2.0, world.administer)
    run_to_rest(world)
    return judge_elastic(world, drawn, judge or ConfigJudge(), view, further)


def _administer(world: ElasticCluster, until_s: float) -> None:
    """Schedule transformations."""
    rng = random.Random(f"{world.seed}/begins")
    when_s = rng.uniform(0.2, 1.0)
    while when_s < until_s:
        world.time.call_at(when_s, world.administer)
        when_s += rng.expovariate(1.0)


def _run_longer(world: ElasticCluster, end_s: float) -> None:
    """Go on, under load and the faults there are, until enough has begun."""
    while len(world.stages.known) < CHANGES_MIN and world.time.now_s() < end_s:
        now_s = world.time.now_s()
        if not any(map(world.newest().is_member, world.alive("client"))):
            # All were cut off for so long that they were voted out.
            world.add_client(f"c{len(world.clients) + 1}")
        load(world, now_s, now_s + 0.5)
        world.administer()
        world.time.run_until(now_s + 0.5, events_max=EVENTS_MAX)


def judge_elastic(
    world: ElasticCluster,
    faults: list[Fault],
    judge: Judge,
    view: Callable[[Any], Any],
    further: Sequence[Check] = (),
) -> Verdict:
    """Judge a run that is over."""
    verdict = judge_cluster(world, faults, judge, view, further=(check_changes, check_rest, *further))
    verdict.counted.update({f"step_{step}": n for step, n in world.stages.counted.items()})
    return verdict


def check_changes(world: ElasticCluster, facts: Facts) -> Violations:
    """Every change has ended, or was dropped, once the cluster is healed; counts what became of them."""
    found: Violations = []
    for fate in facts.layouts.fates:
        world.count("changes")
        became = "open" if fate.is_open else "ended" if fate.ended is not None else "dropped"
        world.count(f"{became}_{fate.kind}")
        world.count(f"changes_{became}")
        if fate.is_open:
            ready = next(each.ready for each in facts.layouts.last.changes if each.id == fate.change.id)
            found.append(
                f"moves: the {fate.kind} that began at {fate.began} is under way for ever; of its "
                f"copies {fate.change.copies} {ready} are ready"
            )
    return found


def check_rest(world: ElasticCluster, facts: Facts) -> Violations:
    """Rows and memory are what the last ring asks for, and nothing is left of any change."""
    config = facts.layouts.last
    found = [f"healing: {process} is still on the ring" for process in sorted(world.wounds(config))]
    gc.collect()
    for process in sorted(world.storages()):
        engine = world.nodes[process].engine
        if process not in facts.correct or not isinstance(engine, WatchedEngine) or config.changes:
            continue
        owned = config.owned_arcs(process)
        wrong = [*outside(engine.arcs, owned), *outside(owned, engine.arcs)]
        if wrong:
            found.append(f"rest: {process} holds {engine.arcs}, not {owned}")
        if engine.images:
            found.append(f"rest: {process} has {len(engine.images)} images open")
        if len(engine.areas):
            found.append(f"rest: {process} has {len(engine.areas)} areas beside its engine")
        if not owned and engine.statistics()["rows"]:
            found.append(f"rest: {process} owns nothing and has {engine.statistics()['rows']} rows")
    for process, peer in world.network.sessions():
        if process.role == peer.role == "storage" and not config.changes:
            found.append(f"rest: {process} and {peer} still have a session")
    return found
