"""How well storage processes answer one client, so that it asks others while one has too much to do.

Rules of the file: nothing here decides what is right; every process that is named by the layout
may be asked. What is known of a process is forgotten after a while in which it is not asked, since
only asking would tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from crescando.types import ProcessId

GOOD, SLOW, AVOIDED, AWAY = range(4)
"""Ranks: as good as others; much slower than the fastest; refused or silent lately; without a session."""

SLOW_FACTOR = 4.0
"""So many times as long as the fastest one's answers take are much."""

SLOW_S = 0.02
"""Answers that come within this time are never slow."""

WEIGHT = 0.2
"""What one more answer weighs against those before it."""

FORGET_S = 1.0
"""How long a process counts as slow after its last answer."""

AVOID_S, AVOID_S_MAX = 0.1, 3.0
"""How long one is avoided that refused or kept silent; doubled each time until it answers."""


@dataclass(slots=True)
class _Standing:
    mean_s: float = 0.0
    heard_s: float = 0.0
    avoid_s: float = AVOID_S
    avoided_until_s: float = 0.0


class Standings:
    """What one client knows of the storage processes it has asked."""

    def __init__(self) -> None:
        self._of: dict[ProcessId, _Standing] = {}

    def answered(self, process: ProcessId, took_s: float, now_s: float) -> None:
        """Learn how long an answer took."""
        known = self._of.get(process)
        if known is None or now_s >= known.heard_s + FORGET_S:
            known = self._of[process] = _Standing(took_s)
        known.mean_s += WEIGHT * (took_s - known.mean_s)
        known.heard_s, known.avoid_s, known.avoided_until_s = now_s, AVOID_S, 0.0

    def avoid(self, process: ProcessId, now_s: float) -> None:
        """Learn that a process refused or kept silent."""
        known = self._of.setdefault(process, _Standing())
        if now_s >= known.avoided_until_s:
            # What else it refuses meanwhile it refuses for the same reason.
            known.avoided_until_s = now_s + known.avoid_s
            known.avoid_s = min(2 * known.avoid_s, AVOID_S_MAX)

    def rank(self, process: ProcessId, now_s: float) -> int:
        """Say how good it is to ask a process that can be reached."""
        known = self._of.get(process)
        if known is None:
            return GOOD
        if now_s < known.avoided_until_s:
            return AVOIDED
        if known.mean_s <= SLOW_S or now_s >= known.heard_s + FORGET_S:
            return GOOD
        fastest_s = min(
            each.mean_s for each in self._of.values() if each.heard_s and now_s < each.heard_s + FORGET_S
        )
        return SLOW if known.mean_s > SLOW_FACTOR * fastest_s else GOOD
