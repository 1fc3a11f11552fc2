"""No role's memory grows without bound, whoever stops reading, confirming or executing.

Whole clusters under virtual time with small limits, so that every bound is
reached within seconds of work; what each role holds is measured after every
turn of every process.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from crescando.client.base import Request
from crescando.process import ProcessCore
from crescando.roles.client import Client
from crescando.roles.storage import Storage, StorageLimits
from crescando.roles.super import SuperTiming
from crescando.routing.batch import HEADER_BYTES
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import CONFIG_CREDIT_BYTES, RouterLimits
from crescando.routing.ecast.router import Router
from crescando.spec import ClusterSpec
from crescando.testing.cluster import ClientScript, SimulatedCluster
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

FOR_EVER_S = 1e6

ROUTER = RouterLimits(
    batch_messages=64,
    batch_bytes=20_000,
    window_bytes=300_000,
    reserve_bytes=50_000,
    credit_bytes=30_000,
    sender_bytes=60_000,
    lag_bytes=80_000,
    max_lag_s=FOR_EVER_S,
    eager_messages=4,
)
STORAGE = StorageLimits(queue_bytes=100_000)
PATIENT = SuperTiming(suspicion_s=FOR_EVER_S, refusals=10**9)
SPEC = ClusterSpec(
    routers=3, storages=4, supers=1, replication=2, router=ROUTER, storage=STORAGE, super_=PATIENT
)
SESSION_BYTES = 100_000

OPERATION_BYTES = 2_000
"""More than any drawn operation weighs, queued and decoded."""


class Measured(SimulatedCluster):
    """A cluster with clients that keep a number of operations in flight, and the peaks of what it held."""

    def __init__(self, seed: int, spec: ClusterSpec = SPEC) -> None:
        super().__init__(seed, engine=small_engine, spec=spec, codec=False)
        self.network.queue_bytes = SESSION_BYTES
        self.peaks: dict[str, int] = {}
        self.loads: list[tuple[ClientScript, int, ProcessId | None]] = []
        self.until_s = 0.0

    def after_turn(self, core: ProcessCore) -> None:
        super().after_turn(core)
        if isinstance(core, Router):
            self.peak("window", core.window.n_bytes - core.window.config_bytes)
            self.peak("config", core.window.config_bytes)
            self.peak("waiting", core.proposer.n_bytes)
            kept = core.mseq.refused.values()
            self.peak("refused", max(map(len, kept), default=0))
        elif isinstance(core, Storage):
            self.peak("queue", core._queue_bytes + core._cycle_bytes)
            self.peak("ledger", max((len(ledger.written) for ledger in core._ledgers), default=0))
        elif isinstance(core, Client):
            self.peak("on_way", application_of(core)._outgoing.on_way_bytes)

    def peak(self, name: str, value: int) -> None:
        self.peaks[name] = max(self.peaks.get(name, 0), value)

    def load(self, name: str, n: int, *, avoiding: ProcessId | None = None) -> ClientScript:
        """Add a client that always has `n` operations in flight, none of them for a certain process."""
        script = self.add_client(name)
        self.loads.append((script, n, avoiding))
        return script

    def run(self, seconds: float) -> None:
        """Let time pass under load."""
        self.until_s = self.time.now_s() + seconds
        while self.time.now_s() < self.until_s:
            for script, n, avoiding in self.loads:
                self.top_up(script, n, avoiding)
            self.time.run_until(self.time.now_s() + 0.05)
            self.measure_network()

    def settle(self, seconds: float) -> None:
        """Let time pass without new operations."""
        self.time.run_until(self.time.now_s() + seconds)

    def measure_network(self) -> None:
        ends = [end for known in self.network._channels.values() for end in known.values()]
        self.peak("session", max((end.unread_bytes for end in ends), default=0))

    def top_up(self, script: ClientScript, n: int, avoiding: ProcessId | None) -> None:
        lacking = n - script.core.n_in_flight
        requests: list[Request] = []
        while len(requests) < lacking:
            request = self.workload.draw(script.rng)
            if avoiding is None or not self.concerns(request, avoiding):
                requests.append(request)
        for request in requests:
            script.steps[script.next_token] = self.workload.interpret_request(request)
            script.core.request(script.next_token, request)
            script.next_token += 1
        if requests:
            self.nodes[script.core.me].pump.need_turn()

    def concerns(self, request: Request, process: ProcessId) -> bool:
        """Say whether an operation may be addressed to a process."""
        owned = self.assembly.config.owned_arcs(process)
        return any(low <= arc.high and arc.low <= high for low, high in request.ranges for arc in owned)

    def finished(self, script: ClientScript) -> int:
        """Give how many operations of a client have their outcome."""
        return sum(1 for sender, _ in self.outcomes if sender == script.core.me)

    def is_within_bounds(self) -> None:
        """Assert that nothing ever was above its bound; one batch, turn or session's worth may overshoot."""
        peaks, overshoot = self.peaks, ROUTER.batch_bytes
        assert peaks["window"] <= ROUTER.window_bytes + overshoot, peaks
        assert peaks["config"] <= ROUTER.reserve_bytes + overshoot, peaks
        assert peaks["waiting"] <= ROUTER.window_bytes + len(self.loads) * CONFIG_CREDIT_BYTES, peaks
        assert peaks["on_way"] <= ROUTER.sender_bytes + CONFIG_CREDIT_BYTES, peaks
        assert peaks["session"] <= SESSION_BYTES + 2 * overshoot, peaks
        credit_messages = (ROUTER.sender_bytes + CONFIG_CREDIT_BYTES) // HEADER_BYTES
        assert peaks["refused"] <= 2 * credit_messages, peaks
        # Held confirmations let come only what credit allows, each operation decoded.
        in_flight = ROUTER.credit_bytes + ROUTER.batch_bytes
        assert peaks["queue"] <= STORAGE.queue_bytes + in_flight // HEADER_BYTES * OPERATION_BYTES, peaks


