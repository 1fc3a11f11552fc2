"""One client as a process of its own: ``python -m benchmarks.served.client URL CERTIFICATES NAME``.

Rules of the file: only what the package makes public is used, but for the meter.
The parent says on standard input what is to be done, one JSON line at a time, and
gets one back for each; the process ends with that input. Every answer is counted:
a read that gives another number of rows than were loaded, or a write that changes
another number, is an error, and no figure comes.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa

import crescando
from benchmarks.served.plan import CHANGE, KEY, READ, WRITES
from benchmarks.tickets.generate import tickets
from benchmarks.tickets.work import OUTPUTS
from crescando import agg
from crescando.hosting import watch
from crescando.interpreter import tune_interpreter
from crescando.metering import Meter

PIECE = 1 << 16
"""Rows of one insert."""

PIECES_AT_ONCE = 4
KEYS = 1 << 17
"""Keys that are asked for, again and again; drawn from all bookings."""

POOL = 1 << 14
"""Keys that rivals are asked for."""

TIMEOUT_S = 120.0
TICK_S = 0.005
WARM_UP_SHARE = 0.2

Submit = Callable[[Sequence[str]], Sequence[Any]]
Check = Callable[[Sequence[str], Sequence[Any]], None]


def pieces(rows: int, seed: int) -> Iterator[pa.Table]:
    """Give a table of tickets piece by piece."""
    for start in range(0, rows, PIECE):
        yield tickets(min(PIECE, rows - start), seed + start // PIECE, start)


class WrongAnswerError(AssertionError):
    """The store gave another answer than there is: no figure counts."""


class Client:
    """A session, and what its operations met.

    Parameters
    ----------
    url, certificates, name : str
    """

    def __init__(self, url: str, certificates: str, name: str) -> None:
        self.store = crescando.connect(url, tls=Path(certificates), client=name, timeout_s=TIMEOUT_S)
        backend = self.store.cluster.default
        self._meter = Meter()
        self._loop = backend._loop
        self._loop.call(lambda: watch(self._meter, backend.core))
        self._keys: list[str] = []
        self._counts: dict[str, int] = {}
        self._at = 0
        self._n_written = 0

    # The table.

    def load(self, *, table: str, rows: int, seed: int, keys: str, **_: Any) -> dict[str, Any]:
        """Create a table, and insert tickets in pieces; the keys go to a file for the other clients."""
        handles: deque[Any] = deque()
        found: Counter[str] = Counter()
        busy_s = 0.0
        made: Any = None
        for piece in pieces(rows, seed):
            # Piece by piece: millions in one call would keep the session's thread from its heartbeats.
            found.update(piece.column(KEY).to_pylist())
            began_s = time.perf_counter()
            if made is None:
                made = self.store.create_table(table, like=piece.slice(0, 1), partition_key=KEY)
            handles.append(made.insert(piece))
            if len(handles) > PIECES_AT_ONCE:
                handles.popleft().result()
            busy_s += time.perf_counter() - began_s
        began_s = time.perf_counter()
        for handle in handles:
            handle.result()
        busy_s += time.perf_counter() - began_s
        chosen = np.random.default_rng(seed).permutation(len(found))[:KEYS]
        everything = list(found)
        drawn = [everything[place] for place in chosen.tolist()]
        Path(keys).write_text(json.dumps({key: found[key] for key in drawn}), encoding="utf-8")
        return {"rows_s": rows / busy_s}

    def learn(self, *, table: str, keys: str, client: int, **_: Any) -> dict[str, Any]:
        """Take the keys that are to be asked for, and prepare what asks for them."""
        self._counts = json.loads(Path(keys).read_text(encoding="utf-8"))
        self._keys = list(self._counts)
        # Clients begin at other places of the same sequence.
        self._at = client * 7919
        self._table = self.store.table(table)
        self._change = self._table.prepare_update(READ, CHANGE)
        self._reads = {
            level: self._table.prepare_select(list(OUTPUTS), READ, isolation=level)
            for level in ("sequential", "snapshot", "basic")
        }
        tune_interpreter()
        return {}

    def total(self, **_: Any) -> dict[str, Any]:
        """Give the sum of the column that writes change."""
        return {"total": int(self._table.aggregate(total=agg.sum("miles")).rows()[0][0])}

    def written(self, **_: Any) -> dict[str, Any]:
        """Give how many rows writes have changed, each of them by one, and forget it."""
        n, self._n_written = self._n_written, 0
        return {"n": n}

    def answers(self, *, n: int, **_: Any) -> dict[str, Any]:
        """Give the rows of some keys, in the order of the tickets' numbers; and more keys."""
        keys = list(islice(self._keys, n))
        handles = self._reads["sequential"].many([(key,) for key in keys])
        rows = [sorted(map(list, handle.result().rows())) for handle in handles]
        return {"keys": keys, "rows": rows, "pool": self._keys[:POOL]}

    # Loads.

    def _submit(self, kind: str) -> tuple[Submit, Check]:
        counts = self._counts
        if kind == WRITES:
            change = self._change

            def changed(keys: Sequence[str], handles: Sequence[Any]) -> None:
                for key, handle in zip(keys, handles, strict=True):
                    affected = handle.result().affected
                    if affected != counts[key]:
                        raise WrongAnswerError(f"{key} has {counts[key]} rows, and {affected} were changed")
                    self._n_written += affected

            return lambda keys: change.many([(1, key) for key in keys]), changed
        read = self._reads[kind]

        def found(keys: Sequence[str], handles: Sequence[Any]) -> None:
            for key, handle in zip(keys, handles, strict=True):
                rows = handle.result().rows()
                if len(rows) != counts[key]:
                    raise WrongAnswerError(f"{key} has {counts[key]} rows, and {len(rows)} were read")

        return lambda keys: read.many([(key,) for key in keys]), found

    def _next(self, n: int) -> list[str]:
        keys, at = self._keys, self._at
        self._at = (at + n) % len(keys)
        chosen = keys[at : at + n]
        while len(chosen) < n:
            chosen += keys[: n - len(chosen)]
        return chosen

    def closed(self, *, kind: str, block: int, at_once: int, seconds: float, **_: Any) -> dict[str, Any]:
        """Have so many calls under way all the time; gives operations with their answers in the time."""
        submit, check = self._submit(kind)
        waiting: deque[tuple[float, list[str], Sequence[Any]]] = deque()
        begin_s = time.perf_counter() + WARM_UP_SHARE * seconds
        end_s = begin_s + seconds
        n_all, n, waits_ms = 0, 0, []
        last_s = begin_s
        while True:
            while len(waiting) < at_once and time.perf_counter() < end_s:
                keys = self._next(block)
                waiting.append((time.perf_counter(), keys, submit(keys)))
            if not waiting:
                break
            sent_s, keys, handles = waiting.popleft()
            check(keys, handles)
            now_s = time.perf_counter()
            n_all += len(keys)
            if begin_s < now_s <= end_s or (now_s > end_s and not n):
                n += len(keys)
                last_s = max(end_s, now_s)
                waits_ms.append(1e3 * (now_s - sent_s))
        return {"n": n, "n_all": n_all, "rate_s": n / (last_s - begin_s), **_percentiles(waits_ms)}

    def paced(self, *, kind: str, rate_s: float, seconds: float, **_: Any) -> dict[str, Any]:
        """Ask at a steady rate whatever happens; a wait counts from when the operation was due."""
        submit, check = self._submit(kind)
        made: SimpleQueue[tuple[float, list[str], Sequence[Any]] | None] = SimpleQueue()
        waits_ms: list[float] = []
        failures: list[Exception] = []
        counts: list[int] = []
        begin_s = time.perf_counter()
        settled_s = begin_s + WARM_UP_SHARE * seconds

        def await_all() -> None:
            try:
                while (each := made.get()) is not None:
                    due_s, keys, handles = each
                    check(keys, handles)
                    counts.append(len(keys))
                    if due_s >= settled_s:
                        waits_ms.append(1e3 * (time.perf_counter() - due_s))
            except Exception as error:  # noqa: BLE001  # Raised again below.
                failures.append(error)

        waiter = threading.Thread(target=await_all, name="waiter")
        waiter.start()
        n = 0
        end_s = settled_s + seconds
        while (now_s := time.perf_counter()) < end_s and not failures:
            n_due = int((now_s - begin_s) * rate_s)
            if n_due > n:
                keys = self._next(n_due - n)
                made.put((begin_s + n / rate_s, keys, submit(keys)))
                n = n_due
            time.sleep(TICK_S)
        made.put(None)
        waiter.join()
        if failures:
            raise failures[0]
        return {"n_all": sum(counts), **_percentiles(waits_ms)}

    # What it costs.

    def spent(self, **_: Any) -> dict[str, Any]:
        """Give this process's CPU time by layer, in milliseconds."""
        counted = self._loop.call(self._meter.counters)
        return {**counted, "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


def _percentiles(waits_ms: list[float]) -> dict[str, float]:
    if not waits_ms:
        return {"p50_ms": float("inf"), "p99_ms": float("inf")}
    p50, p99 = np.percentile(waits_ms, (50, 99))
    return {"p50_ms": float(p50), "p99_ms": float(p99)}


def main() -> None:
    """Do what the parent says until it is gone."""
    client = Client(*sys.argv[1:4])
    print("{}", flush=True)
    for line in sys.stdin:
        said = json.loads(line)
        try:
            answer = getattr(client, said.pop("do"))(**said)
        except WrongAnswerError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)
    client.store.close()


if __name__ == "__main__":
    main()
