"""What loads and extracts must show, and what limits them where they do not.

Rules of the file: figures in, one key of the result out; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.verdicts import Goal, Outcome, judge, outcome

GOAL_ROWS = 1_000_000

GOALS = {
    "L1": {"JDBC": (5.0, 10.0), "Parquet": (0.3, 0.5)},
    "X1": {"JDBC": (3.0, 6.0), "Parquet": (0.3, 0.5)},
}
"""By measure and peer: how many times the peer's rate is required, and hoped for."""


def judged(key: str, rates: Mapping[str, float], n_rows: int, **detail: Any) -> Outcome:
    """Give one key of the result.

    Parameters
    ----------
    key : str
        ``L`` or ``X``, and the copies of each row.
    rates : mapping of str to float
        Rows a second by side.
    n_rows : int
        In this run; a goal is judged at a million only.
    **detail
        Told with it; `sides` has the seconds of processor of each.
    """
    ours = f"crescando, f = {key[1]}"
    ratios = {name: round(rates[ours] / rate, 3) for name, rate in rates.items() if name != ours}
    detail = {"ratios": ratios, **detail}
    if key not in GOALS:
        return outcome(
            ratios.get("JDBC"), "context: times the rate of JDBC, which keeps one copy", None, **detail
        )
    unjudged = (
        "" if n_rows == GOAL_ROWS else f"the goal is about {GOAL_ROWS:,} rows and this run has {n_rows:,}"
    )
    verb = "load" if key[0] == "L" else "extract"
    goals = [
        Goal(f"{verb} against {peer}", ratios.get(peer), must, hoped, unjudged=unjudged)
        for peer, (must, hoped) in GOALS[key].items()
    ]
    if any(goal.share is not None and goal.share < 1 for goal in goals):
        detail["limited_by"] = limit(detail["sides"][ours])
    return judge(goals, **detail)


def limit(side: Mapping[str, Any]) -> str:
    """Say whose processor time a side's is, the most first."""
    spent = sorted(side["cpu_s"].items(), key=lambda item: -item[1])
    total = sum(seconds for _, seconds in spent)
    parts = ", ".join(
        f"{kind} {seconds:.1f} s ({100 * seconds / (total or 1):.0f} %)" for kind, seconds in spent
    )
    took_s = side["seconds"]["median"]
    return f"{total:.1f} s of processor in {took_s:.1f} s: {parts}"
