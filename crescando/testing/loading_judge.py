"""What atomic loads ought to do, computed from the order alone, with none of their code.

Rules of the file: the messages of loads are read one after the other with the rules in their plainest
form. What comes out are steps of the workload's model: each load's end shows all rows of its winners at one
place, or nothing ever does; so every checker that compares answers with the model judges loads too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crescando.client.base import WriteOutcome
from crescando.engine.loads import LoadCount
from crescando.engine.statement import decode_call
from crescando.errors import RemoteProtocolError
from crescando.roles.load_messages import decode_chunk
from crescando.routing.rubberband.messages import (
    AbortLoad,
    BeginLoad,
    CloseLoad,
    CommitLoad,
    ExpireLoad,
    PublishLoad,
    RenewLoad,
    SealLoad,
    decode_message,
)
from crescando.testing.checkers import interpret
from crescando.testing.judge import Appended, Judgement
from crescando.testing.workload import Model, Row, Step, Workload
from crescando.types import LoadId, MessageKind, ProcessId

Key = tuple[ProcessId, int]

Told = tuple[Key, str]
"""A client's token, and what it was for."""


@dataclass(frozen=True, slots=True)
class Written:
    """What clients have made and been told.

    Attributes
    ----------
    rows : mapping of bytes to rows
        What chunks mean, by their digest.
    told : mapping
        Outcomes that are not None.
    """

    rows: Mapping[bytes, tuple[Row, ...]]
    told: Mapping[Told, WriteOutcome | Exception]


@dataclass(slots=True)
class _Open:
    number: int
    job: str
    epoch: int
    write: str
    renewals: int = 0
    is_closed: bool = False
    chunks: dict[tuple[int, int, int], tuple[Row, ...]] = field(default_factory=dict)
    sealed: tuple[Row, ...] | None = None

    def rows(self, winners: Any) -> tuple[Row, ...]:
        """Give the rows of the winners, in the order of partitions and chunks."""
        wins = {(winner.partition, winner.attempt) for winner in winners}
        return tuple(row for place in sorted(self.chunks) if place[:2] in wins for row in self.chunks[place])


class _Reader:
    def __init__(self, table: int, written: Written) -> None:
        self.table = table
        self.written = written
        self.open: dict[LoadId, _Open] = {}
        self.committed: dict[str, int] = {}
        self.shown: dict[Key, Step] = {}
        self.found: list[str] = []
        self.counted: Counter[str] = Counter()
        self.n_begun = 0

    def take(self, appended: Appended) -> None:
        """Take the next message."""
        message = appended.message
        if appended.destinations is None:
            return
        if message.kind is not MessageKind.CONFIG:
            self._take_chunk(appended)
            return
        try:
            body = decode_message(message.payload)
        except RemoteProtocolError:
            return
        if not appended.destinations:
            return
        at = LoadId(message.sender, message.number)
        match body:
            case BeginLoad():
                self._begin(at, body)
            case RenewLoad(load):
                self._known(load, "renewed").renewals += 1
            case CloseLoad(load):
                self._known(load, "closed").is_closed = True
            case AbortLoad(load) | ExpireLoad(load):
                self._known(load, "ended")
                self._drop(load, at)
                self.counted["loads_expired" if isinstance(body, ExpireLoad) else "loads_aborted"] += 1
            case CommitLoad() | SealLoad() | PublishLoad():
                self._end(at, body, appended)

    def _known(self, load: LoadId, what: str) -> _Open:
        found = self.open.get(load)
        if found is None:
            self.found.append(f"loads: {load} is {what} though it is not open")
            found = _Open(-1, "", 0, "")
        return found

    def _take_chunk(self, appended: Appended) -> None:
        call = decode_call(appended.message.payload)
        if call.shape >= 0 or appended.message.kind is MessageKind.READ:
            return
        chunk = decode_chunk(call.parameters)
        load = self.open.get(chunk.load)
        if load is None or load.is_closed:
            return
        place = chunk.partition, chunk.attempt, chunk.chunk
        load.chunks.setdefault(place, self.written.rows[chunk.digest])
        self.counted["chunks"] += 1

    def _begin(self, at: LoadId, body: BeginLoad) -> None:
        if self.committed.get(body.job, -1) >= body.epoch:
            return
        for load, known in list(self.open.items()):
            if known.job == body.job and known.epoch <= body.epoch:
                self._drop(load, at)
        self.n_begun += 1
        write = body.rule if body.write == "insert" else body.write
        self.open[at] = _Open(self.n_begun, body.job, body.epoch, write)

    def _drop(self, load: LoadId, at: LoadId) -> None:
        known = self.open.pop(load, None)
        if known is not None and known.sealed is not None:
            self.shown[at] = Step("load_unseal", (known.number,))

    def _end(self, at: LoadId, body: CommitLoad | SealLoad | PublishLoad, appended: Appended) -> None:
        if self.committed.get(body.job, -1) >= body.epoch:
            self.counted["repeats"] += 1
            if body.load in self.open:
                self._drop(body.load, at)
            return
        load = self._known(body.load, "shown")
        if isinstance(body, SealLoad):
            load.sealed = load.rows(body.winners)
            self.shown[at] = _step("load_seal", load, load.sealed)
            return
        if isinstance(body, CommitLoad):
            rows = load.rows(body.winners)
            n_wanted = sum(winner.n_rows for winner in body.winners)
            if n_wanted != len(rows):
                self.found.append(
                    f"loads: {body.load} is to show {n_wanted} rows, and {len(rows)} are ordered"
                )
            self.shown[at] = _step(f"load_{load.write}", load, rows)
        else:
            self.shown[at] = _step("load_publish", load, load.sealed or ())
        self.counted["shown"] += 1
        self.open.pop(body.load, None)
        self.committed[load.job] = load.epoch
        for other, known in list(self.open.items()):
            if known.job == load.job and known.epoch <= load.epoch:
                # One message, one step: such a load is not sealed in any run, since its
                # successor's beginning ended it.
                self._drop(other, LoadId(other.sender, -other.number))


def _step(name: str, load: _Open, rows: tuple[Row, ...]) -> Step:
    flat = [number for column in zip(*rows, strict=True) for number in column] if rows else []
    return Step(name, (load.number, *flat))


def read_loads(q: Judgement, table: int, written: Written) -> tuple[dict[Key, Step], list[str], Counter[str]]:
    """Give what the ends of loads mean, what is wrong with them, and how many there are."""
    reader = _Reader(table, written)
    for appended in q.appended:
        reader.take(appended)
    return dict(reader.shown), reader.found, reader.counted


def check_counts(
    q: Judgement, workload: Workload, told: Mapping[Told, WriteOutcome | Exception]
) -> list[str]:
    """What clients were told of the ends of loads is what the model counts at their positions."""
    found, expected, model = [], {}, Model()
    for appended in q.appended:
        step = interpret(workload, appended)
        if step is not None and not step.is_read:
            counts = model.write(step)
            if step.name.startswith("load_"):
                expected[appended.position] = counts
    for (key, what), outcome in told.items():
        if what != "end" or not isinstance(outcome, WriteOutcome):
            continue
        wanted = expected.get(outcome.position)
        # What other loads of the job had staged is discarded, and told with it.
        counted = [count for count in outcome.counts if count.step != LoadCount.DISCARDED]
        counts = sum(each.affected for each in counted), sum(each.rejected for each in counted)
        if wanted is None:
            found.append(f"loads: {key} is told of an end at {outcome.position}, where there is none")
        elif counts != wanted:
            found.append(f"loads: {key} at {outcome.position} is told {counts}, not {wanted}")
    return found
