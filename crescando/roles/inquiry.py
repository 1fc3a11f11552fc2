"""Questions to the owners about operations that lack an outcome.

Rules of the file: a question goes to every owner with a session, and is over
when each of them has answered or lost its session, or has been silent for too
long; the router that leads is asked with it which owners there are, since there
may be newer ones than this client knows. What owners promise to answer yet is
waited for. What nobody promises will not be answered: a read that no reached
owner holds is given up at once, since it can be sent again; a write only if
every owner there is has answered that it knows nothing, or after some time of
asking in vain, since an owner that cannot be reached may know. While nobody at
all answers it is this process that is cut off, most likely, and more patient.
Time is counted from question to question, at most `answer_s` for each, so that
a pause of this very process is hardly any of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from crescando.process import earliest
from crescando.roles.flight import InFlight
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import Inquire, Inquired
from crescando.roles.runs import Runs
from crescando.scopes import subtract
from crescando.types import KeyRange, ProcessId

PROMISED = 7
"""An owner that promised to report is asked again after so much longer than one that did not."""


ASKED_MAX = 256
"""So many of those that nobody was asked about are at a time, the oldest, as long as nothing tells
that an outcome is lost: what is only slow is slow for all that come behind."""


@dataclass(slots=True)
class _Inquiry:
    """One question, and who has not answered it."""

    waited_s: dict[int, float]
    """For each operation, how long it had waited since it was last asked about."""
    asked_s: float
    unanswered: set[ProcessId]
    asks_all: bool
    """Whether every owner there is was asked, and each has answered or still may."""
    is_confirmed: bool = False
    """Whether a router has told since which owners there are."""
    is_heard: bool = False
    """Whether anybody has answered."""
    promised: dict[int, list[KeyRange]] = field(default_factory=dict)
    asked: frozenset[ProcessId] = field(init=False)

    def __post_init__(self) -> None:
        self.asked = frozenset(self.unanswered)

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be learned any more."""
        return not self.unanswered and (self.is_confirmed or not self.asks_all)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An operation whose outcome nobody who can be asked will tell.

    Attributes
    ----------
    operation : InFlight
    reason : str
        How that is known.
    """

    operation: InFlight
    reason: str


class Inquiries:
    """The open questions of one client.

    Parameters
    ----------
    limits : ClientLimits
        `inquire_s`, `answer_s`, `give_up_s` and `alone_s` are asked for.

    Attributes
    ----------
    wake_at_s : float or None
        When there is something to ask or to give up.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits
        self.wake_at_s: float | None = None
        self._open: dict[int, _Inquiry] = {}
        self._last = 0
        self._is_suspicious = False
        self._is_in_vain = False
        """Whether an owner last promised nothing."""

    def suspect(self) -> None:
        """Ask without delay: answers may have been lost with a session."""
        self._is_suspicious = True

    def expect(self, now_s: float) -> None:
        """Begin to wait for the outcomes of operations that are stable now."""
        due_s = now_s + self.limits.inquire_s
        if self.wake_at_s is None or due_s < self.wake_at_s:
            self.wake_at_s = due_s

    def confirm(self, owners: Collection[ProcessId]) -> None:
        """Learn from the router that leads which owners there are; asked with each question."""
        for inquiry in self._open.values():
            inquiry.asks_all = inquiry.asks_all and inquiry.asked.issuperset(owners)
            inquiry.is_confirmed = True

    def end_session(self, owner: ProcessId) -> None:
        """Expect no answer of an owner any more."""
        for inquiry in self._open.values():
            if owner in inquiry.unanswered:
                inquiry.unanswered.discard(owner)
                inquiry.asks_all = False

    def on_inquired(self, owner: ProcessId, message: Inquired) -> None:
        """Note an answer, and what it promises."""
        inquiry = self._open.get(message.inquiry)
        if inquiry is not None:
            inquiry.unanswered.discard(owner)
            inquiry.is_heard = True
            for queued in message.queued:
                inquiry.promised.setdefault(queued.number, []).extend(queued.scope)

    def look(
        self,
        operations: Runs,
        owners: Collection[ProcessId],
        now_s: float,
        *,
        n_owners: int,
    ) -> Inquire | None:
        """Give what to ask every owner now, if anything.

        Parameters
        ----------
        operations : Runs
            All that have no outcome.
        owners : collection of ProcessId
            Those with a session.
        n_owners : int
            How many there are, with those that cannot be reached.
        """
        if not operations:
            self.wake_at_s, self._is_suspicious = None, False
            self._open.clear()
            return None
        if not self._is_suspicious and (self.wake_at_s is None or now_s < self.wake_at_s):
            return None
        patience_s = 0.0 if self._is_suspicious else self.limits.inquire_s
        n_max = None if self._is_suspicious or self._is_in_vain else ASKED_MAX
        waiting = [
            operation
            for operation in operations.stable_for(patience_s, now_s, n_max)
            if operation.is_stable and operation.missing and operation.inquiry not in self._open
        ]
        due = [o for o in waiting if self._is_suspicious or now_s >= o.stable_s + self.limits.inquire_s]
        question = self._ask(due, owners, now_s, n_owners) if due else None
        self._is_suspicious = self._is_suspicious and not due
        later = (o.stable_s + self.limits.inquire_s for o in waiting if o.inquiry not in self._open)
        over = (
            now_s if inquiry.is_over else inquiry.asked_s + self.limits.answer_s
            for inquiry in self._open.values()
        )
        others_s = operations.next_stable_s()
        self.wake_at_s = earliest(
            min(later, default=None),
            min(over, default=None),
            None if others_s is None else others_s + self.limits.inquire_s,
        )
        return question

    def _ask(
        self, due: list[InFlight], owners: Collection[ProcessId], now_s: float, n_owners: int
    ) -> Inquire:
        self._last += 1
        waited_s: dict[int, float] = {}
        for operation in due:
            waited_s[operation.number] = max(0.0, min(now_s - operation.stable_s, self.limits.answer_s))
            operation.inquiry = self._last
            operation.stable_s = now_s
        self._open[self._last] = _Inquiry(waited_s, now_s, set(owners), asks_all=len(owners) == n_owners)
        return Inquire(self._last, tuple(waited_s))

    def conclude(self, operations: Runs, now_s: float) -> Iterator[GivenUp]:
        """Close the questions that are over; gives what has no hope, the last number first."""
        over = [
            key
            for key, inquiry in self._open.items()
            if inquiry.is_over or now_s >= inquiry.asked_s + self.limits.answer_s
        ]
        for key in over:
            inquiry = self._open.pop(key)
            # What is asked about again is due some time later: look when.
            self.wake_at_s = now_s
            for number in sorted(inquiry.waited_s, reverse=True):
                operation = operations.get(number)
                if operation is not None and operation.missing:
                    reason = self._judge(operation, inquiry)
                    if reason:
                        yield GivenUp(operation, reason)

    def _judge(self, operation: InFlight, inquiry: _Inquiry) -> str:
        """Give why an operation has no hope after a question; empty while it has some."""
        promised = inquiry.promised.get(operation.number)
        is_promised = promised is not None and (
            # Of a write, an owner reports whatever it owns.
            not operation.is_read or not subtract(operation.missing, tuple(sorted(promised)))
        )
        if is_promised:
            operation.waited_s = operation.alone_s = 0.0
            self._is_in_vain = False
            # It is only slow, and would ask about thousands: its report comes by itself, unless
            # the session ends, which is noticed.
            operation.stable_s += PROMISED * self.limits.inquire_s
            return ""
        self._is_in_vain = True
        if inquiry.asks_all and inquiry.is_over:
            return "no owner has a record of it"
        if inquiry.is_heard:
            operation.alone_s = 0.0
            operation.waited_s += inquiry.waited_s[operation.number]
            if operation.is_read:
                return "no owner that answers holds it"
        else:
            operation.alone_s += inquiry.waited_s[operation.number]
        if operation.waited_s >= self.limits.give_up_s:
            return f"an owner that may know could not be reached for {self.limits.give_up_s:g} s"
        if operation.alone_s >= self.limits.alone_s:
            return f"no owner could be reached for {self.limits.alone_s:g} s"
        return ""
