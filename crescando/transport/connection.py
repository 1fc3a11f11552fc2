"""One stream connection of the event loop: frames out, in few writes, and frames in.

Rules of the file: everything sent in one turn leaves in one write per
connection; what waits unsent is bounded, beside one frame of any length, and
a peer that does not take it loses the connection; of a peer that has not proven
who it is little is taken; the handler is told of the end exactly once, and of
nothing after it but that the socket is gone. What frames mean is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from crescando.errors import RemoteProtocolError
from crescando.transport.causes import (
    CLOSED_IN_HANDSHAKE,
    MAGIC_BYTES,
    PEER_CLOSED,
    Cause,
    cause_of,
    words_of,
)
from crescando.transport.framing import HEADER_BYTES, Body, FrameKind, Framer, header
from crescando.transport.tls import TlsStream

LINGER_S = 5.0
"""How long the last bytes of a closed connection may wait for the peer to take them."""

PARTING_S = 1.0
"""How long a peer that is turned down may take to hear why.

A socket that is closed while something comes resets the connection, and what
was on its way to the peer may be lost.
"""

STRANGER_BYTES_MAX = 65536
"""What is taken of a peer before a session begins: far more than a TLS handshake takes."""

RECEIVE_BYTES = 65536
"""Bytes asked of the system at once, where the loop lets one say so.

Its own choice is so large that the C library maps and unmaps memory for each.
"""

SEAL_BYTES = 1 << 18
"""Bytes sealed at once for TLS, whose buffers stay as large as they have ever been."""


_MESSAGE = FrameKind.MESSAGE
"""A name is found faster than an enumeration's member."""


class Handler(Protocol):
    """Who is told of what happens on a connection."""

    def connected(self, connection: Connection) -> None:
        """Learn that there is a socket, and with whom nobody knows yet."""
        ...

    def made(self, connection: Connection) -> None:
        """Learn that bytes can flow (after the TLS handshake, if there is one)."""
        ...

    def framed(self, connection: Connection, kind: FrameKind, body: Body) -> None:
        """Take a frame that is no message of a session; what is kept of its body must be copied.

        Raises
        ------
        RemoteProtocolError
            If it may not come now; the connection ends.
        """
        ...

    def broken(self, connection: Connection, why: str) -> None:
        """Learn that the peer has broken the protocol; end it."""
        ...

    def ended(self, connection: Connection, cause: Cause) -> None:
        """Learn that the connection is over; told once."""
        ...

    def gone(self, connection: Connection) -> None:
        """Learn that the socket of a connection that was made is closed; told once."""
        ...

    def unsent(self, connection: Connection) -> None:
        """Learn that something waits to be written, by a call of `write`."""
        ...


