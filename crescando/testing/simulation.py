"""One seed from beginning to verdict: run a cluster under faults, heal it, judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crescando.client.base import Isolation, ReadOutcome
from crescando.engine.base import Engine
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.config import Rubberband
from crescando.testing.checkers import (
    Violations,
    check_acknowledgements,
    check_agreement,
    check_delivery,
    check_liveness,
    check_order,
    check_outcomes,
    check_scopes,
    check_verdicts,
)
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.factories import Factories
from crescando.testing.faults import KINDS, Fault, draw_faults
from crescando.testing.held import answered, check_samples, rows_in
from crescando.testing.isolation import Asked, Key, check_direct_reads
from crescando.testing.judge import ConfigJudge, Judge, Judgement, judge_order
from crescando.testing.layouts import Layouts, layouts_of
from crescando.testing.verdict import Verdict
from crescando.testing.workload import Model
from crescando.types import ProcessId

SPAN_S = 6.0
"""Virtual time of load and faults."""

LIVENESS_S = 60.0
"""Virtual time after healing within which everything must have come to an end."""


EVENTS_MAX = 200_000
"""More events than this mean that something goes round in circles; ten times what a busy run has."""


def run_seed(
    seed: int,
    *,
    engine: Callable[[], Engine],
    judge: Judge | None = None,
    view: Callable[[Any], Any] = lambda config: config,
    factories: Factories | None = None,
    faults: list[Fault] | None = None,
    kinds: tuple[str, ...] = KINDS,
) -> Verdict:
    """Run one seed.

    Parameters
    ----------
    seed : int
    engine : callable
        Makes each storage process's engine.
    judge : Judge, optional
        Decides who ought to receive what; the Config itself by default.
    view : callable, optional
        Turns the first Config into what the judge works on.
    factories : Factories, optional
        Other process parts, to plant a fault.
    faults : list of Fault, optional
        A schedule instead of the seed's own, to replay or cut down a failure.
    kinds : tuple of str, optional
        The kinds of fault to draw from.
    """
    world = SimulatedCluster(seed, engine=engine, factories=factories)
    # Drawn in any case, so that another schedule changes nothing else of the run.
    drawn = draw_faults(world.rng, span_s=SPAN_S, kinds=kinds)
    drawn = drawn if faults is None else faults
    for number in range(1, world.rng.randint(3, 4)):
        world.add_client(f"c{number}")
    for fault in drawn:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    load(world, 0.05, SPAN_S)
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    world.heal()
    run_to_rest(world)
    return judge_cluster(world, drawn, judge or ConfigJudge(), view)


def load(world: SimulatedCluster, from_s: float, until_s: float) -> None:
    """Schedule each client's bursts."""
    for script in world.clients.values():
        when_s = from_s
        while when_s < until_s:
            when_s += script.rng.expovariate(3.0)
            size = script.rng.choice((1, 1, 3, 12))
            world.time.call_at(when_s, partial(world.burst, script, size))


