"""A client whose numbers are out of all bounds: every number in every message, one after the other.

Changing a few bits hardly ever makes a number that does not fit where it goes, so each is replaced by
those that do not. What is said so is refused as a whole, or taken and answered; no process stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando import wire
from crescando.client import pinned
from crescando.consensus.base import EPOCH_SHIFT, Ballot
from crescando.engine.statement import (
    ColumnRef,
    Kind,
    Projection,
    Shape,
    encode_call,
    encode_parameters,
    encode_shapes,
)
from crescando.errors import RemoteProtocolError
from crescando.permits import PERMITS
from crescando.roles import copy_messages as copying
from crescando.roles import load_messages as loading
from crescando.roles import messages as direct
from crescando.roles.storage import Storage
from crescando.routing.batch import Message, gather, submission
from crescando.routing.ecast import messages as ecast
from crescando.routing.rubberband.messages import ConfigMessage, Join, Pin, encode_message
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.runs import small_engine
from crescando.testing.simulation import load
from crescando.transport.base import Channel, Endpoint
from crescando.types import FULL_RING, KeyRange, LoadId, MessageKind, ProcessId

pytestmark = pytest.mark.simulation

ME = ProcessId("client", "hostile", 1)

INTEGERS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << EPOCH_SHIFT) - 1)
FLOATS = (math.nan, math.inf, -math.inf, -1.0)

ROUTERS_NODE = ProcessId("router", "r1", 1)


class Hostile(Endpoint):
    """A member that answers pings, and says otherwise what it is told to."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.lead: ProcessId | None = None
        self.number = 0
        self.n_taken = self.n_refused = 0
        self._channels: dict[ProcessId, Channel] = {}
        world.network.attach(ME, self)
        for peer in [*world.alive("router"), *world.alive("storage"), *world.alive("super")]:
            world.network.connect(ME, peer)
        self.run(1.0)
        self.order(Join(ME))
        self.pin = pinned.PinId(ME, self.order(Pin((0,), 60.0)))
        assert world.router(self.session("router").peer).mseq.config.is_member(ME)

    # Endpoint.

    def opened(self, channel: Channel) -> None:
        self._channels[channel.peer] = channel
        if channel.peer.role == "router":
            channel.send(ecast.Hello())
        elif channel.peer.role == "storage":
            channel.send(direct.Attach())

    def received(self, channel: Channel, message: Any) -> None:
        match message:
            case direct.Ping():
                channel.send(direct.Pong(message.sent_s))
            case ecast.Welcome(is_leader=True):
                self.lead = channel.peer

    def closed(self, channel: Channel) -> None:
        if self._channels.get(channel.peer) is channel:
            del self._channels[channel.peer]
        self.world.network.connect(ME, channel.peer)

    def refused(self, peer: ProcessId) -> None:
        """Whoever does not run is not asked again."""

    # What it does.

    def run(self, seconds: float) -> None:
        self.world.time.run_until(self.world.time.now_s() + seconds)

    def session(self, role: str) -> Channel:
        """Give a session with a process of a role, of routers with the one that leads."""
        for _ in range(100):
            wanted = self.lead if role == "router" else min(self.world.alive(role))
            if wanted is not None and wanted in self._channels:
                return self._channels[wanted]
            self.run(0.1)
        raise AssertionError(f"no session with a {role}: {self.stopped()}")

    def order(self, body: ConfigMessage) -> int:
        """Have a configuration message ordered; gives its number."""
        self.number += 1
        message = Message(ME, self.number, MessageKind.CONFIG, -1, (), 0, encode_message(body))
        self.session("router").send(ecast.Route(submission([message])))
        self.run(0.5)
        return self.number

    def say(self, kind: type, data: bytes) -> None:
        """Say something to a process of each role that may be told so."""
        for role in ("router", "storage", "super"):
            if kind not in PERMITS.get(("client", role), ()):
                continue
            channel = self.session(role)
            decode = wire.decoder_for(ME, channel.peer)
            assert decode is not None
            try:
                message = decode(data)
            except RemoteProtocolError:
                self.n_refused += 1
                continue
            self.n_taken += 1
            channel.send(message)
            self.run(0.05)

    def stopped(self) -> list[str]:
        return [f"{me}: {node.stopped}" for me, node in self.world.nodes.items() if node.stopped]


def begun() -> Hostile:
    """Give a hostile client in a cluster with rows."""
    world = SimulatedCluster(7, engine=small_engine, codec=True)
    world.add_client("good")
    load(world, 0.05, 1.0)
    world.time.run_until(3.0)
    return Hostile(world)


