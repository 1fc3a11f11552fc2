"""The faults of a simulated order: what each kind does to an `OrderWorld`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from crescando.testing.faults import Fault

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
    world.usurp(fault)


def _part_routers(world: OrderWorld, rng: random.Random, fault: Fault) -> None:
    world.part_routers(rng, fault)


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
}

ORDER_KINDS = tuple(INJECTIONS)
"""Kinds of fault of a simulated order. Beside those of `faults.KINDS`:

``restart_member`` returns as a new incarnation. ``half_open``: a session is
over and one end or both do not know. ``repeat``: what arrived last in a
session arrives again in the next. ``slow_reader``: only what comes in is slow.
``clock_drift`` and ``clock_jump``: one process's clock alone. ``hold``: a
destination withholds confirmations for a while; ``stuck``: for ever, until it
is declared failed. ``suspect``: one that lives is declared failed.
"""
