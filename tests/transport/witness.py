"""What the transport tests attach: an endpoint that writes down what it is told, and worlds to live in."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from crescando.transport.base import Channel, Endpoint, Transport
from crescando.transport.inprocess import InProcessHub
from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from crescando.types import ProcessId

A, B, C = (ProcessId("client", name) for name in "abc")


class Agenda(VirtualTime):
    """A scheduler that calls back only when the test lets time pass."""

    @property
    def time(self) -> float:
        return self.now_s()


class World:
    """A transport and its time."""

    def __init__(
        self, transport: Transport, run_until: Callable[[float], None], now_s: Callable[[], float]
    ) -> None:
        self.transport = transport
        self._run_until = run_until
        self._now_s = now_s

    def settle(self) -> None:
        """Let a second pass: more than any delay on a healthy link."""
        self._run_until(self._now_s() + 1.0)

    def close(self) -> None:
        """Leave nothing open."""


def inprocess() -> World:
    agenda = Agenda()
    return World(InProcessHub(agenda), agenda.run_until, agenda.now_s)


def simulated() -> World:
    time = VirtualTime()
    return World(SimulatedNetwork(time, random.Random(7)), time.run_until, time.now_s)


WORLDS: dict[str, Callable[[], World]] = {"inprocess": inprocess, "simulated": simulated}


class Witness(Endpoint):
    """An endpoint that writes down what it is told.

    Parameters
    ----------
    world : World
    me : ProcessId
    reply : callable, optional
        Called with each channel and message received.
    """

    def __init__(
        self, world: World, me: ProcessId, reply: Callable[[Channel, Any], None] | None = None
    ) -> None:
        self.me = me
        self.log: list[tuple[Any, ...]] = []
        self.channels: list[Channel] = []
        self._reply = reply
        world.transport.attach(me, self)

    def opened(self, channel: Channel) -> None:
        self.log.append(("opened", channel.peer))
        self.channels.append(channel)

    def received(self, channel: Channel, message: Any) -> None:
        self.log.append(("received", channel.peer, message))
        if self._reply is not None:
            self._reply(channel, message)

    def closed(self, channel: Channel) -> None:
        self.log.append(("closed", channel.peer))

    def refused(self, peer: ProcessId) -> None:
        self.log.append(("refused", peer))

    @property
    def channel(self) -> Channel:
        """The newest session."""
        return self.channels[-1]

    def messages(self) -> list[Any]:
        return [entry[2] for entry in self.log if entry[0] == "received"]

    def told(self, what: str) -> list[ProcessId]:
        return [entry[1] for entry in self.log if entry[0] == what]


def pair(world: World) -> tuple[Witness, Witness]:
    """Give two witnesses with a session."""
    a, b = Witness(world, A), Witness(world, B)
    world.transport.connect(A, B)
    world.settle()
    return a, b
