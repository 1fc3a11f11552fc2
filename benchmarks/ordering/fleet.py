"""The ordering path as operating-system processes on this machine, with the clients in this one.

Rules of the file: every process says when it listens and when it runs, and is
waited for; none is left behind, whatever happens (`Group` ends each by its pid).
What was acknowledged is compared with what was applied before a run counts.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ordering.cores import Sender
from benchmarks.ordering.embedded import Processes, assembly_of, until_ready
from benchmarks.ordering.node import transport_of
from benchmarks.peers.lines import Lines
from benchmarks.peers.processes import Group
from crescando.certificates import Authority
from crescando.loop import Agenda
from crescando.nodes.places import AddressBook
from crescando.roles.description import Place
from crescando.routing.ecast.application import Application
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId

ANSWER_S = 120.0
"""A machine that does much else is slow to start a process, and to take it into the group under load."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a fleet consists of.

    Attributes
    ----------
    routers, storages, replication : int
    is_secure : bool
        Mutual TLS 1.3 between all processes, or plain TCP.
    keeps : bool
        Whether destinations keep what is put ("kv") or only count it ("null").
    election_s : float
        Silence after which a leader is doubted.
    """

    routers: int = 3
    storages: int = 4
    replication: int = 3
    is_secure: bool = True
    keeps: bool = False
    election_s: float = 1.0


class Fleet:
    """Routers and destinations as processes, and one client or more in the running event loop."""

    def __init__(self, shape: Shape, *, clients: int = 1) -> None:
        self.shape = shape
        self.senders: list[Sender] = []
        self.n_clients = clients
        self.processes: list[Processes] = []
        self._transports: list[SocketTransport] = []
        self._book = AddressBook()
        self._group = Group("order")
        self._children: dict[ProcessId, Lines] = {}
        self._stopped: set[ProcessId] = set()
        self._names = assembly_of(
            routers=shape.routers, storages=shape.storages, replication=shape.replication
        ).names
        self._tls = str(self._group.folder) if shape.is_secure else ""
        self._authority = Authority.create(self._group.folder) if shape.is_secure else None

    @property
    def sender(self) -> Sender:
        """The first client."""
        return self.senders[0]

    # Beginning and end.

    async def __aenter__(self) -> Fleet:
        try:
            everybody = [*self._names.routers, *self._names.storages]
            for process in everybody:
                self._spawn(process)
            for process in everybody:
                self._learn_address(process)
            self._introduce()
            for number in range(self.n_clients):
                await self._add_sender(number)
            return self
        except BaseException:
            self.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; raises if a client had stopped by itself."""
        try:
            for processes in self.processes:
                processes.stop()
        finally:
            for transport in self._transports:
                transport.close()
            self._group.close()

    def _spawn(self, process: ProcessId, *, is_new: bool = False) -> None:
        if self._authority is not None:
            self._authority.issue(f"{process.role}/{process.node}")
        order = {
            "me": process,
            "routers": self.shape.routers,
            "members": [known for known in self._children if known.role == "router"] if is_new else [],
            "storages": self.shape.storages,
            "replication": self.shape.replication,
            "keeps": self.shape.keeps,
            "election_s": self.shape.election_s,
            "seed": len(self._children),
            "tls": self._tls,
        }
        command = [sys.executable, "-m", "benchmarks.ordering.node", json.dumps(order)]
        environment = {"PYTHONPATH": str(ROOT)}
        name = f"{process.role}-{process.node}-{process.incarnation}"
        child = self._group.start(name, command, environment=environment, piped=True)
        self._children[process] = Lines(name, child, self._group.log(name), ANSWER_S)

    def _learn_address(self, process: ProcessId) -> None:
        host, port = self._children[process].read()["listening"]
        self._book.learn([Place(process.role, process.node, host, port)])

    def _introduce(self) -> None:
        """Tell everybody where everybody listens; those that do not run yet begin."""
        running = [process for process in self._children if process not in self._stopped]
        for process in running:
            self._children[process].write(places=self._places())
        for process in running:
            self._children[process].read()

    def _places(self) -> list[tuple[str, str, str, int]]:
        return [(place.role, place.node, place.host, place.port) for place in self._book.places()]

    async def _add_sender(self, number: int) -> None:
        me = ProcessId("client", f"c{number}", 1)
        if self._authority is not None:
            self._authority.issue(f"{me.role}/{me.node}")
        transport = transport_of(self._book, me, self._tls)
        self._transports.append(transport)
        processes = Processes(transport, Agenda(asyncio.get_running_loop()))
        sender = Sender(me, Application(me, self._names.routers), creates=number == 0)
        self.processes.append(processes)
        self.senders.append(sender)
        processes.run(sender)
        await until_ready(sender)

    # What benchmarks do to it.

    @property
    def lead(self) -> ProcessId | None:
        """The router that the client believes to lead."""
        return self.sender.multicast.lead

    def kill(self, process: ProcessId) -> float:
        """Kill a process; gives when, on `time.perf_counter`."""
        child = self._children.pop(process).child
        killed_s = time.perf_counter()
        self._group.kill(f"{process.role}-{process.node}-{process.incarnation}")
        child.wait()
        return killed_s

    def pause(self, process: ProcessId) -> float:
        """Stop a process as a hung machine would; gives when."""
        self._stopped.add(process)
        self._children[process].child.send_signal(signal.SIGSTOP)
        return time.perf_counter()

    def resume(self, process: ProcessId) -> None:
        """Let a stopped process go on."""
        self._children[process].child.send_signal(signal.SIGCONT)
        self._stopped.discard(process)

    async def replace(self, gone: ProcessId) -> ProcessId:
        """Start the next life of a router that was killed, and wait until it is a member."""
        me = ProcessId(gone.role, gone.node, gone.incarnation + 1)
        self._spawn(me, is_new=True)
        while not self._children[me].has_line(0.0):
            await asyncio.sleep(0.01)
        self._learn_address(me)
        for process in [p for p in self._children if p not in self._stopped]:
            self._children[process].write(places=self._places())
            while not self._children[process].has_line(0.0):
                await asyncio.sleep(0.002)
            self._children[process].read()
        async with asyncio.timeout(ANSWER_S):
            while str(me) not in (await self.report(me))["members"]:
                await asyncio.sleep(0.02)
        return me

    async def report(self, process: ProcessId) -> dict[str, Any]:
        """Ask a process how it stands, without stopping the loop."""
        self._children[process].write(ask="report")
        async with asyncio.timeout(ANSWER_S):
            while not self._children[process].has_line(0.0):
                await asyncio.sleep(0.002)
        return self._children[process].read()

    async def reports(self) -> dict[ProcessId, dict[str, Any]]:
        """Ask every running process how it stands."""
        return {p: await self.report(p) for p in list(self._children) if p not in self._stopped}

    async def check(self) -> dict[ProcessId, dict[str, Any]]:
        """Raise unless all that was put was applied on as many destinations as there are copies."""
        reports = await self.reports()
        faults = [f"{process}: {fault}" for process, told in reports.items() for fault in told["faults"]]
        if faults:
            raise RuntimeError("; ".join(faults))
        applied = sum(told["applied"] for process, told in reports.items() if process.role == "storage")
        n_put = sum(sender.n_put for sender in self.senders)
        if applied != self.shape.replication * n_put:
            raise RuntimeError(f"{n_put} puts, {self.shape.replication} copies, {applied} applied")
        return reports
