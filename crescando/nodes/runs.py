"""A run of a cluster on this host: its folder, the lock on that, and the record in it.

Rules of the file: the folder belongs to whoever holds its lock, which ends with
that process however it ends; a record is true only while the lock is held. Whoever
only looks shares the lock with others who look, so that nobody takes them for a launcher.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from crescando.errors import DeadlineError, SpecError
from crescando.nodes.running import END_S

FOLDER = Path(".crescando")
"""Where clusters that run keep their records, in the folder in which they were started."""

LOOK_S = 0.05

TAKE_S = 0.3
"""How long a folder is tried to be taken: whoever looks at it holds its lock for a moment."""

_LOCK, _RECORD = "lock", "run.json"


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


# For its launcher.


def make_folder(folder: Path, name: str) -> Path:
    """Make the folder of a cluster that is to run here, for its launcher.

    Raises
    ------
    SpecError
        If the cluster runs already, or the folder cannot be written.
    """
    if is_held(folder / name):
        raise _runs_already(name)
    try:
        (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from error
    return folder / name


def take(folder: Path, name: str) -> IO[str]:
    """Hold a cluster's folder until the file that this gives is closed.

    Raises
    ------
    SpecError
        If a launcher that lives holds it, or it cannot be written.
    """
    end_s = time.monotonic() + TAKE_S
    try:
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / _LOCK).open("w")
            if _try_lock(lock, fcntl.LOCK_EX) and _is_there(lock, folder / _LOCK):
                # Of a launcher that was killed; it was true while that lived.
                (folder / _RECORD).unlink(missing_ok=True)
                return lock
            lock.close()
            if time.monotonic() > end_s:
                raise _runs_already(name)
            time.sleep(LOOK_S)
    except OSError as error:
        raise _not_writable(folder, error) from error


def _runs_already(name: str) -> SpecError:
    return SpecError(f"the cluster {name!r} runs already; end it with: crescando down")


def _not_writable(folder: Path, error: OSError) -> SpecError:
    return SpecError(f"{folder} cannot be written: {error.strerror}; start the cluster in a folder of yours")


def write_record(folder: Path, record: Running) -> None:
    """Say what runs; all of it or nothing.

    Raises
    ------
    SpecError
        If the folder cannot be written.
    """
    draft = folder / f"{_RECORD}.new"
    try:
        draft.write_bytes(msgspec.json.encode(record))
        draft.replace(folder / _RECORD)
    except OSError as error:
        raise SpecError(f"{draft} cannot be written: {error.strerror}") from error


def remove(folder: Path) -> None:
    """Take a run's folder away."""
    shutil.rmtree(folder, ignore_errors=True)
    # Others may run beside it.
    with suppress(OSError):
        folder.parent.rmdir()


# For everybody else.


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
            if name in (None, running.name) and is_held(record.parent):
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
    while is_held(folder / running.name):
        if time.monotonic() > deadline_s:
            raise DeadlineError(
                f"the launcher, process {running.pid}, has not ended within {timeout_s:.0f} s; kill it: "
                "its nodes end by themselves"
            )
        time.sleep(LOOK_S)
    # Nothing is left but the end of its interpreter.
    while is_alive(running.pid) and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)


def is_held(folder: Path) -> bool:
    """Say whether a launcher that lives holds a cluster's folder."""
    try:
        with (folder / _LOCK).open() as lock:
            return not _try_lock(lock, fcntl.LOCK_SH)
    except OSError:
        return False


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


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_there(lock: IO[str], path: Path) -> bool:
    """Say whether a file is still the one of its name: its former holder may have taken it away."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
