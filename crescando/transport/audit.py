"""Who was turned away, in the log: every one, as long as they are few.

Rules of the file: a flood of strangers is told in numbers, so that it does not
become a flood of lines; what strangers say is shortened and shown as text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

LINES_MAX = 20
"""Lines per period."""

PERIOD_S = 10.0


class Audit:
    """Writes down who was turned away.

    Parameters
    ----------
    now_s : callable

    Attributes
    ----------
    n_refused : int
        How many were turned away in all.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.n_refused = 0
        self._now_s = now_s
        self._began_s = -PERIOD_S
        self._n_lines = 0

    def refuse(self, who: str, why: str) -> None:
        """Write down that somebody was turned away."""
        self.n_refused += 1
        now_s = self._now_s()
        if now_s - self._began_s >= PERIOD_S:
            if self._n_lines > LINES_MAX:
                logger.warning("%d more connections were refused", self._n_lines - LINES_MAX)
            self._began_s, self._n_lines = now_s, 0
        self._n_lines += 1
        if self._n_lines <= LINES_MAX:
            logger.warning("refused %s: %s", who, why)
