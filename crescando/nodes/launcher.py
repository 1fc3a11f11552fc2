"""The reference launcher: every process of a cluster file as a node on this host.

Rules of the file: a cluster that runs has a folder of its own, locked by its
launcher for as long as it lives (`runs`). Every child leads a process group, so
that nothing it started outlives it, and ends by itself when its launcher is gone.
Nothing is left behind: no process, no port, no file. Once the cluster is ready, a
disk that is full and a terminal that is gone are no reason to end it: it needs neither.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crescando.clusterfile import ClusterFile, Seat
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.nodes.files import certificate_for
from crescando.nodes.logs import cut_logs, last_lines
from crescando.nodes.running import END_S, READY_S
from crescando.nodes.runs import FOLDER, LOOK_S, Running, remove, take, write_record
from crescando.roles.following import LEFT
from crescando.warming import compiling

RESTART_S = 1.0
"""The pause before a node is started again; doubled each time that it does not live for long."""

RESTART_S_MAX = 60.0
LIVES_LONG_S = 30.0

LOGS_S = 10.0
"""How often logs are looked at."""

_LOG_LINES = 12

Tell = Callable[[str], object]


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
        self._logs_s = 0.0

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
        with take(self.folder, self.file.name):
            before = {number: signal.signal(number, self._stop) for number in _ending()}
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
        try:
            # From here on `down` finds it.
            self._write_record()
            _check_ports(self.file)
            certificates = {seat.node: certificate_for(self.file, seat) for seat in self.file.seats}
            self._warm()
            for seat in self.file.seats:
                self._spawn(seat, certificates[seat.node], 1 if seat.is_founding else 2)
            self._write_record()
        except OSError as error:
            raise CrescandoError(f"the cluster {self.file.name!r} cannot be started: {error}") from error

    def _warm(self) -> None:
        """Have the kernels compiled once, if they are not; nobody waits for it."""
        command = compiling() if self.file.spec.engine == "scan" else None
        if command is not None:
            self._say("compiling the kernels in the background; until then scans are slower")
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
            if self._reap() | self._start_again():
                try:
                    self._write_record()
                except SpecError as error:
                    self._say(f"the record of the run is not up to date: {error}")
            if time.monotonic() > self._logs_s:
                self._logs_s = time.monotonic() + LOGS_S
                cut_logs(self.folder)

    def _say(self, line: str) -> None:
        # Whoever reads it may have left, and a log's disk may be full.
        with suppress(OSError):
            self._tell(line)

    def _look(self, limit_s: float) -> None:
        """Take what the nodes say."""
        for key, _ in self._selector.select(limit_s):
            stream: Any = key.fileobj
            child = self._children[key.data]
            data = stream.read()
            if data is None:
                # Nothing yet, after all.
                continue
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
            self._say(f"{child.seat.node} prints: {line.decode(errors='replace')}")
            return
        if "ready" in said:
            child.is_ready = True
            self._say(f"{said['ready']} takes part, at {child.seat.address}")
        child.fault = said.get("failed", "")

    def _reap(self) -> bool:
        """Note who has ended; says whether anybody has."""
        ended = [child for child in self._children.values() if child.process.poll() is not None]
        for child in ended:
            node = child.seat.node
            self._look(0.0)
            self._forget(child)
            del self._children[node]
            self._say(f"{node} has ended: {self._last_words(child)}")
            # Whoever was asked to leave is not wanted any more.
            if self.file.restart and not child.fault.startswith(LEFT):
                again = self._again.setdefault(node, _Again(0.0))
                now_s = time.monotonic()
                if now_s - child.started_s > LIVES_LONG_S:
                    again.pause_s = RESTART_S
                again.at_s, again.pause_s = now_s + again.pause_s, min(2 * again.pause_s, RESTART_S_MAX)
        return bool(ended)

    def _start_again(self) -> bool:
        """Start whose pause is over; says whether anybody was."""
        n_before = len(self._children)
        for node, again in self._again.items():
            if node not in self._children and time.monotonic() >= again.at_s:
                seat = self.file.seat(node)
                try:
                    self._spawn(seat, certificate_for(self.file, seat), self._incarnations[node] + 1)
                except (CrescandoError, OSError) as error:
                    self._say(f"{node} cannot be started again yet: {error}")
                    again.at_s = time.monotonic() + RESTART_S_MAX
                else:
                    self._say(f"{node} is started again, as its life {self._incarnations[node]}")
        return len(self._children) > n_before

    def _last_words(self, child: _Child) -> str:
        status = child.process.poll()
        if child.fault:
            return child.fault
        if status is not None and status < 0:
            return f"killed by signal {-status}"
        lines = last_lines(self.folder / f"{child.seat.node}.log", _LOG_LINES)
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
        write_record(self.folder, record)

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
        remove(self.folder)

    def _forget(self, child: _Child) -> None:
        """End what is left of a child's process group, and the pipes to it."""
        _end_group(child.process)
        for stream in (child.process.stdin, child.process.stdout):
            if stream is not None:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                with suppress(BrokenPipeError):
                    stream.close()


def _ending() -> tuple[int, ...]:
    """Give the signals that end a cluster; not the end of a terminal that it is to outlive (nohup)."""
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if outlives else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
