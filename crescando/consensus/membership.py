"""Which routers decide which instance, as a function of the learned order alone.

Rules of the file (Lamport, Malkhi, Zhou 2010, R-alpha): a change decided in
instance j governs from j + alpha on; one change of one member is in flight at a
time, and a further one decided meanwhile is void. A change names the
membership that it replaces, so that a repeated or late one is void too. A
member that is gone never comes back (INV-9): its node returns with a higher
incarnation, since a diskless member has forgotten what it promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

MEMBERS_MAX = 15
"""Members of one group at most: every value goes to each of them."""

LEAVERS_MAX = 8
"""Leavers remembered; changes follow one another, so an older one is not needed any more."""


class Change(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """A value of the order: one member more, or one less.

    Attributes
    ----------
    number : int
        Of the membership that this one replaces.
    add, remove : ProcessId or None
        Exactly one of them.
    resizes : bool
        Whether the group is meant to have the resulting size from now on. Not so
        for the removal of a failed member, which another one is to replace.
    """

    number: int
    add: ProcessId | None = None
    remove: ProcessId | None = None
    resizes: bool = False


class MembershipsState(msgspec.Struct, frozen=True, array_like=True):
    """`Memberships` as a value that travels."""

    alpha: int
    size: int
    governing: tuple[tuple[int, tuple[ProcessId, ...], int], ...]
    incarnations: tuple[tuple[str, int], ...]
    leavers: tuple[tuple[ProcessId, int], ...]


@dataclass(slots=True)
class Memberships:
    """The memberships that may still govern an open instance, oldest first.

    Parameters
    ----------
    alpha : int
        Distance from a change to the first instance that it governs; also the
        greatest number of open instances.
    governing : list of Membership
        Never empty; the last is the newest, perhaps not in force yet.
    size : int
        How many members the group is meant to have.
    incarnations : dict of str to int
        Highest incarnation of each node that was ever a member.
    leavers : dict of ProcessId to int
        Former members that answer still: until a quorum has learned everything
        below the instance that they do not govern any more. At most `LEAVERS_MAX`.
    """

    alpha: int
    governing: list[Membership]
    size: int
    incarnations: dict[str, int] = field(default_factory=dict)
    leavers: dict[ProcessId, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, alpha: int, genesis: Membership) -> Memberships:
        """Give what holds before the first instance."""
        incarnations = {member.node: member.incarnation for member in genesis.members}
        return cls(alpha, [genesis], len(genesis.members), incarnations)

    @property
    def newest(self) -> Membership:
        """The membership after every change learned."""
        return self.governing[-1]

    def of(self, instance: int) -> Membership:
        """Give the membership that governs an instance.

        It is known for certain only once ``instance - alpha`` is learned.
        """
        if len(self.governing) == 1:
            return self.governing[0]
        for membership in reversed(self.governing):
            if membership.start <= instance:
                return membership
        return self.governing[0]

    def since(self, instance: int) -> list[Membership]:
        """Give every known membership that governs `instance` or a later one."""
        if len(self.governing) == 1:
            return self.governing[:]
        index = max((i for i, known in enumerate(self.governing) if known.start <= instance), default=0)
        return self.governing[index:]

    def is_quorum(self, processes: set[ProcessId], instance: int) -> bool:
        """Say whether `processes` hold a quorum of each membership from `instance` on."""
        return all(membership.is_quorum(processes) for membership in self.since(instance))

    def is_settled(self, learned: int) -> bool:
        """Say whether the newest change is in force after `learned`: another one may be proposed."""
        return self.newest.start <= learned + 1

    def everyone(self) -> tuple[ProcessId, ...]:
        """Give every member of a membership that is kept, and the leavers."""
        members = (member for known in self.governing for member in known.members)
        return tuple(dict.fromkeys((*members, *self.leavers)))

    def fault_of(self, change: Change) -> str:
        """Say why a change of the newest membership cannot be; empty if it can."""
        members = self.newest.members
        if change.number != self.newest.number:
            return f"it replaces membership {change.number}, but {self.newest.number} is the newest"
        if (change.add is None) == (change.remove is None):
            return "a change adds or removes exactly one member"
        if change.add is not None:
            if change.add in members:
                return f"{change.add} is a member already"
            if change.add.incarnation <= self.incarnations.get(change.add.node, 0):
                return f"{change.add} was a member before; it can return only as a new incarnation"
            if len(members) >= MEMBERS_MAX:
                return f"a group has at most {MEMBERS_MAX} members"
            return ""
        if change.remove not in members:
            return f"{change.remove} is no member"
        return "" if len(members) > 1 else f"{change.remove} is the last member"

    def members_after(self, change: Change) -> tuple[ProcessId, ...]:
        """Give the members that a change leads to."""
        members = tuple(member for member in self.newest.members if member != change.remove)
        return members if change.add is None else (*members, change.add)

    def learn(self, instance: int, change: Change) -> bool:
        """Take a decided change; False if it is void."""
        if self.newest.start > instance or self.fault_of(change):
            return False
        members = self.members_after(change)
        if change.add is not None:
            self.incarnations[change.add.node] = change.add.incarnation
        if change.resizes:
            self.size = len(members)
        start = instance + self.alpha
        if change.remove is not None:
            self.leavers[change.remove] = start
            while len(self.leavers) > LEAVERS_MAX:
                del self.leavers[next(iter(self.leavers))]
        self.governing.append(Membership(self.newest.number + 1, members, start))
        return True

    def forget_before(self, instance: int) -> None:
        """Drop memberships that govern nothing from `instance` on."""
        self.governing = self.since(instance)

    def forget_leavers(self, learned_by_all: int) -> bool:
        """Drop leavers that nobody needs, since all they had a part in is learned; True if there were any."""
        gone = [known for known, start in self.leavers.items() if start - 1 <= learned_by_all]
        for leaver in gone:
            del self.leavers[leaver]
        return bool(gone)

    def was_member(self, process: ProcessId) -> bool:
        """Say whether a process was a member and is none any more, nor still needed as a leaver."""
        if process in self.newest.members or process in self.leavers:
            return False
        if any(process in known.members for known in self.governing):
            return False
        return process.incarnation <= self.incarnations.get(process.node, 0)

    def former(self) -> tuple[ProcessId, ...]:
        """Give the last incarnation of each node of which none is a member, or a leaver."""
        known = {process.node for process in self.everyone()}
        role = self.newest.members[0].role
        last = self.incarnations.items()
        return tuple(ProcessId(role, node, incarnation) for node, incarnation in last if node not in known)

    def encode(self) -> MembershipsState:
        """Give this as a value that travels."""
        governing = tuple((m.number, m.members, m.start) for m in self.governing)
        incarnations = tuple(sorted(self.incarnations.items()))
        return MembershipsState(self.alpha, self.size, governing, incarnations, tuple(self.leavers.items()))

    @classmethod
    def decode(cls, state: MembershipsState) -> Memberships:
        """Give what `encode` saw."""
        governing = [Membership(number, members, start) for number, members, start in state.governing]
        return cls(state.alpha, governing, state.size, dict(state.incarnations), dict(state.leavers))
