"""The same statements on SQLite, for the part of the grammar that both compute alike.

Columns have no declared type, so that SQLite converts nothing; decimals are whole
numbers of their units, which must not meet numbers of another scale; constraints are
CHECKs and keys, and ``OR IGNORE`` skips a row that breaks one, as a rejected
row keeps its values.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

import numpy as np

from crescando.engine.statement import PHYSICAL, Apply, ColumnRef, Kind, Operation, Parameter, Term
from crescando.schema import ColumnDef, DataType, TableSchema
from tests.engine.oracle import Effect, rows_of

INFIX = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*"}
SUFFIX = {"is_null": "IS NULL", "is_unknown": "IS NULL", "is_true": "IS TRUE", "is_false": "IS FALSE"}


class SqliteTwin:
    """One table in SQLite, executing one operation at a time."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.names = {column.id: column.name for column in schema.columns}
        self.database = sqlite3.connect(":memory:")
        parts = [self._declare(column) for column in schema.columns]
        if schema.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(schema.primary_key)})")
        self.database.execute(f"CREATE TABLE t ({', '.join(parts)})")

    def _declare(self, column: ColumnDef) -> str:
        parts = [column.name]
        if not column.nullable:
            parts.append("NOT NULL")
        if column.type in (DataType.INT8, DataType.INT16, DataType.INT32):
            bounds = np.iinfo(PHYSICAL[column.type])
            parts.append(f"CHECK ({column.name} BETWEEN {bounds.min} AND {bounds.max})")
        elif column.type.is_decimal:
            parts.append(f"CHECK (abs({column.name}) < {10**column.type.precision})")
        return " ".join(parts)

    def close(self) -> None:
        self.database.close()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.database.execute("SELECT * FROM t").fetchall()

    def execute(self, operation: Operation) -> Any:
        """Execute one operation: rows of a read, or the number of rows written."""
        shape = operation.shape
        if shape.kind in (Kind.INSERT, Kind.UPSERT):
            return self._bring(operation)
        values: list[Any] = []
        terms = [a.term for a in shape.assignments] or [p.term for p in shape.projections]
        terms.extend(shape.group_by)
        outputs = [self._write(term, operation.parameters, values) for term in terms]
        for aggregate in shape.aggregates:
            term = (
                "*" if aggregate.term is None else self._write(aggregate.term, operation.parameters, values)
            )
            text = f"({term})" if aggregate.function != "count_distinct" else f"(DISTINCT {term})"
            outputs.append(aggregate.function.removesuffix("_distinct") + text)
        where = ""
        if shape.where is not None:
            where = " WHERE " + self._write(shape.where, operation.parameters, values)
        if shape.kind is Kind.READ:
            text = f"SELECT {', '.join(outputs)} FROM t{where}"
            if shape.group_by:
                text += f" GROUP BY {', '.join(str(place + 1) for place in range(len(shape.group_by)))}"
            if shape.limit is not None:
                sorts = [f"{sort.output + 1}{' DESC' * sort.is_descending}" for sort in shape.order]
                sorts += [str(place + 1) for place in range(len(outputs))]
                text += f" ORDER BY {', '.join(sorts)} LIMIT ?"
                values.append(operation.parameters[shape.limit.index])
            return self.database.execute(text, values).fetchall()
        if shape.kind is Kind.DELETE:
            return self.database.execute(f"DELETE FROM t{where}", values).rowcount
        targets = [self.names[assignment.column] for assignment in shape.assignments]
        pairs = ", ".join(f"{name} = {text}" for name, text in zip(targets, outputs, strict=True))
        return self.database.execute(f"UPDATE OR IGNORE t SET {pairs}{where}", values).rowcount

    def _bring(self, operation: Operation) -> int:
        names = [self.names[column_id] for column_id in operation.shape.columns]
        marks = ", ".join("?" * len(names))
        text = f"INSERT OR IGNORE INTO t ({', '.join(names)}) VALUES ({marks})"
        if operation.shape.kind is Kind.UPSERT:
            free = [name for name in names if name not in self.schema.primary_key]
            changes = ", ".join(f"{name} = excluded.{name}" for name in free)
            action = f"DO UPDATE SET {changes}" if free else "DO UPDATE SET k = k"
            text += f" ON CONFLICT ({', '.join(self.schema.primary_key)}) {action}"
        done = 0
        for row in rows_of(operation):
            done += self.database.execute(text, list(row.values())).rowcount
        return done

    def _write(self, term: Term, parameters: tuple[Any, ...], values: list[Any]) -> str:
        """Write a term as SQL, in brackets throughout; appends the constants it takes."""
        if isinstance(term, ColumnRef):
            return self.names[term.column]
        if isinstance(term, Parameter):
            values.append(parameters[term.index])
            return "?"
        if term.op == "in":
            left = self._write(term.args[0], parameters, values)
            assert isinstance(term.args[1], Parameter)
            items = parameters[term.args[1].index]
            values.extend(items)
            return f"({left} IN ({', '.join('?' * len(items))}))"
        return self._apply(term, [self._write(argument, parameters, values) for argument in term.args])

    def _apply(self, term: Apply, args: list[str]) -> str:
        op = term.op
        if op in INFIX:
            return f"({args[0]} {op} {args[1]})"
        if op in ("and", "or"):
            return "(" + f" {op.upper()} ".join(args) + ")"
        if op in SUFFIX:
            return f"({args[0]} {SUFFIX[op]})"
        if op == "case":
            pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
            branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
            return f"(CASE {branches} ELSE {args[-1]} END)"
        return {
            "not": lambda: f"(NOT {args[0]})",
            "neg": lambda: f"(-{args[0]})",
            "abs": lambda: f"abs({args[0]})",
            "coalesce": lambda: f"coalesce({', '.join(args)})",
            "nullif": lambda: f"nullif({args[0]}, {args[1]})",
            "date_add": lambda: f"({args[0]} + {args[1]})",
            "date_diff": lambda: f"({args[0]} - {args[1]})",
        }[op]()


def check_effect(operation: Operation, effect: Effect, found: Any) -> None:
    """Compare what SQLite did with what the oracle says."""
    shape = operation.shape
    if shape.kind is not Kind.READ:
        assert found == sum(cause is None for _, _, cause in effect.events), (operation, found)
        return
    assert effect.failure is None, effect.failure
    if shape.group_by:
        key = lambda row: repr(plain(row[: len(shape.group_by)]))  # noqa: E731
        assert len(effect.rows) == len(found)
        for mine_row, theirs_row in zip(sorted(effect.rows, key=key), sorted(found, key=key), strict=True):
            assert all(map(alike, plain(mine_row), plain(theirs_row))), (mine_row, theirs_row)
        return
    if shape.aggregates:
        for mine, theirs in zip(effect.aggregates, found[0], strict=True):
            assert alike(mine, theirs), (mine, theirs)
        return
    assert sorted(map(repr, map(plain, effect.rows))) == sorted(map(repr, map(plain, found)))


def alike(mine: Any, theirs: Any) -> bool:
    """Say whether two values are equal, but for how SQLite rounds sums."""
    close = isinstance(mine, float) and math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return bool(mine == theirs or close)


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a row in which whole floats and bools are integers, as SQLite may keep them."""
    return tuple(int(v) if isinstance(v, (bool, float)) and v == int(v) else v for v in row)
