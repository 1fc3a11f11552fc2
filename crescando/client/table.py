"""The verbs of a table.

Rules of the file: writes return a handle at once, since a stream of writes is
what the system is made for; reads block, and have a ``_nowait`` form that
returns a handle. Every statement is checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar, get_args

from crescando.client.answer import Answer
from crescando.client.base import Explanation, Isolation
from crescando.client.flight import Desk
from crescando.client.handles import ReadHandle, WriteHandle
from crescando.client.having import Clauses
from crescando.client.intake import take_in
from crescando.client.loading import load_again, load_requests
from crescando.client.merging import Finish, count_answer, groups_answer, rows_answer
from crescando.client.prepared import PreparedStatement, submit_once
from crescando.client.template import (
    AggregateCall,
    Params,
    ReturnedColumn,
    Template,
    bind_returning,
    group_columns,
)
from crescando.client.textual import (
    Columns,
    OrderBy,
    Returning,
    SetList,
    Where,
    aggregate_template,
    delete_template,
    distinct_template,
    having_of,
    limit_of,
    orderings_of,
    read_template,
    returning_of,
    update_template,
    with_sort_keys,
)
from crescando.engine.statement import Kind
from crescando.errors import StatementError
from crescando.schema import TableSchema

PreparedRead = PreparedStatement[ReadHandle[Answer]]
PreparedWrite = PreparedStatement[WriteHandle]

T = TypeVar("T")


class Table:
    """A table of a session; made by ``Session.table``.

    Predicates are expressions (``col("origin") == "JFK"``), text with ``?`` or
    ``:name`` and `params`, or None for every row.

    Parameters
    ----------
    desk : Desk
    name : str
    """

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk = desk
        self.name = name

    @property
    def schema(self) -> TableSchema:
        """The schema, as far as this session has heard."""
        return self._desk.schema(self.name)

    # Writes.
    def insert(self, rows: object, *, nan_is_null: bool = False, returning: Returning = None) -> WriteHandle:
        """Add rows; a row whose key exists is rejected and stays as it is.

        Parameters
        ----------
        rows : object
            One dict, dicts, a dict of columns, a NumPy structured array, a
            DataFrame, an Arrow table or stream; see `crescando.client.intake`.
            Columns not given become NULL.
        nan_is_null : bool
            Whether every NaN is NULL.
        returning : sequence of str, optional
            Columns of the rows written, for ``result().returned``: ``"id"`` or
            ``"new.id"`` as they are after, ``"old.id"`` as they were before (NULL
            where there was no row), ``"*"`` for all. Rejected rows return nothing.

        Returns
        -------
        WriteHandle
            One for all. More than 8,192 rows, or 64 MiB, are several operations, each
            atomic by itself, along the ring.

        Raises
        ------
        UnknownColumnError, TypeMismatchError
            If the rows do not fit the table; then nothing was sent.
        ClosedError
            If the session is closed.
        """
        return self._load(Kind.INSERT, rows, nan_is_null, returning)

    def upsert(self, rows: object, *, nan_is_null: bool = False, returning: Returning = None) -> WriteHandle:
        """Add rows, or replace the given columns of those whose key exists.

        Takes and raises what `insert` does. Of rows with equal keys in one
        call the last wins.
        """
        if not self.schema.primary_key:
            raise StatementError(f"table {self.name!r} has no primary key to upsert by; use insert")
        return self._load(Kind.UPSERT, rows, nan_is_null, returning)

    def update(
        self, where: Where, set: SetList, params: Params = (), *, returning: Returning = None
    ) -> WriteHandle:
        """Change the rows that a predicate matches.

        Parameters
        ----------
        where : Expr, str or None
        set : mapping or str
            Column to constant or expression over the old row; or a SET list as
            text, whose ``?`` come before those of `where`.
        params : sequence or mapping
        returning : sequence of str, optional
            As of `insert`: ``returning=["id", "old.price", "new.price"]``.

        Raises
        ------
        KeyUpdateError
            For a column of the key.
        StatementError
            If the statement is wrong otherwise; then nothing was sent.
        """
        return self._write(update_template(where, set, self._returning(returning)), params)

    def delete(self, where: Where, params: Params = (), *, returning: Returning = None) -> WriteHandle:
        """Remove the rows that a predicate matches; None removes all.

        `returning` is as of `insert`, but that plain names are columns as they were.
        """
        return self._write(delete_template(where, self._returning(returning, is_delete=True)), params)

    # Reads.
    def select(
        self,
        columns: Columns = None,
        where: Where = None,
        params: Params = (),
        *,
        distinct: bool = False,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
        timeout_s: float | None = None,
    ) -> Answer:
        """Read rows, at one position of the order.

        Parameters
        ----------
        columns : sequence of str or Expr, optional
            Names, expressions, or text such as ``"upper(origin) AS o"``; all
            columns if not given.
        where : Expr, str or None
        params : sequence or mapping
            Values for ``?`` (columns first, then `where`) or ``:name``.
        order_by : sequence of str or Expr, optional
            ``"x"``, ``"x desc"``, ``col("x").desc()``; ties go by the primary key.
            With `distinct`, over output columns.
        distinct : bool
            Whether to give each combination of values once (NULL equals NULL here).
        offset : int
            Rows to leave out first; without `order_by` the first by all output columns.
        limit : int, optional
            Most rows to give. Every storage process sends its first ``offset + limit``
            rows only. Without `order_by` they are the first by all output columns.
        isolation : str
            ``"sequential"``, in the session's order; ``"snapshot"``, which is
            not ordered itself: at the position the lead router has reached,
            behind what the session has seen and written; or ``"basic"``, asked of the
            owners directly: each answers at a position of its own, behind what the session
            has seen and written (RB13 §6.7).
        timeout_s : float, optional
            The session's default if not given.

        Raises
        ------
        StatementError
            If the statement is wrong; nothing was sent.
        ReadFailedError
            If the predicate or a column has no value on some row.
        DeadlineError
            If the time is over first.
        """
        handle = self.select_nowait(
            columns,
            where,
            params,
            distinct=distinct,
            order_by=order_by,
            offset=offset,
            limit=limit,
            isolation=isolation,
        )
        return handle.only_result(timeout_s)

    def select_nowait(
        self,
        columns: Columns = None,
        where: Where = None,
        params: Params = (),
        *,
        distinct: bool = False,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
    ) -> ReadHandle[Answer]:
        """Submit a `select` and give its handle."""
        select = self._select(columns, where, distinct, order_by, offset, limit, isolation)
        return self._read(select, params)

    def aggregate(
        self,
        where: Where = None,
        params: Params = (),
        *,
        group_by: Columns = None,
        having: Where = None,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
        timeout_s: float | None = None,
        **aggregates: AggregateCall,
    ) -> Answer:
        """Read aggregates: ``table.aggregate(n=agg.count(), late=agg.max("dep_delay"))``.

        Parameters
        ----------
        where : Expr, str or None
        params : sequence or mapping
            Values for ``?`` (`group_by` first, then `where`) or ``:name``.
        group_by : sequence of str or Expr, optional
            Names, expressions, or text such as ``"extract(year from day) AS y"``;
            one row per combination of their values, NULL being one of them.
        having : Expr or str, optional
            Over the output columns; keeps the groups on which it is true. Takes no parameters.
        order_by : sequence of str or Expr, optional
            Over the output columns; ties go by the grouping terms.
        offset, limit : int, optional
            Groups to leave out first, and most groups to give.
        isolation, timeout_s
            As of `select`.
        **aggregates : AggregateCall
            From `crescando.agg`.

        Returns
        -------
        Answer
            A column per grouping term and per aggregate; one row per group, or
            one row if there is no `group_by`.

        Raises
        ------
        StatementError, ReadFailedError, DeadlineError
            As `select`.
        """
        handle = self.aggregate_nowait(
            where,
            params,
            group_by=group_by,
            having=having,
            order_by=order_by,
            offset=offset,
            limit=limit,
            isolation=isolation,
            **aggregates,
        )
        return handle.only_result(timeout_s)

    def aggregate_nowait(
        self,
        where: Where = None,
        params: Params = (),
        *,
        group_by: Columns = None,
        having: Where = None,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
        **aggregates: AggregateCall,
    ) -> ReadHandle[Answer]:
        """Submit an `aggregate` and give its handle."""
        template = aggregate_template(where, aggregates, group_by)
        return self._read(self._groups(template, having, order_by, offset, limit, isolation), params)

    def count(
        self,
        where: Where = None,
        params: Params = (),
        *,
        isolation: Isolation = "sequential",
        timeout_s: float | None = None,
    ) -> int:
        """Count the rows that a predicate matches."""
        return self.count_nowait(where, params, isolation=isolation).only_result(timeout_s)

    def count_nowait(
        self, where: Where = None, params: Params = (), *, isolation: Isolation = "sequential"
    ) -> ReadHandle[int]:
        """Submit a `count` and give its handle."""
        template = aggregate_template(where, {"count": AggregateCall("count", None)})
        return self._read(_Read(_isolated(template, isolation), lambda: count_answer, "count"), params)

    def explain(
        self,
        where: Where = None,
        params: Params = (),
        *,
        columns: Columns = None,
        timeout_s: float | None = None,
    ) -> tuple[Explanation, ...]:
        """Ask every storage process how it would find the rows of a `select`; nothing is read.

        Other statements are explained by their prepared form: ``prepare_update(...).explain(params)``.
        """
        template = read_template(columns, where)
        statement: PreparedRead = PreparedStatement(self._desk, self.name, template, None)
        return statement.explain(params, timeout_s=timeout_s)

    # Prepared statements.
    def prepare_select(
        self,
        columns: Columns = None,
        where: Where = None,
        *,
        distinct: bool = False,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
    ) -> PreparedRead:
        """Prepare a `select`: call it with values, or give many sets of values to its ``many``."""
        select = self._select(columns, where, distinct, order_by, offset, limit, isolation)
        return PreparedStatement(self._desk, self.name, select.template, select.finish())

    def prepare_aggregate(
        self,
        where: Where = None,
        *,
        group_by: Columns = None,
        having: Where = None,
        order_by: OrderBy = None,
        offset: int = 0,
        limit: int | None = None,
        isolation: Isolation = "sequential",
        **aggregates: AggregateCall,
    ) -> PreparedRead:
        """Prepare an `aggregate`."""
        template = aggregate_template(where, aggregates, group_by)
        read = self._groups(template, having, order_by, offset, limit, isolation)
        return PreparedStatement(self._desk, self.name, read.template, read.finish())

    def prepare_update(self, where: Where, set: SetList, *, returning: Returning = None) -> PreparedWrite:
        """Prepare an `update`."""
        template = update_template(where, set, self._returning(returning))
        return PreparedStatement(self._desk, self.name, template, None)

    def prepare_delete(self, where: Where, *, returning: Returning = None) -> PreparedWrite:
        """Prepare a `delete`."""
        template = delete_template(where, self._returning(returning, is_delete=True))
        return PreparedStatement(self._desk, self.name, template, None)

    def __repr__(self) -> str:
        return f"<table {self.name!r}>"

    def _returning(self, returning: Returning, *, is_delete: bool = False) -> tuple[ReturnedColumn, ...]:
        return returning_of(returning, self.schema, is_delete=is_delete)

    def _load(self, kind: Kind, rows: object, nan_is_null: bool, returning: Returning) -> WriteHandle:
        self._desk.check_usable()
        schema = self.schema
        returned = returning_of(returning, schema, is_delete=False)
        intake = take_in(schema, rows, fills_missing=kind is Kind.INSERT, nan_is_null=nan_is_null)
        bytes_max = self._desk.home.backend.request_bytes_max
        requests = list(load_requests(kind, schema, intake, returned, bytes_max))
        agains = [
            partial(load_again, kind, self.name, intake.definitions, request.parameters, returned)
            for request in requests
        ]
        flights = self._desk.send(requests, agains)
        handle = WriteHandle(self._desk.home, schema, bind_returning(returned, schema), flights)
        return self._desk.hand_out([handle])[0]

    def _write(self, template: Template, params: Params) -> WriteHandle:
        handle: WriteHandle = submit_once(self._desk, self.name, template, params)
        return handle

    def _read(self, read: _Read[T], params: Params) -> ReadHandle[T]:
        handle: ReadHandle[T] = submit_once(
            self._desk, self.name, read.template, params, read.finish, read.key
        )
        return handle

    def _select(
        self,
        columns: Columns,
        where: Where,
        distinct: bool,
        order_by: OrderBy,
        offset: int,
        limit: int | None,
        isolation: Isolation,
    ) -> _Read[Answer]:
        if distinct:
            template = distinct_template(columns, where, self.schema)
            return self._groups(template, None, order_by, offset, limit, isolation)
        wanted = limit_of(limit, offset)
        template = _isolated(read_template(columns, where), isolation)
        n_outputs = len(template.outputs or self.schema.columns)
        order: tuple[tuple[int, bool], ...] = ()
        if order_by is not None:
            template, order = with_sort_keys(template, orderings_of(order_by), self.schema)
        if wanted is not None:
            template = replace(template, order=order, limit=wanted)
        key = (n_outputs, order, offset, limit)
        return _Read(template, partial(rows_answer, *key), key)

    def _groups(
        self,
        template: Template,
        having: Where,
        order_by: OrderBy,
        offset: int,
        limit: int | None,
        isolation: Isolation,
    ) -> _Read[Answer]:
        limit_of(limit, offset)
        n_keys = len(template.group_by)
        clauses = Clauses(having_of(having), orderings_of(order_by), offset, limit, n_keys)
        columns = group_columns(template, self.schema)
        clauses.check(columns)
        names = tuple(column.name for column in columns)
        finish = partial(groups_answer, names, clauses)
        return _Read(_isolated(template, isolation), finish, ("groups", names, clauses.key))


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """A read before its values: what is asked, and what makes the result of the outcome.

    Attributes
    ----------
    template : Template
    finish : callable
    key : hashable
        What `finish` depends on beside the template.
    """

    template: Template
    finish: Callable[[], Finish[T]]
    key: Hashable


def _isolated(template: Template, isolation: Isolation) -> Template:
    if isolation not in get_args(Isolation):
        known = " or ".join(map(repr, get_args(Isolation)))
        raise StatementError(f"isolation is {known}, not {isolation!r}")
    return replace(template, isolation=isolation)
