"""A whole cluster of real cores under one seed, virtual time and faults.

The cores, the pump and the parts list are those of every other way to run;
only the clock, the network and the moment at which slow work is done belong to
the simulation. One seed decides everything, so a failing run is repeated by
its number alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crescando import wire
from crescando.assembly import Assembly
from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.consensus.multipaxos.replica import PaxosTiming, Replica
from crescando.engine.base import Engine
from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.roles.client import Client
from crescando.roles.storage import Storage
from crescando.routing.batch import Message
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import (
    AddColumn,
    CreateTable,
    DropTable,
    encode_message,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.spec import ClusterSpec
from crescando.testing.faults import Fault
from crescando.testing.trace import RecordedBroadcast, RecordedMulticast, Trace
from crescando.testing.workload import SCHEMA, Step, Workload
from crescando.transport.base import Channel, Endpoint, Transport
from crescando.transport.simulated import Event, SimulatedNetwork, VirtualTime
from crescando.types import MessageKind, ProcessId

Outcome = ReadOutcome | WriteOutcome | Exception


@dataclass(frozen=True, slots=True)
class Factories:
    """What a run builds its processes from; a test plants a fault by replacing one."""

    router: Callable[..., Router[Any]] = Router
    replica: Callable[..., Replica[Any]] = Replica
    application: Callable[..., Application] = Application


class Node:
    """One simulated process: its core, its pump, and whether it is paused.

    A paused process gets nothing; all that was due happens when it resumes.
    """

    def __init__(self, world: SimulatedCluster, core: ProcessCore, engine: Engine | None = None) -> None:
        self.world = world
        self.core = core
        self.engine = engine
        self.is_alive = True
        self.stopped = ""
        self.pump = Pump(
            core,
            _Gate(self),
            self,
            execute=self._execute,
            after_turn=lambda: world.after_turn(core),
            stopped=self._stopped,
        )
        self._paused: list[Callable[[], None]] | None = None

    # Scheduler of the pump.

    def now_s(self) -> float:
        return self.world.time.now_s()

    def call_soon(self, callback: Callable[[], None]) -> Event:
        # A turn does not follow at once, so that inputs gather into batches.
        return self.call_at(self.now_s() + self.world.rng.uniform(0.0, self.world.turn_s), callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Event:
        event = self.world.time.call_at(when_s, lambda: None)
        event.callback = lambda: self.when_running(lambda: None if event.is_cancelled else callback())
        return event

    def when_running(self, callback: Callable[[], None]) -> None:
        """Call now, or on resumption."""
        if self._paused is None:
            callback()
        else:
            self._paused.append(callback)

    # Faults.

    def pause(self) -> None:
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        waiting, self._paused = self._paused, None
        for callback in waiting or ():
            self.when_running(callback)

    def crash(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._paused = None
            self.pump.stop()

    def _stopped(self, reason: str) -> None:
        self.is_alive = False
        self.stopped = reason

    def _execute(self, work: Any) -> None:
        def complete() -> None:
            if not self.is_alive or self.engine is None:
                return
            try:
                result = work.run(self.engine)
            except Exception as error:  # noqa: BLE001  # As in a scanning thread: this process stops.
                self.pump.fail(error)
            else:
                self.pump.executed(result)

        self.call_at(self.now_s() + self.world.rng.uniform(*self.world.cycle_s), complete)


class _Gate(Transport):
    """The network as one node sees it: what arrives at a paused node waits."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        self.node.world.network.attach(process, _GatedEndpoint(self.node, endpoint))

    def detach(self, process: ProcessId) -> None:
        self.node.world.network.detach(process)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        self.node.world.network.connect(process, peer)


@dataclass(slots=True)
class _GatedEndpoint:
    node: Node
    inner: Endpoint

    def opened(self, channel: Channel) -> None:
        self.node.when_running(lambda: self.inner.opened(channel))

    def received(self, channel: Channel, message: Any) -> None:
        self.node.when_running(lambda: self.inner.received(channel, message))

    def closed(self, channel: Channel) -> None:
        self.node.when_running(lambda: self.inner.closed(channel))

    def refused(self, peer: ProcessId) -> None:
        self.node.when_running(lambda: self.inner.refused(peer))


