"""C1 to C3: what a cluster of processes does at most, how long it takes at half of that, and what it costs.

Rules of the file: kinds take turns, so that all meet the same machine; figures
are medians of the turns. Beside every rate stands what it cost, process by
process and layer by layer.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from benchmarks.report import progress
from benchmarks.served.plan import HOPED, KINDS, MUST, WRITES
from benchmarks.served.world import World
from benchmarks.verdicts import Goal, Outcome, judge, outcome, spread

LAYERS = ("transport", "ordering", "roles", "engine", "client", "other")

P99_MS_MAX, P99_MS_HOPED = 100.0, 50.0
"""What reads and writes may take at half load: the bound that the engine has under any load (E10)."""

Spent = dict[str, dict[str, int]]
"""Milliseconds of CPU by layer, by process."""


class Table:
    """One table of tickets in a running cluster, and what was measured on it."""

    def __init__(self, world: World, name: str, rows: int) -> None:
        self.world, self.name, self.rows = world, name, rows
        self.rates: dict[str, list[float]] = defaultdict(list)
        self.waits: dict[str, list[dict[str, float]]] = defaultdict(list)
        self.costs: dict[str, list[dict[str, float]]] = defaultdict(list)
        self._keys = str(world.folder / f"{name}.json")
        progress(f"loading {rows:,} rows")
        self.loaded = world.tell_first(
            do="load", table=name, rows=rows, seed=world.plan.seed, keys=self._keys
        )
        world.ask(do="learn", table=name, keys=self._keys)
        self._total = world.tell_first(do="total")["total"]

    def measure_rates(self) -> None:
        """Let every kind have its turns."""
        plan = self.world.plan
        self._closed("sequential", plan.seconds / 2)
        for trial in range(plan.trials):
            for kind in KINDS:
                progress(f"{self.rows:,} rows, {kind}, {trial + 1} of {plan.trials}")
                before = _spent(self.world)
                told = self._closed(kind, plan.seconds)
                n = sum(each["n_all"] for each in told)
                self.rates[kind].append(sum(each["rate_s"] for each in told))
                self.waits[f"{kind} at most"].append(_worst(told))
                self.costs[kind].append(_cost(before, _spent(self.world), n))

    def _closed(self, kind: str, seconds: float) -> list[dict[str, Any]]:
        plan = self.world.plan
        return self.world.ask(do="closed", kind=kind, block=plan.block, at_once=plan.at_once, seconds=seconds)

    def measure_waits(self) -> None:
        """Ask at half of each kind's rate."""
        plan = self.world.plan
        for kind in KINDS:
            rate_s = statistics.median(self.rates[kind]) / 2
            progress(f"{self.rows:,} rows, {kind} at {rate_s:,.0f}/s")
            for _ in range(plan.trials):
                told = self.world.ask(
                    do="paced", kind=kind, rate_s=rate_s / plan.clients, seconds=plan.seconds
                )
                self.waits[kind].append(_worst(told))

    def check(self) -> None:
        """Raise unless every write that was answered is in the table, once; each added 1 to its rows."""
        found = self.world.tell_first(do="total")["total"] - self._total
        written = sum(each["n"] for each in self.world.ask(do="written"))
        if found != written:
            raise AssertionError(f"{written} rows were changed by writes that were answered, {found} are")

    # Outcomes.

    def c1(self) -> Outcome:
        """Rates of each kind."""
        why = self.world.plan.unjudged(self.rows)
        goals = [
            Goal(
                f"{kind}", statistics.median(rates) / 1e3, MUST[kind], HOPED[kind], "thousand/s", unjudged=why
            )
            for kind, rates in self.rates.items()
        ]
        return judge(
            goals,
            rows=self.rows,
            rates_s={kind: spread(rates, 0) for kind, rates in self.rates.items()},
            loaded_rows_s=round(self.loaded["rows_s"]),
            in_flight=self.world.plan.clients * self.world.plan.block * self.world.plan.at_once,
        )

    def c2(self) -> Outcome:
        """Waits at half load, and beside them those at the highest rate."""
        why = self.world.plan.unjudged(self.rows)
        p99 = {kind: statistics.median(each["p99_ms"] for each in self.waits[kind]) for kind in KINDS}
        return judge(
            [
                Goal(f"{kind} p99", p99[kind], P99_MS_MAX, P99_MS_HOPED, "ms", is_ceiling=True, unjudged=why)
                for kind in KINDS
            ],
            rows=self.rows,
            waits_ms={
                kind: {name: spread([each[name] for each in waits]) for name in ("p50_ms", "p99_ms")}
                for kind, waits in self.waits.items()
            },
        )

    def c3(self) -> Outcome:
        """The share of each layer in the CPU time of one operation."""
        told = {kind: _median(costs) for kind, costs in self.costs.items()}
        return outcome(
            told[WRITES]["us"],
            "CPU microseconds of one write, all processes together; shares of each layer are told",
            None,
            rows=self.rows,
            shares={
                kind: {name: round(share, 3) for name, share in cost.items()} for kind, cost in told.items()
            },
        )


def measured(world: World, name: str, rows: int, *, waits: bool) -> Table:
    """Load a table and take its measures."""
    table = Table(world, name, rows)
    table.measure_rates()
    if waits:
        table.measure_waits()
    table.check()
    return table


def _spent(world: World) -> Spent:
    plan = world.plan
    spent = {name: counted for name, counted in world.statistics().items() if "cpu_all_ms" in counted}
    if len(spent) != plan.routers + plan.storages + plan.supers:
        raise AssertionError(
            f"of the cluster's nodes only these answer, and no figure counts: {sorted(spent)}"
        )
    for number, told in enumerate(world.ask(do="spent")):
        spent[f"client/{number}"] = told
    return spent


def _cost(before: Spent, after: Spent, n: int) -> dict[str, float]:
    """Give CPU microseconds of one operation, the share of each layer, and of each role's processes."""
    ms: dict[str, float] = defaultdict(float)
    for process, now in after.items():
        then, role = before[process], process.partition("/")[0]
        by_layer = {
            name.removeprefix("cpu_").removesuffix("_ms"): now[name] - then.get(name, 0)
            for name in now
            if name.startswith("cpu_")
        }
        whole = by_layer.pop("all")
        rest = whole - sum(by_layer.values())
        for layer, each in by_layer.items():
            # Whatever a client's process does beside its transport is the client's.
            ms["client" if role == "client" and layer == "roles" else layer] += each
        # The rest is other threads: in a client, whoever calls; in a node, next to nothing.
        ms["client" if role == "client" else "other"] += max(0, rest)
        ms[f"{role} processes"] += whole
    whole_ms = sum(ms[layer] for layer in LAYERS)
    shares = {name: spent / whole_ms for name, spent in ms.items()}
    return {"us": 1e3 * whole_ms / n, **shares}


def _worst(told: list[dict[str, Any]]) -> dict[str, float]:
    return {name: max(each[name] for each in told) for name in ("p50_ms", "p99_ms")}


def _median(costs: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for cost in costs for name in cost)
    return {name: statistics.median(cost.get(name, 0.0) for cost in costs) for name in names}
