"""E6 and E10: many clients of an embedded store, each with its own awaitable, and what they wait.

Rules of the file: clients, router and storage process share one interpreter.
A client's next operation waits for its last one's rows; every number of rows is
compared with the table's own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.ordering.event_loop import loop_name, run
from benchmarks.report import progress
from benchmarks.scans.plan import Stock
from benchmarks.tickets.work import OUTPUTS
from benchmarks.verdicts import Goal, Outcome, judge, spread

WARM_UP_S = 0.5

READS_MIN, PATIENCE = 100, 4
"""A 99th percentile wants so many reads; for them the probe goes on for so many times its time."""

SELECTIVE = (
    "rloc",
    "document",
    "email",
    "phone",
    "passport",
    "frequent_flyer",
    "passenger_id",
    "customer_no",
)
"""Columns of which one value meets few rows."""

OTHERS = ("origin", "cabin", "flight_no", "airline", "currency", "tier", "bags")
"""Columns that a second condition tests, so that there are fifty shapes of reads; no measure writes them."""

N_SHAPES = 50

FLOOD = 1_000_000
"""Operations of one client that the goal of E10 is about."""


def e6(stock: Stock) -> Outcome:
    """A closed loop of 1,000 asyncio clients, each awaiting one point read at a time."""
    plan = stock.plan
    store = stock.store()
    read = store.table("tickets").prepare_select(list(OUTPUTS), "rloc = ?")
    counts = _rows_per_key(stock)
    runs = []
    for _ in range(plan.trials):
        keys = stock.draw.points(1 << 16).keys
        runs.append(run(_closed_loop(read, keys, plan.clients, plan.seconds, counts)))
    rates, waits = [rate for rate, _ in runs], [latencies for _, latencies in runs]
    p50 = [float(np.percentile(each, 50)) for each in waits]
    p99 = [float(np.percentile(each, 99)) for each in waits]
    why = plan.unjudged()
    return judge(
        [
            Goal("rate", float(np.median(rates)) / 1e3, 80, 150, unit="thousand/s", unjudged=why),
            Goal("p99", float(np.median(p99)), 50, 30, unit="ms", is_ceiling=True, unjudged=why),
        ],
        clients=plan.clients,
        sessions=1,
        loop=loop_name(),
        rate_s=spread(rates, 0),
        p50_ms=spread(p50),
        p99_ms=spread(p99),
        payload="one point read on a column without an index, five columns as row tuples",
        rows=plan.rows,
    )


def _rows_per_key(stock: Stock) -> dict[str, int]:
    return dict(Counter(stock.table.column("rloc").to_pylist()))


async def _closed_loop(
    read: Any, keys: list[str], n_clients: int, seconds: float, counts: dict[str, int]
) -> tuple[float, list[float]]:
    """Give operations per second, and the latencies in milliseconds."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time() + WARM_UP_S
    end_s = begin_s + seconds
    latencies: list[float] = []

    async def client(number: int) -> None:
        place = number
        while (sent_s := loop.time()) < end_s:
            key = keys[place % len(keys)]
            place += n_clients
            rows = (await read((key,))).rows()
            done_s = loop.time()
            if len(rows) != counts[key]:
                raise AssertionError(f"{key} has {counts[key]} rows, and {len(rows)} were read")
            if sent_s >= begin_s and done_s <= end_s:
                latencies.append(1e3 * (done_s - sent_s))

    await asyncio.gather(*(client(number) for number in range(n_clients)))
    return len(latencies) / seconds, latencies


