"""Inserts and upserts as requests: large ones split along the ring.

Rules of the file: every operation is atomic by itself. Up to `ROWS_MAX` rows
are one operation; more are dealt out along the ring, equal positions in the
order given, so that each operation concerns few storage processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.client.base import Request
from crescando.client.columns import Deal, deal
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

PARTS = 24
"""So many operations are cut out of the rows at once, column by column: a column stays in the cache."""

_BUCKET_BITS = 16
"""By so many bits of its ring position a row finds its part."""


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
    part_of = _parts_along_ring(positions)
    for first in range(0, int(part_of.max()) + 1, PARTS):
        dealt = Deal.some(part_of, first, PARTS)
        taken = [deal(column, dealt) for column in intake.columns]
        for parameters, rows in zip(zip(*taken, strict=True), dealt.parts(), strict=True):
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


def _parts_along_ring(positions: NDArray[np.uint64]) -> NDArray[Any]:
    """Give the number of each row's part: parts follow one another along the ring, none exceeds `ROWS_MAX`.

    Rows of one position keep their order: those of a later part come after those of the one before.
    """
    # Parts need not be cut at exactly so many rows, so that nothing need be sorted.
    bucket = (positions >> np.uint64(64 - _BUCKET_BITS)).astype(np.uint16)
    counts = np.bincount(bucket, minlength=1 << _BUCKET_BITS)
    if 2 * int(counts.max()) > ROWS_MAX:
        # Most rows lie in a small stretch of the ring.
        part = np.empty(len(positions), np.int64)
        part[np.argsort(positions, kind="stable")] = np.arange(len(positions)) // ROWS_MAX
        return part
    ends = np.cumsum(counts)
    part_of_bucket = np.zeros(1 << _BUCKET_BITS, np.int64)
    done, number = 0, 0
    while done < len(positions):
        last = int(np.searchsorted(ends, done + ROWS_MAX, side="right"))
        part_of_bucket[last:] = number + 1
        done, number = int(ends[last - 1]), number + 1
    return part_of_bucket[bucket]


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
