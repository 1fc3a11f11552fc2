"""Peers to which a session is wanted again, after a pause."""

from __future__ import annotations

from crescando.types import ProcessId


class Reconnects:
    """When to try whom again."""

    def __init__(self) -> None:
        self._due_s: dict[ProcessId, float] = {}

    def plan(self, peer: ProcessId, due_s: float) -> None:
        """Try a peer at a time."""
        self._due_s[peer] = due_s

    def drop(self, peer: ProcessId) -> None:
        """Try a peer no more: it is there."""
        self._due_s.pop(peer, None)

    def take_due(self, now_s: float) -> list[ProcessId]:
        """Give whom to try now."""
        due = [peer for peer, due_s in self._due_s.items() if now_s >= due_s]
        for peer in due:
            del self._due_s[peer]
        return due

    @property
    def wake_at_s(self) -> float | None:
        """When the next one is due."""
        return min(self._due_s.values(), default=None)
