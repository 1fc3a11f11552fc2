"""A new leader that has much to make up for: routing takes time, and nobody elects again meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.messages import Heartbeat
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.process import ProcessCore
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.router import Router
from crescando.testing.groups import Groups, GroupsScenario
from crescando.testing.member import Member
from crescando.testing.order import OrderSpec, OrderWorld
from crescando.testing.scenario import Draft
from crescando.types import FULL_RING, MessageKind, ProcessId

SEED = 3
BACKLOG = 1500
ROUTING_S = 0.0006
"""What routing an instance takes here, ten times the usual: the backlog takes three election times."""

TIMING = PaxosTiming(heartbeat_s=0.1, election_s=0.3)
ALL_AT_ONCE = RouterLimits(batch_messages=1, eager_messages=1, slice_instances=1 << 30)
IN_SLICES = RouterLimits(batch_messages=1, eager_messages=1)


class Laborious(OrderWorld):
    """An order in which a router is busy for as long as it routes what it has not routed before."""

    is_laborious = False

    def __init__(self, limits: RouterLimits) -> None:
        self.routed: dict[ProcessId, int] = {}
        self.beats: dict[ProcessId, list[float]] = {}
        self.ballots: set[Ballot] = set()
        spec = OrderSpec(routers=3, paxos=TIMING, limits=limits)
        super().__init__(
            SEED, scenario=GroupsScenario(), spec=spec, codec=False, delay_s=(0.0002, 0.001), turn_s=0.001
        )
        self.is_loaded = False
        self.network.witness = self._on_send

    def _on_send(self, sender: ProcessId, peer: ProcessId, message: Any) -> None:
        self.watch.on_send(sender, peer, message)
        if isinstance(message, Heartbeat):
            self.beats.setdefault(sender, []).append(self.time.now_s())
            self.ballots.add(message.ballot)

    def after_turn(self, core: ProcessCore) -> None:
        super().after_turn(core)
        if not isinstance(core, Router):
            return
        newest = max(core.window.entries, default=0)
        n = sum(1 for instance in core.window.entries if instance > self.routed.get(core.me, 0))
        self.routed[core.me] = max(newest, self.routed.get(core.me, 0))
        if n and self.is_laborious:
            node = self.nodes[core.me]
            node.pause()
            self.later(n * ROUTING_S, node.resume)


def with_backlog(limits: RouterLimits) -> tuple[Laborious, Member]:
    """Give a world in which one member has confirmed nothing for long, and another that sends."""
    print("seed", SEED)
    world = Laborious(limits)
    world.time.run_until(1.0)
    sender, silent, *_ = world.members.values()
    world.hold_for(silent.me, 100.0)
    assert isinstance(world.genesis, Groups)
    group = next(i for i, members in enumerate(world.genesis.groups) if silent.me in members)
    while sender.multicast.next_number <= BACKLOG:
        sender.submit([Draft(MessageKind.WRITE, group, (FULL_RING,), b"") for _ in range(50)])
        world.nodes[sender.me].pump.need_turn()
        world.time.run_until(world.time.now_s() + 0.05)
    world.time.run_until(world.time.now_s() + 0.5)
    leader = world.leader()
    assert leader is not None
    assert len(world.router(leader).window.entries) >= BACKLOG
    assert world.router(leader).window.slow == set(), "nothing is held back yet"
    world.is_laborious = True
    world.ballots.clear()
    world.beats.clear()
    world.crash(leader, "crash_router")
    return world, sender


def leads_for(world: Laborious, sender: Member, limit_s: float) -> float:
    """Give the time until a member knows of a leader that serves it."""
    begin_s = world.time.now_s()
    while sender.multicast.lead is None or not world.nodes[sender.multicast.lead].is_alive:
        world.time.run_until(world.time.now_s() + 0.01)
        assert world.time.now_s() < begin_s + limit_s
    return world.time.now_s() - begin_s


def test_a_large_backlog_delays_no_heartbeat_and_nobody_elects_again() -> None:
    world, sender = with_backlog(IN_SLICES)

    taken_s = leads_for(world, sender, 2.0)
    world.time.run_until(world.time.now_s() + 1.0)

    assert taken_s > 2 * TIMING.election_s, "it had to be made up for"
    assert taken_s <= BACKLOG * ROUTING_S + 0.5
    assert len(world.ballots) == 1, "one election was enough"
    (beats,) = world.beats.values()
    pauses_s = [later - earlier for earlier, later in pairwise(beats)]
    slice_s = IN_SLICES.slice_instances * ROUTING_S
    assert max(pauses_s) <= TIMING.heartbeat_s + slice_s + 0.01


def test_what_waited_becomes_stable_under_the_new_leader() -> None:
    world, sender = with_backlog(IN_SLICES)
    leads_for(world, sender, 2.0)

    world.hold_for(next(p for p in world.members if p != sender.me), 0.0)
    world.time.run_until(world.time.now_s() + 3.0)

    assert sender.multicast.acknowledged == sender.multicast.next_number - 1


def test_in_one_turn_it_would_be_taken_for_dead() -> None:
    world, _ = with_backlog(ALL_AT_ONCE)

    world.time.run_until(world.time.now_s() + 2.0)

    assert len(world.ballots) > 1
