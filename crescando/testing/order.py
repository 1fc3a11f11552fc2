"""The ordering path alone under one seed: real routers, real application processes, nothing above.

A world small enough that thousands of seeds take minutes. Members submit small
messages, are destinations, confirm at their own pace, leave, and come back as
new incarnations; what they send and where it goes is a `Scenario`'s business.

A few members are *wardens*: they send no data, only accusations of those that
have failed. A warden's word must get through whatever the window of data holds;
another member's waits behind that member's own data.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from crescando import wire
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.process import ProcessCore
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.router import Router
from crescando.testing.factories import Factories
from crescando.testing.faults import Fault
from crescando.testing.member import Member
from crescando.testing.node import Node
from crescando.testing.order_faults import FAULTS, INJECTIONS
from crescando.testing.order_routers import RouterGroup
from crescando.testing.scenario import Draft, Scenario
from crescando.testing.situations import Watch
from crescando.testing.trace import RecordedMulticast
from crescando.testing.world import World
from crescando.transport.base import Decode
from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from crescando.types import MessageKind, ProcessId

BURSTS_PER_S = 4.0


def _decode_all(sender: ProcessId, receiver: ProcessId, denial: str) -> Decode:
    """Give the decoder of any message: members are of a role that no cluster has."""
    return wire.decode


@dataclass(frozen=True, slots=True)
class OrderSpec:
    """The settings of one world's routers."""

    routers: int
    paxos: PaxosTiming
    limits: RouterLimits

    @classmethod
    def draw(cls, rng: random.Random) -> OrderSpec:
        """Draw settings that make batches, windows, lags and slices small often."""
        spec = cls(
            routers=rng.choice((3, 3, 3, 5)),
            paxos=PaxosTiming(
                heartbeat_s=0.1,
                election_s=0.4,
                removal_s=rng.choice((0.8, 1.5, 5.0)),
                window=rng.choice((1, 2, 4, 8)),
                lag=rng.choice((2, 4, 16, 1024)),
            ),
            limits=RouterLimits(
                batch_messages=rng.choice((2, 8, 8192)),
                eager_messages=rng.choice((1, 4, 16)),
                credit_bytes=rng.choice((500, 32 << 20)),
                window_bytes=rng.choice((1_500, 4_000, 256 << 20)),
                pulse_s=0.15,
                leaderless_s=1.0,
            ),
        )
        return replace(spec, limits=with_small_slices(spec.limits))


def with_small_slices(limits: RouterLimits) -> RouterLimits:
    """Let routers with small batches make up for what they did not route in small slices too."""
    return replace(limits, slice_instances=2) if limits.batch_messages <= 8 else limits


