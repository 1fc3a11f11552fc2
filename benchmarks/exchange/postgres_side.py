"""PostgreSQL, over Spark's JDBC source and by COPY out of the tasks.

Rules of the file: one server and one unlogged table without any index; loads have two
connections, of two transactions, and extracts too, each of which scans one half of the
table's pages. Java's driver is Debian's.
"""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from benchmarks.exchange.side import TASKS, Side
from benchmarks.peers.processes import HOST, free_ports
from benchmarks.rivals.postgres_server import PostgresServer, unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER = Path("/usr/share/java/postgresql.jar")
DRIVER_PACKAGE = "libpostgresql-jdbc-java"
INSTALL_S = 300
ROOM_BYTES = 6 << 30
ROWS_AT_ONCE = 10_000
"""Rows in one batch of inserts, and fetched at a time."""

_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamptz",
    "string": "text",
}


def driver() -> str:
    """Make sure that Java's driver is there; give "" or why it is not.

    Debian's package is installed if this is the root of a Debian.
    """
    if not DRIVER.exists() and os.geteuid() == 0:
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", DRIVER_PACKAGE]):
            try:
                subprocess.run(
                    [*command, "-q"],
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                    capture_output=True,
                    timeout=INSTALL_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                break
    return "" if DRIVER.exists() else f"{DRIVER} is not there; apt-get install {DRIVER_PACKAGE}"


def postgres_unavailable() -> str:
    """Give "" if PostgreSQL can be a peer here, else why not."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"{error}; install crescando[bench-spark]"
    return unavailable() or driver()


class Jdbc(Side):
    """Spark's own source, tuned: inserts of many rows, large batches and fetches."""

    name = "JDBC"
    lacks = "no TLS, one copy, two transactions, no key; nothing waits for a disk"

    def open(self) -> None:
        (self._port,) = free_ports(1)
        self._server = PostgresServer(ROOM_BYTES, port=self._port)
        self._link = self._server.connect()

    def clear(self) -> None:
        columns = ", ".join(f"{field.name} {_TYPES[field.dataType.simpleString()]}" for field in self.schema)
        self._link.execute("drop table if exists tickets")
        self._link.execute(f"create unlogged table tickets ({columns})")

    def load(self, frame: DataFrame) -> None:
        self._options(frame.coalesce(TASKS).write.format("jdbc")).mode("append").save()

    def extract(self) -> DataFrame:
        properties = {"user": "bench", "driver": "org.postgresql.Driver", "fetchsize": str(ROWS_AT_ONCE)}
        return self.spark.read.jdbc(self._url(), "tickets", predicates=self.halves(), properties=properties)

    def halves(self) -> list[str]:
        """Give the predicates that cut the table's pages into equal parts."""
        n_pages = self._link.execute("select pg_relation_size('tickets') / 8192").fetchone()[0]
        cuts = [n_pages * part // TASKS for part in range(TASKS)] + [2**32 - 1]
        return [f"ctid >= '({a},0)' and ctid < '({b},0)'" for a, b in pairwise(cuts)]

    def pids(self) -> dict[str, list[int]]:
        return {"PostgreSQL": [self._server.pid]}

    def close(self) -> None:
        link, server = self.__dict__.pop("_link", None), self.__dict__.pop("_server", None)
        if link is not None:
            link.close()
        if server is not None:
            server.close()

    def _url(self) -> str:
        return f"jdbc:postgresql://{HOST}:{self._port}/postgres?reWriteBatchedInserts=true"

    def _options(self, writer: Any) -> Any:
        options = {
            "url": self._url(),
            "user": "bench",
            "driver": "org.postgresql.Driver",
            "dbtable": "tickets",
            "batchsize": ROWS_AT_ONCE,
            "numPartitions": TASKS,
        }
        return writer.options(**options)


class Copy(Jdbc):
    """What one writes by hand: each task speaks COPY, in CSV that Arrow makes and reads."""

    name = "COPY"
    lacks = "written by hand for this table; no TLS, one copy, two transactions, no key"

    def load(self, frame: DataFrame) -> None:
        conninfo = self._server.conninfo

        def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import psycopg

            options = pyarrow.csv.WriteOptions(include_header=False)
            n_rows = 0
            with psycopg.connect(conninfo) as link, link.cursor() as cursor:
                with cursor.copy("copy tickets from stdin (format csv)") as copy:
                    for batch in batches:
                        text = io.BytesIO()
                        pyarrow.csv.write_csv(batch, text, options)
                        copy.write(text.getvalue())
                        n_rows += batch.num_rows
                link.commit()
            yield pa.RecordBatch.from_pydict({"n": [n_rows]})

        frame.coalesce(TASKS).mapInArrow(put, "n bigint").collect()

    def extract(self) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema

        conninfo, halves = self._server.conninfo, self.halves()
        wanted = to_arrow_schema(self.schema, timezone="UTC")

        def get(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import psycopg

            reading = pyarrow.csv.ReadOptions(column_names=wanted.names)
            conversion = pyarrow.csv.ConvertOptions(
                column_types=wanted,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            for number in (n for batch in batches for n in batch.column(0).to_pylist()):
                sql = f"copy (select * from tickets where {halves[number]}) to stdout (format csv)"
                with psycopg.connect(conninfo) as link, link.cursor() as cursor, cursor.copy(sql) as copy:
                    for text in _lines(copy):
                        got = pyarrow.csv.read_csv(pa.BufferReader(text), reading, convert_options=conversion)
                        yield from got.combine_chunks().to_batches()

        return self.spark.range(0, TASKS, 1, TASKS).mapInArrow(get, self.schema)


COPY_BYTES = 4 << 20


def _lines(copy: Any) -> Iterator[bytes]:
    """Give what a server copies out in pieces of whole lines; it sends each line by itself."""
    held: list[bytes] = []
    n_bytes = 0
    for line in copy:
        held.append(bytes(line))
        n_bytes += len(line)
        if n_bytes >= COPY_BYTES:
            yield b"".join(held)
            held, n_bytes = [], 0
    if held:
        yield b"".join(held)
