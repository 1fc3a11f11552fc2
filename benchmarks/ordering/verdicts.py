"""The spread of some runs of a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.ordering.load import Sample
from benchmarks.verdicts import spread


def spread_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """Give the spread of each number of some runs."""
    return {
        "rate_s": spread([sample.rate_s for sample in samples], 0),
        "p50_ms": spread([sample.p50_ms for sample in samples]),
        "p99_ms": spread([sample.p99_ms for sample in samples]),
    }