class OrderWorld(World):
    """Routers and members, all under one seed.

    Parameters
    ----------
    seed : int
    scenario : Scenario
    factories : Factories, optional
    spec : OrderSpec, optional
        Drawn from the seed by default.
    codec : bool, optional
        Whether every message crosses as bytes; drawn by default.
    delay_s : tuple of float, optional
        Least and greatest delay of a message; drawn by default.
    turn_s : float, optional
        Greatest delay of a process's turn; drawn by default.
    """

    def __init__(
        self,
        seed: int,
        *,
        scenario: Scenario,
        factories: Factories | None = None,
        spec: OrderSpec | None = None,
        codec: bool | None = None,
        delay_s: tuple[float, float] | None = None,
        turn_s: float | None = None,
    ) -> None:
        rng = random.Random(f"{seed}/order")
        self.spec = spec or OrderSpec.draw(rng)
        use_codec = rng.random() < 0.1 if codec is None else codec
        network = SimulatedNetwork(
            VirtualTime(),
            rng,
            delay_s=delay_s or rng.choice(((0.0002, 0.001), (0.0005, 0.01), (0.0005, 0.03))),
            codec=(wire.encode, _decode_all) if use_codec else None,
            keep_arrived=4,
        )
        turn_s = rng.choice((0.0, 0.001, 0.005)) if turn_s is None else turn_s
        super().__init__(seed, network=network, rng=rng, turn_s=turn_s, election_s=self.spec.paxos.election_s)
        self.scenario = scenario
        self.factories = factories or Factories()
        founders = scenario.founders(rng)
        self.genesis = scenario.genesis(rng, founders)
        self.members: dict[ProcessId, Member] = {}
        self.failing: dict[ProcessId, None] = {}
        self.wardens = {process.node for process in founders[: 2 if len(founders) > 3 else 1]}
        self.is_loaded = True
        self.is_healed_whole = rng.random() < 0.5
        self.watch = Watch(self)
        network.witness = self.watch.on_send
        self._incarnations: dict[tuple[str, str], int] = {}
        self._accused_s: dict[ProcessId, float] = {}
        self.group = RouterGroup(self)
        for me in self.group.founders:
            self.group.start(me, self.group.founders)
        for me in founders:
            self._start_member(me)

    # Building.

    def _start_member(self, me: ProcessId) -> Member:
        rng = random.Random(f"{self.seed}/{me}")
        multicast = RecordedMulticast(
            me, self.factories.application(me, self.group.newest().members), self.trace
        )
        member = Member(me, multicast, rng)
        self.members[me] = member
        self._incarnations[me.role, me.node] = me.incarnation
        self.add(member)
        if me.node not in self.wardens:
            self._burst_later(member)
        return member

    def join(self, node: str, role: str) -> Member:
        """Start a process that joins by its first message, as the next incarnation of its name."""
        incarnation = self._incarnations.get((role, node), 0) + 1
        member = self._start_member(ProcessId(role, node, incarnation))
        payload = self.scenario.join(member.me)
        self._submit(member, [Draft(MessageKind.CONFIG, -1, (), payload)])
        return member

    # What members do.

    def _burst_later(self, member: Member) -> None:
        self.later(member.rng.expovariate(BURSTS_PER_S), lambda: self._burst(member))

    def _burst(self, member: Member) -> None:
        if not self.is_loaded or not self.nodes[member.me].is_alive:
            return
        self._send_some(member)
        if member.rng.random() < 0.2:
            member.hold(member.rng.random() < 0.5)
        self._burst_later(member)

    def _send_some(self, member: Member) -> None:
        processes = sorted(self.members)
        n = member.rng.choice((1, 1, 2, 5))
        self._submit(member, [self.scenario.draw(member.rng, member.me, processes) for _ in range(n)])

    def _submit(self, member: Member, drafts: list[Draft]) -> None:
        node = self.nodes[member.me]

        def submit() -> None:
            if node.is_alive:
                member.submit(drafts)
                node.pump.need_turn()

        node.when_running(submit)

    def living(self) -> list[ProcessId]:
        """Give every live process, in order."""
        return sorted(process for process, node in self.nodes.items() if node.is_alive)

    def useful_members(self) -> list[ProcessId]:
        """Give the live members that nobody has a reason to suspect."""
        return sorted(p for p in self.members if self.nodes[p].is_alive and p not in self.failing)

    def after_turn(self, core: ProcessCore) -> None:
        if isinstance(core, Router):
            if core.me in self.group.uninformed and self.group.is_member(core):
                del self.group.uninformed[core.me]
            self.watch.after_router_turn(core)

    def after_stop(self, node: Node) -> None:
        me = node.core.me
        if me.role == "router":
            self.group.return_later(me, self.rng.uniform(0.05, 1.0))
        elif self.is_loaded:
            self.return_later(me, self.rng.uniform(0.05, 1.0))

    # Faults.

    def inject(self, fault: Fault) -> None:
        if self.alive("router"):
            INJECTIONS[fault.kind](self, random.Random(fault.choice), fault)

    def count(self, kind: str) -> None:
        super().count(kind)
        if kind in FAULTS and self.group.is_changing():
            super().count("fault_during_change")

    def may_lose_router(self, router: ProcessId) -> bool:
        return self.group.may_lose(router)

    def return_later(self, process: ProcessId, length_s: float) -> None:
        """Let a process that has stopped come back as a new incarnation."""

        def come_back() -> None:
            if self._incarnations[process.role, process.node] == process.incarnation:
                self.join(process.node, process.role)

        self.later(length_s, come_back)

    def hold(self, victim: ProcessId, fault: Fault) -> None:
        """Let a member withhold its confirmations for a while."""
        self.hold_for(victim, fault.length_s)
        self.count(fault.kind)

    def press(self, rng: random.Random, length_s: float) -> None:
        """Let every member that sends data send more of it for a while."""
        for process in self.useful_members():
            member = self.members[process]
            if process.node not in self.wardens:
                for _ in range(4):
                    self.later(rng.uniform(0.0, length_s), partial(self._send_some, member))

    def hold_for(self, victim: ProcessId, length_s: float) -> None:
        """Let a member withhold its confirmations for a while; part of another fault."""
        self._hold(victim, True)
        self.later(length_s, lambda: self._hold(victim, False))

    def try_until(self, attempt: Callable[[], bool], fault: Fault | None, *, every_s: float) -> None:
        """Try something until it succeeds, twenty times at most; count the fault when it does."""

        def again(left: int) -> None:
            if not self.is_loaded:
                return
            if attempt():
                if fault is not None:
                    self.count(fault.kind)
                leader = self.leader()
                if leader is not None:
                    self.nodes[leader].pump.need_turn()
            elif left:
                self.later(every_s, lambda: again(left - 1))

        again(20)

    def _hold(self, victim: ProcessId, hold: bool) -> None:
        self.members[victim].hold(hold)
        self.nodes[victim].pump.need_turn()

    def get_stuck(self, victim: ProcessId, fault: Fault) -> None:
        """Let a member withhold its confirmations until it is declared failed."""
        self.members[victim].is_stuck = True
        self._hold(victim, True)
        self.count(fault.kind)
        self.accuse_later(victim, fault.length_s)

    def suspect_wrongly(self, accuser: ProcessId, victim: ProcessId, fault: Fault) -> None:
        """Let a member accuse another that lives, while that one sends."""
        member = self.members[victim]
        if victim.node not in self.wardens:
            # A warden's accusations must never wait behind data, as a super sends none.
            self._submit(member, [self.scenario.draw(member.rng, victim, sorted(self.members))])
        self._accuse(accuser, victim)
        self.count(fault.kind)

    def accuse_later(self, victim: ProcessId, length_s: float) -> None:
        """Let some member find out that another has failed."""
        self.failing[victim] = None
        self.later(length_s, self.accuse_failing)

    def accuse_failing(self) -> None:
        """Let a live member accuse each process that has failed, unless one did so just now."""
        suspected = self.suspected()
        for victim in self.failing:
            if victim in suspected or self.time.now_s() < self._accused_s.get(victim, -1.0) + 1.0:
                continue
            accusers = [process for process in self.useful_members() if process.node in self.wardens]
            if accusers:
                self._accuse(self.rng.choice(accusers), victim)

    def _accuse(self, accuser: ProcessId, victim: ProcessId) -> None:
        self.watch.before_suspicion(victim)
        self._accused_s[victim] = self.time.now_s()
        payload = self.scenario.suspect(victim)
        self._submit(self.members[accuser], [Draft(MessageKind.CONFIG, -1, (), payload)])

    # The end.

    def heal(self) -> None:
        """End every fault that is not for ever, and all load; in half of the seeds the dead return."""
        super().heal()
        self.is_loaded = False
        if self.is_healed_whole:
            self.group.return_all()
        for process in self.useful_members():
            self._hold(process, False)

    def look_after(self) -> None:
        """Do what the living do about the dead: accuse them; let a warden return if none is left."""
        suspected = self.suspected()
        for process in self.members:
            if not self.nodes[process].is_alive and process not in suspected:
                self.failing.setdefault(process)
        able = set(self.useful_members()) - suspected
        if not any(process.node in self.wardens for process in able):
            role, node = min(key for key in self._incarnations if key[1] in self.wardens)
            self.join(node, role)
        self.accuse_failing()

    def is_at_rest(self) -> bool:
        """Whether every live member knows what became of all it has sent, and routers keep nothing of it."""
        for process in self.useful_members():
            multicast = self.members[process].multicast
            if multicast.n_unstable or multicast.has_events:
                return False
        if any(router.n_pending for router in self.group.members()):
            return False
        return self.group.is_whole() or not self.is_healed_whole
