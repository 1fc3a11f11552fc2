"""Loads and extracts of the same rows by all sides, taking turns.

Rules of the file: a trial is one load and one extract by every side, in a sequence
that changes from trial to trial; the first trial warms up and is not counted. After
each extract the rows of the side are summed, untimed, and must be those that were
loaded; a side whose rows differ has no figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.exchange.costs import Account
from benchmarks.exchange.side import Side, checksum, drain
from benchmarks.report import progress
from benchmarks.verdicts import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DisagreementError(Exception):
    """A side gave other rows than it was given."""


@dataclass(slots=True)
class Timing:
    """What one side needed, trial by trial."""

    load_s: list[float] = field(default_factory=list)
    extract_s: list[float] = field(default_factory=list)
    load_cpu_s: list[dict[str, float]] = field(default_factory=list)
    extract_cpu_s: list[dict[str, float]] = field(default_factory=list)

    def rate(self, what: str, n_rows: int) -> float:
        """Give rows a second, of the median time."""
        return n_rows / statistics.median(getattr(self, f"{what}_s"))

    def told(self, n_rows: int) -> dict[str, Any]:
        """Give rates and spreads, and whose time it was in the median trial."""
        told: dict[str, Any] = {}
        for what in ("load", "extract"):
            seconds: list[float] = getattr(self, f"{what}_s")
            costs: list[dict[str, float]] = getattr(self, f"{what}_cpu_s")
            median = sorted(range(len(seconds)), key=seconds.__getitem__)[len(seconds) // 2]
            told[what] = {
                "rows_per_s": round(self.rate(what, n_rows)),
                "seconds": spread(seconds),
                "cpu_s": costs[median],
            }
        return told


def compete(
    frame: DataFrame, sides: Sequence[Side], trials: int, java: int
) -> tuple[dict[str, Timing], tuple[int, int]]:
    """Have every side load and extract the frame, several times.

    Parameters
    ----------
    frame : DataFrame
        Read anew for each load.
    sides : sequence of Side
        Open, all of them.
    trials : int
        That count.
    java : int
        The process of Spark.

    Returns
    -------
    dict of str to Timing
        By the sides' names.
    tuple of int
        Rows and checksum, alike for all.

    Raises
    ------
    DisagreementError
        If a side gives other rows.
    """
    expected = checksum(frame, frame.schema)
    timings = {side.name: Timing() for side in sides}
    for trial in range(trials + 1):
        for side in rotated(sides, trial):
            progress(f"trial {trial} of {trials}: {side.name}" + (" (not counted)" if not trial else ""))
            timing = Timing() if trial == 0 else timings[side.name]
            side.clear()
            timing.load_s.append(timed(lambda side=side: side.load(frame), side, java, timing.load_cpu_s))
            extract = lambda side=side: drain(side.extract())  # noqa: E731
            timing.extract_s.append(timed(extract, side, java, timing.extract_cpu_s))
            found = checksum(side.extract(), frame.schema)
            if found != expected:
                raise DisagreementError(f"{side.name} gave {found} and was given {expected} (rows, checksum)")
    return timings, expected


def rotated(sides: Sequence[Side], trial: int) -> list[Side]:
    """Give the sides in another sequence for each trial."""
    cut = trial % len(sides)
    return [*sides[cut:], *sides[:cut]]


def timed(work: Callable[[], None], side: Side, java: int, costs: list[dict[str, float]]) -> float:
    """Do a piece of work and give its seconds; note whose processor time it took."""
    # Below Java there are Python's workers and what forks them, and nothing else.
    account = Account({"Java": [java], **side.pids()}, below={"Java": "Python workers"})
    begin_s = time.perf_counter()
    work()
    took_s = time.perf_counter() - begin_s
    costs.append(account.spent())
    return took_s
