"""The replicated m-seq: what every router computes from the learned batches alone.

Rules of the file: a pure function of the learned sequence. Per sender the
*learned* watermark decides what is appended: the next number is, a lower one
is a duplicate, a higher one leaves a hole (the sender sends again). Nothing
here knows who leads, who has confirmed, or what is stable; stability may lag
and must never decide positions (INV-5). `destset`, scopes, `apply` and
`suspects` are evaluated at the message's own prefix (INV-6), so a batch is cut
into runs at every entry that changes the Config.

Sources: RB13 Alg. 2 lines 13–14 and §5.6; EC11 §4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import numpy as np

from crescando.routing.base import Config, Refusal, Route, Routes, destset, route, transition
from crescando.routing.batch import CONFIG, Submission
from crescando.routing.ecast.messages import Batch
from crescando.types import NO_POSITION, Position, ProcessId, position

C = TypeVar("C", bound=Config)

DEPARTED_MAX = 4096
"""Former members whose last learned number is remembered, to answer late resubmissions."""


class Run(msgspec.Struct, Generic[C], eq=False):
    """Appended messages of one submission, all routed by one Config.

    A configuration message is a run of its own.

    Attributes
    ----------
    base : int
        Index in the instance of the submission's first message.
    start, stop : int
        Which messages of the submission.
    config : Config
        The prefix of all of them.
    """

    base: int
    submission: Submission
    start: int
    stop: int
    config: C
    _routes: Routes | None = None

    @property
    def routes(self) -> Routes:
        """Where the messages go; worked out when it is first asked for."""
        routes = self._routes
        if routes is None:
            routes = self._routes = route(self.config, self.submission, self.start, self.stop)
        return routes

    @property
    def is_config(self) -> bool:
        """Whether it is a configuration message."""
        return self.submission.kind.item(self.start) == CONFIG

    @property
    def joined(self) -> C | None:
        """The Config after it, if by it its sender has become a member.

        Worked out anew by whoever needs it, as routing is: nothing of it has to be kept or sent.
        """
        if self.submission.first + self.start != 1 or not self.is_config:
            return None
        sender, target = self.submission.sender, self.routes.routes[0]
        if isinstance(target, Refusal) or sender not in target or self.config.is_member(sender):
            return None
        outcome = transition(self.config, self.submission.message(self.start))
        return None if isinstance(outcome, Refusal) else outcome[0]


@dataclass(frozen=True, slots=True)
class Departure:
    """When a process stopped being a member, and its last appended number."""

    position: int
    learned: int


class Learned(msgspec.Struct, Generic[C], eq=False):
    """What learning one batch did.

    Attributes
    ----------
    runs : list of Run
    suspected : set of ProcessId
        Processes that this batch declared failed.
    gaps : set of ProcessId
        Senders of which something was skipped because a number is missing.
    void : set of ProcessId
        Senders of which something was skipped because they are no members.
    """

    runs: list[Run[C]] = []
    suspected: set[ProcessId] = set()
    gaps: set[ProcessId] = set()
    void: set[ProcessId] = set()


@dataclass(slots=True)
class MSeq(Generic[C]):
    """The state that every router agrees on.

    Attributes
    ----------
    config : Config
        After everything learned.
    position : int
        Of the last message learned (appended or not).
    learned : dict of ProcessId to int
        Highest appended number per sender that is a member.
    departed : dict of ProcessId to Departure
        Former members, oldest first, at most `DEPARTED_MAX`.
    refused : dict of ProcessId to dict of int to str
        Refused numbers and reasons that the sender has not acknowledged.
    """

    config: C
    position: Position = NO_POSITION
    learned: dict[ProcessId, int] = field(default_factory=dict)
    departed: dict[ProcessId, Departure] = field(default_factory=dict)
    refused: dict[ProcessId, dict[int, str]] = field(default_factory=dict)

    def learned_of(self, sender: ProcessId) -> int:
        """Give the highest appended number of a sender, also of a former member."""
        if sender in self.departed:
            return self.departed[sender].learned
        return self.learned.get(sender, 0)

    def learn(self, instance: int, batch: Batch, *, defers: bool = False) -> Learned[C]:
        """Append what the learned watermarks admit (RB13 Alg. 2, line 14).

        Parameters
        ----------
        instance : int
        batch : Batch
        defers : bool
            Leave data unrouted: `enter_refusals` is called later, for each run in order.
        """
        learned: Learned[C] = Learned()
        base = 0
        for submission in batch.submissions:
            self._append(instance, base, submission, learned)
            base += len(submission.kind)
        if base:
            self.position = position(instance, base - 1)
        if not defers:
            self.enter_refusals(learned.runs)
        return learned

    def enter_refusals(self, runs: Iterable[Run[C]]) -> bool:
        """Remember what routing refuses of runs that were learned; True if there was anything.

        Runs are entered in the order in which they were learned. What an early
        one had refused and a later one acknowledges is forgotten again.
        """
        found = False
        for run in runs:
            sender, first = run.submission.sender, run.submission.first + run.start
            for group, target in enumerate(run.routes.routes):
                if not isinstance(target, Refusal):
                    continue
                found = True
                if run.is_config or not (sender in self.learned or sender in self.departed):
                    # Entered when it was learned; or the sender has been forgotten since.
                    continue
                for index in np.flatnonzero(run.routes.group == group).tolist():
                    self._refuse(sender, first + index, target)
            if self.refused:
                self._forget_acknowledged(sender, run.submission.acknowledged)
        return found

    def _append(self, instance: int, base: int, submission: Submission, learned: Learned[C]) -> None:
        sender = submission.sender
        # Who has been appended since it became a member has not departed.
        watermark = self.learned.get(sender, 0)
        if not (watermark and self.config.is_member(sender)) and self._is_void(submission):
            learned.void.add(sender)
            if sender not in self.departed and submission.first > 1:
                # Its join may have fallen into a hole, of which it must be told.
                learned.gaps.add(sender)
            return
        index = watermark + 1 - submission.first
        if index < 0:
            learned.gaps.add(sender)
            return
        if self.refused:
            self._forget_acknowledged(sender, submission.acknowledged)
        n = len(submission.kind)
        if not submission.has_config:
            if index < n:
                self._append_data(base, submission, index, n, learned)
            return
        configs = np.flatnonzero(submission.kind == CONFIG)
        for boundary in (*configs[configs >= index].tolist(), n):
            if boundary > index:
                self._append_data(base, submission, index, boundary, learned)
            if boundary == n:
                return
            self._append_config(instance, base, submission, boundary, learned)
            if sender not in self.learned:
                # The message ended its own sender's membership, or was no valid join.
                learned.void.add(sender)
                return
            index = boundary + 1

    def _is_void(self, submission: Submission) -> bool:
        """Whether nothing of a submission can have effect: its sender is no member, and does not join."""
        sender = submission.sender
        if sender in self.departed:
            return True
        joins = submission.first == 1 and submission.begins_with_config
        return not joins and not self.config.is_member(sender)

    def _append_data(
        self, base: int, submission: Submission, start: int, stop: int, learned: Learned[C]
    ) -> None:
        learned.runs.append(Run(base, submission, start, stop, self.config))
        self.learned[submission.sender] = submission.first + stop - 1

    def _append_config(
        self, instance: int, base: int, submission: Submission, index: int, learned: Learned[C]
    ) -> None:
        message = submission.message(index)
        sender = message.sender
        at = position(instance, base + index)
        before = self.config
        target: Route = destset(before, message)
        after, suspected = before, frozenset[ProcessId]()
        if not isinstance(target, Refusal):
            outcome = transition(before, message)
            if isinstance(outcome, Refusal):
                target = outcome
            else:
                after, suspected = outcome
        if not before.is_member(sender) and not after.is_member(sender):
            return
        self.config = after
        self.learned[sender] = message.number
        if isinstance(target, Refusal):
            self._refuse(sender, message.number, target)
        routes = Routes(np.zeros(1, np.int64), (target,))
        learned.runs.append(Run(base, submission, index, index + 1, before, routes))
        for process in sorted(suspected):
            learned.suspected.add(process)
            self._depart(process, at)

    def _depart(self, process: ProcessId, at: int) -> None:
        # What was refused stays known: the process may yet ask what became of it.
        self.departed[process] = Departure(at, self.learned.pop(process, 0))
        while len(self.departed) > DEPARTED_MAX:
            forgotten = next(iter(self.departed))
            del self.departed[forgotten]
            self.refused.pop(forgotten, None)

    def _refuse(self, sender: ProcessId, number: int, refusal: Refusal) -> None:
        self.refused.setdefault(sender, {})[number] = refusal.reason

    def _forget_acknowledged(self, sender: ProcessId, acknowledged: int) -> None:
        refused = self.refused.get(sender)
        if refused:
            for number in [known for known in refused if known <= acknowledged]:
                del refused[number]
            if not refused:
                del self.refused[sender]
