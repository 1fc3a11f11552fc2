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
from collections.abc import Mapping
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
    settings : mapping of str to str

    Attributes
    ----------
    conninfo : str
        How clients of libpq reach it.
    """

    def __init__(self, n_bytes: int, *, port: int = 0, settings: Mapping[str, str] = SETTINGS) -> None:
        self._group = Group("postgres", n_bytes)
        folder = self._group.folder
        self._port = port or 5432
        self._settings = {**settings, "listen_addresses": HOST if port else ""}
        self.conninfo = self._conninfo(self._port)
        self._servers: list[subprocess.Popen[str]] = []
        try:
            user = _user()
            if user is not None:
                os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
            words = ("-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "-N")
            self._call("initdb", "-D", str(folder / "data"), *words)
            self._serve("data", self._port)
        except BaseException:
            self.close()
            raise

    def _conninfo(self, port: int) -> str:
        return f"host={self._group.folder} port={port} dbname=postgres user=bench"

    def _call(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs to its end."""
        programs = _programs()
        assert programs is not None
        done = subprocess.run(
            [programs / program, *arguments],
            cwd=self._group.folder,
            user=_user(),
            env={"PATH": os.environ.get("PATH", "")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerError(f"{program} failed: {done.stderr[-500:]}")

    def _serve(self, data: str, port: int) -> None:
        """Start a server on a folder of data, and wait until it answers."""
        import psycopg

        programs, folder = _programs(), self._group.folder
        assert programs is not None
        settings = {**self._settings, "port": str(port)}
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(folder / data), "-k", str(folder), *options]
        self._servers.append(self._group.start(data, command, user=_user()))

        def answers() -> bool:
            try:
                psycopg.connect(self._conninfo(port)).close()
            except psycopg.OperationalError:
                return False
            return True

        self._group.wait_until(answers, "answer of PostgreSQL")

    def add_standbys(self, n: int) -> None:
        """Start servers that follow this one, and let it wait for what they are to have applied.

        Its settings must allow that; sessions wait that set `synchronous_commit` to ``remote_apply``.
        """
        for number in range(1, n + 1):
            data = f"standby{number}"
            link = f"{self.conninfo} application_name={data}"
            folder = str(self._group.folder / data)
            self._call("pg_basebackup", "-D", folder, "-d", link, "-R", "-c", "fast", "-X", "stream")
            self._serve(data, self._port + number)
        with self.connect() as link:
            link.execute(f"alter system set synchronous_standby_names = '{n} (*)'")
            link.execute("select pg_reload_conf()")

            def in_step() -> bool:
                sql = "select count(*) from pg_stat_replication where sync_state = 'sync'"
                return bool(link.execute(sql).fetchone() == (n,))

            self._group.wait_until(in_step, "standbys in step")

    def connect(self) -> Any:
        """Give a connection of psycopg, each statement of which is a transaction."""
        import psycopg

        return psycopg.connect(self.conninfo, autocommit=True)

    @property
    def pid(self) -> int:
        """The server's process, which starts one for each connection."""
        return self._servers[0].pid

    def close(self) -> None:
        """End the server and remove what it kept; harmless when there is nothing."""
        while self._servers:
            server = self._servers.pop()
            if server.poll() is None:
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
