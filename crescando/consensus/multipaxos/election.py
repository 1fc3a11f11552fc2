"""One member's view of who leads, and its own candidacy.

Rules of the file: this decides *when* to stand for election and with which
attempt, never whether a ballot is safe; that is the acceptors' business. A
member that has just heard a leader, promised a candidate or lost an election
waits for a time of its own, drawn at random, so that candidates do not meet
again and again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from crescando.consensus.base import EPOCH_SHIFT, Ballot
from crescando.consensus.multipaxos.detector import Detector
from crescando.types import ProcessId


@dataclass(slots=True)
class Election:
    """When this member stands for election.

    Parameters
    ----------
    election_s : float
        Silence after which a leader is doubted.
    epoch : int
    rng : random.Random

    Attributes
    ----------
    followed : ProcessId or None
        Whom this member takes for the leader.
    attempt : int
        Of its last canvass.
    highest : int
        The highest attempt it has heard of.
    granted : set of ProcessId or None
        Who would vote for it; None if it does not canvass.
    campaign_at_s : float or None
        When it will stand; None while it follows a leader.
    """

    election_s: float
    epoch: int
    rng: random.Random
    followed: ProcessId | None = None
    attempt: int = 0
    highest: int = field(init=False)
    granted: set[ProcessId] | None = None
    campaign_at_s: float | None = None
    detector: Detector = field(init=False)

    def __post_init__(self) -> None:
        self.highest = self.epoch << EPOCH_SHIFT
        self.detector = Detector(self.election_s)

    @property
    def wake_at_s(self) -> float:
        """When there may be something to do."""
        if self.campaign_at_s is not None:
            return self.campaign_at_s
        return self.detector.heard_s + self.detector.limit_s

    def note(self, ballot: Ballot) -> None:
        """Learn that a ballot exists."""
        if ballot.attempt > self.highest:
            self.highest = ballot.attempt

    def follow(self, leader: ProcessId, now_s: float) -> None:
        """Take somebody for the leader, and note this sign of life."""
        if self.followed != leader:
            self.followed = leader
            self.detector.follow(now_s)
        self.detector.hear(now_s)
        self.campaign_at_s = None
        self.granted = None

    def hears_leader(self, now_s: float) -> bool:
        """Whether there is a leader that need not be doubted."""
        return self.followed is not None and not self.detector.is_silent(now_s)

    def doubt_at_once(self, peer: ProcessId, now_s: float) -> None:
        """Suspect a leader whose session has ended, or cannot be had."""
        if peer == self.followed:
            # The spread keeps the followers from canvassing against each other.
            self.followed = None
            self.campaign_at_s = now_s + self.rng.uniform(0.0, 0.02 * self.election_s)

    def forgive(self, now_s: float) -> None:
        """Do not hold a pause of this very process against the leader."""
        self.detector.follow(now_s)
        self.campaign_at_s = None

    def is_due(self, now_s: float) -> bool:
        """Whether to stand now."""
        if self.campaign_at_s is None and self.detector.is_silent(now_s):
            self.followed = None
            self.campaign_at_s = now_s
        return self.campaign_at_s is not None and now_s >= self.campaign_at_s

    def canvass(self, me: ProcessId, promised: Ballot, now_s: float) -> None:
        """Begin to ask who would vote for this member."""
        self.attempt = max(self.highest, promised.attempt) + 1
        self.granted = {me}
        self._wait(now_s)

    def open(self, ballot: Ballot, now_s: float) -> None:
        """Enough would: the ballot is opened."""
        self.granted = None
        self.note(ballot)
        self._wait(now_s)

    def stand_back(self, now_s: float) -> None:
        """Somebody else has opened a ballot."""
        self.followed = None
        self.granted = None
        self._wait(now_s)

    def lose(self, now_s: float) -> None:
        """This member leads no more, or will not."""
        self.followed = None
        self.granted = None
        self.detector.follow(now_s)
        self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        self.campaign_at_s = now_s + self.election_s * self.rng.uniform(0.5, 1.0)
