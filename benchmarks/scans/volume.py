"""E7 and E8: many rows on one core, and how near a scan comes to the memory's own speed.

Rules of the file: operations are pending as the engine gets them and answers
are arrays, but where texts are asked for. The speed of memory is measured in
the same run, on one core, by a sum over more values than any cache holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.report import progress
from benchmarks.scans.contest import Timing, timed
from benchmarks.scans.engine_side import EngineSide
from benchmarks.scans.plan import Stock
from benchmarks.tickets.generate import tickets
from benchmarks.tickets.work import OUTPUTS, Draw
from benchmarks.verdicts import Goal, Outcome, judge, spread
from crescando.engine.operations import Operations
from crescando.engine.statement import Shape

LARGE_ROWS = 6_000_000
ARCS = 3
"""Ring arcs of one engine: a process of a store with three copies of each row holds three."""

PIECE_ROWS = 1_000_000
FEW, MANY = 1_000, 10_000
NOBODY = 1 << 40
"""Negative passenger numbers down to so many are nobody's."""


class Volume:
    """The large table: an engine with three arcs, and keys that its rows have."""

    def __init__(self, stock: Stock) -> None:
        plan = stock.plan
        self.n_rows = plan.large_rows
        first = tickets(min(PIECE_ROWS, self.n_rows), plan.seed)
        progress(f"loading {self.n_rows:,} rows into 3 arcs of one engine")
        self.side = EngineSide(first, arcs=ARCS)
        for place in range(1, -(-self.n_rows // PIECE_ROWS)):
            begin = place * PIECE_ROWS
            count = min(PIECE_ROWS, self.n_rows - begin)
            self.side.load(tickets(count, plan.seed + place, begin))
        self.draw = Draw(first, plan.seed + 2)
        self.few, self.many = min(FEW, plan.batch), min(MANY, plan.batch)

    def reads(self, n: int, columns: Sequence[str] = OUTPUTS, *, in_scopes: bool = True) -> list[Operations]:
        """Give point reads: a third of them in the scope of each arc, or all of the whole ring."""
        keys = [(key,) for key in self.draw.points(n).keys]
        shape = self.side.read("rloc = ?", ["x"], columns)
        return self._in_scopes(shape, keys) if in_scopes else self.side.operations(shape, keys)

    def writes(self, n: int) -> list[Operations]:
        """Give updates, in scopes of one arc each as far as their reports go."""
        work = self.draw.changes(n)
        shape = self.side.update("rloc = ?", "miles = miles + ?", [1, "x"])
        return self._in_scopes(shape, list(zip(work.deltas, work.keys, strict=True)))

    def _in_scopes(self, shape: Shape, parameters: Sequence[tuple[Any, ...]]) -> list[Operations]:
        share = -(-len(parameters) // ARCS)
        return [
            run
            for place, arc in enumerate(self.side.arcs)
            for run in self.side.operations(shape, parameters[place * share : (place + 1) * share], (arc,))
        ]


def _volume(stock: Stock) -> Volume:
    """Give the large table, loaded once for both measures."""
    return stock.kept("volume", lambda: Volume(stock))


def _trials(stock: Stock, make: Callable[[], Any], do: Callable[[Any], Any]) -> Timing:
    """Time what is done with new operations each time; the first time is a warm-up."""
    seconds = []
    count = 1
    for turn in range(stock.plan.trials + 1):
        operations = make()
        count = sum(map(len, operations))
        taken_s, _ = timed(do, operations)
        if turn:
            seconds.append(taken_s)
    return Timing(tuple(seconds), count)


def e7(stock: Stock) -> Outcome:
    """Reads and writes of 6 M rows on one core, as the paper measured them."""
    volume = _volume(stock)
    side = volume.side
    names = side.schema.column_names
    timings = {
        "reads at 10k": _trials(stock, lambda: volume.reads(volume.many), side.rows),
        "reads at 10k, whole ring": _trials(
            stock, lambda: volume.reads(volume.many, in_scopes=False), side.rows
        ),
        "writes at 10k": _trials(stock, lambda: volume.writes(volume.many), side.affected),
        "reads at 1k": _trials(stock, lambda: volume.reads(volume.few), side.rows),
        "reads at 1k, whole ring": _trials(
            stock, lambda: volume.reads(volume.few, in_scopes=False), side.rows
        ),
        "47 columns with texts at 10k": _trials(
            stock, lambda: volume.reads(volume.many, names, in_scopes=False), side.arrow
        ),
    }

    def rate(*of: str) -> float:
        return min(timings[name].rate_s for name in of) / 1e3

    why = stock.plan.unjudged(LARGE_ROWS, volume.n_rows)
    unit = "thousand/s"
    goals = [
        Goal(
            "reads at 10k", rate("reads at 10k", "reads at 10k, whole ring"), 600, 1_000, unit, unjudged=why
        ),
        Goal("writes at 10k", rate("writes at 10k"), 300, 500, unit, unjudged=why),
        Goal("reads at 1k", rate("reads at 1k", "reads at 1k, whole ring"), 90, 200, unit, unjudged=why),
        Goal("47 columns with texts", rate("47 columns with texts at 10k"), 60, 150, unit, unjudged=why),
    ]
    return judge(
        goals,
        rows=volume.n_rows,
        threads=1,
        arcs=ARCS,
        timings={name: timing.told() for name, timing in timings.items()},
        note="reads in scopes of one arc of three, and of the whole ring: the slower one counts",
        paper="4,500 to 5,500 reads/s and 5,500 writes/s a process (RB13 §7.3, §7.4.1); context only",
    )


def read_bandwidth(n_bytes: int, trials: int) -> dict[str, Any]:
    """Give what one core reads in sequence, in GB/s."""
    values = np.ones(n_bytes // 8, np.int64)
    try:
        import numba
    except ImportError:
        summed: Callable[[Any], Any] = np.sum
        how = "numpy sum"
    else:
        how = "numba sum"

        def in_a_loop(array: Any) -> int:
            total = 0
            for place in range(array.size):
                total += array[place]
            return total

        summed = numba.njit(nogil=True)(in_a_loop)
    summed(values)
    rates = []
    for _ in range(trials):
        taken_s, found = timed(summed, values)
        assert found == values.size
        rates.append(values.nbytes / taken_s / 1e9)
    return {"gb_s": spread(rates), "how": how}


def bandwidth_of(stock: Stock) -> dict[str, Any]:
    """Give the read bandwidth of this run, measured once."""
    return stock.kept("bandwidth", lambda: read_bandwidth(stock.plan.read_bytes, max(stock.plan.trials, 3)))


def e8(stock: Stock) -> Outcome:
    """How near a probe and a whole cycle come to reading the column, and what a second core adds."""
    volume = _volume(stock)
    memory = bandwidth_of(stock)
    bandwidth = memory["gb_s"]["median"] * 1e9
    probes = _probe_seconds_per_row(stock, volume)
    probed = 8 / probes[volume.few]
    # Numbers are as wide in memory as in the schema: their widths need no look into the engine.
    cycles = {
        name: (width, _trials(stock, partial(_by_number, volume, name), volume.side.rows))
        for name, width in (("passenger_id", 8), ("customer_no", 4))
    }
    shares = {
        name: 100 * width * volume.n_rows / bandwidth / timing.median_s
        for name, (width, timing) in cycles.items()
    }
    one, two = _one_and_two(stock)
    why = stock.plan.unjudged(LARGE_ROWS, volume.n_rows)
    goals = [
        Goal("probe at 1k, of the read bandwidth", 100 * probed / bandwidth, 40, 50, "%", unjudged=why),
        # Of the column that is probed.
        Goal("whole cycle at 1k", shares["passenger_id"], 18, 25, "%", unjudged=why),
        Goal(
            "two partitions on two cores",
            one.median_s / two.median_s,
            1.5,
            1.8,
            unjudged=stock.plan.unjudged(),
        ),
    ]
    return judge(
        goals,
        rows=volume.n_rows,
        sequential_read=memory,
        probe={
            "of": "an int64 column",
            **{
                f"{n} constants": {
                    "ns_per_row": round(1e9 * probe_s, 3),
                    "gb_s": round(8e-9 / probe_s, 2),
                    "of_the_read_bandwidth_percent": round(100 * 8 / probe_s / bandwidth, 1),
                }
                for n, probe_s in probes.items()
            },
        },
        cycles={
            f"an int{8 * width} column": {
                **timing.told(),
                "of_the_read_bandwidth_percent": round(shares[name], 1),
            }
            for name, (width, timing) in cycles.items()
        },
        partitions={"one": one.told(), "two": two.told(), "merged": True, "rows": stock.plan.rows},
    )


def _probe_seconds_per_row(stock: Stock, volume: Volume) -> dict[int, float]:
    """Give by number of constants what a row costs that meets none: a large table's time less a small one's.

    The constants lie anywhere, so that every row is looked up.
    """
    small_rows = max(volume.n_rows // 8, 1)
    small = EngineSide(tickets(small_rows, stock.plan.seed))
    sides = {small_rows: small, volume.n_rows: volume.side}
    absent = [
        (-int(number),) for number in np.random.default_rng(stock.plan.seed).integers(1, NOBODY, volume.many)
    ]
    told = {}
    for n in dict.fromkeys((volume.few, volume.many)):
        medians = {}
        for n_rows, side in sides.items():
            shape = side.read("passenger_id = ?", [1])
            timing = _trials(
                stock,
                lambda side=side, shape=shape, n=n: side.operations(shape, absent[:n]),  # type: ignore[misc]
                side.rows,
            )
            medians[n_rows] = timing.median_s
        gained_s = medians[volume.n_rows] - medians[small_rows]
        # On tables so small that noise decides, the whole time counts.
        told[n] = (gained_s if gained_s > 0 else medians[volume.n_rows]) / (volume.n_rows - small_rows)
    return told


def _by_number(volume: Volume, column: str) -> list[Operations]:
    numbers = volume.draw.numbers(volume.few, column)
    shape = volume.side.read(f"{column} = ?", [1])
    return volume.side.operations(shape, [(number,) for number in numbers])


def _one_and_two(stock: Stock) -> tuple[Timing, Timing]:
    """Time the same reads on one thread and on two, taking turns; answers are whole."""
    sides = [stock.engine(1), stock.engine(2)]
    seconds: list[list[float]] = [[], []]
    for turn in range(stock.plan.trials + 1):
        keys = [(key,) for key in stock.draw.points(stock.plan.batch).keys]
        found = []
        for place in (0, 1) if turn % 2 else (1, 0):
            side = sides[place]
            pending = side.operations(side.read("rloc = ?", ["x"]), keys)
            taken_s, rows = timed(side.rows, pending)
            found.append(sum(int(each.offsets[-1]) for each in rows))
            if turn:
                seconds[place].append(taken_s)
        assert found[0] == found[1]
    one, two = (Timing(tuple(taken), stock.plan.batch) for taken in seconds)
    return one, two


def sweep(stock: Stock, batches: Sequence[int]) -> dict[str, Any]:
    """Point reads at batches of many sizes, arrays in and out, on one thread; with the limit of memory."""
    side = stock.engine()
    bandwidth = bandwidth_of(stock)["gb_s"]["median"] * 1e9
    shape = side.read("rloc = ?", ["x"])
    told = {}
    for n in batches:
        times = []
        for _ in range(stock.plan.trials + 1):
            pending = side.operations(shape, [(key,) for key in stock.draw.points(n).keys])
            times.append(timed(side.rows, pending)[0])
        told[n] = statistics.median(times[1:])
    return {
        "rows": side.n_rows,
        "cycle_s": told,
        # Reading the four or eight bytes of the column that is tested, at the speed of memory.
        "limit_s": {"4 bytes": 4 * side.n_rows / bandwidth, "8 bytes": 8 * side.n_rows / bandwidth},
    }
