"""What a storage process remembers of its clients' operations, so that they may ask.

Rules of the file: an outcome is kept until its client has it, so that another
owner can tell when the reporter dies (a retry returns the first execution's
result). Of a client that was voted out it is kept a while longer, since one that
was only cut off may come back to ask; of one that left by itself nothing is.
Both are bounded: in outcomes a client, and for those that are gone in time and
in outcomes together, the longest gone first. With a range that is copied go the
outcomes of the writes to it, so that its new owner can tell them too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, repeat
from operator import attrgetter

import numpy as np

from crescando.engine.base import Failed
from crescando.engine.operations import Operations
from crescando.engine.written import Written, cut_written
from crescando.roles.bunches import Bunch
from crescando.roles.messages import Inquire, Inquired, Queued
from crescando.types import FULL_RING, ProcessId, Scope

_WHOLE: Scope = (FULL_RING,)
_NOTHING: tuple[Scope, bool] = ((), True)

RETURNED_BYTES_MAX = 64 << 20
"""Returned rows that are kept for one client. What its reporter tells it is not cut down: it
lacks rows only if the reporter dies, and is told so."""

FORGOTTEN_MAX = 4096
"""Called-off reads of one client that are remembered until they are delivered: to execute one after
all does no harm."""


class WrittenRecord:
    """What one client's writes did, until the client has it.

    The writes that this process executed ascend in number, since those of one client are executed
    as it sent them. What they did in ranges that were copied here comes later, in any order.
    """

    def __init__(self) -> None:
        self._pieces: deque[Written] = deque()
        self._late: list[Written] = []
        """By their first number."""
        self._n = 0
        self._returned_bytes = 0

    def __len__(self) -> int:
        return self._n

    def keep(self, written: Written, limit: int) -> None:
        """Keep what writes did, and the rows they returned while there is room for them.

        The oldest give way to the newest.
        """
        if self._pieces and _first_number(written) <= self._pieces[-1].number.item(-1):
            # A chunk of a load whose bytes came late.
            self.keep_late(written, limit)
            return
        self._pieces.append(self._counted(written))
        self._cut_down(limit)

    def keep_late(self, written: Written, limit: int) -> None:
        """Keep what writes did in a range that has been copied here, whenever that was."""
        insort(self._late, self._counted(written), key=_first_number)
        self._cut_down(limit)

    def forget(self, upto: int) -> None:
        """Forget the writes up to a number."""
        while self._pieces and _first_number(self._pieces[0]) <= upto:
            self._replace_first(self._pieces[0].after(upto))
        if self._late and _first_number(self._late[0]) <= upto:
            late, self._late = self._late, []
            for piece in late:
                self._count(piece, -1)
                left = piece.after(upto)
                if len(left):
                    self._count(left, 1)
                    insort(self._late, left, key=_first_number)

    def find(self, numbers: Sequence[int]) -> tuple[Written, ...]:
        """Give what is known of some writes."""
        ordered = sorted(numbers)
        asked = np.array(ordered, np.int64)
        found = []
        for piece in self:
            # There may be a piece for each of hundreds of writes, and few are asked for.
            at = bisect_left(ordered, _first_number(piece))
            if at < len(ordered) and ordered[at] <= piece.number.item(-1):
                found.append(piece.keep(np.isin(piece.number, asked)))
        return tuple(piece for piece in found if len(piece))

    def __iter__(self) -> Iterator[Written]:
        yield from self._pieces
        yield from self._late

    def _counted(self, written: Written) -> Written:
        if written.remarks:
            written = written.without_returned(self._too_many(written))
        self._count(written, 1)
        return written

    def _cut_down(self, limit: int) -> None:
        while self._n > limit:
            if self._late and (
                not self._pieces or _first_number(self._late[0]) < _first_number(self._pieces[0])
            ):
                self._count(self._late.pop(0), -1)
                continue
            first = self._pieces[0]
            excess = min(self._n - limit, len(first))
            self._replace_first(first.after(int(first.number[excess - 1])))

    def _too_many(self, written: Written) -> set[int]:
        """Give the writes whose returned rows have no room."""
        room = RETURNED_BYTES_MAX - self._returned_bytes
        none = set[int]()
        for write, remarks in groupby(written.remarks, attrgetter("write")):
            n_bytes = sum(remark.returned_bytes for remark in remarks)
            if n_bytes > room:
                none.add(write)
            else:
                room -= n_bytes
        return none

    def _replace_first(self, left: Written) -> None:
        self._count(self._pieces.popleft(), -1)
        if len(left):
            self._pieces.appendleft(left)
            self._count(left, 1)

    def _count(self, written: Written, sign: int) -> None:
        self._n += sign * len(written)
        self._returned_bytes += sign * sum(remark.returned_bytes for remark in written.remarks)


def _first_number(written: Written) -> int:
    return written.number.item(0)


@dataclass(slots=True)
class Ledger:
    """What one client may still ask about.

    Attributes
    ----------
    scopes : dict
        Queued numbers: scope, and whether it is a write.
    written : WrittenRecord
        Outcomes of executed writes.
    failed : dict
        Outcomes of refused writes, by number.
    report_all : set of int
        Queued writes that will be reported for all that is owned here.
    answered : int
        Up to where the client has every outcome.
    """

    scopes: dict[int, tuple[Scope, bool]] = field(default_factory=dict)
    written: WrittenRecord = field(default_factory=WrittenRecord)
    failed: dict[int, Failed] = field(default_factory=dict)
    report_all: set[int] = field(default_factory=set)
    answered: int = 0
    forgotten: dict[int, None] = field(default_factory=dict)
    """Reads that are called off and may yet be delivered; the oldest give way to the newest."""

    def __len__(self) -> int:
        return len(self.written) + len(self.failed)

    def keep_failed(self, failed: Failed, limit: int) -> None:
        """Keep why a write was refused until the client has it; the oldest give way to the newest."""
        if failed.number > self.answered:
            self.failed[failed.number] = failed
            if len(self.failed) > limit:
                del self.failed[next(iter(self.failed))]

    def enter(self, bunch: Bunch) -> None:
        """Learn that operations wait to be executed."""
        work, is_write = bunch.work, not bunch.is_read
        if not isinstance(work, Operations):
            self.scopes.update([(each.number, (each.scope, is_write)) for each in work])
            return
        # Few objects for many operations.
        told = [(scope, is_write) for scope in work.scopes]
        self.scopes.update(zip(work.number.tolist(), map(told.__getitem__, work.scope.tolist()), strict=True))

    def leave(self, numbers: Sequence[int]) -> None:
        """Learn that operations have their outcome."""
        deque(map(self.scopes.pop, numbers, repeat(None)), maxlen=0)

    def keep_written(self, written: Written, limit: int) -> list[Written]:
        """Keep what writes did until the client has it; gives what is to be reported of it now."""
        unknown = written.after(self.answered)
        # Of a write to what is only being copied here there is nothing to tell yet.
        if len(unknown) and unknown.arcs:
            self.written.keep(unknown, limit)
        begins = written.begins
        numbers = written.number[begins].tolist()
        scopes = [self.scopes.pop(number, _NOTHING)[0] for number in numbers]
        if self.report_all:
            scopes = [
                _WHOLE if number in self.report_all else scope
                for number, scope in zip(numbers, scopes, strict=True)
            ]
            self.report_all.difference_update(numbers)
        if len(set(map(id, scopes))) == 1:
            parts = [written.within(scopes[0])]
        else:
            places: dict[Scope, list[int]] = {}
            for place, scope in enumerate(scopes):
                places.setdefault(scope, []).append(place)
            owner = np.cumsum(begins) - 1
            parts = [written.keep(np.isin(owner, some)).within(scope) for scope, some in places.items()]
        return [part for part in parts if part.arcs]

    def keep_late(self, written: Written, limit: int) -> None:
        """Keep what writes did in a range that has been copied here, until the client has it."""
        unknown = written.after(self.answered)
        if len(unknown) and unknown.arcs:
            self.written.keep_late(unknown, limit)

    def told(self, scope: Scope, below: int) -> tuple[list[Written], list[Failed]]:
        """Give the outcomes of the writes below a position, as far as they concern a scope."""
        written = []
        for piece in self.written:
            some = piece.touching(scope)
            some = some.keep(slice(0, int(np.searchsorted(some.position, below))))
            if len(some) and some.arcs:
                written += _sliced(some)
        return written, [failed for failed in self.failed.values() if failed.position < below]

    def forget(self, upto: int) -> None:
        """Learn that the client has every outcome up to a number."""
        if upto <= self.answered:
            return
        self.answered = upto
        self.written.forget(upto)
        for number in [known for known in self.failed if known <= upto]:
            del self.failed[number]
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
        queued, others, failed = [], [], []
        for number in question.numbers:
            if number in self.scopes:
                scope, is_write = self.scopes[number]
                if is_write:
                    self.report_all.add(number)
                queued.append(Queued(number, scope, is_write))
            elif number in self.failed:
                failed.append(self.failed[number])
            else:
                others.append(number)
        return Inquired(question.inquiry, tuple(queued), self.written.find(others), tuple(failed))


SLICE = 16_384
"""Writes whose outcomes travel together."""

SLICE_BYTES = 1 << 20
"""What they may return together, but for one that returns more."""


def _sliced(written: Written) -> list[Written]:
    """Cut into slices; a transaction stays whole."""
    begins = written.begins.nonzero()[0]
    cuts = [0, *(int(begins[place]) for place in range(SLICE, len(begins), SLICE)), len(written)]
    slices = [written.keep(slice(start, stop)) for start, stop in pairwise(cuts)]
    return [piece for each in slices for piece in cut_written(each, SLICE_BYTES)]


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

    def items(self) -> Iterator[tuple[ProcessId, Ledger]]:
        """Give every client with its ledger."""
        yield from self._of.items()

    def of_moved(self, client: ProcessId, now_s: float, *, is_member: bool) -> Ledger:
        """Give the ledger for outcomes that come with a copied range: also of one that may come back."""
        if client not in self._of and not is_member:
            self._of[client] = Ledger()
            self._gone[client] = now_s + self._gone_s
        return self.of(client, is_member=is_member)

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
