"""What snapshot reads of a run must show, beside the rows of their own position.

Rules of the file: nothing of the read path is taken for granted. When a user
asks, it is noted what the session and anybody else had been told by then; the
answer is compared with the model at the position that it names, and that
position with what was noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.testing.checkers import Violations, interpret
from crescando.testing.judge import Judgement
from crescando.testing.workload import Model, Step, Workload, rows_of
from crescando.types import MessageKind, ProcessId

Key = tuple[ProcessId, int]
"""A client and its token."""

Outcome = ReadOutcome | WriteOutcome | Exception


@dataclass(frozen=True, slots=True)
class Asked:
    """What was known when a snapshot read was asked for.

    Attributes
    ----------
    seen : int
        The highest position that its session had been told.
    told : int
        The highest that any client had been told.
    """

    seen: int
    told: int


def check_snapshots(
    q: Judgement,
    workload: Workload,
    *,
    outcomes: Mapping[Key, Outcome],
    steps: Mapping[Key, Step],
    asked: Mapping[Key, Asked],
    numbers: Mapping[Key, int],
) -> Violations:
    """Every snapshot read equals the model at its position, which lies behind what was known.

    *Its session*: nothing it had seen and none of its earlier writes is missing
    (monotonic reads, read your writes). *Anybody*: nothing that anybody had been
    told before is missing, so that a client may tell another what it read.

    Parameters
    ----------
    numbers : mapping of (client, token)
        The message number of each operation that was ordered.
    """
    found: Violations = []
    answered: dict[Key, ReadOutcome] = {}
    for key in asked:
        outcome = outcomes.get(key)
        if isinstance(outcome, ReadOutcome):
            answered[key] = outcome
    found += _check_rows(q, workload, answered, steps)
    written = _written(q, steps, numbers)
    for key, outcome in answered.items():
        at, known = outcome.position, asked[key]
        if at < known.seen:
            found.append(f"snapshot: {key} answers at {at}, but its session had seen {known.seen}")
        elif at < known.told:
            found.append(f"snapshot: {key} answers at {at}, but somebody had been told {known.told}")
        missed = [token for token, position in written.get(key[0], ()) if token < key[1] and position > at]
        if missed:
            found.append(f"snapshot: {key} answers at {at}, before its session's writes {missed}")
    return found


def _check_rows(
    q: Judgement, workload: Workload, answered: Mapping[Key, ReadOutcome], steps: Mapping[Key, Step]
) -> Violations:
    found: Violations = []
    model = Model()
    waiting = sorted(answered, key=lambda key: (answered[key].position, key), reverse=True)

    def judge(before: int | None) -> None:
        while waiting and (before is None or answered[waiting[-1]].position < before):
            key = waiting.pop()
            outcome, step = answered[key], steps[key]
            rows, expected = rows_of(outcome), model.matching(step)
            if rows != expected:
                found.append(f"snapshot: {key} {step} at {outcome.position} answers {rows}, not {expected}")

    for appended in q.appended:
        judge(before=appended.position)
        if appended.destinations is None or appended.message.kind is not MessageKind.WRITE:
            continue
        step = interpret(workload, appended)
        if step is not None:
            model.write(step)
    judge(before=None)
    return found


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
