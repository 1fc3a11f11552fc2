"""When to withhold confirmations because too much work waits.

Rules of the file: withholding slows down whoever sends, by the routers' credit, and delays
the stability of everybody's operations; so it lasts a moment only. A process that never
confirmed while it is kept busy would be taken for one that does not get on, and voted out.
"""

from __future__ import annotations

HOLD_S = 0.5
"""How long confirmations are withheld at a time; far below what routers call a lag."""


class Restraint:
    """Whether to withhold confirmations now.

    Parameters
    ----------
    backlog_s : float
        Work that may wait.

    Attributes
    ----------
    wake_at_s : float or None
        When to look again, if nothing happens before.
    """

    def __init__(self, backlog_s: float) -> None:
        self._backlog_s = backlog_s
        self._until_s: float | None = None
        self.wake_at_s: float | None = None

    def look(self, backlog_s: float, now_s: float) -> bool:
        """Take how much work waits; True to withhold."""
        self.wake_at_s = None
        if backlog_s <= self._backlog_s:
            self._until_s = None
            return False
        if self._until_s is None:
            self._until_s = now_s + HOLD_S
        elif now_s >= self._until_s:
            # What has come until now is confirmed; what comes next waits again.
            self._until_s = None
            return False
        self.wake_at_s = self._until_s
        return True
