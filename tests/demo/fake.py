"""A stand-in for a store, to try the demo's judgement on: SQLite behind the verbs, with faults to plant.

It executes at once, one operation at a time, so that everything the demo finds
wrong is a fault that a test has planted. `Faults` names them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from crescando.client.expression import Call, ColumnName, Expr, Literal, Membership
from crescando.demo.workload import INSTANT
from crescando.errors import DeadlineError, LostError, ReadLostError, RefusedError
from crescando.schema import TableSchema
from crescando.types import RING_MAX, KeyRange, ProcessId

N_ARCS = 4
SMALL = "BETWEEN -32768 AND 32767"
INSTANTS = ("time_hour", "departs")


@dataclass
class Faults:
    """What the stand-in does wrong, and how often it is still to do so."""

    lost_updates: int = 0
    """Updates that report their counts and change nothing."""
    lost_inserts: int = 0
    torn_answers: int = 0
    """Answers of at least two rows that lack their last."""
    wrong_counts: int = 0
    doubled_positions: int = 0
    swapped_positions: int = 0
    """Writes whose position lies below the one before them."""
    swapped_reads: int = 0
    """Reads whose position lies below many before them, though none was sent again."""
    no_outcome: int = 0
    reads_lost: int = 0
    """Reads that must be asked again: no fault, and the demo must cope."""
    stale_replicas: int = 0
    """Replicas that lack a row."""
    changed_replicas: int = 0
    """Replicas in which a value is wrong."""
    all_replicas_lack: int = 0
    """Rows missing from every replica of their range."""
    ring_untold: int = 0
    """Questions about the ring that nobody answers, as no router leads: no fault, and the demo must cope."""
    missing_owners: int = 0
    hole_in_ring: bool = False
    dead_are_named: bool = False
    dead_answer: bool = False
    per_scan: int = 64
    in_flight: int = 150
    done: list[str] = field(default_factory=list)

    def take(self, name: str) -> bool:
        """Say whether to commit a fault now, and count it."""
        left = getattr(self, name)
        if not left:
            return False
        setattr(self, name, left - 1)
        self.done.append(name)
        return True


def sql(expression: object, values: list[Any]) -> str:
    """Write an expression as SQL text, its constants in `values`."""
    match expression:
        case ColumnName():
            return expression.name
        case Literal():
            values.append(plain(expression.value))
            return "?"
        case Membership():
            assert isinstance(expression.values, tuple)
            values.extend(expression.values)
            return f"({sql(expression.term, values)} IN ({', '.join('?' * len(expression.values))}))"
        case Call(op="not"):
            return f"(NOT {sql(expression.args[0], values)})"
        case Call(op="is_null"):
            return f"({sql(expression.args[0], values)} IS NULL)"
        case Call(op="coalesce"):
            return f"coalesce({', '.join(sql(arg, values) for arg in expression.args)})"
        case Call():
            op = {"div": "/", "and": "AND", "or": "OR"}.get(expression.op, expression.op)
            return "(" + f" {op} ".join(sql(arg, values) for arg in expression.args) + ")"
        case Expr():
            raise TypeError(f"the stand-in does not know {expression!r}")
        case _:
            values.append(plain(expression))
            return "?"


def plain(value: Any) -> Any:
    """Give instants as text, as the stand-in keeps them."""
    if isinstance(value, np.datetime64):
        return f"{np.datetime_as_string(value, unit='s')}Z"
    return value.strftime(INSTANT) if isinstance(value, datetime) else value


def where_of(where: Any, params: Any) -> tuple[str, list[Any]]:
    """Give a WHERE as text with positional parameters."""
    if not isinstance(where, str):
        values: list[Any] = []
        return sql(where, values), values
    if isinstance(params, Mapping):
        text, values = where, []
        for name in sorted(params, key=where.index):
            text = text.replace(f":{name}", "?")
            values.append(plain(params[name]))
        return text, values
    return where, [plain(value) for value in params]


@cache
def moment(text: str) -> datetime:
    """Give the instant of a text."""
    return datetime.strptime(text, INSTANT).replace(tzinfo=UTC)


class FakeAnswer:
    """Rows at a position."""

    def __init__(self, position: int, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self.position = position
        self.names = names
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[tuple[Any, ...]]:
        instants = {index for index, name in enumerate(self.names) if name in INSTANTS}
        return [
            tuple(moment(value) if index in instants else value for index, value in enumerate(row))
            for row in self._rows
        ]

    def to_numpy(self) -> dict[str, Any]:
        columns = zip(self.names, zip(*self._rows, strict=True), strict=True)
        return {
            name: np.array([value[:-1] for value in values], "datetime64[us]")
            if name in INSTANTS
            else np.array(values, object)
            for name, values in columns
        }


class FakeHandle:
    """An outcome that is known already, but not given before the kills that the demo plans."""

    def __init__(self, store: FakeStore, outcome: Any) -> None:
        self._store = store
        self._outcome = outcome

    def result(self, timeout_s: float | None = None, *, check: bool = True) -> Any:
        self._store.taken()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class FakeTable:
    """The verbs that the demo uses."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self._faults = store.faults

    def select_nowait(
        self, columns: Iterable[Any] | None = None, where: Any = None, params: Any = ()
    ) -> FakeHandle:
        names, outputs = [], []
        for column in columns or self._store.names:
            if isinstance(column, str):
                names.append(column)
                outputs.append(column)
            else:
                names.append(column.name)
                outputs.append(sql(column.term, []))
        return self._read(tuple(names), ", ".join(outputs), where, params)

    def aggregate_nowait(self, where: Any = None, params: Any = (), **aggregates: Any) -> FakeHandle:
        outputs = "count(*), count(dep_delay), sum(dep_delay), min(dep_delay), max(dep_delay), avg(dep_delay)"
        return self._read(tuple(aggregates), outputs, where, params)

    def _read(self, names: tuple[str, ...], outputs: str, where: Any, params: Any) -> FakeHandle:
        text, values = where_of(where, params)
        with self._store.lock:
            position = self._store.next_position(is_write=False)
            rows = self._store.run(f"SELECT {outputs} FROM flights WHERE {text}", values).fetchall()
        if self._faults.take("reads_lost"):
            return FakeHandle(self._store, ReadLostError("the owner died"))
        if len(rows) > 1 and self._faults.take("torn_answers"):
            rows.pop()
        return FakeHandle(self._store, FakeAnswer(position, names, rows))

    def update(self, where: Any, set: Mapping[str, Any], params: Any = ()) -> FakeHandle:
        text, values = where_of(where, params)
        parts, changed, checks, checked = [], [], ["0"], []
        for name, term in set.items():
            parts.append(f"{name} = {sql(term, changed)}")
            if isinstance(term, Expr):
                again: list[Any] = []
                body = sql(term, again)
                checks.append(f"coalesce({body} NOT {SMALL}, 0)")
                checked += again
                if "/" in body:
                    checks.append("coalesce(arr_delay = 0, 0)")
        fails = " OR ".join(checks)
        with self._store.lock:
            position = self._store.next_position(is_write=True)
            count = f"SELECT count(*) FROM flights WHERE ({text}) AND ({fails})"
            (rejected,) = self._store.run(count, [*values, *checked]).fetchone()
            self._store.run("SAVEPOINT here")
            change = f"UPDATE flights SET {', '.join(parts)} WHERE ({text}) AND NOT ({fails})"
            affected = self._store.run(change, [*changed, *values, *checked]).rowcount
            if affected and self._faults.take("lost_updates"):
                self._store.run("ROLLBACK TO here")
            self._store.run("RELEASE here")
        return self._written(position, affected, rejected)

    def delete(self, where: Any, params: Any = ()) -> FakeHandle:
        text, values = where_of(where, params)
        with self._store.lock:
            position = self._store.next_position(is_write=True)
            affected = self._store.run(f"DELETE FROM flights WHERE {text}", values).rowcount
        return self._written(position, affected, 0)

    def insert(self, rows: Any) -> FakeHandle:
        return self._add(rows, "INSERT OR IGNORE")

    def upsert(self, rows: Any) -> FakeHandle:
        return self._add(rows, "REPLACE")

    def _add(self, rows: Any, verb: str) -> FakeHandle:
        names = self._store.names
        if isinstance(rows, Mapping):
            tuples = list(zip(*([plain(value) for value in rows[name]] for name in names), strict=True))
        else:
            tuples = [tuple(plain(row[name]) for name in names) for row in rows]
        text = f"{verb} INTO flights VALUES ({', '.join('?' * len(names))})"
        with self._store.lock:
            position = self._store.next_position(is_write=True)
            is_lost = len(tuples) < 10 and self._faults.take("lost_inserts")
            added = [] if is_lost else [self._store.run(text, row).rowcount for row in tuples]
            affected = len(tuples) if is_lost else sum(added)
        return self._written(position, affected, len(tuples) - affected)

    def _written(self, position: int, affected: int, rejected: int) -> FakeHandle:
        if self._store.is_working and self._faults.take("no_outcome"):
            return FakeHandle(self._store, LostError("every owner is gone"))
        if self._store.is_working and self._faults.take("wrong_counts"):
            affected += 1
        return FakeHandle(
            self._store,
            SimpleNamespace(position=position, affected=affected, rejected=rejected, positions=(position,)),
        )


