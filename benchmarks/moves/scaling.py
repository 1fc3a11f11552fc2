"""Throughput against the number of storage processes, and the work behind it (RB13 Figs. 8, 9 and 10).

Rules of the file: all processes of the store share this machine's few cores, so
throughput cannot grow with them as it does on as many machines. What must
follow the paper exactly is the *work*: how many processes are delivered an
operation, and how many rows and bytes they scan for it. A cluster of machines does as
many operations at once as that leaves it; the figure gives both, and the
throughput that the work allows where every process has a core of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import crescando
from benchmarks.moves.load import Stream, global_reads, point_reads, point_writes
from benchmarks.moves.model import Model
from benchmarks.moves.plan import LEVELS, Plan
from benchmarks.report import progress
from benchmarks.verdicts import Outcome, outcome
from crescando.schema import RangePartition
from crescando.spec import ClusterSpec

BATCH = 512
"""Operations that one stream has under way."""

DAYS = 1 << 20
"""Values of the column that ranges are about; drawn evenly, as in RB13 §7.5."""

WORK_ERROR_MAX = 0.005
"""Deliveries may differ from the paper's number by that share: reads that were asked again."""

SETTLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Work:
    """What one kind of operation cost a store.

    Attributes
    ----------
    rate_s : float
    delivered : float
        Processes that executed an operation, on average.
    busiest : float
        The share of all operations that the busiest process executed.
    rows : float
        Rows scanned for one operation, all processes together.
    n_bytes : float
        What these rows take in memory.
    """

    rate_s: float
    delivered: float
    busiest: float
    rows: float
    n_bytes: float


def measured(store: Any, stream: Stream, seconds: float) -> Work:
    """Do one stream's batches for a while, and give what they cost."""
    stream.once()
    before, begin_s = _settled(store), time.perf_counter()
    n = 0
    while (now_s := time.perf_counter()) < begin_s + seconds:
        n += stream.once()
    after = _settled(store)
    executed = [after[process][0] - before[process][0] for process in before]
    scanned = {process: after[process][1] - before[process][1] for process in before}
    n_bytes = sum(rows * after[process][2] for process, rows in scanned.items())
    rows = sum(scanned.values())
    return Work(n / (now_s - begin_s), sum(executed) / n, max(executed) / n, rows / n, n_bytes / n)


def _settled(store: Any) -> dict[str, tuple[int, int, float]]:
    """Give the counters of `_counters`, once those who report to nobody are done too."""
    known = _counters(store)
    while True:
        time.sleep(SETTLE_S)
        now = _counters(store)
        if now == known:
            return now
        known = now


def _counters(store: Any) -> dict[str, tuple[int, int, float]]:
    """Give each storage process's operations executed, rows scanned, and what one of its rows takes."""
    return {
        name: (told["operations"], told["rows_scanned"], told["bytes"] / max(1, told["rows"]))
        for name, told in store.cluster.statistics().items()
        if name.startswith("storage")
    }


def opened(n: int, f: int, table: pa.Table, partition: Any = None, key: str = "ticket_id") -> Any:
    """Open a store of n storage processes, f copies of each row, with a table of tickets."""
    spec = ClusterSpec(routers=3, storages=n, replication=f)
    store = crescando.open(spec=spec, timeout_s=120.0)
    primary = () if partition is not None else key
    tickets = store.create_table(
        "tickets", like=table.slice(0, 1), partition_key=key, primary_key=primary, partition=partition
    )
    for start in range(0, len(table), 1 << 15):
        tickets.insert(table.slice(start, 1 << 15)).result(120.0)
    return store


def write_scaling(plan: Plan, table: pa.Table) -> Outcome:
    """R8: writes by key, for f = 1, 3, 5 and n, and 1 to `most` storage processes."""
    lines: dict[str, dict[int, Work]] = {"f = 1": {}, "f = 3": {}, "f = 5": {}, "f = n": {}}
    wrong: list[str] = []
    for name, line in lines.items():
        for n in plan.sizes:
            f = n if name == "f = n" else min(int(name.split()[-1]), n)
            progress(f"R8 writes, {name}, {n} storage processes")
            with opened(n, f, table) as store:
                model = Model(table)
                line[n] = _median(
                    [
                        measured(store, point_writes(store, model, BATCH, seed), plan.seconds)
                        for seed in range(plan.trials)
                    ]
                )
            _compare(wrong, f"{name}, n = {n}", line[n].delivered, f)
    worst = max(
        (abs(work.delivered / _copies(name, n) - 1))
        for name, line in lines.items()
        for n, work in line.items()
    )
    return outcome(
        worst,
        "each write is executed by exactly min(f, n) processes (RB13 §7.3)",
        not wrong,
        lines=_told(lines),
        wrong=wrong,
    )


def _copies(name: str, n: int) -> int:
    return n if name == "f = n" else min(int(name.split()[-1]), n)


