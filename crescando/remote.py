"""A store behind a network: `connect` finds a cluster from the address of any of its processes.

The client processes of such a store run here, in one background thread, and
reach the cluster's over mutual TLS. Everything but the transport is what an
embedded store has too.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from crescando import wire
from crescando.administration.replicas import READ_REPLICA_S, live_replicas, read_replica
from crescando.administration.status import ProcessStatus
from crescando.administration.verbs import Administration
from crescando.backend import LoopBackend
from crescando.client.answer import Answer
from crescando.client.base import REQUEST_BYTES_MAX
from crescando.client.store import Store
from crescando.client.waiting import TIMEOUT_S_DEFAULT, checked_timeout
from crescando.closing import close_at_exit
from crescando.errors import CredentialsError, CrescandoError, DeadlineError, SessionRefusedError, SpecError
from crescando.loop import LoopThread, new_event_loop
from crescando.nodes.asking import ANSWER_S, Asking
from crescando.nodes.files import client_credentials
from crescando.nodes.places import AddressBook
from crescando.roles.client import Client
from crescando.roles.description import (
    NOBODY_LEADS,
    NODE,
    Asker,
    ChangeRouters,
    Described,
    Place,
    may_pass,
    node_of,
)
from crescando.roles.limits import ClientLimits
from crescando.routing.ecast.application import Application
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import Join, encode_message
from crescando.transport.addresses import parse_address
from crescando.transport.credentials import FileCredentials
from crescando.transport.handshake import Address
from crescando.transport.identity import SCHEME
from crescando.transport.sockets import SocketTransport
from crescando.types import KeyRange, ProcessId

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.2
"""Pause before the addresses are tried again, while none answers."""

REFRESH_S = 1.0
"""How often the cluster may be asked where a process is that nobody knows."""

ROUTERS_S = 20.0
"""How long a change of the routers may take."""

STATUS_S = 2.0
"""How long a status waits for a node that hangs: nobody waits for long for one at a glance."""

SILENT_S = 0.5
"""How long a node is waited for that did not answer the last time."""

CONNECT_S = 10.0
"""How long a cluster is looked for, if nobody says otherwise."""


class RemoteCluster(Administration):
    """A cluster behind a network; reached as ``store.cluster``.

    Made by `connect`.

    Parameters
    ----------
    entries : sequence of (host, port)
        Some of its processes.
    credentials : FileCredentials
        Of a client.
    connect_s : float
        How long to look for the cluster.
    timeout_s : float
        How long questions wait if they do not say.

    Raises
    ------
    CrescandoError
        If the cluster cannot be found, or does not believe this client.
    """

    def __init__(
        self,
        entries: Iterable[tuple[str, int]],
        credentials: FileCredentials,
        *,
        connect_s: float = CONNECT_S,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> None:
        super().__init__(self.connect, timeout_s=timeout_s)
        self.on_shutdown: Callable[[], object] | None = None
        self._entries = tuple(entries)
        self._backends: dict[ProcessId, LoopBackend] = {}
        self._nodes: list[ProcessId] = []
        self._book = AddressBook()
        self._refreshed_s = 0.0
        self._described: Described
        self._hosted: list[ProcessStatus] = []
        self._silent: set[str] = set()
        self._refreshing: asyncio.Task[bool] | None = None
        clients = [each for each in credentials.certificate.identities if each.role == "client"]
        if len(clients) != 1:
            raise CredentialsError(
                str(credentials.path), "it must be the file of one client: role client/NAME"
            )
        self.name, _, self._node = clients[0]
        self._credentials = credentials
        self._loop = LoopThread("crescando-client", new_event_loop())
        self._transport = self._loop.call(lambda: self._make_transport(credentials))
        self._asking = Asking(Asker(self._next_process()), self._transport, self._loop)
        self._loop.call(self._asking.start)
        try:
            self._described = self._run(self._find(connect_s)).result()
            self.default = self.connect("default")
        except BaseException:
            self.shutdown(1.0)
            raise

    def _make_transport(self, credentials: FileCredentials) -> SocketTransport:
        return SocketTransport(
            self._loop.loop,
            codec=(wire.encode, wire.decoder_for),
            locate=self._locate,
            cluster=self.name,
            credentials=credentials,
        )

    def _next_process(self) -> ProcessId:
        # Many programs may use one certificate; nobody counts their processes.
        return ProcessId("client", self._node, 1 + secrets.randbits(52))

    def _run(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop.loop)

    # Finding the cluster; in the loop's thread.

    async def _find(self, timeout_s: float) -> Described:
        """Ask the entries who is there, and those for everybody else."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            faults, refusals = [], []
            for address in self._entries:
                try:
                    return await self._enter(address)
                except SessionRefusedError as error:
                    refusals.append(error)
                    faults.append(f"{address[0]}:{address[1]}: {error.reason}")
            # One address may be somebody else's by now; if none is of any use, waiting helps nobody.
            if all(error.is_permanent for error in refusals):
                raise refusals[0]
            if time.monotonic() > deadline_s:
                raise DeadlineError(
                    f"no router of the cluster {self.name!r} was found within {timeout_s:.0f} s "
                    f"({'; '.join(faults)})"
                )
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _enter(self, address: tuple[str, int]) -> Described:
        there = await self._transport.ask(address)
        nodes = [process for process in there if process.role == NODE]
        if not nodes:
            raise SessionRefusedError(f"{address[0]}:{address[1]}", "no node answers there", True)
        self._book.learn(Place(NODE, node.node, *address) for node in nodes)
        self._nodes = nodes
        if not await self._refresh():
            fault = self._transport.error_of(nodes[0])
            why = fault.reason if fault is not None else "it knows no router that takes part"
            raise SessionRefusedError(str(nodes[0]), why, fault is not None and fault.is_permanent)
        return self._described

    async def _refresh(self) -> bool:
        """Learn from any node who the routers are and where everybody is; says whether it did."""
        waiting = [*self._nodes, *self._router_nodes(self._book.places())]
        asked = set(waiting)
        while waiting:
            described = await self._asking.ask(waiting.pop(0))
            if described is None:
                continue
            self._book.learn(described.places)
            if described.config and any(host.is_ready for host in described.hosts):
                self._described = described
                return True
            waiting += [node for node in self._router_nodes(described.places) if node not in asked]
            asked.update(waiting)
        return False

    def _router_nodes(self, places: Iterable[Place]) -> list[ProcessId]:
        nodes = [node_of(place.node) for place in places if place.role == "router"]
        # In a server's one process there is one node for all of them, which has been asked.
        return [node for node in nodes if node not in self._nodes and self._book.locate(node) is not None]

    def _locate(self, process: ProcessId) -> Address | None:
        found = self._book.locate(process)
        now_s = time.monotonic()
        if found is None and now_s - self._refreshed_s > REFRESH_S:
            self._refreshed_s = now_s
            self._refreshing = self._loop.loop.create_task(self._refresh())
        return found

    # Sessions.

    def connect(self, name: str) -> LoopBackend:
        """Start a client process of its own; `name` is for its user."""
        me = self._next_process()
        if self._backends:
            # Much may have changed since the first one was started.
            with suppress(TimeoutError):
                self._run(self._refresh()).result(REFRESH_S)
        described = self._described
        config = Rubberband.decode(described.config)
        core = Client(
            me,
            multicast=Application(me, described.routers),
            storages=tuple(sorted(config.storages)),
            join=encode_message(Join(me)),
            config_type=Rubberband,
            supers=tuple(sorted(config.supers)),
            limits=ClientLimits(request_bytes=described.request_bytes or REQUEST_BYTES_MAX),
        )
        backend = LoopBackend(core, self._loop, self._transport, partial(self._session_ended, me))
        self._backends[me] = backend
        return backend

    def _session_ended(self, client: ProcessId) -> None:
        self._backends.pop(client, None)

    # Administration.

    @property
    def _denial(self) -> str:
        return self._credentials.certificate.right_fault_of(self.name, ProcessId("client", self._node))

    def described(
        self, timeout_s: float = CONNECT_S, *, patience_s: float = ANSWER_S
    ) -> dict[str, Described | None]:
        """Ask every node that is known how it stands, all at once; None of those that cannot be asked.

        Parameters
        ----------
        timeout_s : float
            How long all of it may take.
        patience_s : float
            How long each node may take to answer; one that was silent the last time gets less.
        """
        nodes = sorted({place.node for place in self._book.places() if place.role == NODE})

        async def ask(node: str) -> Described | None:
            limit_s = min(patience_s, SILENT_S) if node in self._silent else patience_s
            return await self._asking.ask(ProcessId(NODE, node), limit_s)

        async def ask_all() -> list[Described | None]:
            return await asyncio.gather(*map(ask, nodes))

        try:
            told = dict(zip(nodes, self._run(ask_all()).result(timeout_s), strict=True))
            self._silent = {node for node, each in told.items() if each is None}
            return told
        except TimeoutError:
            raise DeadlineError(f"not every node has answered within {timeout_s:.0f} s") from None

    def address_of(self, node: str) -> str:
        """Give where a node listens; empty if nobody knows."""
        address = self._book.locate(ProcessId(NODE, node))
        return "" if address is None else f"{address[0]}:{address[1]}"

    def _look_around(self) -> None:
        self._hosted = [
            ProcessStatus(host.process, host.is_running, host.reason)
            for told in self.described(patience_s=STATUS_S).values()
            for host in (told.hosts if told is not None else ())
        ]

    def _known_routers(self) -> tuple[ProcessStatus, ...]:
        return tuple(status for status in self._hosted if status.process.role == "router")

    def _known(self) -> tuple[ProcessStatus, ...]:
        return tuple(status for status in self._hosted if status.process.role != "router")

    def members(self) -> tuple[ProcessId, ...]:
        """Give the members of the ordering group, as the router that leads knows them.

        Raises
        ------
        CrescandoError
            If none leads.
        """
        for told in self.described().values():
            if told is not None and any(host.lead == host.process for host in told.hosts):
                return told.routers
        raise CrescandoError(NOBODY_LEADS)

    def add_router(self, node: str, *, timeout_s: float = ROUTERS_S) -> ProcessId:
        """Let the ordering group grow by a router that runs and stands by; returns when it is a member.

        Raises
        ------
        SpecError
            If no such router runs.
        CrescandoError
            If the routers refuse.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        return self._change_routers(_name_of(node), timeout_s, is_added=True)

    def remove_router(self, node: str, *, timeout_s: float = ROUTERS_S) -> ProcessId:
        """Let the ordering group shrink by a router, alive or dead; returns when it is no member any more.

        Raises
        ------
        SpecError
            If there is no such member.
        CrescandoError
            If the routers refuse: it is the last one, or too few would be left alive.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        return self._change_routers(_name_of(node), timeout_s, is_added=False)

    def _change_routers(self, node: str, timeout_s: float, *, is_added: bool) -> ProcessId:
        deadline_s = time.monotonic() + timeout_s
        target: ProcessId | None = None
        fault = NOBODY_LEADS
        while True:
            told = {name: each for name, each in self.described().items() if each is not None}
            hosts = {
                host.process: (host, name)
                for name, each in told.items()
                for host in each.hosts
                if host.process.role == "router"
            }
            leads = [(host.position, name) for host, name in hosts.values() if host.lead == host.process]
            if leads:
                _, name = max(leads)
                members = told[name].routers
                if target is None:
                    running = [process for process, (host, _) in hosts.items() if host.is_running]
                    target = _chosen(node, running if is_added else list(members), is_added=is_added)
                if (target in members) == is_added:
                    return target
                wish = ChangeRouters(add=target) if is_added else ChangeRouters(remove=target)
                asked = self._asking.change_routers(node_of(name), wish)
                fault = self._run(asked).result() or ""
                if fault and not may_pass(fault, wish.add):
                    raise CrescandoError(f"the routers do not change: {fault}")
            if time.monotonic() > deadline_s:
                why = f": {fault}" if fault else ""
                raise DeadlineError(f"the routers have not changed within {timeout_s:.1f} s{why}")
            time.sleep(LOOK_AGAIN_S)

    def config(self, timeout_s: float = CONNECT_S) -> Rubberband:
        """Give the present routing configuration."""
        _, config = self._questions.layout(timeout_s)
        return config

    def replicas(self, table: str) -> tuple[tuple[ProcessId, KeyRange], ...]:
        """Give every live replica of every ring range of a table, in ring order."""
        return live_replicas(self.config(), table)

    def read_replica(
        self,
        process: ProcessId,
        key_range: KeyRange,
        table: str,
        *,
        timeout_s: float = READ_REPLICA_S,
    ) -> Answer:
        """Give one replica's rows of a ring range; as in an embedded cluster."""
        return read_replica(self.default, process, key_range, table, timeout_s)

    def statistics(self) -> dict[str, dict[str, int]]:
        """Give counters per process that runs, and per client process of this store."""
        found = {
            str(host.process): host.counters
            for told in self.described().values()
            for host in (told.hosts if told is not None else ())
            if host.is_running
        }
        for me, backend in list(self._backends.items()):
            found[str(me)] = {"in_flight": backend.core.n_in_flight, "resubmitted": backend.core.resubmitted}
        return found

    # The end.

    def shutdown(self, timeout_s: float) -> None:
        """End every session and the thread; the cluster goes on."""
        if self.on_shutdown is not None:
            self.on_shutdown()
        deadline_s = time.monotonic() + timeout_s
        self.leave(timeout_s)
        for backend in list(self._backends.values()):
            backend.abandon("the store was closed before the operation had an outcome")

        def stop() -> None:
            if self._refreshing is not None:
                self._refreshing.cancel()
            self._asking.stop()
            self._transport.close()

        try:
            self._loop.call(stop, max(0.1, deadline_s - time.monotonic()))
        except CrescandoError as error:
            logger.warning("the store's loop does not answer: %s", error)
        self._loop.stop(max(0.1, deadline_s - time.monotonic()))

    def __repr__(self) -> str:
        return f"<cluster {self.name!r}, {len(self._described.routers)} routers>"


