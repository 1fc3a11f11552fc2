"""A cluster on three hosts of a network, with a client on a fourth; one host's cable is pulled.

The hosts are network namespaces, which not every machine lets us make. What runs
on them is what an administrator starts there: ``crescando up --node NAME``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crescando.certificates import Authority
from crescando.clusterfile import ClusterFile, read_cluster_file
from crescando.nodes.running import STOPPED
from tests.nodes.clusters import PATIENCE_S
from tests.nodes.hosts import Host, hosts, why_not

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DELAY_MS = 3
PORTS = {"r": 7401, "s": 7421, "u": 7461}
INSIDE = "127.0.0.1"
AT_ONCE = 100

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def network() -> Iterator[list[Host]]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with hosts(4) as made:
        yield list(made)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes on hosts, and ends them all."""
    started: list[subprocess.Popen[str]] = []

    def begin(host: Host, *arguments: str) -> subprocess.Popen[str]:
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                host.command(sys.executable, "-m", *arguments),
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def delayed(network: list[Host], start: Start) -> bool:
    """Let what hosts say to each other take a while; says whether relays do that."""
    if all(host.delay(DELAY_MS) for host in network):
        return False
    for host in network[:3]:
        arguments = (str(DELAY_MS / 1000), host.address, INSIDE, *map(str, PORTS.values()))
        assert line(start(host, "tests.nodes.torture.relays", *arguments)) == "listens\n"
    return True


def write_file(folder: Path, network: list[Host], listen: str) -> ClusterFile:
    path = folder / "cluster.toml"
    path.write_text(
        f"[cluster]\nname = 'hosts'\nreplication = 3\ncertificates = '{folder / 'certs'}'\n"
        f"listen = '{listen}'\n"
        "[routers]\ncount = 3\n[storages]\ncount = 3\n[supers]\ncount = 3\n[addresses]\n"
        + "".join(
            f"{letter}{i} = '{host.address}:{port}'\n"
            for i, host in enumerate(network[:3], start=1)
            for letter, port in PORTS.items()
        )
    )
    authority = Authority.create(folder / "certs", cluster="hosts")
    file = read_cluster_file(path)
    for seat in file.seats:
        authority.ensure(f"{seat.role}/{seat.node}", f"node/{seat.node}")
    authority.ensure("client/app")
    return file


class Client:
    """The program on the fourth host."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert json.loads(line(process)) == "ready"

    def ask(self, what: str, *arguments: int) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        answered = line(self._process)
        assert answered, f"the client has ended at {what}"
        return json.loads(answered)


def test_a_host_that_is_cut_off_is_done_without_and_comes_back(
    network: list[Host], start: Start, tmp_path: Path
) -> None:
    has_relays = delayed(network, start)
    file = write_file(tmp_path, network, INSIDE if has_relays else "")

    def up(host: Host, node: str, *more: str) -> subprocess.Popen[str]:
        return start(host, "crescando", "up", "-f", str(file.path), "--node", node, *more)

    nodes = {seat.node: up(network[int(seat.node[1]) - 1], seat.node, "--found") for seat in file.seats}
    for node, process in nodes.items():
        assert "takes part" in line(process), f"{node}: {(tmp_path / 'log').read_text()}"
    url = "crescando://" + ",".join(seat.address for seat in file.seats if seat.role == "router")
    client = Client(start(network[3], "tests.nodes.hosts_client", url, str(tmp_path / "certs")))
    client.ask("write", 0, AT_ONCE)
    assert client.ask("read") == [AT_ONCE] * 3

    network[2].part()
    # Nobody waits for those on it for longer than it takes to declare them failed.
    client.ask("write", AT_ONCE, 2 * AT_ONCE)
    assert client.ask("read") == [2 * AT_ONCE] * 3
    client.ask("without", 3)

    network[2].join()
    # Each learns that it is out, and is started again, as systemd would, as a later life.
    for node in ("r3", "s3", "u3"):
        assert nodes[node].wait(PATIENCE_S) == STOPPED, node
        nodes[node] = up(network[2], node)
    for node in ("r3", "s3", "u3"):
        assert "takes part" in line(nodes[node]), node
    ring = client.ask("whole")
    assert [process.partition("#")[0] for process in ring] == ["storage/s1", "storage/s2", "storage/s3"]
    client.ask("write", 2 * AT_ONCE, 3 * AT_ONCE)
    assert client.ask("read") == [3 * AT_ONCE] * 3
    assert sum(client.ask("replicas")) == 3 * 3 * AT_ONCE
