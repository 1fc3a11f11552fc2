"""Judges a torture by the simulator's checkers, from what routers learned, clients saw and replicas hold.

Rules of the file: the order is what the routers wrote down, judged anew message
by message; nothing that a client or an administrator was told is taken for it.
Clocks are one: all processes ran on one host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from crescando.assembly import Assembly
from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.engine.partition import position_of
from crescando.errors import OperationError
from crescando.routing.ecast.messages import Batch
from crescando.schema import TableSchema
from crescando.spec import ClusterSpec
from crescando.testing.checkers import (
    Violations,
    check_agreement,
    check_outcomes,
    check_scopes,
    check_verdict_of,
    interpret,
)
from crescando.testing.held import rows_in
from crescando.testing.isolation import Asked as Known
from crescando.testing.isolation import Told, check_direct_reads
from crescando.testing.judge import ConfigJudge, Judgement, judge_order
from crescando.testing.trace import Trace
from crescando.testing.workload import Model, Workload
from crescando.types import KeyRange, ProcessId
from tests.nodes.torture.bulk import Extracted, Fate, Loaded, Shown, rows_of
from tests.nodes.torture.history import Asked, History
from tests.nodes.torture.node import learned_in

Key = tuple[ProcessId, int]


@dataclass(frozen=True, slots=True)
class Replica:
    """The rows that a process answered for a ring range, when all was over."""

    process: ProcessId
    key_range: KeyRange
    rows: list[tuple[int, ...]]


@dataclass(slots=True)
class Evidence:
    """What a torture is judged by.

    Attributes
    ----------
    spec : ClusterSpec
    workload : Workload
    learned : dict of ProcessId to list of (int, Batch or None)
        Per life of a router, in order.
    histories : list of History
    replicas : list of Replica
    schema : TableSchema
        Of the table that loads go to.
    loaded : list of Replica
        Of that table.
    """

    spec: ClusterSpec
    workload: Workload
    learned: dict[ProcessId, list[tuple[int, Batch | None]]]
    histories: list[History]
    replicas: list[Replica]
    schema: TableSchema
    loaded: list[Replica]

    @property
    def loads(self) -> list[Loaded]:
        """Every load of every client."""
        return [load for history in self.histories for load in history.loads]

    @property
    def extracts(self) -> list[Extracted]:
        """Every extract of every client."""
        return [extract for history in self.histories for extract in history.extracts]

    @property
    def asked(self) -> list[Asked]:
        """Every operation of every client, in the order of asking."""
        return sorted(
            (asked for history in self.histories for asked in history.asked), key=lambda each: each.asked_s
        )


@dataclass(slots=True)
class Found:
    """What was found wrong, by what it means, and what was looked at.

    Attributes
    ----------
    lost : list of str
        Acknowledged writes that are not in the order, or not in a replica.
    wrong : list of str
        Answers and counts that are not those of the order.
    other : list of str
        Routers that disagree, operations without an outcome, and what else must not be.
    counted : dict
    """

    lost: Violations = field(default_factory=list)
    wrong: Violations = field(default_factory=list)
    other: Violations = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)

    @property
    def violations(self) -> Violations:
        """All of them."""
        return [*self.lost, *self.wrong, *self.other]


def read_learned(folder: Path) -> dict[ProcessId, list[tuple[int, Batch | None]]]:
    """Read what routers wrote down, by their lives."""
    found: dict[ProcessId, list[tuple[int, Batch | None]]] = {}
    for path in sorted(folder.iterdir()):
        node, _, incarnation = path.name.partition("#")
        found[ProcessId("router", node, int(incarnation))] = list(learned_in(path))
    return found


def judge(evidence: Evidence) -> Found:
    """Judge what is there by every checker that it suffices for."""
    found = Found()
    trace = Trace(learned=evidence.learned)
    for router, learned in evidence.learned.items():
        # A later life begins with a snapshot; each may take others over when it lags.
        trace.installed[router] = [instance - 1 for instance, _ in learned]
    found.other += check_agreement(trace)
    union = {instance: batch for learned in evidence.learned.values() for instance, batch in learned}
    missing = sorted(set(range(1, max(union, default=0) + 1)) - union.keys())
    if missing:
        found.other.append(f"no router has written down the instances {missing[:5]}")
    q = judge_order(sorted(union.items()), Assembly(evidence.spec).config, ConfigJudge())
    found.other += check_scopes(q)
    asked = evidence.asked
    outcomes = {_key(each): each.outcome for each in asked if each.outcome is not None}
    steps = {_key(each): each.step for each in asked}
    told = _told(asked)
    direct = _known(asked, told, evidence.spec.super_.suspicion_s / 2)
    ordered = {key: outcome for key, outcome in outcomes.items() if key not in direct}
    wrong, model = check_outcomes(q, evidence.workload, ordered, steps)
    written = {_key(each) for each in asked if each.is_written}
    for violation in wrong:
        # A position that the order does not have is a write, or a read, that never was.
        (found.lost if "Q has no operation" in violation else found.wrong).append(violation)
    numbers = _numbers(q, asked)
    found.wrong += check_direct_reads(
        q, evidence.workload, outcomes=outcomes, steps=steps, asked=direct, numbers=numbers
    )
    found.wrong += check_real_time(asked)
    found.other += _check_told(q, asked, numbers)
    found.lost += check_replicas(model, evidence.workload, evidence.replicas)
    loads, extracts = evidence.loads, evidence.extracts
    found.lost += check_loads(loads, extracts, evidence.loaded, evidence.schema)
    found.wrong += check_extracts(q, evidence.workload, extracts, loads, told)
    found.other += _check_failures(evidence.histories)
    found.other += [
        f"answered: {each.client} waits for {each.token}, {each.step}, for ever"
        for each in asked
        if each.outcome is None
    ]
    found.counted = {
        "asked": len(asked),
        "appended": len(q.appended),
        "written": len(written),
        "errors": sum(isinstance(outcome, Exception) for outcome in outcomes.values()),
        "unknown_writes": sum(
            isinstance(each.outcome, Exception)
            and not each.step.is_read
            and getattr(each.outcome, "applied", "unknown") == "unknown"
            for each in asked
        ),
        **{
            f"{isolation}_reads": sum(
                isinstance(each.outcome, ReadOutcome) and each.isolation == isolation for each in asked
            )
            for isolation in ("sequential", "snapshot", "basic")
        },
        "suspected": len(q.suspected),
        "replicas": len(evidence.replicas),
        "rows": len(model.rows),
        **{f"loads_{fate}": sum(load.fate == fate for load in loads) for fate in get_args(Fate)},
        "extracts": len(extracts),
        "failed_rounds": sum(len(history.failures) for history in evidence.histories),
    }
    return found


def _key(asked: Asked) -> Key:
    return asked.client, asked.token


def _told(asked: Sequence[Asked]) -> Told:
    """Give what anybody had been told at any time."""
    told = Told()
    for each in sorted(asked, key=lambda each: each.told_s):
        if isinstance(each.outcome, ReadOutcome | WriteOutcome):
            told.tell(each.outcome.latest, each.told_s)
    return told


def _known(asked: Sequence[Asked], told: Told, lease_s: float) -> dict[Key, Known]:
    """Give what anybody had been told when each read outside the order was asked for."""
    return {
        _key(each): Known(
            each.isolation,
            each.seen,
            told.by(each.asked_s - (lease_s if each.isolation == "basic" else 0.0)),
        )
        for each in asked
        if each.isolation != "sequential"
    }


def _numbers(q: Judgement, asked: Iterable[Asked]) -> Mapping[Key, int]:
    """Give the message number of each operation of which it is known, from its position if it has one."""
    at = {appended.position: appended.message.number for appended in q.appended}
    found: dict[Key, int] = {}
    for each in asked:
        is_placed = each.isolation == "sequential" and isinstance(each.outcome, ReadOutcome | WriteOutcome)
        number = at.get(each.outcome.position, 0) if is_placed else each.number  # type: ignore[union-attr]
        if number:
            found[_key(each)] = number
    return found


def check_real_time(asked: Sequence[Asked]) -> Violations:
    """What is asked for after anybody was told of a position has a higher one: the order is linearizable."""
    found: Violations = []
    told = Told()
    events = [(each.told_s, 1, each) for each in asked] + [(each.asked_s, 0, each) for each in asked]
    floors: dict[int, int] = {}
    for when_s, is_told, each in sorted(events, key=lambda event: event[:2]):
        outcome = each.outcome
        if not isinstance(outcome, ReadOutcome | WriteOutcome) or each.isolation != "sequential":
            continue
        if is_told:
            told.tell(outcome.position, when_s)
            if outcome.position <= floors[id(each)]:
                found.append(
                    f"real time: {each.client}'s {each.step} has {outcome.position}, and somebody "
                    f"had been told of {floors[id(each)]} before it was asked for"
                )
        else:
            floors[id(each)] = told.highest
    return found


def _check_told(q: Judgement, asked: Iterable[Asked], numbers: Mapping[Key, int]) -> Violations:
    """What an error says of an operation's effect is what became of it."""
    by_number = {(a.message.sender, a.message.number): a for a in q.appended}
    found: Violations = []
    for each in asked:
        number = numbers.get(_key(each))
        if isinstance(each.outcome, OperationError) and number is not None and not each.step.is_read:
            found += check_verdict_of(_key(each), each.outcome, by_number.get((each.client, number)))
    return found


