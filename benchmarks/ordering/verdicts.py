"""A measure's outcome: its value, its target, and whether it is met.

Rules of the file: every value is the median of its trials, never the best one,
and its spread stands beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.ordering.load import Sample

Outcome = dict[str, Any]


def spread(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Give median, least, greatest and number of some trials."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "trials": len(values),
    }


def spread_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """Give the spread of each number of some runs."""
    return {
        "rate_s": spread([sample.rate_s for sample in samples], 0),
        "p50_ms": spread([sample.p50_ms for sample in samples]),
        "p99_ms": spread([sample.p99_ms for sample in samples]),
    }


def outcome(value: float, target: str, ok: bool, **detail: Any) -> Outcome:
    """Give one key of the result."""
    return {"value": round(value, 3), "target": target, "ok": bool(ok), **detail}


def within(values: Sequence[float], share: float) -> bool:
    """Say whether the last value is not below the best one by more than a share of it."""
    return values[-1] >= (1 - share) * max(values)
