"""SQLite, in memory, with the right indices: the standard library's module, one thread.

Rules of the file: rows are Python tuples, as its users get them. Reads are done
one by one, or many by a join with constants; only the first keeps the order of
reads and writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.rivals.base import Rival, Ways
from benchmarks.tickets.work import OUTPUTS, Changes, Mixed

FIVE = ", ".join(OUTPUTS)
ONE = f"select {FIVE} from tickets where rloc = ?"
SET_STATUS = "update tickets set status = ? where rloc = ?"
LOAD_ROWS = 1 << 14


def plain_rows(table: pa.Table) -> Iterator[list[tuple[Any, ...]]]:
    """Give rows in pieces, with days and microseconds as numbers."""
    physical = []
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        physical.append(column)
    for start in range(0, len(table), LOAD_ROWS):
        columns = [column.slice(start, LOAD_ROWS).to_pylist() for column in physical]
        yield list(zip(*columns, strict=True))


class SQLite(Rival):
    """One connection to a database in memory."""

    name = "sqlite"
    module = "sqlite3"
    package = "Python with its sqlite3 module"
    lacks = "an index has to exist for each column; one writer; joins give up the order"

    def version(self) -> str:
        return sqlite3.sqlite_version

    def load(self, table: pa.Table) -> None:
        self._base = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        names = ", ".join(
            f"{name} integer primary key" if name == "ticket_id" else name for name in table.column_names
        )
        self._base.execute(f"create table tickets ({names})")
        marks = ", ".join("?" * table.num_columns)
        self._base.execute("begin")
        for rows in plain_rows(table):
            self._base.executemany(f"insert into tickets values ({marks})", rows)
        self._base.execute("commit")
        self._base.execute("create index by_rloc on tickets (rloc)")
        self._base.execute("analyze")
        self._base.execute("create temp table k (op integer primary key, key)")

    def close(self) -> None:
        base = self.__dict__.pop("_base", None)
        if base is not None:
            base.close()

    def mixed(self) -> Ways:
        """Ways to do reads and updates in their order, in one transaction."""

        def one_by_one(work: Mixed) -> list[list[Any]]:
            execute = self._base.execute
            answers = []
            execute("begin")
            for key, status in zip(work.keys, work.statuses, strict=True):
                if status is None:
                    answers.append(execute(ONE, (key,)).fetchall())
                else:
                    execute(SET_STATUS, (status, key))
            execute("commit")
            return answers

        return {"execute": one_by_one}

    def mixed_unordered(self) -> Ways:
        """Ways to do all reads at once and then all updates, which gives up their order."""

        def updates(work: Mixed) -> None:
            pairs = [(s, key) for key, s in zip(work.keys, work.statuses, strict=True) if s is not None]
            self._base.executemany(SET_STATUS, pairs)

        def wanted(work: Mixed) -> list[str]:
            return [key for key, s in zip(work.keys, work.statuses, strict=True) if s is None]

        def sorted_in(keys: list[str], rows: list[tuple[Any, ...]]) -> list[list[Any]]:
            answers: list[list[Any]] = [[] for _ in keys]
            for op, *row in rows:
                answers[op].append(tuple(row))
            return answers

        def temporary(work: Mixed) -> list[list[Any]]:
            keys = wanted(work)
            self._base.execute("begin")
            self._base.execute("delete from k")
            self._base.executemany("insert into k values (?, ?)", enumerate(keys))
            rows = self._base.execute(
                f"select k.op, {FIVE} from k cross join tickets on rloc = k.key"
            ).fetchall()
            answers = sorted_in(keys, rows)
            updates(work)
            self._base.execute("commit")
            return answers

        def listed(work: Mixed) -> list[list[Any]]:
            keys = wanted(work)
            self._base.execute("begin")
            rows = self._base.execute(
                f"select j.key, {FIVE} from json_each(?) j cross join tickets on rloc = j.value",
                (json.dumps(keys),),
            ).fetchall()
            answers = sorted_in(keys, rows)
            updates(work)
            self._base.execute("commit")
            return answers

        return {"temp table": temporary, "json_each": listed}

    def changes(self) -> Ways:
        """Ways to do updates, in one transaction."""

        def many(work: Changes) -> int:
            self._base.execute("begin")
            done = self._base.executemany(
                "update tickets set miles = miles + ? where rloc = ?",
                zip(work.deltas, work.keys, strict=True),
            )
            self._base.execute("commit")
            return done.rowcount

        return {"executemany": many}

    def miles(self) -> int:
        """Give a checksum of the column that updates change."""
        return int(self._base.execute("select sum(miles * (ticket_id % 1000)) from tickets").fetchone()[0])

    def n_bytes(self) -> int:
        """What the pages take, index included."""
        pages = self._base.execute("pragma page_count").fetchone()[0]
        return int(pages * self._base.execute("pragma page_size").fetchone()[0])
