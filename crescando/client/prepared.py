"""Prepared statements: bound once, submitted thousands of times.

Rules of the file: preparing checks everything that does not depend on values;
`many` submits one operation per set of values as one batch. Each operation
stands alone: it has its own place in the order, its own handle, and other
sessions' operations may come between.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from crescando.client.base import Explanation, Request
from crescando.client.flight import Again, Catalog, Desk, Flight
from crescando.client.form import TooManyConstants, form_of, without_constants
from crescando.client.handles import ControlHandle, ReadHandle, WriteHandle
from crescando.client.merging import Finish
from crescando.client.slot import Value
from crescando.client.template import Params, Prepared, Template, bind_returning
from crescando.errors import PredicateError, StatementError, UnknownTableError
from crescando.schema import TableSchema

H = TypeVar("H", bound=ReadHandle[Any] | WriteHandle)


@dataclass(frozen=True, slots=True)
class BoundOperation(Generic[H]):
    """One operation with its values, ready for `Session.submit_many`."""

    request: Request
    again: Again
    handle: Callable[[Flight], H]


class PreparedStatement(Generic[H]):
    """A statement whose values come later; made by ``Table.prepare_*``.

    Parameters
    ----------
    desk : Desk
    table : str
    template : Template
    finish : callable or None
        Turns a read's outcome into its result; None for writes.
    """

    def __init__(
        self,
        desk: Desk,
        table: str,
        template: Template,
        finish: Finish[Any] | None,
    ) -> None:
        self._desk = desk
        self._table = table
        self._template = template
        self._finish = finish
        self._prepared = Prepared(template, desk.schema(table))

    def __call__(self, params: Params = ()) -> H:
        """Submit one operation and give its handle."""
        prepared = self._current()
        flight = self._desk.send_one(prepared.request(params), _Again(self, params))
        return self._handle(prepared.schema, flight)

    def many(self, params_list: Sequence[Params]) -> list[H]:
        """Submit one operation per set of values, as one batch in this order.

        Parameters
        ----------
        params_list : sequence
            Tuples for ``?``, mappings for ``:name``.

        Returns
        -------
        list of ReadHandle or WriteHandle, in the same order

        Raises
        ------
        StatementError
            If a set of values does not fit; then nothing was sent.
        ClosedError
            If the session is closed.
        """
        if not params_list:
            return []
        prepared = self._current()
        requests = prepared.requests(params_list)
        flights = self._desk.send(requests, [_Again(self, params) for params in params_list])
        return [self._handle(prepared.schema, flight) for flight in flights]

    def bind(self, params: Params = ()) -> BoundOperation[H]:
        """Give one operation for `Session.submit_many`, which mixes statements in one batch."""
        prepared = self._current()
        request = prepared.request(params)
        return BoundOperation(request, _Again(self, params), partial(self._handle, prepared.schema))

    def explain(self, params: Params = (), *, timeout_s: float | None = None) -> tuple[Explanation, ...]:
        """Ask every storage process how it would execute one operation, which is not executed.

        Returns
        -------
        tuple of Explanation
            One per process that can be reached; ``str`` of one is meant to be read.
        """
        request = self._current().requests([params])[0]
        self._desk.check_usable()
        future = self._desk.backend.explain(request)
        handle: ControlHandle[tuple[Explanation, ...]] = ControlHandle(
            self._desk, future, lambda told: told, f"an explanation about table {self._table!r}"
        )
        return handle.result(timeout_s)

    def _current(self) -> Prepared:
        schema = self._desk.schema(self._table)
        prepared = self._prepared
        if schema is not prepared.schema and schema != prepared.schema:
            prepared = self._prepared = Prepared(self._template, schema)
        return prepared

    def again(self, params: Params, catalog: Catalog) -> Request:
        """Give the request for one set of values against a newer catalog."""
        if self._table not in catalog:
            raise UnknownTableError(self._table, tuple(catalog))
        return Prepared(self._template, catalog[self._table]).request(params)

    def _handle(self, schema: TableSchema, flight: Flight) -> H:
        handle: Any
        if self._finish is not None:
            handle = ReadHandle(self._desk, flight, self._finish)
        else:
            returning = bind_returning(self._template.returning, schema)
            handle = WriteHandle(self._desk, (flight,), schema, returning)
        return handle  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<prepared {self._template.kind.value} on {self._table!r}>"


class _Again(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Prepares an operation once more."""

    statement: PreparedStatement[Any]
    params: Params

    def __call__(self, catalog: Catalog) -> Request:
        return self.statement.again(self.params, catalog)


def submit_once(
    desk: Desk,
    table: str,
    template: Template,
    params: Params,
    finish: Callable[[], Finish[Any]] | None = None,
    finish_key: Hashable = None,
) -> Any:
    """Submit a statement that nobody prepared; its form is remembered.

    Parameters
    ----------
    desk : Desk
    table : str
    template : Template
    params : sequence or mapping
    finish : callable or None
        Makes what turns a read's outcome into its result; None for writes.
    finish_key : hashable
        What `finish` depends on beside the template.
    """
    schema = desk.schema(table)

    home = desk.home

    def prepare(what: Template) -> PreparedStatement[Any]:
        return PreparedStatement(home, table, what, None if finish is None else finish())

    try:
        form, constants = form_of(template)
        key = (schema.id, schema.version, form, finish_key)
        statement = home.statement(key, lambda: prepare(without_constants(template)))
        bound = statement.bind(_with_constants(params, constants))
    except (StatementError, TooManyConstants):
        # Bound as it is written, it works or tells its fault in the user's own terms.
        bound = prepare(template).bind(params)
    return submit_many(desk, (bound,))[0]


def _with_constants(params: Params, constants: dict[int | str, Value]) -> Any:
    given: dict[int | str, Any] = {}
    if isinstance(params, (str, bytes)):
        raise PredicateError("params is a sequence or mapping")
    given.update(params if isinstance(params, Mapping) else enumerate(params))
    given.update(constants)
    return given


def submit_many(desk: Desk, operations: Sequence[BoundOperation[Any]]) -> list[Any]:
    """Submit operations of any prepared statements as one batch."""
    if not operations:
        return []
    flights = desk.send(
        [operation.request for operation in operations], [operation.again for operation in operations]
    )
    return [
        desk.hand_out(operation.handle(flight)) for operation, flight in zip(operations, flights, strict=True)
    ]
