"""One seed from beginning to verdict: run a cluster under faults, heal it, judge it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crescando.engine.base import Engine
from crescando.engine.statement import Operation
from crescando.routing.ecast.router import Router
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
from crescando.testing.isolation import check_snapshots
from crescando.testing.judge import ConfigJudge, Judge, Judgement, judge_order
from crescando.testing.verdict import Verdict
from crescando.testing.workload import Model
from crescando.types import KeyRange, ProcessId

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
    _load(world)
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    world.heal()
    _run_to_rest(world)
    return _judge(world, drawn, judge or ConfigJudge(), view)


def _load(world: SimulatedCluster) -> None:
    """Schedule each client's bursts."""
    for script in world.clients.values():
        when_s = 0.05
        while when_s < SPAN_S:
            when_s += script.rng.expovariate(3.0)
            size = script.rng.choice((1, 1, 3, 12))
            world.time.call_at(when_s, partial(world.burst, script, size))


def _run_to_rest(world: SimulatedCluster) -> None:
    """Let the healed cluster finish, and a little more."""
    end_s = SPAN_S + LIVENESS_S
    now_s = SPAN_S
    while now_s < end_s:
        now_s += 1.0
        world.time.run_until(now_s, events_max=EVENTS_MAX)
        if now_s > SPAN_S + 8.0 and all(
            not script.core.n_in_flight and not script.core.multicast.n_unstable
            for process, script in world.clients.items()
            if world.nodes[process].is_alive
        ):
            break
    world.time.run_until(now_s + 2.0, events_max=EVENTS_MAX)


def _judge(world: SimulatedCluster, faults: list[Fault], judge: Judge, view: Callable[[Any], Any]) -> Verdict:
    trace = world.trace
    # Routers that took a snapshot over did not learn what it skipped; agreement is checked apart.
    learned = sorted(
        {instance: batch for known in trace.learned.values() for instance, batch in known}.items()
    )
    q = judge_order(learned, view(world.assembly.config), judge)
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
        owned=world.assembly.config.owned_arcs,
    )
    violations += [
        f"memory: {process} keeps {node.core.n_pending} stable runs"
        for process, node in world.nodes.items()
        if node.is_alive and isinstance(node.core, Router) and node.core.n_pending
    ]
    ordered = {key: outcome for key, outcome in world.outcomes.items() if key not in asked}
    found, model = check_outcomes(q, world.workload, ordered, steps)
    violations += found
    violations += check_snapshots(
        q, world.workload, outcomes=world.outcomes, steps=steps, asked=asked, numbers=numbers
    )
    violations += [
        f"{process} failed: {node.stopped}"
        for process, node in world.nodes.items()
        if node.stopped and not node.stopped.startswith(("expelled", "removed from the routers"))
    ]
    violations += _check_answers(world, correct)
    violations += _check_replicas(world, model, q)
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
        "snapshot_reads": sum(not isinstance(world.outcomes.get(key), Exception | None) for key in asked),
        "resubmitted": sum(script.core.resubmitted for script in world.clients.values()),
    }
    return Verdict(world.seed, violations, faults, counted, trace.digest(), world.time.now_s())


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


def _check_replicas(world: SimulatedCluster, model: Model, q: Judgement) -> Violations:
    """Each live owner of each range holds what the model holds, and equal digests."""
    found: Violations = []
    workload = world.workload
    expected = model.rows
    for arc in world.assembly.config.ring.arcs:
        digests: dict[bytes, list[ProcessId]] = {}
        for process, storage in world.storages().items():
            engine = world.nodes[process].engine
            owned = storage.config.owned_arcs(process)
            if process in q.suspected or engine is None or arc not in owned:
                continue
            if not storage.config.tables:
                continue
            digests.setdefault(engine.digest(workload.schema.id, arc), []).append(process)
            held = _held_rows(world, engine, arc)
            wanted = {k: row for k, row in expected.items() if _lies_in(world, k, arc)}
            if held != wanted:
                found.append(f"replica: {process} holds {held} in {arc}, not {wanted}")
        if len(digests) > 1:
            found.append(f"replica: digests of {arc} differ: {digests}")
    return found


def _held_rows(world: SimulatedCluster, engine: Engine, arc: KeyRange) -> dict[int, tuple[int, int]]:
    shape = world.workload.shapes["read_all"]
    asker = ProcessId("client", "checker", 1)
    operation = Operation(1 << 62, asker, 1, shape, (), (arc,))
    held: dict[int, tuple[int, int]] = {}
    for results in engine.execute([operation]):
        for rows in results.rows:
            k, v, g = (column.values.tolist() for column in rows.columns)
            held.update({key: (value, group) for key, value, group in zip(k, v, g, strict=True)})
    return held


def _lies_in(world: SimulatedCluster, key: int, arc: KeyRange) -> bool:
    position = world.workload.ring_position(key)
    return arc.low <= position <= arc.high
