"""Inserts and upserts as requests: large ones split along the ring.

Rules of the file: every operation is atomic by itself. Up to `ROWS_MAX` rows
are one operation, unless that would be too long; more are dealt out along the ring,
equal positions in the order given, so that each operation concerns few storage processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.client.base import REQUEST_BYTES_MAX, Request
from crescando.client.columns import Deal, deal, take
from crescando.client.flight import Catalog
from crescando.client.intake import Intake
from crescando.client.sizes import bytes_of_all, checked_size
from crescando.client.template import ReturnedColumn, bind_returning
from crescando.engine.partition import ring_positions
from crescando.engine.ranges import ranges_of_positions
from crescando.engine.statement import Column, Kind, Shape
from crescando.errors import TypeMismatchError, UnknownTableError
from crescando.schema import ColumnDef, TableSchema

ROWS_MAX = 8_192
"""Rows of one operation: some hundred KiB, so that a bulk load leaves room between its parts."""

PIECE_BYTES = 8 << 20
"""About what an operation brings at most, of a load that is cut."""

PARTS = 40
"""So many operations are cut out of the rows at once, column by column: a column stays in the cache."""

_BUCKET_BITS = 16
"""By so many bits of its ring position a row finds its part."""


def load_requests(
    kind: Kind,
    schema: TableSchema,
    intake: Intake,
    returning: tuple[ReturnedColumn, ...] = (),
    bytes_max: int = REQUEST_BYTES_MAX,
) -> Iterator[Request]:
    """Give the requests that insert or upsert rows; none is longer than `bytes_max`.

    Raises
    ------
    StatementError
        If a row alone is.
    """
    shape, positions = _bound(kind, schema, intake, returning)
    n_rows, n_bytes = intake.n_rows, bytes_of_all(intake.columns)
    if n_rows <= ROWS_MAX and n_bytes <= bytes_max:
        yield Request(shape, intake.columns, ranges_of_positions(positions))
        return
    rows_max = max(1, min(ROWS_MAX, min(PIECE_BYTES, bytes_max) * n_rows // n_bytes))
    part_of = _parts_along_ring(positions, rows_max)
    for first in range(0, int(part_of.max()) + 1, PARTS):
        dealt = Deal.some(part_of, first, PARTS)
        taken = [deal(column, dealt) for column in intake.columns]
        for parameters, rows in zip(zip(*taken, strict=True), dealt.parts(), strict=True):
            yield from _fitting(shape, parameters, positions[rows], bytes_max)


def _bound(
    kind: Kind, schema: TableSchema, intake: Intake, returning: tuple[ReturnedColumn, ...]
) -> tuple[Shape, NDArray[np.uint64]]:
    """Give the shape that brings rows, and their ring positions."""
    shape = Shape(
        kind=kind,
        table=schema.id,
        schema_version=schema.version,
        columns=tuple(definition.id for definition in intake.definitions),
        returning=bind_returning(returning, schema),
    )
    key = intake.columns[[definition.name for definition in intake.definitions].index(schema.partition_key)]
    return shape, ring_positions(schema, key)


def _fitting(
    shape: Shape, columns: tuple[Column, ...], positions: NDArray[np.uint64], bytes_max: int
) -> Iterator[Request]:
    """Give rows as one request, or as several if some are much longer than others."""
    n_rows = len(positions)
    if n_rows == 1 or bytes_of_all(columns) <= bytes_max:
        yield checked_size(Request(shape, columns, ranges_of_positions(positions)), bytes_max)
        return
    rows = np.arange(n_rows)
    for half in (rows[: n_rows // 2], rows[n_rows // 2 :]):
        yield from _fitting(
            shape, tuple(take(column, half) for column in columns), positions[half], bytes_max
        )


def _parts_along_ring(positions: NDArray[np.uint64], rows_max: int) -> NDArray[Any]:
    """Give the number of each row's part: parts follow one another along the ring, none exceeds `rows_max`.

    Rows of one position keep their order: those of a later part come after those of the one before.
    """
    # Parts need not be cut at exactly so many rows, so that nothing need be sorted.
    bucket = (positions >> np.uint64(64 - _BUCKET_BITS)).astype(np.uint16)
    counts = np.bincount(bucket, minlength=1 << _BUCKET_BITS)
    if 2 * int(counts.max()) > rows_max:
        # Most rows lie in a small stretch of the ring.
        part = np.empty(len(positions), np.int64)
        part[np.argsort(positions, kind="stable")] = np.arange(len(positions)) // rows_max
        return part
    ends = np.cumsum(counts)
    part_of_bucket = np.zeros(1 << _BUCKET_BITS, np.int64)
    done, number = 0, 0
    while done < len(positions):
        last = int(np.searchsorted(ends, done + rows_max, side="right"))
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
    shape, positions = _bound(kind, schema, Intake(len(columns[0]), renewed, columns), returning)
    return Request(shape, columns, ranges_of_positions(positions))
