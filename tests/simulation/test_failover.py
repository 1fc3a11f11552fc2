"""How long nothing is acknowledged when the lead router dies or hangs: virtual time, default settings."""

from __future__ import annotations

import random
from statistics import median

from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.routing.ecast.limits import RouterLimits
from crescando.testing.groups import GroupsScenario
from crescando.testing.member import Member
from crescando.testing.order import OrderSpec, OrderWorld
from crescando.types import ProcessId

KILLS = 20
STEP_S = 0.001
DELAY_S = (0.0002, 0.001)
TURN_S = 0.001


def world_of(seed: int) -> OrderWorld:
    """Give a world with nothing but the defaults, on a local network, and a leader."""
    print("seed", seed)
    spec = OrderSpec(routers=3, paxos=PaxosTiming(), limits=RouterLimits())
    world = OrderWorld(
        seed, scenario=GroupsScenario(), spec=spec, codec=False, delay_s=DELAY_S, turn_s=TURN_S
    )
    world.is_loaded = False
    world.time.run_until(1.0)
    return world


def leader_of(world: OrderWorld) -> ProcessId:
    leader = world.leader()
    assert leader is not None
    return leader


def gap_s(world: OrderWorld, member: Member, rng: random.Random) -> float:
    """Give the time until the next message of a member is acknowledged."""
    begin_s = world.time.now_s()
    member.submit([world.scenario.draw(rng, member.me, sorted(world.members))])
    world.nodes[member.me].pump.need_turn()
    number = member.multicast.next_number - 1
    while member.multicast.acknowledged < number:
        world.time.run_until(world.time.now_s() + STEP_S)
        assert world.time.now_s() < begin_s + 10.0
    return world.time.now_s() - begin_s


def submitter(world: OrderWorld) -> Member:
    """Give a member whose messages are data only."""
    return next(member for member in world.members.values() if member.me.node not in world.wardens)


def test_twenty_killed_leaders_are_replaced_within_milliseconds() -> None:
    world = world_of(7)
    rng = random.Random(7)
    gaps_s = []
    for _ in range(KILLS):
        victim = leader_of(world)
        world.crash(victim, "crash_router")
        gaps_s.append(gap_s(world, submitter(world), rng))
        world.group.start_next(victim.node, stale=False)
        world.time.run_until(world.time.now_s() + 3.0)
        assert len(world.group.newest().members) == 3

    print("gaps in ms:", [round(gap * 1000) for gap in gaps_s])
    assert median(gaps_s) <= 0.05
    assert max(gaps_s) <= 0.5


def test_twenty_hanging_leaders_are_replaced_after_the_election_time() -> None:
    world = world_of(8)
    rng = random.Random(8)
    gaps_s = []
    for _ in range(KILLS):
        victim = leader_of(world)
        world.nodes[victim].pause()
        gaps_s.append(gap_s(world, submitter(world), rng))
        assert leader_of(world) != victim
        world.nodes[victim].resume()
        world.time.run_until(world.time.now_s() + 3.0)

    print("gaps in ms:", [round(gap * 1000) for gap in gaps_s])
    assert max(gaps_s) <= 1.4
    assert len(world.group.newest().members) == 3, "whoever hangs for a second is not removed"
