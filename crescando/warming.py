"""Which kernels scan: NumPy's from the first moment on, compiled ones as soon as they are ready.

Rules of the file: nobody waits for a compiler. The first process on a machine
has another one compile, at low priority, into a folder of ours; every process
then loads what lies there, in a thread, in half a second. Where that is not
possible (no numba, nowhere to write) the NumPy kernels stay, one line in the
log says why, and every answer is the same.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crescando.engine import kernels

VARIABLE = "CRESCANDO_KERNELS"
"""Environment variable: ``numpy`` or ``numba`` to insist, anything else for the better of the two."""

_COMPILE_LIMIT_S = 900.0
"""A busy machine takes several minutes, and longer for whoever waits for another process to compile."""
_LOOK_S = 0.5
_READY, _LOCK = "ready", "lock"
_COMPILE = [sys.executable, "-m", "crescando.warming"]

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_thread: threading.Thread | None = None


def warm_kernels(*, compiles: bool = True) -> threading.Thread | None:
    """Begin to make the compiled kernels ready, once in a process; returns at once.

    Parameters
    ----------
    compiles : bool
        Whether to have them compiled if nobody has; else it is waited, in the thread,
        until somebody has done it: the launcher does it once for all of its nodes.

    Returns
    -------
    threading.Thread or None
        The thread that does it, for those who want to wait; None if the NumPy kernels are to stay.
    """
    global _thread
    with _lock:
        if _thread is None and os.environ.get(VARIABLE, "") != "numpy":
            _thread = threading.Thread(target=_warm, args=(compiles,), name="crescando-warming", daemon=True)
            _thread.start()
        return _thread


def folder() -> Path:
    """Give where compiled kernels are kept, by what they depend on.

    That is the sources, the interpreter, numba and the kind of machine; numba
    itself tells processors apart inside, and finds nothing of a source that lies
    elsewhere or is newer, however equal it is.
    """
    sources = Path(kernels.__file__).resolve().parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(sources.glob("*.py")):
        digest.update(f"{source} {source.stat().st_mtime_ns}\n".encode())
        digest.update(source.read_bytes())
    version = importlib.metadata.version("numba")
    python = f"{sys.implementation.cache_tag}-{platform.machine()}"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "crescando" / "kernels" / f"{python}-numba-{version}-{digest.hexdigest()}"


def compiling() -> list[str] | None:
    """Give the command that compiles the kernels; None if they are ready, or cannot or must not be."""
    if os.environ.get(VARIABLE, "") == "numpy" or importlib.util.find_spec("numba") is None:
        return None
    place = folder()
    return None if (place / _READY).exists() else [*_COMPILE, str(place)]


def _warm(compiles: bool) -> None:
    try:
        if importlib.util.find_spec("numba") is None:
            _log.info("numba is not installed: scanning with the NumPy kernels; answers are the same")
            return
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        if not (place / _READY).exists():
            if compiles:
                _compile_elsewhere(place)
            else:
                _await_others(place)
        load(place)
    except Exception as error:  # noqa: BLE001  # Whatever is wrong with a compiler, the store goes on without.
        _log.warning("scanning with the NumPy kernels, since the compiled ones cannot be had: %s", error)


def _compile_elsewhere(place: Path) -> None:
    """Have another process compile, so that this one's interpreter stays free."""
    command = [*_COMPILE, str(place)]
    done = subprocess.run(  # The command is our own module.
        command,
        capture_output=True,
        text=True,
        timeout=_COMPILE_LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise OSError(f"compiling failed: {last[0]}")


def _await_others(place: Path) -> None:
    """Wait until the kernels have been compiled by somebody else."""
    end_s = time.monotonic() + _COMPILE_LIMIT_S
    while not (place / _READY).exists():
        if time.monotonic() > end_s:
            raise OSError(f"nobody has compiled them within {_COMPILE_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)


def load(place: Path) -> None:
    """Load the compiled kernels, or compile them into `place`, and put them in use."""
    from numba import config

    # The setting is the process's; it is ours only while our own functions are made.
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(place)
    try:
        from crescando.engine.kernels.compiled import KERNELS
    finally:
        settings.CACHE_DIR = before
    kernels.use(KERNELS)


def main(place: Path) -> None:
    """Compile into a folder, and mark it ready; of many who want to, one does and the others wait for it."""
    if hasattr(os, "nice"):
        os.nice(10)
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        if not (place / _READY).exists():
            load(place)
            (place / _READY).touch()


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other processes out of a folder, where the system has locks that end with their holder."""
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    import fcntl

    with (place / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else folder())
