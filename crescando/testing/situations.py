"""Counts rare situations while a world runs, from what its routers send, learn and hold.

Rules of the file: it only looks. A situation counts when it is there, not when
a schedule meant to bring it about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crescando.consensus.base import Ballot
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
    "trim_beside_joiner",
)
"""Every situation that a soak must meet often enough.

``hole_at_takeover``: what a deposed leader alone had voted for is decided after
all, behind an instance that its successor has decided otherwise, so that
numbers of its senders are missing before it. (Of instances none can be missing:
sessions are FIFO and what is open is sent again in order, so whoever has voted
for an instance has voted for, or learned, all that the same ballot proposed
before it.) ``two_leaders_deliver``: a leader sends deliveries after
one of a higher ballot has. ``duplicate_at_other_borders``: numbers come a
second time, in a submission that begins or ends elsewhere than the first.
``trim_beside_joiner``: a member forgets decided values while a router that
lives wishes to join and holds nothing yet; counted once a joiner.
"""


class Watch:
    """Counts situations of one `OrderWorld`.

    Attributes
    ----------
    delivering : Ballot or None
        The highest ballot of which a delivery was sent.
    """

    def __init__(self, world: OrderWorld) -> None:
        self._world = world
        self.delivering: Ballot | None = None
        self._overtaken: set[Ballot] = set()
        self._departed: dict[ProcessId, int] = {}
        self._known_departed: set[ProcessId] = set()
        self._trimmed: dict[ProcessId, int] = {}
        self._trimmed_beside: set[ProcessId] = set()

    def on_send(self, sender: ProcessId, receiver: ProcessId, message: Any) -> None:
        """Look at a message that a process sends."""
        if type(message) is not Deliver:
            return
        ballot = message.ballot
        if self.delivering is None or ballot > self.delivering:
            self.delivering = ballot
        elif ballot < self.delivering and ballot not in self._overtaken:
            self._overtaken.add(ballot)
            self._world.count("two_leaders_deliver")

    def after_router_turn(self, router: Router[Any]) -> None:
        """Look at a router's state."""
        self._look_at_trim(router)
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

    def _look_at_trim(self, router: Router[Any]) -> None:
        learner: Any = router.broadcast.learner  # type: ignore[attr-defined]
        if learner.trimmed == self._trimmed.get(router.me, 0):
            return
        self._trimmed[router.me] = learner.trimmed
        for joiner in self._world.group.uninformed:
            # A joiner's own trimming is that of the snapshot that it was given.
            if joiner not in self._trimmed_beside and self._world.nodes[joiner].is_alive:
                self._trimmed_beside.add(joiner)
                self._world.count("trim_beside_joiner")

    def before_suspicion(self, victim: ProcessId) -> None:
        """Look at the leader when a suspicion is about to be submitted."""
        leader = self._world.leader()
        if leader is None:
            return
        router = self._world.router(leader)
        outbox = router.window.outboxes.get(victim)
        if router.window.n_bytes >= router.limits.window_bytes and outbox is not None and outbox.entries:
            self._world.count("full_window_at_suspicion")


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