class FakeSession:
    """One client."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def table(self, name: str) -> FakeTable:
        return FakeTable(self._store)

    def in_flight(self) -> int:
        return self._store.faults.in_flight


class FakeCluster:
    """Processes that can be killed, and replicas that can be read."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self._faults = store.faults
        self.routers = [ProcessId("router", f"r{index}") for index in range(3)]
        self.storages = [ProcessId("storage", f"s{index}") for index in range(N_ARCS)]
        self.dead: list[ProcessId] = []

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(lead_router=next(r for r in self.routers if r not in self.dead))

    def kill(self, process: ProcessId) -> None:
        self.dead.append(process)
        self._store.killed.release()

    def replicas(self, table: str) -> tuple[tuple[ProcessId, KeyRange], ...]:
        if self._faults.take("ring_untold"):
            raise DeadlineError("the router that leads has not answered within 10.0 s")
        owned = []
        for arc in range(N_ARCS - self._faults.hole_in_ring):
            for step in range(3):
                process = self.storages[(arc + step) % N_ARCS]
                if process not in self.dead or self._faults.dead_are_named:
                    owned.append((process, self._range(arc)))
        for _ in range(self._faults.missing_owners):
            owned.pop()
        return tuple(owned)

    def _range(self, arc: int) -> KeyRange:
        step = (RING_MAX + 1) // N_ARCS
        return KeyRange(arc * step, arc * step + step - 1)

    def read_replica(self, process: ProcessId, key_range: KeyRange, table: str) -> FakeAnswer:
        if process in self.dead and not self._faults.dead_answer:
            raise RefusedError(f"{process} is dead")
        arc = key_range.low // ((RING_MAX + 1) // N_ARCS)
        # By month: 3 arcs of three months and the rest; any split will do that every replica shares.
        low = f"2013-{3 * arc + 1:02d}" if arc else ""
        high = f"2013-{3 * arc + 4:02d}" if arc < N_ARCS - 1 else "3"
        text = "SELECT * FROM flights WHERE time_hour >= ? AND time_hour < ? ORDER BY rowid"
        rows = self._store.run(text, (low, high)).fetchall()
        if self._faults.all_replicas_lack and arc == 1:
            rows.pop()
        if self._faults.take("stale_replicas"):
            rows.pop()
        if self._faults.take("changed_replicas"):
            rows[0] = (*rows[0][:-1], "wrong")
        return FakeAnswer(0, self._store.names, rows)

    def statistics(self) -> dict[str, Any]:
        return {"storage/s1#0": {"operations_per_scan_max": self._faults.per_scan, "rows": 1}}


