"""The composition root: `open` makes an embedded cluster, and `Cluster` looks after it.

Every process of the cluster lives in this process: the protocol cores share
one event loop in one background thread, and the storage processes take turns at
scanning in another. The same cores run in the simulator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from crescando.administration.replicas import READ_REPLICA_S, live_replicas, read_replica
from crescando.administration.status import ClusterStatus, ProcessStatus
from crescando.administration.verbs import Administration
from crescando.assembly import Assembly
from crescando.backend import LoopBackend
from crescando.client.answer import Answer
from crescando.client.store import Store
from crescando.client.waiting import TIMEOUT_S_DEFAULT
from crescando.closing import close_at_exit
from crescando.errors import CrescandoError, SpecError
from crescando.hosting import Processes
from crescando.loop import LoopThread
from crescando.nodes.serving import Server
from crescando.router_group import RouterGroup
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.config import Rubberband
from crescando.scanning import ScanThreads, Team
from crescando.spec import ENGINES, ClusterSpec
from crescando.standbys import Standbys
from crescando.transport.inprocess import InProcessHub
from crescando.transport.joint import JointTransport
from crescando.types import KeyRange, ProcessId
from crescando.warming import warm_kernels

logger = logging.getLogger(__name__)


class Cluster(Administration):
    """The processes of an embedded store.

    Made by `open`; reached as ``store.cluster``.

    Parameters
    ----------
    spec : ClusterSpec
    seed : int or None
        Of election jitter; chance does not otherwise enter. None: not fixed.
    """

    def __init__(
        self, spec: ClusterSpec, *, seed: int | None = None, timeout_s: float = TIMEOUT_S_DEFAULT
    ) -> None:
        super().__init__(self.connect, timeout_s=timeout_s)
        self.spec = spec
        self._assembly = Assembly(spec)
        self._loop = LoopThread("crescando")
        self._transport = JointTransport(InProcessHub(self._loop.agenda))
        self._server: Server | None = None
        self._scanner = ScanThreads(1)
        self._team = Team(spec.scan_threads)
        self._processes = Processes(self._loop, self._transport, self._scanner)
        self._routers = RouterGroup(self._processes, self._assembly, self._loop, seed)
        make_engine = partial(ENGINES[spec.engine], self._team)
        self._standbys = Standbys(self._processes, self._assembly, self._loop, self._routers, make_engine)
        self._backends: dict[ProcessId, LoopBackend] = {}
        self._n_clients = 0
        self._looked: dict[str, tuple[ProcessStatus, ...]] = {}
        self._looked_lead: ProcessId | None = None
        self.on_shutdown: Callable[[], object] | None = None
        self._loop.call(self._start)
        self.default = self.connect("default")

    def _start(self) -> None:
        names = self._assembly.names
        if self.spec.engine == "scan":
            warm_kernels()
        for me in (*names.routers, *names.standby_routers):
            self._routers.start(me)
        for me in (*names.storages, *names.supers):
            self._standbys.start(me)

    # Sessions.

    def connect(self, name: str) -> LoopBackend:
        """Start a client process of its own."""

        def make() -> ProcessId:
            self._n_clients += 1
            return ProcessId("client", name, self._n_clients)

        core = self._assembly.client(self._loop.call(make), self.routers())
        backend = LoopBackend(core, self._loop, self._transport, partial(self._session_ended, core.me))
        self._backends[core.me] = backend
        return backend

    def _session_ended(self, client: ProcessId) -> None:
        self._backends.pop(client, None)

    def serve(self, address: str, tls: Path | str) -> str:
        """Let clients outside use the store; see `Store.serve`."""
        if self._server is not None:
            raise SpecError("the store serves already; it has one address")
        server = Server(self._loop, self._transport, self._processes, self._routers.present, tls)
        url = server.start(address)
        self._server = server
        return url

    # Administration.

    def _status(self) -> ClusterStatus:
        told = super()._status()
        # Who leads is known here, whoever the administrator's client believes to.
        return replace(told, lead_router=self._looked_lead)

    def _look_around(self) -> None:
        """Look at everything at once: under load each look waits until the loop comes to it."""

        def look() -> None:
            leader = self._processes.leader()
            self._looked_lead = None if leader is None else leader.me
            self._looked = {role: self._hosted(role) for role in ("router", "storage", "super")}

        self._loop.call(look)

    def _known_routers(self) -> tuple[ProcessStatus, ...]:
        return self._looked["router"]

    def _known(self) -> tuple[ProcessStatus, ...]:
        return *self._looked["storage"], *self._looked["super"]

    def _hosted(self, role: str) -> tuple[ProcessStatus, ...]:
        known = ((process, self._processes[process]) for process in self._processes.of_role(role))
        return tuple(ProcessStatus(process, state.is_running, state.reason) for process, state in known)

    def kill(self, process: ProcessId | str) -> None:
        """Let a process fail silently, with everything in its memory.

        Parameters
        ----------
        process : ProcessId or str
            The identity, or ``"storage/s2"``.

        Raises
        ------
        SpecError
            If there is no such process.
        """
        target = self._processes.identify(process)

        self._loop.call(lambda: self._processes.end(target, "killed"))

    # Processes that come and go.

    def start_storage(self, node: str | None = None, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a storage process, which stands by; returns when it is a member.

        Parameters
        ----------
        node : str, optional
            A new one, or one whose process has ended; the next free name by default.

        Raises
        ------
        SpecError
            If a process of that name runs.
        DeadlineError
            If it takes longer than `timeout_s`; it may join yet.
        """
        return self._standbys.add("storage", node, timeout_s=timeout_s)

    def start_super(self, node: str | None = None, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a super process; as `start_storage`."""
        return self._standbys.add("super", node, timeout_s=timeout_s)

    def routers(self) -> tuple[ProcessId, ...]:
        """Give the members of the ordering group, as the newest change makes them."""
        return self._loop.call(self._routers.present)

    def add_router(self, *, timeout_s: float = 10.0) -> ProcessId:
        """Let the ordering group grow by a new router; see `RouterGroup.add`."""
        return self._routers.add(timeout_s=timeout_s)

    def remove_router(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> None:
        """Let the ordering group shrink by a router, alive or dead; see `RouterGroup.remove`."""
        self._routers.remove(process, timeout_s=timeout_s)

    def restart_router(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a router's node again, as a new incarnation; see `RouterGroup.restart`."""
        return self._routers.restart(process, timeout_s=timeout_s)

    def config(self) -> Rubberband:
        """Give the newest routing configuration that a running router has learned."""

        def newest() -> Rubberband:
            routers = [
                process.core
                for process in self._processes.values()
                if process.is_running and isinstance(process.core, Router)
            ]
            if not routers:
                raise CrescandoError("no router is running")
            leader = self._processes.leader()
            best = leader or max(routers, key=lambda router: router.mseq.position)
            config: Rubberband = best.mseq.config
            return config

        return self._loop.call(newest)

    def replicas(self, table: str) -> tuple[tuple[ProcessId, KeyRange], ...]:
        """Give every live replica of every ring range of a table.

        Returns
        -------
        tuple of (ProcessId, KeyRange)
            In ring order; each range once per live owner.
        """
        return live_replicas(self.config(), table)

    def read_replica(
        self,
        process: ProcessId,
        key_range: KeyRange,
        table: str,
        *,
        timeout_s: float = READ_REPLICA_S,
    ) -> Answer:
        """Give one replica's rows of a ring range, behind what it executes in its present cycle.

        Raises
        ------
        CrescandoError
            If the process cannot be reached, or goes away meanwhile.
        """
        target = self._processes.identify(process)
        return read_replica(self.default, target, key_range, table, timeout_s)

    def statistics(self) -> dict[str, dict[str, int]]:
        """Give counters per process that is running."""
        return self._loop.call(self._statistics)

    def _statistics(self) -> dict[str, dict[str, int]]:
        found = {str(me): counted for me, counted in self._processes.counters().items()}
        for backend in list(self._backends.values()):
            found[str(backend.core.me)] = {
                "in_flight": backend.core.n_in_flight,
                "resubmitted": backend.core.resubmitted,
            }
        return found

    # The end.

    def shutdown(self, timeout_s: float) -> None:
        """Stop every process and every thread."""
        if self.on_shutdown is not None:
            self.on_shutdown()
        deadline_s = time.monotonic() + timeout_s
        self.leave(timeout_s)
        for backend in list(self._backends.values()):
            backend.abandon("the store was closed before the operation had an outcome")

        def stop() -> None:
            if self._server is not None:
                self._server.stop()
            for process in self._processes.values():
                if process.pump is not None:
                    process.pump.stop()
                    process.forget("the store was closed")

        try:
            self._loop.call(stop, max(0.1, deadline_s - time.monotonic()))
        except CrescandoError as error:
            logger.warning("the store's loop does not answer: %s", error)
        self._scanner.close(max(0.1, deadline_s - time.monotonic()))
        self._team.close(max(0.1, deadline_s - time.monotonic()))
        self._loop.stop(max(0.1, deadline_s - time.monotonic()))

    def __repr__(self) -> str:
        return f"<cluster: {describe(self.spec)}>"


def describe(spec: ClusterSpec) -> str:
    """Say what a cluster is made of, in one line."""

    counts = (
        (spec.routers, "router", "routers"),
        (spec.storages, "storage process", "storage processes"),
    )
    parts = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts)
    return f"{parts}, replication {spec.replication}; in memory, nothing kept"


