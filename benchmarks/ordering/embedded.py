"""The ordering path in one process and one event loop: the same cores, sessions handed over."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from benchmarks.ordering.cores import Destination, Sender
from crescando.assembly import Assembly, Names
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.loop import Agenda
from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.routing.ecast.application import Application
from crescando.routing.rubberband.config import Rubberband
from crescando.spec import ClusterSpec
from crescando.transport.base import Transport
from crescando.transport.inprocess import InProcessHub
from crescando.types import ProcessId

READY_S = 20.0


def assembly_of(*, routers: int, storages: int, replication: int, election_s: float = 1.0) -> Assembly:
    """Give the parts list of the ordering path: no supers, since nobody here answers for them."""
    spec = ClusterSpec(
        routers=routers,
        storages=storages,
        replication=replication,
        paxos=PaxosTiming(election_s=election_s),
    )
    config = Rubberband.genesis(storages=Names.of(spec).storages, replication=replication)
    return Assembly(spec, config=config)


@dataclass
class Processes:
    """The pumps that run in this process."""

    transport: Transport
    agenda: Agenda
    pumps: dict[ProcessId, Pump] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def run(self, core: ProcessCore) -> Pump:
        """Start a core."""

        def stopped(why: str) -> None:
            self.faults.append(f"{core.me}: {why}")

        pump = self.pumps[core.me] = Pump(core, self.transport, self.agenda, stopped=stopped)
        if isinstance(core, Sender):
            core.wake = pump.need_turn
        pump.start()
        return pump

    def stop(self) -> None:
        """Stop them all; raises if one had stopped by itself."""
        for pump in self.pumps.values():
            pump.stop()
        if self.faults:
            raise RuntimeError("; ".join(self.faults))


async def until_ready(sender: Sender) -> None:
    """Wait until a sender has joined and its table exists."""
    async with asyncio.timeout(READY_S):
        while not sender.is_ready:
            await asyncio.sleep(0.005)


class Embedded:
    """Routers, destinations and one client in the running event loop.

    Parameters
    ----------
    routers, storages, replication : int
    keeps : bool
        Whether destinations keep what is put ("kv") or only count it ("null").
    """

    def __init__(
        self, *, routers: int = 3, storages: int = 4, replication: int = 3, keeps: bool = False
    ) -> None:
        agenda = Agenda(asyncio.get_running_loop())
        self.processes = Processes(InProcessHub(agenda), agenda)
        assembly = assembly_of(routers=routers, storages=storages, replication=replication)
        names = assembly.names
        self.replication = replication
        self.destinations = []
        for number, me in enumerate(names.routers):
            self.processes.run(assembly.router(me, random.Random(number)))
        for me in names.storages:
            destination = Destination(me, Application(me, names.routers), keeps=keeps)
            self.destinations.append(destination)
            self.processes.run(destination)
        me = ProcessId("client", "c1", 1)
        self.sender = Sender(me, Application(me, names.routers))
        self.processes.run(self.sender)

    async def __aenter__(self) -> Embedded:
        await until_ready(self.sender)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.02)
        self.processes.stop()

    def check(self) -> None:
        """Raise unless every put was applied on as many destinations as there are copies."""
        applied = sum(destination.n_applied for destination in self.destinations)
        if applied != self.replication * self.sender.n_put:
            raise RuntimeError(f"{self.sender.n_put} puts were applied {applied} times")
