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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crescando.engine import kernels

VARIABLE = "CRESCANDO_KERNELS"
"""Environment variable: ``numpy`` or ``numba`` to insist, anything else for the better of the two."""

_COMPILE_LIMIT_S = 900.0
"""A busy machine takes several minutes, and longer for whoever waits for another process to compile."""
_READY, _LOCK = "ready", "lock"

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_thread: threading.Thread | None = None


def warm_kernels() -> threading.Thread | None:
    """Begin to make the compiled kernels ready, once in a process; returns at once.

    Returns
    -------
    threading.Thread or None
        The thread that does it, for those who want to wait; None if the NumPy kernels are to stay.
    """
    global _thread
    with _lock:
        if _thread is None and os.environ.get(VARIABLE, "") != "numpy":
            _thread = threading.Thread(target=_warm, name="crescando-warming", daemon=True)
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


def _warm() -> None:
    try:
        if importlib.util.find_spec("numba") is None:
            _log.info("numba is not installed: scanning with the NumPy kernels; answers are the same")
            return
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        if not (place / _READY).exists():
            _compile_elsewhere(place)
        load(place)
    except Exception as error:  # noqa: BLE001  # Whatever is wrong with a compiler, the store goes on without.
        _log.warning("scanning with the NumPy kernels, since the compiled ones cannot be had: %s", error)


def _compile_elsewhere(place: Path) -> None:
    """Have another process compile, so that this one's interpreter stays free."""
    command = [sys.executable, "-m", "crescando.warming", str(place)]
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
    main(Path(sys.argv[1]))
