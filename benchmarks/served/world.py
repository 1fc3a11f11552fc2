"""A cluster of operating-system processes on this machine, started by the product's own launcher.

Rules of the file: everything is the product as operators have it: a cluster
file, certificates of an authority, ``crescando up``, mutual TLS 1.3. The nodes
end when their launcher is gone, and that is ended by its pid (`Group`), also if
the benchmark dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import crescando
from benchmarks.peers.lines import Lines
from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.report import progress
from benchmarks.served.plan import Plan
from crescando.certificates import Authority
from crescando.warming import compiling

ROOT = Path(__file__).resolve().parents[2]
NAME = "bench"
READY_S = 300.0
"""Until the nodes take part."""

ANSWER_S = 900.0
"""For what a client is told to do: loading six million rows takes minutes."""

END_S = 15.0

SUSPICION_S = 30.0
"""Longer than is usual: all processes share this machine's cores with each other and with the load."""


class World:
    """The cluster, its clients, and a session of the administrator in this process.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clients: list[Lines] = []
        self._store: Any = None
        self._group = Group("served")
        self.folder = self._group.folder
        self._launcher: subprocess.Popen[str] | None = None
        self._certificates = self.folder / "certs"

    def __enter__(self) -> World:
        try:
            self._begin()
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        authority = Authority.create(self._certificates, cluster=NAME)
        names = ["admin", *(f"c{number}" for number in range(self.plan.clients))]
        for name in names:
            authority.issue(f"client/{name}")
        file = self.folder / "cluster.toml"
        file.write_text(self._cluster_file(), encoding="utf-8")
        command = [sys.executable, "-m", "crescando"]
        environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        # Nothing is measured while a core compiles.
        compiler = compiling()
        if compiler is not None:
            progress("compiling the kernels")
            subprocess.run(compiler, env={**os.environ, **environment}, check=True)
        self._launcher = self._group.start(
            "launcher", [*command, "up", "-f", str(file), "--timeout", str(READY_S)], environment=environment
        )
        log = self._group.log("launcher")
        self._group.wait_until(
            lambda: " is ready after " in log.read_text(errors="replace"), "cluster that is ready", READY_S
        )
        self._store = crescando.connect(self.url, tls=self._certificates, client="admin", timeout_s=60.0)
        for name in names[1:]:
            self._start_client(name, environment)

    def _start_client(self, name: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.served.client", self.url, str(self._certificates), name]
        child = self._group.start(name, command, environment=environment, piped=True)
        lines = Lines(name, child, self._group.log(name), ANSWER_S)
        lines.read()
        self.clients.append(lines)

    def _cluster_file(self) -> str:
        plan = self.plan
        groups = {"r": plan.routers, "s": plan.storages, "u": plan.supers}
        nodes = [f"{letter}{number}" for letter, n in groups.items() for number in range(1, n + 1)]
        self._ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
        lines = [
            "[cluster]",
            f'name = "{NAME}"',
            f"replication = {plan.replication}",
            f'certificates = "{self._certificates}"',
            "restart = false",
            "meter = true",
            f"[routers]\ncount = {plan.routers}",
            f"[storages]\ncount = {plan.storages}",
            f"[supers]\ncount = {plan.supers}",
            f"[supervision]\nsuspicion_s = {SUSPICION_S}",
            "[addresses]",
            *(f'{node} = "{HOST}:{port}"' for node, port in self._ports.items()),
        ]
        return "\n".join(lines) + "\n"

    @property
    def url(self) -> str:
        """Where clients find the routers."""
        routers = [port for node, port in self._ports.items() if node.startswith("r")]
        return "crescando://" + ",".join(f"{HOST}:{port}" for port in routers)

    def ask(self, **line: Any) -> list[dict[str, Any]]:
        """Have every client do the same at once; gives what each answers."""
        for number, client in enumerate(self.clients):
            client.write(**line, client=number)
        return [client.read() for client in self.clients]

    def tell_first(self, **line: Any) -> dict[str, Any]:
        """Have the first client do something alone."""
        self.clients[0].write(**line, client=0)
        return self.clients[0].read()

    def statistics(self) -> dict[str, dict[str, int]]:
        """Give every node's counters."""
        told: dict[str, dict[str, int]] = self._store.cluster.statistics()
        return told

    def close(self) -> None:
        """End everything, and remove every file."""
        try:
            if self._store is not None:
                self._store.close()
        finally:
            if self._launcher is not None and self._launcher.poll() is None:
                self._launcher.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self._launcher.wait(END_S)
            self._group.close()
