"""The processes of one embedded cluster: started, found by name, ended.

All of them share one event loop; slow work goes to the scanning threads and
comes back into the loop. Everything here but `identify` is for the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from crescando.engine.base import Engine
from crescando.errors import CrescandoError
from crescando.loop import LoopThread
from crescando.metering import Meter
from crescando.naming import Name, identify
from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.roles.cycles import Execution
from crescando.roles.description import NOBODY_LEADS
from crescando.roles.storage import Storage
from crescando.roles.super import Super
from crescando.routing.ecast.router import Router
from crescando.scanning import ScanThreads, worked_s
from crescando.transport.base import Transport
from crescando.types import ProcessId


@dataclass(slots=True)
class Hosted:
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


class Processes:
    """Every process that was ever started here, the latest incarnation of a node last.

    Parameters
    ----------
    loop : LoopThread
    transport : Transport
    scanner : ScanThreads
    meter : Meter, optional
        Counts the CPU time of each layer.
    """

    def __init__(
        self, loop: LoopThread, transport: Transport, scanner: ScanThreads, meter: Meter | None = None
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._scanner = scanner
        self._meter = meter
        self._known: dict[ProcessId, Hosted] = {}

    def __getitem__(self, process: ProcessId) -> Hosted:
        return self._known[process]

    def __iter__(self) -> Iterator[ProcessId]:
        return iter(self._known)

    def values(self) -> Iterator[Hosted]:
        """Give the state of each."""
        return iter(list(self._known.values()))

    def of_role(self, role: str) -> tuple[ProcessId, ...]:
        """Give the latest incarnation of each node of a role."""
        return tuple({process.node: process for process in self._known if process.role == role}.values())

    def running_routers(self) -> Iterator[Router[Any]]:
        """Give the routers that take turns."""
        for hosted in self.values():
            if hosted.is_running and isinstance(hosted.core, Router):
                yield hosted.core

    def leader(self) -> Router[Any] | None:
        """Give the running router that leads by the highest ballot."""
        leaders = (router for router in self.running_routers() if router.broadcast.is_leader)
        return max(leaders, key=lambda router: router.broadcast.ballot, default=None)

    def change_routers(self, *, add: ProcessId | None = None, remove: ProcessId | None = None) -> str:
        """Have the ordering group grow or shrink; says why it cannot be proposed here, if it cannot."""
        leader = self.leader()
        if leader is None:
            return NOBODY_LEADS
        members = leader.broadcast.membership.members
        if (add is None or add in members) and remove not in members:
            return ""
        fault = leader.change_routers(add=add, remove=remove)
        pump = self._known[leader.me].pump
        if pump is not None:
            pump.need_turn()
        return fault

    def next_incarnation(self, former: ProcessId) -> ProcessId:
        """Give the identity under which a node may come back."""
        known = (p.incarnation for p in self._known if (p.role, p.node) == (former.role, former.node))
        return ProcessId(former.role, former.node, max(known) + 1)

    def counters(self) -> dict[ProcessId, dict[str, int]]:
        """Give what the running processes count."""
        found: dict[ProcessId, dict[str, int]] = {}
        for me, hosted in list(self._known.items()):
            core = hosted.core
            if isinstance(core, Storage) and hosted.engine is not None:
                found[me] = {
                    **hosted.engine.statistics(),
                    "pins": len(core.pins),
                    "queued": core.n_queued,
                    "is_full": int(core.memory.is_full),
                }
            elif isinstance(core, Router):
                found[me] = {
                    "learned_instances": core.broadcast.learned,
                    "unstable_bytes": core.window.n_bytes,
                    "pending": core.n_pending,
                    "leads": int(core.broadcast.leader == core.me),
                }
            elif isinstance(core, Super):
                found[me] = {
                    "watched": core.n_watched,
                    "silent": core.n_silent,
                    "suspicions": core.suspicions,
                }
            if self._meter is not None and hosted.is_running:
                found.setdefault(me, {}).update(self._meter.counters())
        return found

    def run(
        self,
        core: ProcessCore,
        engine: Engine | None = None,
        *,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Start a process; `ended` is called if it stops by itself."""

        meter = self._meter
        if meter is not None:
            watch(meter, core)

        def execute(work: Execution) -> None:
            if hosted.engine is not None:
                scan = partial(work.run, hosted.engine, perf_counter, worked_s)
                self._scanner.submit(
                    scan if meter is None else meter.scanning(scan), partial(self._executed, pump)
                )

        def stopped(reason: str) -> None:
            hosted.forget(reason)
            ended()

        pump = Pump(core, self._transport, self._loop.agenda, execute=execute, stopped=stopped)
        hosted = self._known[core.me] = Hosted(core, pump, engine)
        pump.start()

    def end(self, process: ProcessId, reason: str) -> None:
        """Let a process fail silently, with everything in its memory."""
        hosted = self._known[process]
        if hosted.pump is not None and hosted.pump.is_running:
            hosted.pump.stop()
            hosted.forget(reason)

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

    def identify(self, process: Name) -> ProcessId:
        """Find a process, as `naming.identify`.

        Raises
        ------
        SpecError
            If there is no such process.
        """
        return identify(process, self._known)


def watch(meter: Meter, core: ProcessCore) -> None:
    """Count what a process does as its layers': the order's, and its role's."""
    multicast = getattr(core, "multicast", None)
    meter.watch("ordering" if isinstance(core, Router) else "roles", core)
    if multicast is not None:
        meter.watch("ordering", multicast)
