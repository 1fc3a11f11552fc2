"""E1, E2, E3 and E11: batches of reads at the engine's interface, beside frames and a column store.

Rules of the file: in E1 a rival is called once per read, and both sides give
arrays. In the others a rival is given the whole batch as a join with constants,
written by hand; Python values go in, Arrow tables with real texts come out, and
the rows are compared in full. Of our one and two threads the better counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from benchmarks.report import progress
from benchmarks.rivals.arrays import Arrays, Pandas
from benchmarks.rivals.base import Rival, Ways
from benchmarks.rivals.duckdb_rival import DuckDB
from benchmarks.rivals.polars_rival import Polars
from benchmarks.scans.contest import Timing, arrow_checksum, contest, fastest, require_equal, timed
from benchmarks.scans.engine_side import EngineSide
from benchmarks.scans.plan import Stock
from benchmarks.verdicts import Goal, Outcome, judge
from crescando.engine.base import Rows

OURS = ("1 thread", "2 threads")

E1_GOALS = {"polars": (1_000, 2_000), "duckdb": (6_000, 12_000), "numpy": (250, 500)}
E2_GOALS = {
    "polars": {1_000: (2.5, 4.0), 10_000: (1.5, 2.5), 50_000: (1.3, 2.0)},
    "duckdb": {1_000: (5.0, 8.0), 10_000: (3.5, 5.0), 50_000: (2.0, 3.0)},
}
E3_GOALS = {
    "days": {"duckdb": (2.5, 4.0), "polars": (1.2, 2.0)},
    "instants": {"duckdb": (8.0, 12.0), "polars": (4.0, 6.0)},
}
E11_GOAL = (2.0, 4.0)

CALLS = 40
"""Calls of a rival in one trial of E1."""


def e1(stock: Stock) -> Outcome:
    """Point reads, 10,000 pending, against one call for each."""
    ours = stock.engine()
    polars, duckdb, arrays = stock.rival(Polars), stock.rival(DuckDB), stock.rival(Arrays)
    calls: dict[str, Callable[[str], Any]] = {}
    if polars is not None:
        calls |= {"polars": polars.one, "polars on categories": polars.one_coded}
    if duckdb is not None:
        duckdb.make_index()
        calls |= {"duckdb": duckdb.one, "duckdb with its index": duckdb.one_indexed}
    if arrays is not None:
        calls |= {"numpy": arrays.one, "numexpr": arrays.one_numexpr}
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *calls)}
    for turn in range(stock.plan.trials + 1):
        work = stock.draw.points(stock.plan.batch)
        pending = ours.operations(ours.read("rloc = ?", ["x"]), [(key,) for key in work.keys])
        some = work.keys[:CALLS]
        told = {}
        taken_s, parts = timed(ours.rows, pending)
        told["ours"] = _sums_of_tickets(parts, int(pending[0].position[0]), len(some))
        if turn:
            seconds["ours"].append(taken_s)
        for name, call in calls.items():
            taken_s, answers = timed(partial(_one_by_one, call), some)
            told[name] = [_sum_of_tickets(answer) for answer in answers]
            if turn:
                seconds[name].append(taken_s)
        require_equal(told)
    if duckdb is not None:
        duckdb.drop_index()
    counts = {"ours": stock.plan.batch} | dict.fromkeys(calls, min(CALLS, stock.plan.batch))
    timings = {name: Timing(tuple(taken), counts[name]) for name, taken in seconds.items()}
    goals = [
        _ratio_goal(stock, f"{name}, one call per read", "ours", name, timings, E1_GOALS[name])
        for name in E1_GOALS
    ]
    return judge(
        goals,
        batch=stock.plan.batch,
        payload="five columns, as arrays of numbers and codes; operations pending as the engine gets them",
        latency_ms={
            name: round(1e3 * timing.median_s / (1 if name == "ours" else timing.n_operations), 3)
            for name, timing in timings.items()
        },
        timings={name: timing.told() for name, timing in timings.items()},
        **stock.about([r for r in (polars, duckdb, arrays) if r is not None]),
    )


def _one_by_one(call: Callable[[str], Any], keys: list[str]) -> list[Any]:
    return [call(key) for key in keys]


def _sums_of_tickets(parts: list[Rows], first: int, n: int) -> list[int]:
    """Give the sum of the ticket numbers that each of the first `n` reads found."""
    sums = [0] * n
    for rows in parts:
        for place, number in enumerate((rows.number - first).tolist()):
            if number < n:
                found = rows.columns[0].values[rows.offsets[place] : rows.offsets[place + 1]]
                sums[number] += int(np.sum(found))
    return sums


def _sum_of_tickets(answer: Any) -> int:
    first = answer[0] if isinstance(answer, list) else answer["ticket_id"]
    return int(np.sum(first.to_numpy() if hasattr(first, "to_numpy") else first))


def e2(stock: Stock) -> Outcome:
    """Point reads against each rival's own batch join, at each size of batch."""
    rivals = _rivals(stock, Polars, DuckDB)
    context = _rivals(stock, Pandas)
    told, goals = {}, []
    for n in stock.plan.batches:
        progress(f"E2: batches of {n:,}")
        sides = _sides(stock, lambda side: side.points)
        ways = {rival.name: rival.points() for rival in (*rivals, *context)}
        timings, entry = _compare(stock, sides, ways, stock.draw.points, n)
        told[f"{n}"] = entry
        for name, sizes in E2_GOALS.items():
            if n in sizes:
                goals.append(_best_goal(stock, f"{name}, batch join, {n:,}", name, timings, sizes[n]))
    for name, sizes in E2_GOALS.items():
        for n in sizes.keys() - set(stock.plan.batches):
            goals.append(
                Goal(
                    f"{name}, batch join, {n:,}",
                    None,
                    *sizes[n],
                    unjudged=stock.skipped.get(name, "not in this run"),
                )
            )
    return judge(goals, batches=told, payload=_PAYLOAD, **stock.about([*rivals, *context]))


