"""How long an answer is waited for before the question is asked again.

Rules of the file: a question that is asked again is work for the same processes once more, which
a cluster that is slow has least room for; so whoever asks waits longer than answers take, whatever
they take (Jacobson 1988, §2; Karn and Partridge 1987, §5): the mean and four times the deviation
from it, and after one that was waited for in vain twice as long, until an answer tells more.
"""

from __future__ import annotations

MEAN_OF, DEVIATION_OF = 1 / 8, 1 / 4
"""What one more answer weighs against those before it."""

DEVIATIONS = 4.0


class Patience:
    """What one client knows of how long answers of one kind take.

    Parameters
    ----------
    least_s, most_s : float

    Attributes
    ----------
    seconds : float
        How long to wait for the next answer.
    """

    def __init__(self, least_s: float, most_s: float) -> None:
        self.least_s = least_s
        self.most_s = most_s
        self.seconds = least_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0

    def answered(self, took_s: float) -> None:
        """Learn how long an answer took."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        off_s = took_s - self._mean_s
        self._deviation_s += DEVIATION_OF * (abs(off_s) - self._deviation_s)
        self._mean_s += MEAN_OF * off_s
        self.seconds = self._bounded(self._mean_s + DEVIATIONS * self._deviation_s)

    def missed(self, waited_s: float) -> None:
        """Learn that so long was waited in vain."""
        self.seconds = max(self.seconds, self._bounded(2 * waited_s))

    def _bounded(self, seconds: float) -> float:
        return min(max(seconds, self.least_s), self.most_s)
