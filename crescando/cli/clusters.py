"""``crescando up``, ``down`` and ``status``: a cluster of operating-system processes from one file.

Rules of the file: arguments in, lines or one JSON object out; processes are
started and asked in `crescando.nodes`. Exit statuses are in `docs/operations.md`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crescando.errors import SpecError

if TYPE_CHECKING:
    from crescando.client.store import Store
    from crescando.clusterfile import ClusterFile
    from crescando.remote import RemoteCluster
    from crescando.types import ProcessId

FILE = Path("cluster.toml")

ADMIN = "admin"
"""The client as which the command line asks; ``crescando certs init`` makes its file."""

WATCH_S = 2.0
LOOK_S = 0.05

_CLEAR = "\x1b[H\x1b[2J"


def add_to(commands: Any) -> None:
    """Add the commands to those of the program."""
    up = commands.add_parser(
        "up",
        help="start a cluster on this host, or one node of it",
        description="Starts every process of a cluster file as an operating-system process on this host, "
        "says when all take part, and ends them with Ctrl-C. With --node it is one of them.",
    )
    up.add_argument("-f", "--file", type=Path, default=FILE, help=f"the cluster file (default: {FILE})")
    up.add_argument("-d", "--detach", action="store_true", help="return when it is ready; end it with `down`")
    up.add_argument("--timeout", type=seconds, default=None, help="seconds that it may take to be ready")
    up.add_argument("--node", metavar="NAME", help="start only this process, in the foreground")
    up.add_argument(
        "--found",
        action="store_true",
        help="with --node: this is the first life of a process with which the cluster begins; "
        "without it the process joins the cluster that runs",
    )
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="end the cluster that was started here")
    down.add_argument("-f", "--file", type=Path, default=None, help="its file, if several run here")
    down.set_defaults(run=_down)

    status = commands.add_parser("status", help="say how a cluster and each of its nodes are")
    add_file(status)
    status.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=WATCH_S,
        metavar="SECONDS",
        help=f"go on, every so many seconds (default: {WATCH_S:g})",
    )
    status.set_defaults(run=_status)

    doctor = commands.add_parser(
        "doctor",
        help="look for what is wrong, or will be, with a cluster and this host, and say what mends it",
    )
    doctor.add_argument(
        "what", nargs="?", choices=("cluster", "spark"), default="cluster", help="by default the cluster"
    )
    add_file(doctor)
    doctor.set_defaults(run=_doctor)


def _doctor(parsed: argparse.Namespace) -> int:
    from crescando.nodes.doctor import examine

    if parsed.what == "spark":
        from crescando.spark.doctor import examine_spark

        findings = examine_spark()
    else:
        file, folder = find_file(parsed.file)
        with chdir(folder):
            findings = examine(file, client=ADMIN)
    is_well = all(finding.grade != "fault" for finding in findings)
    if parsed.json:
        told = [
            {name: getattr(each, name) for name in ("what", "grade", "text", "mend")} for each in findings
        ]
        print(json.dumps({"is_well": is_well, "findings": told}))
    else:
        print("\n".join(map(str, findings)))
    return 0 if is_well else 1


def seconds(text: str) -> float:
    """Read a length of time."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds, at least 0")
    return value


