"""Sessions between processes of one event loop: messages are handed over, not copied.

Messages are immutable values, so handing over the very object is safe; the
simulator sends the same messages through the wire codec to keep it so.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from crescando.pump import Scheduler
from crescando.transport.base import QUEUE_BYTES, Channel, Endpoint, Transport, weight_of
from crescando.types import ProcessId

QUEUE_MAX = 65_536
"""Messages on their way in one direction; far above what credits let a core send."""


_BEGIN, _MESSAGE, _END = range(3)


class InProcessChannel(Channel):
    """One end of an in-process session."""

    def __init__(self, hub: InProcessHub, owner: ProcessId, peer: ProcessId) -> None:
        self.peer = peer
        self._hub = hub
        self._owner = owner
        self._other: InProcessChannel | None = None
        self._arriving: deque[tuple[int, Any, int]] = deque()
        self._unread_bytes = 0
        self._is_open = True
        self._is_scheduled = False

    def send(self, message: Any) -> None:
        other = self._other
        if not self._is_open or other is None:
            return
        if len(other._arriving) >= QUEUE_MAX or other._unread_bytes > QUEUE_BYTES:
            self.close()
            return
        other._receive(message)

    def close(self) -> None:
        other = self._other
        self._end()
        if other is not None:
            other._end()

    def _receive(self, message: Any) -> None:
        weight = weight_of(message)
        self._unread_bytes += weight
        self._arrive(_MESSAGE, message, weight)

    def _arrive(self, what: int, message: Any = None, weight: int = 0) -> None:
        self._arriving.append((what, message, weight))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._hub.wake(self)

    def deliver(self) -> None:
        """Tell the owner what has arrived."""
        self._is_scheduled = False
        arriving = self._arriving
        while arriving:
            what, message, weight = arriving.popleft()
            endpoint = self._hub.endpoint(self._owner)
            if endpoint is None:
                continue
            if what == _MESSAGE:
                self._unread_bytes -= weight
                endpoint.received(self, message)
            elif what == _BEGIN:
                endpoint.opened(self)
            else:
                endpoint.closed(self)

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._hub.forget(self._owner, self)
            # What has arrived before the end is still received.
            self._arrive(_END)


class InProcessHub(Transport):
    """Connects the processes of one store; two stores never share one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._endpoints: dict[ProcessId, Endpoint] = {}
        self._channels: dict[ProcessId, dict[ProcessId, InProcessChannel]] = {}
        self._ready: deque[InProcessChannel] = deque()

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._endpoints:
            raise ValueError(f"{process} is attached already")
        self._endpoints[process] = endpoint
        self._channels[process] = {}

    def detach(self, process: ProcessId) -> None:
        self._endpoints.pop(process, None)
        for channel in list(self._channels.pop(process, {}).values()):
            channel.close()

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        channels = self._channels.get(process)
        if channels is None or peer in channels:
            return
        if peer not in self._endpoints:
            self.scheduler.call_soon(lambda: self._refuse(process, peer))
            return
        near, far = InProcessChannel(self, process, peer), InProcessChannel(self, peer, process)
        near._other, far._other = far, near
        channels[peer] = near
        self._channels[peer][process] = far
        near._arrive(_BEGIN)
        far._arrive(_BEGIN)

    def endpoint(self, process: ProcessId) -> Endpoint | None:
        """Give the endpoint of an attached process."""
        return self._endpoints.get(process)

    def wake(self, channel: InProcessChannel) -> None:
        """See to it that a channel delivers soon; all that do share one callback."""
        if not self._ready:
            self.scheduler.call_soon(self._deliver)
        self._ready.append(channel)

    def _deliver(self) -> None:
        # What arrives meanwhile is for the next turn of the loop: nobody's turn waits behind it.
        try:
            for _ in range(len(self._ready)):
                self._ready.popleft().deliver()
        finally:
            if self._ready:
                self.scheduler.call_soon(self._deliver)

    def forget(self, process: ProcessId, channel: InProcessChannel) -> None:
        """Take an ended session off the list."""
        channels = self._channels.get(process)
        if channels is not None and channels.get(channel.peer) is channel:
            del channels[channel.peer]

    def _refuse(self, process: ProcessId, peer: ProcessId) -> None:
        endpoint = self._endpoints.get(process)
        if endpoint is not None:
            endpoint.refused(peer)
