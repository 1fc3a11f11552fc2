"""What a storage process remembers of its clients' operations, so that they may ask.

Rules of the file: an outcome is kept until its client has it, so that another
owner can tell when the reporter dies (a retry returns the first execution's
result). Of a client that was voted out it is kept a while longer, since one that
was only cut off may come back to ask; of one that left by itself nothing is.
Both are bounded: in outcomes a client, and for those that are gone in time and
in outcomes together, the longest gone first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from crescando.engine.base import Failed, Written
from crescando.roles.messages import Inquire, Inquired, Queued
from crescando.types import ProcessId, Scope

RETURNED_BYTES_MAX = 64 << 20
"""Returned rows that are kept for one client. What its reporter tells it is not cut down: it
lacks rows only if the reporter dies, and is told so."""

FORGOTTEN_MAX = 4096
"""Called-off reads of one client that are remembered until they are delivered: to execute one after
all does no harm."""


@dataclass(slots=True)
class Ledger:
    """What one client may still ask about.

    Attributes
    ----------
    scopes : dict
        Queued numbers: scope, and whether it is a write.
    written, failed : dict
        Outcomes of executed and of refused writes, by number.
    report_all : set of int
        Queued writes that will be reported for all that is owned here.
    answered : int
        Up to where the client has every outcome.
    """

    scopes: dict[int, tuple[Scope, bool]] = field(default_factory=dict)
    written: dict[int, Written] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    report_all: set[int] = field(default_factory=set)
    answered: int = 0
    forgotten: dict[int, None] = field(default_factory=dict)
    """Reads that are called off and may yet be delivered; the oldest give way to the newest."""
    _returned: dict[int, int] = field(default_factory=dict)
    """What the returned rows of kept outcomes weigh, by number."""

    def __len__(self) -> int:
        return len(self.written) + len(self.failed)

    def keep(self, record: dict[int, Any], number: int, outcome: Any, limit: int) -> None:
        """Keep an outcome until the client has it; the oldest give way to the newest."""
        if number > self.answered:
            record[number] = outcome
            if len(record) > limit:
                oldest = next(iter(record))
                del record[oldest]
                self._returned.pop(oldest, None)

    def keep_written(self, written: Written, limit: int) -> None:
        """Keep what a write did, and the rows it returned while there is room for them."""
        n_bytes = written.returned_bytes
        if n_bytes and n_bytes + sum(self._returned.values()) > RETURNED_BYTES_MAX:
            written = written.without_returned()
        elif n_bytes and written.number > self.answered:
            self._returned[written.number] = n_bytes
        self.keep(self.written, written.number, written, limit)

    def forget(self, upto: int) -> None:
        """Learn that the client has every outcome up to a number."""
        if upto <= self.answered:
            return
        self.answered = upto
        for record in (self.written, self.failed):
            for number in [known for known in record if known <= upto]:
                del record[number]
                self._returned.pop(number, None)
        for number in [known for known in self.forgotten if 0 < known <= upto]:
            del self.forgotten[number]

    def call_off(self, number: int) -> None:
        """Learn that nobody waits for a read, which is not here."""
        if number > self.answered or number < 0:
            self.forgotten[number] = None
            if len(self.forgotten) > FORGOTTEN_MAX:
                del self.forgotten[next(iter(self.forgotten))]

    def answer(self, question: Inquire) -> Inquired:
        """Tell what is known, and promise to report queued writes for all that is owned here."""
        queued, written, failed = [], [], []
        for number in question.numbers:
            if number in self.scopes:
                scope, is_write = self.scopes[number]
                if is_write:
                    self.report_all.add(number)
                queued.append(Queued(number, scope, is_write))
            elif number in self.written:
                written.append(self.written[number])
            elif number in self.failed:
                failed.append(self.failed[number])
        return Inquired(question.inquiry, tuple(queued), tuple(written), tuple(failed))


class Ledgers:
    """The ledgers of every client, those that are gone included.

    Parameters
    ----------
    gone_s : float
        How long the ledger of a client is kept that was voted out.
    gone_records : int
        Outcomes that are kept of all such clients together.
    """

    def __init__(self, gone_s: float, gone_records: int) -> None:
        self._gone_s = gone_s
        self._gone_records = gone_records
        self._of: dict[ProcessId, Ledger] = {}
        self._gone: dict[ProcessId, float] = {}
        """Until when the ledger is kept, the longest gone first."""

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self._of.values())

    def of(self, client: ProcessId, *, is_member: bool) -> Ledger:
        """Give what a client may still ask about; of one that is unknown and no member nothing is kept."""
        found = self._of.get(client)
        if found is None:
            found = Ledger()
            if is_member:
                self._of[client] = found
        return found

    @property
    def present(self) -> list[ProcessId]:
        """The clients with a ledger that are not known to be gone."""
        return [client for client in self._of if client not in self._gone]

    def depart(self, client: ProcessId, now_s: float, *, may_return: bool) -> None:
        """Learn that a client is no member any more."""
        ledger = self._of[client]
        if may_return and (ledger.scopes or len(ledger)):
            self._gone[client] = now_s + self._gone_s
        else:
            del self._of[client]

    def flush(self, now_s: float) -> None:
        """Forget clients that have been gone for too long, or of which too much is kept."""
        if not self._gone:
            return
        n_records = sum(len(self._of[client]) for client in self._gone)
        for client, until_s in list(self._gone.items()):
            ledger = self._of[client]
            if now_s < until_s and n_records <= self._gone_records:
                break
            n_records -= len(ledger)
            del self._gone[client], self._of[client]

    @property
    def wake_at_s(self) -> float | None:
        """When the next one must be forgotten."""
        return next(iter(self._gone.values()), None)
