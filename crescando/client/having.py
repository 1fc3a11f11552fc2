"""HAVING and ORDER BY over groups: expressions over the columns of an answer.

Rules of the file: groups are complete only where all scopes have been merged,
so these clauses are evaluated by the client, by the engine's own evaluator:
three-valued logic, errors and order are the same everywhere. Names are those
of the output columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.client.bind import Binder
from crescando.client.columns import take
from crescando.client.expression import Expr, Ordering
from crescando.client.order import ordered
from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame
from crescando.engine.functions import Cause
from crescando.engine.statement import Column, Term
from crescando.engine.terms import evaluate, matches
from crescando.engine.values import Value, from_column, to_column
from crescando.errors import ReadFailedError
from crescando.schema import ColumnDef, TableSchema


class Clauses:
    """What is done with the groups of a read when they are complete.

    Parameters
    ----------
    having : Expr or None
        Keeps the groups on which it is TRUE.
    orderings : sequence of Ordering
    offset : int
    limit : int or None
    n_keys : int
        The first columns, by which ties go.
    """

    def __init__(
        self,
        having: Expr | None = None,
        orderings: Sequence[Ordering] = (),
        offset: int = 0,
        limit: int | None = None,
        n_keys: int = 0,
    ) -> None:
        self._having = having
        self._orderings = tuple(orderings)
        self._offset = offset
        self._limit = limit
        self._n_keys = n_keys

    @property
    def key(self) -> tuple[object, ...]:
        """What tells these clauses from others."""
        return repr(self._having), repr(self._orderings), self._offset, self._limit, self._n_keys

    def check(self, columns: Sequence[ColumnDef]) -> None:
        """Check the clauses against the output columns.

        Raises
        ------
        StatementError
            As `client.bind.Binder.predicate`.
        """
        binder = _binder(columns)
        if self._having is not None:
            binder.predicate(self._having)
        for ordering in self._orderings:
            binder.projection(ordering.term)

    def apply(self, names: Sequence[str], columns: Sequence[Column]) -> tuple[Column, ...]:
        """Give the groups that are wanted, in order.

        Raises
        ------
        ReadFailedError
            If a clause has no value on some group.
        """
        if self._having is not None:
            answer = _Rows(names, columns)
            held, error = matches(answer.value(self._having, is_predicate=True), answer.n_rows)
            _refuse_errors(error)
            columns = [take(column, held.nonzero()[0]) for column in columns]
        keys: list[tuple[Column, bool]] = []
        if self._orderings:
            answer = _Rows(names, columns)
            for ordering in self._orderings:
                value = answer.value(ordering.term, is_predicate=False)
                _refuse_errors(value.error)
                keys.append((to_column(value), ordering.is_descending))
        if keys or self._limit is not None or self._offset:
            keys.extend((column, False) for column in columns[: self._n_keys])
        return ordered(columns, keys, self._limit, self._offset)


def _refuse_errors(error: np.ndarray | None) -> None:
    if error is not None and error.any():
        raise ReadFailedError(f"{Cause(int(error[error > 0].min())).text}, in HAVING or ORDER BY of groups")


def _binder(columns: Sequence[ColumnDef]) -> Binder:
    return Binder(TableSchema("answer", tuple(columns), columns[0].name), {})


class _Rows:
    """The rows of an answer, as a source of columns (see `engine.frame`)."""

    def __init__(self, names: Sequence[str], columns: Sequence[Column]) -> None:
        self.n_rows = len(columns[0])
        self._values = [from_column(column) for column in columns]
        self._definitions = [
            ColumnDef(name, column.type, True, place)
            for place, (name, column) in enumerate(zip(names, columns, strict=True))
        ]

    def column(self, column_id: int) -> Value:
        return self._values[column_id]

    def value(self, expression: Expr, *, is_predicate: bool) -> Value:
        """Evaluate an expression on every row."""
        binder = _binder(self._definitions)
        term: Term = binder.predicate(expression) if is_predicate else binder.projection(expression)
        constants = Constants([[tuple(slot.stored for slot in binder.slots)]])
        with np.errstate(all="ignore"):
            value = evaluate(term, Frame(self, constants, None, 0, Evaluator()))
        return value.spread(self.n_rows)
