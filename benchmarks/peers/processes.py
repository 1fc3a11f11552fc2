"""Real processes on loopback, with one folder in memory, all gone when the group is closed.

Rules of the file: every process is known by its own `Popen` and ended by its
pid, never by name. A group is closed by whoever opened it, also on errors; if
the benchmark dies before that, its leash (`leash.py`) does the rest. Servers are
killed, not asked: they keep nothing that is worth saving.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.result import PeerError

HOST = "127.0.0.1"
POLL_S = 0.02
LEASH = Path(__file__).with_name("leash.py")


def free_ports(count: int) -> list[int]:
    """Give ports of loopback that nobody listens on, all different.

    Another program may take one before it is used; whoever starts servers on
    them tries again with others.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def memory_folder(n_bytes: int = 0) -> str | None:
    """Give a folder whose files live in memory and that has room, or None where the machine has none."""
    if not os.access("/dev/shm", os.W_OK) or shutil.disk_usage("/dev/shm").free < n_bytes:
        return None
    return "/dev/shm"


class Group:
    """The processes of one peer.

    Parameters
    ----------
    name : str
        Becomes part of the folder's name.
    n_bytes : int
        What the processes will keep in the folder, about.
    """

    def __init__(self, name: str, n_bytes: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"peer-{name}-", dir=memory_folder(n_bytes)))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(self.folder)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
        user: str | None = None,
    ) -> subprocess.Popen[str]:
        """Start one process; what it prints goes to a file in the folder.

        Parameters
        ----------
        name : str
            Unique in the group.
        command : sequence of str
            Program and arguments.
        environment : mapping of str to str, optional
            Added to this process's own.
        piped : bool
            Whether standard input and output are pipes for the caller; errors
            still go to the file.
        user : str, optional
            Whom it runs as, if not as this process's own user.
        """
        pipe = subprocess.PIPE if piped else None
        with open(self.log(name), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                text=True,
                bufsize=1 if piped else -1,
                # An interrupt at the keyboard reaches only the benchmark, which then closes the group.
                start_new_session=True,
                user=user,
            )
        self._processes[name] = process
        self._tell_leash(f"+{process.pid}")
        return process

    def log(self, name: str) -> Path:
        """Give the file that the process `name` prints to."""
        return self.folder / f"{name}.log"

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        """Ask until `condition` holds.

        Raises
        ------
        PeerError
            If a process of the group ends meanwhile or the time is over; with the last lines it printed.
        """
        deadline_s = time.monotonic() + limit_s
        while not condition():
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise PeerError(f"{ended[0]} ended while waiting for {what}:\n{self._tail(ended[0])}")
            if time.monotonic() > deadline_s:
                tails = "\n".join(self._tail(name) for name in self._processes)
                raise PeerError(f"no {what} within {limit_s:g} s:\n{tails}")
            time.sleep(POLL_S)

    def kill(self, name: str) -> float:
        """Kill one process at once (SIGKILL); give when, on the monotonic clock."""
        process = self._processes.pop(name)
        killed_s = time.monotonic()
        process.kill()
        self._reap(process)
        return killed_s

    def close(self) -> None:
        """End every process and remove the folder. Closing twice is harmless."""
        # Killed together before any is waited for: a survivor would only start an election.
        for process in self._processes.values():
            process.kill()
        while self._processes:
            self._reap(self._processes.popitem()[1])
        if self._leash.stdin is not None and not self._leash.stdin.closed:
            self._leash.stdin.close()
        self._leash.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _reap(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._tell_leash(f"-{process.pid}")

    def _tell_leash(self, line: str) -> None:
        assert self._leash.stdin is not None
        self._leash.stdin.write(line + "\n")
        self._leash.stdin.flush()

    def _tail(self, name: str, lines: int = 8) -> str:
        text = self.log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {name}: {line}" for line in text.splitlines()[-lines:])
