"""The reference launcher: every process of a cluster file as a node on this host.

Rules of the file: a cluster that runs has a folder of its own, locked by its
launcher for as long as it lives; whoever else wants something of it reads the
record in there. Every child leads a process group, so that nothing it started
outlives it, and ends by itself when its launcher is gone. Nothing is left
behind: no process, no port, no file.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from crescando.clusterfile import ClusterFile, Seat
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.nodes.files import certificate_for
from crescando.nodes.running import READY_S
from crescando.roles.following import LEFT
from crescando.warming import compiling

FOLDER = Path(".crescando")
"""Where clusters that run keep their records, in the folder in which they were started."""

_LOCK, _RECORD = "lock", "run.json"

END_S = 10.0
"""How long a node may take to end before it is killed."""

LOOK_S = 0.05

RESTART_S = 1.0
"""The pause before a node is started again; doubled each time that it does not live for long."""

RESTART_S_MAX = 60.0
LIVES_LONG_S = 30.0

_LOG_LINES = 12

Tell = Callable[[str], object]


class Running(msgspec.Struct, frozen=True):
    """The record of a cluster that runs.

    Attributes
    ----------
    name : str
    file : str
        The cluster file, absolute.
    folder : str
        Where paths in it are relative to.
    pid : int
        The launcher.
    nodes : dict
        The process id of each node that runs.
    is_ready : bool
        Whether every node has taken part.
    """

    name: str
    file: str
    folder: str
    pid: int
    nodes: dict[str, int]
    is_ready: bool = False


@dataclass
class _Child:
    """A node that was started."""

    seat: Seat
    incarnation: int
    process: subprocess.Popen[bytes]
    started_s: float
    is_ready: bool = False
    fault: str = ""
    unread: bytes = b""


@dataclass
class _Again:
    """When a node is to be started again."""

    at_s: float
    pause_s: float = RESTART_S
    incarnation: int = 1


class Launcher:
    """Starts, watches and ends the nodes of one cluster.

    Parameters
    ----------
    file : ClusterFile
    tell : callable
        Takes one line at a time about what happens.
    folder : Path, optional
        Where the record of the run is kept.
    module : str
        What runs a node, as ``python -m`` takes it; another one may look at the node, or ready its host.
    """

    def __init__(
        self,
        file: ClusterFile,
        tell: Tell = print,
        *,
        folder: Path = FOLDER,
        module: str = "crescando.nodes",
    ) -> None:
        self.file = file
        self.folder = folder / file.name
        self._module = module
        self._tell = tell
        self._children: dict[str, _Child] = {}
        self._again: dict[str, _Again] = {}
        self._incarnations: dict[str, int] = {}
        self._compiler: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._is_ready = False
        self._is_told = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the cluster's folder and start its nodes; end them, and remove it, in the end.

        Raises
        ------
        SpecError
            If the cluster runs already, or a port is taken.
        CrescandoError
            If a node cannot begin: the text ends with what it said last.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as lock:
            if not _try_lock(lock):
                raise SpecError(f"the cluster {self.file.name!r} runs already; end it with: crescando down")
            before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                self._start()
                yield
            finally:
                # A second Ctrl-C must not leave half of them behind.
                for number in before:
                    signal.signal(number, signal.SIG_IGN)
                self._end()
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._is_told = True

    # The beginning.

    def _start(self) -> None:
        _check_ports(self.file)
        certificates = {seat.node: certificate_for(self.file, seat) for seat in self.file.seats}
        self._warm()
        for seat in self.file.seats:
            self._spawn(seat, certificates[seat.node], 1 if seat.is_founding else 2)
        self._write_record()

    def _warm(self) -> None:
        """Have the kernels compiled once, if they are not; nobody waits for it."""
        command = compiling() if self.file.spec.engine == "scan" else None
        if command is not None:
            self._tell("compiling the kernels in the background; until then scans are slower")
            self._compiler = subprocess.Popen(  # Our own module.
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _spawn(self, seat: Seat, certificate: Path, incarnation: int) -> None:
        command = [sys.executable, "-m", self._module, str(self.file.path.resolve()), seat.node]
        command += ["--incarnation", str(incarnation), "--certificate", str(certificate.resolve())]
        with (self.folder / f"{seat.node}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, seat.node)
        self._children[seat.node] = _Child(seat, incarnation, process, time.monotonic())
        self._incarnations[seat.node] = incarnation

    def wait_ready(self, timeout_s: float = READY_S) -> bool:
        """Wait until every node takes part in the cluster; False if somebody ended it before.

        Raises
        ------
        CrescandoError
            If one cannot.
        DeadlineError
            If it takes longer.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self._is_told:
            self._look(LOOK_S)
            for child in self._children.values():
                if child.fault or child.process.poll() is not None:
                    raise CrescandoError(f"{child.seat.node} does not begin: {self._last_words(child)}")
            missing = [child.seat.node for child in self._children.values() if not child.is_ready]
            if not missing:
                self._is_ready = True
                self._write_record()
                return True
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"not ready after {timeout_s:.0f} s: {', '.join(missing)}")
        return False

    # While it runs.

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Look after the nodes until somebody ends the cluster (SIGTERM, Ctrl-C)."""
        while not self._is_told and not until():
            self._look(LOOK_S)
            self._reap()
            self._start_again()

    def _look(self, limit_s: float) -> None:
        """Take what the nodes say."""
        for key, _ in self._selector.select(limit_s):
            stream: Any = key.fileobj
            child = self._children[key.data]
            data = stream.read()
            if not data:
                self._selector.unregister(stream)
                continue
            *lines, child.unread = (child.unread + data).split(b"\n")
            for line in lines:
                self._take(child, line)

    def _take(self, child: _Child, line: bytes) -> None:
        try:
            said = msgspec.json.decode(line, type=dict[str, str])
        except msgspec.MsgspecError:
            # Some library's, and no reason to end a cluster.
            self._tell(f"{child.seat.node} prints: {line.decode(errors='replace')}")
            return
        if "ready" in said:
            child.is_ready = True
            self._tell(f"{said['ready']} takes part, at {child.seat.address}")
        child.fault = said.get("failed", "")

    def _reap(self) -> None:
        for node, child in list(self._children.items()):
            if child.process.poll() is None:
                continue
            self._look(0.0)
            self._forget(child)
            del self._children[node]
            self._tell(f"{node} has ended: {self._last_words(child)}")
            # Whoever was asked to leave is not wanted any more.
            if self.file.restart and not child.fault.startswith(LEFT):
                again = self._again.setdefault(node, _Again(0.0))
                now_s = time.monotonic()
                if now_s - child.started_s > LIVES_LONG_S:
                    again.pause_s = RESTART_S
                again.at_s, again.pause_s = now_s + again.pause_s, min(2 * again.pause_s, RESTART_S_MAX)
            self._write_record()

    def _start_again(self) -> None:
        for node, again in self._again.items():
            if node not in self._children and time.monotonic() >= again.at_s:
                seat = self.file.seat(node)
                try:
                    certificate = certificate_for(self.file, seat)
                except CrescandoError as error:
                    self._tell(f"{node} cannot be started again yet: {error}")
                    again.at_s = time.monotonic() + RESTART_S_MAX
                    continue
                incarnation = self._incarnations[node] + 1
                self._tell(f"{node} is started again, as its life {incarnation}")
                self._spawn(seat, certificate, incarnation)
                self._write_record()

    def _last_words(self, child: _Child) -> str:
        status = child.process.poll()
        if child.fault:
            return child.fault
        if status is not None and status < 0:
            return f"killed by signal {-status}"
        log = self.folder / f"{child.seat.node}.log"
        lines = log.read_text(errors="replace").strip().splitlines()[-_LOG_LINES:] if log.exists() else []
        return "\n  ".join((f"exit status {status}", *lines))

    def _write_record(self) -> None:
        record = Running(
            name=self.file.name,
            file=str(self.file.path.resolve()),
            folder=str(Path.cwd()),
            pid=os.getpid(),
            nodes={node: child.process.pid for node, child in self._children.items()},
            is_ready=self._is_ready,
        )
        draft = self.folder / f"{_RECORD}.new"
        draft.write_bytes(msgspec.json.encode(record))
        draft.replace(self.folder / _RECORD)

    # The end.

    def _end(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.process.terminate()
        deadline_s = time.monotonic() + END_S
        for child in self._children.values():
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline_s - time.monotonic()))
            self._forget(child)
        if self._compiler is not None:
            _end_group(self._compiler)
        self._children.clear()
        self._selector.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        # Others may run beside it.
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _forget(self, child: _Child) -> None:
        """End what is left of a child's process group, and the pipes to it."""
        _end_group(child.process)
        for stream in (child.process.stdin, child.process.stdout):
            if stream is not None:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                with suppress(BrokenPipeError):
                    stream.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and whatever it started; it leads a group that bears its own number."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check_ports(file: ClusterFile) -> None:
    """See that every port is free, before anything is started."""
    for seat in file.seats:
        family = socket.AF_INET6 if ":" in seat.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((file.listen or seat.host, seat.port))
            except OSError as error:
                raise SpecError(
                    f"{seat.node} cannot listen at {seat.address}: {error.strerror}; "
                    f"end what listens there, or choose another address in {file.path}"
                ) from error


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# What others can ask of a cluster that runs.


