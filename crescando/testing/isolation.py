"""What snapshot and basic reads of a run must show, beside the rows of their own positions.

Rules of the file: nothing of the read path is taken for granted. When a user
asks, it is noted what the session and anybody else had been told by then; the
answer is compared, part by part, with the model at the position that it names, and that
position with what was noted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crescando.client.base import Isolation, ReadInParts, ReadOutcome, WriteOutcome
from crescando.errors import CountUnknownError
from crescando.testing.checkers import Violations, interpret
from crescando.testing.judge import Judgement
from crescando.testing.workload import Model, Row, Step, Workload, rows_of
from crescando.types import ProcessId, Scope

Key = tuple[ProcessId, int]
"""A client and its token."""

Outcome = ReadOutcome | WriteOutcome | Exception


@dataclass(frozen=True, slots=True)
class Asked:
    """What was known when a read outside the order was asked for.

    Attributes
    ----------
    isolation : str
    seen : int
        The highest position that its session had been told.
    told : int
        The highest position that it must not be behind: of a snapshot read what any client had been
        told, of a basic read what any had been told a lease before.
    """

    isolation: Isolation
    seen: int
    told: int


@dataclass(slots=True)
class Told:
    """The highest position that any client had been told, and since when."""

    highest: int = -1
    _times_s: list[float] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)

    def tell(self, position: int, now_s: float) -> None:
        """Note that a client is told of a position."""
        if position > self.highest:
            self.highest = position
            self._times_s.append(now_s)
            self._positions.append(position)

    def by(self, when_s: float) -> int:
        """Give the highest position that had been told by a time."""
        at = bisect_right(self._times_s, when_s) - 1
        return self._positions[at] if at >= 0 else -1


@dataclass(frozen=True, slots=True)
class _Shown:
    """A part of an answer: the rows of some ring ranges at one position; None for those of all."""

    key: Key
    at: int
    scope: Scope | None
    rows: list[Row]


def check_direct_reads(
    q: Judgement,
    workload: Workload,
    *,
    outcomes: Mapping[Key, Outcome],
    steps: Mapping[Key, Step],
    asked: Mapping[Key, Asked],
    numbers: Mapping[Key, int],
) -> Violations:
    """Every part of every such read equals the model at its position, which lies behind what was known.

    *Its session*: nothing it had seen and none of its earlier writes is missing
    (monotonic reads, read your writes). *Anybody*: nothing that anybody had been
    told before is missing, so that a client may tell another what it read; of basic reads
    that holds for what was told a lease before.

    Parameters
    ----------
    numbers : mapping of (client, token)
        The message number of each operation that was ordered.
    """
    found: Violations = []
    shown = [
        part
        for key in asked
        if isinstance(outcome := outcomes.get(key), ReadOutcome)
        for part in _parts_of(key, outcome)
    ]
    found += _check_rows(q, workload, shown, steps, asked)
    written = _written(q, steps, numbers)
    for part in shown:
        key, at, known = part.key, part.at, asked[part.key]
        if at < known.seen:
            found.append(f"{known.isolation}: {key} answers at {at}, but its session had seen {known.seen}")
        elif at < known.told:
            found.append(f"{known.isolation}: {key} answers at {at}, but somebody had been told {known.told}")
        missed = [
            token
            for token, position in written.get(key[0], ())
            if token < key[1]
            and position > at
            and not (known.isolation == "basic" and _is_unknown(outcomes.get((key[0], token))))
        ]
        if missed:
            found.append(f"{known.isolation}: {key} answers at {at}, before its session's writes {missed}")
    return found


def _parts_of(key: Key, outcome: ReadOutcome) -> Iterator[_Shown]:
    if not outcome.places:
        yield _Shown(key, outcome.position, None, rows_of(outcome))
    for scope, at in outcome.places:
        pieces = tuple(piece for piece in outcome.pieces if piece.scope == scope)
        yield _Shown(key, at, scope, rows_of(ReadInParts(at, pieces)))


def _is_unknown(outcome: Outcome | None) -> bool:
    """Whether a session was told that nobody knows what became of a write, which may come to pass yet."""
    return isinstance(outcome, Exception) and not isinstance(outcome, CountUnknownError)


def _check_rows(
    q: Judgement,
    workload: Workload,
    shown: list[_Shown],
    steps: Mapping[Key, Step],
    asked: Mapping[Key, Asked],
) -> Violations:
    found: Violations = []
    model = Model()
    waiting = sorted(shown, key=lambda part: (part.at, part.key, part.scope or ()), reverse=True)

    def judge(before: int | None) -> None:
        while waiting and (before is None or waiting[-1].at < before):
            part = waiting.pop()
            key, step = part.key, steps[part.key]
            expected = [row for row in model.matching(step) if _lies_in(workload, row, part.scope)]
            if part.rows != expected:
                told = f"{key} {step} at {part.at} answers {part.rows} in {part.scope}, not {expected}"
                found.append(f"{asked[key].isolation}: {told}")

    for appended in q.appended:
        judge(before=appended.position)
        step = interpret(workload, appended)
        if step is not None and not step.is_read:
            model.write(step)
    judge(before=None)
    return found


def _lies_in(workload: Workload, row: Row, scope: Scope | None) -> bool:
    if scope is None:
        return True
    at = workload.ring_position(row[0])
    return any(low <= at <= high for low, high in scope)


def _written(
    q: Judgement, steps: Mapping[Key, Step], numbers: Mapping[Key, int]
) -> dict[ProcessId, list[tuple[int, int]]]:
    """Give each client's writes that took effect: token and position."""
    positions = {
        (appended.message.sender, appended.message.number): appended.position
        for appended in q.appended
        if appended.destinations is not None
    }
    written: dict[ProcessId, list[tuple[int, int]]] = {}
    for key, step in steps.items():
        position = positions.get((key[0], numbers.get(key, 0)))
        if not step.is_read and position is not None:
            written.setdefault(key[0], []).append((key[1], position))
    return written
