"""Whole clusters under virtual time whose every structure is measured against what bounds it.

Rules of the file: limits are so small that seconds of work reach them, and
clients ask for far more than they admit. A bound is what some limit states, and
an overshoot: what one batch, one message or one turn may add, never more than
half of it. What has no bound here must not be measured here, and the other way
round: a name without a bound is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from crescando.client.base import Request
from crescando.consensus.multipaxos.messages import Accept
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.process import ProcessCore
from crescando.roles.client import Client
from crescando.roles.decoding import OPERATION_BYTES
from crescando.roles.limits import ClientLimits, StorageLimits
from crescando.roles.storage import Storage
from crescando.roles.super import SuperTiming
from crescando.routing.batch import HEADER_BYTES
from crescando.routing.ecast import limits as limits_module
from crescando.routing.ecast import mseq as mseq_module
from crescando.routing.ecast import outgoing as outgoing_module
from crescando.routing.ecast import proposer as proposer_module
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.router import Router
from crescando.spec import ClusterSpec
from crescando.testing.cluster import ClientScript, SimulatedCluster
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

FOR_EVER_S = 1e6
STEP_S = 0.05
LOOKS = 8
"""Several pulses of a leader, after which a follower knows what is stable."""
BEATS = 6
"""Steps in which a leader's heartbeats say at least twice what may be forgotten."""

CONFIG_CREDIT_BYTES = 4_000
LEAST_CREDIT_BYTES = 1_000
DEPARTED_MAX = 6

ROUTER = RouterLimits(
    batch_messages=64,
    batch_bytes=4_000,
    window_bytes=100_000,
    reserve_bytes=12_000,
    credit_bytes=6_000,
    sender_bytes=20_000,
    lag_bytes=40_000,
    max_lag_s=FOR_EVER_S,
    eager_messages=4,
    client_reads=96,
    client_read_bytes=12_000,
    reads=160,
    read_bytes=20_000,
    queued_read_bytes=24_000,
)
PAXOS = PaxosTiming(window=4, lag=4_000, lag_bytes=200_000, removal_s=FOR_EVER_S)
STORAGE = StorageLimits(queue_bytes=400_000, records=300, queue_s=FOR_EVER_S)
CLIENT = ClientLimits(
    batch_operations=64,
    batch_bytes=4_000,
    stalled_submissions=12,
    snapshot_reads=64,
    snapshot_bytes=6_000,
)
PATIENT = SuperTiming(suspicion_s=FOR_EVER_S, refusals=10**9)
SPEC = ClusterSpec(
    routers=3,
    storages=4,
    supers=1,
    replication=2,
    paxos=PAXOS,
    router=ROUTER,
    storage=STORAGE,
    super_=PATIENT,
    client=CLIENT,
)
SESSION_BYTES = 60_000

OPERATION_WIRE_BYTES = 400
"""More than one drawn operation weighs, alone in a message."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What is allowed of one structure: a stated limit, and what may come on top at once."""

    limit: int
    overshoot: int = 0

    @property
    def allowed(self) -> int:
        """The highest peak that is none too high."""
        return self.limit + self.overshoot


