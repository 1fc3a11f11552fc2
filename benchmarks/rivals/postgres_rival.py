"""PostgreSQL with the right indices: a server of its own, behind a socket of the file system.

Rules of the file: nothing waits for a disk (`postgres_server.py`). Rows are Python tuples.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.csv

from benchmarks.rivals.base import Rival, Ways
from benchmarks.rivals.postgres_server import PostgresServer, unavailable
from benchmarks.tickets.work import OUTPUTS, Changes, Mixed

FIVE = ", ".join(OUTPUTS)
ONE = f"select {FIVE} from tickets where rloc = %s"
SET_STATUS = "update tickets set status = %s where rloc = %s"
CONNECTIONS = 8
LOG_BYTES = 1 << 30
"""Room for its log, beside the table, its indices and the rows' old versions."""

PIPELINED = 1_000
"""Statements between two synchronisations of a pipeline."""

_TYPES = {"bool": "boolean", "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint"}


def _column(name: str, kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return f"{name} integer"
    if pa.types.is_timestamp(kind):
        return f"{name} bigint"
    if pa.types.is_floating(kind):
        return f"{name} double precision"
    return f"{name} {_TYPES.get(str(kind), 'text')}"


class Postgres(Rival):
    """One server, and eight connections to it."""

    name = "postgresql"
    module = "psycopg"
    package = "postgresql (Debian) and 'psycopg[binary]'"
    lacks = "in another process, behind a socket; needs an index per column; batches give up the order"

    def available(self) -> str:
        return unavailable() or super().available()

    def version(self) -> str:
        return str(self._run_sql("show server_version")) if hasattr(self, "_links") else "?"

    def load(self, table: pa.Table) -> None:
        self._open(PostgresServer(LOG_BYTES + 3 * table.nbytes))
        self._fill(table)

    def _open(self, server: PostgresServer) -> None:
        self._server = server
        self._links = [self._server.connect() for _ in range(CONNECTIONS)]
        for link in self._links:
            link.prepare_threshold = 0
        self._threads = ThreadPoolExecutor(CONNECTIONS)

    def _fill(self, table: pa.Table) -> None:
        columns = ", ".join(_column(field.name, field.type) for field in table.schema)
        link = self._links[0]
        link.execute(f"create table tickets ({columns})")
        plain = pa.table(
            {
                name: column.cast(pa.int32())
                if pa.types.is_date(column.type)
                else column.cast(pa.int64())
                if pa.types.is_timestamp(column.type)
                else column
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
        )
        options = pyarrow.csv.WriteOptions(include_header=False)
        with link.cursor() as cursor, cursor.copy("copy tickets from stdin (format csv)") as copy:
            for start in range(0, len(plain), 1 << 16):
                text = io.BytesIO()
                pyarrow.csv.write_csv(plain.slice(start, 1 << 16), text, options)
                copy.write(text.getvalue())
        link.execute("create index by_rloc on tickets (rloc)")
        link.execute("alter table tickets add primary key (ticket_id)")
        link.execute("vacuum analyze tickets")

    def close(self) -> None:
        for link in self.__dict__.pop("_links", ()):
            link.close()
        threads = self.__dict__.pop("_threads", None)
        if threads is not None:
            threads.shutdown()
        server = self.__dict__.pop("_server", None)
        if server is not None:
            server.close()

    def _run_sql(self, sql: str) -> Any:
        found = self._links[0].execute(sql).fetchone()
        return None if found is None else found[0]

    def mixed(self) -> Ways:
        """Ways to do reads and updates in their order, in one transaction."""

        def pipelined(work: Mixed) -> list[list[Any]]:
            return _pipelined(self._links[0], list(zip(work.keys, work.statuses, strict=True)))

        def one_by_one(work: Mixed) -> list[list[Any]]:
            answers = []
            with self._links[0].transaction(), self._links[0].cursor() as cursor:
                for key, status in zip(work.keys, work.statuses, strict=True):
                    if status is None:
                        answers.append(cursor.execute(ONE, (key,), prepare=True).fetchall())
                    else:
                        cursor.execute(SET_STATUS, (status, key), prepare=True)
            return answers

        return {"pipeline": pipelined, "execute": one_by_one}

    def mixed_unordered(self) -> Ways:
        """Ways that give up the order: all reads at once, or many connections."""

        def keys_of(work: Mixed) -> list[str]:
            return [key for key, s in zip(work.keys, work.statuses, strict=True) if s is None]

        def updates(work: Mixed) -> None:
            pairs = [(s, key) for key, s in zip(work.keys, work.statuses, strict=True) if s is not None]
            with self._links[0].transaction(), self._links[0].cursor() as cursor:
                cursor.executemany(SET_STATUS, pairs)

        def listed(work: Mixed) -> list[list[Any]]:
            keys = keys_of(work)
            answers: list[list[Any]] = [[] for _ in keys]
            sql = (
                f"select k.op, {FIVE} from unnest(%s::text[]) with ordinality as k(key, op) "
                "join tickets on rloc = k.key"
            )
            for op, *row in self._links[0].execute(sql, (keys,)).fetchall():
                answers[op - 1].append(tuple(row))
            updates(work)
            return answers

        def matched(work: Mixed) -> list[list[Any]]:
            keys = keys_of(work)
            by_key: dict[str, list[Any]] = {key: [] for key in keys}
            sql = f"select rloc, {FIVE} from tickets where rloc = any(%s)"
            for key, *row in self._links[0].execute(sql, (list(by_key),)).fetchall():
                by_key[key].append(tuple(row))
            updates(work)
            return [by_key[key] for key in keys]

        def spread_out(work: Mixed) -> list[list[Any]]:
            keys = keys_of(work)
            share = -(-len(keys) // CONNECTIONS)
            tasks = [
                self._threads.submit(
                    _pipelined, link, [(key, None) for key in keys[place * share : (place + 1) * share]]
                )
                for place, link in enumerate(self._links)
            ]
            answers = [rows for task in tasks for rows in task.result()]
            updates(work)
            return answers

        return {"unnest": listed, "ANY": matched, f"{CONNECTIONS} connections, pipelines": spread_out}

    def changes(self) -> Ways:
        """Ways to do updates, in one transaction."""

        def many(work: Changes) -> int:
            with self._links[0].transaction(), self._links[0].cursor() as cursor:
                cursor.executemany(
                    "update tickets set miles = miles + %s where rloc = %s",
                    list(zip(work.deltas, work.keys, strict=True)),
                )
                return int(cursor.rowcount)

        return {"executemany": many}

    def miles(self) -> int:
        """Give a checksum of the column that updates change."""
        return int(self._run_sql("select sum(miles::numeric * (ticket_id % 1000)) from tickets"))

    def n_bytes(self) -> int:
        """What the table takes, indices included."""
        return int(self._run_sql("select pg_total_relation_size('tickets')"))


def _pipelined(link: Any, operations: Sequence[tuple[str, str | None]]) -> list[list[Any]]:
    """Do operations in their order, without waiting for each answer."""
    answers: list[list[Any]] = []
    with link.transaction():
        for start in range(0, len(operations), PIPELINED):
            with link.pipeline():
                cursors = []
                for key, status in operations[start : start + PIPELINED]:
                    cursor = link.cursor()
                    if status is None:
                        cursor.execute(ONE, (key,), prepare=True)
                        cursors.append(cursor)
                    else:
                        cursor.execute(SET_STATUS, (status, key), prepare=True)
                answers.extend(cursor.fetchall() for cursor in cursors)
    return answers