class _Neighbours:
    """Other operations of fifty shapes, as many at once as wanted, until told to stop.

    Two sessions take turns, each with half of the operations, so that there is
    never a moment without any.
    """

    def __init__(self, stock: Stock, at_once: int) -> None:
        self._shapes = _shapes(stock, at_once)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self.n_done = 0
        names = ("left", "right") if at_once > 1 else ("left",)
        sessions = [stock.store().session(name) for name in names]
        share = max(at_once // len(sessions), 1)
        self._threads = [
            threading.Thread(target=self._load, args=(session, share), name=f"neighbours-{place}")
            for place, session in enumerate(sessions)
        ]

    def __enter__(self) -> _Neighbours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _load(self, session: Any, at_once: int) -> None:
        try:
            table = session.table("tickets")
            prepared = [(table.prepare_select(list(OUTPUTS), where), rows) for where, rows in self._shapes]
            per_shape, more = divmod(at_once, len(prepared))
            while not self._stop.is_set():
                handles = []
                for place, (read, parameters) in enumerate(prepared):
                    wanted = per_shape + (place < more)
                    if wanted:
                        handles.extend(read.many([parameters[i % len(parameters)] for i in range(wanted)]))
                for handle in handles:
                    if not len(handle.result()):
                        raise AssertionError("a neighbour found no row, though its constants are a row's")
                self.n_done += len(handles)
        except Exception as error:  # noqa: BLE001  # Raised again where the load is ended.
            self._error = error


def _shapes(stock: Stock, at_once: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Give fifty predicates, and constants for each, taken from rows so that each meets one."""
    n = min(max(at_once // N_SHAPES, 8), 1_000, len(stock.table))
    rows = np.random.default_rng(stock.plan.seed).integers(0, len(stock.table), 4 * n)
    names = (*SELECTIVE, *OTHERS)
    values = {name: stock.table.column(name).take(rows).to_pylist() for name in names}
    shapes = []
    pairs = [(first, None) for first in SELECTIVE] + [
        (first, second) for second in OTHERS for first in SELECTIVE
    ]
    for first, second in pairs[:N_SHAPES]:
        if second is None:
            constants: list[tuple[Any, ...]] = [(a,) for a in values[first] if a is not None]
            shapes.append((f"{first} = ?", constants[:n]))
        else:
            both = zip(values[first], values[second], strict=True)
            constants = [(a, b) for a, b in both if a is not None]
            shapes.append((f"{first} = ? and {second} = ?", constants[:n]))
    return shapes


def e10(stock: Stock) -> Outcome:
    """The p99 of a point read that is alone, and in the company of others."""
    plan = stock.plan
    probe = stock.store().session("probe").table("tickets").prepare_select(list(OUTPUTS), "rloc = ?")
    counts = _rows_per_key(stock)

    keys = cycle(stock.draw.points(1 << 16).keys)

    def waits(seconds: float) -> list[float]:
        return _probe(probe, keys, seconds, counts)

    waits(plan.seconds / 4)
    alone = waits(plan.seconds)
    told = {"alone": _percentiles(alone)}
    p99_alone = float(np.percentile(alone, 99))
    goals = []
    for at_once in plan.others:
        progress(f"E10: beside {at_once:,} others")
        with _Neighbours(stock, at_once) as others:
            waits(plan.seconds / 16)
            found = waits(plan.seconds)
        told[f"beside {at_once}"] = {**_percentiles(found), "others_done": others.n_done}
        goals += _flat(f"beside {at_once:,}", found, p99_alone, plan.unjudged())
    flood = plan.flood
    if not plan.is_full:
        flood = min(flood, max(int(others.n_done / plan.seconds * 2 * plan.slow_s), plan.batch))
    progress(f"E10: beside one client's {flood:,}")
    found = _beside_flood(stock, flood, waits)
    told[f"beside one client's {flood}"] = _percentiles(found)
    why = plan.unjudged() or ("" if flood == FLOOD else f"{flood:,} operations, not {FLOOD:,}")
    goals += _flat("beside one client's 1,000,000", found, p99_alone, why)
    return judge(
        goals,
        latency_ms=told,
        shapes=N_SHAPES,
        payload="point reads on a column without an index; five columns as row tuples",
        rows=plan.rows,
    )


def _flat(what: str, waits: list[float], p99_alone: float, why: str) -> list[Goal]:
    p99 = float(np.percentile(waits, 99))
    return [
        Goal(f"p99 {what}, of that alone", p99 / p99_alone, 5, 3, is_ceiling=True, unjudged=why),
        Goal(f"p99 {what}", p99, 100, 50, unit="ms", is_ceiling=True, unjudged=why),
    ]


def _percentiles(waits: list[float]) -> dict[str, Any]:
    p50, p90, p99 = (round(float(each), 3) for each in np.percentile(waits, (50, 90, 99)))
    return {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": round(max(waits), 3), "reads": len(waits)}


def _probe(read: Any, keys: Iterator[str], seconds: float, counts: dict[str, int]) -> list[float]:
    """Read one key after the other, at least one; give the latencies in milliseconds."""
    waits: list[float] = []
    begin_s = time.perf_counter()
    for key in keys:
        sent_s = time.perf_counter()
        wanted = READS_MIN if sent_s < begin_s + PATIENCE * seconds else 1
        if sent_s > begin_s + seconds and len(waits) >= wanted:
            break
        rows = read((key,)).result().rows()
        waits.append(1e3 * (time.perf_counter() - sent_s))
        if len(rows) != counts[key]:
            raise AssertionError(f"{key} has {counts[key]} rows, and {len(rows)} were read")
    return waits


def _beside_flood(stock: Stock, n: int, waits: Callable[[float], list[float]]) -> list[float]:
    """Give the latencies while one other client has very many operations answered, sent in one call."""
    read = stock.store().session("flood").table("tickets").prepare_select(list(OUTPUTS), "rloc = ?")
    keys = stock.draw.points(min(n, 1 << 16)).keys
    is_over = threading.Event()
    failures: list[Exception] = []

    def flood() -> None:
        try:
            handles = read.many([(keys[i % len(keys)],) for i in range(n)])
            for place, handle in enumerate(handles):
                handle.result()
                handles[place] = None
        except Exception as error:  # noqa: BLE001  # Raised again below.
            failures.append(error)
        finally:
            is_over.set()

    thread = threading.Thread(target=flood, name="flood")
    thread.start()
    found: list[float] = []
    while not is_over.is_set() or not found:
        found += waits(0.0)
    thread.join()
    if failures:
        raise failures[0]
    return found