def shrink_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the limits small that are no parameters."""
    for module in (limits_module, outgoing_module, proposer_module):
        monkeypatch.setattr(module, "CONFIG_CREDIT_BYTES", CONFIG_CREDIT_BYTES)
    monkeypatch.setattr(limits_module, "LEAST_CREDIT_BYTES", LEAST_CREDIT_BYTES)
    monkeypatch.setattr(mseq_module, "DEPARTED_MAX", DEPARTED_MAX)


@dataclass(slots=True)
class Load:
    """A client that always has so many operations in flight, as one kind of user asks for them."""

    script: ClientScript
    n: int
    avoiding: ProcessId | None = None
    is_snapshot: bool = False


class AboveBoundError(Exception):
    """What a run was to end with: a structure is above its bound."""


class Measured(SimulatedCluster):
    """A cluster under load, and the peaks of everything that it holds.

    Parameters
    ----------
    seed : int
    spec : ClusterSpec
    n_clients : int
        How many clients send at most; what they may have waiting together is a bound.

    Attributes
    ----------
    ends_above : str
        The structure with which a run ends as soon as it is above its bound, if any.
    """

    ends_above = ""

    def __init__(self, seed: int, spec: ClusterSpec = SPEC, *, n_clients: int = 5) -> None:
        super().__init__(seed, engine=small_engine, spec=spec, codec=False)
        self.network.queue_bytes = SESSION_BYTES
        self.network.witness = self._weigh
        self.peaks: dict[str, int] = {}
        self.loads: list[Load] = []
        self.bounds = bounds_of(spec, n_clients)
        self._unstable: deque[tuple[int, set[int]]] = deque(maxlen=LOOKS)
        self._largest = {"session": 0, "results": 0}
        self._accepted: dict[ProcessId, int] = {}
        self._accepted_by: deque[int] = deque(maxlen=BEATS)
        self._beats_bytes = 0

    # Loads.

    def load(self, name: str, n: int, *, avoiding: ProcessId | None = None, snapshot: bool = False) -> Load:
        """Add a client that has `n` operations in flight, none of them for a certain process."""
        load = Load(self.add_client(name), n, avoiding, snapshot)
        self.loads.append(load)
        return load

    def begin(self) -> None:
        """Let everybody join and learn its credit before anybody asks for anything."""
        self.pass_time(1.0)

    def run(self, seconds: float) -> None:
        """Let time pass under load."""
        until_s = self.time.now_s() + seconds
        while self.time.now_s() < until_s:
            for load in self.loads:
                self._top_up(load)
            self.pass_time(STEP_S)

    def pass_time(self, seconds: float) -> None:
        """Let time pass without new operations."""
        until_s = self.time.now_s() + seconds
        while self.time.now_s() < until_s:
            self.time.run_until(min(until_s, self.time.now_s() + STEP_S))
            self._look_around()

    def _top_up(self, load: Load) -> None:
        script = load.script
        if not self.nodes[script.core.me].is_alive:
            return
        lacking = load.n - script.core.n_in_flight
        for request in self._draw(load, lacking):
            script.core.request(script.next_token, request)
            script.next_token += 1
        if lacking > 0:
            self.nodes[script.core.me].pump.need_turn()

    def _draw(self, load: Load, n: int) -> Iterator[Request]:
        while n > 0:
            request = self.workload.draw(load.script.rng)
            if load.avoiding is not None and self._concerns(request, load.avoiding):
                continue
            if load.is_snapshot and not self.workload.interpret_request(request).is_read:
                continue
            n -= 1
            yield structs.replace(request, isolation="snapshot") if load.is_snapshot else request

    def _concerns(self, request: Request, process: ProcessId) -> bool:
        owned = self.assembly.config.owned_arcs(process)
        return any(low <= arc.high and arc.low <= high for low, high in request.ranges for arc in owned)

    def finished(self, load: Load) -> int:
        """Give how many operations of a client have their outcome."""
        return sum(1 for sender, _ in self.outcomes if sender == load.script.core.me)

    # Measuring.

    def peak(self, name: str, value: int) -> None:
        """Count what was found."""
        if value > self.peaks.get(name, 0):
            self.peaks[name] = value

    def _look_at(self, core: Storage) -> None:
        """Take no sample of what an engine holds: only a judge would look at it, and none is called here."""

    def after_turn(self, core: ProcessCore) -> None:
        super().after_turn(core)
        if isinstance(core, Router):
            self._measure_router(core)
        elif isinstance(core, Storage):
            self.peak("queue", core.n_bytes_queued)
        elif isinstance(core, Client):
            outgoing = application_of(core)._outgoing
            self.peak("on way", outgoing.on_way_bytes)
            self.peak("undecided", core.multicast.next_number - 1 - core.multicast.acknowledged)
            self.peak("attempts", len(core._direct.snapshots._attempts))
            self.peak("attempts' bytes", core._direct.snapshots.open_bytes)

    def _measure_router(self, core: Router[Any]) -> None:
        window, waiting = core.window, core.proposer.n_bytes
        self.peak("window", window.n_bytes - window.config_bytes)
        self.peak("window's configuration", window.config_bytes)
        self.peak("waiting", waiting)
        self.peak("departed", len(core.mseq.departed))
        self.peak("refused", max(map(len, core.mseq.refused.values()), default=0))
        self.peak("lost", max(map(len, window.lost.values()), default=0))
        held, reads = core.reads._held, core.reads
        n_held = {client: sum(len(h.inject.reads) for h in queue) for client, queue in held.items()}
        self.peak("a client's held reads", max(n_held.values(), default=0))
        self.peak("held reads", sum(n_held.values()))
        n_bytes = sum(h.inject.reads.n_bytes for queue in held.values() for h in queue)
        self.peak("held reads' bytes", n_bytes)
        n_queued = sum(len(p) for queue in reads.waiting.values() for queued in queue for p in queued.parts)
        self.peak("reads counted wrongly", abs(reads.allowance.n_reads - sum(n_held.values()) - n_queued))
        for queue in reads.waiting.values():
            parts = [part for queued in queue for part in queued.parts]
            self.peak("a destination's queued reads", sum(part.n_bytes for part in parts))

    def _look_around(self) -> None:
        """Measure what takes long to measure."""
        for core in [node.core for node in self.nodes.values() if node.is_alive and node._paused is None]:
            if isinstance(core, Router):
                self._look_at_router(core)
            elif isinstance(core, Storage):
                for ledger in core.reporter.ledgers:
                    self.peak("outcomes", max(len(ledger.written), len(ledger.failed)))
                    self.peak("outcomes promised for nothing", len(ledger.report_all - ledger.scopes.keys()))
            elif isinstance(core, Client):
                asked = len(core._requests) + len(core._operations) + len(core._direct.snapshots)
                self.peak("asked beyond what users wait for", asked - self._wanted(core))
        for known in self.network._channels.values():
            for end in known.values():
                self.peak(_kind(end.owner, end.peer), end.unread_bytes)
        self._accepted_by.append(max(self._accepted.values(), default=0))
        self._beats_bytes = max(self._beats_bytes, self._accepted_by[-1] - self._accepted_by[0])
        leader = self.leader()
        if leader is not None:
            core = self.router(leader)
            self._unstable.append((core.broadcast.learned, set(core.window.entries)))
        self._end_above()

    def _end_above(self) -> None:
        if self.ends_above and self.ends_above in (above := self.violations()):
            raise AboveBoundError(f"{self.ends_above} {above[self.ends_above]}")

    def look_back(self) -> None:
        """Measure what should be gone by now: all that was lost has been told, and is asked for no more."""
        routers = [node.core for node in self.nodes.values() if isinstance(node.core, Router)]
        self.peak("lost long ago", sum(map(len, (n for core in routers for n in core.window.lost.values()))))
        self._end_above()

    def _look_at_router(self, core: Router[Any]) -> None:
        for box in core.window.outboxes.values():
            self.peak("an outbox", box.n_bytes)
        replica: Any = core.broadcast
        learner = replica.inner.learner
        self.peak("learned values", sum(getattr(value, "n_bytes", 0) for value in learner.decided.values()))
        votes = replica.inner.acceptor.votes.values()
        self.peak("votes", sum(getattr(vote.value, "n_bytes", 0) for vote in votes))
        # A follower keeps nothing that its leader has called stable some pulses ago.
        leader = self.leader()
        if leader is not None and leader != core.me and len(self._unstable) == LOOKS:
            unstable = set[int]().union(*(entries for _, entries in self._unstable))
            backlog = core.record._backlog._learned
            stale = {known for known in backlog if known <= self._unstable[0][0]} - unstable
            self.peak("backlog of what is stable", len(stale))
        members = core.mseq.config.is_member
        strays = [p for p in core.window.outboxes if not members(p) and p not in core._sessions]
        self.peak("strangers' outboxes", len(strays))

    def _wanted(self, core: Client) -> int:
        return max((load.n for load in self.loads if load.script.core is core), default=1 << 30)

    def _weigh(self, sender: ProcessId, receiver: ProcessId, message: Any) -> None:
        kind = _kind(sender, receiver)
        weight = self.network.weigh(message)
        self._largest[kind] = max(self._largest[kind], weight)
        if isinstance(message, Accept):
            self._accepted[receiver] = self._accepted.get(receiver, 0) + weight

    def violations(self) -> dict[str, tuple[int, int]]:
        """Give the peaks that were too high, and what would have been allowed."""
        allowed = {name: bound.allowed for name, bound in self.bounds.items()}
        # What comes between two heartbeats is forgotten at the second.
        for name in ("learned values", "votes"):
            allowed[name] = PAXOS.lag_bytes + self._beats_bytes
        # One message of any length is sent if there is room for some.
        allowed |= {name: SESSION_BYTES + largest for name, largest in self._largest.items()}
        return {name: (peak, allowed[name]) for name, peak in self.peaks.items() if peak > allowed[name]}

    def reached(self, name: str) -> float:
        """Give how much of a limit was used."""
        return self.peaks.get(name, 0) / self.bounds[name].limit


def _kind(sender: ProcessId, receiver: ProcessId) -> str:
    return "results" if (sender.role, receiver.role) == ("storage", "client") else "session"


def bounds_of(spec: ClusterSpec, n_clients: int) -> dict[str, Bound]:
    """Give the bounds of every structure that is measured."""
    router, paxos, client = spec.router, spec.paxos, spec.client
    batch, one = router.batch_bytes, OPERATION_WIRE_BYTES
    # Held confirmations let come only what is on its way already, each operation decoded.
    on_way = (router.credit_bytes + batch) // HEADER_BYTES * (OPERATION_BYTES + 64)
    undecided = (router.sender_bytes + CONFIG_CREDIT_BYTES) // HEADER_BYTES
    return {
        "window": Bound(router.window_bytes, batch),
        "window's configuration": Bound(router.reserve_bytes, batch),
        "waiting": Bound(router.window_bytes, n_clients * CONFIG_CREDIT_BYTES),
        "an outbox": Bound(router.lag_bytes, (paxos.window + 1) * batch),
        "departed": Bound(DEPARTED_MAX),
        "refused": Bound(undecided),
        "lost": Bound(undecided),
        "lost long ago": Bound(0),
        "strangers' outboxes": Bound(n_clients),
        "backlog of what is stable": Bound(0),
        "learned values": Bound(paxos.lag_bytes),
        "votes": Bound(paxos.lag_bytes),
        "a client's held reads": Bound(router.client_reads),
        "held reads": Bound(router.reads),
        "held reads' bytes": Bound(router.read_bytes),
        "reads counted wrongly": Bound(0),
        "a destination's queued reads": Bound(router.queued_read_bytes, client.snapshot_bytes),
        "on way": Bound(router.sender_bytes, CONFIG_CREDIT_BYTES + one),
        "undecided": Bound(client.stalled_submissions * client.batch_operations, client.batch_operations),
        "attempts": Bound(client.snapshot_reads),
        "attempts' bytes": Bound(client.snapshot_bytes, one),
        "asked beyond what users wait for": Bound(0),
        "queue": Bound(spec.storage.queue_bytes, on_way),
        "outcomes": Bound(spec.storage.records),
        "outcomes promised for nothing": Bound(0),
    }


def application_of(core: Any) -> Application:
    """Give the multicast end point of a client."""
    multicast = core.multicast.inner
    assert isinstance(multicast, Application)
    return multicast


def stick(cluster: SimulatedCluster, victim: ProcessId) -> list[Any]:
    """Let a process's engine execute nothing any more; gives the work that it sits on."""
    stuck: list[Any] = []
    cluster.nodes[victim].pump._execute = stuck.append
    return stuck
