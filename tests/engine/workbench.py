"""Build terms, shapes and operations briefly, and run them on one engine."""

from __future__ import annotations

from typing import Any

from crescando.engine.aggregate import finish
from crescando.engine.base import Failed, Results
from crescando.engine.functions import result_type
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
from crescando.engine.written import Report
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, ProcessId
from tests.engine.generator import as_column
from tests.engine.reports import reports

CLIENT = ProcessId("client", "c")


def table(*columns: tuple[str, DataType, bool] | tuple[str, DataType], **options: Any) -> TableSchema:
    """Declare a table ``k int64`` plus columns (name, type, nullable=True)."""
    definitions = (ColumnDef("k", DataType.INT64, False), *(ColumnDef(*column) for column in columns))
    return TableSchema("t", definitions, "k", options.pop("primary_key", ("k",)), **options).with_ids(1)


def apply(op: str, *args: Term, to: DataType | None = None) -> Apply:
    """Apply an operator with its result type worked out."""
    return Apply(op, args, result_type(op, [argument.type for argument in args], to))


def par(index: int, kind: DataType, many: bool = False) -> Parameter:
    return Parameter(index, kind, many)


class Bench:
    """One engine with one table, and a position that counts up."""

    def __init__(self, schema: TableSchema, block_rows: int = 64) -> None:
        self.schema = schema
        self.engine = ScanEngine(block_rows)
        self.engine.set_arcs([FULL_RING])
        self.engine.create_table(schema)
        self.position = 0

    def col(self, name: str) -> ColumnRef:
        column = self.schema.column(name)
        return ColumnRef(column.id, column.type)

    def operation(self, shape: Shape, *parameters: Any) -> Operation:
        self.position += 1
        return Operation(self.position, CLIENT, self.position, shape, parameters, (FULL_RING,))

    def read_shape(self, where: Term | None, *names: str) -> Shape:
        outputs = tuple(Projection(name, self.col(name)) for name in names or self.schema.column_names)
        return Shape(Kind.READ, self.schema.id, 1, where, outputs)

    def update_shape(self, where: Term | None, **assigned: Term) -> Shape:
        pairs = tuple(Assignment(self.col(name).column, term) for name, term in assigned.items())
        return Shape(Kind.UPDATE, 1, 1, where, assignments=pairs)

    def insert(
        self, *rows: tuple[Any, ...], kind: Kind = Kind.INSERT, names: tuple[str, ...] = ()
    ) -> Operation:
        columns = [self.schema.column(name) for name in names or self.schema.column_names]
        values = [[row[place] for row in rows] for place in range(len(columns))]
        shape = Shape(kind, 1, 1, columns=tuple(column.id for column in columns))
        parameters = [as_column(c.type, v) for c, v in zip(columns, values, strict=True)]
        return self.operation(shape, *parameters)

    def run(self, *operations: Operation) -> Results:
        (results,) = self.engine.execute(operations)
        return results

    def load(self, *rows: tuple[Any, ...]) -> None:
        (written,) = reports(self.run(self.insert(*rows)).written)
        assert written.counts[0].affected == len(rows), written

    def read(self, where: Term | None, *parameters: Any, names: tuple[str, ...] = ()) -> list[Any]:
        """Give the rows of one read, sorted by their text; single columns as plain values."""
        shape = self.read_shape(where, *names)
        return self.answer(self.operation(shape, *parameters))

    def compute(self, term: Term, *parameters: Any) -> list[Any]:
        """Give a term's value on every row, in the order of the key."""
        outputs = (Projection("k", self.col("k")), Projection("v", term))
        rows = self.answer(self.operation(Shape(Kind.READ, 1, 1, None, outputs), *parameters))
        return [value for _, value in sorted(rows, key=lambda row: row[0])]

    def answer(self, operation: Operation) -> list[Any]:
        results = self.run(operation)
        assert not results.failed, results.failed
        (rows,) = results.rows
        columns = [column.to_list() for column in rows.columns]
        tuples = list(zip(*columns, strict=True))
        return [row[0] for row in tuples] if len(columns) == 1 else tuples

    def failure(self, operation: Operation) -> Failed:
        results = self.run(operation)
        assert not results.rows
        assert not results.partials
        (failed,) = results.failed
        return failed

    def write(self, operation: Operation) -> Report:
        (written,) = reports(self.run(operation).written)
        return written

    def aggregate(self, function: str, term: Term | None = None) -> Any:
        shape = Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate(function, term, "a"),))
        (partials,) = self.run(self.operation(shape)).partials
        return finish(partials.states[0], 1).to_list()[0]
