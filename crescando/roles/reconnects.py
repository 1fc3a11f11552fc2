"""Peers with which a client wants sessions: whom to try again, and when."""

from __future__ import annotations

from collections.abc import Iterable

from crescando.types import ProcessId


class Reconnects:
    """Whom to keep sessions with, beside the routers.

    Parameters
    ----------
    wanted : iterable of ProcessId
    """

    def __init__(self, wanted: Iterable[ProcessId]) -> None:
        self.wanted = dict.fromkeys(wanted)
        self._due_s: dict[ProcessId, float] = {}

    def want(self, role: str, processes: tuple[ProcessId, ...]) -> list[ProcessId]:
        """Take what processes of a role there are, if any are named; give those that are new."""
        if not processes:
            return []
        for gone in [peer for peer in self.wanted if peer.role == role and peer not in processes]:
            del self.wanted[gone]
            self.drop(gone)
        new = [process for process in processes if process not in self.wanted]
        self.wanted.update(dict.fromkeys(new))
        return new

    def lost(self, peer: ProcessId, due_s: float) -> None:
        """Try a peer again at a time, if it is wanted."""
        if peer in self.wanted:
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
