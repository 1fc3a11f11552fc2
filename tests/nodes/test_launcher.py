"""The launcher's own end: by Ctrl-C, by force, and when a node cannot begin; nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescando.cli.main import main
from crescando.clusterfile import ClusterFile
from crescando.nodes.launcher import Launcher, Running, _Again, _Child, find_running, is_alive
from tests.nodes.clusters import PATIENCE_S, listens, until, write_cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ClusterFile]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield write_cluster(tmp_path, routers=1, storages=1, supers=1)
    os.chdir(before)


def begin() -> tuple[subprocess.Popen[str], Running]:
    """Start a cluster in the foreground of another process, and wait until it is ready."""
    command = [sys.executable, "-m", "crescando", "up", "--timeout", str(PATIENCE_S)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert launcher.stdout is not None
    line = ""
    while "is ready" not in line:
        line = launcher.stdout.readline()
        assert line, "it ended before it was ready"
    running = find_running()
    assert running is not None
    assert (running.pid, sorted(running.nodes)) == (launcher.pid, ["r1", "s1", "u1"])
    return launcher, running


def left_of(running: Running, file: ClusterFile) -> list[object]:
    alive = [pid for pid in running.nodes.values() if is_alive(pid)]
    return alive + [seat for seat in file.seats if listens(seat.port)]


def test_what_a_node_prints_beside_its_own_words_is_told_and_does_no_harm(file: ClusterFile) -> None:
    told: list[str] = []
    launcher = Launcher(file, told.append)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        child = _Child(file.seat("s1"), 1, process, 0.0)
        launcher._take(child, b"a library greets \xff")
        launcher._take(child, b'["ready"]')
        launcher._take(child, b'{"ready": "storage/s1#1"}')

    assert [line.partition(" ")[0] for line in told] == ["s1", "s1", "storage/s1#1"]
    assert "a library greets" in told[0]
    assert child.is_ready


def test_a_node_whose_certificate_is_gone_is_tried_again_later(file: ClusterFile, tmp_path: Path) -> None:
    told: list[str] = []
    launcher = Launcher(file, told.append)
    launcher._again["s1"] = _Again(0.0)
    (tmp_path / "certs" / "authority.key.pem").unlink()

    launcher._start_again()
    launcher._start_again()

    assert len(told) == 1
    assert "s1 cannot be started again yet" in told[0]
    assert launcher._children == {}


def test_ctrl_c_leaves_nothing(file: ClusterFile, tmp_path: Path) -> None:
    launcher, running = begin()

    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=PATIENCE_S)

    assert launcher.returncode == 0
    assert output.endswith("the cluster 'test' has ended\n")
    assert left_of(running, file) == []
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]


def test_nodes_end_with_their_launcher_even_if_that_is_killed(file: ClusterFile, tmp_path: Path) -> None:
    launcher, running = begin()

    launcher.kill()
    launcher.communicate(timeout=PATIENCE_S)

    until(lambda: left_of(running, file) == [], "every node has ended by itself")
    assert find_running() is None
    assert main(["down"]) == 2
    # What it could not take away is in nobody's way.
    again, present = begin()
    assert main(["down"]) == 0
    again.communicate(timeout=PATIENCE_S)
    assert left_of(present, file) == []
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]


def test_a_node_that_cannot_begin_ends_the_start_with_its_own_words(
    file: ClusterFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "certs" / "authority.key.pem").unlink()
    assert main(["up"]) == 2
    assert "crescando certs init" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]


def test_a_start_that_takes_too_long_is_ended(
    file: ClusterFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--timeout", "0.01"]) == 2

    assert "not ready after" in capsys.readouterr().err
    assert not any(listens(seat.port) for seat in file.seats)
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]
