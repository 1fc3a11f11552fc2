"""E4 and E5: reads while updates run, and updates, beside stores that have the right index.

Rules of the file: E4 uses the store as its users do, down to row tuples; E5 the
engine's interface, as E2 does, and the store beside it. Every side may give up the order of
reads among updates, which keep theirs, if that makes it faster; then the column that is
written is compared only with those who do so too. Goals say which side does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import progress
from benchmarks.rivals.base import Ways
from benchmarks.rivals.duckdb_rival import DuckDB
from benchmarks.rivals.postgres_rival import Postgres
from benchmarks.rivals.sqlite_rival import SQLite
from benchmarks.scans.contest import Timing, contest, require_equal, rows_checksum, timed
from benchmarks.scans.plan import Stock
from benchmarks.scans.store_side import StoreSide
from benchmarks.tickets.work import Mixed
from benchmarks.verdicts import Goal, Outcome, judge

UPDATES = 0.1
"""Share of updates among the operations of E4."""

STORE = "the store's own calls"

E4_GOALS = {"sqlite": (4.0, 8.0), "postgresql": (8.0, 15.0)}
E5_SQLITE = (10.0, 20.0)
E5_DUCKDB = {1_000: (5.0, 8.0), 10_000: (1.8, 3.0), 50_000: (0.9, 1.2)}


@dataclass(slots=True)
class _Player:
    """A side of E4 with its ways, of which the fastest is kept."""

    ways: Sequence[tuple[str, bool, Callable[[Any], Any]]]
    """Name, whether it keeps the order, and what does the work."""
    tried: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def play(self, turn: int, work: Mixed) -> tuple[bool, Any]:
        """Do a batch: in turn `turn` of the try-outs, else in the fastest way."""
        is_trial = turn >= 0
        name, is_ordered, do = self._fastest() if is_trial else self.ways[(-1 - turn) % len(self.ways)]
        taken_s, answer = timed(do, work)
        if is_trial:
            self.seconds.append(taken_s)
        else:
            self.tried[name] = min(taken_s, self.tried.get(name, taken_s))
        return is_ordered, answer

    def _fastest(self) -> tuple[str, bool, Callable[[Any], Any]]:
        return min(self.ways, key=lambda way: self.tried[way[0]])

    def best_in_order(self) -> float:
        """Give the seconds of the fastest way that keeps the order, as it was tried once."""
        return min(self.tried[name] for name, is_ordered, _ in self.ways if is_ordered)

    def told(self, n: int) -> dict[str, Any]:
        """Give its rate, and of each way that was tried."""
        name, is_ordered, _ = self._fastest()
        tried = {each: round(n / taken_s) for each, taken_s in self.tried.items()}
        return {
            **Timing(tuple(self.seconds), n).told(),
            "way": name,
            "keeps_order": is_ordered,
            "tried_rate_s": tried,
        }


def e4(stock: Stock) -> Outcome:
    """Reads as row tuples beside updates, which run in strict order, against the right index."""
    n = stock.plan.batch
    side = StoreSide(stock.store())
    players = {"ours": _Player(_ways(side.mixed(), side.mixed_unordered()))}
    rivals: list[Any] = [rival for rival in map(stock.rival, (SQLite, Postgres)) if rival is not None]
    for rival in rivals:
        players[rival.name] = _Player(_ways(rival.mixed(), rival.mixed_unordered()))
    try_outs = max(len(player.ways) for player in players.values())
    # Each way is tried once, then all play for time; every batch is done once by every side.
    for turn in (*range(-try_outs, 0), *range(stock.plan.trials)):
        work = stock.draw.mixed(n, UPDATES)
        full: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        partial = {}
        names = list(players)
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            is_ordered, answer = players[name].play(turn, work)
            full[is_ordered][name] = rows_checksum(answer)
            partial[name] = rows_checksum([[row[:-1] for row in rows] for rows in answer])
        for same in filter(None, full.values()):
            require_equal(same)
        require_equal(partial)
    told = {name: player.told(n) for name, player in players.items()}
    goals = []
    for name, goal in E4_GOALS.items():
        ratio = None if name not in told else _rate(told["ours"]) / _rate(told[name])
        why = stock.skipped.get(name, "") or stock.plan.unjudged()
        how = "" if name not in told else f" ({_how(told['ours'])} / {_how(told[name])})"
        goals.append(Goal(f"{name} with the right index{how}", ratio, *goal, unjudged=why))
    in_order = {name: player.best_in_order() for name, player in players.items()}
    return judge(
        goals,
        batch=n,
        share_of_updates=UPDATES,
        payload="five columns as row tuples; one session of an embedded store; updates in strict order",
        sides=told,
        ratios_of_one_try_in_order={
            name: round(in_order[name] / in_order["ours"], 2) for name in in_order if name != "ours"
        },
        **stock.about(rivals),
    )


def _how(told: Mapping[str, Any]) -> str:
    return "in order" if told["keeps_order"] else "reads apart"


def _ways(ordered: Ways, unordered: Ways) -> list[tuple[str, bool, Callable[[Any], Any]]]:
    return [(name, True, do) for name, do in ordered.items()] + [
        (name, False, do) for name, do in unordered.items()
    ]


def _rate(told: Mapping[str, Any]) -> float:
    return float(told["rate_s"]["median"])


def e5(stock: Stock) -> Outcome:
    """Updates by a predicate that is not the key, in strict order."""
    engines = {"1 thread": stock.engine(1), "2 threads": stock.engine(2)}
    store = StoreSide(stock.store())
    rivals: list[Any] = [rival for rival in map(stock.rival, (SQLite, DuckDB)) if rival is not None]
    ways = {rival.name: next(iter(rival.changes().items())) for rival in rivals}
    goals, told = [], {}
    for n in stock.plan.batches:
        progress(f"E5: batches of {n:,}")
        sides: dict[str, Any] = dict(engines)
        if n <= stock.plan.batch or stock.plan.is_full:
            sides[STORE] = store
        sides |= {rival.name: rival for rival in rivals}
        do: dict[str, Callable[[Any], int]] = {
            name: ways[name][1] if name in ways else side.changes for name, side in sides.items()
        }
        before = {name: side.miles() for name, side in sides.items()}
        timings = contest(do, [stock.draw.changes(n) for _ in range(stock.plan.trials + 1)], int)
        # Sides may have been through different measures before: what counts is what is added.
        require_equal({name: side.miles() - before[name] for name, side in sides.items()})
        ours = max(timings[name].rate_s for name in engines)
        told[str(n)] = {name: timing.told() for name, timing in timings.items()}
        for name, (way, _) in ways.items():
            told[str(n)][name] |= {"way": way, "ratio": round(ours / timings[name].rate_s, 2)}
            if STORE in timings:
                ratio = timings[STORE].rate_s / timings[name].rate_s
                told[str(n)][name]["ratio_of_the_stores_calls"] = round(ratio, 2)
        if "sqlite" in ways and n == stock.plan.batch:
            ratio = ours / timings["sqlite"].rate_s
            goals.append(Goal(f"sqlite, indexed, {n:,}", ratio, *E5_SQLITE, unjudged=stock.plan.unjudged()))
        if "duckdb" in ways and n in E5_DUCKDB:
            ratio = ours / timings["duckdb"].rate_s
            goals.append(
                Goal(f"duckdb, UPDATE FROM, {n:,}", ratio, *E5_DUCKDB[n], unjudged=stock.plan.unjudged())
            )
    goals += [
        Goal(f"{kind.name}", None, 1.0, 1.0, unjudged=stock.skipped[kind.name])
        for kind in (SQLite, DuckDB)
        if kind.name in stock.skipped
    ]
    return judge(
        goals,
        payload="miles = miles + ? where rloc = ?; Python values in, counts out; equal sums at the end",
        batches=told,
        **stock.about(rivals),
    )
