"""How long operations take, learned from the cycles they shared.

Rules of the file: a shape costs one scan, and each of its operations something more. Times are
of a processor at work: a cycle that waited for a core, or for the interpreter, would else look
dear, so that fewer shared the next one, which needs more cycles and makes all wait longer. Only
the time of whole cycles is known, so what a cycle took beyond what was expected, or below it,
is put down to everything in it, in proportion; a shape that comes in other company is soon
known by itself. What is a scan's and what an operation's is seen where more or fewer operations
share a cycle than before. How many of a shape may do so is tried out: a thousand reads that
find everything would else be one cycle of a minute, and its answers all there is of memory.
Nor may an estimate prove itself right: a host that stands still for a second makes operations
look slow, so that few share a cycle, and few can never show that more would have cost nothing.
While operations are left waiting, twice as many are tried every now and then (`Trials`).
An estimate decides when something is executed and never what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crescando.engine.statement import Shape

SCAN_S, EACH_S = 1e-3, 5e-6
"""What a shape that nobody has seen is expected to cost: a guess for some hundred thousand rows."""

SCAN_S_MIN, EACH_S_MIN, COST_S_MAX = 1e-5, 1e-7, 1e3

UNTRIED, TRIED_TIMES = 16.0, 2.0
"""Weight of a shape that nobody has seen that may share one cycle; and of another, in terms of what did."""

CYCLE_S = 0.010
"""What a cycle is to take if nobody says otherwise; what is known to take no longer may be tried."""

TOLD_APART, TOLD_APART_MIN = 1.5, 8.0
"""Two cycles tell scan and operations apart if one had so many times the other's, and at least so many."""

LONG = 2.0
"""They are asked if one was so many times as long as a cycle should be: others are well as they are."""

ALONE = 0.9
"""Expected share of a cycle from which what it took is one shape's."""

LEARNED = 0.5
"""How much of a surprise is believed at once."""

TOLD_APART_LEARNED = 0.75
"""How much of what two cycles say that tell scan and operations apart."""

SURPRISE_MAX = 8.0
"""A cycle may have been held up by something else; so much of that is believed at most."""

MEAN_OF = 0.1
"""Share of the last cycle in the mean."""

TRIAL_PAUSE, TRIAL_PAUSE_MAX = 16, 256
"""So many cycles that left something waiting lie between two trials; doubled while trials show nothing."""

CHEAPER = 0.8
"""A trial that took no more of what was expected says that more is worth trying at once."""

HELD_UP = 2.0
"""A cycle that took so many times what was expected may have spoilt the estimates."""

SHAPES_MAX = 8_192


@dataclass(slots=True, eq=False)
class Cost:
    """What one shape costs."""

    shape: Shape
    """Kept, so that no other takes its identity."""
    scan_s: float = SCAN_S
    each_s: float = EACH_S
    _most: tuple[float, float] = (0.0, 0.0)
    _last: tuple[float, float] = (0.0, 0.0)
    """Weights that shared a cycle, and what of its time was theirs: the largest, and the last alone."""

    @property
    def weight_max(self) -> float:
        """How much may share a cycle: twice what did, or what is known to take no longer than a cycle."""
        weight, took_s = self._most
        return max(UNTRIED, weight * max(TRIED_TIMES, CYCLE_S / took_s)) if weight else UNTRIED

    def learn(self, weight: float, took_s: float, surprise: float, *, is_alone: bool) -> None:
        """Learn that operations of some weight took so long, the scan included; others hardly anything."""
        if weight > self._most[0]:
            self._most = weight, took_s
        before, before_s = self._last
        low, high = sorted((weight, before))
        is_long = max(took_s, before_s) > LONG * CYCLE_S
        if is_alone:
            self._last = weight, took_s
        if is_alone and is_long and before and high >= max(TOLD_APART * low, TOLD_APART_MIN):
            slope_s = min(max((took_s - before_s) / (weight - before), EACH_S_MIN), took_s / weight)
            self._move(took_s - slope_s * weight, slope_s, TOLD_APART_LEARNED)
        else:
            self._move_by(surprise, weight)

    def _move_by(self, surprise: float, weight: float) -> None:
        # Of few operations it is the scan that was misjudged, of many they themselves.
        share = self.scan_s / (self.scan_s + self.each_s * weight)
        self._move(self.scan_s * surprise**share, self.each_s * surprise ** (1.0 - share), LEARNED)

    def _move(self, scan_s: float, each_s: float, learned: float) -> None:
        """Come nearer to what one cycle says."""
        scan_s = self.scan_s ** (1.0 - learned) * max(scan_s, SCAN_S_MIN) ** learned
        each_s = self.each_s ** (1.0 - learned) * max(each_s, EACH_S_MIN) ** learned
        self.scan_s = min(max(scan_s, SCAN_S_MIN), COST_S_MAX)
        self.each_s = min(max(each_s, EACH_S_MIN), COST_S_MAX)


class Mean:
    """What recent cycles took, what they computed of it, and how many operations shared one."""

    def __init__(self) -> None:
        self.cycle_s = self.operations = self._worked_s = 0.0

    @property
    def stretch(self) -> float:
        """How many times its processor time a cycle takes."""
        return max(1.0, self.cycle_s / self._worked_s) if self._worked_s > 0.0 else 1.0

    def add(self, took_s: float, n: int, worked_s: float) -> None:
        """Take one more into account; the last few count most."""
        weight = MEAN_OF if self.operations else 1.0
        self.cycle_s += weight * (took_s - self.cycle_s)
        self._worked_s += weight * (worked_s - self._worked_s)
        self.operations += weight * (n - self.operations)


class Trials:
    """How many operations share the next cycle whatever they are expected to take.

    Attributes
    ----------
    at_least : int
    """

    def __init__(self) -> None:
        self.at_least = 1
        self._pause = self._due_in = TRIAL_PAUSE

    @property
    def is_one(self) -> bool:
        """Whether the next cycle tries more than the estimates allow."""
        return self.at_least > 1

    def learn(self, n: int, took_s: float, expected_s: float, *, is_full: bool) -> None:
        """Learn of a cycle of `n` operations, which left some waiting or not."""
        if took_s > HELD_UP * expected_s:
            self._pause = TRIAL_PAUSE
            self._due_in = min(self._due_in, TRIAL_PAUSE)
        if self.is_one:
            is_cheap = took_s <= CHEAPER * expected_s
            self._pause = TRIAL_PAUSE if is_cheap else min(2 * self._pause, TRIAL_PAUSE_MAX)
            self._due_in = 0 if is_cheap else self._pause
        elif is_full:
            self._due_in -= 1
        self.at_least = int(TRIED_TIMES * n) if is_full and self._due_in <= 0 else 1


class Costs:
    """The costs of shapes, which are told apart by identity.

    Attributes
    ----------
    trials : Trials
    """

    def __init__(self) -> None:
        self.trials = Trials()
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
            share = (cost.scan_s + cost.each_s * weight) / expected_s
            cost.learn(weight, took_s * share, surprise, is_alone=share >= ALONE)
