"""Clients that hold an old layout: whoever gave a range up shows nothing of it, whatever comes first.

A process is to give up all it owns, while two clients go on reading by the layout of before
and are told of no other: over old sessions they ask the old owner, one of them nobody else, before,
while and after the ranges move and change. The old owner is paused, or cut off from the routers
or the supers, at any moment of that. Every answer is compared with the model at the position that
it names, part by part, and that with what had been told a lease before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MethodType
from typing import Any

import msgspec
import pytest

from crescando.client.base import ReadOutcome, Request
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.roles.basic import BasicReads
from crescando.roles.lease import ServingLease
from crescando.roles.messages import BasicRefused
from crescando.roles.serving import Serving
from crescando.roles.storage import Storage
from crescando.routing.ecast.messages import Lease, LeaseRequest
from crescando.routing.rubberband.keyspace import Contract
from crescando.routing.rubberband.messages import Reconfigure
from crescando.routing.rubberband.planner import make_plan
from crescando.spec import ClusterSpec
from crescando.testing.checkers import Violations
from crescando.testing.cluster import ClientScript, SimulatedCluster
from crescando.testing.faults import Fault
from crescando.testing.isolation import Asked, check_direct_reads
from crescando.testing.judge import judge_order
from crescando.testing.workload import GROUPS, KEYS
from crescando.types import ProcessId
from tests.simulation.judge import TwinJudge, world_of
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

SEEDS = 20
END_S = 5.0
ANSWER_S = 0.05
"""Within that an answer comes, unless something is wrong."""

BEGIN_S = 1.0
"""When the change begins."""


@dataclass
class Seen:
    """What one run showed.

    Attributes
    ----------
    violations : list of str
    answered : int
        Basic reads that were answered.
    refused : int
        Refusals by the old owner that carried a layout.
    is_moved : bool
        Whether the old owner owns nothing any more.
    """

    violations: Violations
    answered: int
    refused: int
    is_moved: bool


class Only(dict[ProcessId, None]):
    """The sessions of a client that asks one process and nobody else, whatever sessions it has."""

    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self.process = process

    def __setitem__(self, process: ProcessId, value: None) -> None:
        if process == self.process:
            super().__setitem__(process, value)


def forget_news(reads: BasicReads) -> None:
    """Let a client keep the layout it has, whatever it is told."""

    def take(self: Any, position: int, encoded: bytes) -> None: ...

    reads.layout.take = MethodType(take, reads.layout)  # type: ignore[method-assign]


def look(seed: int) -> Seen:
    """Run one seed."""
    rng = random.Random(f"old layouts/{seed}")
    spec = ClusterSpec(
        routers=3, storages=4, supers=3, replication=rng.choice((1, 2, 2)), paxos=PaxosTiming(window=4)
    )
    world = SimulatedCluster(seed, engine=small_engine, spec=spec)
    victim = rng.choice(world.assembly.names.storages)
    writer, reader, loyal, admin = map(world.add_client, ("writer", "reader", "loyal", "admin"))
    loyal.core.reachable = Only(victim)
    refusals: list[BasicRefused] = []
    when_asking: list[Fault] = []
    _watch(world, victim, refusals, when_asking)
    owned = world.assembly.config.owned_arcs(victim)
    its_keys = [
        key
        for key in range(KEYS)
        if any(low <= world.workload.ring_position(key) <= high for low, high in owned)
    ]
    _write_and_read(world, rng, writer, {reader.core.me: range(KEYS), loyal.core.me: its_keys})
    for script in (reader, loyal):
        world.time.call_at(BEGIN_S - 0.2, partial(forget_news, script.core._direct.basics))
    world.time.call_at(BEGIN_S, partial(_contract, world, admin, victim))
    world.time.call_at(
        rng.uniform(BEGIN_S - 0.3, BEGIN_S + 0.8), partial(_hamper, world, rng, victim, when_asking)
    )
    world.time.run_until(END_S)
    world.heal()
    world.time.run_until(END_S + 2.0)
    return _judge(world, victim, refusals)


def _watch(
    world: SimulatedCluster, victim: ProcessId, refusals: list[BasicRefused], when_asking: list[Fault]
) -> None:
    """Note what the old owner refuses, and pause it when it has just asked for a lease if that is wanted."""
    core: Any = world.nodes[victim].core
    flush = core.flush

    def watched(now_s: float) -> Any:
        output = flush(now_s)
        refusals.extend(m for _, m in output.send if isinstance(m, BasicRefused) and m.layout)
        if when_asking and any(isinstance(message, LeaseRequest) for _, message in output.send):
            world.later(0.0, partial(_pause_unheard, world, victim, when_asking.pop()))
        return output

    core.flush = watched


def _write_and_read(
    world: SimulatedCluster,
    rng: random.Random,
    writer: ClientScript,
    keys_of: Mapping[ProcessId, Sequence[int]],
) -> None:
    work = world.workload

    def write() -> None:
        key, amount = rng.randrange(KEYS), rng.randrange(1000)
        _ask(world, writer, work._put("upsert", [key], [amount], rng.randrange(GROUPS)))

    def read() -> None:
        me = rng.choice(sorted(keys_of))
        request = work._where("read_by_key", (rng.choice(keys_of[me] or range(KEYS)),))
        if rng.random() < 0.05:
            request = work._where("read_all", ())
        _ask(world, world.clients[me], msgspec.structs.replace(request, isolation="basic"))

    for tick in range(20, int(END_S * 50)):
        world.time.call_at(tick / 50, write if tick % 2 else read)


def _ask(world: SimulatedCluster, script: ClientScript, request: Request) -> None:
    token, script.next_token = script.next_token, script.next_token + 1
    script.steps[token] = world.workload.interpret_request(request)
    if request.isolation == "basic":
        told = world.told.by(world.time.now_s() - world.spec.super_.suspicion_s / 2)
        script.asked[token] = Asked("basic", script.seen, told)
        # By the layout it has, some can never be answered.
        world.later(1.0, partial(script.core.cancel, [token]))
    script.core.request(token, request)
    world.nodes[script.core.me].pump.need_turn()


def _contract(world: SimulatedCluster, admin: ClientScript, victim: ProcessId) -> None:
    config = world.assembly.config
    plan = make_plan(config.ring, Contract(victim))
    world.configure(admin, Reconfigure(Contract(victim), plan.copies, config.layout))


def _hamper(world: SimulatedCluster, rng: random.Random, victim: ProcessId, when_asking: list[Fault]) -> None:
    """Pause the old owner, or let it hear nothing of the routers or the supers, for a moment or for long.

    Of all moments the worst is that at which it has asked for a lease: the answer waits for it,
    and then it hears of nothing that has happened meanwhile.
    """
    fault = Fault("hamper", 0.0, rng.choice((0.05, 0.4, 1.2, 2.6, 3.2)), 0)
    others = {"routers": "router", "supers": "super"}
    match rng.choice(("pause", "asking", "asking", "routers", "routers", "routers", "supers")):
        case "pause":
            world.pause(victim, fault)
        case "asking":
            when_asking.append(fault)
        case away:
            peers = [process for process in world.nodes if process.role == others[away]]
            pairs = {(peer, victim) for peer in peers}
            if rng.random() < 0.5:
                pairs |= {(victim, peer) for peer in peers}
            world.cut(pairs, fault, resets=rng.random() < 0.5)


def _pause_unheard(world: SimulatedCluster, victim: ProcessId, fault: Fault) -> None:
    """Pause a process whose answers are on their way, and let nothing else reach it from the routers."""
    world.pause(victim, fault)
    pairs = {(router, victim) for router in world.alive("router")}
    unheard = replace(fault, length_s=fault.length_s + 2.0)
    world.later(ANSWER_S, lambda: world.cut(pairs, unheard, resets=False))


def _judge(world: SimulatedCluster, victim: ProcessId, refusals: list[BasicRefused]) -> Seen:
    learned = sorted(
        {instance: batch for known in world.trace.learned.values() for instance, batch in known}.items()
    )
    q = judge_order(learned, world_of(world.assembly.config), TwinJudge())
    keyed = [
        ((process, token), script, token)
        for process, script in world.clients.items()
        for token in script.steps
    ]
    violations = check_direct_reads(
        q,
        world.workload,
        outcomes=world.outcomes,
        steps={key: script.steps[token] for key, script, token in keyed},
        asked={key: script.asked[token] for key, script, token in keyed if token in script.asked},
        numbers={key: script.numbers[token] for key, script, token in keyed if token in script.numbers},
    )
    lead = world.leader()
    assert lead is not None
    config: Any = world.router(lead).mseq.config
    answered = sum(isinstance(outcome, ReadOutcome) for outcome in world.outcomes.values())
    return Seen(violations, answered, len(refusals), not config.owned_arcs(victim))


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_whoever_gave_a_range_up_shows_nothing_of_it(first: int) -> None:
    moved = refused = answered = 0
    for seed in range(first, first + 10):
        seen = look(seed)
        assert not seen.violations, f"seed {seed}: {seen.violations[:3]}"
        moved += seen.is_moved
        refused += bool(seen.is_moved and seen.refused)
        answered += seen.answered
    assert moved >= 4, "too few changes came to their end"
    assert refused >= 0.6 * moved, "too rarely was the old owner asked by the old layout"
    assert answered >= 100


# Planted: what would show rows of a range that was given up.


def never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServingLease, "holds", lambda self, now_s: True)


def counted_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    on_message = Storage.on_message

    def take(self: Storage, peer: ProcessId, message: Any, now_s: float) -> None:
        if isinstance(message, Lease):
            self._serving.lease._until_s = now_s + self._serving.lease.length_s
        on_message(self, peer, message, now_s)

    patch.setattr(Storage, "on_message", take)


def whatever_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Serving, "_owns", lambda self, scope, config: True)


FOUND_AT = {counted_from_the_answer: 34}
"""Where the search begins for what few seeds find."""


@pytest.mark.parametrize("plant", [never_over, counted_from_the_answer, whatever_is_asked_for])
def test_a_planted_judge_is_found_out(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in (FOUND_AT.get(plant, 0), *range(200)):
            violations = look(seed).violations
            if violations:
                print(f"{plant.__name__}: found by seed {seed}: {violations[0][:160]}")
                return
    pytest.fail("not found within 200 seeds")