def open(  # The verb that users know.
    *,
    routers: int = 1,
    storages: int = 1,
    supers: int = 1,
    replication: int = 1,
    spec: ClusterSpec | None = None,
    seed: int | None = None,
    timeout_s: float = 30.0,
) -> Store[Cluster]:
    """Open an embedded store: a whole cluster in this process.

    Parameters
    ----------
    routers, storages, supers, replication : int
        How many processes of each role, and copies of each row. Replicas of
        one process share its fate: more than one of each is for trying out
        failures, and for tests.
    spec : ClusterSpec, optional
        Everything else that can be set; instead of the numbers above.
    seed : int, optional
        Fixes the election jitter.
    timeout_s : float
        How long the store's calls wait if they do not say.

    Returns
    -------
    Store
        A context manager. Its rows live in memory only. One that is dropped
        without `close` goes on, since its tables may be in use, until the
        interpreter ends.

    Raises
    ------
    SpecError
        If such a cluster cannot be.
    """
    if spec is None:
        spec = ClusterSpec(routers=routers, storages=storages, supers=supers, replication=replication)
    elif (routers, storages, supers, replication) != (1, 1, 1, 1):
        raise SpecError("give either a spec or the numbers of processes, not both")
    cluster = Cluster(spec, seed=seed, timeout_s=timeout_s)
    store = Store(
        cluster.default,
        connect=cluster.connect,
        cluster=cluster,
        shutdown=cluster.shutdown,
        description=describe(spec),
        serve=cluster.serve,
        timeout_s=timeout_s,
    )
    close_at_exit(store)
    return store
