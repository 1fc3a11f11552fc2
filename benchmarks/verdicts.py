"""A measure's outcome: its value, its targets, and whether they are met.

Rules of the file: every value is the median of its trials, never the best one,
and its spread stands beside it. A goal that could not be put to the test (its
peer is not installed, the table has another size than the goal is about) is
neither met nor missed, and says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Outcome = dict[str, Any]


def spread(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Give median, least, greatest and number of some trials."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "trials": len(values),
    }


def outcome(value: float | None, target: str, ok: bool | None, **detail: Any) -> Outcome:
    """Give one key of the result; `ok` is None where it could not be judged."""
    rounded = None if value is None else round(value, 3)
    return {"value": rounded, "target": target, "ok": None if ok is None else bool(ok), **detail}


def within(values: Sequence[float], share: float) -> bool:
    """Say whether the last value is not below the best one by more than a share of it."""
    return values[-1] >= (1 - share) * max(values)


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that a measure must show.

    Attributes
    ----------
    what : str
    value : float or None
        What was measured, or None if it could not be.
    must, hoped : float
        What is required, and what is hoped for.
    unit : str
        ``x`` for ratios.
    is_ceiling : bool
        Whether values are to stay below, as of latencies, and not above.
    unjudged : str
        Why the value does not count, or "".
    """

    what: str
    value: float | None
    must: float
    hoped: float
    unit: str = "x"
    is_ceiling: bool = False
    unjudged: str = ""

    @property
    def share(self) -> float | None:
        """The value as a share of what is required, 1 and more being enough."""
        if self.value is None:
            return None
        if self.is_ceiling:
            return self.must / self.value if self.value > 0 else float("inf")
        return self.value / self.must

    @property
    def is_met(self) -> bool | None:
        """Whether it is met, or None if that cannot be told."""
        share = self.share
        return None if share is None or self.unjudged else share >= 1

    def target(self) -> str:
        """Give the requirement as text."""
        return f"{self.what} {'<=' if self.is_ceiling else '>='} {self.must:g}{_glued(self.unit)}"

    def told(self) -> dict[str, Any]:
        """Give value and verdict."""
        told = {
            "value": None if self.value is None else float(f"{self.value:.4g}"),
            "target": self.target(),
            "ok": self.is_met,
            "reaches_goal": self.is_met and self._reaches_hope(),
            "goal": self.hoped,
        }
        if self.unjudged:
            told["not_judged"] = self.unjudged
        return told

    def shortfall(self) -> str:
        """Say by how much the requirement is missed, or ""."""
        if self.is_met is not False:
            return ""
        assert self.value is not None
        assert self.share is not None
        return f"{self.what}: {self.value:.3g}{_glued(self.unit)}, {100 * self.share:.0f} % of the target"

    def _reaches_hope(self) -> bool:
        assert self.value is not None
        return self.value <= self.hoped if self.is_ceiling else self.value >= self.hoped


def _glued(unit: str) -> str:
    return unit if unit in ("", "x") else f" {unit}"


def judge(goals: Sequence[Goal], **detail: Any) -> Outcome:
    """Give one key of the result from its goals.

    The value is the smallest share of a target that was reached: 1 and more
    means that all are met. ``ok`` is False if one is missed, and None if none is
    but some could not be judged.
    """
    shares = [goal.share for goal in goals if goal.share is not None]
    verdicts = [goal.is_met for goal in goals]
    ok = False if False in verdicts else (None if None in verdicts or not verdicts else True)
    missed = [text for text in map(Goal.shortfall, goals) if text]
    return outcome(
        min(shares, default=None),
        "the smallest share of: " + "; ".join(map(Goal.target, goals)),
        ok,
        goals={goal.what: goal.told() for goal in goals},
        **({"missed_by": missed} if missed else {}),
        **detail,
    )
