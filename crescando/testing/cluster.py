"""A whole cluster of real cores under one seed, virtual time and faults.

The cores, the pump and the parts list are those of every other way to run;
only the clock, the network and the moment at which slow work is done belong to
the simulation. One seed decides everything, so a failing run is repeated by
its number alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from crescando import wire
from crescando.assembly import Assembly
from crescando.client.base import Isolation, ReadOutcome, Request, WriteOutcome
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.engine.base import Engine
from crescando.engine.statement import Kind
from crescando.process import ProcessCore
from crescando.roles.client import Client
from crescando.roles.completion import Completion, one_by_one
from crescando.roles.limits import StorageLimits
from crescando.roles.storage import Storage
from crescando.routing.batch import Message
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import (
    AddColumn,
    CreateTable,
    DropTable,
    Suspect,
    decode_message,
    encode_message,
)
from crescando.routing.rubberband.ring import Ring
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.spec import ClusterSpec
from crescando.testing.factories import Factories
from crescando.testing.faults import Fault
from crescando.testing.held import Sample, sample
from crescando.testing.isolation import Asked, Told
from crescando.testing.judge import Judgement
from crescando.testing.order import with_small_slices
from crescando.testing.trace import RecordedBroadcast, RecordedMulticast
from crescando.testing.workload import SCHEMA, Step, Workload
from crescando.testing.world import Pairs, World
from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from crescando.types import KeyRange, MessageKind, ProcessId

SAMPLED = 0.1
"""Share of a storage process's turns after which its engine is looked at, if it has executed anything."""

Outcome = ReadOutcome | WriteOutcome | Exception


@dataclass(slots=True)
class ClientScript:
    """What one simulated client does: bursts of operations until a time."""

    core: Client
    rng: random.Random
    next_token: int = 1
    steps: dict[int, Step] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """The message number, the last one if sent again, of each token that was submitted."""
    asked: dict[int, Asked] = field(default_factory=dict)
    """What was known when each read outside the order was asked for."""
    seen: int = -1
    """The highest position that the client has been told."""
    only_reads: bool = False
    """Whether it leaves its writes out, behind which its reads would have to wait."""


