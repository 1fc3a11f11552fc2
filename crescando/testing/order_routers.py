"""The routers of a simulated order: who there are, who has died, and how the group changes.

Rules of the file: nothing is asked of the group that would leave it without a
majority of live routers that hold the order, in any membership that governs or
may come to govern: a change that is voted for somewhere may yet be decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.routing.ecast.router import Router
from crescando.testing.trace import RecordedBroadcast
from crescando.types import ProcessId

if TYPE_CHECKING:
    from crescando.testing.order import OrderWorld

ROUTERS_MAX = 7
LEAST_ROUTERS = 2


class RouterGroup:
    """The routers of one `OrderWorld`.

    Parameters
    ----------
    world : OrderWorld
    """

    def __init__(self, world: OrderWorld) -> None:
        self.world = world
        self.founders = tuple(ProcessId("router", f"r{i}", 1) for i in range(1, world.spec.routers + 1))
        self.uninformed: dict[ProcessId, None] = {}
        self._incarnations: dict[str, int] = {}

    # Starting.

    def start(self, me: ProcessId, known: tuple[ProcessId, ...]) -> None:
        """Start a router that knows of some others, by birth or by hearsay."""
        world = self.world
        rng = random.Random(f"{world.seed}/{me}")
        replica = world.factories.replica(me, Membership(0, known), world.spec.paxos, rng)
        core = world.factories.router(
            me,
            config=world.genesis,
            broadcast=RecordedBroadcast(me, replica, world.trace),
            limits=world.spec.limits,
        )
        self._incarnations[me.node] = me.incarnation
        if me not in known:
            self.uninformed[me] = None
        world.add(core)

    def start_next(self, node: str, *, stale: bool) -> ProcessId:
        """Start the next incarnation of a node; `stale`: it knows only the first members."""
        me = ProcessId("router", node, self._incarnations.get(node, 0) + 1)
        self.start(me, self.founders if stale else self.newest().members)
        return me

    def return_later(self, router: ProcessId, length_s: float, *, stale: bool = False) -> None:
        """Let a router that has stopped come back as a new incarnation, which joins."""

        def come_back() -> None:
            if self._incarnations[router.node] == router.incarnation:
                self.start_next(router.node, stale=stale and self.knows_a_founder())

        self.world.later(length_s, come_back)

    def return_all(self) -> None:
        """Let every node that has no live router come back at once."""
        alive = {router.node for router in self.world.alive("router")}
        for node in sorted(self._incarnations.keys() - alive):
            self.start_next(node, stale=False)

    def unused_node(self) -> str:
        """Give a name that no router had."""
        return f"r{len(self._incarnations) + 1}"

    def knows_a_founder(self) -> bool:
        """Whether one that knows only the first members would find a live one."""
        return any(self.world.nodes[router].is_alive for router in self.founders)

    # Looking.

    def is_member(self, router: Router[Any]) -> bool:
        """Whether a router has learned that it is a member; one that stands by may hold an old state."""
        return bool(router.broadcast.is_member)  # type: ignore[attr-defined]

    def members(self) -> Iterator[Router[Any]]:
        """Give the live routers that are members and hold the order."""
        for process in self.world.alive("router"):
            router = self.world.router(process)
            if self.is_member(router):
                yield router

    def newest(self) -> Membership:
        """Give the newest membership that any live router has learned."""
        known = [router.broadcast.membership for router in self.members()]
        return max(known, key=lambda membership: membership.number, default=Membership(0, self.founders))

    def possible(self) -> list[tuple[ProcessId, ...]]:
        """Give the members of every membership that governs somewhere, or may come to."""
        found: dict[tuple[ProcessId, ...], None] = {}
        for router in self.members():
            memberships = router.broadcast.memberships  # type: ignore[attr-defined]
            found.update(dict.fromkeys(known.members for known in memberships.governing))
            for change in self._undecided(router):
                if not memberships.fault_of(change):
                    found[memberships.members_after(change)] = None
        return list(found)

    def _undecided(self, router: Router[Any]) -> Iterator[Change]:
        broadcast: Any = router.broadcast
        for instance, vote in broadcast.acceptor.votes.items():
            if instance > broadcast.learned and isinstance(vote.value, Change):
                yield vote.value

    def is_changing(self) -> bool:
        """Whether a change is voted for, not in force everywhere, or a member holds nothing yet."""
        newest = self.newest()
        if any(member in self.uninformed for member in newest.members):
            return True
        return any(
            router.broadcast.membership.number < newest.number
            or newest.start > router.broadcast.learned + 1
            or next(self._undecided(router), None) is not None
            for router in self.members()
            if router.me in newest.members
        )

    def may_lose(self, router: ProcessId) -> bool:
        """Say whether every possible membership keeps a majority without a router."""
        return all(self._is_able(members, {router}) for members in self.possible())

    def _is_able(self, members: tuple[ProcessId, ...], gone: set[ProcessId]) -> bool:
        able = [router.me for router in self.members() if router.me in members and router.me not in gone]
        return 2 * len(able) > len(members)

    # Changing.

    def ask(self, asked: ProcessId, change: Change) -> bool:
        """Ask a router for a change; gives whether it proposed it."""
        return self.world.router(asked).broadcast.request_change(change) == ""

    def add(self, asked: ProcessId, router: ProcessId) -> bool:
        """Ask for one member more."""
        members = self.newest().members
        able = len([known for known in self.members() if known.me in members])
        if len(members) >= ROUTERS_MAX or 2 * able <= len(members) + 1:
            return False
        return self.ask(asked, Change(self.newest().number, add=router, resizes=True))

    def remove(self, asked: ProcessId, router: ProcessId, *, resizes: bool) -> bool:
        """Ask for the removal of a member, dead or alive."""
        newest = self.newest()
        after = tuple(member for member in newest.members if member != router)
        if len(after) < LEAST_ROUTERS or router not in newest.members or not self._is_able(after, set()):
            return False
        return self.ask(asked, Change(newest.number, remove=router, resizes=resizes))

    def is_whole(self) -> bool:
        """Whether no live router waits for a place that is free, and no change is in flight."""
        leader = self.world.leader()
        if leader is None or self.is_changing():
            return False
        memberships: Any = self.world.router(leader).broadcast.memberships  # type: ignore[attr-defined]
        return len(memberships.newest.members) >= memberships.size or not self.uninformed.keys() & set(
            self.world.alive("router")
        )
