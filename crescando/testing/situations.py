"""Counts rare situations while a world runs, from what its routers send, learn and hold.

Rules of the file: it only looks. A situation counts when it is there, not when
a schedule meant to bring it about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.messages import Promise
from crescando.routing.ecast.messages import Batch, Deliver
from crescando.types import ProcessId

if TYPE_CHECKING:
    from crescando.routing.ecast.router import Router
    from crescando.testing.order import OrderWorld

SITUATIONS = (
    "hole_at_takeover",
    "two_leaders_deliver",
    "config_inside_batch",
    "duplicate_at_other_borders",
    "live_sender_suspected",
    "full_window_at_suspicion",
)
"""Every situation that a soak must meet often enough.

``hole_at_takeover``: a new leader's promises hold a vote above an instance of
which none holds any. ``two_leaders_deliver``: a leader sends deliveries after
one of a higher ballot has. ``duplicate_at_other_borders``: numbers come a
second time, in a submission that begins or ends elsewhere than the first.
"""


class Watch:
    """Counts situations of one `OrderWorld`."""

    def __init__(self, world: OrderWorld) -> None:
        self._world = world
        self._delivering: Ballot | None = None
        self._overtaken: set[Ballot] = set()
        self._departed: dict[ProcessId, int] = {}
        self._known_departed: set[ProcessId] = set()

    def on_send(self, sender: ProcessId, receiver: ProcessId, message: Any) -> None:
        """Look at a message that a process sends."""
        if type(message) is not Deliver:
            return
        ballot = message.ballot
        if self._delivering is None or ballot > self._delivering:
            self._delivering = ballot
        elif ballot < self._delivering and ballot not in self._overtaken:
            self._overtaken.add(ballot)
            self._world.count("two_leaders_deliver")

    def after_router_turn(self, router: Router[Any]) -> None:
        """Look at a router's state."""
        departed = router.mseq.departed
        if len(departed) == self._departed.get(router.me):
            return
        self._departed[router.me] = len(departed)
        for process, departure in departed.items():
            if process in self._known_departed:
                continue
            self._known_departed.add(process)
            node = self._world.nodes.get(process)
            member = self._world.members.get(process)
            if node is None or member is None or not node.is_alive:
                continue
            if member.multicast.next_number - 1 > departure.learned:
                self._world.count("live_sender_suspected")

    def before_suspicion(self, victim: ProcessId) -> None:
        """Look at the leader when a suspicion is about to be submitted."""
        leader = self._world.leader()
        if leader is None:
            return
        router = self._world.router(leader)
        outbox = router.window.outboxes.get(victim)
        if router.window.n_bytes >= router.limits.window_bytes and outbox is not None and outbox.entries:
            self._world.count("full_window_at_suspicion")


class PromiseWatch:
    """Notices a hole at the moment a member's promises make it the leader.

    Parameters
    ----------
    world : OrderWorld
    replica : Any
        The member, looked at before and after each promise it takes.
    """

    def __init__(self, world: OrderWorld, replica: Any) -> None:
        self._world = world
        self._replica = replica
        self._ballot: Ballot | None = None
        self._first = 0
        self._seen: set[int] = set()

    def before(self, promise: Promise[Batch]) -> bool:
        """Note which instances have votes; gives whether this member led already."""
        if promise.ballot != self._ballot:
            self._ballot = promise.ballot
            self._first = self._replica.learned + 1
            self._seen = set(self._replica.acceptor.votes)
            self._seen |= self._replica.learner.decided.keys()
        self._seen.update(vote.instance for vote in promise.votes)
        return bool(self._replica.is_leader)

    def after(self, led: bool) -> None:
        """Count a hole if this promise was the one that made a leader."""
        if led or not self._replica.is_leader or self._replica.ballot != self._ballot:
            return
        held = [instance for instance in self._seen if instance >= self._first]
        if held and len(held) < max(held) - self._first + 1:
            self._world.count("hole_at_takeover")


def odd_duplicates(learned: list[tuple[int, Batch | None]]) -> int:
    """Count submissions whose numbers were learned before within other borders."""
    found = 0
    seen: dict[ProcessId, list[tuple[int, int]]] = {}
    for _, batch in learned:
        for submission in () if batch is None else batch.submissions:
            borders = (submission.first, submission.last)
            before = seen.setdefault(submission.sender, [])
            overlaps = [b for b in before if b[0] <= borders[1] and borders[0] <= b[1]]
            found += bool(overlaps) and borders not in overlaps
            before.append(borders)
    return found
