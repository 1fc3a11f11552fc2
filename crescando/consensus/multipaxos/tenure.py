"""What a leader is told by the members while it leads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from crescando.consensus.multipaxos.messages import HeartbeatReply
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId


@dataclass(slots=True)
class Tenure:
    """One member's time as the leader.

    Parameters
    ----------
    me : ProcessId
    timing : PaxosTiming

    Attributes
    ----------
    since_s : float
        When it began, or was resumed: after a pause of this process, or under
        another membership.
    is_resumed : bool
        Whether `since_s` is to be now.
    beat_at_s : float
        When the next heartbeat is due.
    answered_s : dict of ProcessId to float
        When the last heartbeat was *sent* that each member has answered.
    learned_by : dict of ProcessId to int
    round : int
        How often all members were asked; it goes on from one tenure to the next.
    answered_round : dict of ProcessId to int
        The highest round that each member has answered in this tenure.
    """

    me: ProcessId
    timing: PaxosTiming
    since_s: float = 0.0
    is_resumed: bool = False
    beat_at_s: float = 0.0
    answered_s: dict[ProcessId, float] = field(default_factory=dict)
    learned_by: dict[ProcessId, int] = field(default_factory=dict)
    round: int = 0
    answered_round: dict[ProcessId, int] = field(default_factory=dict)

    def begin(self, now_s: float) -> None:
        """Begin to lead, with a heartbeat."""
        self.since_s = now_s
        self.beat_at_s = now_s + self.timing.heartbeat_s
        self.answered_s.clear()
        self.learned_by.clear()
        self.answered_round.clear()

    def resume(self, now_s: float) -> None:
        """Count from now, if there was a reason to."""
        if self.is_resumed:
            self.since_s, self.is_resumed = now_s, False

    def on_reply(self, peer: ProcessId, message: HeartbeatReply) -> None:
        """Take a member's answer to a heartbeat."""
        self.answered_s[peer] = max(message.sent_s, self.answered_s.get(peer, message.sent_s))
        self.learned_by[peer] = message.learned
        self.answered_round[peer] = max(message.round, self.answered_round.get(peer, 0))

    def keep(self, peers: Collection[ProcessId]) -> None:
        """Forget what others than these have answered."""
        for told in (self.answered_s, self.learned_by, self.answered_round):
            for peer in told.keys() - set(peers):
                del told[peer]

    def is_backed_by(self, membership: Membership, since_s: float) -> bool:
        """Say whether a majority, with this member, answered a heartbeat sent at or after a time."""
        n = 0
        for member in membership.members:
            sent_s = self.answered_s.get(member)
            n += (sent_s is not None and sent_s >= since_s) or member == self.me
        return n >= membership.majority

    def round_answered_by(self, membership: Membership) -> int:
        """Give the highest round that a majority, with this member, has answered."""
        rounds = [
            self.round if member == self.me else self.answered_round.get(member, 0)
            for member in membership.members
        ]
        return sorted(rounds, reverse=True)[membership.majority - 1]

    def informed_of(self, instance: int) -> set[ProcessId]:
        """Give the others that have learned everything up to an instance."""
        return {peer for peer, learned in self.learned_by.items() if learned >= instance}

    def learned_by_all(self, members: Iterable[ProcessId], learned: int) -> int:
        """Give the instance up to which each of some members, and this one, has learned.

        Who has not answered yet counts as knowing nothing: a joiner, before it has a
        snapshot, holds back the trimming of the tail.
        """
        others = (self.learned_by.get(member, 0) for member in members if member != self.me)
        return min(min(others, default=learned), learned)
