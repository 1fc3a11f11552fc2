"""Clusters of real processes for tests: free ports, certificates, and the proof that nothing is left."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

from crescando.certificates import Authority
from crescando.clusterfile import ClusterFile, read_cluster_file

PATIENCE_S = 120.0
"""For machines that are slow and busy."""


def free_ports(n: int) -> list[int]:
    """Give ports at which nobody listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def write_cluster(
    folder: Path,
    *,
    routers: int = 3,
    storages: int = 4,
    supers: int = 3,
    standby: int = 0,
    standby_routers: int = 0,
    action: str = "wait",
    more: str = "",
) -> ClusterFile:
    """Write a cluster file with free ports, and `more` tables, and make its authority."""
    groups = (("r", routers + standby_routers), ("s", storages + standby), ("u", supers))
    nodes = [f"{letter}{i}" for letter, n in groups for i in range(1, n + 1)]
    ports = free_ports(len(nodes))
    path = folder / "cluster.toml"
    path.write_text(
        f"[cluster]\nname = 'test'\nreplication = {min(3, storages)}\ncertificates = '{folder / 'certs'}'\n"
        f"[routers]\ncount = {routers}\nstandby = {standby_routers}\n"
        f"[storages]\ncount = {storages}\nstandby = {standby}\n"
        f"[supers]\ncount = {supers}\n[healing]\naction = '{action}'\n{more}[addresses]\n"
        + "".join(f"{node} = '127.0.0.1:{port}'\n" for node, port in zip(nodes, ports, strict=True))
    )
    Authority.create(folder / "certs", cluster="test")
    return read_cluster_file(path)


def until(is_so: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait for a condition; `what` it is, or something that says so and how things are instead."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"still not so: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def listens(seat_port: int) -> bool:
    """Say whether somebody listens at a port of this host."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", seat_port)) == 0
