"""One seed of the order alone, from beginning to verdict: run it under faults, heal it, judge it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.router import Router
from crescando.testing.checkers import (
    Violations,
    check_agreement,
    check_delivery,
    check_liveness,
    check_order,
    check_scopes,
    check_verdicts,
)
from crescando.testing.factories import Factories
from crescando.testing.faults import Fault, draw_faults
from crescando.testing.groups import GroupsScenario
from crescando.testing.judge import Judgement, judge_order
from crescando.testing.order import OrderWorld
from crescando.testing.order_faults import ORDER_KINDS
from crescando.testing.scenario import Scenario
from crescando.testing.situations import odd_duplicates
from crescando.testing.verdict import Verdict
from crescando.types import ProcessId

ORDER_SPAN_S = 2.5
"""Virtual time of load and faults."""

ORDER_LIVENESS_S = 30.0
"""Virtual time after healing within which everything must have come to an end."""

ORDER_EVENTS_MAX = 60_000
"""More events than this mean that something goes round in circles."""

LENGTHS_S = (0.02, 0.1, 0.5, 1.2)


def draw_order_faults(seed: int, kinds: tuple[str, ...] = ORDER_KINDS) -> list[Fault]:
    """Give the schedule of a seed."""
    rng = random.Random(f"{seed}/faults")
    return draw_faults(rng, span_s=ORDER_SPAN_S, kinds=kinds, lengths_s=LENGTHS_S, n_max=9)


def run_order_seed(
    seed: int,
    *,
    scenario: Scenario | None = None,
    factories: Factories | None = None,
    faults: Sequence[Fault] | None = None,
    kinds: tuple[str, ...] = ORDER_KINDS,
) -> Verdict:
    """Run one seed of the order alone.

    Parameters
    ----------
    seed : int
    scenario : Scenario, optional
        The Config under test and its messages; groups of processes by default.
    factories : Factories, optional
        Other process parts, to plant a fault.
    faults : sequence of Fault, optional
        A schedule instead of the seed's own, to replay or cut down a failure.
    kinds : tuple of str, optional
        The kinds of fault to draw from.
    """
    drawn = draw_order_faults(seed, kinds) if faults is None else list(faults)
    world = OrderWorld(seed, scenario=scenario or GroupsScenario(), factories=factories)
    run_order(world, drawn)
    return judge_world(world, drawn)


def run_order(world: OrderWorld, faults: Sequence[Fault]) -> None:
    """Let a world run under a schedule, heal it, and let it come to rest."""
    for fault in faults:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    world.time.run_until(ORDER_SPAN_S, events_max=ORDER_EVENTS_MAX)
    world.heal()
    now_s, rested = ORDER_SPAN_S, 0
    while now_s < ORDER_SPAN_S + ORDER_LIVENESS_S and rested < 3:
        world.look_after()
        now_s += 0.25
        world.time.run_until(now_s, events_max=ORDER_EVENTS_MAX)
        rested = rested + 1 if world.is_at_rest() else 0


def judge_world(world: OrderWorld, faults: Sequence[Fault]) -> Verdict:
    """Say what was wrong in a run, and count what happened in it."""
    trace = world.trace
    # Routers that took a snapshot over did not learn what it skipped; agreement is checked apart.
    by_instance = {instance: batch for known in trace.learned.values() for instance, batch in known}
    learned = sorted(by_instance.items())
    q = judge_order(learned, world.scenario.view(world.genesis), world.scenario.judge)
    alive = {process for process, node in world.nodes.items() if node.is_alive}
    correct = {process for process in alive if process not in q.suspected}
    violations = [
        *check_agreement(trace),
        *check_order(trace, q),
        *check_delivery(trace, q, correct=correct),
        *check_scopes(q),
        *check_verdicts(trace, q),
        *(
            f"{process} failed: {node.stopped}"
            for process, node in world.nodes.items()
            if node.stopped and not node.stopped.startswith(("expelled", "removed from the routers"))
        ),
    ]
    if world.time.n_events >= ORDER_EVENTS_MAX:
        # Nothing can be told of the end of a run that was broken off.
        violations.append(f"rest: {ORDER_EVENTS_MAX} events by {world.time.now_s():.1f} s, and no end")
    else:
        violations += check_liveness(trace, q, correct=correct)
        violations += _check_rest(world)
    counted = {**world.counted, **_facts(world, q, learned)}
    return Verdict(
        world.seed, violations, list(faults), counted, trace.digest(), virtual_s=world.time.now_s()
    )


def _check_rest(world: OrderWorld) -> Violations:
    """Nothing is kept of what is over, and all routers hold the same Config."""
    found: Violations = []
    configs: dict[bytes, list[ProcessId]] = {}
    leader = world.leader()
    if world.is_healed_whole and not world.group.is_whole():
        found.append(f"membership: {world.group.newest()} is not what was meant")
    for router in world.group.members():
        process = router.me
        if router.n_pending:
            found.append(f"memory: {process} keeps {router.n_pending} stable runs")
        if leader is not None and router.mseq.position == world.router(leader).mseq.position:
            configs.setdefault(router.mseq.config.digest(), []).append(process)
    if len(configs) > 1:
        found.append(f"config: routers differ: {sorted(configs.values())}")
    return found


def _facts(world: OrderWorld, q: Judgement, learned: list[tuple[int, Batch | None]]) -> dict[str, int]:
    routers: list[Router[Any]] = [n.core for n in world.nodes.values() if isinstance(n.core, Router)]
    return {
        "hole_at_takeover": len(q.gap_instances),
        "config_inside_batch": q.mixed_batches,
        "duplicate_at_other_borders": odd_duplicates(learned),
        "void": q.void,
        "gaps": q.gaps,
        "duplicates": q.duplicates,
        "suspected": len(q.suspected),
        "snapshots": sum(map(len, world.trace.installed.values())),
        "refused": sum(appended.destinations is None for appended in q.appended),
        "lost": sum(len(numbers) for router in routers for numbers in router.window.lost.values()),
        "appended": len(q.appended),
        "events": world.time.n_events,
    }
