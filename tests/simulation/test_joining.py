"""Storage and super processes that join while leaders change, sessions break and others are voted out."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import msgspec
import pytest

from crescando.roles.following import Following
from crescando.roles.storage import Storage
from crescando.roles.super import Super
from crescando.routing.base import MulticastEvent
from crescando.routing.batch import Delivery
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import Ring, Rubberband
from crescando.testing.checkers import (
    check_agreement,
    check_delivery,
    check_liveness,
    check_order,
    check_scopes,
    check_verdicts,
)
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.factories import Factories
from crescando.testing.faults import KINDS, draw_faults
from crescando.testing.judge import ConfigJudge, judge_order
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

SPAN_S = 6.0
REST_S = 14.0


class HealingCluster(SimulatedCluster):
    """A cluster whose ring changes, since standbys take the places of the failed."""

    def rings(self) -> tuple[Ring, ...]:
        routers = (node.core for node in self.nodes.values() if isinstance(node.core, Router))
        config: Rubberband = max(routers, key=lambda router: router.mseq.position).mseq.config
        return (self.assembly.config.ring, config.ring, config.target)


class Joining:
    """A cluster under faults, in which three processes start at random times."""

    def __init__(self, seed: int, factories: Factories | None = None) -> None:
        self.seed = seed
        self.world = world = HealingCluster(seed, engine=small_engine, factories=factories)
        rng = random.Random(f"joining/{seed}")
        self.faults = draw_faults(world.rng, span_s=SPAN_S, kinds=KINDS)
        self.joiners = [ProcessId(role, f"late{role}{n}", 1) for role in ("storage", "super") for n in (1, 2)]
        client = world.add_client("c1")
        for me in self.joiners:
            world.time.call_at(rng.uniform(0.1, SPAN_S), partial(world.start, me))
        for fault in self.faults:
            world.time.call_at(fault.when_s, partial(world.inject, fault))
        when_s = 0.05
        while when_s < SPAN_S:
            when_s += client.rng.expovariate(4.0)
            world.time.call_at(when_s, partial(world.burst, client, client.rng.choice((1, 3, 9))))
        world.time.run_until(SPAN_S, events_max=200_000)
        world.heal()
        world.time.run_until(SPAN_S + REST_S, events_max=400_000)

    def judge(self) -> tuple[list[str], int]:
        """Give what was wrong, and how many joiners were told the configuration."""
        world, trace = self.world, self.world.trace
        known = trace.learned.values()
        learned = sorted({instance: batch for each in known for instance, batch in each}.items())
        q = judge_order(learned, world.assembly.config, ConfigJudge())
        correct = {p for p, node in world.nodes.items() if node.is_alive and p not in q.suspected}
        violations = [
            *check_agreement(trace),
            *check_order(trace, q),
            *check_delivery(trace, q, correct=correct),
            *check_scopes(q),
            *check_verdicts(trace, q),
            *check_liveness(trace, q, correct=correct),
        ]
        last: Rubberband = q.view
        told = 0
        for process, node in world.nodes.items():
            if node.stopped and not node.stopped.startswith(("expelled", "removed from the routers")):
                violations.append(f"{process} failed: {node.stopped}")
            following = self.following(node.core)
            if process not in correct or following is None:
                continue
            if not following.is_joined:
                violations.append(f"{process} has not joined")
            elif following.config != last:
                violations.append(f"{process} follows another configuration than the order's")
            elif process in self.joiners:
                told += 1
        return violations, told

    @staticmethod
    def following(core: Any) -> Following[Any] | None:
        return core.following if isinstance(core, Storage | Super) else None


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_whoever_joins_follows_the_order_from_its_join_on(first: int) -> None:
    told = 0
    for seed in range(first, first + 8):
        run = Joining(seed)
        violations, n = run.judge()
        assert not violations, f"seed {seed}, faults {run.faults}: {violations[:5]}"
        told += n

    assert told >= 16


class Uninformed(Application):
    """Takes its first configuration for the one the cluster began with, as if it had been told that."""

    first = b""

    def take_events(self) -> list[MulticastEvent]:
        return [
            msgspec.structs.replace(event, config=self.first)
            if isinstance(event, Delivery) and event.config
            else event
            for event in super().take_events()
        ]


def test_a_joiner_that_is_told_an_old_configuration_is_found() -> None:
    for seed in range(20):
        world = SimulatedCluster(seed, engine=small_engine)
        told = type("Told", (Uninformed,), {"first": world.assembly.config.encode()})
        if Joining(seed, Factories(application=told)).judge()[0]:
            return

    pytest.fail("not found in 20 seeds")