class Connection(asyncio.Protocol):
    """A stream connection that carries frames.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    handler : Handler
    body_bytes_max : int
        The longest frame body taken and sent before a session begins (`begin_session`).
    queue_bytes_max : int
        With more than so much unsent beside the longest frame of what waits,
        the next frame ends the connection: a frame of any length gets through.
    tls : TlsStream, optional
        Seals what is sent, and opens what is received.

    Attributes
    ----------
    is_heard : bool
        Whether something came since the handler set it to False.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        *,
        body_bytes_max: int,
        queue_bytes_max: int,
        tls: TlsStream | None = None,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._framer = Framer(body_bytes_max)
        self._sent_max = body_bytes_max
        self._queue_bytes_max = queue_bytes_max
        self._tls = tls
        self._receive: Callable[[Body], None] | None = None
        self._transport: asyncio.Transport
        self._queue: list[bytes] = []
        self._n_queued = 0
        self._n_left = 0
        self._n_longest = 0
        self._n_strange = 0
        self._first = b""
        self._is_made = False
        self._is_up = False
        self._is_ended = False
        self.is_heard = True

    @property
    def address(self) -> str:
        """The address that the peer connects from, without its port; empty for a local socket."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def ssl_object(self) -> Any:
        """The TLS session's `ssl.SSLObject`, or None without TLS."""
        return self._tls.ssl_object if self._tls is not None else None

    def begin_session(self, taken_max: int, sent_max: int, receive: Callable[[Body], None]) -> None:
        """Take and send frame bodies of so many bytes from now on; those of messages are for `receive`.

        It must copy what it keeps, and may raise `RemoteProtocolError`: the connection ends.
        """
        self._framer.body_bytes_max, self._sent_max = taken_max, sent_max
        self._receive = receive

    def send(self, kind: FrameKind, body: bytes) -> None:
        """Send a frame with the next `write`; dropped once the connection is over."""
        if not self._is_up:
            return
        if self._n_queued + self._n_left > self._queue_bytes_max and not self._has_room():
            self.abort("the peer does not take what is sent")
            return
        n_bytes = len(body)
        if n_bytes > self._n_longest:
            if n_bytes > self._sent_max:
                self.abort(f"a frame of {n_bytes} bytes; peers take at most {self._sent_max}")
                return
            self._n_longest = n_bytes
        if not self._queue:
            self._handler.unsent(self)
        self._queue += header(kind, body), body
        self._n_queued += HEADER_BYTES + n_bytes

    def _has_room(self) -> bool:
        """Look anew at how much the peer has not taken, as far as this process can see."""
        self._n_left = self._transport.get_write_buffer_size()
        return self._n_queued + self._n_left <= self._queue_bytes_max + HEADER_BYTES + self._n_longest

    def write(self) -> None:
        """Hand what was sent to the network."""
        if not self._queue:
            return
        # One write whatever the number of frames: each is a system call of its own,
        # and with TLS a record; joining is cheaper than either.
        data = b"".join(self._queue)
        self._queue.clear()
        self._n_queued = 0
        if self._tls is None:
            self._transport.write(data)
        else:
            try:
                self._write_sealed(self._transport, self._tls, data)
            except ssl.SSLError as error:
                self.abort(str(error))
                return
        self._n_left = self._transport.get_write_buffer_size()
        if not self._n_left:
            self._n_longest = 0

    def _write_sealed(self, transport: asyncio.Transport, tls: TlsStream, data: bytes) -> None:
        if len(data) <= SEAL_BYTES:
            transport.write(tls.seal(data))
            return
        view = memoryview(data)
        for at in range(0, len(data), SEAL_BYTES):
            transport.write(tls.seal(view[at : at + SEAL_BYTES]))

    def close(self, why: str = "", *, is_permanent: bool = False) -> None:
        """End the connection after what was sent; nothing is received any more."""
        self.write()
        if self._is_ended:
            return
        if self._is_up:
            transport = self._transport
            if self._tls is not None:
                transport.write(self._tls.end())
            transport.close()
            if transport.get_write_buffer_size():
                self._loop.call_later(LINGER_S, transport.abort)
        self._end(Cause(why, is_permanent))

    def part(self, why: str, *, is_permanent: bool = False) -> None:
        """End the connection as `close` does, but stay until the peer has heard what was sent last."""
        self.write()
        if self._is_ended:
            return
        if self._is_up:
            transport = self._transport
            if self._tls is not None:
                transport.write(self._tls.end())
            if transport.can_write_eof():
                transport.write_eof()
                self._loop.call_later(PARTING_S, transport.abort)
            else:
                transport.close()
        self._end(Cause(why, is_permanent))

    def abort(self, why: str, *, is_permanent: bool = False) -> None:
        """End the connection now; what was not sent is lost, also of one that is closed and lingers."""
        if self._is_ended and self._is_made:
            self._transport.abort()
        elif not self._is_ended:
            self._queue.clear()
            self._n_queued = 0
            if self._is_up:
                self._transport.abort()
            self._end(Cause(why, is_permanent))

    def _end(self, cause: Cause) -> None:
        self._is_up, self._is_ended = False, True
        # Never from within a call of the handler's own: it would not expect it.
        self._loop.call_soon(self._handler.ended, self, cause)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        raw = self._transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(transport, "max_size"):
            transport.max_size = RECEIVE_BYTES
        self._is_made = True
        self._is_up = not self._is_ended
        if self._is_up:
            self._handler.connected(self)
        if self._is_ended:
            self._transport.abort()
        elif self._tls is None:
            self._handler.made(self)
        else:
            self._open(self._tls, b"")

    def _open(self, tls: TlsStream, data: bytes) -> bytes:
        """Give what is in sealed bytes, and send what TLS itself has to say."""
        was_ready, fault, plain = tls.is_ready, None, b""
        try:
            if was_ready or data:
                plain = tls.receive(data)
            else:
                tls.shake()
        except ssl.SSLError as error:
            fault = cause_of(error, self._first)
        if told := tls.outgoing():
            self._transport.write(told)
        if fault is not None and not tls.is_ready and self._first == MAGIC_BYTES:
            # It speaks our frames, and would not understand an alert.
            self._tls = None
            self._handler.broken(self, fault.text)
        elif fault is not None:
            self.part(fault.text, is_permanent=fault.is_permanent)
        elif tls.is_ready and not was_ready:
            self._handler.made(self)
        return plain

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        self.is_heard = True
        if self._receive is None:
            self._first = self._first or data[:4]
            self._n_strange += len(data)
        if self._tls is not None:
            data = self._open(self._tls, data)
            if self._is_ended:
                return
        try:
            self._framer.feed(data, self._take)
        except RemoteProtocolError as error:
            self._handler.broken(self, str(error))
            return
        if self._tls is not None and self._tls.is_over:
            self.close(PEER_CLOSED.text)
        elif self._receive is None and self._n_strange > STRANGER_BYTES_MAX:
            self.abort("the peer says much and not who it is")

    def _take(self, kind: FrameKind, body: Body) -> bool:
        if kind is _MESSAGE and self._receive is not None:
            self._receive(body)
        else:
            self._handler.framed(self, kind, body)
        return self._is_up

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_ended:
            self._queue.clear()
            self._n_queued = 0
            is_shaking = self._tls is not None and not self._tls.is_ready
            closed = CLOSED_IN_HANDSHAKE if is_shaking else PEER_CLOSED
            # Whoever leaves while it is being answered is not connected any more: it has closed, no more.
            has_left = isinstance(error, OSError) and error.errno == errno.ENOTCONN
            self._end(Cause(words_of(error)) if error is not None and not has_left else closed)
        self._loop.call_soon(self._handler.gone, self)
