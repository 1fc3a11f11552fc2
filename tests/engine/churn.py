"""A small table under endless churn: new rows, new texts and new shapes all the time.

``make soak-engine`` runs it for ten minutes; a test of every day for seconds. Rows
come and go at one rate, so that memory must stay where it is after the warm-up.
Writes name their rows by key, so that a dictionary is model enough of the rows; at
the end the oracle, loaded with them, answers the same reads.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from crescando.engine.scan import ScanEngine
from crescando.engine.statement import (
    Aggregate,
    Apply,
    Assignment,
    ColumnRef,
    Kind,
    Operation,
    Parameter,
    Projection,
    Shape,
    Term,
)
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.differential import Layout, bag, check_batch
from tests.engine.generator import as_column
from tests.engine.oracle import Oracle
from tests.engine.workbench import CLIENT, table

ROWS = 5_000
CHURN = 50
"""Rows inserted, and rows deleted, in each batch."""

READS = 20
BLOCK_ROWS = 1_024

WARM_UP = 0.3
"""Share of the time before memory is measured."""

SLOPE_MAX = 1.0
"""MiB a minute."""

Row = tuple[int, int, float | None, str, str | None]


@dataclass
class Churn:
    """One engine, the model of its rows, and what was measured."""

    random: Random
    model: dict[int, Row] = field(default_factory=dict)
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    """Seconds since the begin, MiB of the process, and MiB that the engine says its tables take."""
    batches: int = 0
    operations: int = 0

    def __post_init__(self) -> None:
        self.schema = table(
            ("i", DataType.INT64, False),
            ("f", DataType.FLOAT64),
            ("s", DataType.STRING, False),
            ("t", DataType.STRING),
        )
        self.engine = ScanEngine(BLOCK_ROWS)
        self.engine.set_arcs([FULL_RING])
        self.engine.create_table(self.schema)
        self._columns = [ColumnRef(column.id, column.type) for column in self.schema.columns]
        self._position = 0
        self._keys: deque[int] = deque()
        self._next_key = 0
        self._n_shapes = 0
        while len(self.model) < ROWS:
            self.engine.execute([self._insert(1_000)])

    def run(self, duration_s: float) -> None:
        """Churn for a while."""
        begun_s = time.monotonic()
        next_s = 0.0
        while (now_s := time.monotonic() - begun_s) < duration_s:
            self.batch()
            if now_s >= next_s:
                gc.collect()
                tables = self.engine.statistics()["bytes"] / (1 << 20)
                self.samples.append((now_s, resident_mib(), tables))
                next_s += duration_s / 60

    def batch(self) -> None:
        """Execute one batch of everything."""
        operations = [self._insert(CHURN), *(self._read() for _ in range(READS // 2))]
        operations += [self._update() for _ in range(10)]
        operations += [self._delete(), *(self._read() for _ in range(READS // 2))]
        (results,) = self.engine.execute(operations)
        assert not any(failed.kind != "read" for failed in results.failed), results.failed
        self.batches += 1
        self.operations += len(operations)

    def slope(self) -> float:
        """Give how memory grows after the warm-up, in MiB a minute (least squares)."""
        end_s = self.samples[-1][0]
        late = [(at_s / 60, mib) for at_s, mib, _ in self.samples if at_s >= WARM_UP * end_s]
        mean_x = sum(x for x, _ in late) / len(late)
        mean_y = sum(y for _, y in late) / len(late)
        spread = sum((x - mean_x) ** 2 for x, _ in late)
        return sum((x - mean_x) * (y - mean_y) for x, y in late) / spread

    def check(self) -> None:
        """Compare all rows with the model, and reads with the oracle's."""
        columns = self.engine.export(self.schema.id, FULL_RING)
        found = list(zip(*(column.to_list() for column in columns), strict=True))
        assert bag(found) == bag(list(self.model.values()))
        oracle = Oracle(self.schema)
        rows = list(self.model.values())
        oracle.execute(self._bringing(rows))
        reads = [self._read() for _ in range(READS)]
        layout = Layout([self.engine], [FULL_RING], [[0]], arcs_of=[[FULL_RING]])
        check_batch(self.schema, layout, reads, [oracle.execute(read) for read in reads])

    # Operations.
    def _operation(self, shape: Shape, *parameters: Any) -> Operation:
        self._position += 1
        return Operation(self._position, CLIENT, self._position, shape, parameters, (FULL_RING,))

    def _text(self) -> str:
        """Give a text that was never seen before, of any length up to 60."""
        return f"{self.random.getrandbits(240):x}"[: self.random.randrange(4, 60)]

    def _insert(self, n_rows: int) -> Operation:
        random = self.random
        rows: list[Row] = []
        for _ in range(n_rows):
            real = None if random.random() < 0.1 else random.randrange(1_000) / 4
            rare = None if random.random() < 0.5 else self._text()
            rows.append((self._next_key, random.randrange(1_000), real, self._text(), rare))
            self._keys.append(self._next_key)
            self._next_key += 1
        self.model.update((row[0], row) for row in rows)
        return self._bringing(rows)

    def _bringing(self, rows: list[Row]) -> Operation:
        shape = Shape(
            Kind.INSERT, self.schema.id, 1, columns=tuple(column.id for column in self.schema.columns)
        )
        columns = zip(self.schema.columns, zip(*rows, strict=True), strict=True)
        return self._operation(shape, *(as_column(column.type, list(values)) for column, values in columns))

    def _delete(self) -> Operation:
        keys = tuple(self._keys.popleft() for _ in range(CHURN))
        for key in keys:
            del self.model[key]
        where = Apply("in", (self._columns[0], Parameter(0, DataType.INT64, many=True)), DataType.BOOL)
        return self._operation(Shape(Kind.DELETE, self.schema.id, 1, where), keys)

    def _update(self) -> Operation:
        key, text = self.random.choice(self._keys), self._text()
        row = self.model[key]
        self.model[key] = (*row[:3], text, row[4])
        where = Apply("=", (self._columns[0], Parameter(0, DataType.INT64)), DataType.BOOL)
        assignments = (Assignment(self._columns[3].column, Parameter(1, DataType.STRING)),)
        return self._operation(
            Shape(Kind.UPDATE, self.schema.id, 1, where, assignments=assignments), key, text
        )

    def _read(self) -> Operation:
        """Give a read of a shape that was never seen before."""
        self._n_shapes += 1
        parameters: list[Any] = []
        where: Term = Apply("and", (self._test(parameters), self._any(parameters)), DataType.BOOL)
        if self.random.random() < 0.3:
            counted = (Aggregate("count", None, f"n{self._n_shapes}"),)
            return self._operation(
                Shape(Kind.READ, self.schema.id, 1, where, aggregates=counted), *parameters
            )
        outputs = (Projection(f"k{self._n_shapes}", self._columns[0]), Projection("s", self._columns[3]))
        return self._operation(Shape(Kind.READ, self.schema.id, 1, where, outputs), *parameters)

    def _any(self, parameters: list[Any]) -> Term:
        tests = tuple(self._test(parameters) for _ in range(self.random.randrange(2, 5)))
        return Apply("or", tests, DataType.BOOL)

    def _test(self, parameters: list[Any]) -> Term:
        random = self.random
        column = random.choice(self._columns)
        if column.type is DataType.STRING:
            value: Any = random.choice((self._text(), self.model[random.choice(self._keys)][3]))
        elif column.type is DataType.FLOAT64:
            value = random.randrange(1_000) / 4
        else:
            value = random.choice(self._keys) if column is self._columns[0] else random.randrange(1_000)
        parameters.append(value)
        op = random.choice(("=", "<", ">="))
        return Apply(op, (column, Parameter(len(parameters) - 1, column.type)), DataType.BOOL)


def resident_mib() -> float:
    """Give what the process has in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / (1 << 20)


def main() -> int:
    """Churn, and exit 1 if memory grows; a wrong answer raises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    churn = Churn(Random(options.seed))
    churn.run(options.seconds)
    churn.check()
    for at_s, mib, tables in churn.samples[:: max(1, len(churn.samples) // 20)]:
        print(f"{at_s:6.0f} s {mib:8.1f} MiB, tables {tables:.1f} MiB")
    print(f"seed {options.seed}: {churn.batches} batches, {churn.operations} operations, answers equal")
    print(f"memory grows by {churn.slope():.2f} MiB a minute, of {SLOPE_MAX} at most")
    return int(churn.slope() > SLOPE_MAX)


if __name__ == "__main__":
    sys.exit(main())
