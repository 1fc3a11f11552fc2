"""One connection to a peer that sends writes and counts their acknowledgements.

Rules of the file: a lane knows its protocol only as far as a write and its
reply; requests are put together from parts encoded beforehand, replies are
counted and not built into objects, so that the peer and not its client is
measured. What happens next is the listener's business (`load.py`).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Protocol, cast

# Odd, hence i -> i * SPREAD mod 2^64 meets every key of the 64-bit space once
# (the golden ratio's bits: neighbours land far apart).
SPREAD = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def key_of(write: int) -> bytes:
    """Give the key of the write numbered `write`: 64 bits as 16 hexadecimal digits, no two alike."""
    return b"%016x" % (write * SPREAD & MASK)


class Listener(Protocol):
    """Who is told what became of a lane's requests."""

    def on_settled(self, lane: Lane, sent_s: Sequence[float]) -> None:
        """Hear of requests that were acknowledged, by the times they were sent (monotonic clock)."""
        ...

    def on_refused(self, lane: Lane, reason: str) -> None:
        """Hear of one request that the peer refused."""
        ...

    def on_lost(self, lane: Lane) -> None:
        """Hear that the connection is gone, and with it every answer that was still to come."""
        ...


class Lane(asyncio.Protocol, ABC):
    """A connection; replies come in the order of the requests unless a subclass says otherwise.

    Parameters
    ----------
    payload : bytes
        The value that every write carries.
    batch : int
        Writes in one request.
    listener : Listener
        Is told of every answer.
    """

    def __init__(self, payload: bytes, batch: int, listener: Listener) -> None:
        self.payload = payload
        self.batch = batch
        self.listener = listener
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent_s: deque[float] = deque()

    @abstractmethod
    def request(self, writes: range) -> bytes:
        """Encode one request that applies `writes`."""

    @abstractmethod
    def greet(self) -> None:
        """Do the protocol's greeting; call `greeted` when requests may follow."""

    def greeted(self) -> None:
        """Let the one who waits for `ready` go on."""
        if not self.ready.done():
            self.ready.set_result(None)

    def submit(self, requests: Sequence[range]) -> None:
        """Send requests, in one write to the socket."""
        self._sent_s.extend(repeat(time.monotonic(), len(requests)))
        self.transport.write(b"".join(map(self.request, requests)))

    def settle(self, count: int) -> None:
        """Report the oldest `count` requests as acknowledged."""
        if count:
            oldest = self._sent_s.popleft
            self.listener.on_settled(self, [oldest() for _ in range(count)])

    def refuse(self, reason: str) -> None:
        """Report the oldest request as refused."""
        if self._sent_s:
            self._sent_s.popleft()
        self.listener.on_refused(self, reason)

    def close(self) -> None:
        """Drop the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of asyncio's class; they do the same.
        self.transport = cast(asyncio.Transport, transport)
        self.greet()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError("closed while greeting"))
            self.ready.exception()  # Whoever waits hears of it; nobody need wait.
        self.listener.on_lost(self)
