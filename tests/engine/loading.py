"""Loads among ordinary operations, on tables that change and ranges that move.

Three things execute the same: engines that hand ranges on, an engine of another kind that
lies still, and a model that knows of no load (`tests.engine.loads_model`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crescando.engine.loads import (
    NO_EPOCH,
    Abort,
    Begin,
    Commit,
    LoadCount,
    LoadRule,
    LoadStep,
    LoadWork,
    LoadWrite,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.statement import Kind, Operation
from crescando.engine.written import Count
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, KeyRange
from tests.engine.differential import CLIENTS, Answer, bag
from tests.engine.evolving import TYPES, Evolving, smallest_key
from tests.engine.generator import as_column
from tests.engine.loads_model import Model, Told

OPEN_MAX = 4
KEYS = 120
"""Few, so that loads clash with rows and with one another."""

SECOND = {
    DataType.STRING: ("", "a", "a\0", "b"),
    DataType.FLOAT64: (0.0, -0.0, float("nan"), 1.5),
    DataType.BOOL: (False, True),
}
"""Values of a second key column."""


@dataclass
class Script:
    """A load that the world has begun."""

    begin: Begin
    chunks: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many each attempt has staged."""
    last: list[Stage] = field(default_factory=list)
    is_sealed: bool = False


class Loading(Evolving):
    """One seed; see `tests.engine.evolving.Evolving`.

    Attributes
    ----------
    done : Counter
        What happened, lest a test prove nothing.
    """

    def __init__(self, seed: int, kind: str) -> None:
        self.model = Model()
        self.done: Counter[str] = Counter()
        self._scripts: dict[str, Script] = {}
        self._n_loads = self._n_rounds = 0
        super().__init__(seed, kind)

    def _create(self) -> None:
        self._next_table += 1
        random = self.random
        columns = [ColumnDef("k", DataType.INT64, False), ColumnDef("s", DataType.STRING)]
        columns += [ColumnDef(f"x{place}", random.choice(TYPES)) for place in range(3)]
        key: tuple[str, ...] = ("k",) if random.random() < 0.8 else ()
        if key and random.random() < 0.3:
            columns.insert(1, ColumnDef("q", random.choice(list(SECOND)), False))
            key = ("k", "q") if random.random() < 0.5 else ("q", "k")
        if key and random.random() < 0.3:
            columns.append(ColumnDef("n", DataType.INT64, False))
        schema = TableSchema(f"t{self._next_table}", tuple(columns), "k", key).with_ids(self._next_table)
        self._next_columns[schema.id] = max(column.id for column in schema.columns)
        self.moving.create(schema)
        self.still.create_table(schema)

    def _value(self, column: ColumnDef) -> Any:
        if column.name == "k":
            return self.random.randrange(KEYS)
        if column.name == "q":
            return self.random.choice(SECOND[column.type])
        return super()._value(column)

    # What is to be done.

    def _batch(self) -> Sequence[Operation | LoadStep]:
        self.model.follow(self.moving.schemas)
        operations: list[Operation | LoadStep] = []
        for schema in self.schemas:
            for operation in self._statements(schema):
                operations.append(operation)
                operations += self._steps()
        return operations

    def _steps(self) -> Iterator[LoadStep]:
        random = self.random
        if len(self._scripts) < OPEN_MAX and random.random() < 0.3:
            yield self._step(self._begin())
        for script in list(self._scripts.values()):
            if random.random() < 0.25:
                for _ in range(random.choice((1, 1, 3))):
                    yield self._step(self._stage(script))
            elif random.random() < 0.15:
                yield self._step(self._end(script))
            elif random.random() < 0.03:
                yield self._step(self._nonsense(script))

    def _step(self, work: LoadWork) -> LoadStep:
        self._position += 1
        at = self._position
        return LoadStep(at, self.random.choice(CLIENTS), at, (FULL_RING,), work)

    def _begin(self) -> Begin:
        random = self.random
        schema = random.choice(self.schemas)
        write, rule = random.choice(list(LoadWrite)), random.choice(list(LoadRule))
        if not schema.primary_key:
            write = random.choice((LoadWrite.INSERT, LoadWrite.OVERWRITE))
        if random.random() < 0.4:
            write, rule = (
                LoadWrite.INSERT,
                random.choice((*LoadRule, rule)),
            )
        others = [c for c in schema.columns if c.name not in schema.key_columns]
        keys = [c for c in schema.columns if c.name in schema.key_columns]
        given = [c for c in others if random.random() < 0.7]
        if write is LoadWrite.DELETE:
            given = []
        elif write is LoadWrite.UPDATE:
            if not others:
                write = LoadWrite.UPSERT
            given = given or others[:1]
        elif write is not LoadWrite.UPSERT:
            given = [c for c in others if c in given or not c.nullable]
        columns = [*keys, *given]
        random.shuffle(columns)
        self._n_loads += 1
        job = f"job {random.choice((random.randrange(4), self._n_loads))}"
        # Rarely one that was committed before, or is soon.
        epoch = max(self._n_loads - random.choice((0, 0, 0, 0, 1, 9)), NO_EPOCH)
        epoch = NO_EPOCH if random.random() < 0.1 else epoch
        begin = Begin(
            f"load {self._n_loads}", schema.id, write, rule, tuple(c.id for c in columns), job, epoch
        )
        self._scripts[begin.load] = Script(begin)
        return begin

    def _stage(self, script: Script) -> Stage:
        random, begin = self.random, script.begin
        if script.last and random.random() < 0.15:
            self.done["repeated chunks"] += 1
            return random.choice(script.last)
        schema = self.moving.schemas.get(begin.table)
        attempt = random.choice((0, 0, 1, 2)), random.choice((0, 0, 1))
        chunk = script.chunks.get(attempt, 0)
        script.chunks[attempt] = chunk + 1
        if schema is None or any(schema.column_by_id(i) is None for i in begin.columns):
            work = Stage(begin.load, *attempt, chunk, ())
        else:
            columns = [schema.column_by_id(i) for i in begin.columns]
            n_rows = random.choice((0, 1, 5, 20))
            rows = [[self._staged(c) for c in columns if c is not None] for _ in range(n_rows)]
            values = (
                as_column(c.type, [row[place] for row in rows])
                for place, c in enumerate(columns)
                if c is not None
            )
            work = Stage(begin.load, *attempt, chunk, tuple(values))
        script.last = [*script.last[-3:], work]
        return work

    def _staged(self, column: ColumnDef) -> Any:
        if not column.nullable and self.random.random() < 0.02:
            return None
        return self._value(column)

    def _end(self, script: Script) -> LoadWork:
        begin = script.begin
        is_strict = begin.write is LoadWrite.INSERT and begin.rule is LoadRule.FAIL
        if self.random.random() < 0.15:
            return self._abort(script)
        if is_strict and not script.is_sealed:
            script.is_sealed = True
            return Seal(begin.load, begin.job, begin.epoch, self._winners(script))
        del self._scripts[begin.load]
        if is_strict:
            return Publish(begin.load, begin.job, begin.epoch)
        return Commit(begin.load, begin.job, begin.epoch, self._winners(script))

    def _abort(self, script: Script) -> Abort:
        del self._scripts[script.begin.load]
        return Abort(script.begin.load)

    def _winners(self, script: Script) -> tuple[tuple[int, int], ...]:
        """Give one attempt of each partition, or none."""
        attempts = list(script.chunks)
        self.random.shuffle(attempts)
        wins = {partition: attempt for partition, attempt in attempts if self.random.random() < 0.9}
        return tuple(sorted(wins.items(), key=lambda _: self.random.random()))

    def _nonsense(self, script: Script) -> LoadWork:
        begin, random = script.begin, self.random
        winners = self._winners(script)
        return random.choice(
            (
                begin,
                Publish(f"{begin.load}?", "no job", NO_EPOCH),
                Publish(begin.load, begin.job, begin.epoch) if not script.is_sealed else begin,
                Commit("no load", begin.job, begin.epoch, winners),
                Seal(begin.load, begin.job, begin.epoch, winners) if script.is_sealed else begin,
                Abort("no load"),
            )
        )

    # Comparing.

    def _compare(self, operation: Any, mine: Answer, theirs: Answer) -> None:
        if isinstance(operation, LoadStep):
            self._compare_step(operation, self.model.step(operation), mine, theirs)
            return
        super()._compare(operation, mine, theirs)
        count, rows = self.model.execute(operation)
        if operation.shape.kind is Kind.READ:
            assert bag(rows) == bag(mine.rows)
            return
        assert count is not None
        ((_, (whole,)),) = mine.written
        assert (count.affected, count.rejected) == (whole.affected, whole.rejected)
        if whole.rejection is not None and "reserved" in whole.rejection.cause:
            self.done["reserved rows told"] += 1

    def _compare_step(self, step: LoadStep, want: Told, mine: Answer, theirs: Answer) -> None:
        name = type(step.work).__name__
        answers = [mine, theirs]
        self._note(step.work, name, want)
        n_told = sum(map(bool, self.moving.arcs_of))
        if want.refused:
            told = [{failed.kind for failed in answer.failed} for answer in answers]
            assert told == [{want.refused}] * 2, (step.work, want, told)
            # An engine without arcs knows of no load.
            assert len(theirs.failed) == n_told
            return
        assert not mine.failed, (mine.failed, step)
        assert not theirs.failed, (theirs.failed, step)
        of_arc: dict[tuple[KeyRange, int], tuple[int, int, Any]] = {}
        for number, counts in theirs.written:
            assert {count.key_range for count in counts} == set(self.moving.arcs_of[number])
            for count in counts:
                told_here = count.affected, count.rejected, smallest_key(count)
                assert of_arc.setdefault((count.key_range, count.step), told_here) == told_here, (
                    "owners differ"
                )
        assert sorted({arc for arc, _ in of_arc}) == self.moving.arcs
        ((_, whole),) = mine.written
        assert {each.step for each in whole} == {number for _, number in of_arc}
        for each in whole:
            parts = [told_here for (_, number), told_here in of_arc.items() if number == each.step]
            self._compare_count(step, want, each, parts)
        told_of = {LoadCount(each.step) for each in whole}
        assert want.affected.keys() | want.rejected.keys() <= told_of

    def _compare_count(
        self, step: LoadStep, want: Told, whole: Count, parts: list[tuple[int, int, Any]]
    ) -> None:
        count = LoadCount(whole.step)
        affected, rejected, keys = zip(*parts, strict=True)
        assert (sum(affected), sum(rejected)) == (whole.affected, whole.rejected), count
        assert min((key for key in keys if key is not None), default=None) == smallest_key(whole)
        refused = want.rejected.get(count, [])
        told = (count, want, whole, step)
        assert (want.affected[count], len(refused)) == (whole.affected, whole.rejected), told
        if refused:
            rank, cause = min(refused)
            found = smallest_key(whole)
            assert found is not None
            assert found[1] == cause, told
            assert found[0] == rank or not rank, told  # The model has no hidden keys.

    def _note(self, work: LoadWork, name: str, want: Told) -> None:
        self.done[f"{name} {want.refused}".strip()] += 1
        if isinstance(work, Commit) and not want.refused:
            self.done.update({f"{count.name} rows": n for count, n in want.affected.items()})
        for count, rows in want.rejected.items():
            self.done[f"{count.name} rejected"] += len(rows)
        if isinstance(work, Begin) and want.refused == "repeat":
            self._scripts.pop(work.load, None)

    def _compare_digests(self) -> None:
        self._n_rounds += 1
        if self._n_rounds % 3:
            return
        super()._compare_digests()
        for table in self.moving.schemas:
            assert self.model.engine.digest(table, FULL_RING) == self.still.digest(table, FULL_RING), table
        moving = self.moving
        for arc, owners in zip(moving.arcs, moving.owners, strict=True):
            told = {moving.engines[owner].digest_loads(arc) for owner in owners}
            assert told == {self.still.digest_loads(arc)}, f"what loads have staged in {arc} differs"
        assert self.still.statistics()["staged_rows"] == self.model.n_staged
        assert self.still.statistics()["loads"] == len(self.model.loads)


def load(seed: int, kind: str, n_rounds: int) -> Loading:
    """Play one seed."""
    world = Loading(seed, kind)
    for _ in range(n_rounds):
        world.round()
    return world
