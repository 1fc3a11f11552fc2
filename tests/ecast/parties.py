"""What the tests of E-Cast put together: messages, an order that they decide, and cores back to back."""

from __future__ import annotations

from collections import deque
from typing import Any

from crescando.consensus.base import NO_BALLOT, Ballot, BroadcastOutput
from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.routing.base import MulticastEvent
from crescando.routing.batch import Message, Submission, submission
from crescando.routing.ecast.messages import Batch
from crescando.routing.rubberband import ConfigMessage, Join
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId
from tests.routing.worlds import CLIENT, after, config_message, data_message, simple, storage, super_

R1, R2 = ProcessId("router", "r1", 1), ProcessId("router", "r2", 1)
OTHER = ProcessId("client", "c1")
CONFIG = after(simple(3, 2), (OTHER, Join(OTHER)))
"""Three storage processes, each range on two of them; one super; two clients; table 0."""

ARCS = {
    owners: KeyRange(arc.low, arc.low)
    for arc in CONFIG.ring.arcs
    for owners in [frozenset(CONFIG.live_owners(arc))]
}
"""A point of the ring per pair of owners."""

S0, S1, S2 = storage(0), storage(1), storage(2)
U0 = super_(0)


def point(*owners: ProcessId) -> KeyRange:
    """Give a ring point that exactly these processes hold."""
    return ARCS[frozenset(owners)]


def write(number: int, at: KeyRange = FULL_RING, *, sender: ProcessId = CLIENT, table: int = 0) -> Message:
    return data_message(MessageKind.WRITE, [at], table=table, sender=sender, number=number)


def read(number: int, at: KeyRange = FULL_RING, *, sender: ProcessId = CLIENT) -> Message:
    return data_message(MessageKind.READ, [at], sender=sender, number=number)


def configure(number: int, body: ConfigMessage, *, sender: ProcessId = CLIENT) -> Message:
    return config_message(sender, body, number)


def batch(*submissions: Submission) -> Batch:
    return Batch(submissions)


def of(*messages: Message, acknowledged: int = 0) -> Submission:
    return submission(messages, acknowledged=acknowledged)


class ScriptedOrder:
    """An atomic broadcast whose decisions and leadership are the test's; an `AtomicBroadcast`."""

    def __init__(self, me: ProcessId, *peers: ProcessId) -> None:
        self.me = me
        self.peers = peers or tuple(router for router in (R1, R2) if router != me)
        self.membership = Membership(0, tuple(sorted((me, *self.peers))))
        self.former: tuple[ProcessId, ...] = ()
        self.attested: dict[int, bytes] = {}
        self.is_dismissed = False
        self.epoch = 0
        self.wanted: list[Change] = []
        self.refused: list[ProcessId] = []
        self.is_leader = False
        self.ballot = NO_BALLOT
        self.leader: ProcessId | None = None
        self.learned = 0
        self.window = 8
        self.round = 0
        self.answers = True
        self.answered = 0
        self.open: deque[Batch] = deque()
        self.proposed: list[Batch] = []
        self.observed: list[Ballot] = []
        self.snapshots: list[tuple[ProcessId, int, Any]] = []
        self.output: BroadcastOutput[Batch] = BroadcastOutput()

    @property
    def n_open(self) -> int:
        return len(self.open)

    def lead(self, attempt: int = 1) -> None:
        """Make this member the leader of a ballot."""
        self.is_leader, self.leader, self.ballot = True, self.me, Ballot(attempt, self.me)

    def depose(self, by: Ballot) -> None:
        """Let another member lead."""
        self.is_leader, self.leader, self.ballot = False, by.node, by
        self.open.clear()

    def can_propose(self) -> bool:
        return self.is_leader and self.n_open < self.window

    def propose(self, value: Batch) -> int:
        self.open.append(value)
        self.proposed.append(value)
        return self.learned + len(self.open)

    def open_values(self) -> list[Batch]:
        return list(self.open)

    def learn(self, value: Batch | None) -> None:
        """Let the next instance be decided."""
        self.learned += 1
        self.output.learned.append((self.learned, value))

    def decide(self) -> Batch:
        """Let the oldest proposal be decided."""
        value = self.open.popleft()
        self.learn(value)
        return value

    def observe(self, ballot: Ballot, now_s: float) -> None:
        self.observed.append(ballot)

    def is_backed(self, now_s: float) -> bool:
        return self.is_leader

    def begin_round(self, now_s: float) -> None:
        self.round += 1
        if self.answers:
            self.answered = self.round

    @property
    def answered_round(self) -> int:
        return self.answered if self.is_leader else 0

    def request_change(self, change: Change) -> str:
        self.wanted.append(change)
        return ""

    def attest(self, instance: int, digest: bytes) -> None:
        self.attested[instance] = digest

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.refused.append(peer)

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None:
        self.snapshots.append((peer, instance, state))

    def on_start(self, now_s: float) -> None: ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None: ...

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None: ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None: ...

    def flush(self, now_s: float) -> BroadcastOutput[Batch]:
        output, self.output = self.output, BroadcastOutput()
        return output


class Bench:
    """Cores back to back: FIFO links that the test may cut, and the events that came out."""

    def __init__(self, *cores: Any) -> None:
        self.cores = {core.me: core for core in cores}
        self.links: dict[tuple[ProcessId, ProcessId], deque[Any]] = {}
        self.events: dict[ProcessId, list[MulticastEvent]] = {me: [] for me in self.cores}
        self.sent: list[tuple[ProcessId, ProcessId, Any]] = []
        self.now_s = 0.0

    def connect(self, a: ProcessId, b: ProcessId) -> None:
        self.links[a, b], self.links[b, a] = deque(), deque()
        self.cores[a].on_connected(b, self.now_s)
        self.cores[b].on_connected(a, self.now_s)
        self.turn(a, b)

    def disconnect(self, a: ProcessId, b: ProcessId) -> None:
        if (a, b) in self.links:
            del self.links[a, b], self.links[b, a]
            self.cores[a].on_disconnected(b, self.now_s)
            self.cores[b].on_disconnected(a, self.now_s)
            self.turn(a, b)

    def turn(self, *processes: ProcessId) -> None:
        """Let processes take a turn each."""
        for me in processes:
            core = self.cores[me]
            output = core.flush(self.now_s)
            for peer in output.reset:
                self.disconnect(me, peer)
            for peer, message in output.send:
                if (me, peer) in self.links:
                    self.links[me, peer].append(message)
                    self.sent.append((me, peer, message))
            if hasattr(core, "take_events"):
                self.events[me] += core.take_events()

    def settle(self) -> None:
        """Deliver everything."""
        while ready := [link for link, waiting in self.links.items() if waiting]:
            for a, b in ready:
                if self.links.get((a, b)):
                    self.cores[b].on_message(a, self.links[a, b].popleft(), self.now_s)
                    self.turn(b)

    def messages(self, kind: type[Any], *, to: ProcessId | None = None) -> list[Any]:
        """Give the messages of a kind that were sent."""
        return [m for _, peer, m in self.sent if isinstance(m, kind) and to in (None, peer)]
