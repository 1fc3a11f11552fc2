"""Majorities, arithmetic only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class Membership:
    """The routers that decide instances, under a configuration number.

    Attributes
    ----------
    number : int
        Grows by one with each change.
    members : tuple of ProcessId
        In the order in which they joined.
    start : int
        The first instance that this membership governs.
    """

    number: int
    members: tuple[ProcessId, ...]
    start: int = 1

    @property
    def majority(self) -> int:
        """How many members any two quorums need so that they must meet."""
        return len(self.members) // 2 + 1

    def is_quorum(self, processes: Collection[ProcessId]) -> bool:
        """Say whether `processes` hold a majority of the members."""
        majority = len(self.members) // 2 + 1
        if len(processes) < majority:
            return False
        n = 0
        for member in self.members:
            n += member in processes
        return n >= majority
