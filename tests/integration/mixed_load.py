"""Writes and reads of all kinds on a store that changes its shape, and the serial oracle that judges them.

Rules of the file: a stream is a thread with a session of its own. Every write is
kept with its place in the order and what it said it did, every read with its
place and what it showed; whatever raises is kept too. Afterwards all writes are
carried out one after the other on a dict, and each count, each answer and each
replica must be what the dict says. Of a read whose owners answered at positions
of their own, each row must be as it was at one of these. A session's reads never
go back. Nothing of the store decides what is right.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import crescando
from crescando.client.base import Isolation
from crescando.client.table import Table
from crescando.cluster import Cluster
from crescando.schema import ColumnDef, DataType, TableSchema

SCHEMA = TableSchema(
    "moved",
    (
        ColumnDef("k", DataType.INT64, nullable=False),
        ColumnDef("v", DataType.INT64, nullable=False),
        ColumnDef("g", DataType.INT32, nullable=False),
        ColumnDef("name", DataType.STRING),
    ),
    partition_key="k",
    primary_key=("k",),
)
COLUMNS = ("k", "v", "g", "name")
GROUPS = 64
WIDTH = 40
"""Keys of a range that is written or read."""
BATCH = 16

Row = tuple[int, int, int, str | None]


class Rows(dict[int, Row]):
    """Rows by their key, and everything that each of them has been, from which position on."""

    def __init__(self, rows: dict[int, Row]) -> None:
        super().__init__(rows)
        self.position = -1
        self.past: dict[int, list[tuple[int, Row | None]]] = defaultdict(list)
        for k, row in rows.items():
            self.past[k].append((-1, row))

    def __setitem__(self, k: int, row: Row) -> None:
        super().__setitem__(k, row)
        self.past[k].append((self.position, row))

    def remove(self, k: int) -> int:
        """Delete a row; gives how many there were."""
        if super().pop(k, None) is None:
            return 0
        self.past[k].append((self.position, None))
        return 1

    def within(self, k: int, first: int, last: int) -> list[Row | None]:
        """Give everything that a row was at some position of a range, None for absent."""
        past = [(-1, None), *self.past.get(k, ())]
        old = [row for position, row in past if position <= first][-1]
        return [old, *(row for position, row in past if first < position <= last)]


@dataclass(frozen=True, slots=True)
class Write:
    """One write: what it does to the rows, giving how many it affected."""

    apply: Callable[[Rows], int]
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """A write or a read that was answered."""

    position: int
    is_read: bool
    stream: str
    text: str
    judge: Callable[[Rows], str]
    """Carries out a write, or looks at what a read showed; gives what is wrong."""
    latest: int = -1
    """Of a read whose parts have positions of their own, the last of these."""
    told: int = -1
    """The highest position that its session had been told of when it was asked for."""


class Mixed:
    """Streams of writes and reads that run as long as the block.

    Parameters
    ----------
    store : Store
    n_rows : int
        Loaded into a table of its own before anything else.
    levels : sequence of str
        Isolation levels, each with a stream of reads.
    seed : int
    """

    def __init__(
        self, store: crescando.Store[Cluster], *, n_rows: int, levels: tuple[Isolation, ...], seed: int
    ) -> None:
        self.store = store
        self.n_rows = n_rows
        self.faults: list[str] = []
        self.done: list[Done] = []
        self._rows = Rows({k: (k, 0, k % GROUPS, f"name {k % 97}") for k in range(n_rows)})
        self._stop = threading.Event()
        table = store.create_table(SCHEMA)
        table.insert([dict(zip(COLUMNS, row, strict=True)) for row in self._rows.values()]).result(60)
        streams = {
            "writes": self._writes,
            "more writes": self._writes,
            **{level: self._reads(level) for level in levels},
        }
        self.counts: dict[str, int] = dict.fromkeys(streams, 0)
        self._threads = [
            threading.Thread(target=self._run, args=(name, step, random.Random(f"{seed} {name}")), name=name)
            for name, step in streams.items()
        ]

    def __enter__(self) -> Mixed:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                self.faults.append(f"{thread.name} hangs")

    def counts_now(self) -> dict[str, int]:
        """Give how many operations of each stream were answered so far."""
        return dict(self.counts)

    def _run(self, name: str, step: Callable[[Table, random.Random], list[Done]], rng: random.Random) -> None:
        table = self.store.session(name, timeout_s=120).table(SCHEMA.name)
        told = -1
        while not self._stop.is_set():
            try:
                done = [replace(each, told=told) for each in step(table, rng)]
            except Exception as error:  # noqa: BLE001  # Whatever it is, it is a finding.
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
                return
            told = max(told, *(max(each.position, each.latest) for each in done))
            self.done += done
            self.counts[name] += len(done)

    # Writes.

    def _writes(self, table: Table, rng: random.Random) -> list[Done]:
        name = threading.current_thread().name
        sent = [self._send(table, rng, n) for n in range(BATCH)]
        done = []
        for write, handle in sent:
            result = handle.result()
            done.append(Done(result.position, False, name, write.text, _counted(write, result.affected)))
        return done

    def _send(self, table: Table, rng: random.Random, n: int) -> tuple[Write, crescando.WriteHandle]:
        k, amount = rng.randrange(2 * self.n_rows), rng.randrange(1, 100)
        if n == 0:
            g = rng.randrange(GROUPS)
            handle = table.update("g = ?", "v = v + ?", (amount, g))
            return Write(_add(lambda row: row[2] == g, amount), f"v += {amount} where g = {g}"), handle
        if n == 1:
            text = None if amount < 20 else f"renamed {amount}"
            keys = range(k, k + WIDTH)
            handle = table.update("k between ? and ?", {"name": text}, (k, k + WIDTH - 1))
            return Write(_rename(keys, text), f"name = {text!r} where k in {keys}"), handle
        if n == 2:
            handle = table.delete("k = ?", (k,))
            return Write(lambda rows: rows.remove(k), f"delete {k}"), handle
        if n < 6:
            row = (k, amount, rng.randrange(GROUPS), f"new {amount}")
            handle = table.upsert([dict(zip(COLUMNS, row, strict=True))])
            return Write(_put(row), f"upsert {row}"), handle
        handle = table.update("k = ?", "v = v + ?", (amount, k % self.n_rows))
        key = k % self.n_rows
        return Write(_add_one(key, amount), f"v += {amount} where k = {key}"), handle

    # Reads.

    def _reads(self, level: Isolation) -> Callable[[Table, random.Random], list[Done]]:
        def read(table: Table, rng: random.Random) -> list[Done]:
            k, g = rng.randrange(2 * self.n_rows), rng.randrange(GROUPS)
            between = table.select_nowait(
                list(COLUMNS), "k between ? and ?", (k, k + WIDTH - 1), isolation=level
            )
            total = table.aggregate_nowait(
                "g = ?", (g,), isolation=level, n=crescando.agg.count(), v=crescando.agg.sum("v")
            )
            shown = between.result()
            summed = total.result()
            rows, sums = shown.rows(), summed.rows()
            judges = [_same_rows(k, rows), _same_sum(g, sums)]
            if shown.position < shown.latest:
                judges[0] = _rows_within(k, rows, shown.position, shown.latest)
            if summed.position < summed.latest:
                # Of a sum nobody can tell which of its parts is of when.
                judges[1] = _no_judge
            return [
                Done(answer.position, True, level, text, judge, answer.latest)
                for answer, text, judge in zip(
                    (shown, summed), (f"rows of {k} and on", f"sum of group {g}"), judges, strict=True
                )
            ]

        return read

    # The oracle.

    def check(self) -> None:
        """Compare everything with the serial execution; raises if anything differs."""
        assert not self.faults, self.faults[:5]
        assert all(self.counts.values()), self.counts
        wrong = list(self._replayed())
        rows = {row[0]: row for row in self.store.table(SCHEMA.name).select(list(COLUMNS)).rows()}
        if rows != self._rows:
            wrong.append(
                f"{len(_different(rows, self._rows))} rows differ: {_different(rows, self._rows)[:3]}"
            )
        wrong += self._replicas()
        assert not wrong, f"{len(wrong)} faults, such as {wrong[:5]}"

    def _replayed(self) -> Iterator[str]:
        """Carry out all writes in their order, and look at each answer where it belongs."""
        positions = [each.position for each in self.done if not each.is_read]
        if len(set(positions)) < len(positions):
            yield "two writes have one position"
        for each in sorted(self.done, key=lambda each: (max(each.position, each.latest), each.is_read)):
            self._rows.position = each.position
            fault = each.judge(self._rows)
            if fault:
                yield f"{each.stream} at {each.position}, {each.text}: {fault}"
            if each.position < each.told:
                yield f"{each.stream} went back from {each.told} to {each.position}"

    def _replicas(self) -> Iterator[str]:
        """Look at every replica of every range."""
        held: dict[Any, list[Rows]] = defaultdict(list)
        for owner, key_range in self.store.cluster.replicas(SCHEMA.name):
            answer = self.store.cluster.read_replica(owner, key_range, SCHEMA.name)
            columns = [answer.column(name) for name in COLUMNS]
            shown = list(zip(*columns, strict=True))
            rows = {row[0]: row for row in shown}
            if len(rows) < len(shown):
                yield f"{owner} holds rows of {key_range} twice"
            held[key_range].append(rows)
        for key_range, replicas in held.items():
            if any(rows != replicas[0] for rows in replicas):
                yield f"replicas of {key_range} differ"
        together = {k: row for replicas in held.values() for k, row in replicas[0].items()}
        if together != self._rows:
            yield f"the replicas hold other rows: {_different(together, self._rows)[:3]}"


def _counted(write: Write, affected: int) -> Callable[[Rows], str]:
    def judge(rows: Rows) -> str:
        expected = write.apply(rows)
        return "" if affected == expected else f"affected {affected} rows, not {expected}"

    return judge


def _add(is_meant: Callable[[Row], bool], amount: int) -> Callable[[Rows], int]:
    def apply(rows: Rows) -> int:
        meant = [row for row in rows.values() if is_meant(row)]
        for k, v, g, name in meant:
            rows[k] = (k, v + amount, g, name)
        return len(meant)

    return apply


def _add_one(key: int, amount: int) -> Callable[[Rows], int]:
    def apply(rows: Rows) -> int:
        if key not in rows:
            return 0
        k, v, g, name = rows[key]
        rows[k] = (k, v + amount, g, name)
        return 1

    return apply


def _rename(keys: range, text: str | None) -> Callable[[Rows], int]:
    def apply(rows: Rows) -> int:
        meant = [k for k in keys if k in rows]
        for k in meant:
            rows[k] = (*rows[k][:3], text)
        return len(meant)

    return apply


def _put(row: Row) -> Callable[[Rows], int]:
    def apply(rows: Rows) -> int:
        rows[row[0]] = row
        return 1

    return apply


def _same_rows(first: int, shown: list[Any]) -> Callable[[Rows], str]:
    def judge(rows: Rows) -> str:
        expected = [rows[k] for k in range(first, first + WIDTH) if k in rows]
        return "" if sorted(shown) == expected else f"showed {_first_other(sorted(shown), expected)}"

    return judge


def _rows_within(first: int, shown: list[Any], low: int, high: int) -> Callable[[Rows], str]:
    def judge(rows: Rows) -> str:
        found = {row[0]: row for row in shown}
        for k in range(first, first + WIDTH):
            allowed = rows.within(k, low, high)
            if found.get(k) not in allowed:
                return f"showed {found.get(k)}, not one of {allowed}, up to {high}"
        return "" if len(found) == len(shown) else "showed a row twice"

    return judge


def _no_judge(_: Rows) -> str:
    return ""


def _same_sum(group: int, shown: list[Any]) -> Callable[[Rows], str]:
    def judge(rows: Rows) -> str:
        values = [v for _, v, g, _ in rows.values() if g == group]
        expected = [(len(values), sum(values) if values else None)]
        return "" if shown == expected else f"showed {shown}, not {expected}"

    return judge


def _first_other(shown: list[Any], expected: list[Any]) -> str:
    for got, wanted in zip(shown, expected, strict=False):
        if got != wanted:
            return f"{got}, not {wanted}"
    return f"{len(shown)} rows, not {len(expected)}"


def _different(rows: Rows, expected: Rows) -> list[tuple[Row | None, Row | None]]:
    keys = sorted(rows.keys() | expected.keys())
    return [(rows.get(k), expected.get(k)) for k in keys if rows.get(k) != expected.get(k)]
