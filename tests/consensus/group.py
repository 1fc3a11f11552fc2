"""Several `Replica` cores back to back: FIFO links, virtual time, nothing else.

A session may be cut with or without a word, a member may be paused, and every
message may be delivered one at a time, so that a test decides who hears what.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import combinations
from typing import Any

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

Learned = list[tuple[int, str | None]]


def router(number: int) -> ProcessId:
    return ProcessId("router", f"r{number}", 1)


R1, R2, R3 = router(1), router(2), router(3)
STRANGER = ProcessId("router", "r9", 1)


class Group:
    """A group of replicas.

    Parameters
    ----------
    n : int
        Members r1 … rn; every two of them begin with a session.
    timing : PaxosTiming
    seed : int
        Of the election jitter.
    """

    def __init__(self, n: int = 3, *, timing: PaxosTiming | None = None, seed: int = 0) -> None:
        self.timing = timing or PaxosTiming()
        self.seed = seed
        self.members = tuple(router(i) for i in range(1, n + 1))
        membership = Membership(0, self.members)
        self.replicas: dict[ProcessId, Replica[str]] = {
            me: Replica(me, membership, self.timing, random.Random(f"{seed}/{me}")) for me in self.members
        }
        self.now_s = 0.0
        self.links: dict[tuple[ProcessId, ProcessId], deque[Any]] = {}
        self.learned: dict[ProcessId, Learned] = {me: [] for me in self.members}
        self.sent: list[tuple[ProcessId, ProcessId, Any]] = []
        self.held: set[tuple[ProcessId, ProcessId]] = set()
        self.paused: set[ProcessId] = set()
        self.crashed: set[ProcessId] = set()
        self.stopped: dict[ProcessId, str] = {}
        self._wake_at_s: dict[ProcessId, float | None] = {}
        for me, replica in self.replicas.items():
            replica.on_start(0.0)
            self._wake_at_s[me] = 0.0
        for a, b in combinations(self.members, 2):
            self.connect(a, b)

    def join(self, me: ProcessId, *knows: ProcessId, epoch: int = 0) -> None:
        """Start a router that is no member, and that knows some routers by hearsay."""
        hearsay = Membership(0, knows or self.members)
        self.members = (*self.members, me)
        self.replicas[me] = Replica(me, hearsay, self.timing, random.Random(f"{self.seed}/{me}"), epoch=epoch)
        self.learned[me] = []
        self.replicas[me].on_start(self.now_s)
        self._wake_at_s[me] = self.now_s
        self.rejoin(me)

    def change(self, me: ProcessId, **what: ProcessId | bool) -> str:
        """Ask a leader for a change of the newest membership it knows."""
        answer = self.replicas[me].request_change(
            Change(self.replicas[me].membership.number, **what)  # type: ignore[arg-type]
        )
        self.turn(me)
        return answer

    def __getitem__(self, me: ProcessId) -> Replica[str]:
        return self.replicas[me]

    # Sessions.

    def connect(self, a: ProcessId, b: ProcessId) -> None:
        """Begin a session; both ends learn of it."""
        if (a, b) in self.links or {a, b} & self.crashed:
            return
        self.links[a, b], self.links[b, a] = deque(), deque()
        for me, peer in ((a, b), (b, a)):
            self.replicas[me].on_connected(peer, self.now_s)
            self.turn(me)

    def disconnect(self, a: ProcessId, b: ProcessId) -> None:
        """End a session: what was on its way is lost, and both ends learn of it."""
        if (a, b) not in self.links:
            return
        del self.links[a, b], self.links[b, a]
        for me, peer in ((a, b), (b, a)):
            if me not in self.crashed:
                self.replicas[me].on_disconnected(peer, self.now_s)
                self.turn(me)

    def isolate(self, me: ProcessId) -> None:
        """End all sessions of a member."""
        for peer in self.members:
            self.disconnect(me, peer)

    def rejoin(self, me: ProcessId) -> None:
        """Give a member a session with every other one."""
        for peer in self.members:
            if peer != me:
                self.connect(me, peer)

    def hold(self, me: ProcessId) -> None:
        """Hold every message to and from a member, without a word to anybody."""
        for peer in self.members:
            if peer != me:
                self.held |= {(me, peer), (peer, me)}

    def crash(self, me: ProcessId) -> None:
        """End a member for good."""
        self.crashed.add(me)
        self.isolate(me)

    # Turns and time.

    def turn(self, me: ProcessId) -> None:
        """Let a member take a turn."""
        if me in self.paused or me in self.crashed:
            return
        output = self.replicas[me].flush(self.now_s)
        self._send(me, output.send)
        if output.install is not None:
            self.learned[me] = list(output.install[1])
        self.learned[me] += output.learned
        for peer in output.snapshot_for:
            replica = self.replicas[me]
            replica.provide_snapshot(peer, replica.learned, tuple(self.learned[me]))
        if output.snapshot_for:
            self._send(me, self.replicas[me].flush(self.now_s).send)
        self._wake_at_s[me] = output.wake_at_s
        if output.stop:
            self.stopped[me] = output.stop
            self.crash(me)

    def _send(self, me: ProcessId, messages: list[tuple[ProcessId, Any]]) -> None:
        for peer, message in messages:
            self.sent.append((me, peer, message))
            if (me, peer) in self.links:
                self.links[me, peer].append(message)

    def deliverable(self) -> list[tuple[ProcessId, ProcessId]]:
        """Give the links whose next message may arrive."""
        return [
            link
            for link, waiting in sorted(self.links.items())
            if waiting and link not in self.held and link[1] not in self.paused
        ]

    def deliver(self, a: ProcessId, b: ProcessId) -> Any:
        """Deliver the next message of one link, and give it."""
        message = self.links[a, b].popleft()
        self.replicas[b].on_message(a, message, self.now_s)
        self.turn(b)
        return message

    def settle(self) -> None:
        """Deliver everything that may arrive, while time stands still."""
        while links := self.deliverable():
            for link in links:
                if self.links.get(link):
                    self.deliver(*link)

    def run(self, seconds: float) -> None:
        """Let time pass: wake members when they want it, and deliver everything."""
        end_s = self.now_s + seconds
        self.settle()
        while True:
            due = {
                me: at_s
                for me, at_s in self._wake_at_s.items()
                if at_s is not None and me not in self.paused | self.crashed
            }
            next_s = min(due.values(), default=end_s)
            if next_s >= end_s:
                break
            # A member that wants to be woken in the past is not given the same moment twice.
            self.now_s = max(next_s, self.now_s + 1e-6)
            for me, at_s in due.items():
                if at_s <= self.now_s:
                    self.turn(me)
            self.settle()
        self.now_s = max(self.now_s, end_s)

    # What tests ask.

    def propose(self, me: ProcessId, *values: str) -> None:
        """Let a leader propose values."""
        for value in values:
            self.replicas[me].propose(value)
        self.turn(me)

    def leaders(self) -> list[ProcessId]:
        """Give every live member that believes to lead."""
        return [me for me in self.members if self.replicas[me].is_leader and me not in self.crashed]

    def ballots(self) -> set[Ballot]:
        """Give the ballots that live members have promised."""
        return {replica.ballot for me, replica in self.replicas.items() if me not in self.crashed}

    def values(self, me: ProcessId) -> list[str]:
        """Give the values that a member has learned, without no-ops."""
        return [value for _, value in self.learned[me] if value is not None]

    def messages(self, kind: type[Any]) -> list[tuple[ProcessId, ProcessId, Any]]:
        """Give what was sent of one kind."""
        return [record for record in self.sent if isinstance(record[2], kind)]

    def check_agreement(self) -> None:
        """Every member learned the instances 1, 2, … with the same values."""
        chosen: dict[int, str | None] = {}
        for me, learned in self.learned.items():
            assert [instance for instance, _ in learned] == list(range(1, len(learned) + 1)), me
            for instance, value in learned:
                assert chosen.setdefault(instance, value) == value, (me, instance)


def led_by_r1(n: int = 3, *, timing: PaxosTiming | None = None) -> Group:
    """Give a group that r1 leads and everybody follows."""
    group = Group(n, timing=timing)
    group.run(0.25)
    assert group.leaders() == [R1]
    return group
