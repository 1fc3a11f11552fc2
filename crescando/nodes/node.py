"""A node: one operating-system process that runs one process of a cluster over TLS.

Rules of the file: a node listens before its process begins, and answers for it
from then on (`roles.description`). A first life begins with the cluster; a later
one asks the routers who they are by now, and joins. The first routers begin when
all of them listen, and supers when everybody whom they are to look after has been
there once: who is only about to start must not be taken for dead.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from crescando import wire
from crescando.assembly import Assembly
from crescando.clusterfile import ClusterFile, Seat, read_cluster_file
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.hosting import Processes
from crescando.loop import LoopThread, new_event_loop
from crescando.metering import Meter
from crescando.nodes.asking import Asking
from crescando.nodes.looks import describe_processes
from crescando.nodes.places import AddressBook, places_of
from crescando.process import ProcessCore
from crescando.roles.description import NOBODY_LEADS, ChangeRouters, Described, Describer, node_of
from crescando.scanning import ScanThreads, Team
from crescando.spec import ENGINES
from crescando.transport.causes import words_of
from crescando.transport.credentials import Credentials
from crescando.transport.handshake import Address
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId
from crescando.warming import warm_kernels

logger = logging.getLogger(__name__)

LOOK_S = 0.02
"""How often a node that starts looks how far it is."""

ASK_S = 0.1
"""How often it asks others whether they are there."""

PATIENCE_S = 3.0
"""After so long a wait for others the log names them."""

LISTEN_S = 10.0

FOUNDING_S = 30.0
"""How long the first routers wait for each other; a majority of them begins then."""


class Node:
    """One process of a cluster file, as an operating-system process of its own.

    Parameters
    ----------
    file : ClusterFile
    seat : Seat
        The process.
    credentials : Credentials
        Their certificate must name the process, and ``node/<its name>``.
    incarnation : int
        1 for a process with which the cluster begins; higher than any before for
        one that comes later, or again.
    compiles : bool
        Whether this process may have the kernels compiled, if nobody has.

    Attributes
    ----------
    me : ProcessId
    ended : threading.Event
        Set when the process has stopped by itself; `reason` says why.
    """

    def __init__(
        self,
        file: ClusterFile,
        seat: Seat,
        credentials: Credentials,
        *,
        incarnation: int = 1,
        compiles: bool = True,
    ) -> None:
        if incarnation < 1 or (incarnation == 1 and not seat.is_founding):
            raise SpecError(f"{seat.node} cannot begin with the cluster as life {incarnation}")
        self.file = file
        self.me = ProcessId(seat.role, seat.node, incarnation)
        self.ended = threading.Event()
        self._seat = seat
        self._compiles = compiles
        self._stamp = _stamp_of(file)
        self._book = AddressBook(places_of(file.seats))
        self._assembly = Assembly(file.spec)
        self._scanner: ScanThreads | None = None
        self._team: Team | None = None
        self._loop = LoopThread(f"crescando-{seat.node}", new_event_loop())
        self._transport = self._loop.call(lambda: self._make_transport(credentials))
        describer = Describer(node_of(seat.node), self.describe, self._change_routers)
        self._asking = Asking(describer, self._transport, self._loop)
        self._processes: Processes | None = None
        self._beginning: Future[None] = Future()
        self._begins: asyncio.Task[None] | None = None

    def _make_transport(self, credentials: Credentials) -> SocketTransport:
        return SocketTransport(
            self._loop.loop,
            codec=(wire.encode, wire.decoder_for),
            locate=self._locate,
            cluster=self.file.name,
            limits=self.file.network,
            credentials=credentials,
        )

    # The life of a node.

    def start(self) -> None:
        """Listen, and begin; `wait_ready` tells when the process takes part.

        Raises
        ------
        SpecError
            If somebody else listens there.
        """
        listening = self._run(self._listen())
        try:
            listening.result(LISTEN_S)
        except OSError as error:
            raise SpecError(
                f"{self._seat.node} cannot listen at {self._seat.address}: {words_of(error)}"
            ) from error
        except TimeoutError:
            raise DeadlineError(f"{self._seat.node} does not listen after {LISTEN_S} s") from None
        self._beginning = self._run(self._begin())

    async def _listen(self) -> None:
        await self._transport.listen((self.file.listen or self._seat.host, self._seat.port))
        self._asking.start()

    async def _begin(self) -> None:
        """Start the process when it may."""
        self._begins = asyncio.current_task()
        is_first = self.me.incarnation == 1
        routers = self._assembly.names.routers if is_first else await self._present_routers()
        if is_first and self.me.role == "router":
            await self._routers_are_there()
        elif is_first and self.me.role == "super":
            await self._everybody_has_been_there()
        self._host(routers, is_first=is_first)

    def _host(self, routers: tuple[ProcessId, ...], *, is_first: bool) -> None:
        assembly, spec = self._assembly, self.file.spec
        core: ProcessCore
        engine = None
        if self.me.role == "router":
            core = assembly.router(self.me, random.Random(), routers=routers)
        elif self.me.role == "super":
            core = assembly.super_(self.me, routers)
        else:
            if spec.engine == "scan":
                warm_kernels(compiles=self._compiles)
            self._team = Team(spec.scan_threads)
            engine = ENGINES[spec.engine](self._team)
            engine.set_arcs(assembly.config.owned_arcs(self.me))
            core = assembly.storage(self.me, routers)
        self._scanner = ScanThreads(1)
        meter = Meter() if self.file.meter else None
        self._processes = Processes(self._loop, self._transport, self._scanner, meter)
        self._processes.run(core, engine, ended=self.ended.set)

    def wait_ready(self, timeout_s: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the process takes part in the cluster; True if it does, False if `is_over` says so.

        Raises
        ------
        CrescandoError
            If it stopped, or could not begin.
        DeadlineError
            If it takes longer.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and not self.ended.is_set():
            if is_over():
                return False
            if self._beginning.done():
                self._beginning.result()
                hosts = self._loop.call(self.describe).hosts
                if all(host.is_ready or host.is_standby for host in hosts):
                    return True
            time.sleep(LOOK_S)
        if self.ended.is_set():
            raise CrescandoError(f"{self.me} has stopped: {self.reason}")
        why = "no majority of routers answers" if self._beginning.done() else "it waits for others"
        raise DeadlineError(f"{self.me} takes no part after {timeout_s:.0f} s; {why}")

    @property
    def reason(self) -> str:
        """Why the process has stopped; empty while it runs or has not begun."""
        return self._processes[self.me].reason if self._processes is not None else ""

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the process, the port and every thread."""

        async def end() -> None:
            self._beginning.cancel()
            if self._begins is not None:
                # It may wait for others, which have nothing to tell it any more.
                self._begins.cancel()
                await asyncio.wait([self._begins])
            if self._processes is not None:
                self._processes.end(self.me, "the node was stopped")
            self._asking.stop()
            self._transport.close()

        self._run(end()).result(timeout_s)
        if self._scanner is not None:
            self._scanner.close(timeout_s)
        if self._team is not None:
            self._team.close(timeout_s)
        self._loop.stop(timeout_s)

    # What others are asked.

    async def _present_routers(self) -> tuple[ProcessId, ...]:
        """Find a router that runs, and give the members as it knows them."""
        others = [s.process for s in self.file.seats if s.role == "router" and s.node != self.me.node]
        patience = _Patience(f"{self.me} waits for a router of the cluster that it is to join")
        while True:
            for other in others:
                told = await self._asking.ask(node_of(other.node))
                if told is not None and any(host.is_ready for host in told.hosts) and told.routers:
                    return told.routers
            patience.wait("none answers; a process that begins with its cluster is started as its first life")
            await asyncio.sleep(ASK_S)

    async def _routers_are_there(self) -> None:
        """Begin together: who starts last must not have been removed for its silence by then."""
        await self._have_been_there(
            [seat for seat in self.file.seats if seat.is_founding and seat.role == "router"],
            f"{self.me} waits for the routers with which it is to begin",
            limit_s=FOUNDING_S,
        )

    async def _everybody_has_been_there(self) -> None:
        await self._have_been_there(
            [seat for seat in self.file.seats if seat.is_founding and seat.role in ("storage", "super")],
            f"{self.me} waits for those it is to look after",
        )

    async def _have_been_there(self, seats: list[Seat], what: str, limit_s: float = math.inf) -> None:
        """Wait until the nodes of seats have answered once; storage processes, until they have begun."""
        missing = [seat for seat in seats if seat.node != self.me.node]
        patience = _Patience(what)
        end_s = time.monotonic() + limit_s
        while missing:
            answers = await asyncio.gather(*(self._asking.ask(node_of(seat.node)) for seat in missing))
            missing = [
                seat
                for seat, told in zip(missing, answers, strict=True)
                if told is None or (seat.role == "storage" and not told.hosts)
            ]
            if missing and time.monotonic() > end_s:
                names = ", ".join(f"{seat.node} at {seat.address}" for seat in missing)
                logger.warning("%s begins without %s, which may join later", self.me, names)
                return
            if missing:
                patience.wait(", ".join(f"{seat.node} at {seat.address}" for seat in missing))
                await asyncio.sleep(ASK_S)

    def _locate(self, process: ProcessId) -> Address | None:
        found = self._book.locate(process)
        stamp = _stamp_of(self.file)
        if found is None and stamp != self._stamp:
            # Somebody has written a new process into the file.
            self._stamp = stamp
            try:
                self._book.learn(places_of(read_cluster_file(self.file.path).seats))
            except SpecError as error:
                logger.error("the addresses stay as they were: %s", error)
            found = self._book.locate(process)
        return found

    def _run(self, coroutine: Any) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop.loop)

    # What it says of itself; in the loop's thread.

    def _change_routers(self, wish: ChangeRouters) -> str:
        if self._processes is None:
            return NOBODY_LEADS
        return self._processes.change_routers(add=wish.add, remove=wish.remove)

    def describe(self) -> Described:
        """Give what this node says to whoever asks."""
        routers = self._assembly.names.routers if self.me.incarnation == 1 else ()
        request_bytes = self.file.network.request_bytes
        return describe_processes(self._processes, routers, self._book.places(), request_bytes)


class _Patience:
    """Tells the log, once, that a wait is a long one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since_s = time.monotonic()
        self._is_told = False

    def wait(self, for_whom: str) -> None:
        if not self._is_told and time.monotonic() - self._since_s > PATIENCE_S:
            self._is_told = True
            logger.warning("%s: %s", self._what, for_whom)


def _stamp_of(file: ClusterFile) -> float:
    try:
        return file.path.stat().st_mtime
    except OSError:
        return 0.0