class SimulatedCluster(World):
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
        rng = random.Random(seed)
        turn_s = rng.choice((0.0, 0.0005, 0.004))
        cycle_s = (0.0005, rng.choice((0.002, 0.02)))
        self.spec = spec or draw_spec(rng)
        use_codec = rng.random() < 0.3 if codec is None else codec
        network = SimulatedNetwork(
            VirtualTime(),
            rng,
            delay_s=rng.choice(((0.0002, 0.001), (0.0005, 0.02))),
            codec=(wire.encode, wire.decoder_for) if use_codec else None,
        )
        super().__init__(
            seed,
            network=network,
            rng=rng,
            turn_s=turn_s,
            cycle_s=cycle_s,
            election_s=self.spec.paxos.election_s,
        )
        self.factories = factories or Factories()
        self.assembly = Assembly(
            self.spec, config=self._draw_config(), multicast=self._multicast, broadcast=self._broadcast
        )
        self.clients: dict[ProcessId, ClientScript] = {}
        self.outcomes: dict[tuple[ProcessId, int], Outcome] = {}
        self.told_s: dict[tuple[ProcessId, int], float] = {}
        self.stable: set[tuple[ProcessId, int]] = set()
        self.told = Told()
        self.samples: list[Sample] = []
        self._executed: dict[ProcessId, int] = {}
        # Its own source: how often anybody looks changes nothing of the run.
        self._looking = random.Random(f"{seed}/looking")
        self.workload = Workload(SCHEMA.with_ids(0))
        self._engine = engine
        self._start()

    # Building.

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
            self.add(core)
        for me in (*names.storages, *names.supers):
            self.start(me)

    def start(self, me: ProcessId) -> None:
        """Start a storage or super process: one of the first, or one that joins."""
        if me.role == "super":
            self.add(self.assembly.super_(me))
            return
        engine = self.make_engine(me)
        engine.set_arcs(self.assembly.config.owned_arcs(me))
        self.add(self.assembly.storage(me), engine)

    def make_engine(self, me: ProcessId) -> Engine:
        """Give the engine of a storage process."""
        return self._engine()

    # Clients.

    def add_client(self, name: str) -> ClientScript:
        """Add a client process."""
        me = ProcessId("client", name, 1)
        core = self.assembly.client(me)
        script = ClientScript(core, random.Random(f"{self.seed}/{name}"))
        self.clients[me] = script
        self.add(core)
        return script

    def configure(self, script: ClientScript, message: Any) -> int | None:
        """Let a client submit a configuration message; gives its number if it is."""
        number = script.core.configure(script.next_token, encode_message(message))
        script.next_token += 1
        self.nodes[script.core.me].pump.need_turn()
        return number

    def burst(self, script: ClientScript, n: int) -> None:
        """Let a client submit some operations, and perhaps a configuration message among them."""
        for _ in range(n):
            if script.rng.random() < 0.06 and not script.only_reads:
                self.configure(script, self._scratch_message(script))
            request = self.workload.draw(script.rng)
            is_read = request.shape.kind is Kind.READ
            if is_read or not script.only_reads:
                self.ask(script, request, self._isolation(script) if is_read else "sequential")
        self.nodes[script.core.me].pump.need_turn()

    def _isolation(self, script: ClientScript) -> Isolation:
        """Draw how a read is placed."""
        drawn = script.rng.random()
        return "snapshot" if drawn < 0.4 else "basic" if drawn < 0.65 else "sequential"

    def ask(self, script: ClientScript, request: Request, isolation: Isolation = "sequential") -> int:
        """Let a client submit one operation; gives its token."""
        token, script.next_token = script.next_token, script.next_token + 1
        script.steps[token] = self.workload.interpret_request(request)
        if isolation != "sequential":
            request = msgspec.structs.replace(request, isolation=isolation)
            lease_s = self.spec.super_.suspicion_s / 2 if isolation == "basic" else 0.0
            told = self.told.by(self.time.now_s() - lease_s)
            script.asked[token] = Asked(isolation, script.seen, told)
        script.core.request(token, request)
        self.nodes[script.core.me].pump.need_turn()
        return token

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
        """Collect what a client's users wait for; look at what an engine holds, now and then."""
        if isinstance(core, Storage):
            self._look_at(core)
        if isinstance(core, Client):
            self.clients[core.me].numbers.update(core.numbers())
            for completion in one_by_one(core.take_told()):
                self.hear(core, completion)
                key = (core.me, completion.token)
                if self.on_completion(key, completion):
                    continue
                if completion.is_stable:
                    self.stable.add(key)
                elif completion.error is not None:
                    self.outcomes[key] = completion.error
                elif isinstance(completion.outcome, ReadOutcome | WriteOutcome):
                    self.outcomes[key] = completion.outcome
                    self.told_s[key] = self.time.now_s()
                    script = self.clients[core.me]
                    script.seen = max(script.seen, completion.outcome.latest)
                    self.told.tell(script.seen, self.time.now_s())

    def hear(self, core: Client, completion: Completion) -> None:
        """Take what a client is told, whatever it is."""

    def on_completion(self, key: tuple[ProcessId, int], completion: Completion) -> bool:
        """Take what a client is told of what is no operation of the workload; False if it is one."""
        return False

    def before_judging(self, q: Judgement) -> None:
        """Say what messages mean that are no operations of the workload."""

    def _look_at(self, core: Storage) -> None:
        """Take a sample of an engine that has executed something since the last one."""
        known = self._executed.get(core.me, -1)
        if core.executed <= known or self._looking.random() >= SAMPLED:
            return
        self._executed[core.me] = core.executed
        engine = self.nodes[core.me].engine
        arcs = self.arcs_of(core.me)
        if engine is not None and arcs:
            self.samples.append(sample(core.me, core.executed, engine, arcs, self.workload))

    def arcs_of(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the arcs that a storage process's engine was told to hold."""
        return self.assembly.config.owned_arcs(process)

    # Faults.

    def inject(self, fault: Fault) -> None:
        """Let a fault happen, if it may.

        A majority of the routers, one of the supers and a replica of each range survive.
        """
        rng = random.Random(fault.choice)
        match fault.kind:
            case "crash_router":
                victim = rng.choice(self.alive("router"))
                if self.may_lose_router(victim):
                    self.crash(victim, fault.kind)
            case "crash_storage":
                victims = [p for p in self.alive("storage") if self.is_expendable(p)]
                if victims:
                    self.crash(rng.choice(victims), fault.kind)
            case "crash_super":
                victims = [p for p in self.alive("super") if self.may_lose_super(p)]
                if victims:
                    self.crash(rng.choice(victims), fault.kind)
            case "crash_client":
                victims = self.alive("client")
                if len(victims) > 1:
                    self.crash(rng.choice(victims), fault.kind)
            case "pause":
                self.pause(rng.choice([p for p in self.nodes if self.nodes[p].is_alive]), fault)
            case "partition" | "one_way":
                self.partition(rng, fault, sorted(self.nodes))
            case "reset":
                self.reset_sessions(rng, fault)
            case "slow":
                victim = rng.choice(sorted(self.nodes))
                self.slow(victim, fault, lambda: (rng.uniform(5.0, 80.0), rng.uniform(5.0, 80.0)))
            case "usurp":
                self.usurp(fault)
            case "part_routers":
                self.part_routers(rng, fault)
            case "isolate":
                self._isolate(rng, fault)

    def _isolate(self, rng: random.Random, fault: Fault) -> None:
        """Cut off the leader, a storage process and a client, long enough for both to be replaced."""
        leader = self.leader()
        storages = [p for p in self.alive("storage") if self.is_expendable(p)]
        if leader is None or not self.may_lose_router(leader) or not storages or not self.alive("client"):
            return
        reader = self.clients[rng.choice(self.alive("client"))]
        inside = {leader, rng.choice(storages), reader.core.me}
        outside = set(self.nodes) - inside
        replaced_s = self.spec.paxos.election_s + 1.5 * self.spec.super_.suspicion_s
        fault = replace(fault, length_s=max(fault.length_s, replaced_s))
        pairs = {(a, b) for a in inside for b in outside}
        self.cut(pairs | {(b, a) for a, b in pairs}, fault, resets=True)
        if rng.random() < 0.5:
            self._forsake(pairs, fault)
        reader.only_reads = True

        def write_again() -> None:
            reader.only_reads = False

        self.later(fault.length_s, write_again)

    def _forsake(self, pairs: Pairs, fault: Fault) -> None:
        """Let the second of each pair notice at once that it has lost the first, which notices nothing.

        It may then be replaced within milliseconds, or a few refusals, while it
        still holds the last answers of the others.
        """
        ends = [self.network.half_open(near, far, both=False) for near, far in sorted(pairs)]
        if any(ends):
            self.count("forsake")
        for end in ends:
            if end is not None:
                self.later(fault.length_s, end)

    def may_lose_router(self, router: ProcessId) -> bool:
        """Whether a majority of the routers would be left."""
        left = [other for other in self.alive("router") if other != router]
        return 2 * len(left) > self.spec.routers

    def may_lose_super(self, process: ProcessId) -> bool:
        """Whether a majority of the supers would be left, to vote out whoever fails, the lost one too."""
        left = [other for other in self.alive("super") if other != process]
        return 2 * len(left) > self.spec.supers

    def is_expendable(self, process: ProcessId) -> bool:
        """Whether every range keeps a live owner, also counting those that may yet be suspected."""
        suspects = {process, *self.suspected(), *self._accused(), *self._out_of_reach()}
        able = {other for other in self.alive("storage") if other not in suspects}
        return all(
            process not in owners or not able.isdisjoint(owners)
            for ring in self.rings()
            for owners in map(ring.owners, range(len(ring.arcs)))
        )

    def rings(self) -> tuple[Ring, ...]:
        """Give the ring that is, and those that it may become by what is under way."""
        return (self.assembly.config.ring,)

    def _accused(self) -> set[ProcessId]:
        """Give whomever a super has ever voted for failed: the vote may be on its way for long."""
        votes = (
            decode_message(submitted.batch.message(index).payload)
            for submitted in self.trace.submitted
            if submitted.process.role == "super"
            for index in range(len(submitted.batch))
        )
        return {vote.accused for vote in votes if isinstance(vote, Suspect)}

    def _out_of_reach(self) -> set[ProcessId]:
        """Give whomever a super may be about to accuse: what is paused, and what is cut off from one."""
        with_supers = [pair for pair in self.network.faults.cut if "super" in (pair[0].role, pair[1].role)]
        cut = {process for pair in with_supers for process in pair}
        return cut | {process for process, node in self.nodes.items() if node.is_paused}

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody who lives waits for anything."""
        return all(
            not script.core.n_in_flight and not script.core.multicast.n_unstable
            for process, script in self.clients.items()
            if self.nodes[process].is_alive
        )

    def storages(self) -> dict[ProcessId, Storage]:
        """Give the cores of the live storage processes."""
        return {
            process: node.core
            for process, node in self.nodes.items()
            if node.is_alive and isinstance(node.core, Storage)
        }


def draw_spec(rng: random.Random) -> ClusterSpec:
    """Draw a spec: few processes, and limits that are often met."""
    # Small cycles leave reads behind, which others overtake.
    cycle_operations = random.Random(rng.getstate()[1][0]).choice((2, 5, 1 << 14))
    storages = rng.randint(2, 5)
    return ClusterSpec(
        routers=rng.choice((3, 3, 3, 5)),
        storages=storages,
        supers=rng.choice((1, 3)),
        replication=rng.randint(1, min(3, storages)),
        paxos=PaxosTiming(window=rng.choice((1, 4, 8)), lag=rng.choice((2, 2, 16, 1024))),
        router=with_small_slices(
            RouterLimits(
                batch_messages=rng.choice((2, 8, 8192)),
                eager_messages=rng.choice((1, 16)),
                credit_bytes=rng.choice((500, 32 << 20)),
                window_bytes=rng.choice((4_000, 256 << 20)),
                sender_bytes=rng.choice((300, 2_000, 4 << 20)),
                lag_bytes=rng.choice((2_000, 64 << 20)),
            )
        ),
        storage=StorageLimits(cycle_operations=cycle_operations),
    )
