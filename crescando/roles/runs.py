"""The data operations of a client that have no outcome yet, submission by submission.

Rules of the file: what is alike of thousands of operations is kept and told of together. An
operation gets a record of its own (`InFlight`) when anything but the whole answer of one owner
comes, or somebody looks at it; everything may be said of a record, and nothing else is known of
the others than their state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from itertools import compress, repeat

import numpy as np
from numpy.typing import NDArray

from crescando.client.base import Block, ReadAtOnce, Request, WriteOutcome
from crescando.engine.base import Rows
from crescando.engine.written import Report, Written
from crescando.process import earliest
from crescando.roles.answers import Answer
from crescando.roles.asked import Waiting
from crescando.roles.completion import Executed, Stable
from crescando.roles.flight import Coverage, InFlight
from crescando.routing.batch import I64, U64
from crescando.types import Position, Scope

CLOSED, READ, WRITE, COUNTED, ALONE = range(5)
"""An operation has its outcome or is forgotten; is a read, or a write, of which nothing is known;
is a write whose counts are there, so that it lacks only to be stable; has a record."""

_UNTOUCHED = (READ, WRITE, COUNTED)

_CLOSED = bytes((CLOSED,))

Mask = NDArray[np.bool_]


class Run:
    """The operations of one submission.

    Parameters
    ----------
    first : int
        The number of its first message.
    tokens : sequence of int
        What the user calls each operation.
    requests : sequence of Request
    states : bytearray
        `READ` or `WRITE` for each.
    ranges : Scope or None
        The ring ranges of each of them, if they have the same.
    ends : (ndarray of uint64, ndarray of uint64) or None
        The lower and upper end of the one ring range of each of them, if none has more.
    """

    __slots__ = (
        "ends",
        "first",
        "is_stable_upto",
        "outcomes",
        "ranges",
        "requests",
        "stable_s",
        "states",
        "tokens",
    )

    def __init__(
        self,
        first: int,
        tokens: Sequence[int],
        requests: Sequence[Request],
        states: bytearray,
        ranges: Scope | None,
        ends: tuple[U64, U64] | None = None,
    ) -> None:
        self.first = first
        self.tokens = tokens
        self.requests = requests
        self.states = states
        self.ranges = ranges
        self.ends = ends
        self.is_stable_upto = first - 1
        self.stable_s = 0.0
        self.outcomes: dict[int, WriteOutcome] = {}
        """Of writes that lack only to be stable, by place."""

    @property
    def last(self) -> int:
        """The number of its last message."""
        return self.first + len(self.states) - 1

    def tokens_of(self, places: Sequence[int]) -> Sequence[int]:
        """Give what the user calls some operations; `places` ascend."""
        if places[-1] - places[0] == len(places) - 1:
            return self.tokens[places[0] : places[-1] + 1]
        tokens = self.tokens
        return [tokens[place] for place in places]

    def close(self, places: Sequence[int]) -> None:
        """Forget operations; `places` ascend."""
        states, n = self.states, len(places)
        if places[-1] - places[0] == n - 1:
            states[places[0] : places[-1] + 1] = _CLOSED * n
        else:
            for place in places:
                states[place] = CLOSED

    def are(self, state: int, places: I64) -> Mask:
        """Say which operations are in a state."""
        found: Mask = np.frombuffer(self.states, np.uint8)[places] == state
        return found

    def lie_in(self, scope: Scope, places: I64) -> Mask:
        """Say which operations touch nothing outside a scope, of those of which that is seen at once."""
        if self.ranges is not None:
            return np.full(len(places), self.ranges == scope)
        lying = np.zeros(len(places), np.bool_)
        if self.ends is not None:
            low, high = self.ends[0][places], self.ends[1][places]
            for key_range in scope:
                lying |= (low >= np.uint64(key_range.low)) & (high <= np.uint64(key_range.high))
        return lying


class Runs:
    """What has no outcome, by number, ascending; as a mapping it gives each a record of its own."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self._records: dict[int, InFlight] = {}
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[int]:
        for run in list(self._runs):
            for place, state in enumerate(run.states):
                if state != CLOSED:
                    yield run.first + place

    def add(self, run: Run) -> None:
        """Take the operations of a submission, behind all others."""
        self._runs.append(run)
        self._firsts.append(run.first)
        self._n += len(run.states)

    def lowest(self, default: int) -> int:
        """Give the number of the first operation."""
        for run in self._runs:
            return run.first + len(run.states) - len(run.states.lstrip(_CLOSED))
        return default

    # One by one.

    def get(self, number: int) -> InFlight | None:
        """Give the record of an operation, if it has no outcome."""
        known = self._records.get(number)
        if known is not None:
            return known
        run = self._run_of(number)
        if run is None or run.states[number - run.first] == CLOSED:
            return None
        return self._record(run, number - run.first)

    def is_open(self, number: int) -> bool:
        """Say whether an operation has no outcome."""
        run = self._run_of(number)
        return run is not None and run.states[number - run.first] != CLOSED

    def known(self, number: int) -> InFlight | None:
        """Give the record of an operation if it has one."""
        return self._records.get(number)

    def take(self, numbers: Sequence[int]) -> list[Waiting]:
        """Forget operations that have no outcome; gives what was asked."""
        taken: list[Waiting] = []
        for number in numbers:
            run = self._run_of(number)
            if run is not None and run.states[number - run.first] != CLOSED:
                place = number - run.first
                taken.append((run.tokens[place], run.requests[place]))
                del self[number]
        return taken

    def __getitem__(self, number: int) -> InFlight:
        record = self.get(number)
        if record is None:
            raise KeyError(number)
        return record

    def __delitem__(self, number: int) -> None:
        run = self._run_of(number)
        if run is None or run.states[number - run.first] == CLOSED:
            raise KeyError(number)
        self._records.pop(number, None)
        run.outcomes.pop(number - run.first, None)
        self._close(run, (number - run.first,))

    def values(self) -> list[InFlight]:
        """Give the record of each operation."""
        return [self[number] for number in list(self)]

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Give what the user calls each operation, and its number."""
        for run in list(self._runs):
            for place, (token, state) in enumerate(zip(run.tokens, run.states, strict=True)):
                if state != CLOSED:
                    yield token, run.first + place

    def called(self, tokens: Container[int]) -> list[InFlight]:
        """Give the records of those that the user calls by some names."""
        return [self[number] for token, number in list(self.tokens()) if token in tokens]

    def stable_for(self, patience_s: float, now_s: float, n_max: int | None = None) -> list[InFlight]:
        """Give the records of those that have one, and of those that are stable for so long.

        Of the latter `n_max` at most, the first ones; the others are as if stable from now on.
        """
        n_left = len(self) if n_max is None else n_max
        for run in self._runs:
            if now_s >= run.stable_s + patience_s:
                n_stable = run.is_stable_upto + 1 - run.first
                places = [place for place, state in enumerate(run.states[:n_stable]) if state in _UNTOUCHED]
                for place in places[:n_left]:
                    self._record(run, place)
                if len(places) > n_left:
                    run.stable_s = now_s
                n_left = max(0, n_left - len(places))
        return [self._records[number] for number in sorted(self._records)]

    def next_stable_s(self) -> float | None:
        """Give when the first of those without a record became stable."""
        times_s = (
            run.stable_s
            for run in self._runs
            if run.states[: run.is_stable_upto + 1 - run.first].strip(bytes((CLOSED, ALONE)))
        )
        return earliest(*times_s)

    def _run_of(self, number: int) -> Run | None:
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._runs[at].last:
            return None
        return self._runs[at]

    def _record(self, run: Run, place: int) -> InFlight:
        number = run.first + place
        if run.states[place] == ALONE:
            return self._records[number]
        token, request = run.tokens[place], run.requests[place]
        record = InFlight(token, number, request, request.ranges)
        record.is_stable = number <= run.is_stable_upto
        record.stable_s = run.stable_s
        outcome = run.outcomes.pop(place, None)
        if outcome is not None:
            record.missing, record.position, record.counts = (), outcome.position, outcome.counts
        run.states[place] = ALONE
        self._records[number] = record
        return record

    def _close(self, run: Run, places: Sequence[int]) -> None:
        run.close(places)
        self._n -= len(places)
        if not run.states.strip(_CLOSED):
            at = bisect_left(self._firsts, run.first)
            del self._runs[at], self._firsts[at]

    # Many at once.

    def on_stable(self, upto: int, now_s: float) -> tuple[list[Stable | Executed], list[InFlight]]:
        """Learn that everything up to a number is stable.

        Returns
        -------
        list of Stable and Executed
            What is to be told of operations without a record.
        list of InFlight
            The records of others that this concerns, to be told by whoever keeps them.
        """
        told: list[Stable | Executed] = []
        records: list[InFlight] = []
        for run in self._runs[: bisect_right(self._firsts, upto)]:
            start, stop = run.is_stable_upto + 1 - run.first, min(upto, run.last) + 1 - run.first
            if start >= stop:
                continue
            states = run.states[start:stop]
            run.is_stable_upto = run.first + stop - 1
            run.stable_s = now_s
            if ALONE in states:
                records += [
                    self._records[run.first + place]
                    for place, state in enumerate(states, start)
                    if state == ALONE
                ]
            concerned: Sequence[int] = range(start, stop)
            if CLOSED in states or ALONE in states:
                concerned = [place for place, state in enumerate(states, start) if state in _UNTOUCHED]
            if concerned:
                told.append(Stable(run.tokens_of(concerned)))
            if COUNTED in states:
                counted = [place for place, state in enumerate(states, start) if state == COUNTED]
                outcomes = [run.outcomes.pop(place) for place in counted]
                told.append(Executed(run.tokens_of(counted), outcomes))
                self._close(run, counted)
        return told, records

    def on_rows(self, rows: Rows) -> tuple[list[Stable | Executed], list[Answer]]:
        """Take the answers of many reads, none of which has parts.

        Returns
        -------
        list of Stable and Executed
            What is to be told of reads of which this is all.
        list of Answer
            Those that must be looked at one by one.
        """
        numbers, positions, n = rows.number.tolist(), rows.position.tolist(), len(rows.number)
        scopes, offsets = rows.scopes, rows.offsets.tolist()
        block = Block(rows.names, rows.columns)
        scopes_of = repeat(scopes[0]) if len(scopes) == 1 else map(scopes.__getitem__, rows.scope.tolist())
        answers = list(map(ReadAtOnce, scopes_of, repeat(block), offsets[:-1], offsets[1:], positions))
        told: list[Stable | Executed] = []
        others: list[int] = []
        start = 0
        if not _ascend(rows.number):
            others += range(n)
            start = n
        while start < n:
            run = self._run_of(numbers[start])
            if run is None:
                others.append(start)
                start += 1
                continue
            stop = bisect_right(numbers, run.last, start)
            places = rows.number[start:stop] - run.first
            whole = run.are(READ, places)
            for index, scope in enumerate(scopes):
                whole &= run.lie_in(scope, places) | (rows.scope[start:stop] != index)
            outcomes = answers[start:stop]
            if not whole.all():
                others += (start + np.flatnonzero(~whole)).tolist()
                outcomes, places = list(compress(outcomes, whole.tolist())), places[whole]
            if outcomes:
                told += self._end(run, places.tolist(), outcomes)
            start = stop
        return told, [
            Answer(numbers[place], positions[place], answers[place], 0, has_more=False) for place in others
        ]

    def _end(
        self, run: Run, places: Sequence[int], outcomes: list[ReadAtOnce]
    ) -> Iterator[Stable | Executed]:
        tokens = run.tokens_of(places)
        n_stable = bisect_left(places, run.is_stable_upto + 1 - run.first)
        if n_stable < len(places):
            # A read's answer proves that its message is ordered on a majority.
            yield Stable(tokens[n_stable:])
        yield Executed(tokens, outcomes)
        self._close(run, places)

    def count(self, reports: Sequence[Report], coverage: Coverage) -> Iterator[InFlight]:
        """Keep what writes did, one by one; gives the records of those that have no outcome."""
        for report in reports:
            record = self.get(report.number)
            if record is not None:
                record.count(report, coverage)
                yield record

    def on_written(self, written: Written) -> tuple[list[Executed], list[Report]]:
        """Take what many writes did.

        Returns
        -------
        list of Executed
            What is to be told of writes of which this is all, and that are stable.
        list of Report
            What must be looked at one by one.
        """
        told: list[Executed] = []
        others: list[Report] = []
        reports, coverage = list(written.reports()), Coverage(written.arcs)
        numbers = np.array([report.number for report in reports], np.int64)
        if not _ascend(numbers):
            return told, reports
        start = 0
        while start < len(reports):
            run = self._run_of(int(numbers[start]))
            if run is None:
                others.append(reports[start])
                start += 1
                continue
            stop = int(np.searchsorted(numbers, run.last, side="right"))
            some, places = reports[start:stop], numbers[start:stop] - run.first
            whole = run.are(WRITE, places)
            if run.ranges is not None:
                whole &= _is_all(run.ranges, coverage)
            else:
                # The counts of one that touches several arcs may be of more than it asked for.
                whole &= len(written.arcs) == 1
                whole &= run.lie_in(written.arcs, places)
            if not whole.all():
                others += compress(some, (~whole).tolist())
                some, places = list(compress(some, whole.tolist())), places[whole]
            if some:
                told += self._end_writes(run, some, places.tolist())
            start = stop
        return told, others

    def _end_writes(self, run: Run, reports: list[Report], places: list[int]) -> Iterator[Executed]:
        outcomes = [WriteOutcome(Position(report.position), report.counts) for report in reports]
        n_stable = bisect_left(places, run.is_stable_upto + 1 - run.first)
        for place, outcome in zip(places[n_stable:], outcomes[n_stable:], strict=True):
            run.states[place] = COUNTED
            run.outcomes[place] = outcome
        if n_stable:
            yield Executed(run.tokens_of(places[:n_stable]), outcomes[:n_stable])
            self._close(run, places[:n_stable])


def _ascend(numbers: I64) -> bool:
    """Say whether each number is above the one before."""
    return bool((numbers[1:] > numbers[:-1]).all())


def _is_all(ranges: Scope, coverage: Coverage) -> bool:
    """Say whether some arcs are everything that writes of some ring ranges touch."""
    left, fresh = coverage.of(ranges)
    return not left and len(fresh) == len(coverage.arcs)
