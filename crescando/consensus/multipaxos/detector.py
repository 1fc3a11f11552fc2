"""When silence means failure: the time since a leader was heard, judged by its own rhythm.

Rules of the file: a pause of this very process is not held against the leader,
since what it said meanwhile is still in our queue; a leader whose heartbeats
come irregularly (a busy machine, a slow link) is given more time, up to a
bound, so that load alone does not unseat it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GAPS = 4.0
"""Silence of this many of the longest recent gaps is still patience, not failure."""

PATIENCE = 3.0
"""A leader is never given more than this many election times."""

DECAY = 0.95
"""How much of the longest gap is remembered at the next heartbeat; half after some fourteen."""


@dataclass(slots=True)
class Detector:
    """A leader's heartbeats as one follower hears them.

    Parameters
    ----------
    election_s : float
        Silence after which a leader with a steady rhythm is doubted.

    Attributes
    ----------
    heard_s : float
        When it was heard last.
    gap_s : float
        The longest of the recent gaps.
    limit_s : float
        Silence after which the leader is doubted.
    """

    election_s: float
    heard_s: float = 0.0
    gap_s: float = 0.0
    limit_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._remember(self.gap_s)

    def _remember(self, gap_s: float) -> None:
        self.gap_s = gap_s
        self.limit_s = min(max(self.election_s, GAPS * gap_s), PATIENCE * self.election_s)

    def hear(self, now_s: float) -> None:
        """Note a sign of life: any message of the leader's."""
        gap_s = now_s - self.heard_s
        if gap_s > self.gap_s:
            self._remember(gap_s)
        self.heard_s = now_s

    def beat(self, now_s: float) -> None:
        """Note a heartbeat; with each, long gaps of the past count for less."""
        self._remember(self.gap_s * DECAY)
        self.hear(now_s)

    def follow(self, now_s: float) -> None:
        """Begin with another leader."""
        self.heard_s = now_s
        self._remember(0.0)

    def is_silent(self, now_s: float) -> bool:
        """Say whether the leader has been silent for too long."""
        return now_s >= self.heard_s + self.limit_s
