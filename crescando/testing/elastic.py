"""A simulated cluster whose keyspace changes all the time: standbys, administrators, aimed faults.

Rules of the file: it is `SimulatedCluster` and nothing beside it. An
administrator is any client; it plans by what some process knows, which may be
old, and submits. Faults that aim at a change find their victim when they take
effect. No fault takes the last owner of a range, of the ring that is or of one
that the changes under way lead to, nor the majority of the supers: these begin
changes too, so that an administrator may be the only one there is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from crescando.engine.base import Engine
from crescando.errors import SpecError
from crescando.process import ProcessCore
from crescando.roles.healing import HealingPolicy
from crescando.roles.storage import Storage
from crescando.roles.super import SuperTiming
from crescando.routing.batch import Message
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import (
    Contract,
    Expand,
    Rebalance,
    Replace,
    Transformation,
    transformed,
)
from crescando.routing.rubberband.messages import DropChange, Reconfigure, encode_message
from crescando.routing.rubberband.planner import make_plan
from crescando.routing.rubberband.ring import Ring
from crescando.spec import ClusterSpec
from crescando.testing.cluster import ClientScript, SimulatedCluster, draw_spec
from crescando.testing.factories import Factories
from crescando.testing.faults import KINDS, Fault, draw_faults
from crescando.testing.node import Node
from crescando.testing.stages import STEPS, Stages, WatchedEngine
from crescando.types import KeyRange, MessageKind, ProcessId

TRANSFORMATIONS = ("expand", "contract", "replace", "rebalance")

VICTIMS = ("sender", "receiver", "bystander", "leader", "super", "admin")
"""Parts that a process may have in a change: it sends or receives, owns a range and does neither,
leads the routers, is the super that acts, or is the client or super that submitted it."""

AIMED = ("crash_party", "pause_party", "part_parties", "drop_change", "crash_at_step", "another_standby")
"""Kinds of fault beside `KINDS` of which a cluster that changes can suffer."""

ELASTIC_KINDS = (*KINDS, *AIMED)

QUEUED_MAX = 4
"""No more transformations are begun while so many are under way."""

RING_MAX_SIZE = 7
"""Rings of this size grow no more."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Crash someone as soon as a change reaches a step.

    Attributes
    ----------
    step : str
        One of `STEPS`.
    victim : str
        One of `VICTIMS`.
    kind : str
        What the change must be, one of `TRANSFORMATIONS`; empty for any.
    """

    step: str
    victim: str
    kind: str = ""


class ElasticCluster(SimulatedCluster):
    """A cluster that grows, shrinks and heals under load and faults.

    Parameters
    ----------
    seed, engine, factories, spec, codec
        See `SimulatedCluster`; `spec.storages` counts the first ring.
    n_standbys : int, optional
        Storage processes that stand by from the beginning; drawn by default.

    Attributes
    ----------
    aims : list of Aim
        What is still to happen.
    stages : Stages
    """

    def __init__(
        self,
        seed: int,
        *,
        engine: Callable[[], Engine],
        factories: Factories | None = None,
        spec: ClusterSpec | None = None,
        codec: bool | None = None,
        n_standbys: int | None = None,
    ) -> None:
        self.stages = Stages()
        self.stages.on_step = self._on_step
        self.aims: list[Aim] = []
        self._administration = random.Random(f"{seed}/administration")
        drawn = self._administration.randint(1, 3)
        self._n_standbys = drawn if n_standbys is None else n_standbys
        if spec is None:
            spec = draw_elastic_spec(random.Random(f"{seed}/elastic"))
        super().__init__(seed, engine=engine, factories=factories, spec=spec, codec=codec)

    # Processes.

    def _start(self) -> None:
        super()._start()
        for _ in range(self._n_standbys):
            self.start_standby()

    def start_standby(self) -> ProcessId:
        """Start a storage process that joins, under a name that nobody had."""
        number = 1 + sum(process.role == "storage" for process in self.nodes)
        me = ProcessId("storage", f"s{number}", 1)
        self.start(me)
        return me

    def make_engine(self, me: ProcessId) -> Engine:
        # What it does not watch it passes on.
        return cast("Engine", WatchedEngine(super().make_engine(me), me, self.stages))

    def arcs_of(self, process: ProcessId) -> tuple[KeyRange, ...]:
        engine = self.nodes[process].engine
        return engine.arcs if isinstance(engine, WatchedEngine) else ()

    def after_turn(self, core: ProcessCore) -> None:
        super().after_turn(core)
        self.stages.after_turn(core)

    def after_stop(self, node: Node) -> None:
        # Whoever was voted out comes back as somebody new, sooner or later.
        if isinstance(node.core, Storage) and node.stopped.startswith("expelled"):
            self.later(self._administration.uniform(0.1, 3.0), self._replenish)

    def _replenish(self) -> None:
        self.count("replenished")
        self.start_standby()

    # What is known.

    def newest(self) -> Rubberband:
        """Give the configuration of the live router that has learned most."""
        routers = [self.nodes[router].core for router in self.alive("router")]
        known = [router for router in routers if isinstance(router, Router)]
        if not known:
            return self.assembly.config
        furthest = max(known, key=lambda router: router.broadcast.learned)
        config = furthest.mseq.config
        assert isinstance(config, Rubberband)
        return config

    def wounds(self, config: Rubberband) -> frozenset[ProcessId]:
        """Give the failed processes on the ring that the supers could have healed."""
        healing = self.spec.healing.action
        supers = config.supers.intersection(self.alive("super"))
        standbys = config.storages.intersection(self.alive("storage")).difference(config.ring.processes)
        may_shrink = healing == "shrink" and len(config.ring.processes) > config.ring.promised
        if healing == "wait" or not supers or not (standbys or may_shrink):
            return frozenset()
        return config.failed

    @property
    def is_at_rest(self) -> bool:
        config = self.newest()
        return super().is_at_rest and not config.changes and not self.wounds(config)

    def rings(self) -> tuple[Ring, ...]:
        config = self.newest()
        rings = [config.ring]
        for change in config.changes:
            rings.append(transformed(rings[-1], change.transformation))
        return tuple(rings)

    # Administration.

    def administer(self) -> None:
        """Let some client begin a transformation that it finds possible, or several in a row."""
        rng = self._administration
        admins = [client for client in self.alive("client") if not self.clients[client].only_reads]
        if not admins:
            return
        admin = self.clients[rng.choice(admins)]
        config: Rubberband | None = self._known_to_somebody(rng)
        for _ in range(rng.choice((1, 1, 2, 3))):
            if config is None or len(config.changes) >= QUEUED_MAX:
                return
            transformation = draw_transformation(rng, config)
            if transformation is not None:
                config = self.begin(admin, config, transformation)

    def begin(
        self, admin: ClientScript, config: Rubberband, transformation: Transformation
    ) -> Rubberband | None:
        """Let a client plan a transformation by a configuration, and submit it.

        Returns
        -------
        Rubberband or None
            What the client expects the configuration to be then; None if nothing was submitted.
        """
        target = config.target
        out = frozenset(target.processes) - config.storages | config.pending
        try:
            plan = make_plan(target, transformation, failed=out)
        except SpecError:
            self.count("unplannable")
            return None
        body = Reconfigure(transformation, plan.copies, config.layout)
        number = self.configure(admin, body)
        if number is None:
            return None
        self.count("reconfigures")
        me, payload = admin.core.me, encode_message(body)
        return config.apply(Message(me, number, MessageKind.CONFIG, -1, (), 0, payload))

    def _known_to_somebody(self, rng: random.Random) -> Rubberband:
        """Give the newest configuration, or now and then what some storage process has delivered."""
        storages = {me: core for me, core in self.storages().items() if core.following.is_joined}
        if rng.random() < 0.8 or not storages:
            return self.newest()
        config = storages[rng.choice(sorted(storages))].config
        return config if isinstance(config, Rubberband) else self.newest()

    # Faults.

    def inject(self, fault: Fault) -> None:
        """Let a fault happen, if it may; one that aims at a change needs one that is under way."""
        rng = random.Random(fault.choice)
        if fault.kind not in AIMED:
            super().inject(fault)
        elif fault.kind == "another_standby":
            self.start_standby()
            self.count(fault.kind)
        elif fault.kind == "crash_at_step":
            self.aims.append(Aim(rng.choice(STEPS), rng.choice(VICTIMS)))
            self.count(fault.kind)
        else:
            changes = self.newest().changes
            if changes:
                self._aim(fault, rng.choice(changes), rng)

    def _aim(self, fault: Fault, change: Change, rng: random.Random) -> None:
        parties = [p for p in sorted(change.parties()) if p in self.nodes and self.nodes[p].is_alive]
        match fault.kind:
            case "crash_party":
                victims = [party for party in parties if self.is_expendable(party)]
                if victims:
                    self.crash(rng.choice(victims), fault.kind)
            case "pause_party":
                if parties:
                    self.pause(rng.choice(parties), fault)
            case "part_parties":
                if change.copies:
                    copy = rng.choice(change.copies)
                    pairs = {(copy.sender, copy.receiver), (copy.receiver, copy.sender)}
                    self.cut(pairs, fault, resets=rng.random() < 0.5)
                    self.network.reset(copy.sender, copy.receiver)
            case "drop_change":
                if self.alive("client"):
                    script = self.clients[rng.choice(self.alive("client"))]
                    self.configure(script, DropChange(change.id, "the administrator thinks better of it"))
                    self.count(fault.kind)

    def _on_step(self, step: str, change: Change, process: ProcessId) -> None:
        kind = type(change.transformation).__name__.lower()
        for aim in self.aims:
            if aim.step == step and aim.kind in ("", kind):
                self.aims.remove(aim)
                # Not within somebody's turn, but before anything that takes time.
                self.time.call_soon(lambda aim=aim: self._strike(aim, change, process))  # type: ignore[misc]
                return

    def _strike(self, aim: Aim, change: Change, seen_at: ProcessId) -> None:
        victim = self._victim(aim.victim, change, seen_at)
        if victim is not None:
            self.crash(victim, f"crash_{aim.victim}_at_{aim.step}")

    def _victim(self, part: str, change: Change, seen_at: ProcessId) -> ProcessId | None:
        """Give a live process that has a part in a change, and that the cluster can do without."""
        senders = {copy.sender for copy in change.copies}
        receivers = {copy.receiver for copy in change.copies}
        match part:
            case "sender":
                found = senders
            case "receiver":
                found = receivers
            case "bystander":
                found = set(self.newest().ring.processes) - senders - receivers
            case "leader":
                leader = self.leader()
                return leader if leader is not None and self.may_lose_router(leader) else None
            case "super":
                found = set(self.alive("super")[:1])
            case _:
                found = {change.id.sender}
        able = [
            process
            for process in sorted(found, key=lambda each: (each != seen_at, each))
            if process in self.nodes and self.nodes[process].is_alive and self._may_lose(process)
        ]
        return able[0] if able else None

    def _may_lose(self, process: ProcessId) -> bool:
        """Whether enough of its role would be left."""
        match process.role:
            case "storage":
                return self.is_expendable(process)
            case "super":
                return self.may_lose_super(process)
            case _:
                return len(self.alive("client")) > 1


def draw_transformation(rng: random.Random, config: Rubberband, kind: str = "") -> Transformation | None:
    """Draw a transformation that a configuration may allow, of one kind or any; None if there is none."""
    target = config.target
    standbys = sorted(config.storages - {*target.processes, *config.ring.processes} - config.pending)
    placed = sorted(target.processes)
    failed = sorted(set(placed) - config.storages)
    options: list[Callable[[], Transformation]] = []
    if standbys and len(placed) < RING_MAX_SIZE:
        options.append(lambda: Expand(rng.choice(standbys), _free_position(rng, target)))
    if standbys:
        options.append(lambda: Replace(rng.choice(failed or placed), rng.choice(standbys)))
    if len(placed) > target.promised:
        options.append(lambda: Contract(rng.choice(failed or placed)))
    options.append(lambda: Rebalance(rng.choice(placed), _free_position(rng, target)))
    if kind:
        options = [make for make in options if _kind_of(make()) == kind]
    return rng.choice(options)() if options else None


def _kind_of(transformation: Transformation) -> str:
    return type(transformation).__name__.lower()


def _free_position(rng: random.Random, ring: Ring) -> int:
    """Give a position that nobody has: anywhere, or in the middle of an arc."""
    if rng.random() < 0.5:
        low, high = rng.choice(ring.arcs)
        at = (low + high) // 2
    else:
        at = rng.getrandbits(64)
    return at if at not in ring.ids else (at + 1) % (1 << 64)


def draw_elastic_spec(rng: random.Random) -> ClusterSpec:
    """Draw a spec whose supers lose patience soon, so that there is time to heal."""
    spec = draw_spec(rng)
    # Small windows make a copy last, so that faults meet it; small budgets make it end.
    copies = replace(
        spec.storage,
        copy_window_bytes=rng.choice((1, 1, 200, 8 << 20)),
        copy_bytes=rng.choice((2_000, 1 << 30, 1 << 30)),
        copy_patience_s=rng.choice((1.0, 30.0)),
    )
    return replace(
        spec,
        storages=rng.randint(3, 5),
        supers=rng.choice((1, 3, 3)),
        replication=rng.choice((1, 2, 2, 3)),
        storage=copies,
        super_=SuperTiming(suspicion_s=rng.choice((0.8, 1.5, 3.0)), ping_s=rng.choice((0.1, 0.3))),
        healing=HealingPolicy(
            action=rng.choice(("replace", "replace", "shrink", "wait")),
            delay_s=rng.choice((0.2, 1.0)),
            shrink_after_s=rng.choice((0.5, 10.0)),
        ),
    )


def draw_elastic_faults(rng: random.Random, *, span_s: float, kinds: tuple[str, ...]) -> list[Fault]:
    """Draw a schedule in which faults that aim at changes are as many as others."""
    parts = [tuple(kind for kind in kinds if (kind in AIMED) == is_aimed) for is_aimed in (False, True)]
    drawn = [draw_faults(rng, span_s=span_s, kinds=part, n_max=6) for part in parts if part]
    return sorted((fault for some in drawn for fault in some), key=lambda fault: fault.when_s)
