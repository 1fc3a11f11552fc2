"""Judges a finished run: order, every answer, and every replica.

Rules of the file: a fault is a sentence for people and a count for programs;
nothing is forgiven and nothing is repaired. What the store said comes in as
records and rows; what is right comes from `crescando.demo.replay`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from crescando.demo.flights import Row
from crescando.demo.operations import Key, is_read
from crescando.demo.record import Answered, Record, Unanswered, Written
from crescando.demo.replay import Counts, Replay, Rows
from crescando.types import RING_MAX, KeyRange, ProcessId

N_FAULTS_TOLD = 20
"""Sentences kept of each kind; the counts are always complete."""

PlainRows = Callable[[Any], list[tuple[Any, ...]]]
"""Makes rows, with instants as text, of the store's own answer."""


@dataclass(slots=True)
class Verdict:
    """What the checker found.

    Attributes
    ----------
    n_checked : int
        Operations whose answer or counts were compared.
    answers_differ : int
        Reads whose rows, and writes whose counts, are not SQLite's.
    unanswered : int
        Operations whose outcome the store never told.
    order_faults : int
        Positions that are not unique or contradict a session's order.
    writes_lost : int
        Acknowledged writes that a replica's rows show not to have happened
        (loading counts as one write).
    n_replicas, replicas_differ : int
        Replicas of ring ranges that were compared, and that differ.
    ring_faults : int
        Ranges without their replicas, or ring positions in no range or in two.
    told : list of str
        The first faults of each kind, in words.
    """

    n_checked: int = 0
    answers_differ: int = 0
    unanswered: int = 0
    order_faults: int = 0
    writes_lost: int = 0
    n_replicas: int = 0
    replicas_differ: int = 0
    ring_faults: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def digests_equal(self) -> bool:
        """Whether replicas were compared and none differs."""
        return self.n_replicas > 0 and self.replicas_differ == 0 and self.ring_faults == 0

    def tell(self, kind: str, text: str) -> None:
        """Keep a fault's words, if there are not enough of its kind."""
        if sum(told.startswith(kind) for told in self.told) < N_FAULTS_TOLD:
            self.told.append(f"{kind}: {text}")


def check_order(
    records: Sequence[Record], verdict: Verdict, *, moved_max: int, loaded: Sequence[int] = ()
) -> None:
    """Check that positions are unique and respect each session's own order.

    A session's operations have ascending positions in the order of submission.
    The one exception is a read whose owner died: the client library may send it
    again, behind later reads, but never across a write of its session.

    Parameters
    ----------
    records : sequence of Record
        Of all sessions, in any order.
    verdict : Verdict
        Is added to.
    moved_max : int
        How many reads the library says that it has sent again.
    loaded : sequence of int
        Positions of the writes that were acknowledged before all of these were submitted.
    """
    _check_loaded(records, loaded, verdict)
    seen: dict[int, Record] = {}
    for record in records:
        if record.position is None:
            continue
        if record.position in seen:
            verdict.order_faults += 1
            verdict.tell(
                "order", f"position {record.position} was given to {record} and {seen[record.position]}"
            )
        seen[record.position] = record
    n_moved = 0
    for agent in sorted({record.agent for record in records}):
        own = sorted((r for r in records if r.agent == agent), key=lambda record: record.sequence)
        known = [record for record in own if record.position is not None]
        _check_session(known, verdict)
        n_moved += len(known) - _longest_ascent([record.position or 0 for record in known])
    if n_moved > moved_max:
        verdict.order_faults += n_moved - moved_max
        verdict.tell(
            "order", f"{n_moved} reads are out of their session's order, {moved_max} were sent again"
        )


def _check_loaded(records: Sequence[Record], loaded: Sequence[int], verdict: Verdict) -> None:
    newest = max(loaded, default=-1)
    early = [r for r in records if r.position is not None and r.position <= newest]
    n_doubled = len(loaded) - len(set(loaded))
    if early or n_doubled:
        verdict.order_faults += len(early) + n_doubled
        verdict.tell("order", f"loading has {n_doubled} positions twice and lies above {early[:3]}")


def _check_session(own: list[Record], verdict: Verdict) -> None:
    """Check that every write lies above all that its session submitted before, and below all after."""
    last_write, last_read = -1, -1
    for record in own:
        position = record.position
        assert position is not None
        if position < last_write:
            verdict.order_faults += 1
            verdict.tell("order", f"{record} is not above its session's write before it, at {last_write}")
        if is_read(record.operation):
            last_read = max(last_read, position)
        else:
            if position < last_read:
                verdict.order_faults += 1
                verdict.tell("order", f"{record} is not above a read submitted before it, at {last_read}")
            last_write = max(last_write, position)


def _longest_ascent(positions: Sequence[int]) -> int:
    """Give the length of the longest strictly ascending subsequence."""
    ends: list[int] = []
    for position in positions:
        at = bisect_left(ends, position)
        ends[at : at + 1] = [position]
    return len(ends)


