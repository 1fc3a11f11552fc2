"""A network under one seed and virtual time, behind the transport contract.

Rules of the file: every delay comes from the seeded source; a session is FIFO
in each direction and loses nothing while it lasts; a fault ends sessions,
holds messages or delays them, and never reorders or invents any. Two faults go
beyond that, as the world does: of a *half-open* session one end or both do not
know that it is over, and a *repeat* lets what arrived last in one session
arrive once more at the begin of the next. With `codec` every message crosses as
bytes, so that no two processes share an object.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crescando.transport.base import QUEUE_BYTES, Channel, Codec, Endpoint, Transport, weight_of
from crescando.types import ProcessId


@dataclass(slots=True, eq=False)
class Event:
    """Something that will happen at a virtual time; ties happen in order of scheduling."""

    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Call it off."""
        self.is_cancelled = True


class VirtualTime:
    """The clock and agenda of a simulated world."""

    def __init__(self) -> None:
        self._now_s = 0.0
        # Tuples, since heaps compare often and tuples compare fast; no two have one order.
        self._agenda: list[tuple[float, int, Event]] = []
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
        event = Event(callback)
        now_s = self._now_s
        heapq.heappush(self._agenda, (when_s if when_s > now_s else now_s, self._order, event))
        return event

    def run_until(self, until_s: float, *, events_max: int | None = None) -> None:
        """Let everything happen that is due up to a time, and stand there.

        Parameters
        ----------
        until_s : float
        events_max : int, optional
            Stop early once so many events have happened since the beginning.
        """
        agenda, next_of = self._agenda, heapq.heappop
        while agenda and agenda[0][0] <= until_s:
            if events_max is not None and self.n_events >= events_max:
                return
            when_s, _, event = next_of(agenda)
            if event.is_cancelled:
                continue
            self._now_s = when_s
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

    def __init__(self, network: SimulatedNetwork, owner: ProcessId, peer: ProcessId, *, asked: bool) -> None:
        self.peer = peer
        self.network = network
        self.owner = owner
        self.asked = asked
        self.other: SimulatedChannel | None = None
        self.is_open = True
        self.is_known = False
        self.is_deaf = False
        self.unread_bytes = 0
        self.arrives_s = 0.0
        self.held: list[Callable[[Endpoint], None]] = []
        self.arrived: deque[Any] = deque(maxlen=network.keep_arrived)

    def send(self, message: Any) -> None:
        other = self.other
        if not self.is_open or other is None:
            return
        if self.network.witness is not None:
            self.network.witness(self.owner, self.peer, message)
        if self.is_deaf:
            return
        if self.unread_bytes > self.network.queue_bytes:
            self.close()
            return
        carried, weight = self.network.carry(self, message), self.network.weigh(message)
        self.unread_bytes += weight

        def read(endpoint: Endpoint) -> None:
            self.unread_bytes -= weight
            other.take(endpoint, carried)

        self.network.dispatch(self, read)

    def begin(self, endpoint: Endpoint) -> None:
        """Let this end learn of its session."""
        self.is_known = True
        endpoint.opened(self)

    def take(self, endpoint: Endpoint, message: Any) -> None:
        """Let a message arrive here."""
        self.arrived.append(message)
        endpoint.received(self, message)

    def taking(self, message: Any) -> Callable[[Endpoint], None]:
        """Give the arrival of a message here, as an event."""
        return lambda endpoint: self.take(endpoint, message)

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
        Through which every message goes: an encoder, and what gives the decoder of a
        sender's messages to a receiver, or None if they have nothing to say to one another.
    keep_arrived : int
        How many of the last messages of a session `repeat` may let arrive again.
    queue_bytes : int
        Unread bytes in one direction above which a session is closed.

    Attributes
    ----------
    witness : callable or None
        Called with the sender, the receiver and each message sent, to count or record it.
    """

    def __init__(
        self,
        time: VirtualTime,
        rng: random.Random,
        *,
        delay_s: tuple[float, float] = (0.0002, 0.002),
        codec: Codec | None = None,
        keep_arrived: int = 0,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.time = time
        self.keep_arrived = keep_arrived
        self.queue_bytes = queue_bytes
        self.witness: Callable[[ProcessId, ProcessId, Any], None] | None = None
        self.faults = NetworkFaults()
        self.n_messages = 0
        self._rng = rng
        self._delay_s = delay_s
        self._codec = codec
        self._endpoints: dict[ProcessId, Endpoint] = {}
        self._stalled: dict[ProcessId, list[Callable[[], None]]] = {}
        self._channels: dict[ProcessId, dict[ProcessId, SimulatedChannel]] = {}
        self._repeats: dict[tuple[ProcessId, ProcessId], list[Any]] = {}
        self._weighed: Any = None
        self._weight = weight_of(None)

    # Transport.

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._endpoints:
            raise ValueError(f"{process} is attached already")
        self._endpoints[process] = endpoint
        self._channels[process] = {}

    def detach(self, process: ProcessId) -> None:
        self._endpoints.pop(process, None)
        self._stalled.pop(process, None)
        for channel in list(self._channels.pop(process, {}).values()):
            self.end(channel)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        if process in self._channels and peer not in self._channels[process]:
            self.time.call_at(
                self.time.now_s() + self._delay(process, peer), lambda: self._open(process, peer)
            )

    @property
    def unread_bytes(self) -> int:
        """What all open sessions have on their way, in bytes."""
        return sum(end.unread_bytes for known in self._channels.values() for end in known.values())

    # What faults do.

    def stall(self, process: ProcessId) -> None:
        """Let a process read nothing until it is woken; what arrives fills its sessions."""
        self._stalled.setdefault(process, [])

    def wake(self, process: ProcessId) -> None:
        """Let a process read again, first what came meanwhile."""
        for event in self._stalled.pop(process, ()):
            self._when_read(process, event)

    def _when_read(self, process: ProcessId, event: Callable[[], None]) -> None:
        if process in self._stalled:
            self._stalled[process].append(event)
        else:
            event()

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

    def half_open(self, process: ProcessId, peer: ProcessId, *, both: bool) -> Callable[[], None] | None:
        """Let a session die unnoticed: `process` takes it for open, and `peer` too if `both`.

        What is sent on it vanishes. Gives what tells the ends at last, as a
        transport's signs of life do; None if there is no such session.
        """
        near = self._channels.get(process, {}).get(peer)
        far = self._channels.get(peer, {}).get(process)
        if near is None or far is None or near.other is not far:
            return None
        near.is_deaf = far.is_deaf = True
        if not both:
            self._end(far)
        return lambda: self.end(near)

    def repeat(self, process: ProcessId, peer: ProcessId, which: Callable[[Any], bool]) -> bool:
        """End a session; the next one begins with what `peer` sent last and has arrived already.

        Parameters
        ----------
        which : callable
            Says which messages may arrive twice.
        """
        channel = self._channels.get(process, {}).get(peer)
        again = [message for message in channel.arrived if which(message)] if channel is not None else []
        if channel is None or not again:
            return False
        self._repeats[peer, process] = again
        self.end(channel)
        return True

    def heal(self, *, resets: bool, cut: Collection[tuple[ProcessId, ProcessId]] | None = None) -> None:
        """End faults; what was held arrives, or its session ends instead.

        Parameters
        ----------
        cut : collection of (ProcessId, ProcessId), optional
            Only these pairs are joined again; everything that ails the network otherwise.
        """
        if cut is None:
            self.faults.cut.clear()
            self.faults.slow.clear()
        else:
            self.faults.cut.difference_update(cut)
        waiting = [channel for known in self._channels.values() for channel in known.values() if channel.held]
        for channel in waiting:
            if (channel.owner, channel.peer) in self.faults.cut or not channel.is_open:
                continue
            if resets:
                self.end(channel)
                continue
            held, channel.held = channel.held, []
            for event in held:
                self.dispatch(channel, event)

    # Carrying.

    def carry(self, channel: SimulatedChannel, message: Any) -> Any:
        """Give the message as the receiver will see it."""
        self.n_messages += 1
        if self._codec is None:
            return message
        encode, decoder_for = self._codec
        decode = decoder_for(channel.owner, channel.peer, "")
        assert decode is not None, f"{channel.owner} sends {channel.peer} a {type(message).__name__}"
        return decode(encode(message))

    def weigh(self, message: Any) -> int:
        """Give what a message weighs; one that goes to many is weighed once."""
        if message is not self._weighed:
            self._weighed, self._weight = message, weight_of(message)
        return self._weight

    def dispatch(self, near: SimulatedChannel, event: Callable[[Endpoint], None]) -> None:
        """Let something arrive at the other end, after everything sent before."""
        far = near.other
        assert far is not None
        if (near.owner, near.peer) in self.faults.cut:
            near.held.append(event)
            return
        due_s = self.time.now_s() + self._delay(near.owner, near.peer)
        if due_s > near.arrives_s:
            near.arrives_s = due_s
        self.time.call_at(near.arrives_s, partial(self._reach, far, event))

    def end(self, channel: SimulatedChannel) -> None:
        """End a session; each end learns of it after a delay of its own."""
        for end in (channel, channel.other):
            if end is not None and end.is_open:
                self._end(end)

    def _end(self, end: SimulatedChannel) -> None:
        end.is_open = False
        known = self._channels.get(end.owner, {})
        if known.get(end.peer) is end:
            del known[end.peer]
        self.time.call_at(self.time.now_s() + self._delay(end.peer, end.owner), self._closing(end))

    def _closing(self, channel: SimulatedChannel) -> Callable[[], None]:
        def tell() -> None:
            endpoint = self._endpoints.get(channel.owner)
            if endpoint is None:
                return
            if channel.is_known:
                endpoint.closed(channel)
            elif channel.asked:
                # It ended before this end learned of it; whoever asked for it waits for an answer.
                endpoint.refused(channel.peer)

        return lambda: self._when_read(channel.owner, tell)

    def _reach(self, channel: SimulatedChannel, event: Callable[[Endpoint], None]) -> None:
        """Let something arrive at an end, or be there when its process reads again."""
        if self._stalled and channel.owner in self._stalled:
            self._stalled[channel.owner].append(partial(self._arrive, channel, event))
        else:
            self._arrive(channel, event)

    def _arrive(self, channel: SimulatedChannel, event: Callable[[Endpoint], None]) -> None:
        endpoint = self._endpoints.get(channel.owner)
        if channel.is_open and endpoint is not None:
            event(endpoint)

    def _open(self, process: ProcessId, peer: ProcessId) -> None:
        if process not in self._endpoints or peer in self._channels[process]:
            return
        is_cut = (process, peer) in self.faults.cut or (peer, process) in self.faults.cut
        if peer not in self._endpoints or is_cut:
            self._when_read(process, partial(self._refuse, process, peer))
            return
        stale = self._channels[peer].get(process)
        if stale is not None:
            # The peer has not noticed that the session before is over.
            self.end(stale)
        near = SimulatedChannel(self, process, peer, asked=True)
        far = SimulatedChannel(self, peer, process, asked=False)
        near.other, far.other = far, near
        self._channels[process][peer] = near
        self._channels[peer][process] = far
        self._begin(near, far)
        self._begin(far, near)

    def _refuse(self, process: ProcessId, peer: ProcessId) -> None:
        endpoint = self._endpoints.get(process)
        if endpoint is not None:
            endpoint.refused(peer)

    def _begin(self, near: SimulatedChannel, far: SimulatedChannel) -> None:
        self.dispatch(near, far.begin)
        for message in self._repeats.pop((near.owner, near.peer), ()):
            self.dispatch(near, far.taking(message))

    def _delay(self, process: ProcessId, peer: ProcessId) -> float:
        delay_s = self._rng.uniform(*self._delay_s)
        slow = self.faults.slow
        return delay_s * slow.get((process, peer), 1.0) if slow else delay_s