class FakeStore:
    """What `crescando.open` would give."""

    def __init__(self, faults: Faults, operations: int) -> None:
        self.faults = faults
        self.names: tuple[str, ...] = ()
        self.lock = threading.RLock()
        self.is_working = False
        self.killed = threading.Semaphore(0)
        self.cluster = FakeCluster(self)
        self._gates = {int(operations * share) for share in (0.5, 0.8)}
        self._position = 0
        self._n_taken = 0
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)

    def __enter__(self) -> FakeStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def create_table(self, schema: TableSchema) -> None:
        self.names = schema.column_names
        key = ", ".join(schema.primary_key)
        self.run(f"CREATE TABLE flights ({', '.join(self.names)}, PRIMARY KEY ({key}))")

    def table(self, name: str) -> FakeTable:
        return FakeTable(self)

    def session(self, name: str) -> FakeSession:
        self.is_working = True
        return FakeSession(self)

    def run(self, text: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        with self.lock:
            return self._connection.execute(text, tuple(values))

    def next_position(self, *, is_write: bool) -> int:
        self._position += 10
        is_amid = self._position > 2_000
        if is_amid and self.faults.take("doubled_positions"):
            return self._position - 10
        if is_amid and is_write and self.faults.take("swapped_positions"):
            return self._position - 1_001
        if is_amid and not is_write and self.faults.take("swapped_reads"):
            return self._position - 1_001
        return self._position

    def taken(self) -> None:
        """Hold outcomes back where the demo must have killed before the work goes on."""
        with self.lock:
            self._n_taken += 1
            waits = self.is_working and self._n_taken in self._gates and self.faults.in_flight >= 100
        if waits:
            assert self.killed.acquire(timeout=20), "the demo did not kill in time"
