"""The composition root: `open` makes an embedded cluster, and `Cluster` looks after it.

Every process of the cluster lives in this process: the protocol cores share
one event loop in one background thread, and the storage processes take turns at
scanning in another. The same cores run in the simulator.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from crescando.assembly import Assembly
from crescando.backend import LoopBackend
from crescando.client.answer import Answer
from crescando.client.merging import rows_answer
from crescando.client.store import Store
from crescando.consensus.quorum import Membership
from crescando.engine.base import Engine
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.loop import LoopThread
from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.roles.storage import Execution, Storage
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.config import Rubberband
from crescando.scanning import ScanThreads
from crescando.spec import ENGINES, ClusterSpec
from crescando.transport.inprocess import InProcessHub
from crescando.types import KeyRange, ProcessId

logger = logging.getLogger(__name__)

ROUTERS_POLL_S = 0.01
"""Spacing of looks at the routers while they change."""

PASSING_FAULTS = frozenset({"no router leads", "another change is in flight", "the window is full"})
"""Reasons not to change the routers that pass by themselves."""

READ_REPLICA_S = 60.0
"""How long a replica may take to show all rows of a range."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of a cluster.

    Attributes
    ----------
    process : ProcessId
    is_alive : bool
    reason : str
        Why it is not, if it is not.
    """

    process: ProcessId
    is_alive: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at a glance.

    Attributes
    ----------
    lead_router : ProcessId or None
        The router that leads now, if one does.
    position : int
        Of the last message that router has learned.
    routers, storages, supers : tuple of ProcessStatus
    """

    lead_router: ProcessId | None
    position: int
    routers: tuple[ProcessStatus, ...]
    storages: tuple[ProcessStatus, ...]
    supers: tuple[ProcessStatus, ...]


