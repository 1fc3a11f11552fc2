"""How long operations take, learned from the cycles they shared.

Rules of the file: a shape costs one scan, and each of its operations something more. Only
the time of whole cycles is known, so what a cycle took beyond what was expected, or below it,
is put down to everything in it, in proportion; a shape that comes in other company is soon
known by itself. An estimate decides when something is executed and never what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crescando.engine.statement import Shape

SCAN_S, EACH_S = 1e-3, 5e-6
"""What a shape that nobody has seen is expected to cost: a guess for some hundred thousand rows."""

SCAN_S_MIN, EACH_S_MIN, COST_S_MAX = 1e-5, 1e-7, 1e3

LEARNED = 0.5
"""How much of a surprise is believed at once."""

SURPRISE_MAX = 8.0
"""A cycle may have been held up by something else; so much of that is believed at most."""

MEAN_OF = 0.1
"""Share of the last cycle in the mean."""

SHAPES_MAX = 8_192


@dataclass(slots=True, eq=False)
class Cost:
    """What one shape costs."""

    shape: Shape
    """Kept, so that no other takes its identity."""
    scan_s: float = SCAN_S
    each_s: float = EACH_S


class Mean:
    """What recent cycles took, and how many operations shared one."""

    def __init__(self) -> None:
        self.cycle_s = self.operations = 0.0

    def add(self, took_s: float, n: int) -> None:
        """Take one more into account; the last few count most."""
        weight = MEAN_OF if self.operations else 1.0
        self.cycle_s += weight * (took_s - self.cycle_s)
        self.operations += weight * (n - self.operations)


class Costs:
    """The costs of shapes, which are told apart by identity."""

    def __init__(self) -> None:
        self._of: dict[int, Cost] = {}

    def of(self, shape: Shape) -> Cost:
        """Give what a shape is expected to cost."""
        found = self._of.get(id(shape))
        if found is None:
            if len(self._of) >= SHAPES_MAX:
                del self._of[next(iter(self._of))]
            found = self._of[id(shape)] = Cost(shape)
        return found

    def learn(self, weights: Mapping[int, float], took_s: float) -> None:
        """Learn what a cycle took.

        Parameters
        ----------
        weights : mapping
            The weight of each shape's operations together, by the shape's identity.
        took_s : float
        """
        present = [(self._of[key], weight) for key, weight in weights.items() if key in self._of]
        expected_s = sum(cost.scan_s + cost.each_s * weight for cost, weight in present)
        if not present or took_s <= 0.0:
            return
        surprise = min(max(took_s / expected_s, 1 / SURPRISE_MAX), SURPRISE_MAX)
        for cost, weight in present:
            # Of few operations it is the scan that was misjudged, of many they themselves.
            share = cost.scan_s / (cost.scan_s + cost.each_s * weight)
            scan_s = cost.scan_s * surprise ** (LEARNED * share)
            each_s = cost.each_s * surprise ** (LEARNED * (1.0 - share))
            cost.scan_s = min(max(scan_s, SCAN_S_MIN), COST_S_MAX)
            cost.each_s = min(max(each_s, EACH_S_MIN), COST_S_MAX)
