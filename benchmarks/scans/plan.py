"""How much is measured, and what the measures share: one table, its engines, its rivals."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.report import progress
from benchmarks.rivals.base import Rival
from benchmarks.scans.engine_side import EngineSide
from benchmarks.tickets.generate import tickets
from benchmarks.tickets.work import Draw

R = TypeVar("R", bound=Rival)
T = TypeVar("T")

GOAL_ROWS = 1_000_000
"""Rows that the goals are about, where they do not say otherwise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and numbers of trials.

    Attributes
    ----------
    rows, large_rows : int
        Of the usual table, and of that of E7 and E8.
    trials : int
    batches : tuple of int
        Operations of the batches that E2 and E5 compare at.
    batch : int
        Operations of the other batches.
    clients : int
        Of E6.
    others : tuple of int
        Operations that share scans with the probe of E10.
    seconds : float
        Length of one run with clients.
    flood : int
        Operations of the one client in E10 that sends many.
    read_bytes : int
        Of the array whose reading shows the speed of memory; far beyond any cache.
    slow_s : float
        A batch that would take longer is made smaller.
    is_full : bool
    seed : int
    """

    rows: int = GOAL_ROWS
    large_rows: int = 6_000_000
    trials: int = 5
    batches: tuple[int, ...] = (1_000, 10_000, 50_000)
    batch: int = 10_000
    clients: int = 1_000
    others: tuple[int, ...] = (1, 100, 10_000)
    seconds: float = 10.0
    flood: int = 1_000_000
    read_bytes: int = 1 << 29
    slow_s: float = 30.0
    is_full: bool = True
    seed: int = 1

    def unjudged(self, wanted: int = GOAL_ROWS, rows: int | None = None) -> str:
        """Say why a figure of this run does not count for a goal about `wanted` rows, or ""."""
        held = self.rows if rows is None else rows
        return "" if held == wanted else f"the goal is about {wanted:,} rows and this run has {held:,}"


QUICK = Plan(large_rows=GOAL_ROWS, trials=3, seconds=3.0, flood=100_000, slow_s=3.0, is_full=False)


def tiny(rows: int) -> Plan:
    """Give a plan that tries every measure in seconds and proves nothing."""
    return Plan(
        rows=rows,
        large_rows=rows,
        trials=1,
        batches=(50, 200),
        batch=200,
        clients=20,
        others=(1, 20, 100),
        seconds=0.3,
        flood=500,
        read_bytes=1 << 24,
        slow_s=0.5,
        is_full=False,
    )


class Stock:
    """What several measures use, made when first asked for.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.skipped: dict[str, str] = {}
        self._table: pa.Table | None = None
        self._draw: Draw | None = None
        self._engines: dict[int, EngineSide] = {}
        self._rivals: dict[type[Rival], Rival | None] = {}
        self._store: Any = None
        self._kept: dict[str, Any] = {}

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """Give what `make` once made under this name."""
        if name not in self._kept:
            self._kept[name] = make()
        kept: T = self._kept[name]
        return kept

    @property
    def table(self) -> pa.Table:
        """The tickets."""
        if self._table is None:
            self._table = tickets(self.plan.rows, self.plan.seed)
        return self._table

    @property
    def draw(self) -> Draw:
        """Batches on the tickets, each new."""
        if self._draw is None:
            self._draw = Draw(self.table, self.plan.seed + 1)
        return self._draw

    def engine(self, threads: int = 1) -> EngineSide:
        """Give our engine, with so many threads."""
        if threads not in self._engines:
            progress(f"loading {self.plan.rows:,} rows into an engine of {threads} thread(s)")
            self._engines[threads] = EngineSide(self.table, threads)
            _settle()
        return self._engines[threads]

    def store(self) -> Any:
        """Give an embedded store with a table ``tickets``."""
        if self._store is None:
            import crescando

            progress(f"loading {self.plan.rows:,} rows into an embedded store")
            self._store = crescando.open(timeout_s=600)
            self._store.create_table("tickets", like=self.table, primary_key="ticket_id")
            self._store.table("tickets").insert(self.table).result()
            _settle()
        return self._store

    def rival(self, kind: type[R]) -> R | None:
        """Give a loaded rival, or None if it cannot run here; then `skipped` says why."""
        if kind not in self._rivals:
            made = kind()
            why = made.available()
            if why:
                progress(f"{kind.name} is skipped: {why}")
                self.skipped[kind.name] = why
            else:
                progress(f"loading {self.plan.rows:,} rows into {kind.name}")
                try:
                    made.load(self.table)
                except BaseException:
                    made.close()
                    raise
                _settle()
            self._rivals[kind] = None if why else made
        return self._rivals[kind]  # type: ignore[return-value]

    def drop(self, kind: type[Rival]) -> None:
        """Free a rival that is not needed any more."""
        rival = self._rivals.pop(kind, None)
        if rival is not None:
            rival.close()

    def about(self, rivals: list[Rival]) -> dict[str, Any]:
        """Say which versions took part, what they do not do, and who was missing."""
        told: dict[str, Any] = {
            "rows": self.plan.rows,
            "rivals": {r.name: {"version": r.version(), "does_not": r.lacks} for r in rivals},
        }
        if self.skipped:
            told["skipped"] = dict(self.skipped)
        return told

    def close(self) -> None:
        """End everything that was started."""
        for kind in list(self._rivals):
            self.drop(kind)
        self._engines.clear()
        self._kept.clear()
        if self._store is not None:
            self._store.close()
            self._store = None


def _settle() -> None:
    """Set aside what is loaded: the collector need not look at it again, for ours and rivals alike."""
    gc.collect()
    gc.freeze()
