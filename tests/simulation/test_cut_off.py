"""A router that is cut off while all that it knows are replaced: it is told, stops and comes back."""

from __future__ import annotations

import pytest

from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.routing.ecast.fellows import Fellows
from crescando.routing.ecast.limits import RouterLimits
from crescando.testing.groups import GroupsScenario
from crescando.testing.order import OrderSpec, OrderWorld
from crescando.testing.order_run import run_order_seed
from crescando.types import ProcessId

SEED = 554147

R1, R2, R3 = (ProcessId("router", f"r{n}", 1) for n in (1, 2, 3))


def cut_off(world: OrderWorld) -> None:
    """Let nothing get to or from R1; everybody notices."""
    others = set(world.nodes) - {R1}
    world.network.faults.cut |= {pair for other in others for pair in ((R1, other), (other, R1))}
    for other in sorted(others):
        world.network.reset(R1, other)


def world_of_strangers() -> OrderWorld:
    """Give a world whose routers are three that R1 does not know; it takes itself for a member still."""
    print("seed", SEED)
    spec = OrderSpec(routers=3, paxos=PaxosTiming(election_s=0.4, removal_s=1.5), limits=RouterLimits())
    world = OrderWorld(
        SEED, scenario=GroupsScenario(), spec=spec, codec=False, delay_s=(0.0002, 0.001), turn_s=0.001
    )
    world.is_loaded = False
    world.time.run_until(1.0)
    world.group.start_next("r4", stale=False)
    cut_off(world)
    world.time.run_until(5.0)
    for router in (R2, R3):
        world.crash(router, "crash_router")
        world.group.start_next(router.node, stale=False)
        cut_off(world)
        world.time.run_until(world.time.now_s() + 3.0)
    world.network.faults.cut.clear()
    return world


def test_one_that_knows_nobody_who_is_left_is_told() -> None:
    world = world_of_strangers()
    assert world.nodes[R1].is_alive
    assert {member.node for member in world.group.newest().members} == {"r2", "r3", "r4"}

    world.time.run_until(world.time.now_s() + 6.0)

    assert world.nodes[R1].stopped.startswith("removed from the routers")


def test_without_the_leaders_call_it_would_never_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fellows, "to_be_told", lambda self, now_s: [])
    world = world_of_strangers()

    world.time.run_until(world.time.now_s() + 30.0)

    assert world.nodes[R1].is_alive


def test_the_seed_in_which_it_was_found() -> None:
    verdict = run_order_seed(SEED)

    assert verdict.is_correct, verdict.violations
