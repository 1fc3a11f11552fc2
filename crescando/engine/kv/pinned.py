"""Tables pinned at one place of the order, and reads of them; see `engine.base.PinnedTables`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crescando.engine.base import ReadFault, Strips
from crescando.engine.constants import as_value
from crescando.engine.kv.pieces import VALUE_BYTES
from crescando.engine.kv.table import KvTable, ReadError
from crescando.engine.pinned import NOBODY, check_pinned_read, strip_of
from crescando.engine.plan import Plan
from crescando.engine.statement import Operation, Shape
from crescando.engine.values import to_column
from crescando.errors import StatementError
from crescando.schema import TableSchema
from crescando.types import KeyRange, Scope

Planner = Callable[[Shape, TableSchema], Plan | Exception]


class KvPin:
    """Some tables as they were; see `engine.base.PinnedTables`.

    Parameters
    ----------
    tables : iterable of KvTable
    planner : callable
    """

    def __init__(self, tables: Iterable[KvTable], planner: Planner) -> None:
        self._tables = {table.schema.id: table.still() for table in tables}
        self._planner = planner
        self.schemas: tuple[TableSchema, ...] = tuple(table.schema for table in self._tables.values())

    @property
    def n_bytes(self) -> int:
        """What its rows take, about, whoever else has them too."""
        return sum(VALUE_BYTES * len(table) for table in self._tables.values())

    def weigh(self, table: int, scope: Scope) -> tuple[int, int]:
        """Give rows and bytes of some ranges; see `engine.base.PinnedTables.weigh`."""
        pinned = self._tables[table]
        n_rows = sum(1 for _ in pinned.rows_in(scope))
        return n_rows, n_rows * VALUE_BYTES * len(pinned.schema.columns)

    def read(
        self, shape: Shape, parameters: tuple[Any, ...], key_range: KeyRange, n_strips: int
    ) -> KvPinnedRead:
        """Begin a read; see `engine.base.PinnedTables.read`."""
        table = self._tables.get(shape.table)
        if table is None:
            raise StatementError(f"table {shape.table} is not pinned")
        made = self._planner(shape, table.schema)
        plan = check_pinned_read(shape, parameters, table.schema, made, key_range, n_strips)
        operation = Operation(0, NOBODY, 0, shape, parameters, (key_range,))
        return KvPinnedRead(table, plan, operation, n_strips)

    def close(self) -> None:
        """Let go of the rows; see `engine.base.PinnedTables.close`."""
        self._tables = {}


class KvPinnedRead:
    """One read of a pinned table; see `engine.base.PinnedRead`.

    Parameters
    ----------
    table : KvTable
        That nobody changes.
    plan : Plan
    operation : Operation
        Its scope is one range.
    n_strips : int
    """

    def __init__(self, table: KvTable, plan: Plan, operation: Operation, n_strips: int) -> None:
        self._table = table
        self._plan = plan
        self._operation = operation
        self._n_strips = n_strips
        self._fault: ReadFault | None = None
        self._strips: list[list[list[Any]]] | None = None

    @property
    def n_bytes(self) -> int:
        """What it keeps in memory; see `engine.base.PinnedRead.n_bytes`."""
        return 0 if self._strips is None else sum(VALUE_BYTES * len(rows) for rows in self._strips)

    def look(self) -> bool:
        """Look at all rows at once; see `engine.base.PinnedRead.look`."""
        if self._strips is None:
            found = self._table.read_with_positions(self._plan, self._operation)
            self._strips = [[] for _ in range(self._n_strips)]
            if isinstance(found, ReadError):
                self._fault = ReadFault(found.key, found.cause.text)
            else:
                (key_range,) = self._operation.scope
                for position, values in found:
                    self._strips[strip_of(position, key_range, self._n_strips)].append(values)
        return True

    def give(self, strip: int, offset: int, bytes_max: int) -> Strips | ReadFault:
        """Give one strip, or some of it; see `engine.base.PinnedRead.give`."""
        if self._fault is not None:
            return self._fault
        assert self._strips is not None
        projections = self._plan.shape.projections
        n_rows_max = max(bytes_max // (VALUE_BYTES * len(projections)), 1)
        rows: Sequence[list[Any]] = []
        if strip < self._n_strips:
            rows = self._strips[strip][offset : offset + n_rows_max]
            behind = offset + n_rows_max
            strip, offset = (strip, behind) if behind < len(self._strips[strip]) else (strip + 1, 0)
        columns = tuple(
            to_column(as_value([values[place] for values in rows], projection.term.type))
            for place, projection in enumerate(projections)
        )
        return Strips(tuple(projection.name for projection in projections), columns, strip, offset)