def e3(stock: Stock) -> Outcome:
    """Equality and range: of days, which can be cut into keys, and of instants."""
    rivals = _rivals(stock, Polars, DuckDB)
    goals, told = [], {}
    for kind in ("days", "instants"):
        progress(f"E3: {kind}")
        make = getattr(stock.draw, kind)
        sides = _sides(stock, lambda side: side.spans)
        ways = {rival.name: getattr(rival, kind)() for rival in rivals}
        timings, told[kind] = _compare(stock, sides, ways, make, stock.plan.batch)
        for name, (must, hoped) in E3_GOALS[kind].items():
            goals.append(_best_goal(stock, f"{name}, {kind}", name, timings, (must, hoped)))
    progress("E3: instants cut into days by hand")
    by_hand = {rival.name: rival.instants_by_hand() for rival in rivals}
    sides = _sides(stock, lambda side: side.spans)
    _, told["instants, rivals' rows and constants cut into days by hand"] = _compare(
        stock, sides, by_hand, stock.draw.instants, stock.plan.batch
    )
    return judge(goals, batch=stock.plan.batch, kinds=told, payload=_PAYLOAD, **stock.about(list(rivals)))


def e11(stock: Stock) -> Outcome:
    """Beginnings, ranges and equality on a text column without repetition."""
    rivals = _rivals(stock, Polars, DuckDB)
    n = stock.plan.batch
    kinds: dict[str, tuple[str, Callable[[int], Any], str]] = {
        "equality": ("points", lambda n: stock.draw.points(n, "document"), "points"),
        "prefix": ("prefixes", stock.draw.prefixes, "prefixes"),
        "range": ("text_spans", stock.draw.text_spans, "text_spans"),
    }
    goals, told = [], {}
    for kind, (method, make, ways_of) in kinds.items():
        progress(f"E11: {kind}")
        sides = _sides(stock, attrgetter(method))
        ways = {rival.name: getattr(rival, ways_of)() for rival in rivals}
        timings, told[kind] = _compare(stock, sides, ways, make, n, can_shrink=True)
        for name in ("polars", "duckdb"):
            goals.append(_best_goal(stock, f"{name}, {kind}", name, timings, E11_GOAL))
    return judge(
        goals,
        batch=n,
        kinds=told,
        payload="ticket number and the text of 32 bytes",
        **stock.about(list(rivals)),
    )


