"""What a socket transport knows of one session, from the dial to the channel.

Rules of the file: state only; `sockets` decides what becomes of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crescando.transport.base import Channel, Decode, Endpoint
from crescando.transport.connection import Connection
from crescando.transport.framing import Body, FrameKind
from crescando.transport.identity import Certificate
from crescando.types import ProcessId

Pair = tuple[ProcessId, ProcessId]
"""A process attached here, and its peer."""


class SocketChannel(Channel):
    """One end of a session over a connection.

    Attributes
    ----------
    owner, peer : ProcessId
    endpoint : Endpoint or None
        None once the owner is detached: it is told nothing any more.
    is_open : bool
    """

    def __init__(
        self,
        pair: Pair,
        endpoint: Endpoint,
        connection: Connection,
        *,
        encode: Callable[[Any], bytes],
        decode: Decode,
        forget: Callable[[SocketChannel], None],
    ) -> None:
        self.owner, self.peer = pair
        self.endpoint: Endpoint | None = endpoint
        self.is_open = True
        self._connection = connection
        self._encode = encode
        self._decode = decode
        self._forget = forget

    def send(self, message: Any) -> None:
        if self.is_open:
            self._connection.send(FrameKind.MESSAGE, self._encode(message))

    def receive(self, body: Body) -> None:
        """Take the bytes of a message of the peer's."""
        if self.endpoint is not None:
            self.endpoint.received(self, self._decode(body))

    def close(self) -> None:
        if self.is_open:
            self._forget(self)
            self._connection.close()


class Link:
    """A connection on its way to being a session: whose, and how far the handshake is.

    Parameters
    ----------
    dialled : tuple of ProcessId or None
        Whose dial it is; None for one that was answered.
    attempt : int
        Which of the dialler's attempts.
    question : asyncio.Future, optional
        Who waits to hear what processes there are; then it becomes no session.

    Attributes
    ----------
    pair : tuple of ProcessId or None
        Whose session it will be, as far as is known and still wanted.
    is_connected : bool
        Whether there is a `connection`.
    certificate : Certificate or None
        What the peer has proven; None without TLS.
    decode : callable
        What the peer may say, once the two are known.
    channel : SocketChannel or None
        The session, once it has begun.
    ends_s : float
        When the session ends in any case, by the calendar's clock.
    heard_s : float
        When it was last seen that something had come.
    timer : asyncio.TimerHandle or None
        The time limit of an answered handshake.
    """

    def __init__(
        self,
        dialled: Pair | None,
        attempt: int,
        question: asyncio.Future[tuple[ProcessId, ...]] | None = None,
    ) -> None:
        self.dialled = dialled
        self.attempt = attempt
        self.question = question
        self.pair: Pair | None = dialled
        self.connection: Connection
        self.is_connected = False
        self.certificate: Certificate | None = None
        self.decode: Decode
        self.channel: SocketChannel | None = None
        self.ends_s = math.inf
        self.heard_s = 0.0
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the peer asked for it."""
        return self.dialled is None and self.question is None

    def settle(self) -> None:
        """End the time limit: the handshake is over, one way or the other."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True, eq=False)
class Dial:
    """A session asked for and not yet had or refused.

    `link` is None while the other side's dial goes on, and before this one has begun.
    """

    link: Link | None
    timer: asyncio.TimerHandle
    task: asyncio.Task[None] | None = None