def check_replicas(model: Model, workload: Workload, replicas: Iterable[Replica]) -> Violations:
    """Every replica of every range holds what the order makes of it, and every row is in some range."""
    found: Violations = []
    seen: set[int] = set()
    n_replicas = 0
    for each in replicas:
        n_replicas += 1
        wanted = list(rows_in(model, workload, (each.key_range,)))
        held = sorted(each.rows)
        seen.update(key for key, *_ in wanted)
        if held != wanted:
            found.append(f"replica: {each.process} holds {held} in {each.key_range}, not {wanted}")
    if not n_replicas or seen != model.rows.keys():
        found.append(f"replica: of {n_replicas} nobody owns the rows {sorted(model.rows.keys() - seen)}")
    return found


# In bulk.


def check_loads(
    loads: Sequence[Loaded], extracts: Iterable[Extracted], replicas: Sequence[Replica], schema: TableSchema
) -> Violations:
    """Every replica has all rows of the loads that were shown, once, and no others.

    Of a load whose fate is unknown that is all or none: it was shown if anybody ever had a row of it.
    """
    found: Violations = [
        f"load: {load.number} was told that others have its keys, which nobody else has"
        for load in loads
        if load.fate == "conflict"
    ]
    seen = {row[-1] for replica in replicas for row in replica.rows}
    seen |= {row[-1] for extract in extracts for row in extract.loaded}
    shown = {
        load.number
        for load in loads
        if load.fate == "shown" or (load.fate == "unknown" and load.number in seen)
    }
    wanted = sorted(row for number in shown for row in rows_of(number))
    for each in replicas:
        low, high = each.key_range
        mine = [row for row in wanted if low <= position_of(schema, row[0]) <= high]
        held = sorted(each.rows)
        if held != mine:
            missing, more = Counter(mine) - Counter(held), Counter(held) - Counter(mine)
            differs = f"lacks {sorted(missing)} in {each.key_range} and has {sorted(more)} more"
            found.append(f"load: {each.process} {differs}")
    return found