def read_scaling(plan: Plan, table: pa.Table) -> Outcome:
    """R9: reads at three levels, by key and by a column that is none, f = 3."""
    lines: dict[str, dict[int, Work]] = {}
    wrong: list[str] = []
    locators = list(dict.fromkeys(table.column("rloc").to_pylist()))
    for n in plan.sizes:
        f = min(3, n)
        with opened(n, f, table) as store:
            model = Model(table)
            for level in LEVELS:
                progress(f"R9 {level} reads, {n} storage processes")
                by_key = point_reads(store, model, level, BATCH)
                by_locator = global_reads(store, level, BATCH // 4, locators)
                for what, stream, processes in (
                    (f"{level}, by key", by_key, 1),
                    (f"{level}, by another column", by_locator, math.ceil(n / f)),
                ):
                    work = measured(store, stream, plan.seconds)
                    lines.setdefault(what, {})[n] = work
                    _compare(wrong, f"{what}, n = {n}", work.delivered, processes)
    return outcome(
        len(wrong),
        "a read by key is executed by 1 process, any other by n / f, rounded up (RB13 §7.4)",
        not wrong,
        lines=_told(lines),
        wrong=wrong,
    )


def coverage(plan: Plan, table: pa.Table) -> Outcome:
    """R10: reads and writes of a range that covers a share of the keys, f = 3."""
    n, f = plan.most, 3
    chance = np.random.default_rng(10)
    table = table.append_column("day", pa.array(chance.integers(0, DAYS, len(table))))
    schema = table.schema
    table = table.set_column(
        schema.get_field_index("day"), pa.field("day", pa.int64(), nullable=False), table.column("day")
    )
    lines: dict[str, dict[float, Work]] = {}
    wrong: list[str] = []
    locators = list(dict.fromkeys(table.column("rloc").to_pylist()))
    with opened(n, f, table, RangePartition(0, DAYS), "day") as store:
        for share in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0):
            for what in ("writes", *LEVELS):
                progress(f"R10 {what}, coverage {share}")
                stream = _ranges(store, what, share, locators)
                work = measured(store, stream, plan.seconds)
                lines.setdefault(what, {})[share] = work
                if share in (0.0, 1.0):
                    ends = (f, n) if what == "writes" else (1, math.ceil(n / f))
                    _compare(wrong, f"{what}, c = {share}", work.delivered, ends[int(share)])
        for what, line in lines.items():
            delivered = [work.delivered for work in line.values()]
            if any(later < earlier * (1 - WORK_ERROR_MAX) for earlier, later in pairwise(delivered)):
                wrong.append(f"{what}: a larger range went to fewer processes")
    return outcome(
        len(wrong),
        f"from 1 (writes: {f}) process at c = 0 to n / f, rounded up (writes: {n}) at c = 1 (RB13 §7.5)",
        not wrong,
        lines=_told(lines),
        wrong=wrong,
    )


def _ranges(store: Any, what: str, share: float, locators: list[str]) -> Stream:
    session = store.session(f"{what}-{share}", timeout_s=60.0)
    tickets = session.table("tickets")
    where = "rloc = ? and day between ? and ?"
    chance = np.random.default_rng(int(100 * share))
    width = round(share * (DAYS - 1))
    submit: Callable[[list[Any]], list[Any]]
    if what == "writes":
        add = tickets.prepare_update(where, "miles = miles + ?")

        def submit(drawn: list[Any]) -> list[Any]:
            return add.many([(1, *each) for each in drawn])

    else:
        submit = tickets.prepare_select(["ticket_id"], where, isolation=what).many

    def step() -> int:
        lows = chance.integers(0, DAYS - width, BATCH // 4).tolist()
        keys = [locators[place] for place in chance.integers(0, len(locators), BATCH // 4).tolist()]
        for handle in submit([(key, low, low + width) for key, low in zip(keys, lows, strict=True)]):
            handle.result()
        return BATCH // 4

    return Stream(f"{what} of ranges", step)


def _compare(wrong: list[str], what: str, delivered: float, expected: float) -> None:
    if abs(delivered / expected - 1) > WORK_ERROR_MAX:
        wrong.append(f"{what}: {delivered:.3f} processes instead of {expected}")


def _median(works: list[Work]) -> Work:
    return sorted(works, key=lambda work: work.rate_s)[len(works) // 2]


def _told(lines: dict[str, dict[Any, Work]]) -> dict[str, Any]:
    return {
        name: {
            str(place): {
                "rate_s": round(work.rate_s),
                "executed_by": round(work.delivered, 3),
                "busiest_share": round(work.busiest, 3),
                "rows_scanned": round(work.rows),
                "bytes_scanned": round(work.n_bytes),
            }
            for place, work in line.items()
        }
        for name, line in lines.items()
    }
