"""Whether a router knows of a leader that a majority backs, and since when it does not.

Rules of the file: a short absence is an election and nobody's business; a long
one is told to every application process, and so is its end.
"""

from __future__ import annotations


class LeaderPresence:
    """What a router tells about its group.

    Parameters
    ----------
    patience_s : float
        Absence after which it is told.

    Attributes
    ----------
    is_there : bool
        What is told now.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.is_there = True
        self._absent_since_s: float | None = None

    def look(self, *, is_present: bool, now_s: float) -> bool:
        """Take what holds in this turn; True if what is told has changed."""
        if is_present and self._absent_since_s is None:
            return False
        told = self.is_there
        if is_present:
            self._absent_since_s, self.is_there = None, True
        elif self._absent_since_s is None:
            self._absent_since_s = now_s
        elif now_s >= self._absent_since_s + self.patience_s:
            self.is_there = False
        return self.is_there != told

    @property
    def is_certain(self) -> bool:
        """Whether there was a leader at the last look."""
        return self._absent_since_s is None

    @property
    def wake_at_s(self) -> float | None:
        """When to look again if nothing happens before."""
        if self._absent_since_s is None or not self.is_there:
            return None
        return self._absent_since_s + self.patience_s