def _name_of(node: str) -> str:
    """Give the name of a router, be it written as ``r4`` or ``router/r4``."""
    return node.removeprefix("router/")


def _chosen(node: str, known: list[ProcessId], *, is_added: bool) -> ProcessId:
    """Give the newest life of a router."""
    found = [process for process in known if process.node == node]
    if not found:
        names = ", ".join(sorted({process.node for process in known}))
        what = "no router of that name runs" if is_added else "no member has that name"
        raise SpecError(f"{node!r}: {what}; there are {names}")
    return max(found)


def connect(
    url: str,
    *,
    tls: Path | str,
    client: str = "app",
    connect_s: float = CONNECT_S,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Store[RemoteCluster]:
    """Open the store of a cluster that runs elsewhere.

    Parameters
    ----------
    url : str
        ``crescando://host:port,host:port``: some of the cluster's processes, best of all
        its routers. One that answers is enough; it tells the others.
    tls : path
        The client's file, as ``crescando certs issue client/NAME`` writes it; or the
        folder in which it is. To change the cluster itself it must give the right to (``issue --admin``).
    client : str
        The client's name, if `tls` is a folder.
    connect_s : float
        How long the cluster is looked for.
    timeout_s : float
        How long the store's calls wait if they do not say.

    Returns
    -------
    Store
        As `crescando.open` gives it; closing it leaves the cluster as it is.

    Raises
    ------
    SpecError
        If the address is none.
    CredentialsError
        If the certificate cannot be used.
    SessionRefusedError
        If the cluster does not believe this client, or is another one.
    DeadlineError
        If no router was found in time.
    """
    entries = parse_url(url)
    cluster = RemoteCluster(
        entries,
        client_credentials(tls, client),
        connect_s=checked_timeout(connect_s, CONNECT_S),
        timeout_s=checked_timeout(timeout_s, TIMEOUT_S_DEFAULT),
    )
    store = Store(
        cluster.default,
        connect=cluster.connect,
        cluster=cluster,
        shutdown=cluster.shutdown,
        description=f"a client of the cluster {cluster.name!r}",
        timeout_s=timeout_s,
    )
    close_at_exit(store)
    return store


async def connect_async(
    url: str,
    *,
    tls: Path | str,
    client: str = "app",
    connect_s: float = CONNECT_S,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Store[RemoteCluster]:
    """Open the store of a cluster that runs elsewhere, without blocking the event loop; see `connect`."""
    opening = partial(connect, url, tls=tls, client=client, connect_s=connect_s, timeout_s=timeout_s)
    return await asyncio.to_thread(opening)


def parse_url(url: str) -> tuple[tuple[str, int], ...]:
    """Give the addresses of a URL.

    Raises
    ------
    SpecError
        If it is none.
    """
    if not isinstance(url, str) or not url.startswith(SCHEME):
        raise SpecError(f"the address of a cluster is {SCHEME}host:port,host:port, not {url!r}")
    return tuple(
        parse_address(part.strip(), "each address")
        for part in url.removeprefix(SCHEME).rstrip("/").split(",")
    )
