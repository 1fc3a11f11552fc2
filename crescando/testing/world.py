"""What every simulated world shares: time, network, nodes, and the faults that any of them can suffer.

Rules of the file: a fault is counted when it takes effect, and only then; a
fault that would leave no majority of routers does not happen; what a fault
has broken it mends itself when its time is over, and nothing of another's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from crescando.process import ProcessCore
from crescando.routing.ecast.messages import Hello, Resume, Welcome
from crescando.routing.ecast.router import Router
from crescando.testing.faults import Fault
from crescando.testing.node import Node
from crescando.testing.trace import Trace
from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from crescando.types import ProcessId

Pairs = set[tuple[ProcessId, ProcessId]]


class World:
    """The part of a simulation that does not depend on what its processes do.

    Parameters
    ----------
    seed : int
    network : SimulatedNetwork
    rng : random.Random
        Source of everything that is drawn while the world runs.
    turn_s : float
        How long a turn may wait for further inputs.
    cycle_s : tuple of float
        How long slow work takes.
    election_s : float
        The routers' election time.
    """

    def __init__(
        self,
        seed: int,
        *,
        network: SimulatedNetwork,
        rng: random.Random,
        turn_s: float,
        cycle_s: tuple[float, float] = (0.0, 0.0),
        election_s: float,
    ) -> None:
        self.seed = seed
        self.rng = rng
        self.network = network
        self.time: VirtualTime = network.time
        self.turn_s = turn_s
        self.cycle_s = cycle_s
        self.election_s = election_s
        self.trace = Trace()
        self.nodes: dict[ProcessId, Node] = {}
        self.counted: dict[str, int] = {}

    # What subclasses say.

    def after_turn(self, core: ProcessCore) -> None:
        """Look at a core after each of its turns."""

    def after_stop(self, node: Node) -> None:
        """Learn that a process has stopped itself, or failed."""

    def may_lose_router(self, router: ProcessId) -> bool:
        """Say whether the order can go on without a router."""
        raise NotImplementedError

    def inject(self, fault: Fault) -> None:
        """Let a fault happen, if it may."""
        raise NotImplementedError

    # Processes.

    def add(self, core: ProcessCore, engine: Any = None) -> Node:
        """Start a process."""
        node = Node(self, core, engine)
        self.nodes[core.me] = node
        node.pump.start()
        return node

    def alive(self, role: str) -> list[ProcessId]:
        """Give the live processes of a role, in order of their names."""
        return sorted(p for p, node in self.nodes.items() if p.role == role and node.is_alive)

    def router(self, process: ProcessId) -> Router[Any]:
        """Give a router's core."""
        core = self.nodes[process].core
        assert isinstance(core, Router)
        return core

    def leader(self) -> ProcessId | None:
        """Give the live router that leads by the highest ballot."""
        leaders = [
            (node.core.broadcast.ballot, process)
            for process, node in self.nodes.items()
            if node.is_alive and isinstance(node.core, Router) and node.core.broadcast.is_leader
        ]
        return max(leaders)[1] if leaders else None

    def suspected(self) -> set[ProcessId]:
        """Give every process that some router holds for failed."""
        return {
            process
            for node in self.nodes.values()
            if isinstance(node.core, Router)
            for process in node.core.mseq.departed
        }

    def count(self, kind: str) -> None:
        """Count something that has taken effect."""
        self.counted[kind] = self.counted.get(kind, 0) + 1

    def later(self, length_s: float, callback: Callable[[], None]) -> None:
        """Call back after some virtual time."""
        self.time.call_at(self.time.now_s() + length_s, callback)

    # Faults of processes.

    def crash(self, victim: ProcessId, kind: str) -> None:
        """End a process for ever."""
        self.nodes[victim].crash()
        self.count(kind)

    def pause(self, victim: ProcessId, fault: Fault) -> None:
        """Stop a process for a while."""
        node = self.nodes[victim]
        node.pause()
        self.count(fault.kind)
        self.later(fault.length_s, node.resume)

    def drift_clock(self, victim: ProcessId, rate: float, fault: Fault) -> None:
        """Let a process's clock run fast or slow for a while."""
        node = self.nodes[victim]
        node.run_clock(rate)
        self.count(fault.kind)
        self.later(fault.length_s, lambda: node.run_clock(1.0))

    def jump_clock(self, victim: ProcessId, ahead_s: float, fault: Fault) -> None:
        """Let a process's clock jump ahead."""
        self.nodes[victim].jump_clock(ahead_s)
        self.count(fault.kind)

    # Faults of the network.

    def cut(self, pairs: Pairs, fault: Fault, *, resets: bool) -> None:
        """Let nothing get from the first to the second of each pair, for a while."""
        self.network.faults.cut |= pairs
        self.count(fault.kind)
        self.later(fault.length_s, lambda: self.network.heal(resets=resets, cut=pairs))

    def partition(self, rng: random.Random, fault: Fault, processes: list[ProcessId]) -> None:
        """Cut some processes off from the others, in one direction or in both."""
        side = set(rng.sample(processes, rng.randint(1, len(processes) - 1)))
        if rng.random() < 0.5:
            side = {rng.choice(processes)}
        pairs: Pairs = set()
        for a in sorted(side):
            for b in processes:
                if b not in side:
                    pairs.add((a, b))
                    if fault.kind == "partition":
                        pairs.add((b, a))
        self.cut(pairs, fault, resets=rng.random() < 0.7)

    def part_routers(self, rng: random.Random, fault: Fault) -> None:
        """End the session of two routers while they cannot reach each other."""
        if len(self.alive("router")) < 2:
            return
        one, other = rng.sample(self.alive("router"), 2)
        self.cut({(one, other), (other, one)}, fault, resets=True)
        self.network.reset(one, other)

    def reset_sessions(self, rng: random.Random, fault: Fault) -> None:
        """End some sessions."""
        sessions = self.network.sessions()
        for process, peer in rng.sample(sessions, min(len(sessions), rng.randint(1, 4))):
            self.network.reset(process, peer)
        self.count(fault.kind)

    def half_open(self, rng: random.Random, fault: Fault) -> None:
        """Let a session die while one end, or both, take it for open."""
        sessions = self.network.sessions()
        if not sessions:
            return
        process, peer = rng.choice(sessions)
        if rng.random() < 0.5:
            process, peer = peer, process
        end = self.network.half_open(process, peer, both=rng.random() < 0.5)
        if end is not None:
            self.count(fault.kind)
            self.later(fault.length_s, end)

    def repeat(self, rng: random.Random, fault: Fault) -> None:
        """End some sessions; what arrived last in them arrives once more in the next."""
        done = False
        for process, peer in rng.sample(self.network.sessions(), min(len(self.network.sessions()), 4)):
            if rng.random() < 0.5:
                process, peer = peer, process
            done |= self.network.repeat(process, peer, may_arrive_twice)
        if done:
            self.count(fault.kind)

    def slow(self, victim: ProcessId, fault: Fault, factors: Callable[[], tuple[float, float]]) -> None:
        """Make a process's links slow for a while; `factors` draws those to and from it."""
        slow = self.network.faults.slow
        touched: Pairs = set()
        for other in self.nodes:
            slow[other, victim], slow[victim, other] = factors()
            touched |= {(other, victim), (victim, other)}
        self.count(fault.kind)
        self.later(fault.length_s, lambda: _forget(slow, touched))

    def usurp(self, fault: Fault) -> None:
        """Cut the leader off from the other routers; crash its successor when that has decided."""
        leader = self.leader()
        if leader is None or not self.may_lose_router(leader):
            return
        old = self.router(leader).broadcast.ballot
        others = [router for router in self.alive("router") if router != leader]
        pairs = {(a, b) for other in others for a, b in ((leader, other), (other, leader))}
        self.network.faults.cut |= pairs
        self.count(fault.kind)
        deadline_s = self.time.now_s() + 3.0 * self.election_s
        wanted = random.Random(fault.choice).choice((1, 1, 2, 3))
        seen: dict[ProcessId, int] = {}

        def watch() -> None:
            successor = self.leader()
            if successor is not None and successor != leader:
                learned = self.trace.learned.get(successor, ())
                decided = sum(1 for _, value in learned if value is not None)
                known = seen.setdefault(successor, decided)
                if self.router(successor).broadcast.ballot > old and decided >= known + wanted:
                    if self.may_lose_router(successor):
                        self.crash(successor, "crash_successor")
                    self.network.heal(resets=True, cut=pairs)
                    return
            if self.time.now_s() < deadline_s:
                self.later(0.002, watch)
            else:
                self.network.heal(resets=True, cut=pairs)

        watch()

    def heal(self) -> None:
        """End every fault that is not for ever."""
        self.network.heal(resets=False)
        for node in self.nodes.values():
            node.run_clock(1.0)
            node.resume()


def may_arrive_twice(message: Any) -> bool:
    """Say whether a message may arrive again in a later session.

    All but those that begin a session: a transport that let these be repeated
    would let anyone resume another's session.
    """
    return not isinstance(message, Hello | Welcome | Resume)


def _forget(slow: dict[tuple[ProcessId, ProcessId], float], touched: Iterable[Any]) -> None:
    for pair in touched:
        slow.pop(pair, None)
