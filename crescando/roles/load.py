"""What one cycle takes on, and how much more it may.

Rules of the file: a cycle is bounded in operations and in the time that it is expected to
take. Whatever comes first in it enters in any case, and so do as many as are tried (`Trials`).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crescando.engine.statement import Kind, Shape
from crescando.roles.bunches import Mixture
from crescando.roles.costs import Cost, Costs

WORTH_SCANS = 2.0
"""Operations may take as many times as long as the largest scan: on large tables two thirds of a cycle."""


class Load:
    """What a cycle has taken on.

    Parameters
    ----------
    costs : Costs
    operations_max : int
    target_s : float

    Attributes
    ----------
    n : int
        Operations taken on.
    is_full : bool
        Whether something was left waiting for want of room.
    is_brief : bool
        Whether it is for those who wait for few reads, while the others wait.
    weights : dict of int to float
        By shape: the weight of its operations together.
    """

    def __init__(self, costs: Costs, operations_max: int, target_s: float) -> None:
        self._costs = costs
        self._operations_max = operations_max
        self._target_s = target_s
        self._scans_s = 0.0
        self._largest_s = 0.0
        self._each_s = 0.0
        self._has_writes = False
        self._scanned: set[int] = set()
        self.n = 0
        self.is_full = False
        self.is_brief = False
        self.weights: dict[int, float] = {}

    @property
    def expected_s(self) -> float:
        """How long it is expected to take."""
        return self._scans_s + self._each_s

    def room(self, shape: Shape, weight: float) -> int:
        """Give how many operations of a shape may enter, each of some weight.

        Operations may take what the scans leave of the target's time, or as long as
        the scans that they share, or twice as long as the largest of them, whatever
        is most: a cycle on a large table is worth its scans. Reads alone lose nothing
        if some of their shapes are scanned for in the next cycle; behind writes the
        order would make them wait for ever more cycles.
        """
        cost = self._costs.of(shape)
        scans_s, largest_s = self._scans_s, self._largest_s
        if id(shape) not in self._scanned:
            scans_s += cost.scan_s
            largest_s = max(largest_s, cost.scan_s)
            is_alone = shape.kind is Kind.READ and not self._has_writes
            if is_alone and self.n and scans_s + self._each_s > self._target_s:
                return 0
        room = min(
            self._operations_max - self.n, int(self._left_s(scans_s, largest_s) / (cost.each_s * weight))
        )
        room = max(room, self._n_tried)
        return max(min(room, self._untried(cost, weight)), int(self.n == 0))

    @property
    def _n_tried(self) -> int:
        """How many more are tried, whatever they are expected to take."""
        return min(self._costs.trials.at_least, self._operations_max) - self.n

    def learn(self, took_s: float) -> None:
        """Learn how long it took; nothing of a time that nobody has measured."""
        if took_s > 0.0 and self.n:
            self._costs.learn(self.weights, took_s)
            if self.is_brief:
                # What is tried is tried on those who were left waiting.
                return
            self._costs.trials.learn(self.n, took_s, self.expected_s, is_full=self.is_full)

    def _untried(self, cost: Cost, weight: float) -> int:
        """Give how many more reads of a shape may enter, since never so many did before."""
        if cost.shape.kind is not Kind.READ:
            return self._operations_max
        taken = self.weights.get(id(cost.shape), 0.0)
        untried = int((cost.weight_max - taken) / weight)
        return untried if taken else max(untried, 1)

    def room_in_order(self, mixture: Mixture) -> int:
        """Give how many operations of a mixture may enter, the first ones of it."""
        costs = [self._costs.of(bunch.shape) for bunch in mixture.bunches]
        weighted = zip(costs, mixture.bunches, strict=True)
        codes = mixture.codes[: max(self._operations_max - self.n, 1)]
        each_s = np.array([cost.each_s * bunch.weight for cost, bunch in weighted])[codes]
        # Where a shape comes first, its scan is added to what the operations may take.
        firsts = np.searchsorted(mixture.places, [bunch.places[0] for bunch in mixture.bunches])
        scans: dict[int, float] = {}
        for first, cost in sorted(zip(firsts.tolist(), costs, strict=True), key=lambda each: each[0]):
            is_new = id(cost.shape) not in self._scanned
            if first < len(codes):
                scans[first] = cost.scan_s if is_new else 0.0
        fitting = max(self._fitting(each_s, scans), self._n_tried)
        for bunch, cost in zip(mixture.bunches, costs, strict=True):
            untried = self._untried(cost, bunch.weight)
            if untried < len(bunch.places):
                fitting = min(fitting, int(np.searchsorted(mixture.places, bunch.places[untried])))
        return max(min(fitting, self._operations_max - self.n), int(self.n == 0))

    def _fitting(self, each_s: NDArray[np.float64], scans: dict[int, float]) -> int:
        scans_s, largest_s, spent_s = self._scans_s, self._largest_s, 0.0
        for start, stop in pairwise((*scans, len(each_s))):
            scans_s += scans[start]
            largest_s = max(largest_s, scans[start])
            spent = np.cumsum(each_s[start:stop]) + spent_s
            n = int(np.searchsorted(spent, self._left_s(scans_s, largest_s), side="right"))
            if n < stop - start:
                return start + n
            spent_s = float(spent[-1])
        return len(each_s)

    def _left_s(self, scans_s: float, largest_s: float) -> float:
        return max(self._target_s - scans_s, scans_s, WORTH_SCANS * largest_s) - self._each_s

    def add(self, shape: Shape, weight: float, n: int = 1) -> None:
        """Take on operations of a shape that weigh so much together."""
        cost, key = self._costs.of(shape), id(shape)
        if key not in self._scanned:
            self._scanned.add(key)
            self._scans_s += cost.scan_s
            self._largest_s = max(self._largest_s, cost.scan_s)
        self._each_s += cost.each_s * weight
        self._has_writes = self._has_writes or shape.kind is not Kind.READ
        self.weights[key] = self.weights.get(key, 0.0) + weight
        self.n += n

    @property
    def n_scans(self) -> int:
        """How many shapes are scanned for."""
        return len(self._scanned)

    def has_scan(self, shape: int) -> bool:
        """Whether a shape's scan is taken on already."""
        return shape in self._scanned

    def begin_batch(self) -> None:
        """A table changes: what follows is scanned for apart."""
        self._scanned.clear()
