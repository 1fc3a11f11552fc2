"""The serial oracle: what a table of tickets must hold after the writes that were acknowledged.

Rules of the file: nothing of the store's code decides anything here. Writes are
noted with the position the store gave them and carried out one after the other
in that order, on plain arrays.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.tickets.generate import STATUSES

COLUMNS = ("ticket_id", "miles", "status")
"""What writes change, and the key."""


class Model:
    """Tickets as arrays, and the writes done to them.

    Parameters
    ----------
    table : pyarrow.Table
        As it was loaded; its ticket numbers are consecutive.

    Attributes
    ----------
    doomed : set of int
        Tickets that somebody has begun to delete; all others are there.
    """

    def __init__(self, table: pa.Table) -> None:
        self.ids = table.column("ticket_id").to_numpy()
        self.first = int(self.ids[0])
        self._miles = table.column("miles").to_numpy(zero_copy_only=False).astype(np.int64)
        status = np.array(table.column("status").to_pylist(), object)
        self._status = np.searchsorted(np.array(sorted(STATUSES)), status.astype(str))
        self._alive = np.ones(len(self.ids), np.bool_)
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, rloc in enumerate(table.column("rloc").to_pylist()):
            rows_of[rloc].append(row)
        self.rows_of = {rloc: np.array(rows) for rloc, rows in rows_of.items()}
        self.doomed: set[int] = set()
        self._lock = threading.Lock()
        self._writes: list[tuple[int, str, Any, Any]] = []

    def note(self, writes: list[tuple[int, str, Any, Any]]) -> None:
        """Take writes that were acknowledged: position, what, which rows, and with what."""
        with self._lock:
            self._writes.extend(writes)

    @property
    def n_writes(self) -> int:
        """How many were noted."""
        return len(self._writes)

    def carried_out(self) -> tuple[Any, Any, list[str]]:
        """Give ticket numbers, miles and states of the rows that live, after all writes in their order."""
        miles, status, alive = self._miles.copy(), self._status.copy(), self._alive.copy()
        names = sorted(STATUSES)
        for _, what, which, value in sorted(self._writes, key=lambda write: write[0]):
            match what:
                case "add":
                    miles[which - self.first] += value
                case "set":
                    status[self.rows_of[which]] = names.index(value)
                case "delete":
                    alive[which - self.first] = False
        return self.ids[alive], miles[alive], [names[code] for code in status[alive].tolist()]


def differences(model: Model, store: Any) -> tuple[int, int]:
    """Compare a store and every one of its replicas with the oracle.

    Returns
    -------
    wrong, replicas : int
        Rows that differ, are missing or too many: in an ordered read and in each
        replica; and how many replicas of ranges were compared.
    """
    ids, miles, status = model.carried_out()
    expected = dict(zip(ids.tolist(), zip(miles.tolist(), status, strict=True), strict=True))
    rows = store.table("tickets").select(list(COLUMNS)).rows()
    wrong = _wrong(expected, rows)
    held: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    n_replicas = 0
    for owner, key_range in store.cluster.replicas("tickets"):
        answer = store.cluster.read_replica(owner, key_range, "tickets")
        columns = [answer.column(name) for name in COLUMNS]
        held[key_range].append(sorted(zip(*columns, strict=True)))
        n_replicas += 1
    for copies in held.values():
        wrong += sum(copy != copies[0] for copy in copies)
    wrong += _wrong(expected, [row for copies in held.values() for row in copies[0]])
    return wrong, n_replicas


def _wrong(expected: dict[int, tuple[int, str]], rows: list[tuple[Any, ...]]) -> int:
    seen = {row[0]: tuple(row[1:]) for row in rows}
    wrong = sum(expected.get(key) != values for key, values in seen.items())
    return wrong + len(rows) - len(seen) + sum(key not in seen for key in expected)