_PAYLOAD = "five columns; Python values in, Arrow with real texts out, in the order of the operations"


def _rivals(stock: Stock, *kinds: type[Rival]) -> list[Any]:
    return [rival for rival in map(stock.rival, kinds) if rival is not None]


def _sides(stock: Stock, method: Callable[[EngineSide], Callable[[Any], Any]]) -> dict[str, Any]:
    return {name: method(stock.engine(threads)) for name, threads in zip(OURS, (1, 2), strict=True)}


def _compare(
    stock: Stock,
    sides: Mapping[str, Callable[[Any], Any]],
    ways: Mapping[str, Ways],
    make: Callable[[int], Any],
    n: int,
    *,
    can_shrink: bool = False,
) -> tuple[dict[str, Timing], dict[str, Any]]:
    """Let our sides and each rival's fastest way compete; give timings, and what to tell of them."""
    ours_n = _affordable(stock, sides, make, n) if can_shrink else n
    batches = [make(max(n // share, min(n, 16))) for share in (256, 16, 1)]
    chosen = {name: fastest(each, batches, arrow_checksum) for name, each in ways.items()}
    picked = {name: ways[name][way] for name, way in chosen.items()}
    trials = stock.plan.trials + 1
    timings = contest({**sides, **picked}, [make(ours_n) for _ in range(trials)], arrow_checksum)
    if ours_n < n and picked:
        # Ours cannot do so many in time; rivals get the whole batch all the same.
        timings |= contest(picked, [make(n) for _ in range(trials)], arrow_checksum)
    entry: dict[str, Any] = {name: timing.told() for name, timing in timings.items()}
    for name, way in chosen.items():
        entry[name] |= {"way": way, "ratio": round(_best(timings) / timings[name].rate_s, 2)}
    if ours_n < n:
        entry["our_batch"] = ours_n
    return timings, entry


def _affordable(
    stock: Stock, sides: Mapping[str, Callable[[Any], Any]], make: Callable[[int], Any], n: int
) -> int:
    """Give how many operations our sides do in the time that a batch may take, at most `n`."""
    count = min(8, n)
    side = next(iter(sides.values()))
    side(make(count))
    while count < n:
        taken_s, _ = timed(side, make(count))
        if 8 * taken_s > stock.plan.slow_s:
            return count
        count = min(8 * count, n)
    return n


def _best(timings: Mapping[str, Timing]) -> float:
    return max(timings[name].rate_s for name in OURS)


def _best_goal(
    stock: Stock, what: str, rival: str, timings: Mapping[str, Timing], goal: tuple[float, float]
) -> Goal:
    if rival not in timings:
        return Goal(what, None, *goal, unjudged=stock.skipped.get(rival, "not measured"))
    return Goal(what, _best(timings) / timings[rival].rate_s, *goal, unjudged=stock.plan.unjudged())


def _ratio_goal(
    stock: Stock, what: str, ours: str, rival: str, timings: Mapping[str, Timing], goal: tuple[float, float]
) -> Goal:
    if rival not in timings:
        return Goal(what, None, *goal, unjudged=stock.skipped.get(rival, "not measured"))
    ratio = timings[ours].rate_s / timings[rival].rate_s
    return Goal(what, ratio, *goal, unjudged=stock.plan.unjudged())