def find_running(name: str | None = None, *, folder: Path = FOLDER) -> Running | None:
    """Give the record of the cluster that runs here, if one does.

    Raises
    ------
    SpecError
        If several do, and no name says which.
    """
    found = []
    for record in sorted(folder.glob(f"*/{_RECORD}")):
        with suppress(OSError, msgspec.MsgspecError):
            running = msgspec.json.decode(record.read_bytes(), type=Running)
            if name in (None, running.name) and _is_held(record.parent / _LOCK):
                found.append(running)
    if len(found) > 1:
        names = ", ".join(running.name for running in found)
        raise SpecError(f"several clusters run here: {names}; say which with -f FILE")
    return found[0] if found else None


def end_running(running: Running, timeout_s: float = 3 * END_S, *, folder: Path = FOLDER) -> None:
    """End a cluster that runs here, and wait until nothing of it is left.

    Raises
    ------
    DeadlineError
        If it takes longer.
    """
    # The lock is held, so the number is its launcher's.
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while _is_held(folder / running.name / _LOCK):
        if time.monotonic() > deadline_s:
            raise DeadlineError(
                f"the launcher, process {running.pid}, has not ended within {timeout_s:.0f} s; kill it: "
                "its nodes end by themselves"
            )
        time.sleep(LOOK_S)
    # Nothing is left but the end of its interpreter.
    while is_alive(running.pid) and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended, and nobody has asked how, does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        # Not everywhere is there a /proc.
        return True


def _is_held(path: Path) -> bool:
    """Say whether a launcher that lives holds a lock."""
    try:
        with path.open("r+") as lock:
            return not _try_lock(lock)
    except OSError:
        return False
