"""Sessions over TCP or Unix sockets, with mutual TLS 1.3 if there are credentials.

A session is one connection, begun by a handshake of three frames: the dialling
side says who it is and whom it wants (hello), the answering side takes it
(welcome) or not (refuse), the dialling side confirms. Only a confirmed session
is one, at either end, so a dial that was given up in between never ends a good
session. Two processes that dial each other at once keep the dial of the lesser
name. Somebody who dials anew has lost the session that the other end may still
believe in: the new one replaces it.

Rules of the file: an identity is checked, on both sides, before anything is told
to an endpoint; until then frames are short, time is limited, and so is the
number of those who have proven nothing. A session ends with the certificate
that began it. Every process attached here is reached through the same listening
sockets.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from crescando.errors import CredentialsError, RemoteProtocolError, SessionRefusedError
from crescando.transport.audit import Audit
from crescando.transport.base import Codec, Decode, Endpoint, Transport
from crescando.transport.causes import CLOSED_IN_HANDSHAKE, PEER_CLOSED, Cause, words_of
from crescando.transport.connection import Connection
from crescando.transport.credentials import PROTOCOL_NAME, Credentials
from crescando.transport.framing import Body, FrameKind
from crescando.transport.gate import HALF_OPEN_PART, Gate, Places, files_max
from crescando.transport.handshake import (
    CLIENT,
    CLUSTER,
    PROTOCOL,
    REASON_CHARACTERS_MAX,
    Address,
    Hello,
    Here,
    Locate,
    Refusal,
    SocketLimits,
    Welcome,
    Who,
    decode_word,
    encode_word,
    fault_of,
    said,
)
from crescando.transport.identity import certificate_of
from crescando.transport.link import Dial, Link, Pair, SocketChannel
from crescando.transport.redial import Redials
from crescando.transport.tending import Tending
from crescando.transport.tls import TlsStream
from crescando.types import ProcessId

logger = logging.getLogger(__name__)


_NOTHING: tuple[Any, bytes] = object(), b""


class SocketTransport(Transport):
    """Carries the sessions of the processes of one operating-system process.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        In whose thread everything happens.
    codec : Codec
    locate : callable
    cluster : str, optional
        Whose processes these are; others get no session.
    limits : SocketLimits, optional
    credentials : Credentials, optional
        Without them nothing is encrypted and nobody's identity is proven.
    rng : random.Random, optional
        Draws the pauses before a peer is dialled anew.

    Attributes
    ----------
    audit : Audit
        Counts, and writes down, who was turned away.

    Raises
    ------
    CredentialsError
        If the certificate is of another cluster.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        codec: Codec,
        locate: Locate,
        cluster: str = CLUSTER,
        limits: SocketLimits | None = None,
        credentials: Credentials | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.limits = limits or SocketLimits()
        self.cluster = cluster
        self.audit = Audit(loop.time)
        self._loop = loop
        self._encode, self._decoder_for = codec
        self._locate = locate
        self._credentials = credentials
        self._rng = rng or random.Random()
        self._servers: list[asyncio.Server] = []
        self._endpoints: dict[ProcessId, Endpoint] = {}
        self._channels: dict[ProcessId, dict[ProcessId, SocketChannel]] = {}
        self._dials: dict[Pair, Dial] = {}
        self._welcomed: dict[Pair, Link] = {}
        self._links: dict[Connection, Link] = {}
        self._gate: Gate[Connection] = Gate(
            min(self.limits.half_open_max, files_max() // HALF_OPEN_PART),
            self.limits.half_open_of_address_max,
            lambda connection: connection.abort("it made room for others that have proven nothing yet"),
        )
        self._places: Places[Connection] = Places(self.limits, files_max())
        self._redials = Redials(self.limits, self._rng)
        self._unsent: list[Connection] = []
        self._n_attempts = 0
        self._encoded = _NOTHING
        self._tending = Tending(
            loop,
            self.limits,
            self._rng,
            credentials,
            links=self._links.values,
            probe=lambda connection: self._say(connection, FrameKind.PROBE),
            renewed=self._redials.try_all_again,
        )
        if credentials is not None:
            identities = credentials.tls.certificate.identities
            if all(identity.cluster != cluster for identity in identities):
                names = ", ".join(sorted(map(str, identities)))
                raise CredentialsError("the certificate", f"it names {names}, and the cluster is {cluster!r}")

    @property
    def certificate_serial(self) -> str:
        """The serial number of the certificate in use; empty without TLS."""
        return self._credentials.tls.certificate.serial if self._credentials is not None else ""

    @property
    def n_half_open(self) -> int:
        """How many connections have not become a session."""
        return len(self._gate)

    @property
    def n_dials(self) -> int:
        """How many connections were asked for in all."""
        return self._redials.n_dials

    def error_of(self, peer: ProcessId) -> SessionRefusedError | None:
        """Say why there is no session with a peer; None if there is, or nobody asked for one."""
        return self._redials.error_of(peer)

    async def ask(self, address: Address) -> tuple[ProcessId, ...]:
        """Ask which processes are reached at an address.

        Raises
        ------
        SessionRefusedError
            If nobody answers there who may be believed.
        """
        link = Link(None, 0, self._loop.create_future())
        assert link.question is not None
        try:
            async with asyncio.timeout(self.limits.handshake_s):
                await self._reach(link, address)
                return await link.question
        except TimeoutError:
            raise SessionRefusedError(said(address), "no answer in time", False) from None
        except OSError as error:
            raise SessionRefusedError(said(address), words_of(error), False) from error
        except RemoteProtocolError as error:
            raise SessionRefusedError(said(address), str(error), True) from error
        finally:
            link.question.cancel()
            if link.is_connected:
                link.connection.close()

    async def listen(self, address: Address) -> Address:
        """Listen for sessions; port 0 takes a free one. Gives the address listened at."""
        if isinstance(address, str):
            server = await self._loop.create_unix_server(self._accept, address)
            self._servers.append(server)
            self._tending.start()
            return address
        host, port = address
        server = await self._loop.create_server(self._accept, host, port, backlog=2048)
        self._servers.append(server)
        self._tending.start()
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
        self._tending.stop()

    # Transport.

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        if process in self._endpoints:
            raise ValueError(f"{process} is attached already")
        if self._credentials is not None:
            fault = self._credentials.tls.certificate.fault_of(self.cluster, process)
            if fault:
                raise CredentialsError("the certificate", fault)
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
        if self._redials.is_denied(peer, self._loop.time()):
            self._loop.call_soon(self._tell_refused, pair)
            return
        timer = self._loop.call_later(self.limits.handshake_s, self._refuse, pair, Cause("no answer in time"))
        dial = self._dials[pair] = Dial(None, timer)
        if pair not in self._welcomed:
            dial.task = self._loop.create_task(self._dial(pair, dial))
        # Else the peer's own dial is half done; if it comes to nothing, so does this.

    async def _dial(self, pair: Pair, dial: Dial) -> None:
        if pause_s := self._redials.pause_s(pair[1]):
            await asyncio.sleep(pause_s)
        address = self._locate(pair[1])
        if address is None:
            self._refuse(pair, Cause("nobody knows where it is"))
            return
        self._n_attempts += 1
        link = dial.link = Link(pair, self._n_attempts)
        try:
            await self._reach(link, address)
        except OSError as error:
            if link.is_connected:
                link.connection.abort(words_of(error))
            else:
                self._refuse(pair, Cause(words_of(error)))

    async def _reach(self, link: Link, address: Address) -> None:
        self._redials.n_dials += 1
        if isinstance(address, str):
            await self._loop.create_unix_connection(lambda: self._connection(link), address)
        else:
            await self._loop.create_connection(lambda: self._connection(link), *address)

    def _refuse(self, pair: Pair, cause: Cause) -> None:
        if self._give_up(pair):
            self._redials.fail(pair[1], cause, self._loop.time())
            # Of the others the core that asked makes what it likes; this one somebody must mend.
            level = logging.WARNING if cause.is_permanent else logging.DEBUG
            logger.log(level, "no session of %s with %s: %s", *pair, cause.text)
            self._tell_refused(pair)

    def _tell_refused(self, pair: Pair) -> None:
        endpoint = self._endpoints.get(pair[0])
        if endpoint is not None:
            endpoint.refused(pair[1])

    def _give_up(self, pair: Pair) -> bool:
        """End a dial that has not become a session; says whether there was one."""
        dial = self._dials.pop(pair, None)
        if dial is None:
            return False
        dial.timer.cancel()
        if dial.link is not None and dial.link.is_connected:
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
        if self._credentials is not None:
            tls = self._credentials.tls
            stream = TlsStream(tls.server if link.is_answered else tls.client, is_server=link.is_answered)
            link.ends_s = tls.certificate.expires_s
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

    def connected(self, connection: Connection) -> None:
        if self._links[connection].is_answered:
            self._gate.enter(connection, connection.address)

    def made(self, connection: Connection) -> None:
        link = self._links[connection]
        fault = self._prove(link)
        if link.dialled is not None:
            wanted = link.dialled[1]
            fault = fault or fault_of(wanted, self.cluster, self.cluster, link.certificate)
            if not fault:
                hello = Hello(PROTOCOL, self.cluster, *link.dialled, link.attempt)
                self._say(connection, FrameKind.HELLO, encode_word(hello))
        elif link.question is not None and not fault:
            self._say(connection, FrameKind.WHO, encode_word(Who(PROTOCOL, self.cluster)))
        if fault:
            self._turn_down(link, Refusal(fault, is_permanent=True))

    def _prove(self, link: Link) -> str:
        """Take what the peer has proven; says why that is not enough, if it is not."""
        if self._credentials is None:
            return ""
        ssl_object = link.connection.ssl_object
        certificate = link.certificate = certificate_of(ssl_object)
        if certificate is None:
            return "the peer showed no certificate"
        if ssl_object.selected_alpn_protocol() != PROTOCOL_NAME:
            return "the peer does not speak crescando's protocol"
        if all(identity.cluster != self.cluster for identity in certificate.identities):
            # Whose certificate it ought to be is known later; whose it cannot be, now.
            nobody = ProcessId("any", "process")
            return certificate.fault_of(self.cluster, nobody)
        link.ends_s = min(link.ends_s, certificate.expires_s)
        return self._credentials.denial_of(certificate)

    def framed(self, connection: Connection, kind: FrameKind, body: Body) -> None:
        link = self._links[connection]
        if link.channel is not None and kind is not FrameKind.REFUSE:
            self._on_sign(connection, kind)
            return
        match kind:
            case FrameKind.HELLO if link.is_answered and link.pair is None:
                self._on_hello(link, decode_word(Hello, bytes(body)))
            case FrameKind.WHO if link.is_answered and link.pair is None:
                self._on_who(link, decode_word(Who, bytes(body)))
            case FrameKind.WELCOME if link.dialled is not None:
                self._on_welcome(link, link.dialled, decode_word(Welcome, bytes(body)))
            case FrameKind.REFUSE:
                self._on_refuse(link, decode_word(Refusal, bytes(body)))
            case FrameKind.HERE if link.question is not None:
                self._on_here(link, decode_word(Here, bytes(body)))
            case FrameKind.CONFIRM if link.is_answered and link.pair is not None:
                self._on_confirm(link, link.pair)
            case _:
                raise RemoteProtocolError(f"a {kind.name.lower()} frame may not come now")

    def _on_sign(self, connection: Connection, kind: FrameKind) -> None:
        if kind is FrameKind.PROBE:
            self._say(connection, FrameKind.SIGN)
        elif kind is not FrameKind.SIGN:
            raise RemoteProtocolError(f"a {kind.name.lower()} frame may not come now")

    def broken(self, connection: Connection, why: str) -> None:
        self._turn_down(self._links[connection], Refusal(why, is_permanent=True))

    def ended(self, connection: Connection, cause: Cause) -> None:
        link = self._links.pop(connection)
        link.settle()
        if link.channel is not None:
            channel = link.channel
            logger.info("the session of %s with %s is over: %s", channel.owner, channel.peer, cause.text)
            self._forget(channel)
            if channel.endpoint is not None:
                self._redials.fail(channel.peer, cause._replace(is_permanent=False), self._loop.time())
                channel.endpoint.closed(channel)
            return
        if link.question is not None and not link.question.done():
            kind = RemoteProtocolError if cause.is_permanent else ConnectionError
            link.question.set_exception(kind(cause.text))
        if link.is_answered and cause not in (PEER_CLOSED, CLOSED_IN_HANDSHAKE):
            who = f"{link.pair[1]}" if link.pair is not None else "somebody"
            self.audit.refuse(f"{who} at {connection.address or 'a local socket'}", cause.text)
        if link.pair is not None:
            if self._welcomed.get(link.pair) is link:
                del self._welcomed[link.pair]
            dial = self._dials.get(link.pair)
            if dial is not None and (dial.link is link or dial.link is None):
                self._refuse(link.pair, cause)

    def gone(self, connection: Connection) -> None:
        self._gate.leave(connection)
        self._places.leave(connection)

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
        fault = fault_of(hello.sender, hello.cluster, self.cluster, link.certificate)
        decode: Decode | None = None
        if not fault:
            decode = self._decoder_of(link, hello.sender, hello.receiver)
            if decode is None:
                fault = f"a {hello.sender.role} has nothing to say to a {hello.receiver.role}"
        dial, earlier = self._dials.get(pair), self._welcomed.get(pair)
        if fault:
            self._turn_down(link, Refusal(fault, is_permanent=True))
        elif hello.receiver not in self._endpoints:
            self._turn_down(link, Refusal(f"{hello.receiver} is not here"))
        elif dial is not None and dial.link is not None and pair[0] < pair[1]:
            self._turn_down(link, Refusal("it dials itself", is_crossed=True))
        elif earlier is not None and earlier.attempt > hello.attempt:
            self._turn_down(link, Refusal("a later dial is here already"))
        elif full := self._fullness(link, pair):
            self._turn_down(link, Refusal(full))
        else:
            assert decode is not None
            if earlier is not None:
                earlier.pair = None
                earlier.connection.close("a later dial has come")
            link.pair, link.attempt, link.decode = pair, hello.attempt, decode
            self._welcomed[pair] = link
            welcome = Welcome(PROTOCOL, self.cluster, hello.receiver)
            self._say(link.connection, FrameKind.WELCOME, encode_word(welcome))

    def _fullness(self, link: Link, pair: Pair) -> str:
        """Take a place for a session; says why there is none, if there is none."""
        peer = pair[1]
        holder = link.certificate.identities if link.certificate is not None else (peer.role, peer.node)
        is_client = peer.role == CLIENT
        # Whoever dials anew has lost a session that is still counted here: this one is instead of it.
        if not (pair in self._welcomed or peer in self._channels[pair[0]]):
            full = self._places.fault_of(holder, f"{peer.role}/{peer.node}", is_client=is_client)
            if full:
                return full
        self._places.enter(link.connection, holder, is_client=is_client)
        return ""

    def _decoder_of(self, link: Link, peer: ProcessId, owner: ProcessId) -> Decode | None:
        """Give what decodes a peer's messages, by its role and the right that it has proven."""
        certificate = link.certificate
        denial = "" if certificate is None else certificate.right_fault_of(self.cluster, peer)
        return self._decoder_for(peer, owner, denial)

    def _turn_down(self, link: Link, refusal: Refusal) -> None:
        """Refuse a session, on whichever side it was asked for, and let the peer know why."""
        told = Refusal(refusal.reason[:REASON_CHARACTERS_MAX], refusal.is_permanent, refusal.is_crossed)
        link.connection.send(FrameKind.REFUSE, encode_word(told))
        link.connection.part(refusal.reason, is_permanent=refusal.is_permanent)

    def _on_welcome(self, link: Link, pair: Pair, welcome: Welcome) -> None:
        decode = self._decoder_of(link, pair[1], pair[0])
        if (welcome.cluster, welcome.sender) != (self.cluster, pair[1]):
            self._turn_down(
                link, Refusal(f"{welcome.sender} of {welcome.cluster!r:.100} answers for {pair[1]}", True)
            )
        elif decode is None:
            self._turn_down(link, Refusal(f"a {pair[1].role} has nothing to say to a {pair[0].role}", True))
        else:
            link.decode = decode
            dial = self._dials.pop(pair)
            dial.timer.cancel()
            self._say(link.connection, FrameKind.CONFIRM)
            self._open(link, pair)

    def _on_refuse(self, link: Link, refusal: Refusal) -> None:
        if refusal.is_crossed and link.dialled is not None and link.channel is None:
            # The other side's dial goes on and answers this one; the timer bounds the wait.
            self._dials[link.dialled].link = link.pair = None
        reason = refusal.reason[:REASON_CHARACTERS_MAX]
        shown = reason if reason.isprintable() else ascii(reason)
        link.connection.close(f"the peer refuses: {shown}", is_permanent=refusal.is_permanent)

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
        self._gate.leave(link.connection)
        self._redials.succeed(pair[1], self._loop.time())
        endpoint = self._endpoints[pair[0]]
        channel = link.channel = SocketChannel(
            pair,
            endpoint,
            link.connection,
            encode=self._encoded_once,
            decode=link.decode,
            forget=self._forget,
        )
        limits = self.limits
        is_client = pair[1].role == CLIENT
        taken_max = limits.client_bytes_max if is_client else limits.message_bytes_max
        link.connection.begin_session(taken_max, limits.message_bytes_max, channel.receive)
        self._channels[pair[0]][pair[1]] = channel
        self._tending.start()
        endpoint.opened(channel)

    # Who is there.

    def _on_who(self, link: Link, who: Who) -> None:
        if who.cluster != self.cluster:
            fault = f"you ask for the cluster {who.cluster!r:.100}, and this is {self.cluster!r}"
            self._turn_down(link, Refusal(fault, is_permanent=True))
            return
        here = Here(PROTOCOL, self.cluster, tuple(sorted(self._endpoints)))
        link.connection.send(FrameKind.HERE, encode_word(here))
        link.connection.part(PEER_CLOSED.text)

    def _on_here(self, link: Link, here: Here) -> None:
        faults = [
            fault_of(process, here.cluster, self.cluster, link.certificate) for process in here.processes
        ]
        if any(faults):
            raise RemoteProtocolError(next(filter(None, faults)))
        if link.question is not None and not link.question.done():
            link.question.set_result(here.processes)

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
