"""Two tiny atomic broadcasts, and ways to break them.

`Sequencer` has one fixed member that orders for all; it bears the end of
sessions and no crash of that member. With one member it is the "local" order.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from crescando.consensus.base import NO_BALLOT, Ballot, BroadcastOutput
from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

WINDOW = 4


class Ask(NamedTuple):
    """A follower wants everything after an instance."""

    after: int


class Ordered(NamedTuple):
    """An instance and its value."""

    instance: int
    value: bytes


class Sequencer:
    """A group whose first member orders, for ever; an `AtomicBroadcast`."""

    def __init__(self, me: ProcessId, membership: Membership, rng: random.Random) -> None:
        self.me = me
        self.membership = membership
        self.leader: ProcessId | None = membership.members[0]
        self.is_leader = self.leader == me
        self.ballot: Ballot = NO_BALLOT
        self.peers = tuple(member for member in membership.members if member != me)
        self.former: tuple[ProcessId, ...] = ()
        self.learned = 0
        self.round = 0
        self._log: list[bytes] = []
        self._open: list[bytes] = []
        self._out: BroadcastOutput[bytes] = BroadcastOutput()
        self._sessions: set[ProcessId] = set()

    @property
    def n_open(self) -> int:
        return len(self._open)

    def can_propose(self) -> bool:
        return self.is_leader and self.n_open < WINDOW

    def propose(self, value: bytes) -> int:
        self._open.append(value)
        return self.learned + len(self._open)

    def open_values(self) -> list[bytes]:
        return list(self._open)

    def observe(self, ballot: Ballot, now_s: float) -> None: ...

    def is_backed(self, now_s: float) -> bool:
        return self.is_leader

    def begin_round(self, now_s: float) -> None:
        self.round += 1

    @property
    def answered_round(self) -> int:
        return self.round if self.is_leader else 0

    def request_change(self, change: Change) -> str:
        return "the membership of this group never changes"

    def attest(self, instance: int, digest: bytes) -> None: ...

    def provide_snapshot(self, peer: ProcessId, instance: int, state: Any) -> None: ...

    def on_start(self, now_s: float) -> None: ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.add(peer)
        if peer == self.leader:
            self._out.send.append((peer, Ask(self.learned)))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.discard(peer)

    def on_refused(self, peer: ProcessId, now_s: float) -> None: ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        match message:
            case Ask(after) if self.is_leader and peer in self.membership.members:
                for instance, value in enumerate(self._log[after:], after + 1):
                    self._out.send.append((peer, Ordered(instance, value)))
            case Ordered(instance, value) if peer == self.leader and instance == self.learned + 1:
                self._learn(value)

    def flush(self, now_s: float) -> BroadcastOutput[bytes]:
        for value in self._open:
            self._learn(value)
            for peer in sorted(self._sessions):
                self._out.send.append((peer, Ordered(self.learned, value)))
        self._open.clear()
        out, self._out = self._out, BroadcastOutput()
        return out

    def _learn(self, value: bytes) -> None:
        self.learned += 1
        self._log.append(value)
        self._out.learned.append((self.learned, value))


class Skipping(Sequencer):
    """Takes an instance whatever is missing below."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        if isinstance(message, Ordered) and message.instance > self.learned:
            self.learned = message.instance - 1
        super().on_message(peer, message, now_s)


class Diverging(Sequencer):
    """Lets every member learn its own order."""

    def _learn(self, value: bytes) -> None:
        self._out.learned.append((self.learned + 1, value if self.is_leader or self.learned % 7 else None))
        self.learned += 1
        self._log.append(value)


class Inventing(Sequencer):
    def _learn(self, value: bytes) -> None:
        super()._learn(value + b"!" if self.learned == 9 else value)


class Reordering(Sequencer):
    def flush(self, now_s: float) -> BroadcastOutput[bytes]:
        self._open.sort(reverse=True)
        return super().flush(now_s)


class Boundless(Sequencer):
    def can_propose(self) -> bool:
        return self.is_leader and self.n_open < 2 * WINDOW


class Silent(Sequencer):
    """Does not say again what a session lost."""

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.add(peer)


class Trusting(Sequencer):
    """Takes an order from anybody, and anything for a message."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        if message.instance == self.learned + 1 if hasattr(message, "instance") else message[0] < 0:
            self._learn(message.value)
        else:
            super().on_message(peer, message, now_s)


class Obliging(Sequencer):
    def request_change(self, change: Change) -> str:
        return ""


class Leaderless(Sequencer):
    def can_propose(self) -> bool:
        return False


class Restless(Sequencer):
    """Wants to be woken at once, for ever."""

    def flush(self, now_s: float) -> BroadcastOutput[bytes]:
        out = super().flush(now_s)
        out.wake_at_s = now_s
        return out
