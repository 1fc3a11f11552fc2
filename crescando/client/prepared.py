"""Prepared statements: bound once, submitted thousands of times.

Rules of the file: preparing checks everything that does not depend on values;
`many` submits one operation per set of values, together. Each operation
stands alone: it has its own place in the order, its own handle, and other
sessions' operations may come between.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from crescando.client.base import Explanation, Request
from crescando.client.flight import Again, Catalog, Desk, Flight
from crescando.client.form import TooManyConstants, form_of, without_constants
from crescando.client.handles import ControlHandle, ReadHandle, WriteHandle
from crescando.client.merging import Finish
from crescando.client.slot import Value
from crescando.client.stretches import stretches
from crescando.client.template import Params, Prepared, Template, bind_returning
from crescando.errors import PredicateError, StatementError, UnknownTableError
from crescando.schema import TableSchema

H = TypeVar("H", bound=ReadHandle[Any] | WriteHandle)


class BoundOperation(msgspec.Struct, Generic[H], frozen=True, gc=False, eq=False):
    """One operation with its values, ready for `Session.submit_many`."""

    request: Request
    handle: Callable[[Flight], H]
    """Makes the handle of the operation on its way."""
    statement: PreparedStatement[H]
    params: Params

    def __call__(self, catalog: Catalog) -> Request:
        """Prepare it once more, against a newer catalog."""
        return self.statement.again(self.params, catalog)


class _Binding(msgspec.Struct, gc=False, eq=False):
    """What prepares one operation once more."""

    statement: PreparedStatement[Any]
    params: Params

    def __call__(self, catalog: Catalog) -> Request:
        return self.statement.again(self.params, catalog)


class _Bindings(Sequence[Again]):
    """What prepares each of many operations of one statement once more."""

    __slots__ = ("_params_list", "_statement")

    def __init__(self, statement: PreparedStatement[Any], params_list: Sequence[Params]) -> None:
        self._statement = statement
        self._params_list = params_list

    def __len__(self) -> int:
        return len(self._params_list)

    def __getitem__(self, place: Any) -> Any:
        return _Binding(self._statement, self._params_list[place])


class _Current(msgspec.Struct, Generic[H], frozen=True):
    """A statement prepared for the table as a catalog has it."""

    catalog: Catalog
    prepared: Prepared
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
        catalog = desk.backend.catalog()
        prepared = Prepared(template, desk.schema(table), desk.backend.request_bytes_max)
        self._now = _Current(catalog, prepared, self._maker(prepared.schema))

    def __call__(self, params: Params = ()) -> H:
        """Submit one operation and give its handle."""
        now = self._current()
        return now.handle(self._desk.send_one(now.prepared.request(params), _Binding(self, params)))

    def many(self, params_list: Sequence[Params]) -> list[H]:
        """Submit one operation per set of values, in this order, as one batch.

        More than 2,048 are several batches, one behind the other: what other threads
        submit meanwhile comes between them, and waits for one of them only. A thread that is
        some 16,000 ahead of the store's loop waits for it; an event loop never does.

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
            If the session is closed. Where that happens while many are submitted, those that were
            not have handles that raise it.
        """
        if not params_list:
            return []
        params_list = list(params_list)
        now = self._current()
        requests = now.prepared.requests(params_list)
        flights = self._desk.send(requests, _Bindings(self, params_list))
        handles: list[H] = []
        for some in stretches(len(flights)):
            handles += map(now.handle, flights[some])
        return handles

    def bind(self, params: Params = ()) -> BoundOperation[H]:
        """Give one operation for `Session.submit_many`, which mixes statements in one batch."""
        now = self._current()
        return BoundOperation(now.prepared.request(params), now.handle, self, params)

    def explain(self, params: Params = (), *, timeout_s: float | None = None) -> tuple[Explanation, ...]:
        """Ask every storage process how it would execute one operation, which is not executed.

        Returns
        -------
        tuple of Explanation
            One per process that can be reached; ``str`` of one is meant to be read.
        """
        request = self._current().prepared.request(params)
        self._desk.check_usable()
        future = self._desk.backend.explain(request)
        handle: ControlHandle[tuple[Explanation, ...]] = ControlHandle(
            self._desk, future, lambda told: told, f"an explanation about table {self._table!r}"
        )
        return handle.result(timeout_s)

    def _current(self) -> _Current[H]:
        now = self._now
        catalog = self._desk.backend.catalog()
        if catalog is not now.catalog:
            schema = self._desk.schema(self._table)
            prepared = now.prepared
            if schema is not prepared.schema and schema != prepared.schema:
                prepared = Prepared(self._template, schema, self._desk.backend.request_bytes_max)
            now = self._now = _Current(catalog, prepared, self._maker(prepared.schema))
        return now

    def again(self, params: Params, catalog: Catalog) -> Request:
        """Give the request for one set of values against a newer catalog."""
        if self._table not in catalog:
            raise UnknownTableError(self._table, tuple(catalog))
        bytes_max = self._desk.backend.request_bytes_max
        return Prepared(self._template, catalog[self._table], bytes_max).request(params)

    def _maker(self, schema: TableSchema) -> Callable[[Flight], H]:
        """Give what makes the handle of an operation on its way."""
        maker: Any
        if self._finish is not None:
            maker = partial(ReadHandle, self._desk, self._finish)
        else:
            maker = partial(
                WriteHandle.of_one, self._desk, schema, bind_returning(self._template.returning, schema)
            )
        return maker  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<prepared {self._template.kind.value} on {self._table!r}>"


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
    """Submit operations of any prepared statements, in order; see `PreparedStatement.many`."""
    if not operations:
        return []
    flights = desk.send([operation.request for operation in operations], list(operations))
    return desk.hand_out(
        [operation.handle(flight) for operation, flight in zip(operations, flights, strict=True)]
    )
