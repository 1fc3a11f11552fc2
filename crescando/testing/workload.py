"""The operations that simulated clients submit, and what they ought to do.

One small table, six statement shapes, and a model that executes a step at a
time on a dict: enough to notice a lost, doubled, reordered or torn operation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crescando.client.base import ReadOutcome, Request, WriteOutcome
from crescando.client.transaction import together
from crescando.engine.partition import position_of, ring_positions
from crescando.engine.ranges import key_ranges, ranges_of_positions
from crescando.engine.statement import (
    Apply,
    Assignment,
    Column,
    ColumnRef,
    Kind,
    Parameter,
    Projection,
    Shape,
    Term,
    decode_parameters,
    encode_parameters,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import ProcessId

SCHEMA = TableSchema(
    "accounts",
    (
        ColumnDef("k", DataType.INT64, nullable=False),
        ColumnDef("v", DataType.INT64, nullable=False),
        ColumnDef("g", DataType.INT32, nullable=False),
    ),
    partition_key="k",
    primary_key=("k",),
)
KEYS = 24
GROUPS = 4

_K, _V, _G = (ColumnRef(i, c.type) for i, c in enumerate(SCHEMA.columns))


def _equals(column: ColumnRef, index: int) -> Term:
    return Apply("=", (column, Parameter(index, DataType.INT64)), DataType.BOOL)


def _shapes(table: int) -> dict[str, Shape]:
    add = Assignment(1, Apply("+", (_V, Parameter(0, DataType.INT64)), DataType.INT64))
    move = Assignment(2, Parameter(0, DataType.INT32))
    everything = tuple(Projection(n, t) for n, t in (("k", _K), ("v", _V), ("g", _G)))
    return {
        "insert": Shape(Kind.INSERT, table, 1, columns=(0, 1, 2)),
        "upsert": Shape(Kind.UPSERT, table, 1, columns=(0, 1, 2)),
        "add_by_key": Shape(Kind.UPDATE, table, 1, where=_equals(_K, 1), assignments=(add,)),
        "add_by_group": Shape(Kind.UPDATE, table, 1, where=_equals(_G, 1), assignments=(add,)),
        "move_group": Shape(Kind.UPDATE, table, 1, where=_equals(_G, 1), assignments=(move,)),
        "delete_by_key": Shape(Kind.DELETE, table, 1, where=_equals(_K, 0)),
        "read_by_key": Shape(Kind.READ, table, 1, where=_equals(_K, 0), projections=everything),
        "read_by_group": Shape(Kind.READ, table, 1, where=_equals(_G, 0), projections=everything),
        "read_all": Shape(Kind.READ, table, 1, projections=everything),
    }


@dataclass(frozen=True, slots=True)
class Step:
    """What one operation means: a name of the shapes above, its numbers, and the writes that go with it."""

    name: str
    arguments: tuple[int, ...]
    then: tuple[Step, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.name.startswith("read")


@dataclass(slots=True)
class Workload:
    """Draws operations for one table.

    Parameters
    ----------
    schema : TableSchema
        `SCHEMA` with catalog ids.
    """

    schema: TableSchema
    shapes: dict[str, Shape] = field(init=False)
    names: dict[bytes, str] = field(init=False)
    _positions: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    shown: dict[tuple[ProcessId, int], Step] = field(default_factory=dict)
    """What the messages that end loads mean, by sender and number."""

    def __post_init__(self) -> None:
        self.shapes = _shapes(self.schema.id)
        self.names = {shape.encode(): name for name, shape in self.shapes.items()}

    def draw(self, rng: random.Random) -> Request:
        """Draw one operation, or a transaction."""
        name = rng.choice(tuple(self.shapes))
        key, group, amount = rng.randrange(KEYS), rng.randrange(GROUPS), rng.randint(1, 1000)
        request = self._draw(rng, name, key, group, amount)
        if request.shape.kind is Kind.READ or amount % 4:
            return request
        return together([request, self._where("add_by_key", (-amount, (key + KEYS // 2) % KEYS))])

    def _draw(self, rng: random.Random, name: str, key: int, group: int, amount: int) -> Request:
        match name:
            case "insert" | "upsert":
                keys = rng.sample(range(KEYS), rng.choice((1, 1, 1, 3)))
                return self._put(name, keys, [amount + i for i in range(len(keys))], group)
            case "add_by_key":
                return self._where(name, (amount, key))
            case "add_by_group":
                return self._where(name, (amount, group))
            case "move_group":
                return self._where(name, (rng.randrange(GROUPS), group))
            case "delete_by_key" | "read_by_key":
                return self._where(name, (key,))
            case "read_by_group":
                return self._where(name, (group,))
            case _:
                return self._where(name, ())

    def _put(self, name: str, keys: list[int], values: list[int], group: int) -> Request:
        columns = (
            Column(DataType.INT64, np.array(keys, np.int64)),
            Column(DataType.INT64, np.array(values, np.int64)),
            Column(DataType.INT32, np.full(len(keys), group, np.int32)),
        )
        ranges = ranges_of_positions(ring_positions(self.schema, columns[0]))
        return Request(self.shapes[name], columns, ranges)

    def _where(self, name: str, parameters: tuple[int, ...]) -> Request:
        shape = self.shapes[name]
        return Request(shape, parameters, key_ranges(self.schema, shape.where, parameters))

    def ring_position(self, key: int) -> int:
        """Give where a key lies on the ring."""
        # Checkers ask it of the same few keys a hundred thousand times in a run.
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = position_of(self.schema, key)
        return position

    def interpret_request(self, request: Request) -> Step:
        """Give what a drawn operation means."""
        writes = [
            (request.shape, request.parameters),
            *((each.shape, each.parameters) for each in request.then),
        ]
        step = self.interpret_all(
            [(shape.encode(), encode_parameters(shape, parameters)) for shape, parameters in writes]
        )
        assert step is not None
        return step

    def interpret_all(self, encoded: Sequence[tuple[bytes, bytes]]) -> Step | None:
        """Give what an operation or a transaction means, from the shape and parameters of each write."""
        first, *then = [self.interpret(body, parameters) for body, parameters in encoded]
        if first is None:
            return None
        return replace(first, then=tuple(step for step in then if step is not None))

    def interpret(self, body: bytes, parameters: bytes) -> Step | None:
        """Give what an encoded operation means; None if it is none of ours."""
        name = self.names.get(body)
        if name is None:
            return None
        given = decode_parameters(self.shapes[name], parameters)
        if name in ("insert", "upsert"):
            flat = [int(x) for column in given for x in column.values]
            return Step(name, tuple(flat))
        return Step(name, tuple(int(x) for x in given))


Row = tuple[int, int, int]


@dataclass(slots=True)
class Model:
    """The table as a dict, and the effect of one step at a time."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    reserved: dict[int, set[int]] = field(default_factory=dict)
    """Keys that sealed loads are to bring."""

    def matching(self, step: Step) -> list[Row]:
        """Give the rows a read answers, or a predicate selects, ascending."""
        last = step.arguments[-1] if step.arguments else -1
        match step.name:
            case "read_all":
                keys = list(self.rows)
            case "read_by_key" | "add_by_key" | "delete_by_key":
                keys = [last] if last in self.rows else []
            case _:
                keys = [k for k, (_, g) in self.rows.items() if g == last]
        return [(k, *self.rows[k]) for k in sorted(keys)]

    def write(self, step: Step) -> tuple[int, int]:
        """Carry out a write, or a transaction; gives how many rows were affected and rejected."""
        counts = [self._write(each) for each in (step, *step.then)]
        return sum(affected for affected, _ in counts), sum(rejected for _, rejected in counts)

    def _write(self, step: Step) -> tuple[int, int]:
        if step.name in ("insert", "upsert"):
            return self._put(step)
        if step.name.startswith("load_"):
            return self._load(step)
        matching = self.matching(step)
        for key, value, group in matching:
            if step.name == "delete_by_key":
                del self.rows[key]
            elif step.name == "move_group":
                self.rows[key] = (value, step.arguments[0])
            else:
                self.rows[key] = (value + step.arguments[0], group)
        return len(matching), 0

    def _put(self, step: Step) -> tuple[int, int]:
        n = len(step.arguments) // 3
        keys, values, groups = (step.arguments[i * n : (i + 1) * n] for i in range(3))
        affected = 0
        for key, value, group in zip(keys, values, groups, strict=True):
            if step.name == "insert" and key in self.rows:
                continue
            if key not in self.rows and self._is_reserved(key):
                continue
            self.rows[key] = (value, group)
            affected += 1
        return affected, n - affected

    def _is_reserved(self, key: int) -> bool:
        return any(key in keys for keys in self.reserved.values())

    def _load(self, step: Step) -> tuple[int, int]:
        """Carry out the end of a load, row by row; gives how many it touched, and how many it could not."""
        load, *flat = step.arguments
        n = len(flat) // 3
        rows = list(zip(flat[:n], flat[n : 2 * n], flat[2 * n :], strict=True))
        kind = step.name.removeprefix("load_")
        touched = rejected = 0
        if kind == "unseal":
            self.reserved.pop(load, None)
            return 0, 0
        if kind == "seal":
            fresh: set[int] = set()
            for key, _, _ in rows:
                clashes = key in self.rows or key in fresh or self._is_reserved(key)
                rejected += clashes
                fresh |= set() if clashes else {key}
            self.reserved[load] = fresh
            return len(fresh), rejected
        if kind == "overwrite":
            touched = len(self.rows)
            self.rows.clear()
        own = self.reserved.pop(load, set())
        for key, value, group in rows:
            exists = key in self.rows
            if kind == "publish":
                if key in own:
                    own.discard(key)
                    self.rows[key] = (value, group)
                    touched += 1
            elif kind in ("update", "delete"):
                if exists and kind == "delete":
                    del self.rows[key]
                elif exists:
                    self.rows[key] = (value, group)
                touched += 1
            elif not exists and self._is_reserved(key):
                rejected += 1
            else:
                if not (exists and kind == "keep"):
                    self.rows[key] = (value, group)
                touched += 1
        return touched, rejected


def rows_of(outcome: ReadOutcome) -> list[Row]:
    """Give a read's rows, ascending."""
    rows: list[Row] = []
    for piece in outcome.pieces:
        columns = [column.values.tolist() for column in piece.columns]
        rows.extend(zip(*columns, strict=True))
    return sorted(rows)


def counts_of(outcome: WriteOutcome) -> tuple[int, int]:
    """Give a write's affected and rejected rows."""
    return (
        sum(count.affected for count in outcome.counts),
        sum(count.rejected for count in outcome.counts),
    )
