"""Sessions over TCP or Unix sockets, with TLS if asked for.

A session is one connection, begun by a handshake of three frames: the dialling
side says who it is and whom it wants (hello), the answering side takes it
(welcome) or not (refuse), the dialling side confirms. Only a confirmed session
is one, at either end, so a dial that was given up in between never ends a good
session. Two processes that dial each other at once keep the dial of the lesser
name. Somebody who dials anew has lost the session that the other end may still
believe in: the new one replaces it.

Rules of the file: an identity is checked before anything is told to an
endpoint; until then frames are short and time is limited. Every process
attached here is reached through the same listening sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from crescando.errors import RemoteProtocolError
from crescando.transport.base import Endpoint, Transport
from crescando.transport.connection import Connection
from crescando.transport.framing import Body, FrameKind
from crescando.transport.handshake import (
    CROSSED,
    Address,
    Hello,
    Identify,
    Locate,
    SocketLimits,
    Tls,
    certified,
    decode_hello,
    encode_hello,
)
from crescando.transport.link import Dial, Link, Pair, SocketChannel
from crescando.transport.tls import TlsStream
from crescando.types import ProcessId

logger = logging.getLogger(__name__)

Codec = tuple[Callable[[Any], bytes], Callable[[Body], Any]]
"""Encoder and decoder; the decoder copies what it keeps, and raises `RemoteProtocolError`."""

_NOTHING: tuple[Any, bytes] = object(), b""


class SocketTransport(Transport):
    """Carries the sessions of the processes of one operating-system process.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        In whose thread everything happens.
    codec : tuple of callable
    locate : callable
    limits : SocketLimits, optional
    tls : Tls, optional
        Without it nothing is encrypted and nobody's identity is proven.
    identify : callable, optional
        The identity check; by default `certified`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        codec: Codec,
        locate: Locate,
        limits: SocketLimits | None = None,
        tls: Tls | None = None,
        identify: Identify = certified,
    ) -> None:
        self.limits = limits or SocketLimits()
        self._loop = loop
        self._encode, self._decode = codec
        self._locate = locate
        self._tls = tls
        self._identify = identify
        self._servers: list[asyncio.Server] = []
        self._endpoints: dict[ProcessId, Endpoint] = {}
        self._channels: dict[ProcessId, dict[ProcessId, SocketChannel]] = {}
        self._dials: dict[Pair, Dial] = {}
        self._welcomed: dict[Pair, Link] = {}
        self._links: dict[Connection, Link] = {}
        self._unsent: list[Connection] = []
        self._n_attempts = 0
        self._encoded = _NOTHING

    async def listen(self, address: Address) -> Address:
        """Listen for sessions; port 0 takes a free one. Gives the address listened at."""
        if isinstance(address, str):
            server = await self._loop.create_unix_server(self._accept, address)
            self._servers.append(server)
            return address
        host, port = address
        server = await self._loop.create_server(self._accept, host, port, backlog=2048)
        self._servers.append(server)
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def close(self) -> None:
        """Listen no more and end every session, without a word to anybody here."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for process in list(self._endpoints):
            self.detach(process)
        for connection in list(self._links):
            connection.close("the transport is closed")

    # Transport.

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._endpoints:
            raise ValueError(f"{process} is attached already")
        self._endpoints[process] = endpoint
        self._channels[process] = {}

    def detach(self, process: ProcessId) -> None:
        self._endpoints.pop(process, None)
        for pair in [known for known in self._dials if known[0] == process]:
            self._give_up(pair)
        for channel in list(self._channels.pop(process, {}).values()):
            channel.endpoint = None
            channel.close()

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        pair = process, peer
        if process not in self._endpoints or peer in self._channels[process] or pair in self._dials:
            return
        timer = self._loop.call_later(self.limits.handshake_s, self._refuse, pair, "no answer in time")
        if pair in self._welcomed:
            # The peer's own dial is half done; if it comes to nothing, so does this.
            self._dials[pair] = Dial(None, timer)
            return
        self._n_attempts += 1
        link = Link(pair, self._n_attempts)
        dial = self._dials[pair] = Dial(link, timer)
        dial.task = self._loop.create_task(self._dial(pair, link))

    async def _dial(self, pair: Pair, link: Link) -> None:
        address = self._locate(pair[1])
        if address is None:
            self._refuse(pair, "nobody knows where it is")
            return
        try:
            if isinstance(address, str):
                await self._loop.create_unix_connection(lambda: self._connection(link), address)
            else:
                await self._loop.create_connection(lambda: self._connection(link), *address)
        except OSError as error:
            if link.is_connected:
                link.connection.abort(str(error))
            else:
                self._refuse(pair, str(error))

    def _refuse(self, pair: Pair, why: str) -> None:
        if self._give_up(pair):
            logger.debug("no session of %s with %s: %s", *pair, why)
            endpoint = self._endpoints.get(pair[0])
            if endpoint is not None:
                endpoint.refused(pair[1])

    def _give_up(self, pair: Pair) -> bool:
        """End a dial that has not become a session; says whether there was one."""
        dial = self._dials.pop(pair, None)
        if dial is None:
            return False
        dial.timer.cancel()
        if dial.link is not None:
            if dial.link.is_connected:
                dial.link.connection.close("the dial was given up")
            elif dial.task is not None:
                dial.task.cancel()
        return True

    # Connections.

    def _accept(self) -> Connection:
        link = Link(None, 0)
        connection = self._connection(link)
        link.timer = self._loop.call_later(
            self.limits.handshake_s, connection.abort, "no session began in time"
        )
        return connection

    def _connection(self, link: Link) -> Connection:
        stream: TlsStream | None = None
        if self._tls is not None:
            is_server = link.dialled is None
            context = self._tls.server if is_server else self._tls.client
            stream = TlsStream(context, is_server=is_server)
        connection = link.connection = Connection(
            self._loop,
            self,
            body_bytes_max=self.limits.handshake_bytes_max,
            queue_bytes_max=self.limits.queue_bytes_max,
            tls=stream,
        )
        link.is_connected = True
        self._links[connection] = link
        return connection

    def made(self, connection: Connection) -> None:
        link = self._links[connection]
        if link.dialled is None:
            return
        fault = self._identify(link.dialled[1], connection.ssl_object)
        if fault:
            logger.warning("no session of %s with %s: %s", *link.dialled, fault)
            connection.abort(fault)
        else:
            self._say(connection, FrameKind.HELLO, encode_hello(Hello(*link.dialled, link.attempt)))

    def framed(self, connection: Connection, kind: FrameKind, body: Body) -> None:
        link = self._links[connection]
        has_begun = link.channel is not None
        match kind:
            case FrameKind.HELLO if link.pair is None:
                self._on_hello(link, decode_hello(bytes(body)))
            case FrameKind.WELCOME if link.dialled is not None and not has_begun:
                self._on_welcome(link, link.dialled)
            case FrameKind.REFUSE if link.dialled is not None and not has_begun:
                self._on_refuse(link, link.dialled, bytes(body))
            case FrameKind.CONFIRM if link.dialled is None and link.pair is not None and not has_begun:
                self._on_confirm(link, link.pair)
            case _:
                raise RemoteProtocolError(f"a {kind.name.lower()} frame may not come now")

    def ended(self, connection: Connection, why: str) -> None:
        link = self._links.pop(connection)
        link.settle()
        if link.channel is not None:
            logger.info("the session of %s with %s is over: %s", link.channel.owner, link.channel.peer, why)
            self._forget(link.channel)
            if link.channel.endpoint is not None:
                link.channel.endpoint.closed(link.channel)
        elif link.pair is not None:
            if self._welcomed.get(link.pair) is link:
                del self._welcomed[link.pair]
            dial = self._dials.get(link.pair)
            if dial is not None and (dial.link is link or dial.link is None):
                self._refuse(link.pair, why)

    def unsent(self, connection: Connection) -> None:
        self._unsent.append(connection)

    def flush(self) -> None:
        # What is remembered to be encoded once is remembered for one turn: it may be large.
        self._encoded = _NOTHING
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.write()

    # The handshake.

    def _say(self, connection: Connection, kind: FrameKind, body: bytes = b"") -> None:
        """Send a word of a handshake, which no turn of anybody's goes with."""
        connection.send(kind, body)
        self.flush()

    def _on_hello(self, link: Link, hello: Hello) -> None:
        pair = hello.receiver, hello.sender
        fault = self._identify(hello.sender, link.connection.ssl_object)
        if fault:
            logger.warning("no session of %s with %s: %s", *pair, fault)
        elif hello.receiver not in self._endpoints:
            fault = f"{hello.receiver} is not here"
        dial, earlier = self._dials.get(pair), self._welcomed.get(pair)
        if fault:
            self._turn_down(link, fault.encode())
        elif dial is not None and dial.link is not None and pair[0] < pair[1]:
            self._turn_down(link, CROSSED)
        elif earlier is not None and earlier.attempt > hello.attempt:
            self._turn_down(link, b"a later dial is here already")
        else:
            if earlier is not None:
                earlier.pair = None
                earlier.connection.close("a later dial has come")
            link.pair, link.attempt = pair, hello.attempt
            self._welcomed[pair] = link
            self._say(link.connection, FrameKind.WELCOME)

    def _turn_down(self, link: Link, why: bytes) -> None:
        link.connection.send(FrameKind.REFUSE, why[: self.limits.handshake_bytes_max])
        link.connection.close()

    def _on_welcome(self, link: Link, pair: Pair) -> None:
        dial = self._dials.pop(pair)
        dial.timer.cancel()
        self._say(link.connection, FrameKind.CONFIRM)
        self._open(link, pair)

    def _on_refuse(self, link: Link, pair: Pair, body: bytes) -> None:
        if body == CROSSED:
            # The other side's dial goes on and answers this one; the timer bounds the wait.
            self._dials[pair].link = link.pair = None
        link.connection.close(body.decode(errors="replace"))

    def _on_confirm(self, link: Link, pair: Pair) -> None:
        del self._welcomed[pair]
        if pair[0] not in self._endpoints:
            link.pair = None
            link.connection.close("it is not here any more")
            return
        self._give_up(pair)
        old = self._channels[pair[0]].get(pair[1])
        if old is not None:
            old.close()
        self._open(link, pair)

    def _open(self, link: Link, pair: Pair) -> None:
        link.settle()
        endpoint = self._endpoints[pair[0]]
        channel = link.channel = SocketChannel(
            pair,
            endpoint,
            link.connection,
            encode=self._encoded_once,
            decode=self._decode,
            forget=self._forget,
        )
        link.connection.begin_session(self.limits.message_bytes_max, channel.receive)
        self._channels[pair[0]][pair[1]] = channel
        endpoint.opened(channel)

    # What channels need.

    def _encoded_once(self, message: Any) -> bytes:
        """Give a message's bytes; what is sent to several peers in a row is encoded once."""
        if self._encoded[0] is not message:
            self._encoded = message, self._encode(message)
        return self._encoded[1]

    def _forget(self, channel: SocketChannel) -> None:
        """Take a session that is over off the list."""
        channel.is_open = False
        channels = self._channels.get(channel.owner)
        if channels is not None and channels.get(channel.peer) is channel:
            del channels[channel.peer]
