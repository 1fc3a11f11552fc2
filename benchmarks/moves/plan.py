"""How much the elasticity benchmark does: all of it, or a little."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("sequential", "snapshot", "basic")
"""The isolation levels of reads, the strictest first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and times.

    Parameters
    ----------
    rows : int
        Tickets in the figures' table; the promises have `promise_rows`.
    promise_rows : int
    most : int
        Storage processes at most.
    seconds : float
        Of one measure of throughput.
    calm_s : float
        Of load before and after each change in a trace.
    trials : int
    """

    rows: int = 100_000
    promise_rows: int = 1_000_000
    most: int = 8
    seconds: float = 1.0
    calm_s: float = 3.0
    trials: int = 3

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of storage processes that are measured."""
        return tuple(n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= self.most)


QUICK = Plan(rows=20_000, promise_rows=100_000, most=6, seconds=0.4, calm_s=1.5, trials=1)
