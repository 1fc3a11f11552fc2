"""A network under one seed and virtual time, behind the transport contract.

Rules of the file: every delay comes from the seeded source; a session is FIFO
in each direction and loses nothing while it lasts; a fault ends sessions,
holds messages or delays them, and never reorders or invents any. With `codec`
every message crosses as bytes, so that no two processes share an object.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crescando.transport.base import Channel, Endpoint, Transport
from crescando.types import ProcessId


@dataclass(order=True, slots=True)
class Event:
    """Something that will happen at a virtual time; ties happen in order of scheduling."""

    when_s: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Call it off."""
        self.is_cancelled = True


class VirtualTime:
    """The clock and agenda of a simulated world."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._agenda: list[Event] = []
        self._order = 0
        self.n_events = 0

    def now_s(self) -> float:
        """Give the virtual time."""
        return self._now_s

    def call_soon(self, callback: Callable[[], None]) -> Event:
        """Call back after what is due now."""
        return self.call_at(self._now_s, callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Event:
        """Call back at a virtual time, or now if it has passed."""
        self._order += 1
        event = Event(max(when_s, self._now_s), self._order, callback)
        heapq.heappush(self._agenda, event)
        return event

    def run_until(self, until_s: float, *, events_max: int | None = None) -> None:
        """Let everything happen that is due up to a time, and stand there.

        Parameters
        ----------
        until_s : float
        events_max : int, optional
            Stop early once so many events have happened since the beginning.
        """
        while self._agenda and self._agenda[0].when_s <= until_s:
            if events_max is not None and self.n_events >= events_max:
                return
            event = heapq.heappop(self._agenda)
            if event.is_cancelled:
                continue
            self._now_s = event.when_s
            self.n_events += 1
            event.callback()
        self._now_s = max(self._now_s, until_s)


@dataclass(slots=True)
class NetworkFaults:
    """What ails the network now. Directed pairs, so that partitions may be asymmetric.

    Attributes
    ----------
    cut : set of (ProcessId, ProcessId)
        Nothing gets from the first to the second; messages are held.
    slow : dict of (ProcessId, ProcessId) to float
        Factor on the delay.
    """

    cut: set[tuple[ProcessId, ProcessId]] = field(default_factory=set)
    slow: dict[tuple[ProcessId, ProcessId], float] = field(default_factory=dict)


class SimulatedChannel(Channel):
    """One end of a simulated session."""

    def __init__(self, network: SimulatedNetwork, owner: ProcessId, peer: ProcessId) -> None:
        self.peer = peer
        self.network = network
        self.owner = owner
        self.other: SimulatedChannel | None = None
        self.is_open = True
        self.arrives_s = 0.0
        self.held: list[Callable[[Endpoint], None]] = []

    def send(self, message: Any) -> None:
        other = self.other
        if self.is_open and other is not None:
            carried = self.network.carry(message)
            self.network.dispatch(self, lambda endpoint: endpoint.received(other, carried))

    def close(self) -> None:
        self.network.end(self)


class SimulatedNetwork(Transport):
    """Carries the sessions of simulated processes.

    Parameters
    ----------
    time : VirtualTime
    rng : random.Random
        Source of every delay.
    delay_s : tuple of float
        Least and greatest delay of one message on a healthy link.
    codec : tuple of callable, optional
        Encoder and decoder through which every message goes.
    """

    def __init__(
        self,
        time: VirtualTime,
        rng: random.Random,
        *,
        delay_s: tuple[float, float] = (0.0002, 0.002),
        codec: tuple[Callable[[Any], bytes], Callable[[bytes], Any]] | None = None,
    ) -> None:
        self.time = time
        self.faults = NetworkFaults()
        self.n_messages = 0
        self._rng = rng
        self._delay_s = delay_s
        self._codec = codec
        self._endpoints: dict[ProcessId, Endpoint] = {}
        self._channels: dict[ProcessId, dict[ProcessId, SimulatedChannel]] = {}

    # Transport.

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._endpoints:
            raise ValueError(f"{process} is attached already")
        self._endpoints[process] = endpoint
        self._channels[process] = {}

    def detach(self, process: ProcessId) -> None:
        self._endpoints.pop(process, None)
        for channel in list(self._channels.pop(process, {}).values()):
            self.end(channel)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        if process in self._channels and peer not in self._channels[process]:
            self.time.call_at(
                self.time.now_s() + self._delay(process, peer), lambda: self._open(process, peer)
            )

    # What faults do.

    def reset(self, process: ProcessId, peer: ProcessId) -> bool:
        """End the session of two processes, if they have one."""
        channel = self._channels.get(process, {}).get(peer)
        if channel is None:
            return False
        self.end(channel)
        return True

    def sessions(self) -> list[tuple[ProcessId, ProcessId]]:
        """Give every open session once."""
        return [(p, q) for p, known in self._channels.items() for q in known if p < q]

    def heal(self, *, resets: bool) -> None:
        """End all faults; what was held arrives, or its session ends instead."""
        self.faults.cut.clear()
        self.faults.slow.clear()
        for process, peer in self.sessions():
            for channel in (self._channels[process].get(peer), self._channels[peer].get(process)):
                if channel is None or not channel.held:
                    continue
                if resets:
                    self.end(channel)
                    break
                held, channel.held = channel.held, []
                for event in held:
                    self.dispatch(channel, event)

    # Carrying.

    def carry(self, message: Any) -> Any:
        """Give the message as the receiver will see it."""
        self.n_messages += 1
        if self._codec is None:
            return message
        encode, decode = self._codec
        return decode(encode(message))

    def dispatch(self, near: SimulatedChannel, event: Callable[[Endpoint], None]) -> None:
        """Let something arrive at the other end, after everything sent before."""
        far = near.other
        assert far is not None
        if (near.owner, near.peer) in self.faults.cut:
            near.held.append(event)
            return
        due_s = self.time.now_s() + self._delay(near.owner, near.peer)
        near.arrives_s = max(near.arrives_s, due_s)
        self.time.call_at(near.arrives_s, lambda: self._arrive(far, event))

    def end(self, channel: SimulatedChannel) -> None:
        """End a session; each end learns of it after a delay of its own."""
        for end in (channel, channel.other):
            if end is not None and end.is_open:
                end.is_open = False
                known = self._channels.get(end.owner, {})
                if known.get(end.peer) is end:
                    del known[end.peer]
                self.time.call_at(self.time.now_s() + self._delay(end.peer, end.owner), self._closing(end))

    def _closing(self, channel: SimulatedChannel) -> Callable[[], None]:
        def tell() -> None:
            endpoint = self._endpoints.get(channel.owner)
            if endpoint is not None:
                endpoint.closed(channel)

        return tell

    def _arrive(self, channel: SimulatedChannel, event: Callable[[Endpoint], None]) -> None:
        endpoint = self._endpoints.get(channel.owner)
        if channel.is_open and endpoint is not None:
            event(endpoint)

    def _open(self, process: ProcessId, peer: ProcessId) -> None:
        near_endpoint = self._endpoints.get(process)
        if near_endpoint is None or peer in self._channels.get(process, {}):
            return
        is_cut = (process, peer) in self.faults.cut or (peer, process) in self.faults.cut
        if peer not in self._endpoints or is_cut:
            near_endpoint.refused(peer)
            return
        near, far = SimulatedChannel(self, process, peer), SimulatedChannel(self, peer, process)
        near.other, far.other = far, near
        self._channels[process][peer] = near
        self._channels[peer][process] = far
        self.dispatch(near, lambda endpoint: endpoint.opened(far))
        self.dispatch(far, lambda endpoint: endpoint.opened(near))

    def _delay(self, process: ProcessId, peer: ProcessId) -> float:
        factor = self.faults.slow.get((process, peer), 1.0)
        return self._rng.uniform(*self._delay_s) * factor
