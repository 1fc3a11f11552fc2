"""A PostgreSQL server of a benchmark's own: in memory, nobody else's, gone when it is closed.

Rules of the file: nothing waits for a disk (``fsync`` off, all files in memory
where that has room). The server runs as a user without privileges, as it demands, and is
ended by its pid, also when the benchmark dies.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.processes import HOST, Group
from benchmarks.peers.result import PeerError

STOP_S = 10.0
"""Time that the server has to stop by itself."""

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
    "shared_buffers": "1GB",
    "work_mem": "64MB",
    "maintenance_work_mem": "256MB",
    "autovacuum": "off",
    "jit": "off",
    # Shared memory as files of its own folder, so that nothing outlives it.
    "dynamic_shared_memory_type": "mmap",
    "max_connections": "20",
}


def unavailable() -> str:
    """Give "" if a server can run here, else why not."""
    if _programs() is None:
        return "PostgreSQL's programs are not installed; apt-get install postgresql"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user to run it as"
    return ""


class PostgresServer:
    """One server with an empty database, which answers.

    Parameters
    ----------
    n_bytes : int
        What it will keep, about.
    port : int
        Where it listens on loopback; 0 for a socket of the file system only.

    Attributes
    ----------
    conninfo : str
        How clients of libpq reach it.
    """

    def __init__(self, n_bytes: int, *, port: int = 0) -> None:
        self._group = Group("postgres", n_bytes)
        folder = self._group.folder
        self.conninfo = f"host={folder} port={port or 5432} dbname=postgres user=bench"
        self._server: subprocess.Popen[str] | None = None
        try:
            self._start(folder, port)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path, port: int) -> None:
        import psycopg

        programs, user = _programs(), _user()
        assert programs is not None
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data = folder / "data"
        made = subprocess.run(
            [programs / "initdb", "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "-N"],
            cwd=folder,
            user=user,
            env={"PATH": os.environ.get("PATH", "")},
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise PeerError(f"initdb failed: {made.stderr[-500:]}")
        settings = SETTINGS | {"listen_addresses": HOST if port else "", "port": str(port or 5432)}
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), *options]
        self._server = self._group.start("postgres", command, user=user)

        def answers() -> bool:
            try:
                psycopg.connect(self.conninfo).close()
            except psycopg.OperationalError:
                return False
            return True

        self._group.wait_until(answers, "answer of PostgreSQL")

    def connect(self) -> Any:
        """Give a connection of psycopg, each statement of which is a transaction."""
        import psycopg

        return psycopg.connect(self.conninfo, autocommit=True)

    @property
    def pid(self) -> int:
        """The server's process, which starts one for each connection."""
        assert self._server is not None
        return self._server.pid

    def close(self) -> None:
        """End the server and remove what it kept; harmless when there is nothing."""
        server, self._server = self._server, None
        if server is not None and server.poll() is None:
            # An immediate shutdown; killed at once, it would leave a segment of shared memory behind.
            server.send_signal(signal.SIGQUIT)
            with suppress(subprocess.TimeoutExpired):
                server.wait(STOP_S)
        self._group.close()


def _programs() -> Path | None:
    """Give the folder of the server's programs; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def _user() -> str | None:
    """Give whom the server runs as: this process's user, unless that is root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None