def application_of(core: Any) -> Application:
    multicast = core.multicast.inner
    assert isinstance(multicast, Application)
    return multicast


def stick(cluster: SimulatedCluster, victim: ProcessId) -> list[Any]:
    """Let a process's engine execute nothing any more; gives the work that it sits on."""
    stuck: list[Any] = []
    cluster.nodes[victim].pump._execute = stuck.append
    return stuck


def test_a_destination_paused_for_a_minute_under_full_load() -> None:
    cluster = Measured(7)
    victim = cluster.assembly.names.storages[1]
    anywhere = [cluster.load(f"any{n}", 200) for n in range(3)]
    elsewhere = cluster.load("elsewhere", 8, avoiding=victim)
    cluster.run(1.0)
    assert all(cluster.finished(script) for script in (*anywhere, elsewhere))

    cluster.nodes[victim].pause()
    cluster.run(20.0)
    before = cluster.finished(elsewhere)
    stalled = [cluster.finished(script) for script in anywhere]
    cluster.run(40.0)

    cluster.is_within_bounds()
    assert cluster.peaks["window"] > ROUTER.lag_bytes / 2, "the load never came near a bound"
    assert cluster.finished(elsewhere) > before + 500, "who does not address it goes on"
    assert [cluster.finished(script) for script in anywhere] == stalled

    cluster.nodes[victim].resume()
    cluster.settle(30.0)
    cluster.is_within_bounds()
    assert all(script.core.n_in_flight == 0 for script in cluster.clients.values())


def test_an_engine_that_is_stuck_closes_the_loop_and_nothing_overflows() -> None:
    cluster = Measured(8)
    victim = cluster.assembly.names.storages[2]
    for n in range(3):
        cluster.load(f"any{n}", 300)
    cluster.run(1.0)

    stuck = stick(cluster, victim)
    cluster.run(30.0)

    core = cluster.nodes[victim].core
    assert isinstance(core, Storage)
    assert len(stuck) == 1, "the engine is asked for one cycle and never ends it"
    assert core._is_over_budget
    cluster.is_within_bounds()


def test_one_whose_engine_is_stuck_is_voted_out_although_it_answers_and_the_others_go_on() -> None:
    spec = replace(
        SPEC,
        router=replace(ROUTER, max_lag_s=3.0),
        storage=replace(STORAGE, queue_bytes=30_000),
        super_=SuperTiming(suspicion_s=3.0),
        supers=3,
    )
    cluster = Measured(9, spec)
    victim = cluster.assembly.names.storages[2]
    for n in range(2):
        cluster.load(f"any{n}", 50)
    cluster.run(0.5)
    assert cluster.suspected() == set()

    stick(cluster, victim)
    for _ in range(20):
        if not cluster.suspected():
            cluster.run(1.0)

    assert cluster.suspected() == {victim}
    assert "expelled" in cluster.nodes[victim].stopped
    finished = [cluster.finished(script) for script in cluster.clients.values()]
    cluster.run(0.5)
    assert all(
        cluster.finished(script) > before
        for script, before in zip(cluster.clients.values(), finished, strict=True)
    )
    cluster.settle(20.0)
    assert all(script.core.n_in_flight == 0 for script in cluster.clients.values())


def test_a_client_that_reads_nothing_for_a_minute() -> None:
    cluster = Measured(10)
    cluster.network.queue_bytes = 2_000
    reader = cluster.load("reader", 300)
    other = cluster.load("other", 50)
    cluster.run(1.0)

    cluster.nodes[reader.core.me].pause()
    cluster.loads = [(other, 50, None)]
    before = cluster.finished(other)
    cluster.run(60.0)

    cluster.is_within_bounds()
    assert cluster.finished(other) > before + 1_000
    unread = [
        end.unread_bytes
        for known in cluster.network._channels.values()
        for end in known.values()
        if end.peer == reader.core.me
    ]
    assert all(n_bytes <= 2_000 + ROUTER.batch_bytes for n_bytes in unread)

    cluster.nodes[reader.core.me].resume()
    cluster.settle(30.0)
    assert all(script.core.n_in_flight == 0 for script in cluster.clients.values())


def test_refused_operations_without_end_are_forgotten_as_their_sender_learns_of_them() -> None:
    cluster = Measured(11)
    script = cluster.add_client("refused")
    cluster.settle(1.0)
    rng = random.Random(11)
    for _ in range(60):
        for _ in range(50):
            request = cluster.workload.draw(rng)
            strange = replace(request, shape=msgspec.structs.replace(request.shape, table=77))
            script.core.request(script.next_token, strange)
            script.next_token += 1
        cluster.nodes[script.core.me].pump.need_turn()
        cluster.settle(0.2)

    cluster.settle(5.0)
    assert cluster.finished(script) == 3_000
    assert cluster.peaks["refused"] <= 400
    assert script.core.n_in_flight == 0
