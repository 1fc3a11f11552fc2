"""Which change of the membership a leader proposes by itself.

Rules of the file: a member whose session is gone and whose node has come back
as a new incarnation is dead, and is replaced at once; a member that has not answered for the removal
time is removed, unless too few would be left; a free place goes to whoever has
petitioned longest. Whoever petitions while there is no free place stands by.
The removal time is far longer than the election time: a leader is replaced
for being slow, a member only for being gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from crescando.consensus.membership import Change, Memberships
from crescando.types import ProcessId


@dataclass(slots=True)
class Reconfiguration:
    """A leader's care for the membership.

    Parameters
    ----------
    me : ProcessId
    removal_s : float
        Silence after which a member is removed.
    minimum : int
        Fewer members than this are never left by removing a silent one.

    Attributes
    ----------
    petitioners : dict of ProcessId to None
        Routers that wish to be members and have a session, longest first.
    """

    me: ProcessId
    removal_s: float
    minimum: int
    petitioners: dict[ProcessId, None] = field(default_factory=dict)
    _heard_s: dict[ProcessId, float] = field(default_factory=dict)

    def lead(self) -> None:
        """Begin to lead, or to look anew: silence counts from when a member is next looked at."""
        self._heard_s.clear()

    def hear(self, peer: ProcessId, now_s: float) -> None:
        """Note that a member has answered; the end of a session takes nothing of it back."""
        self._heard_s[peer] = now_s

    def on_petition(self, peer: ProcessId) -> None:
        """Remember whoever wishes to be a member."""
        self.petitioners.setdefault(peer)

    def forget(self, peer: ProcessId) -> None:
        """Forget a petitioner whose session has ended."""
        self.petitioners.pop(peer, None)

    def wishes(
        self, memberships: Memberships, connected: Collection[ProcessId], now_s: float
    ) -> Iterator[Change]:
        """Give the changes that are wished for now, the most urgent first; one of them may be proposed.

        Parameters
        ----------
        connected : collection of ProcessId
            Routers with which there is a session.
        """
        newest = memberships.newest
        for peer in [known for known in self.petitioners if known in newest.members]:
            del self.petitioners[peer]
        former = memberships.incarnations
        waiting = [peer for peer in self.petitioners if peer.incarnation > former.get(peer.node, 0)]
        returned = {peer.node for peer in waiting}
        for member in newest.members:
            # Of two that live at once under one name, the one that is a member stays.
            if member.node in returned and member != self.me and member not in connected:
                yield Change(newest.number, remove=member)
        if waiting and len(newest.members) < memberships.size:
            yield Change(newest.number, add=waiting[0])
        self._heard_s = {member: self._heard_s.get(member, now_s) for member in newest.members}
        if len(newest.members) > self.minimum:
            silent_s = {m: now_s - heard_s for m, heard_s in self._heard_s.items() if m != self.me}
            for member in sorted(silent_s, key=lambda m: silent_s[m], reverse=True):
                if silent_s[member] > self.removal_s:
                    yield Change(newest.number, remove=member)
