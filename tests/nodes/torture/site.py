"""A cluster of real processes behind relays, its clients, and what is done to both.

Rules of the file: whatever it starts it ends, and it looks whether anything is
left. Processes are ended by their number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import crescando
from crescando.certificates import Authority
from crescando.client.store import Store
from crescando.clusterfile import ClusterFile, read_cluster_file
from crescando.errors import CrescandoError
from crescando.nodes.runs import Running, end_running, find_running, is_alive
from crescando.remote import RemoteCluster
from crescando.roles.description import Hosts
from crescando.routing.rubberband.config import Rubberband
from crescando.testing.workload import SCHEMA, Workload
from crescando.types import ProcessId
from tests.nodes.clusters import PATIENCE_S, free_ports, listens, until
from tests.nodes.torture import bulk
from tests.nodes.torture.bulk import CLIENTS
from tests.nodes.torture.history import History
from tests.nodes.torture.judging import Evidence, Replica, read_learned
from tests.nodes.torture.node import FOLDER
from tests.nodes.torture.relays import Relays

ROUTERS, STORAGES, STANDBYS, SUPERS = 3, 4, 1, 3
OUTER, INNER = "127.0.0.2", "127.0.0.1"
"""Relays listen at the one, where the cluster file says that processes do; processes at the other."""

ROOT = Path(__file__).resolve().parents[3]


@dataclass(slots=True)
class State:
    """How a cluster is, as its nodes say."""

    hosts: dict[str, Hosts]
    members: tuple[ProcessId, ...]
    lead: ProcessId | None
    config: Rubberband | None

    @property
    def standbys(self) -> tuple[ProcessId, ...]:
        """Storage processes without a position."""
        return () if self.config is None else tuple(self.config.standbys)

    def fault(self) -> str:
        """Say what is not well; empty if all is."""
        n_nodes = ROUTERS + STORAGES + STANDBYS + SUPERS
        absent = [node for node, host in self.hosts.items() if not host.is_ready]
        if len(self.hosts) < n_nodes or absent:
            return f"{n_nodes - len(self.hosts)} nodes do not answer, and these take no part: {absent}"
        config = self.config
        if self.lead is None or config is None:
            return "no router leads"
        live = {host.process for host in self.hosts.values()}
        if not (set(self.members) <= live and len(self.members) == ROUTERS):
            return f"the routers are {list(map(str, self.members))}"
        if config.changes:
            return f"{len(config.changes)} changes are under way"
        if failed := [str(process) for process in config.ring.processes if process not in live]:
            return f"on the ring are the failed {failed}"
        if strangers := [str(p) for p in live if p.role in ("storage", "super") and not config.is_member(p)]:
            return f"no members are {strangers}"
        return ""


class Site:
    """One cluster from its beginning to its end.

    Parameters
    ----------
    folder : Path
        An empty one, in which the program runs.
    seed : int
    """

    def __init__(self, folder: Path, seed: int, *, suspicion_s: float = 3.0) -> None:
        self.folder = folder
        self.file = _write_cluster(folder, suspicion_s)
        self.learned = folder / "learned"
        self.learned.mkdir()
        self._seed = seed
        self.relays = Relays(
            [(seat.node, (seat.host, seat.port), (INNER, seat.port)) for seat in self.file.seats], seed
        )
        self._launcher: subprocess.Popen[bytes] | None = None
        self._clients: list[subprocess.Popen[str]] = []
        self._pids: set[int] = set()
        self._log = (folder / "launcher.log").open("wb")
        self.store: Store[RemoteCluster] | None = None

    @property
    def url(self) -> str:
        """Where clients enter: at the routers' relays."""
        return "crescando://" + ",".join(s.address for s in self.file.seats if s.role == "router")

    @property
    def cluster(self) -> RemoteCluster:
        """What administers the cluster."""
        assert self.store is not None
        return self.store.cluster

    def start(self) -> None:
        """Start the cluster, and the clients' load."""
        environment = {**os.environ, FOLDER: str(self.learned), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.nodes.torture.up"]
        command += [str(self.file.path), "tests.nodes.torture.node"]
        self._launcher = subprocess.Popen(
            command,
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        until(self._is_ready, "the cluster is ready")
        self.store = crescando.connect(
            self.url, tls=self.folder / "certs", client="admin", connect_s=PATIENCE_S, timeout_s=PATIENCE_S
        )
        for schema in (SCHEMA, bulk.SCHEMA):
            self.store.cluster.default.create_table(schema).result(PATIENCE_S)
        for number in range(1, CLIENTS + 1):
            command = [
                sys.executable,
                "-m",
                "tests.nodes.torture.client",
                self.url,
                str(self.folder / "certs"),
            ]
            command += [str(number), f"{self._seed}/c{number}", str(self.folder / f"c{number}.history")]
            self._clients.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=self.folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    text=True,
                )
            )
        for client in self._clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "begun\n", f"a client did not begin: {self.log()}"

    def _is_ready(self) -> bool:
        assert self._launcher is not None
        assert self._launcher.poll() is None, self.log()
        found = find_running(folder=self.folder / ".crescando")
        return found is not None and found.is_ready

    def log(self) -> str:
        """Give what launcher and clients have said last."""
        return (self.folder / "launcher.log").read_text(errors="replace")[-4000:]

    def running(self) -> Running:
        """Give the launcher's record."""
        found = find_running(folder=self.folder / ".crescando")
        assert found is not None, self.log()
        self._pids.update(found.nodes.values())
        return found

    # Looking.

    def look(self) -> State:
        """Ask every node how it is."""
        hosts: dict[str, Hosts] = {}
        members: tuple[ProcessId, ...] = ()
        lead: ProcessId | None = None
        config: Rubberband | None = None
        highest = -1
        for node, told in self.cluster.described().items():
            if told is None:
                continue
            for host in told.hosts:
                hosts[node] = host
                if host.lead == host.process and host.position > highest:
                    highest, lead, members = host.position, host.process, told.routers
                    config = Rubberband.decode(told.config) if told.config else None
        return State(hosts, members, lead, config)

    def wait_well(self) -> tuple[float, str]:
        """Wait until all is well; gives how long that took, and what is not well after all."""
        began_s, fault = time.monotonic(), ""
        while time.monotonic() < began_s + PATIENCE_S:
            try:
                fault = self.look().fault()
            except CrescandoError as error:
                fault = str(error)
            if not fault:
                return time.monotonic() - began_s, ""
            time.sleep(0.1)
        return PATIENCE_S, fault

    # Doing.

    def signal(self, node: str, number: int) -> float:
        """Send a signal to a node's process, or to a client; gives when."""
        clients = {f"c{number}": client.pid for number, client in enumerate(self._clients, start=1)}
        pid = clients.get(node) or self.running().nodes[node]
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return time.monotonic()

    # The end.

    def stop_load(self) -> list[History]:
        """Let the clients end, and read what they saw."""
        for client in self._clients:
            assert client.stdin is not None
            client.stdin.close()
        for number, client in enumerate(self._clients, start=1):
            status = client.wait(2 * PATIENCE_S)
            assert status == 0, f"client c{number} ended with {status}: {self.log()}"
        return [
            History.load(self.folder / f"c{number}.history") for number in range(1, len(self._clients) + 1)
        ]

    def evidence(self) -> Evidence:
        """End the load, read every replica, and give what there is to be judged."""
        histories = self.stop_load()
        replicas, loaded = (
            [
                Replica(process, key_range, self.cluster.read_replica(process, key_range, table).rows())
                for process, key_range in self.cluster.replicas(table)
            ]
            for table in (SCHEMA.name, bulk.SCHEMA.name)
        )
        catalog = self.cluster.default.refresh_catalog().result(PATIENCE_S)
        return Evidence(
            self.file.spec,
            Workload(catalog[SCHEMA.name]),
            read_learned(self.learned),
            histories,
            replicas,
            catalog[bulk.SCHEMA.name],
            loaded,
        )

    def end(self) -> list[str]:
        """End everything; gives what is left that should not be."""
        with suppress(CrescandoError):
            if self.store is not None:
                self.store.close()
        found = find_running(folder=self.folder / ".crescando")
        if found is not None:
            self._pids.update(found.nodes.values())
            for pid in found.nodes.values():
                # One that is stopped would not end.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            end_running(found, folder=self.folder / ".crescando")
        for process in (*self._clients, *((self._launcher,) if self._launcher is not None else ())):
            if process.poll() is None:
                if process is not self._launcher:
                    # Also one that is stopped.
                    process.kill()
                process.wait(PATIENCE_S)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self.relays.close()
        self._log.close()
        return [
            *(f"process {pid} is left" for pid in sorted(self._pids) if is_alive(pid)),
            *(f"{seat.node}'s port {seat.port} is left" for seat in self.file.seats if listens(seat.port)),
            *(["the record of the run is left"] if (self.folder / ".crescando").exists() else []),
        ]


def _write_cluster(folder: Path, suspicion_s: float) -> ClusterFile:
    groups = (("r", ROUTERS), ("s", STORAGES + STANDBYS), ("u", SUPERS))
    nodes = [f"{letter}{i}" for letter, n in groups for i in range(1, n + 1)]
    ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
    path = folder / "cluster.toml"
    path.write_text(
        f"[cluster]\nname = 'torture'\nreplication = 3\ncertificates = '{folder / 'certs'}'\n"
        f"listen = '{INNER}'\n"
        f"[routers]\ncount = {ROUTERS}\n[storages]\ncount = {STORAGES}\nstandby = {STANDBYS}\n"
        f"[supers]\ncount = {SUPERS}\n[supervision]\nsuspicion_s = {suspicion_s}\n[addresses]\n"
        + "".join(f"{node} = '{OUTER}:{port}'\n" for node, port in ports.items())
    )
    authority = Authority.create(folder / "certs", cluster="torture")
    for name in ("admin", *(f"c{i}" for i in range(1, CLIENTS + 1))):
        authority.ensure(f"client/{name}")
    return read_cluster_file(path)