def message(number: int, kind: MessageKind, payload: bytes) -> Message:
    return Message(ME, number, kind, 0, (KeyRange(1, (1 << 64) - 2),), 0, payload)


def said(hostile: Hostile) -> list[Any]:
    """Give what a client may say, each such that it gets as far as it can."""
    config = hostile.world.router(hostile.session("router").peer).mseq.config
    (schema,) = [table for table in config.tables if table.id == 0]
    outputs = tuple(Projection(each.name, ColumnRef(each.id, each.type)) for each in schema.columns)
    shape = Shape(Kind.READ, 0, schema.version, projections=outputs)
    parameters, pin = encode_parameters(shape, ()), hostile.pin
    storage = hostile.session("storage").peer
    arc = config.owned_arcs(storage)[0]
    reads = submission(
        [message(1, MessageKind.READ, encode_call(0, parameters))], shared=encode_shapes((shape.encode(),))
    )
    return [
        ecast.ConfigRequest(),
        ecast.Confirm(3),
        ecast.Hello(),
        ecast.Inject(reads, 1, 0),
        ecast.Resume(Ballot(1, ROUTERS_NODE), 1, 1),
        ecast.Route(submission([message(hostile.number + 1, MessageKind.WRITE, b"")], acknowledged=1)),
        direct.Answered(1),
        direct.Inquire(1, (1, 2)),
        direct.Forget((3, -4)),
        direct.ReadBasic(
            gather(reads, np.arange(1), np.zeros(1, np.int64), ((arc,),), np.zeros(1, np.int64)), 1, 1
        ),
        direct.ReadReplica(1, 0, FULL_RING, (0, 1)),
        direct.Taken(2),
        direct.Weigh(6, (KeyRange(1, (1 << 64) - 2),)),
        direct.Explain(5, shape.encode(), parameters),
        direct.AskPinned(7, pinned.Hold(pin)),
        direct.AskPinned(7, pinned.Fetch(pin, shape.encode(), parameters, arc, 5, 2, 1)),
        direct.AskPinned(7, pinned.Renew(pin, 2.5)),
        direct.Ping(1.5),
        direct.Pong(1.5),
        direct.Watch(3, -1),
        copying.AskCopies(7),
        loading.AskStaged(4, LoadId(ME, 7), 1 << 40),
        # The last one, since routers may be elected for it.
        ecast.Fenced(Ballot(2, ROUTERS_NODE)),
    ]


@dataclass(frozen=True)
class Changed:
    """A message's bytes with one number of it changed."""

    kind: type
    path: tuple[int, ...]
    value: float
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind.__name__}{list(self.path)} = {self.value}"


def changes(message: Any) -> Iterator[Changed]:
    """Give a message as often as it has numbers, times what they are replaced by."""
    raw = msgspec.msgpack.decode(wire.encode(message))
    for path, value in numbers(raw):
        for other in FLOATS if isinstance(value, float) else INTEGERS:
            yield Changed(type(message), path, other, msgspec.msgpack.encode(replaced(raw, path, other)))


def numbers(raw: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], float]]:
    if isinstance(raw, list):
        for place, each in enumerate(raw):
            yield from numbers(each, (*path, place))
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        yield path, raw


def replaced(raw: Any, path: tuple[int, ...], value: float) -> Any:
    if not path:
        return value
    place, *rest = path
    return [replaced(each, tuple(rest), value) if at == place else each for at, each in enumerate(raw)]


def bombard(hostile: Hostile) -> None:
    """Say everything with every number changed, to processes that must not stop for it."""
    for message in said(hostile):
        for changed in changes(message):
            hostile.say(changed.kind, changed.data)
            assert hostile.stopped() == [], str(changed)
    hostile.run(10.0)
    assert hostile.stopped() == []


def test_no_number_of_a_clients_stops_a_process() -> None:
    hostile = begun()

    bombard(hostile)

    assert hostile.n_taken > 200
    assert hostile.n_refused > 20
    lead = hostile.world.router(hostile.session("router").peer)
    hostile.number = lead.mseq.learned_of(ME)
    number = hostile.order(Pin((0,), 60.0))
    assert lead.mseq.learned_of(ME) == number


def test_a_process_that_a_number_can_stop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Storage.on_message

    def careless(self: Storage, peer: ProcessId, message: Any, now_s: float) -> None:
        if isinstance(message, direct.Taken):
            message.pieces.to_bytes(4, "little", signed=True)
        take(self, peer, message, now_s)

    monkeypatch.setattr(Storage, "on_message", careless)

    with pytest.raises(AssertionError, match=r"Taken\[1\] = "):
        bombard(begun())
