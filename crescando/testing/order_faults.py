"""The faults of a simulated order: what each kind does to an `OrderWorld`."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from crescando.testing.faults import Fault
from crescando.testing.order_routers import ROUTERS_MAX

if TYPE_CHECKING:
    from crescando.testing.order import OrderWorld

Injection = Callable[["OrderWorld", random.Random, Fault], None]


def _crash_router(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victim = rng.choice(world.alive("router"))
    if world.may_lose_router(victim):
        world.crash(victim, fault.kind)


def _crash_member(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victims = world.useful_members()
    if len(victims) > 1:
        victim = rng.choice(victims)
        world.crash(victim, fault.kind)
        world.accuse_later(victim, fault.length_s)


def _restart_member(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victims = world.useful_members()
    if len(victims) > 1:
        victim = rng.choice(victims)
        world.crash(victim, fault.kind)
        world.return_later(victim, fault.length_s / 4)
        world.accuse_later(victim, fault.length_s)


def _pause(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.pause(rng.choice(world.living()), fault)


def _pause_leader(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    leader = world.leader()
    if leader is not None:
        world.pause(leader, fault)


def _partition(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.partition(rng, fault, world.living())


def _reset(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.reset_sessions(rng, fault)


def _half_open(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.half_open(rng, fault)


def _repeat(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.repeat(rng, fault)


def _slow(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.slow(rng.choice(world.living()), fault, lambda: (rng.uniform(5.0, 60.0), rng.uniform(5.0, 60.0)))


def _slow_reader(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.slow(rng.choice(world.living()), fault, lambda: (rng.uniform(50.0, 200.0), 1.0))


def _clock_drift(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.drift_clock(rng.choice(world.living()), rng.choice((0.25, 0.5, 2.0, 4.0)), fault)


def _clock_jump(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victim = rng.choice(world.living())
    if rng.random() < 0.5:
        world.nodes[victim].pause()
        world.later(fault.length_s, world.nodes[victim].resume)
    world.jump_clock(victim, rng.choice((0.1, 1.0, 3600.0)), fault)


def _hold(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victims = world.useful_members()
    if victims:
        world.hold(rng.choice(victims), fault)


def _stuck(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victims = world.useful_members()
    if len(victims) > 1:
        world.get_stuck(rng.choice(victims), fault)


def _suspect(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victims = world.useful_members()
    if len(victims) > 1:
        accuser, victim = rng.sample(victims, 2)
        world.suspect_wrongly(accuser, victim, fault)


def _usurp(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    # What the old leader alone votes for must be several instances.
    world.press(rng, 0.1)
    world.usurp(fault)


def _part_routers(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.part_routers(rng, fault)


def _deaf_leader(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    """Let the leader not notice that its sessions with the routers are over; members come to it again."""
    leader = world.leader()
    faithful = [member for member in world.useful_members() if rng.random() < 0.5]
    if leader is None or not faithful:
        return
    # What the leader sends to these is lost on its way, so that it has something to send again.
    lost = {(leader, member) for member in faithful}
    world.network.faults.cut |= lost
    world.press(rng, 0.5)
    others = [router for router in world.alive("router") if router != leader]

    def go_deaf() -> None:
        ends = [world.network.half_open(leader, other, both=False) for other in others]
        if not any(ends):
            return
        world.count(fault.kind)
        for end in ends:
            if end is not None:
                world.later(0.3 + fault.length_s, end)
        # The faithful hear nothing of the others; and of the unfaithful, who would tell the
        # leader that there is a higher ballot, the leader hears nothing.
        pairs = {(other, member) for other in others for member in faithful}
        pairs |= {(member, leader) for member in world.alive(faithful[0].role) if member not in faithful}
        pairs |= {(other, leader) for other in others}
        world.network.faults.cut |= pairs
        world.later(0.5, partial(world.network.heal, resets=False, cut=pairs))

    old = world.router(leader).broadcast.ballot
    deadline_s = world.time.now_s() + 0.1 + world.election_s

    def watch() -> None:
        """End the sessions of the faithful when another leader delivers: they come to the old one again."""
        delivering = world.watch.delivering
        is_overtaken = delivering is not None and delivering > old
        if is_overtaken or world.time.now_s() >= deadline_s:
            world.network.heal(resets=True, cut=lost)
        else:
            world.later(0.002, watch)

    world.later(0.1, go_deaf)
    watch()


def _restart_router(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    victim = rng.choice(world.alive("router"))
    if world.may_lose_router(victim):
        world.crash(victim, fault.kind)
        world.group.return_later(victim, fault.length_s / 2, stale=rng.random() < 0.3)


def _add_router(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    """Start a router that stands by, and ask for it to be a member as soon as it can be reached."""
    if len(world.alive("router")) >= ROUTERS_MAX:
        return
    me = world.group.start_next(world.group.unused_node(), stale=False)

    def ask() -> bool:
        leader = world.leader()
        return leader is not None and world.group.add(leader, me)

    world.try_until(ask, fault, every_s=0.02)


def _remove_router(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    _remove(world, rng, fault, resizes=True)


def _remove_wrongly(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    """Remove a live follower as if it had failed; it stops itself and returns as a new one."""
    _remove(world, rng, fault, resizes=False)


def _remove(world: OrderWorld, rng: random.Random, fault: Fault, *, resizes: bool) -> None:
    def ask() -> bool:
        leader = world.leader()
        victims = [router for router in world.alive("router") if router != leader]
        if leader is None or not victims:
            return False
        return world.group.remove(leader, rng.choice(victims), resizes=resizes)

    world.try_until(ask, fault, every_s=0.05)


def _remove_leader(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    resizes = rng.random() < 0.3

    def ask() -> bool:
        leader = world.leader()
        return leader is not None and world.group.remove(leader, leader, resizes=resizes)

    world.try_until(ask, fault, every_s=0.05)


def _kill_in_change(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    """Begin a change, and crash the leader or another router before it is in force everywhere."""
    me = None
    if rng.random() < 0.5 and len(world.alive("router")) < ROUTERS_MAX:
        me = world.group.start_next(world.group.unused_node(), stale=False)

    def kill() -> None:
        if not world.group.is_changing():
            return
        leader, alive = world.leader(), world.alive("router")
        victims = [router for router in rng.sample(alive, len(alive)) if world.may_lose_router(router)]
        if leader in victims and rng.random() < 0.5:
            victims = [leader]
        if victims:
            world.crash(victims[0], fault.kind)
            if rng.random() < 0.5:
                world.group.return_later(victims[0], fault.length_s)

    def ask() -> bool:
        leader = world.leader()
        if leader is None:
            return False
        if me is not None:
            begun = world.group.add(leader, me)
        else:
            victims = world.alive("router")
            begun = world.group.remove(leader, rng.choice(victims), resizes=False)
        if begun:
            world.nodes[leader].pump.need_turn()
            world.later(rng.choice((0.0, 0.001, 0.005, 0.02, 0.1)), kill)
        return begun

    world.try_until(ask, None, every_s=0.02)


def _isolated_change(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    """Cut the leader off from the routers, and ask that one to remove another (it must not succeed alone)."""
    leader = world.leader()
    others = [router for router in world.alive("router") if router != leader]
    if leader is None or len(others) < 2:
        return
    world.press(rng, 0.1)
    world.cut({pair for other in others for pair in ((leader, other), (other, leader))}, fault, resets=True)
    if world.group.remove(leader, rng.choice(others), resizes=False):
        world.nodes[leader].pump.need_turn()


INJECTIONS: dict[str, Injection] = {
    "crash_router": _crash_router,
    "crash_member": _crash_member,
    "restart_member": _restart_member,
    "pause": _pause,
    "pause_leader": _pause_leader,
    "partition": _partition,
    "one_way": _partition,
    "reset": _reset,
    "half_open": _half_open,
    "repeat": _repeat,
    "slow": _slow,
    "slow_reader": _slow_reader,
    "clock_drift": _clock_drift,
    "clock_jump": _clock_jump,
    "hold": _hold,
    "stuck": _stuck,
    "suspect": _suspect,
    "usurp": _usurp,
    "part_routers": _part_routers,
    "deaf_leader": _deaf_leader,
    "restart_router": _restart_router,
    "add_router": _add_router,
    "remove_router": _remove_router,
    "remove_leader": _remove_leader,
    "remove_wrongly": _remove_wrongly,
    "kill_in_change": _kill_in_change,
    "isolated_change": _isolated_change,
}

OPERATIONS = ("add_router", "remove_router", "remove_leader", "remove_wrongly")
"""What an operator does, rather than what goes wrong."""

FAULTS = frozenset(INJECTIONS.keys() - set(OPERATIONS))

ORDER_KINDS = (*INJECTIONS, "usurp", *("kill_in_change", "isolated_change") * 2)
"""Kinds of fault of a simulated order. Beside those of `faults.KINDS`:

``restart_member`` returns as a new incarnation. ``half_open``: a session is
over and one end or both do not know. ``repeat``: what arrived last in a
session arrives again in the next. ``slow_reader``: only what comes in is slow.
``clock_drift`` and ``clock_jump``: one process's clock alone. ``hold``: a
destination withholds confirmations for a while; ``stuck``: for ever, until it
is declared failed. ``suspect``: one that lives is declared failed.
``deaf_leader``: the leader does not notice that its sessions with the other
routers are over, while they do. ``restart_router`` returns as a new
incarnation, which joins. The changes of the routers' membership count as soon
as they are proposed; ``kill_in_change`` and ``isolated_change`` are faults
that fall into one. Named again: what is drawn more often.
"""