def check_extracts(
    q: Judgement, workload: Workload, extracts: Iterable[Extracted], loads: Sequence[Loaded], told: Told
) -> Violations:
    """Each extract is all of both tables at its position, behind what anybody had been told before."""
    found: Violations = []
    model = Model()
    waiting = sorted(extracts, key=lambda each: each.position, reverse=True)

    def judge(before: int | None) -> None:
        while waiting and (before is None or waiting[-1].position < before):
            each = waiting.pop()
            wanted = tuple((key, *model.rows[key]) for key in sorted(model.rows))
            if each.accounts != wanted:
                found.append(f"extract: at {each.position} are {each.accounts}, not {wanted}")
            if each.position <= (known := told.by(each.asked_s)):
                found.append(f"extract: at {each.position}, and somebody had been told of {known} before")
            found.extend(_check_loaded(each, loads))

    for appended in q.appended:
        judge(appended.position)
        step = interpret(workload, appended)
        if step is not None and not step.is_read:
            model.write(step)
    judge(None)
    return found


def _check_loaded(each: Extracted, loads: Sequence[Loaded]) -> Violations:
    """What an extract shows of loads is all of those that had been shown at its position, and no others."""
    found: Violations = []
    there: dict[int, list[Shown]] = {}
    for row in each.loaded:
        there.setdefault(row[-1], []).append(row)
    for load in loads:
        rows = there.pop(load.number, [])
        if rows and rows != rows_of(load.number):
            found.append(f"extract: at {each.position} is a part of load {load.number}: {rows}")
        if load.fate == "shown" and load.position >= 0:
            is_wanted, is_allowed = (load.position < each.position,) * 2
        else:
            is_wanted = load.fate == "shown" and load.told_s <= each.asked_s
            is_allowed = load.fate in ("shown", "unknown") and load.begun_s < each.told_s
        if is_wanted and not rows:
            found.append(
                f"extract: at {each.position} load {load.number} is missing, shown at {load.position}"
            )
        if rows and not is_allowed:
            found.append(f"extract: at {each.position} is load {load.number}, which is {load.fate}")
    found += [f"extract: at {each.position} are rows of nobody's load {number}" for number in there]
    return found


def _check_failures(histories: Iterable[History]) -> Violations:
    """What ends a load or an extract is something that the documentation names."""
    return [
        f"bulk: {failure}"
        for history in histories
        for failure in history.failures
        if "InvariantError" in failure
    ]
