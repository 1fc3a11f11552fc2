"""Ours: a cluster of real processes over mutual TLS, loaded and extracted by its data source.

Rules of the file: the reference launcher starts the cluster, from a file with free
ports and an authority of its own; it is ended by its pid, and ends when the benchmark does.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.exchange.side import KEY, Side
from benchmarks.peers.processes import HOST, Group, free_ports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUTERS, SUPERS = 3, 1
CLIENT = "spark"
ROOM_BYTES = 1 << 26
STOP_S = 30.0
READY_S = 300.0
TIMEOUT_S = 600.0

KINDS = {"r": "routers", "s": "storage", "u": "supers"}


class Cluster:
    """A cluster of processes on loopback.

    Parameters
    ----------
    storages, replication : int

    Attributes
    ----------
    url : str
    certificate : Path
        Of the client ``spark``.
    """

    def __init__(self, storages: int, replication: int) -> None:
        from crescando.certificates import Authority
        from crescando.clusterfile import read_cluster_file

        self._group = Group("crescando", ROOM_BYTES)
        self._launcher: subprocess.Popen[str] | None = None
        folder = self._group.folder
        counts = {"r": ROUTERS, "s": storages, "u": SUPERS}
        nodes = [f"{kind}{i}" for kind, count in counts.items() for i in range(1, count + 1)]
        ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
        path = folder / "cluster.toml"
        path.write_text(
            f"[cluster]\nname = 'bench'\nreplication = {replication}\nrestart = false\n"
            f"certificates = '{folder}/certs'\n"
            f"[routers]\ncount = {ROUTERS}\n[storages]\ncount = {storages}\n[supers]\ncount = {SUPERS}\n"
            "[addresses]\n" + "".join(f"{node} = '{HOST}:{port}'\n" for node, port in ports.items()),
            encoding="utf-8",
        )
        try:
            authority = Authority.create(folder / "certs", cluster="bench")
            self.certificate = authority.issue(f"client/{CLIENT}")
            self._launcher = self._group.start(
                "launcher", [sys.executable, "-m", "crescando", "up", "-f", str(path)]
            )
            routers = [seat.address for seat in read_cluster_file(path).seats if seat.role == "router"]
            self.url = "crescando://" + ",".join(routers)
            self._group.wait_until(self._is_ready, "cluster that is ready", READY_S)
        except BaseException:
            self.close()
            raise

    def _is_ready(self) -> bool:
        return bool(self._record().get("is_ready"))

    def _record(self) -> dict[str, Any]:
        path = self._group.folder / ".crescando" / "bench" / "run.json"
        try:
            record: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return record

    def pids(self) -> dict[str, list[int]]:
        """Give the nodes' processes by role."""
        told: dict[str, list[int]] = {}
        for node, pid in self._record().get("nodes", {}).items():
            told.setdefault(KINDS[node[0]], []).append(pid)
        return told

    def close(self) -> None:
        """End every process; harmless when there is none."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None and launcher.poll() is None:
            # Its nodes lead groups of their own: it is asked, so that it ends them.
            launcher.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(STOP_S)
        self._group.close()


class Crescando(Side):
    """The data source, to a cluster with so many copies of each row."""

    lacks = "a disk"

    def __init__(self, spark: SparkSession, schema: Any, *, replication: int) -> None:
        super().__init__(spark, schema)
        self.replication = replication
        self.storages = max(2, replication)
        self.name = f"crescando, f = {replication}"

    def open(self) -> None:
        import crescando
        from crescando.spark import table_schema

        self._cluster = Cluster(self.storages, self.replication)
        self._store = crescando.connect(self._cluster.url, tls=self._cluster.certificate, timeout_s=TIMEOUT_S)
        self._table_schema = table_schema("tickets", self.schema, primary_key=KEY)

    def clear(self) -> None:
        if "tickets" in self._store.tables():
            self._store.drop_table("tickets")
        self._store.create_table(self._table_schema)

    def load(self, frame: DataFrame) -> None:
        self._options(frame.write).option("job", f"load-{time.monotonic_ns()}").mode("append").save()

    def extract(self) -> DataFrame:
        frame: DataFrame = self._options(self.spark.read).load()
        return frame

    def pids(self) -> dict[str, list[int]]:
        return self._cluster.pids()

    def close(self) -> None:
        store, cluster = self.__dict__.pop("_store", None), self.__dict__.pop("_cluster", None)
        if store is not None:
            store.close()
        if cluster is not None:
            cluster.close()

    def _options(self, either: Any) -> Any:
        return either.format("crescando").options(
            url=self._cluster.url, tls=str(self._cluster.certificate), table="tickets", timeout_s=TIMEOUT_S
        )
