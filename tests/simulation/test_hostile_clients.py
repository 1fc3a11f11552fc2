"""Clients with a good certificate and bad messages: whatever they say, nobody else stops.

Everything that a hostile client sends crosses as bytes of which some were
changed, or as messages of others' that its role may send. The transport refuses
what is none; what gets through must do no harm to a core.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("cryptography")

from crescando import wire
from crescando.errors import RemoteProtocolError
from crescando.permits import PERMITS, ROLES, SENDERS
from crescando.roles.messages import Explain, Forget, ReadReplica, Retire
from crescando.roles.storage import Storage
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.elastic import ElasticCluster
from crescando.testing.runs import small_engine
from crescando.testing.simulation import load, run_to_rest
from crescando.transport.simulated import SimulatedChannel
from crescando.types import ProcessId
from fuzz.frames import mutated
from tests.transport.test_wire import ENCODED, MESSAGES

pytestmark = pytest.mark.simulation

ADMINISTRATION = (Retire,)
"""What a client with the right to administer may ask for, and gets: it is no harm but an order."""

SPAN_S = 2.0
SEEDS = 6


class Hostility:
    """Changes what some clients send.

    Parameters
    ----------
    world : SimulatedCluster
    rate : float
        How much of it.
    receivers : sequence of str
        The roles to which it is sent.
    """

    def __init__(self, world: SimulatedCluster, rate: float, receivers: Sequence[str] = ROLES) -> None:
        self.clients: set[ProcessId] = set()
        self.n_changed = self.n_refused = 0
        self._network = world.network
        self._carry = world.network.carry
        self._rng = random.Random(f"{world.seed}/hostile")
        self._rate = rate
        self._receivers = receivers
        world.network.carry = self.carry  # type: ignore[method-assign]

    def carry(self, channel: SimulatedChannel, message: Any) -> Any:
        is_meant = channel.owner in self.clients and channel.peer.role in self._receivers
        if not is_meant or self._rng.random() > self._rate:
            return self._carry(channel, message)
        decode = wire.decoder_for(channel.owner, channel.peer)
        assert decode is not None
        try:
            changed = decode(self._changed(channel, message))
        except RemoteProtocolError:
            self.n_refused += 1
            self._network.time.call_soon(channel.close)
            return self._carry(channel, message)
        if isinstance(changed, ADMINISTRATION):
            return self._carry(channel, message)
        self.n_changed += 1
        return changed

    def _changed(self, channel: SimulatedChannel, message: Any) -> bytes:
        if self._rng.random() < 0.5:
            return mutated(self._rng, wire.encode(message))
        permitted = [
            data
            for kind, data in zip(map(type, MESSAGES), ENCODED, strict=True)
            if kind in PERMITS[channel.owner.role, channel.peer.role] and kind not in SENDERS
        ]
        data = self._rng.choice(permitted)
        return data if self._rng.random() < 0.5 else mutated(self._rng, data)


def run(seed: int, role: str = "client") -> tuple[SimulatedCluster, Hostility]:
    world = SimulatedCluster(seed, engine=small_engine, codec=True)
    hostility = Hostility(world, rate=0.4)
    for number in range(1, 4):
        world.add_client(f"c{number}")
    hostile = {process for process in world.clients if process.node in ("c1", "c2")}
    if role != "client":
        hostile = {min(process for process in world.nodes if process.role == role)}
    hostility.clients = set(hostile)
    load(world, 0.05, SPAN_S)
    world.time.run_until(SPAN_S, events_max=400_000)
    hostility.clients.clear()
    if role == "client":
        run_to_rest(world)
    return world, hostility


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_stops_whatever_a_client_says(seed: int) -> None:
    world, hostility = run(seed)

    stopped = {
        str(process): node.stopped
        for process, node in world.nodes.items()
        if process.role != "client" and (node.stopped or not node.is_alive)
    }
    assert stopped == {}, f"seed {seed}"
    assert hostility.n_changed > 0, f"seed {seed}"
    assert hostility.n_changed + hostility.n_refused > 5, f"seed {seed}"
    (good,) = [process for process in world.clients if process.node == "c3"]
    assert world.nodes[good].is_alive, f"seed {seed}: {world.nodes[good].stopped}"
    assert world.nodes[good].core.n_in_flight == 0, f"seed {seed}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("role", ["storage", "super"])
def test_nobody_fails_whatever_a_storage_process_or_a_super_says(role: str, seed: int) -> None:
    """They may be declared failed for it; a router that is mad is another matter, since all trust it."""
    world, hostility = run(seed, role)

    stopped = [node.stopped for node in world.nodes.values() if node.stopped]
    assert [why for why in stopped if not why.startswith("expelled")] == [], f"seed {seed}"
    assert hostility.n_changed + hostility.n_refused > 0, f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_nobody_fails_whatever_comes_as_a_copy(seed: int) -> None:
    """Ranges move, and what storage processes tell each other of it is changed."""
    world = ElasticCluster(seed, engine=small_engine, codec=True)
    hostility = Hostility(world, rate=0.5, receivers=("storage",))
    world.add_client("c1")
    hostility.clients = {process for process in world.nodes if process.role == "storage"}
    load(world, 0.05, SPAN_S)
    for number in range(4):
        world.later(0.3 + number * SPAN_S / 4, world.administer)
    world.time.run_until(2 * SPAN_S, events_max=400_000)

    stopped = [node.stopped for node in world.nodes.values() if node.stopped]
    assert [why for why in stopped if not why.startswith("expelled")] == [], f"seed {seed}"
    assert hostility.n_changed + hostility.n_refused > 3, f"seed {seed}"


def test_a_core_that_a_client_can_stop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Storage.on_message

    def careless(self: Storage, peer: ProcessId, message: Any, now_s: float) -> None:
        if isinstance(message, Explain | Forget | ReadReplica):
            raise KeyError("planted")
        take(self, peer, message, now_s)

    monkeypatch.setattr(Storage, "on_message", careless)

    for seed in range(SEEDS):
        stopped = [node.stopped for process, node in run(seed)[0].nodes.items() if process.role == "storage"]
        if any("planted" in why for why in stopped):
            return
    pytest.fail("what was planted did not show")
