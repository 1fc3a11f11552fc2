"""Inserts and upserts as requests: large ones split along the ring.

Rules of the file: every operation is atomic by itself. Up to `ROWS_MAX` rows
are one operation; more are sorted by ring position, equal positions in the
order given, and cut, so that each operation concerns few storage processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from crescando.client.base import Request
from crescando.client.columns import take_parts
from crescando.client.flight import Catalog
from crescando.client.intake import Intake
from crescando.client.template import ReturnedColumn, bind_returning
from crescando.engine.partition import ring_positions
from crescando.engine.ranges import ranges_of_positions
from crescando.engine.statement import Column, Kind, Shape
from crescando.errors import StatementError, TypeMismatchError, UnknownTableError
from crescando.schema import ColumnDef, TableSchema

ROWS_MAX = 8_192
"""Rows of one operation: some hundred KiB, so that a bulk load leaves room between its parts."""

REQUEST_BYTES_MAX = 256 << 20
"""What one operation may bring, be it one insert or a transaction. It is one message of the order and
travels in one frame, of which processes take 512 MiB, with others and what goes before it."""

PARTS = 16
"""So many operations are cut out of the rows at once, column by column: a column stays in the cache."""


def load_requests(
    kind: Kind, schema: TableSchema, intake: Intake, returning: tuple[ReturnedColumn, ...] = ()
) -> Iterator[Request]:
    """Give the requests that insert or upsert rows."""
    shape = Shape(
        kind=kind,
        table=schema.id,
        schema_version=schema.version,
        columns=tuple(definition.id for definition in intake.definitions),
        returning=bind_returning(returning, schema),
    )
    key = intake.columns[[definition.name for definition in intake.definitions].index(schema.partition_key)]
    positions = ring_positions(schema, key)
    if intake.n_rows <= ROWS_MAX:
        yield checked_size(Request(shape, intake.columns, ranges_of_positions(positions)))
        return
    order = _by_position(positions)
    for start in range(0, intake.n_rows, PARTS * ROWS_MAX):
        some = order[start : start + PARTS * ROWS_MAX]
        # As the rows came, so that they are read from memory in one direction.
        parts = [np.sort(some[first : first + ROWS_MAX]) for first in range(0, len(some), ROWS_MAX)]
        taken = [take_parts(column, parts) for column in intake.columns]
        for parameters, rows in zip(zip(*taken, strict=True), parts, strict=True):
            yield checked_size(Request(shape, parameters, ranges_of_positions(positions[rows])))


def checked_size(request: Request) -> Request:
    """Give a request as it is, if it can be sent.

    Raises
    ------
    StatementError
        If it brings too much.
    """
    n_bytes = sum(map(_bytes_of, chain(request.parameters, *(step.parameters for step in request.then))))
    if n_bytes > REQUEST_BYTES_MAX:
        what = "the transaction" if request.then else "the rows of one operation"
        raise StatementError(
            f"{what} would be {n_bytes / 2**20:,.0f} MiB long, and {REQUEST_BYTES_MAX >> 20} MiB are sent at "
            "most; nothing was sent: write fewer rows at once, or store large values in pieces"
        )
    return request


def _bytes_of(parameter: object) -> int:
    if isinstance(parameter, Column):
        return parameter.values.nbytes + parameter.texts.n_bytes
    return len(parameter) if isinstance(parameter, str | bytes) else 0


def _by_position(positions: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Give the rows by position, so that parts of `ROWS_MAX` have rows of one position in their order."""
    order = np.argsort(positions)
    last = order[ROWS_MAX - 1 : -1 : ROWS_MAX]
    if (positions[last] == positions[order[ROWS_MAX::ROWS_MAX]]).any():
        return np.argsort(positions, kind="stable")
    return order


def load_again(
    kind: Kind,
    table: str,
    definitions: tuple[ColumnDef, ...],
    columns: tuple[Column, ...],
    returning: tuple[ReturnedColumn, ...],
    catalog: Catalog,
) -> Request:
    """Prepare one operation against a newer catalog.

    Raises
    ------
    UnknownTableError, UnknownColumnError
        If the table or a column is gone.
    TypeMismatchError
        If a column has another type now.
    """
    schema = catalog.get(table)
    if schema is None:
        raise UnknownTableError(table, tuple(catalog))
    renewed = tuple(schema.column(definition.name) for definition in definitions)
    for old, new in zip(definitions, renewed, strict=True):
        if old.type is not new.type:
            raise TypeMismatchError(f"column {old.name!r} was {old.type.value} and is {new.type.value} now")
    return next(load_requests(kind, schema, Intake(len(columns[0]), renewed, columns), returning))
