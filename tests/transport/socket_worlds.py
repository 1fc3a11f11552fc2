"""Worlds of real local sockets for the transport tests: both ends in one event loop."""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile

import msgspec
import pytest

from crescando.errors import RemoteProtocolError
from crescando.transport.credentials import Credentials, FileCredentials
from crescando.transport.handshake import Address, SocketLimits
from crescando.transport.sockets import SocketTransport
from tests.transport.witness import A, B, C, World

QUIET_TURNS = 40
"""Turns of the loop without any frame after which nothing is on its way any more."""

_numbers = itertools.count()


def decode(data: bytes | memoryview) -> object:
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(str(error)) from error


class SocketWorld(World):
    """A transport that dials itself.

    Parameters
    ----------
    address : tuple or str
    credentials : Credentials, optional
    limits : SocketLimits, optional
    loop : asyncio.AbstractEventLoop, optional
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials | None = None,
        limits: SocketLimits | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.heard = 0
        self.sockets = SocketTransport(
            self.loop,
            codec=(msgspec.msgpack.encode, lambda sender, receiver, denial: self._decode),
            locate=lambda peer: self.address,
            credentials=credentials,
            limits=limits,
            rng=random.Random(1),
        )
        self.address = self.loop.run_until_complete(self.sockets.listen(address))
        super().__init__(self.sockets, lambda until_s: None, self.loop.time)

    def _decode(self, data: bytes | memoryview) -> object:
        self.heard += 1
        return decode(data)

    def settle(self) -> None:
        """Turn the loop until nothing moves: local sockets carry bytes at once."""
        self.loop.run_until_complete(self._settle())

    async def _settle(self) -> None:
        quiet, before = 0, None
        while quiet < QUIET_TURNS:
            self.sockets.flush()
            await asyncio.sleep(0)
            state = self.heard, len(self.sockets._links), len(self.sockets._dials), self._stages()
            quiet = quiet + 1 if state == before and not self.sockets._dials else 0
            before = state

    def _stages(self) -> int:
        return sum(link.channel is not None for link in self.sockets._links.values())

    def close(self) -> None:
        self.sockets.close()
        self.settle()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def tcp() -> SocketWorld:
    return SocketWorld(("127.0.0.1", 0))


def unix() -> SocketWorld:
    return SocketWorld(f"{tempfile.mkdtemp()}/{next(_numbers)}.sock")


def credentials() -> FileCredentials:
    """Give one certificate for all three processes, which live in one transport."""
    from crescando.certificates import Authority

    authority = Authority.create(tempfile.mkdtemp())
    return FileCredentials(authority.issue(*(f"{process.role}/{process.node}" for process in (A, B, C))))


def tls() -> SocketWorld:
    return SocketWorld(("127.0.0.1", 0), credentials())


def uvloop_tls() -> SocketWorld:
    return SocketWorld(("127.0.0.1", 0), credentials(), loop=pytest.importorskip("uvloop").new_event_loop())