@dataclass(slots=True)
class ClientScript:
    """What one simulated client does: bursts of operations until a time."""

    core: Client
    rng: random.Random
    next_token: int = 1
    steps: dict[int, Step] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """The message number, the last one if sent again, of each token that was submitted."""


class SimulatedCluster:
    """A cluster, its clients and its faults, all under one seed.

    Parameters
    ----------
    seed : int
    engine : callable
        Makes an engine per storage process; given the arcs it owns by the cluster.
    factories : Factories
    spec : ClusterSpec, optional
        Drawn from the seed by default.
    codec : bool, optional
        Whether every message crosses as bytes; drawn by default.
    """

    def __init__(
        self,
        seed: int,
        *,
        engine: Callable[[], Engine],
        factories: Factories | None = None,
        spec: ClusterSpec | None = None,
        codec: bool | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.trace = Trace()
        self.time = VirtualTime()
        self.turn_s = self.rng.choice((0.0, 0.0005, 0.004))
        self.cycle_s = (0.0005, self.rng.choice((0.002, 0.02)))
        self.spec = spec or self._draw_spec()
        use_codec = self.rng.random() < 0.3 if codec is None else codec
        self.network = SimulatedNetwork(
            self.time,
            self.rng,
            delay_s=self.rng.choice(((0.0002, 0.001), (0.0005, 0.02))),
            codec=(wire.encode, wire.decode) if use_codec else None,
        )
        self.factories = factories or Factories()
        self.assembly = Assembly(
            self.spec, config=self._draw_config(), multicast=self._multicast, broadcast=self._broadcast
        )
        self.nodes: dict[ProcessId, Node] = {}
        self.clients: dict[ProcessId, ClientScript] = {}
        self.outcomes: dict[tuple[ProcessId, int], Outcome] = {}
        self.stable: set[tuple[ProcessId, int]] = set()
        self.counted: dict[str, int] = {}
        self.workload = Workload(SCHEMA.with_ids(0))
        self._engine = engine
        self._start()

    # Building.

    def _draw_spec(self) -> ClusterSpec:
        storages = self.rng.randint(2, 5)
        return ClusterSpec(
            routers=self.rng.choice((3, 3, 3, 5)),
            storages=storages,
            supers=self.rng.choice((1, 3)),
            replication=self.rng.randint(1, min(3, storages)),
            paxos=PaxosTiming(window=self.rng.choice((1, 4, 8)), lag=self.rng.choice((2, 2, 16, 1024))),
            router=RouterLimits(
                batch_messages=self.rng.choice((2, 8, 8192)),
                eager_messages=self.rng.choice((1, 16)),
                credit_bytes=self.rng.choice((500, 32 << 20)),
                window_bytes=self.rng.choice((4_000, 256 << 20)),
            ),
        )

    def _draw_config(self) -> Rubberband:
        names = Assembly(self.spec).names
        ids = None
        if self.rng.random() < 0.5:
            ids = sorted({self.rng.getrandbits(64) for _ in range(self.spec.storages)})
        empty = Rubberband.genesis(
            storages=names.storages,
            replication=self.spec.replication,
            supers=names.supers,
            ring_ids=ids,
        )
        create = encode_message(CreateTable(SCHEMA))
        return empty.apply(Message(names.supers[0], 0, MessageKind.CONFIG, -1, (), 0, create))

    def _multicast(self, me: ProcessId, routers: tuple[ProcessId, ...]) -> RecordedMulticast:
        return RecordedMulticast(me, self.factories.application(me, routers), self.trace)

    def _broadcast(self, me: ProcessId, membership: Any, rng: random.Random) -> Any:
        replica = self.factories.replica(me, membership, self.spec.paxos, rng)
        return RecordedBroadcast(me, replica, self.trace)

    def _start(self) -> None:
        names = self.assembly.names
        for me in names.routers:
            core = self.assembly.router(me, random.Random(f"{self.seed}/{me}"), self.factories.router)
            self._add(core)
        for me in names.storages:
            engine = self._engine()
            engine.set_arcs(self.assembly.config.owned_arcs(me))
            self._add(self.assembly.storage(me), engine)
        for me in names.supers:
            self._add(self.assembly.super_(me))

    def _add(self, core: ProcessCore, engine: Engine | None = None) -> Node:
        node = Node(self, core, engine)
        self.nodes[core.me] = node
        node.pump.start()
        return node

    # Clients.

    def add_client(self, name: str) -> ClientScript:
        """Add a client process."""
        me = ProcessId("client", name, 1)
        core = self.assembly.client(me)
        script = ClientScript(core, random.Random(f"{self.seed}/{name}"))
        self.clients[me] = script
        self._add(core)
        return script

    def configure(self, script: ClientScript, message: Any) -> None:
        """Let a client submit a configuration message."""
        script.core.configure(script.next_token, encode_message(message))
        script.next_token += 1
        self.nodes[script.core.me].pump.need_turn()

    def burst(self, script: ClientScript, n: int) -> None:
        """Let a client submit some operations, and perhaps a configuration message among them."""
        for _ in range(n):
            if script.rng.random() < 0.06:
                self.configure(script, self._scratch_message(script))
            request = self.workload.draw(script.rng)
            step = self.workload.interpret_request(request)
            script.steps[script.next_token] = step
            script.core.request(script.next_token, request)
            script.next_token += 1
        self.nodes[script.core.me].pump.need_turn()

    def _scratch_message(self, script: ClientScript) -> Any:
        """Give a configuration message about tables that nothing else uses."""
        name = f"scratch_{script.core.me.node}_{script.rng.randrange(2)}"
        roll = script.rng.random()
        if roll < 0.5:
            columns = (ColumnDef("a", DataType.INT64, nullable=False),)
            return CreateTable(TableSchema(name, columns, partition_key="a"))
        if roll < 0.75:
            return AddColumn(name, ColumnDef(f"c{script.rng.randrange(3)}", DataType.STRING))
        return DropTable(name)

    def after_turn(self, core: ProcessCore) -> None:
        """Collect what a client's users wait for."""
        if isinstance(core, Client):
            self.clients[core.me].numbers.update(core.numbers())
            for completion in core.take_completions():
                key = (core.me, completion.token)
                if completion.is_stable:
                    self.stable.add(key)
                elif completion.error is not None:
                    self.outcomes[key] = completion.error
                elif isinstance(completion.outcome, ReadOutcome | WriteOutcome):
                    self.outcomes[key] = completion.outcome

    # Faults.

    def alive(self, role: str) -> list[ProcessId]:
        """Give the live processes of a role, in order of their names."""
        return sorted(p for p, node in self.nodes.items() if p.role == role and node.is_alive)

    def inject(self, fault: Fault) -> None:
        """Let a fault happen, if it may: a majority of routers and a replica of each range survive."""
        rng = random.Random(fault.choice)
        match fault.kind:
            case "crash_router":
                if self._may_lose_router():
                    self._crash(rng.choice(self.alive("router")), fault.kind)
            case "crash_storage":
                victims = [p for p in self.alive("storage") if self._is_expendable(p)]
                if victims:
                    self._crash(rng.choice(victims), fault.kind)
            case "crash_super":
                victims = self.alive("super")
                if len(victims) > self.spec.supers // 2 + 1:
                    self._crash(rng.choice(victims), fault.kind)
            case "crash_client":
                victims = self.alive("client")
                if len(victims) > 1:
                    self._crash(rng.choice(victims), fault.kind)
            case "pause":
                self._pause(rng.choice([p for p in self.nodes if self.nodes[p].is_alive]), fault)
            case "partition" | "one_way":
                self._partition(rng, fault)
            case "reset":
                sessions = self.network.sessions()
                for process, peer in rng.sample(sessions, min(len(sessions), rng.randint(1, 4))):
                    self.network.reset(process, peer)
                self._count(fault.kind)
            case "slow":
                self._slow(rng, fault)
            case "usurp":
                self._usurp(fault)
            case "part_routers":
                self._part_routers(rng, fault)

    def _usurp(self, fault: Fault) -> None:
        """Cut the leader off from the other routers; crash its successor when that has decided."""
        leader = self.leader()
        if leader is None or not self._may_lose_router():
            return
        old = self._broadcast_of(leader).ballot
        others = [router for router in self.alive("router") if router != leader]
        pairs = {(a, b) for other in others for a, b in ((leader, other), (other, leader))}
        self.network.faults.cut |= pairs
        self._count(fault.kind)
        deadline_s = self.time.now_s() + 3.0 * self.spec.paxos.election_s
        wanted = random.Random(fault.choice).choice((1, 1, 2, 3))

        def watch() -> None:
            successor = self.leader()
            if successor is not None and successor != leader:
                broadcast = self._broadcast_of(successor)
                decided = sum(1 for _, value in self.trace.learned.get(successor, ()) if value is not None)
                known = seen.setdefault(successor, decided)
                if broadcast.ballot > old and decided >= known + wanted:
                    if self._may_lose_router():
                        self._crash(successor, "crash_successor")
                    self.network.heal(resets=True)
                    return
            if self.time.now_s() < deadline_s:
                self.time.call_at(self.time.now_s() + 0.002, watch)
            else:
                self.network.heal(resets=True)

        seen: dict[ProcessId, int] = {}
        watch()

    def _may_lose_router(self) -> bool:
        """Whether a majority of the routers would be left."""
        return 2 * (len(self.alive("router")) - 1) > self.spec.routers

    def _broadcast_of(self, router: ProcessId) -> Any:
        core = self.nodes[router].core
        assert isinstance(core, Router)
        return core.broadcast

    def leader(self) -> ProcessId | None:
        """Give the live router that leads by the highest ballot."""
        leaders = [
            (node.core.broadcast.ballot, process)
            for process, node in self.nodes.items()
            if node.is_alive and isinstance(node.core, Router) and node.core.broadcast.is_leader
        ]
        return max(leaders)[1] if leaders else None

    def _count(self, kind: str) -> None:
        self.counted[kind] = self.counted.get(kind, 0) + 1

    def _crash(self, victim: ProcessId, kind: str) -> None:
        self.nodes[victim].crash()
        self._count(kind)

    def _is_expendable(self, process: ProcessId) -> bool:
        """Whether every range keeps a live owner, also counting those that may yet be suspected."""
        config = self.assembly.config
        suspects = self.suspected()
        for arc in config.owned_arcs(process):
            others = set(config.live_owners(arc)) - {process} - suspects
            if not any(self.nodes[other].is_alive for other in others):
                return False
        return True

    def suspected(self) -> set[ProcessId]:
        """Give every process that some router holds for failed."""
        return {
            process
            for node in self.nodes.values()
            if isinstance(node.core, Router)
            for process in node.core.mseq.departed
        }

    def _pause(self, victim: ProcessId, fault: Fault) -> None:
        node = self.nodes[victim]
        node.pause()
        self._count(fault.kind)
        self.time.call_at(self.time.now_s() + fault.length_s, node.resume)

    def _partition(self, rng: random.Random, fault: Fault) -> None:
        processes = sorted(self.nodes)
        side = set(rng.sample(processes, rng.randint(1, len(processes) - 1)))
        if rng.random() < 0.5:
            side = {rng.choice(processes)}
        for a in side:
            for b in set(processes) - side:
                self.network.faults.cut.add((a, b))
                if fault.kind == "partition":
                    self.network.faults.cut.add((b, a))
        self._count(fault.kind)
        resets = rng.random() < 0.7
        self.time.call_at(self.time.now_s() + fault.length_s, lambda: self.network.heal(resets=resets))

    def _part_routers(self, rng: random.Random, fault: Fault) -> None:
        if len(self.alive("router")) < 2:
            return
        one, other = rng.sample(self.alive("router"), 2)
        self.network.faults.cut |= {(one, other), (other, one)}
        self.network.reset(one, other)
        self._count(fault.kind)
        self.time.call_at(self.time.now_s() + fault.length_s, lambda: self.network.heal(resets=True))

    def _slow(self, rng: random.Random, fault: Fault) -> None:
        victim = rng.choice(sorted(self.nodes))
        for other in self.nodes:
            self.network.faults.slow[victim, other] = rng.uniform(5.0, 80.0)
            self.network.faults.slow[other, victim] = rng.uniform(5.0, 80.0)
        self._count(fault.kind)
        self.time.call_at(self.time.now_s() + fault.length_s, lambda: self.network.faults.slow.clear())

    def heal(self) -> None:
        """End every fault that is not for ever."""
        self.network.heal(resets=False)
        for node in self.nodes.values():
            node.resume()

    def storages(self) -> dict[ProcessId, Storage]:
        """Give the cores of the live storage processes."""
        return {
            process: node.core
            for process, node in self.nodes.items()
            if node.is_alive and isinstance(node.core, Storage)
        }