def add_file(command: argparse.ArgumentParser) -> None:
    """Add what every command that looks at a cluster takes."""
    command.add_argument(
        "-f", "--file", type=Path, default=None, help=f"the cluster file (default: what runs here, or {FILE})"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


# Starting and ending.


def _up(parsed: argparse.Namespace) -> int:
    from crescando.clusterfile import read_cluster_file
    from crescando.nodes.launcher import Launcher
    from crescando.nodes.running import READY_S

    file = read_cluster_file(parsed.file)
    timeout_s = READY_S if parsed.timeout is None else parsed.timeout
    if parsed.node is not None:
        if parsed.detach:
            raise SpecError("a node runs in the foreground: leave out -d, or have a service manager start it")
        return _one_node(file, parsed, timeout_s)
    if parsed.found:
        raise SpecError("--found goes with --node; without it the whole cluster begins anyway")
    if parsed.detach:
        return _detached(file, timeout_s)
    launcher = Launcher(file, _say)
    began_s = time.monotonic()
    with launcher.running():
        if launcher.wait_ready(timeout_s):
            _say(
                f"the cluster {file.name!r} is ready after {time.monotonic() - began_s:.1f} s: {url_of(file)}"
            )
            launcher.watch()
    _say(f"the cluster {file.name!r} has ended")
    return 0


def _one_node(file: ClusterFile, parsed: argparse.Namespace, timeout_s: float) -> int:
    from crescando.nodes.running import make_node, run_node

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # Nobody remembers the former lives: the calendar gives a number above all of them.
    node = make_node(file, parsed.node, 1 if parsed.found else time.time_ns() // 1_000_000)
    return run_node(
        node,
        ready=lambda: _say(f"{node.me} takes part, at {file.seat(parsed.node).address}"),
        failed=lambda why: print(f"crescando: {node.me}: {why}", file=sys.stderr),
        ready_s=timeout_s,
    )


def _detached(file: ClusterFile, timeout_s: float) -> int:
    """Start a launcher of its own session, and return when it is ready."""
    from crescando.nodes.runs import FOLDER, find_running, make_folder

    folder = make_folder(FOLDER, file.name)
    # At its end, wherever that is: it may be cut.
    with (folder / "launcher.log").open("a+b") as log:
        log.truncate(0)
        command = [sys.executable, "-m", "crescando", "up", "-f", str(file.path), "--timeout", str(timeout_s)]
        launcher = subprocess.Popen(  # Our own module.
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while launcher.poll() is None:
                running = find_running(file.name)
                if running is not None and running.pid == launcher.pid and running.is_ready:
                    _say(f"the cluster {file.name!r} is ready: {url_of(file)}")
                    return 0
                time.sleep(LOOK_S)
        except BaseException:
            # Whoever was told of no cluster is not to have one.
            _end(launcher, folder)
            raise
        # The folder is gone, and what was written into it is still open here.
        log.seek(0)
        print(log.read().decode(errors="replace").strip(), file=sys.stderr)
    return max(launcher.returncode, 0) or 2


def _end(launcher: subprocess.Popen[bytes], folder: Path) -> None:
    """End a launcher and its nodes, and see that its folder is gone: it may not have come that far."""
    from crescando.nodes.running import END_S
    from crescando.nodes.runs import is_held, remove

    launcher.terminate()
    try:
        launcher.wait(2 * END_S)
    except subprocess.TimeoutExpired:
        # Its nodes end by themselves.
        launcher.kill()
        launcher.wait()
    if not is_held(folder):
        remove(folder)


def _down(parsed: argparse.Namespace) -> int:
    from crescando.clusterfile import read_cluster_file
    from crescando.nodes.runs import end_running, find_running

    name = None if parsed.file is None else read_cluster_file(parsed.file).name
    running = find_running(name)
    if running is None:
        raise SpecError("no cluster runs here; look in the folder in which it was started")
    end_running(running)
    _say(f"the cluster {running.name!r} has ended")
    return 0


@contextmanager
def demonstrated(table: str) -> Iterator[tuple[Store[Any], int, Callable[[ProcessId], None]]]:
    """Open the store of the cluster that was started here, for somebody who makes a table.

    Yields
    ------
    tuple
        The store, how many copies of each row it keeps, and what kills a process of it.

    Raises
    ------
    SpecError
        If no cluster runs here, or has a table of that name, which is somebody's.
    """
    from crescando.nodes.runs import find_running

    running = find_running()
    if running is None:
        raise SpecError("no cluster runs here; start one with: crescando up -d")
    file, _ = find_file(Path(running.file))

    def kill(process: ProcessId) -> None:
        # Looked up anew: a node that was started again is another process.
        present = find_running(running.name)
        if present is None or process.node not in present.nodes:
            raise SpecError(f"{process} does not run here")
        os.kill(present.nodes[process.node], signal.SIGKILL)

    with connected(file, Path(running.folder)) as store:
        if table in store.tables():
            raise SpecError(
                f"the cluster has a table {table!r}, which the demo would take away; drop it yourself, "
                "or run the demo on another cluster"
            )
        # Its sessions begin with the first question, which must not be asked under load.
        store.cluster.status()
        try:
            yield store, file.spec.replication, kill
        finally:
            if table in store.tables():
                store.drop_table(table)


@contextmanager
def connected(file: ClusterFile, folder: Path) -> Iterator[Store[RemoteCluster]]:
    """Open a cluster's store as its administrator."""
    from crescando.remote import connect

    with connect(url_of(file), tls=folder / file.certificates, client=ADMIN) as store:
        yield store


# Looking.


def _status(parsed: argparse.Namespace) -> int:
    from crescando.nodes.files import client_credentials
    from crescando.nodes.health import look

    file, folder = find_file(parsed.file)
    with chdir(folder):
        credentials = client_credentials(file.certificates, ADMIN)
    while True:
        health = look(file, credentials)
        text = json.dumps(health.to_json()) if parsed.json else str(health)
        if parsed.watch is None:
            print(text)
            return 0 if health.is_well else 1
        print(text if parsed.json else _CLEAR + text, flush=True)
        time.sleep(parsed.watch)


def find_file(given: Path | None) -> tuple[ClusterFile, Path]:
    """Give the cluster file that is meant, and the folder in which its paths begin.

    Raises
    ------
    SpecError
        If there is none.
    """
    from crescando.clusterfile import read_cluster_file
    from crescando.nodes.runs import find_running

    if given is not None:
        return read_cluster_file(given), Path.cwd()
    running = find_running()
    if running is not None:
        return read_cluster_file(running.file), Path(running.folder)
    if FILE.exists():
        return read_cluster_file(FILE), Path.cwd()
    raise SpecError(f"no cluster runs here, and there is no {FILE}; name a cluster file with -f")


def url_of(file: ClusterFile) -> str:
    """Give the address at which clients find a cluster."""
    routers = [seat.address for seat in file.seats if seat.role == "router"]
    return f"crescando://{','.join(routers)}"


def _say(line: str) -> None:
    print(line, flush=True)
