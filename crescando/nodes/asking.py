"""Asking nodes how they stand, from an event loop or from outside of one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crescando import wire
from crescando.loop import LoopThread, new_event_loop
from crescando.nodes.places import AddressBook, places_of
from crescando.pump import Pump
from crescando.roles.description import (
    Asker,
    ChangeRouters,
    Describe,
    Described,
    Question,
    Reply,
    RoutersChanged,
    node_of,
)
from crescando.transport.credentials import FileCredentials
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId

if TYPE_CHECKING:
    from crescando.clusterfile import ClusterFile

ANSWER_S = 6.0
"""How long a node may take to answer: a little longer than a handshake may."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a node said, and when that was.

    Attributes
    ----------
    described : Described
    asked_s, told_s : float
        Of this host's calendar: it was said in between.
    """

    described: Described
    asked_s: float
    told_s: float


class Asking:
    """A process that asks nodes, in a running loop.

    Parameters
    ----------
    asker : Asker
    transport : SocketTransport
    loop : LoopThread
    """

    def __init__(self, asker: Asker, transport: SocketTransport, loop: LoopThread) -> None:
        self._asker = asker
        self._loop = loop
        self._pump = Pump(asker, transport, loop.agenda)

    def start(self) -> None:
        """Begin; in the loop's thread."""
        self._pump.start()

    def stop(self) -> None:
        """End; in the loop's thread."""
        self._pump.stop()

    async def ask(self, node: ProcessId, timeout_s: float = ANSWER_S) -> Described | None:
        """Ask a node how it stands; None if it does not answer."""
        told = await self._ask(node, Describe(), timeout_s)
        return told if isinstance(told, Described) else None

    async def change_routers(
        self, node: ProcessId, wish: ChangeRouters, timeout_s: float = ANSWER_S
    ) -> str | None:
        """Ask a node to propose a change of the routers; gives why it cannot be, None without an answer."""
        told = await self._ask(node, wish, timeout_s)
        return told.fault if isinstance(told, RoutersChanged) else None

    async def _ask(self, node: ProcessId, question: Question, timeout_s: float) -> Reply | None:
        told: asyncio.Future[Reply | None] = self._loop.loop.create_future()

        def tell(reply: Reply | None) -> None:
            if not told.done():
                told.set_result(reply)

        self._asker.ask(node, tell, question)
        self._pump.need_turn()
        try:
            async with asyncio.timeout(timeout_s):
                return await told
        except TimeoutError:
            return None


def describe_all(
    file: ClusterFile, credentials: FileCredentials, nodes: Iterable[str]
) -> Mapping[str, Heard | str]:
    """Ask nodes of a cluster file, all at once.

    Parameters
    ----------
    file : ClusterFile
    credentials : FileCredentials
        Of a client.
    nodes : iterable of str
        Their processes' names.

    Returns
    -------
    mapping of str to Heard or str
        What each said of itself, or why it said nothing.
    """
    loop = LoopThread("crescando-asking", new_event_loop())
    client = min(credentials.certificate.identities, key=lambda each: each.role != "client")
    me = ProcessId(client.role, client.node, 1 + random.SystemRandom().getrandbits(52))
    book = AddressBook(places_of(file.seats))

    async def ask_all() -> dict[str, Heard | str]:
        transport = SocketTransport(
            loop.loop,
            codec=(wire.encode, wire.decoder_for),
            locate=book.locate,
            cluster=file.name,
            credentials=credentials,
        )
        asking = Asking(Asker(me), transport, loop)
        asking.start()
        wanted = list(nodes)

        async def hear(node: str) -> Heard | None:
            asked_s = time.time()
            told = await asking.ask(node_of(node))
            return None if told is None else Heard(told, asked_s, time.time())

        answers = await asyncio.gather(*map(hear, wanted))
        found: dict[str, Heard | str] = {}
        for node, answer in zip(wanted, answers, strict=True):
            fault = transport.error_of(node_of(node))
            found[node] = answer or (fault.reason if fault is not None else "it does not answer")
        asking.stop()
        transport.close()
        return found

    try:
        return asyncio.run_coroutine_threadsafe(ask_all(), loop.loop).result()
    finally:
        loop.stop(1.0)
