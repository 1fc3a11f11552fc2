"""Play the same random batches on the oracle, on engines of every layout, and on SQLite."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Any

import msgspec

from crescando.engine.aggregate import States, finish
from crescando.engine.base import Failed, Rows
from crescando.engine.digest import combine, digest_columns
from crescando.engine.functions import aggregate_type
from crescando.engine.grouping import merge_groups
from crescando.engine.loads import LoadStep
from crescando.engine.parallel import IN_TURN, Workers
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Column, Kind, Operation, Shape
from crescando.engine.transactions import units
from crescando.engine.written import Count, Report
from crescando.errors import ReadFailedError
from crescando.schema import TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, ProcessId
from tests.engine.generator import ROWS_MIN, World
from tests.engine.oracle import Effect, Oracle, canonical, first_rows, inside, rank, shape_reads
from tests.engine.reports import reports
from tests.engine.runs import as_entries
from tests.engine.sqlite_twin import SqliteTwin, check_effect

CLIENTS = (ProcessId("client", "a"), ProcessId("client", "b"))

Statement = tuple[Shape, tuple[Any, ...]]


@dataclass
class Shares:
    """How often the generator does what the tests are for."""

    batches: int = 0
    predicates: int = 0
    matching: int = 0
    hit_thrice: int = 0
    tested_later: int = 0
    key_reused: int = 0
    transactions: int = 0
    rejecting: int = 0
    blocks_min: int = 1 << 30

    def __str__(self) -> str:
        share = {
            "predicates that match a row": self.matching / max(self.predicates, 1),
            "batches with a row hit by 3 or more writes": self.hit_thrice / self.batches,
            "batches that update a column a later predicate tests": self.tested_later / self.batches,
            "batches that reuse a key born or killed": self.key_reused / self.batches,
            "batches with a transaction": self.transactions / self.batches,
            "batches with a rejected row": self.rejecting / self.batches,
        }
        lines = [f"{value:6.1%} {name}" for name, value in share.items()]
        return "\n".join([f"{self.batches} batches, at least {self.blocks_min} blocks a table", *lines])

    def __add__(self, other: Shares) -> Shares:
        counts = {name: getattr(self, name) + getattr(other, name) for name in vars(self)}
        return Shares(**{**counts, "blocks_min": min(self.blocks_min, other.blocks_min)})

    def check(self) -> None:
        """Require the shares without which the tests would prove little."""
        assert self.blocks_min >= 5, self
        assert self.matching >= 0.6 * self.predicates, self
        assert self.hit_thrice >= 0.3 * self.batches, self
        assert self.tested_later >= 0.2 * self.batches, self
        assert self.key_reused >= 0.2 * self.batches, self
        assert self.transactions >= 0.3 * self.batches, self
        assert self.rejecting >= 0.1 * self.batches, self

    def note(self, oracle: Oracle, operations: Sequence[Operation], effects: Sequence[Effect]) -> None:
        """Count one batch."""
        self.batches += 1
        written: set[int] = set()
        moved: set[Any] = set()
        tested = reused = False
        for operation, effect in zip(operations, effects, strict=True):
            shape = operation.shape
            tested = tested or bool(shape_reads(shape) & written)
            done = {tuple(map(canonical, key)) for _, key, cause in effect.events if cause is None}
            if shape.where is not None:
                self.predicates += 1
                self.matching += effect.n_matched > 0
            if shape.kind in (Kind.INSERT, Kind.UPSERT):
                named = {tuple(map(canonical, key)) for _, key, _ in effect.events}
                reused = reused or bool(named & moved)
            if shape.kind is Kind.UPDATE and done:
                written |= {assignment.column for assignment in shape.assignments}
            elif shape.kind in (Kind.INSERT, Kind.UPSERT, Kind.DELETE):
                moved |= done
        self.hit_thrice += oracle.hits_max >= 3
        self.tested_later += tested
        self.key_reused += reused
        self.transactions += any(operation.step > 0 for operation in operations)
        self.rejecting += any(cause is not None for effect in effects for _, _, cause in effect.events)


@dataclass
class Layout:
    """Engines that hold one table between them.

    `owners` gives for each arc the engines that hold it; the first reports. With a
    `cutter`, batches come as runs.
    """

    engines: list[ScanEngine]
    arcs: list[KeyRange]
    owners: list[list[int]]
    alone: bool = False
    name: str = ""
    arcs_of: list[list[KeyRange]] = field(default_factory=list)
    cutter: Random | None = None

    def execute(self, operations: Sequence[Operation | LoadStep]) -> list[Answer]:
        """Execute a batch (or each operation alone) and merge the answers."""
        answers = {(operation.position, step_of(operation)): Answer() for operation in operations}
        loading = {operation.position for operation in operations if isinstance(operation, LoadStep)}
        for number, engine in enumerate(self.engines):
            scope = tuple(
                arc for arc, owners in zip(self.arcs, self.owners, strict=True) if owners[0] == number
            )
            routed = [
                o if isinstance(o, LoadStep) else msgspec.structs.replace(o, scope=scope)
                for o in operations
                if isinstance(o, LoadStep) or o.shape.kind is not Kind.READ or scope
            ]
            for batch in alone(routed) if self.alone else [routed]:
                entries = batch if self.cutter is None else as_entries(batch, self.cutter)
                for results in engine.execute(entries):
                    for rows in results.rows:
                        add_rows(answers, rows)
                    for partials in results.partials:
                        for place, position in enumerate(partials.position.tolist()):
                            answers[position, 0].groups.append(partials.of_read(place))
                    for written in reports(results.written):
                        if written.position in loading:
                            answers[written.position, 0].written.append((number, list(written.counts)))
                            continue
                        for step, counts in steps_of(written):
                            answers[written.position, step].written.append((number, counts))
                    for failed in results.failed:
                        answers[failed.position, 0].failed.append(failed)
        return list(answers.values())


@dataclass
class Answer:
    """What one operation gave, from all engines."""

    n_told: int = 0
    types: set[Any] = field(default_factory=set)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    groups: list[tuple[int, tuple[Column, ...], tuple[States, ...]]] = field(default_factory=list)
    written: list[tuple[int, list[Count]]] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


def step_of(operation: Operation | LoadStep) -> int:
    """Give which write of its transaction an operation is."""
    return 0 if isinstance(operation, LoadStep) else max(operation.step, 0)


def alone(operations: Sequence[Operation | LoadStep]) -> Iterator[Sequence[Operation | LoadStep]]:
    """Give batches of one operation, or of one transaction."""
    for is_load, some in groupby(operations, lambda operation: isinstance(operation, LoadStep)):
        if is_load:
            yield from ([step] for step in some)
        else:
            yield from units([each for each in some if isinstance(each, Operation)])


def steps_of(written: Report) -> list[tuple[int, list[Count]]]:
    """Give what each write of a transaction did; a write alone is one step."""
    steps: dict[int, list[Count]] = {}
    for count in written.counts:
        steps.setdefault(count.step, []).append(count)
    assert list(steps) == list(range(len(steps)))
    return list(steps.items())


def add_rows(answers: dict[tuple[int, int], Answer], rows: Rows) -> None:
    columns = [column.to_list() for column in rows.columns]
    tuples = list(zip(*columns, strict=True))
    offsets = rows.offsets.tolist()
    for place, position in enumerate(rows.position.tolist()):
        answer = answers[position, 0]
        answer.n_told += 1
        answer.types.add(tuple(column.type for column in rows.columns))
        answer.rows.extend(tuples[offsets[place] : offsets[place + 1]])


def bag(rows: Sequence[tuple[Any, ...]]) -> Counter[Any]:
    """Give rows as a multiset in which equal values are equal (so are both zeros, to Python)."""
    columns = [["nan" if x != x else x for x in column] for column in zip(*rows, strict=True)]
    return Counter(zip(*columns, strict=True) if columns else rows)


def one_engine(
    schema: TableSchema, block_rows: int, alone: bool = False, workers: Workers = IN_TURN
) -> Layout:
    layout = split(schema, Random(0), 1, 1, block_rows, workers)
    layout.alone = alone
    layout.name = f"{'alone' if alone else 'batched'}, blocks of {block_rows}, {workers.width} parts"
    return layout


def split(
    schema: TableSchema,
    random: Random,
    n_engines: int,
    n_copies: int,
    block_rows: int,
    workers: Workers = IN_TURN,
) -> Layout:
    """Spread the ring over engines, in more arcs than engines, each arc on `n_copies`."""
    n_arcs = 1 if n_engines == 1 else n_engines + 1
    cuts = sorted({random.randrange(1, RING_MAX) for _ in range(n_arcs - 1)})
    arcs = [KeyRange(a, b - 1) for a, b in zip([0, *cuts], [*cuts, RING_MAX + 1], strict=True)]
    owners = [[(arc + copy) % n_engines for copy in range(n_copies)] for arc in range(len(arcs))]
    engines = [ScanEngine(block_rows, workers) for _ in range(n_engines)]
    arcs_of = [[arc for arc, o in zip(arcs, owners, strict=True) if e in o] for e in range(n_engines)]
    for engine, own in zip(engines, arcs_of, strict=True):
        engine.set_arcs(own)
        engine.create_table(schema)
    name = f"{n_engines} engines, {n_copies} copies, blocks of {block_rows}"
    return Layout(engines, arcs, owners, False, name, arcs_of)


def check_batch(
    schema: TableSchema, layout: Layout, operations: Sequence[Operation], effects: Sequence[Effect]
) -> None:
    """Compare everything that a batch answered with what the oracle says."""
    for operation, effect, answer in zip(operations, effects, layout.execute(operations), strict=True):
        if operation.shape.kind is Kind.READ:
            check_read(operation, effect, answer)
        else:
            check_write(layout, effect, answer, bool(operation.shape.returning))


def check_read(operation: Operation, effect: Effect, answer: Answer) -> None:
    if effect.failure is not None:
        assert answer.failed, "the read should have failed"
        assert all(failed.kind == "read" for failed in answer.failed), answer.failed
        told = min((rank(failed.key), failed.key, failed.text) for failed in answer.failed)
        assert told[0] == rank(effect.failure[0]), (told, effect.failure)
        assert told[2] == effect.failure[1].text, (told, effect.failure)
        return
    assert not answer.failed, answer.failed
    if operation.shape.is_grouped:
        check_groups(operation.shape, effect, answer)
        return
    assert answer.types == {tuple(p.term.type for p in operation.shape.projections)}
    if operation.shape.limit is not None:
        check_first_rows(operation, effect, answer)
        return
    assert bag(answer.rows) == bag(effect.rows)


def check_groups(shape: Shape, effect: Effect, answer: Answer) -> None:
    n_groups, keys, states = merge_groups(answer.groups)
    columns = [*keys, *(finished(each, n_groups) for each in states)]
    kinds = [aggregate_type(a.function, None if a.term is None else a.term.type) for a in shape.aggregates]
    found = [column.type if isinstance(column, Column) else None for column in columns]
    wanted = [*(term.type for term in shape.group_by), *kinds]
    expected = effect.rows if shape.group_by else [tuple(effect.aggregates)]
    lists = []
    for place, column in enumerate(columns):
        if isinstance(column, Column):
            assert found[place] is wanted[place]
            lists.append(column.to_list())
        else:
            assert any(row[place] == "overflow" for row in expected)
    assert len(keys) == len(shape.group_by)
    # A sum that overflows in one group fails the whole read.
    left = [place for place, column in enumerate(columns) if isinstance(column, Column)]
    assert bag(list(zip(*lists, strict=True))) == bag(
        [tuple(row[place] for place in left) for row in expected]
    )
    assert n_groups == len(expected)


def finished(states: States, n_groups: int) -> Column | str:
    try:
        return finish(states, n_groups)
    except ReadFailedError:
        return "overflow"


def check_first_rows(operation: Operation, effect: Effect, answer: Answer) -> None:
    assert operation.shape.limit is not None
    limit = operation.parameters[operation.shape.limit.index]
    assert len(answer.rows) <= limit * answer.n_told
    found = first_rows(operation.shape, answer.rows, limit)
    assert [bag([row]) for row in found] == [bag([row]) for row in effect.rows]


def check_write(layout: Layout, effect: Effect, answer: Answer, has_returned: bool) -> None:
    """Compare the counts of every arc on every engine that holds it."""
    assert not answer.failed, answer.failed
    assert len(answer.written) == sum(map(bool, layout.arcs_of))
    for number, counts in answer.written:
        assert [count.key_range for count in counts] == layout.arcs_of[number]
        for count in counts:
            events = [event for event in effect.events if inside(event[0], count.key_range)]
            rejected = [(rank(key), cause, key) for _, key, cause in events if cause is not None]
            assert count.affected == len(events) - len(rejected), (count, len(events), events[:3])
            assert count.rejected == len(rejected), (count, len(events), events[:3])
            rows = list(zip(*(column.to_list() for column in count.returned), strict=True))
            returned = [row for at, row in effect.returned if inside(at, count.key_range) and has_returned]
            assert bag(rows) == bag(returned), (rows[:3], returned[:3])
            if not rejected:
                assert count.rejection is None
                continue
            _, cause, key = min(rejected, key=lambda item: item[:2])
            assert count.rejection is not None
            assert rank(count.rejection.key) == rank(key), (count, len(events), events[:3])
            assert count.rejection.cause == cause.text, (count, len(events), events[:3])


def check_rows(layout: Layout, oracle: Oracle) -> bytes:
    """Compare every row of a layout of one engine; gives the digest of all."""
    (engine,) = layout.engines
    columns = engine.export(oracle.schema.id, FULL_RING)
    found = bag(list(zip(*(column.to_list() for column in columns), strict=True)))
    expected = bag([tuple(row.values) for row in oracle.rows])
    assert found == expected, (found - expected, expected - found)
    return digest_columns(columns)


def check_copies(layout: Layout, oracle: Oracle, whole: bytes) -> None:
    """Compare all copies of every arc with one another, and all arcs with the whole."""
    digests = []
    for arc, owners in zip(layout.arcs, layout.owners, strict=True):
        copies = {layout.engines[owner].digest(oracle.schema.id, arc) for owner in owners}
        assert len(copies) == 1, f"the copies of {arc} differ"
        digests.append(copies.pop())
    assert combine(digests) == whole


class Play:
    """One seed: a random table, its oracle and its layouts."""

    def __init__(self, seed: int, *, plain: bool, others: Sequence[int] = (1, 2, 3)) -> None:
        self.seed = seed
        self.world = World(Random(seed), plain=plain)
        schema = self.world.schema
        self.cutter = Random(seed + 2)
        random = Random(seed + 1)
        makers = (
            lambda: one_engine(schema, 64),
            lambda: one_engine(schema, random.choice((128, 512, 4096)), alone=True),
            lambda: split(schema, random, 2, random.choice((1, 2)), random.choice((128, 256, 4096))),
            lambda: split(schema, random, 4, random.choice((1, 1, 2)), random.choice((64, 256, 1024))),
        )
        self.layouts = [makers[place]() for place in (0, *others)]
        for layout in self.layouts[1 + seed % 2 :: 2]:
            layout.cutter, layout.name = Random(seed), f"{layout.name}, as runs"
        self.oracle = Oracle(schema)
        self.twin = SqliteTwin(schema) if plain else None
        self.position = 0
        self.operations: list[Operation] = []
        self.effects: list[Effect] = []

    def close(self) -> None:
        """Let go of SQLite's database."""
        if self.twin is not None:
            self.twin.close()

    def next_batch(self, shares: Shares, size: int) -> None:
        """Make a batch, execute it everywhere, and compare everything."""
        self.world.present = sorted({self.world.key_number(row.values[0]) for row in self.oracle.rows})
        if len(self.oracle.rows) < ROWS_MIN:
            self._play([self.world.refill(len(self.oracle.rows))])
            self.world.present = sorted({self.world.key_number(row.values[0]) for row in self.oracle.rows})
        # Of the table that the batch meets: it may leave a small one, which is filled again.
        shares.blocks_min = min(shares.blocks_min, math.ceil(len(self.oracle.rows) / 64))
        self._play(self.world.batch(size))
        shares.note(self.oracle, self.operations, self.effects)

    def _play(self, statements: Sequence[tuple[Shape, tuple[Any, ...]]]) -> None:
        random = self.world.random
        self.operations = []
        for unit in self._transactions(statements):
            for _ in unit:
                self.position += random.choice((1, 1, 3))
                sender = random.choice(CLIENTS)
            at = self.position
            for step, (shape, parameters) in enumerate(unit):
                step = -1 if len(unit) == 1 else step
                self.operations.append(Operation(at, sender, at, shape, parameters, (FULL_RING,), step))
        self.oracle.begin_batch()
        self.effects = [self.oracle.execute(operation) for operation in self.operations]
        whole = b""
        self._play_sqlite()
        for layout in self.layouts:
            try:
                check_batch(self.world.schema, layout, self.operations, self.effects)
                if layout is self.layouts[0]:
                    whole = check_rows(layout, self.oracle)
                else:
                    check_copies(layout, self.oracle, whole)
            except Exception as error:
                error.add_note(f"seed {self.seed}, up to position {self.position}, {layout.name}")
                raise

    def _transactions(self, statements: Sequence[Statement]) -> list[list[Statement]]:
        """Put some writes that follow one another into transactions."""
        units: list[list[Statement]] = []
        for statement in statements:
            both = units and all(shape.kind is not Kind.READ for shape, _ in (units[-1][-1], statement))
            if both and self.cutter.random() < 0.4:
                units[-1].append(statement)
            else:
                units.append([statement])
        return units

    def _play_sqlite(self) -> None:
        if self.twin is None:
            return
        try:
            for operation, effect in zip(self.operations, self.effects, strict=True):
                check_effect(operation, effect, self.twin.execute(operation))
            # To Python whole floats and bools are the integers that SQLite may keep.
            mine = Counter(tuple(row.values) for row in self.oracle.rows)
            theirs = Counter(self.twin.rows())
            assert mine == theirs, (mine - theirs, theirs - mine)
        except Exception as error:
            error.add_note(f"seed {self.seed}, up to position {self.position}, SQLite")
            raise
