"""Tables that come, change and go, full of texts that nobody saw before, on engines that hand ranges on.

A still engine of the other kind, with the whole ring, executes the same: every answer,
count and digest must be its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from crescando.engine.base import Image
from crescando.engine.digest import combine
from crescando.engine.kv import KvEngine
from crescando.engine.loads import LoadStep
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import (
    Assignment,
    Column,
    ColumnRef,
    Kind,
    Operation,
    Projection,
    Shape,
    Term,
)
from crescando.engine.written import Count
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, KeyRange
from tests.engine.differential import CLIENTS, Answer, Layout, bag
from tests.engine.generator import as_column
from tests.engine.moves import Moving, Told, travelled
from tests.engine.oracle import rank
from tests.engine.workbench import apply, par

KEYS = 500
TYPES = (
    DataType.STRING,
    DataType.STRING,
    DataType.BYTES,
    DataType.INT8,
    DataType.INT8,
    DataType.INT64,
    DataType.FLOAT64,
    DataType.BOOL,
    DataType.decimal(9, 2),
)
TABLES_MAX = 3

KINDS = ("scan", "kv", "mixed")
"""Of the engines that move; pieces of a mixed fleet go from one kind to the other."""


def scan() -> Any:
    """Give an engine that scans, in small blocks."""
    return ScanEngine(64)


def fleet(kind: str) -> list[Any]:
    """Give three engines."""
    makers: dict[str, tuple[Callable[[], Any], ...]] = {
        "scan": (scan, scan, scan),
        "kv": (KvEngine, KvEngine, KvEngine),
        "mixed": (scan, KvEngine, scan),
    }
    return [make() for make in makers[kind]]


@dataclass
class Watched:
    """An image that nobody sends, to be looked at some rounds later."""

    image: Image
    told: Told
    schemas: dict[int, TableSchema]
    rounds: int


class Evolving:
    """One seed.

    Parameters
    ----------
    seed : int
    kind : str
        One of `KINDS`; the engine that lies still is of another kind.
    """

    def __init__(self, seed: int, kind: str) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.still = scan() if kind == "kv" else KvEngine()
        self.still.set_arcs([FULL_RING])
        self.whole = Layout([self.still], [FULL_RING], [[0]], arcs_of=[[FULL_RING]])
        self.moving = Moving([], Random(seed + 1), fleet(kind))
        self.watched: list[Watched] = []
        self.counts = {"alter": 0, "drop": 0, "watched": 0}
        self._next_table = 0
        self._next_columns: dict[int, int] = {}
        self._position = 0
        self._create()

    @property
    def schemas(self) -> list[TableSchema]:
        return list(self.moving.schemas.values())

    def round(self) -> None:
        """Change something, move something, execute a batch, and compare."""
        try:
            if self.random.random() < 0.4:
                self._change()
            self._watch()
            operations = self._batch()
            for operation, mine, theirs in zip(
                operations, self.whole.execute(operations), self.moving.execute(operations), strict=True
            ):
                self._compare(operation, mine, theirs)
            self._compare_digests()
        except Exception as error:
            error.add_note(f"seed {self.seed}, up to position {self._position}")
            raise

    # The catalog.
    def _change(self) -> None:
        random = self.random
        step = random.choice(("create", "create", "drop", "drop", "add", "add", "remove", "remove"))
        schemas = self.schemas
        if step == "create" or not schemas:
            if len(schemas) < TABLES_MAX:
                self._create()
            return
        schema = random.choice(schemas)
        if step == "drop":
            if len(schemas) > 1:
                self.moving.drop(schema.id)
                self.still.drop_table(schema.id)
                self.counts["drop"] += 1
            return
        columns = list(schema.columns)
        if step == "add" and len(columns) < 8:
            self._next_columns[schema.id] += 1
            column_id = self._next_columns[schema.id]
            columns.append(ColumnDef(f"c{column_id}", random.choice(TYPES), True, column_id))
        elif step == "remove" and len(columns) > 2:
            place = random.randrange(1, len(columns))
            if columns[place].name in schema.key_columns:
                return
            del columns[place]
        else:
            return
        changed = msgspec.structs.replace(schema, columns=tuple(columns), version=schema.version + 1)
        self.moving.alter(changed)
        self.still.alter_table(changed)
        self.counts["alter"] += 1

    def _create(self) -> None:
        self._next_table += 1
        key = ("k",) if self.random.random() < 0.7 else ()
        columns = [ColumnDef("k", DataType.INT64, False), ColumnDef("s", DataType.STRING)]
        columns += [ColumnDef(f"x{place}", self.random.choice(TYPES)) for place in range(3)]
        schema = TableSchema(f"t{self._next_table}", tuple(columns), "k", key).with_ids(self._next_table)
        self._next_columns[schema.id] = max(column.id for column in schema.columns)
        self.moving.create(schema)
        self.still.create_table(schema)

    # Images.
    def _watch(self) -> None:
        for each in list(self.watched):
            each.rounds -= 1
            if each.rounds <= 0:
                self.watched.remove(each)
                self._look(each)
        number = self.random.randrange(len(self.moving.engines))
        scope = tuple(part for arc in self.moving.arcs_of[number] if (part := self._part(arc)) is not None)
        if scope and self.random.random() < 0.4:
            image, told = self.moving.image(number, scope)
            rounds = self.random.choice((0, 1, 3, 8))
            self.watched.append(Watched(image, told, dict(self.moving.schemas), rounds))

    def _part(self, arc: KeyRange) -> KeyRange | None:
        """Give an arc, a part of it, or nothing."""
        if self.random.random() < 0.3:
            return None
        if self.random.random() < 0.3:
            return arc
        low = self.random.randint(arc.low, arc.high)
        return KeyRange(low, self.random.randint(low, arc.high))

    def _look(self, watched: Watched) -> None:
        places = list(range(watched.image.n_pieces))
        self.random.shuffle(places)
        for place in places:
            piece = travelled(watched.image.piece(place))
            if piece.records is None:
                watched.told.add(piece, watched.schemas[piece.table])
            if self.random.random() < 0.2:
                again = travelled(watched.image.piece(place))
                assert msgspec.msgpack.encode(repr(again)) == msgspec.msgpack.encode(repr(piece))
        watched.told.check()
        watched.image.close()
        self.counts["watched"] += 1

    # Statements.
    def _batch(self) -> Sequence[Operation | LoadStep]:
        return [operation for schema in self.schemas for operation in self._statements(schema)]

    def _statements(self, schema: TableSchema) -> Iterator[Operation]:
        yield self._bring(schema, self.random.randrange(1, 40))
        for _ in range(self.random.randrange(4)):
            make = self.random.choice((self._update, self._update, self._add, self._delete, self._read))
            yield make(schema)

    def _operation(self, shape: Shape, *parameters: Any) -> Operation:
        self._position += 1
        at = self._position
        return Operation(at, self.random.choice(CLIENTS), at, shape, parameters, (FULL_RING,))

    def _value(self, column: ColumnDef) -> Any:
        random, kind = self.random, column.type
        if column.name == "k":
            return random.randrange(KEYS)
        if column.nullable and random.random() < 0.2:
            return None
        if kind.is_textual:
            text = f"{random.getrandbits(200):x}"[: random.choice((1, 8, 8, 8, 50))]
            return text if kind is DataType.STRING else text.encode()
        if kind is DataType.BOOL:
            return random.random() < 0.5
        if kind is DataType.FLOAT64:
            return random.choice((0.0, -0.0, 1.5, float("inf"), random.random()))
        return random.randrange(-100, 100)

    def _bring(self, schema: TableSchema, n_rows: int) -> Operation:
        kind = self.random.choice((Kind.INSERT, Kind.UPSERT)) if schema.primary_key else Kind.INSERT
        columns = [c for c in schema.columns if c.name in schema.key_columns or self.random.random() < 0.9]
        values: list[Column] = [as_column(c.type, [self._value(c) for _ in range(n_rows)]) for c in columns]
        return self._operation(
            Shape(kind, schema.id, schema.version, columns=tuple(column.id for column in columns)), *values
        )

    def _keys(self, schema: TableSchema) -> tuple[Term, int, int]:
        low = self.random.randrange(KEYS)
        key = ColumnRef(schema.columns[0].id, DataType.INT64)
        above = apply(">=", key, par(0, DataType.INT64))
        below = apply("<", key, par(1, DataType.INT64))
        return apply("and", above, below), low, low + self.random.choice((1, 5, 60, 200))

    def _update(self, schema: TableSchema) -> Operation:
        where, low, high = self._keys(schema)
        if len(schema.columns) < 2:
            return self._delete(schema)
        column = self.random.choice(schema.columns[1:])
        if column.name in schema.key_columns:
            return self._delete(schema)
        assignment = Assignment(column.id, par(2, column.type))
        shape = Shape(Kind.UPDATE, schema.id, schema.version, where, assignments=(assignment,))
        return self._operation(shape, low, high, self._value(column))

    def _add(self, schema: TableSchema) -> Operation:
        """Give an update that rows with large numbers refuse, so that the smallest of their keys is told."""
        columns = [column for column in schema.columns if column.type is DataType.INT8]
        if not columns:
            return self._update(schema)
        where, low, high = self._keys(schema)
        column = ColumnRef(columns[0].id, DataType.INT8)
        assignment = Assignment(column.column, apply("+", column, par(2, DataType.INT8)))
        shape = Shape(Kind.UPDATE, schema.id, schema.version, where, assignments=(assignment,))
        return self._operation(shape, low, high, 60)

    def _delete(self, schema: TableSchema) -> Operation:
        where, low, high = self._keys(schema)
        return self._operation(Shape(Kind.DELETE, schema.id, schema.version, where), low, high)

    def _read(self, schema: TableSchema) -> Operation:
        where, low, high = self._keys(schema)
        outputs = tuple(Projection(c.name, ColumnRef(c.id, c.type)) for c in schema.columns)
        return self._operation(Shape(Kind.READ, schema.id, schema.version, where, outputs), low, high)

    # Comparing.
    def _compare(self, operation: Any, mine: Answer, theirs: Answer) -> None:
        assert not mine.failed, mine.failed
        assert not theirs.failed, theirs.failed
        if operation.shape.kind is Kind.READ:
            assert bag(mine.rows) == bag(theirs.rows)
            return
        of_arc: dict[KeyRange, tuple[int, int, Any]] = {}
        for number, counts in theirs.written:
            assert [count.key_range for count in counts] == self.moving.arcs_of[number]
            for count in counts:
                told = count.affected, count.rejected, smallest_key(count)
                assert of_arc.setdefault(count.key_range, told) == told, "owners differ"
        ((_, (whole,)),) = mine.written
        assert sorted(of_arc) == self.moving.arcs
        affected, rejected, keys = zip(*of_arc.values(), strict=True)
        assert (sum(affected), sum(rejected)) == (whole.affected, whole.rejected)
        assert min((key for key in keys if key is not None), default=None) == smallest_key(whole)

    def _compare_digests(self) -> None:
        moving = self.moving
        for table in moving.schemas:
            digests = []
            for arc, owners in zip(moving.arcs, moving.owners, strict=True):
                told = {moving.engines[owner].digest(table, arc) for owner in owners}
                assert len(told) == 1, f"the owners of {arc} differ in table {table}"
                digests.append(told.pop())
            assert combine(digests) == self.still.digest(table, FULL_RING), f"table {table} differs"
        for engine, arcs in zip(moving.engines, moving.arcs_of, strict=True):
            # What lies outside its arcs is gone, not only unseen.
            told = engine.statistics()
            assert told["rows"] + told["staged_rows"] == engine.weigh(tuple(arcs))[0]


def smallest_key(count: Count) -> Any:
    """Give what the key of the rejected row that is told is ordered by, and why it was rejected."""
    rejection = count.rejection
    return None if rejection is None else (rank(rejection.key), rejection.cause)
