"""Who is part of the system, and how votes of supers end a membership.

Rules of the file: only unsuspected processes are remembered (RB13 §6.3), so a
ring member that is no longer in `storages` has failed. A vote is kept until
voter or accused is gone or the voter takes it back.

*When a suspicion takes effect.* The electorate of an accused process is every
member super but itself. As soon as more than half of it has voted, by whatever
message that comes to be (also because another super leaves), the accused is
out, unless it is the last live replica of some arc: then it stays a member and
is *pending*, for as long as the majority lasts. If several processes are due at
one message they go one at a time, lowest `ProcessId` first, and both conditions
are looked at anew after each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crescando.routing.rubberband.ring import Ring
from crescando.types import ProcessId

Vote = tuple[ProcessId, ProcessId]
"""(accused, voter)"""

ROLES = ("client", "storage", "super")
"""Roles of application processes (RB13 §6.1)."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The unsuspected processes by role, and the open votes.

    Attributes
    ----------
    clients, storages, supers : frozenset of ProcessId
        `storages` includes those on standby.
    votes : frozenset of (accused, voter)
        Accused and voter are members, the voter a super.
    """

    clients: frozenset[ProcessId] = frozenset()
    storages: frozenset[ProcessId] = frozenset()
    supers: frozenset[ProcessId] = frozenset()
    votes: frozenset[Vote] = frozenset()

    def __contains__(self, process: object) -> bool:
        return process in self.clients or process in self.storages or process in self.supers

    def joined(self, process: ProcessId) -> Membership:
        """Give the membership with one process more, its role deciding where."""
        new = {process}
        match process.role:
            case "client":
                return replace(self, clients=self.clients | new)
            case "storage":
                return replace(self, storages=self.storages | new)
            case "super":
                return replace(self, supers=self.supers | new)
            case role:
                raise ValueError(f"no process of role {role!r} can be a member")

    def without(self, process: ProcessId) -> Membership:
        """Give the membership with one process less, its votes and those against it gone."""
        gone = {process}
        return Membership(
            self.clients - gone,
            self.storages - gone,
            self.supers - gone,
            frozenset(vote for vote in self.votes if process not in vote),
        )

    def voted(self, accused: ProcessId, voter: ProcessId) -> Membership:
        """Give the membership with a vote more; `settled` draws the consequences."""
        return replace(self, votes=self.votes | {(accused, voter)})

    def withdrawn(self, accused: ProcessId, voter: ProcessId) -> Membership:
        """Give the membership with a vote less, if there was one."""
        return replace(self, votes=self.votes - {(accused, voter)})

    def convicted(self) -> tuple[ProcessId, ...]:
        """Give the members against whom a majority of their electorate has voted, ascending."""
        count: dict[ProcessId, int] = {}
        for accused, _ in self.votes:
            count[accused] = count.get(accused, 0) + 1
        return tuple(
            accused
            for accused in sorted(count)
            if 2 * count[accused] > len(self.supers) - (accused in self.supers)
        )

    def settled(self, ring: Ring) -> Membership:
        """Give the membership after every suspicion that is due has taken effect."""
        for accused in self.convicted():
            if not self._is_last_replica(accused, ring):
                return self.without(accused).settled(ring)
        return self

    def _is_last_replica(self, process: ProcessId, ring: Ring) -> bool:
        return any(
            process in owners and self.storages.intersection(owners) <= {process}
            for owners in map(ring.owners, range(len(ring.arcs)))
        )