@dataclass(slots=True)
class _Process:
    """A running process: its pump, and what it scans with."""

    core: ProcessCore | None
    pump: Pump | None
    engine: Engine | None = None
    reason: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it takes turns."""
        return self.pump is not None and self.pump.is_running

    def forget(self, reason: str) -> None:
        """Keep nothing of a process that has ended but why it did: what it held may be large."""
        self.core = self.pump = self.engine = None
        self.reason = reason


class Cluster:
    """The processes of an embedded store.

    Made by `open`; reached as ``store.cluster``.

    Parameters
    ----------
    spec : ClusterSpec
    seed : int or None
        Of election jitter; chance does not otherwise enter. None: not fixed.
    """

    def __init__(self, spec: ClusterSpec, *, seed: int | None = None) -> None:
        self.spec = spec
        self._assembly = Assembly(spec)
        self._loop = LoopThread("crescando")
        self._hub = InProcessHub(self._loop)
        self._scanner = ScanThreads(spec.scan_threads)
        self._processes: dict[ProcessId, _Process] = {}
        self._backends: dict[ProcessId, LoopBackend] = {}
        self._n_clients = 0
        self.on_shutdown: Callable[[], object] | None = None
        self._seed = seed
        self._dismissed: set[ProcessId] = set()
        self._loop.call(self._start)
        self.default = self.connect("default")

    def _start(self) -> None:
        names, assembly = self._assembly.names, self._assembly
        for me in (*names.routers, *names.standby_routers):
            self._run_router(me)
        for me in names.storages:
            engine = ENGINES[self.spec.engine]()
            engine.set_arcs(assembly.config.owned_arcs(me))
            self._run(assembly.storage(me), engine)
        for me in names.supers:
            self._run(assembly.super_(me))

    def _run_router(self, me: ProcessId) -> None:
        chance = random.Random(None if self._seed is None else f"{self._seed}/{me}")
        self._run(self._assembly.router(me, chance, routers=self._routers()))

    def _run(self, core: ProcessCore, engine: Engine | None = None) -> None:
        def execute(work: Execution) -> None:
            if process.engine is not None:
                self._scanner.submit(partial(work.run, process.engine), partial(self._executed, pump))

        def stopped(reason: str) -> None:
            process.forget(reason)
            if isinstance(core, Router) and core.broadcast.is_dismissed and core.me not in self._dismissed:
                # It was taken for dead. What it knew is of no use; its node may serve again.
                self._run_router(self._next_incarnation(core.me))

        pump = Pump(core, self._hub, self._loop, execute=execute, stopped=stopped)
        process = self._processes[core.me] = _Process(core, pump, engine)
        pump.start()

    def _executed(self, pump: Pump, result: Any, error: Exception | None) -> None:
        """Bring a cycle's end from the scanning thread into the loop."""

        def take() -> None:
            if error is None:
                pump.executed(result)
            else:
                # Whatever is not a function of operation and row must not be answered.
                pump.fail(error)

        with suppress(CrescandoError):
            # A loop that has ended needs no results.
            self._loop.hand_over(take)

    # Sessions.

    def connect(self, name: str) -> LoopBackend:
        """Start a client process of its own."""

        def make() -> ProcessId:
            self._n_clients += 1
            return ProcessId("client", name, self._n_clients)

        core = self._assembly.client(self._loop.call(make), self.routers())
        backend = LoopBackend(core, self._loop, self._hub, partial(self._session_ended, core.me))
        self._backends[core.me] = backend
        return backend

    def _session_ended(self, client: ProcessId) -> None:
        self._backends.pop(client, None)

    # Administration.

    def status(self) -> ClusterStatus:
        """Give who is alive and who leads."""
        return self._loop.call(self._status)

    def _status(self) -> ClusterStatus:
        leader = self._leader()

        def of(processes: tuple[ProcessId, ...]) -> tuple[ProcessStatus, ...]:
            known = ((process, self._processes[process]) for process in processes)
            return tuple(ProcessStatus(p, state.is_running, state.reason) for p, state in known)

        names = self._assembly.names
        return ClusterStatus(
            lead_router=None if leader is None else leader.me,
            position=-1 if leader is None else leader.mseq.position,
            routers=of(tuple({p.node: p for p in self._processes if p.role == "router"}.values())),
            storages=of(names.storages),
            supers=of(names.supers),
        )

    def _leader(self) -> Router[Rubberband] | None:
        """Give the running router that leads by the highest ballot."""
        leaders = [
            process.core
            for process in self._processes.values()
            if process.is_running
            and isinstance(process.core, Router)
            and process.core.broadcast.is_leader
        ]
        return max(leaders, key=lambda router: router.broadcast.ballot, default=None)

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
        target = self._identify(process)

        self._loop.call(lambda: self._kill(target, "killed"))

    def _kill(self, target: ProcessId, reason: str) -> None:
        state = self._processes[target]
        if state.pump is not None and state.pump.is_running:
            state.pump.stop()
            state.forget(reason)

    # Routers that come and go.

    def routers(self) -> tuple[ProcessId, ...]:
        """Give the members of the ordering group, as the newest change makes them."""
        return self._loop.call(self._routers)

    def _routers(self) -> tuple[ProcessId, ...]:
        newest = max(
            (
                process.core.broadcast.membership
                for process in self._processes.values()
                if process.is_running and isinstance(process.core, Router)
            ),
            key=lambda membership: membership.number,
            default=None,
        )
        return self._assembly.names.routers if newest is None else newest.members

    def add_router(self, *, timeout_s: float = 10.0) -> ProcessId:
        """Let the ordering group grow by a new router; returns when it is a member.

        Raises
        ------
        CrescandoError
            If the routers refuse.
        DeadlineError
            If it takes longer than `timeout_s`; the router stands by then.
        """

        def start() -> ProcessId:
            known = {process.node for process in self._processes if process.role == "router"}
            number = next(n for n in itertools.count(1) if f"r{n}" not in known)
            me = ProcessId("router", f"r{number}", 1)
            self._run_router(me)
            return me

        router = self._loop.call(start)
        try:
            self._change_routers(timeout_s, add=router)
        except DeadlineError:
            raise
        except CrescandoError:
            self._loop.call(lambda: self._kill(router, "refused by the routers"))
            raise
        return router

    def remove_router(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> None:
        """Let the ordering group shrink by a router, alive or dead; returns when it has left and stopped.

        Raises
        ------
        SpecError
            If there is no such router.
        CrescandoError
            If the routers refuse: it is the last one, or too few would be left alive.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        router = self._identify(process)
        if router.role != "router":
            raise SpecError(f"{router} is no router; remove_router takes one")
        deadline_s = time.monotonic() + timeout_s
        self._dismissed.add(router)
        try:
            self._change_routers(timeout_s, remove=router)
        except DeadlineError:
            # It may be removed yet.
            raise
        except CrescandoError:
            self._dismissed.discard(router)
            raise
        # It answers until it is not needed any more, and then stops by itself.
        while self._processes[router].is_running and time.monotonic() < deadline_s:
            time.sleep(ROUTERS_POLL_S)

    def restart_router(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a router's node again, as a new incarnation; returns when it is a member.

        What the former incarnation promised and knew is gone with it: the new one
        joins as a member of its own and replaces the former.

        Raises
        ------
        SpecError
            If there is no such router.
        CrescandoError
            If it runs, and no majority would be left without it.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        former = self._identify(process)
        if former.role != "router":
            raise SpecError(f"{former} is no router; restart_router takes one")

        def start() -> ProcessId:
            if self._processes[former].is_running:
                members = self._routers()
                left = [p for p in members if p != former and self._processes[p].is_running]
                if former in members and not Membership(0, members).is_quorum(left):
                    raise CrescandoError(
                        f"without {former} no majority of the {len(members)} routers is left, "
                        "and with it what they know; add a router, then remove this one"
                    )
                self._kill(former, "restarted")
            me = self._next_incarnation(former)
            self._run_router(me)
            return me

        router = self._loop.call(start)
        self._await_routers(timeout_s, lambda members: router in members)
        return router

    def _next_incarnation(self, former: ProcessId) -> ProcessId:
        known = (p.incarnation for p in self._processes if (p.role, p.node) == (former.role, former.node))
        return ProcessId(former.role, former.node, max(known) + 1)

    def _change_routers(
        self, timeout_s: float, *, add: ProcessId | None = None, remove: ProcessId | None = None
    ) -> None:
        deadline_s = time.monotonic() + timeout_s

        def ask() -> str | None:
            leader = self._leader()
            if leader is None:
                return "no router leads"
            members = leader.broadcast.membership.members
            if (add is None or add in members) and remove not in members:
                return None
            fault = leader.change_routers(add=add, remove=remove)
            pump = self._processes[leader.me].pump
            if pump is not None:
                pump.need_turn()
            return fault

        def may_pass(fault: str) -> bool:
            # A router that has only just started cannot be reached at once.
            return fault in PASSING_FAULTS or (add is not None and fault.endswith("can be reached"))

        fault = self._loop.call(ask)
        while fault and may_pass(fault) and time.monotonic() < deadline_s:
            time.sleep(ROUTERS_POLL_S)
            fault = self._loop.call(ask)
        if fault:
            raise CrescandoError(f"the routers do not change: {fault}")
        is_done = (lambda members: add in members) if add is not None else (lambda m: remove not in m)
        self._await_routers(deadline_s - time.monotonic(), is_done)

    def _await_routers(self, timeout_s: float, is_done: Callable[[tuple[ProcessId, ...]], bool]) -> None:
        """Wait until the membership in force is as it should be, and can do without the one before.

        That one decides the instances before it came into force: until a majority of the
        new members has learned them, nobody of it may be killed in good conscience.
        """
        deadline_s = time.monotonic() + timeout_s

        def look() -> bool:
            leader = self._leader()
            if leader is None:
                return False
            membership = leader.broadcast.membership
            informed = [me for me in membership.members if self._has_learned(me, membership.start - 1)]
            return is_done(membership.members) and membership.is_quorum(informed)

        while not self._loop.call(look):
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"the routers have not changed within {timeout_s:.1f} s")
            time.sleep(ROUTERS_POLL_S)

    def _has_learned(self, me: ProcessId, instance: int) -> bool:
        process = self._processes[me]
        core = process.core
        return process.is_running and isinstance(core, Router) and core.broadcast.learned >= instance

    def _identify(self, process: ProcessId | str) -> ProcessId:
        # Of a node's incarnations the last one is meant.
        for known in reversed(self._processes):
            if process == known or str(process) in (f"{known.role}/{known.node}", str(known)):
                return known
        names = ", ".join(f"{known.role}/{known.node}" for known in self._processes)
        raise SpecError(f"no process is called {process}; there are {names}")

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
            leader = self._leader()
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
        config = self.config()
        config.table(table)
        return tuple((owner, arc) for arc in config.ring.arcs for owner in config.live_owners(arc))

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
        target = self._identify(process)
        if table not in self.default.catalog():
            self.default.refresh_catalog().result(timeout_s)
        outcome = self.default.read_replica(target, key_range, table).result(timeout_s)
        return rows_answer()(outcome)

    def statistics(self) -> dict[str, dict[str, int]]:
        """Give counters per process that is running."""
        return self._loop.call(self._statistics)

    def _statistics(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for me, process in self._processes.items():
            if not process.is_running:
                continue
            if isinstance(process.core, Storage) and process.engine is not None:
                found[str(me)] = {**process.engine.statistics(), "queued": process.core.n_queued}
            elif isinstance(process.core, Router):
                found[str(me)] = {
                    "learned_instances": process.core.broadcast.learned,
                    "unstable_bytes": process.core.window.n_bytes,
                }
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
        for backend in list(self._backends.values()):
            backend.abandon("the store was closed before the operation had an outcome")

        def stop() -> None:
            for process in self._processes.values():
                if process.pump is not None:
                    process.pump.stop()
                    process.forget("the store was closed")

        try:
            self._loop.call(stop, max(0.1, deadline_s - time.monotonic()))
        except CrescandoError as error:
            logger.warning("the store's loop does not answer: %s", error)
        self._scanner.close(max(0.1, deadline_s - time.monotonic()))
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
    cluster = Cluster(spec, seed=seed)
    store = Store(
        cluster.default,
        connect=cluster.connect,
        cluster=cluster,
        shutdown=cluster.shutdown,
        description=describe(spec),
        timeout_s=timeout_s,
    )
    _close_at_exit(store)
    return store


def _close_at_exit(store: Store[Cluster]) -> None:
    """End a store that its user forgot, within a second, without a word."""

    def close() -> None:
        store.close(0.5)

    atexit.register(close)
    store.cluster.on_shutdown = partial(atexit.unregister, close)