def run_to_rest(world: SimulatedCluster) -> None:
    """Let the healed cluster finish, and a little more."""
    begin_s = now_s = world.time.now_s()
    while now_s < begin_s + LIVENESS_S:
        now_s += 1.0
        world.time.run_until(now_s, events_max=EVENTS_MAX)
        if now_s > begin_s + 8.0 and world.is_at_rest:
            break
    world.time.run_until(now_s + 2.0, events_max=EVENTS_MAX)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checkers of a whole cluster work on.

    Attributes
    ----------
    q : Judgement
    layouts : Layouts
    model : Model
        After everything in `q`.
    correct : set of ProcessId
        Who lives and was never declared failed.
    """

    q: Judgement
    layouts: Layouts
    model: Model
    correct: set[ProcessId]


Check = Callable[[Any, Facts], Violations]
"""A checker that only some worlds need; given the world, which it knows."""


def judge_cluster(
    world: SimulatedCluster,
    faults: list[Fault],
    judge: Judge,
    view: Callable[[Any], Any],
    further: Sequence[Check] = (),
) -> Verdict:
    """Judge a run that is over, by every checker there is for a cluster, and further ones."""
    trace = world.trace
    # Routers that took a snapshot over did not learn what it skipped; agreement is checked apart.
    learned = sorted(
        {instance: batch for known in trace.learned.values() for instance, batch in known}.items()
    )
    q = judge_order(learned, view(world.assembly.config), judge)
    world.before_judging(q)
    layouts = layouts_of(q, world.assembly.config)
    correct = {
        process for process, node in world.nodes.items() if node.is_alive and process not in q.suspected
    }
    violations = [
        *check_agreement(trace),
        *check_order(trace, q),
        *check_delivery(trace, q, correct=correct),
        *check_scopes(q),
        *check_verdicts(trace, q),
    ]
    if world.time.n_events >= EVENTS_MAX:
        # Nothing can be told of the end of a run that was broken off.
        circles = f"rest: {EVENTS_MAX} events by {world.time.now_s():.1f} s, and no end"
        return Verdict(world.seed, [*violations, circles], faults, dict(world.counted))
    violations += check_liveness(trace, q, correct=correct)
    steps = {
        (process, token): step
        for process, script in world.clients.items()
        for token, step in script.steps.items()
    }
    numbers = {
        (process, token): number
        for process, script in world.clients.items()
        for token, number in script.numbers.items()
    }
    asked = {
        (process, token): known
        for process, script in world.clients.items()
        for token, known in script.asked.items()
    }
    violations += check_acknowledgements(
        trace,
        q,
        numbers=numbers,
        stable=world.stable,
        outcomes=world.outcomes,
        held=layouts.held,
    )
    violations += [
        f"memory: {process} keeps {node.core.n_pending} stable runs"
        for process, node in world.nodes.items()
        if node.is_alive and isinstance(node.core, Router) and node.core.n_pending
    ]
    ordered = {key: outcome for key, outcome in world.outcomes.items() if key not in asked}
    found, model = check_outcomes(q, world.workload, ordered, steps)
    violations += found
    violations += check_direct_reads(
        q, world.workload, outcomes=world.outcomes, steps=steps, asked=asked, numbers=numbers
    )
    violations += [
        f"{process} failed: {node.stopped}"
        for process, node in world.nodes.items()
        if node.stopped and not node.stopped.startswith(("expelled", "removed from the routers"))
    ]
    violations += _check_answers(world, correct)
    violations += _check_replicas(world, model, q, layouts.last)
    violations += check_samples(q, world.workload, layouts, world.samples)
    facts = Facts(q, layouts, model, correct)
    for check in further:
        violations += check(world, facts)
    counted = {
        **world.counted,
        "mixed_batches": q.mixed_batches,
        "void": q.void,
        "gaps": q.gaps,
        "duplicates": q.duplicates,
        "suspected": len(q.suspected),
        "snapshots": sum(map(len, trace.installed.values())),
        "events": world.time.n_events,
        "appended": len(q.appended),
        "outcomes": len(world.outcomes),
        "errors": sum(isinstance(outcome, Exception) for outcome in world.outcomes.values()),
        "snapshot_reads": _n_answered(world, asked, "snapshot"),
        "basic_reads": _n_answered(world, asked, "basic"),
        "resubmitted": sum(script.core.resubmitted for script in world.clients.values()),
    }
    return Verdict(world.seed, violations, faults, counted, trace.digest(), world.time.now_s())


def _n_answered(world: SimulatedCluster, asked: Mapping[Key, Asked], isolation: Isolation) -> int:
    """Give how many reads of an isolation have an answer."""
    return sum(
        known.isolation == isolation and isinstance(world.outcomes.get(key), ReadOutcome)
        for key, known in asked.items()
    )


def _check_answers(world: SimulatedCluster, correct: set[ProcessId]) -> Violations:
    """Every operation of a correct client has an outcome, once the cluster is healed."""
    found: Violations = []
    for process, script in world.clients.items():
        if process not in correct:
            continue
        for token, step in script.steps.items():
            if (process, token) not in world.outcomes:
                found.append(f"answered: {process} waits for token {token}, {step}, for ever")
    return found


def _check_replicas(world: SimulatedCluster, model: Model, q: Judgement, config: Rubberband) -> Violations:
    """Each live owner of each range answers a read of it with what the model holds, and digests are equal."""
    found: Violations = []
    workload = world.workload
    for arc in config.ring.arcs:
        digests: dict[bytes, list[ProcessId]] = {}
        for process in sorted(world.storages()):
            engine = world.nodes[process].engine
            if process in q.suspected or engine is None or arc not in config.owned_arcs(process):
                continue
            digests.setdefault(engine.digest(workload.schema.id, arc), []).append(process)
            held, wanted = answered(engine, workload, (arc,)), rows_in(model, workload, (arc,))
            if held != wanted:
                found.append(f"replica: {process} answers {held} for {arc}, not {wanted}")
        if len(digests) > 1:
            found.append(f"replica: digests of {arc} differ: {digests}")
    return found
