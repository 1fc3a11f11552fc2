"""With which other routers a router wants a session, and when it asks for one.

Rules of the file: of two members the later one asks, since whoever joined later
knows all who joined before; one of those that lags behind may not know it, nor
anybody else who is left. Who knows no leader asks everybody. One that refuses
is asked again as long as it is one of the group. A leader calls on those that
were members, one after the other: one that was cut off while all whom it knew
were replaced would never hear that it has been too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crescando.consensus.base import AtomicBroadcast
from crescando.types import ProcessId

CALL_S = 2.0
"""Spacing of calls to former members."""

RECONNECT_S = 0.2
"""Pause before another router that refused a session is asked again."""


class Fellows:
    """The other routers, as far as sessions with them go.

    Parameters
    ----------
    me : ProcessId
    broadcast : AtomicBroadcast
        Knows who they are.

    Attributes
    ----------
    due_s : dict of ProcessId to float
        Whom to ask again, and when.
    """

    def __init__(self, me: ProcessId, broadcast: AtomicBroadcast[Any]) -> None:
        self.me = me
        self.broadcast = broadcast
        self.due_s: dict[ProcessId, float] = {}
        self._met: set[ProcessId] = set()
        self._call_at_s = 0.0
        self._called: set[ProcessId] = set()

    def wanted(self) -> Iterator[ProcessId]:
        """Give everybody whom it is for us to ask."""
        return (peer for peer in self.broadcast.peers if self._asks(peer))

    def _asks(self, peer: ProcessId) -> bool:
        members = self.broadcast.membership.members
        if self.me not in members or peer not in members:
            return True
        return members.index(peer) < members.index(self.me)

    def on_connected(self, peer: ProcessId) -> None:
        """Learn that there is a session."""
        self.due_s.pop(peer, None)
        self._met.add(peer)

    def on_disconnected(self, peer: ProcessId) -> bool:
        """Learn that it has ended; True if it is for us to ask for another, at once."""
        self._met.discard(peer)
        if peer not in self.broadcast.peers or not self._asks(peer):
            return False
        self.due_s.pop(peer, None)
        return True

    def ask_later(self, peer: ProcessId, now_s: float) -> None:
        """Ask one again that has refused a session."""
        self.due_s[peer] = now_s + RECONNECT_S

    def look_around(self, now_s: float) -> None:
        """Ask everybody known: those who should ask us may not know us any more."""
        for peer in self.broadcast.peers:
            if peer not in self._met:
                self.due_s.setdefault(peer, now_s + RECONNECT_S)

    def due(self, now_s: float) -> list[ProcessId]:
        """Give those to be asked now."""
        due = [peer for peer, due_s in self.due_s.items() if now_s >= due_s]
        for peer in due:
            del self.due_s[peer]
        return [peer for peer in due if peer in self.broadcast.peers]

    def to_be_told(self, now_s: float) -> list[ProcessId]:
        """Give a former member to be called, which learns from the session that it is none any more."""
        former = [peer for peer in self.broadcast.former if peer not in self._met]
        if not former or now_s < self._call_at_s:
            return []
        self._call_at_s = now_s + CALL_S
        if self._called.issuperset(former):
            self._called.clear()
        called = [peer for peer in former if peer not in self._called][:1]
        self._called.update(called)
        return called

    @property
    def wake_at_s(self) -> float | None:
        """When the next one is to be asked."""
        return min(self.due_s.values(), default=None)
