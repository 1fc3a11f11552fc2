"""One operating-system process of the ordering path: ``python -m benchmarks.ordering.node``.

Rules of the file: the core and its driver are the product's own. The parent
speaks one JSON line at a time on standard input, and gets one line back for
each; the process ends when that input ends. The first argument says what to be.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ordering.cores import Destination
from benchmarks.ordering.embedded import Processes, assembly_of
from benchmarks.ordering.event_loop import run
from crescando import wire
from crescando.interpreter import tune_interpreter
from crescando.loop import Agenda
from crescando.nodes.places import AddressBook
from crescando.process import ProcessCore
from crescando.roles.description import Place
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.router import Router
from crescando.transport.credentials import FileCredentials
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId


def transport_of(book: AddressBook, me: ProcessId, tls_folder: str) -> SocketTransport:
    """Give the transport of one process; without a folder of certificates nothing is encrypted."""
    credentials = FileCredentials(Path(tls_folder, f"{me.role}-{me.node}.pem")) if tls_folder else None
    return SocketTransport(
        asyncio.get_running_loop(),
        codec=(wire.encode, wire.decoder_for),
        locate=book.locate,
        credentials=credentials,
    )


def _core(order: dict[str, Any]) -> ProcessCore:
    me = ProcessId(*order["me"])
    assembly = assembly_of(
        routers=order["routers"],
        storages=order["storages"],
        replication=order["replication"],
        election_s=order["election_s"],
    )
    if me.role == "router":
        members = tuple(ProcessId(*member) for member in order["members"])
        return assembly.router(me, random.Random(order["seed"]), routers=members)
    multicast = Application(me, assembly.names.routers)
    return Destination(me, multicast, keeps=order["keeps"])


def _report(core: ProcessCore, faults: list[str]) -> dict[str, Any]:
    report: dict[str, Any] = {"cpu_s": time.process_time(), "faults": faults}
    if isinstance(core, Router):
        broadcast = core.broadcast
        report |= {
            "is_leader": broadcast.is_leader,
            "attempt": broadcast.ballot.attempt,
            "learned": broadcast.learned,
            "members": [str(member) for member in broadcast.membership.members],
        }
    if isinstance(core, Destination):
        report |= {"applied": core.n_applied, "bytes": core.n_bytes, "keys": len(core.map)}
    return report


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def serve(order: dict[str, Any]) -> None:
    """Be one process until the parent is gone."""
    book = AddressBook()
    core = _core(order)
    transport = transport_of(book, core.me, order["tls"])
    processes = Processes(transport, Agenda(asyncio.get_running_loop()))
    _say(listening=await transport.listen(("127.0.0.1", 0)))
    lines = await _lines()
    tune_interpreter()
    answers: dict[str, Callable[[], dict[str, Any]]] = {
        "report": lambda: _report(core, processes.faults),
    }
    while line := await lines.readline():
        said = json.loads(line)
        if "places" in said:
            book.learn(Place(*place) for place in said["places"])
            if not processes.pumps:
                processes.run(core)
            _say(started=str(core.me))
        else:
            _say(**answers[said["ask"]]())


if __name__ == "__main__":
    run(serve(json.loads(sys.argv[1])))
