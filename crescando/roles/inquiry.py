"""Questions to the owners about operations that lack an outcome.

Rules of the file: a question goes to every owner with a session, and is
answered when each of them has answered or lost its session. What owners promise
to answer yet is noted; what nobody promises will never be answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from crescando.roles.flight import InFlight, subtract
from crescando.roles.messages import Inquire, Inquired
from crescando.types import KeyRange, ProcessId


@dataclass(slots=True)
class _Inquiry:
    """One question, and who has not answered it."""

    numbers: frozenset[int]
    unanswered: set[ProcessId]
    promised: dict[int, list[KeyRange]] = field(default_factory=dict)


class Inquiries:
    """The open questions of one client."""

    def __init__(self) -> None:
        self._open: dict[int, _Inquiry] = {}
        self._last = 0

    def __contains__(self, inquiry: int) -> bool:
        return inquiry in self._open

    def ask(self, operations: list[InFlight], owners: Collection[ProcessId], now_s: float) -> Inquire:
        """Open a question about some operations; gives what to send to every owner."""
        self._last += 1
        numbers = tuple(operation.number for operation in operations)
        self._open[self._last] = _Inquiry(frozenset(numbers), set(owners))
        for operation in operations:
            operation.inquiry = self._last
            operation.stable_s = now_s
        return Inquire(self._last, numbers)

    def end_session(self, owner: ProcessId) -> None:
        """Expect no answer of an owner any more."""
        for inquiry in self._open.values():
            inquiry.unanswered.discard(owner)

    def on_inquired(self, owner: ProcessId, message: Inquired) -> None:
        """Note an answer, and what it promises."""
        inquiry = self._open.get(message.inquiry)
        if inquiry is not None:
            inquiry.unanswered.discard(owner)
            for queued in message.queued:
                inquiry.promised.setdefault(queued.number, []).extend(queued.scope)

    def conclude(self, operations: dict[int, InFlight]) -> Iterator[InFlight]:
        """Close answered questions; gives the reads that no owner holds, the last number first."""
        for key in [known for known, inquiry in self._open.items() if not inquiry.unanswered]:
            inquiry = self._open.pop(key)
            for number in sorted(inquiry.numbers, reverse=True):
                operation = operations.get(number)
                if operation is None or not operation.is_read:
                    continue
                if subtract(operation.missing, tuple(sorted(inquiry.promised.get(number, ())))):
                    yield operation