def check_answers(
    records: Iterable[Record],
    replay: Replay,
    plain_rows: PlainRows,
    verdict: Verdict,
    on_checked: Callable[[int], None] = lambda n_checked: None,
) -> None:
    """Execute the operations in SQLite in the order of their positions and compare everything.

    Parameters
    ----------
    records : iterable of Record
        In any order.
    replay : Replay
        Holds the rows that were there before; holds all writes afterwards.
    plain_rows : callable
    verdict : Verdict
        Is added to.
    on_checked : callable
        Called now and then with the number of operations compared.
    """
    known: list[tuple[int, Record]] = []
    for record in records:
        if isinstance(record.outcome, Unanswered):
            verdict.unanswered += 1
            verdict.tell("unanswered", f"{record.operation}: {record.outcome.reason}")
        else:
            known.append((record.outcome.position, record))
    known.sort(key=lambda pair: pair[0])
    for position, record in known:
        expected = replay.execute(record.operation, position)
        if not _agree(record, expected, plain_rows):
            verdict.answers_differ += 1
            verdict.tell("answer", _difference(record, expected, plain_rows))
        verdict.n_checked += 1
        if verdict.n_checked % 256 == 0:
            on_checked(verdict.n_checked)
    on_checked(verdict.n_checked)


def _agree(record: Record, expected: Rows | Counts, plain_rows: PlainRows) -> bool:
    match record.outcome, expected:
        case Answered(answer=answer), Rows(rows):
            return Counter(plain_rows(answer)) == Counter(rows)
        case Written(affected=affected, rejected=rejected), Counts():
            return (affected, rejected) == (expected.affected, expected.rejected)
    return False


def _difference(record: Record, expected: Rows | Counts, plain_rows: PlainRows) -> str:
    where = f"at {record.position}, {record.operation}"
    match record.outcome, expected:
        case Answered(answer=answer), Rows(rows):
            given, right = Counter(plain_rows(answer)), Counter(rows)
            return f"{where}: missing {list(right - given)[:3]}, too many {list(given - right)[:3]}"
        case Written(affected=affected, rejected=rejected), Counts():
            return (
                f"{where}: affected {affected} and rejected {rejected}, "
                f"where SQLite says {expected.affected} and {expected.rejected}"
            )
    return f"{where}: {record.outcome} is not the answer to such an operation"


@dataclass(frozen=True, slots=True)
class Replica:
    """The rows of one ring range on one live process."""

    process: ProcessId
    key_range: KeyRange
    rows: list[Row]


def check_ring(owned: Sequence[tuple[ProcessId, KeyRange]], n_replicas_min: int, verdict: Verdict) -> None:
    """Check that the owned ranges cover the ring once, each with enough live replicas."""
    owners = Counter(key_range for _, key_range in set(owned))
    following = 0
    for key_range, n_owners in sorted(owners.items()):
        if key_range.low != following:
            verdict.ring_faults += 1
            verdict.tell("ring", f"positions from {following} to {key_range.low} are in no range or in two")
        following = key_range.high + 1
        if n_owners < n_replicas_min:
            verdict.ring_faults += 1
            verdict.tell("ring", f"{key_range} has {n_owners} live replicas, not {n_replicas_min}")
    if following != RING_MAX + 1:
        verdict.ring_faults += 1
        verdict.tell("ring", f"positions from {following} are in no range")


class ReplicaCheck:
    """Compares replicas, one at a time, with what SQLite holds at the end.

    The rows of SQLite that belong to a range are not computed from a ring
    function, which would have to be the store's own: every row must be in
    exactly one range, and every replica of that range must have it.

    Parameters
    ----------
    replay : Replay
        After the last operation.
    verdict : Verdict
        Is added to.
    """

    def __init__(self, replay: Replay, verdict: Verdict) -> None:
        self._replay = replay
        self._table = replay.table()
        self._verdict = verdict
        self._keys: dict[KeyRange, set[Key]] = {}
        self._lost: set[int] = set()

    def compare(self, replica: Replica) -> None:
        """Compare one replica of one range."""
        self._verdict.n_replicas += 1
        keys: set[Key] = set()
        faults: set[Key] = set()
        for row in replica.rows:
            key = _key_of(row)
            if self._table.get(key) != row or key in keys:
                faults.add(key)
            keys.add(key)
        faults |= keys ^ self._keys.setdefault(replica.key_range, keys)
        if faults:
            self._blame(faults, f"{replica.process} for {replica.key_range}")

    def finish(self) -> None:
        """Check that the ranges together hold every row, each in one range."""
        held = Counter(key for keys in self._keys.values() for key in keys)
        faults = {key for key in self._table if key not in held}
        if faults:
            self._blame(faults, "all replicas together")
        doubled = {key for key, count in held.items() if count > 1}
        if doubled:
            self._blame(doubled, "two ranges")
        self._verdict.writes_lost = len(self._lost)

    def _blame(self, faults: set[Key], where: str) -> None:
        self._verdict.replicas_differ += 1
        examples = [(key, self._table.get(key)) for key in sorted(faults)[:2]]
        self._verdict.tell("replica", f"{where}: {len(faults)} rows differ, the first should be {examples}")
        self._lost.update(map(self._replay.writer_of, faults))


def _key_of(row: Row) -> Key:
    return cast(Key, row[:3])
