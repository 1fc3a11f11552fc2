"""The launcher's own end: by Ctrl-C, by force, and when a node cannot begin; nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescando.cli import clusters
from crescando.cli.main import main
from crescando.clusterfile import ClusterFile
from crescando.nodes import running
from crescando.nodes.launcher import Launcher, _Again, _Child
from crescando.nodes.running import ENDED, FAILED, run_node
from crescando.nodes.runs import Running, find_running, is_alive
from crescando.roles.following import LEFT
from tests.nodes.clusters import PATIENCE_S, listens, until, write_cluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


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


# Launchers of nodes that do nothing.


@pytest.fixture
def idle(file: ClusterFile, monkeypatch: pytest.MonkeyPatch) -> str:
    """What runs a node that says it is ready, and waits."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return "tests.nodes.idle"


def test_neither_a_full_disk_nor_a_terminal_that_is_gone_ends_a_cluster(file: ClusterFile, idle: str) -> None:
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if launcher._is_ready:
            raise BrokenPipeError

    launcher = Launcher(file, tell, module=idle)
    with launcher.running():
        assert launcher.wait_ready(PATIENCE_S)
        running = find_running()
        assert running is not None
        # As a disk that is full: no record can be written.
        (launcher.folder / "run.json.new").mkdir()
        os.kill(running.nodes["s1"], signal.SIGKILL)
        launcher.watch(lambda: "s1" in launcher._children and launcher._children["s1"].incarnation == 2)

    assert any("s1 has ended: killed by signal 9" in line for line in told)
    assert any("cannot be written: Is a directory" in line for line in told)
    assert not launcher.folder.exists()


def test_the_end_of_its_terminal_ends_a_cluster(file: ClusterFile, idle: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.nodes.torture.up", str(file.path), idle]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        until(lambda: (found := find_running()) is not None and found.is_ready, "ready")
        running = find_running()
        assert running is not None
        launcher.send_signal(signal.SIGHUP)

        assert launcher.wait(PATIENCE_S) == 0
    assert left_of(running, file) == []
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]


def test_an_interrupt_while_it_is_waited_for_leaves_nothing(
    file: ClusterFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Running] = []
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            # Of other tests of this process, say; interrupts are for the main thread alone.
            sleep(seconds)
            return
        running = None if seen else find_running()
        if running is not None:
            seen.append(running)
            raise KeyboardInterrupt
        sleep(0.001)

    monkeypatch.setattr(clusters.time, "sleep", interrupted)

    assert main(["up", "-d"]) == 130
    assert not is_alive(seen[0].pid)
    assert left_of(seen[0], file) == []
    assert sorted(os.listdir(tmp_path)) == ["certs", "cluster.toml"]


def test_a_node_that_hangs_does_not_outlive_its_launcher() -> None:
    code = "import time, crescando.nodes.__main__ as m; m.END_S = 0.1; m._parent(); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as node:
        assert node.stdin is not None
        node.stdin.close()

        assert node.wait(PATIENCE_S) == FAILED


class _Left:
    """A node whose process has left the cluster, since somebody had it leave."""

    reason = f"{LEFT}: nobody needs it"

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.ended.set()

    def start(self) -> None: ...

    def wait_ready(self, timeout_s: float, is_over: object) -> bool:
        return False

    def stop(self) -> None: ...


def test_who_was_asked_to_leave_has_ended_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    told: list[str] = []

    assert run_node(_Left(), ready=list, failed=told.append) == ENDED  # type: ignore[arg-type]
    # Its launcher hears why, and does not start it again.
    assert told == [_Left.reason]


class _Ready(_Left):
    """A node that takes part, and is then told that nobody needs it."""

    def wait_ready(self, timeout_s: float, is_over: object) -> bool:
        return True


def test_the_interpreter_is_tuned_before_a_node_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    done: list[str] = []
    monkeypatch.setattr(running, "tune_interpreter", lambda: done.append("tuned"))

    run_node(_Ready(), ready=lambda: done.append("ready"), failed=done.append)  # type: ignore[arg-type]
    assert done == ["tuned", "ready", _Left.reason]


def test_what_goes_against_each_other_is_refused(
    file: ClusterFile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "-d", "--node", "s1"]) == 2
    assert "a node runs in the foreground" in capsys.readouterr().err
    for arguments in (["up", "--timeout", "-1"], ["status", "--watch", "nan"], ["top", "--every", "-2"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "must be a number of seconds" in capsys.readouterr().err
    Path(".crescando").touch()
    assert main(["up"]) == 2
    assert ".crescando" in capsys.readouterr().err
    Path(".crescando").unlink()


def test_a_reader_that_leaves_is_no_fault(file: ClusterFile) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "crescando", "certs", "issue", "client/late"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        _, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, errors) == (141, "")
