"""Sessions between processes of one event loop: messages are handed over, not copied.

Messages are immutable values, so handing over the very object is safe; the
simulator sends the same messages through the wire codec to keep it so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crescando.pump import Scheduler
from crescando.transport.base import QUEUE_BYTES, Channel, Endpoint, Transport, weight_of
from crescando.types import ProcessId

QUEUE_MAX = 65_536
"""Messages on their way in one direction; far above what credits let a core send."""

UNWEIGHED = 16
"""So many messages that wait for one process are not weighed: it keeps up."""

_BEGIN, _END = object(), object()


class _Inbox:
    """What has arrived for one process, of all its sessions, in the order of arrival.

    Attributes
    ----------
    endpoint : Endpoint or None
        None once the process is detached: nothing is kept of it, and nothing told.
    call : callable
        To be called when something is about to be put into the inbox while it is empty.
    """

    __slots__ = ("_has_marks", "arrived", "call", "endpoint", "n_emptied")

    def __init__(self, endpoint: Endpoint, scheduler: Scheduler) -> None:
        self.endpoint: Endpoint | None = endpoint
        self.call: Callable[[], object] = partial(scheduler.call_soon, self._deliver)
        self.arrived: list[tuple[InProcessChannel, Any]] = []
        self.n_emptied = 0
        self._has_marks = False

    def mark(self, channel: InProcessChannel, mark: object) -> None:
        """Take the begin or end of a session."""
        if not self.arrived:
            self.call()
        self.arrived.append((channel, mark))
        self._has_marks = True

    def _deliver(self) -> None:
        # What arrives meanwhile is for the next round: nobody's turn waits behind it.
        arrived, self.arrived = self.arrived, []
        self.n_emptied += 1
        if self._has_marks:
            self._has_marks = False
            self._deliver_one_by_one(arrived)
        elif self.endpoint is not None:
            self.endpoint.received_all(arrived)

    def _deliver_one_by_one(self, arrived: list[tuple[InProcessChannel, Any]]) -> None:
        for channel, message in arrived:
            endpoint = self.endpoint
            if endpoint is None:
                return
            if message is _BEGIN:
                endpoint.opened(channel)
            elif message is _END:
                endpoint.closed(channel)
            else:
                endpoint.received(channel, message)


class InProcessChannel(Channel):
    """One end of an in-process session."""

    def __init__(self, hub: InProcessHub, owner: ProcessId, peer: ProcessId, inbox: _Inbox) -> None:
        self.peer = peer
        self.inbox = inbox
        self._hub = hub
        self._owner = owner
        self._other: InProcessChannel | None = None
        self._n_weighed = self._weighed_bytes = self._longest = 0
        self._weighed_since = 0
        self._is_open = True

    def begin(self, other: InProcessChannel) -> None:
        """Tie the two ends of a session together."""
        self._other = other
        self.inbox.mark(self, _BEGIN)

    def send(self, message: Any) -> None:
        other = self._other
        if other is None:
            return
        arrived = other.inbox.arrived
        if not arrived:
            other.inbox.call()
        elif len(arrived) >= UNWEIGHED and not other._has_room_for(message):
            self.close()
            return
        arrived.append((other, message))

    def close(self) -> None:
        other = self._other
        self._end()
        if other is not None:
            other._end()

    def _has_room_for(self, message: Any) -> bool:
        """Weigh what has to wait behind others; it counts until the inbox is emptied."""
        if self._weighed_since != self.inbox.n_emptied:
            self._weighed_since = self.inbox.n_emptied
            self._n_weighed = self._weighed_bytes = self._longest = 0
        # One message of any length passes, and what follows it.
        if self._n_weighed >= QUEUE_MAX or self._weighed_bytes > QUEUE_BYTES + self._longest:
            return False
        weight = weight_of(message)
        self._n_weighed += 1
        self._weighed_bytes += weight
        self._longest = max(self._longest, weight)
        return True

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._other = None
            self._hub.forget(self._owner, self)
            # What has arrived before the end is still received.
            self.inbox.mark(self, _END)


class InProcessHub(Transport):
    """Connects the processes of one store; two stores never share one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._inboxes: dict[ProcessId, _Inbox] = {}
        self._channels: dict[ProcessId, dict[ProcessId, InProcessChannel]] = {}

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._inboxes:
            raise ValueError(f"{process} is attached already")
        self._inboxes[process] = _Inbox(endpoint, self.scheduler)
        self._channels[process] = {}

    def detach(self, process: ProcessId) -> None:
        inbox = self._inboxes.pop(process, None)
        if inbox is not None:
            inbox.endpoint = None
        for channel in list(self._channels.pop(process, {}).values()):
            channel.close()

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        channels = self._channels.get(process)
        if channels is None or peer in channels:
            return
        if peer not in self._inboxes:
            self.scheduler.call_soon(lambda: self._refuse(process, peer))
            return
        near = InProcessChannel(self, process, peer, self._inboxes[process])
        far = InProcessChannel(self, peer, process, self._inboxes[peer])
        channels[peer] = near
        self._channels[peer][process] = far
        near.begin(far)
        far.begin(near)

    def forget(self, process: ProcessId, channel: InProcessChannel) -> None:
        """Take an ended session off the list."""
        channels = self._channels.get(process)
        if channels is not None and channels.get(channel.peer) is channel:
            del channels[channel.peer]

    def _refuse(self, process: ProcessId, peer: ProcessId) -> None:
        inbox = self._inboxes.get(process)
        if inbox is not None and inbox.endpoint is not None:
            inbox.endpoint.refused(peer)
