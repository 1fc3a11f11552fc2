"""Rows of a staged part, cut into chunks along the ring.

Rules of the file: rows are collected until there are enough that each chunk of them can lie in one
arc of the ring, so that every byte goes to those who are to hold it and to nobody else; rows of one
position keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crescando.client.columns import take
from crescando.client.intake import Intake, take_in
from crescando.client.loading import ROWS_MAX
from crescando.engine.partition import ring_positions
from crescando.engine.ranges import ranges_of_positions
from crescando.engine.statement import PHYSICAL, Column, Kind, Shape, encode_parameters
from crescando.errors import StatementError, TypeMismatchError
from crescando.schema import ColumnDef, TableSchema
from crescando.types import Scope

COLLECTED_ROWS = 8 * ROWS_MAX
"""Rows that are collected before chunks are cut."""

COLLECTED_BYTES = 32 << 20

CHUNK_BYTES_MAX = 8 << 20
"""A chunk of more is cut in two, unless it is one row."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that are staged together.

    Attributes
    ----------
    n_rows : int
    ranges : Scope
        Where they lie.
    payload : bytes
    """

    n_rows: int
    ranges: Scope
    payload: bytes


class Chunks:
    """The rows of one part that are not cut yet.

    Parameters
    ----------
    schema : TableSchema
    columns : tuple of str
        In the table's order; each chunk has exactly these.
    write : str
    """

    def __init__(self, schema: TableSchema, columns: tuple[str, ...], write: str) -> None:
        self.schema = schema
        self._definitions = tuple(schema.column(name) for name in columns)
        self._fills = write in ("insert", "overwrite")
        # Of which kind means nothing here: the order tells.
        self._shape = Shape(Kind.INSERT, schema.id, schema.version)
        self._waiting: list[tuple[Column, ...]] = []
        self._n_rows = self._n_bytes = 0

    def add(self, rows: object, borders: tuple[int, ...]) -> Iterator[Chunk]:
        """Take rows; gives the chunks that are to be staged now.

        Raises
        ------
        UnknownColumnError, TypeMismatchError
            If the rows do not fit.
        """
        taken = take_in(self.schema, rows, fills_missing=self._fills)
        self._waiting.append(self._completed(taken))
        self._n_rows += taken.n_rows
        self._n_bytes += sum(column.values.nbytes + column.texts.n_bytes for column in taken.columns)
        if self._n_rows < COLLECTED_ROWS and self._n_bytes < COLLECTED_BYTES:
            return iter(())
        return self.rest(borders)

    def rest(self, borders: tuple[int, ...]) -> Iterator[Chunk]:
        """Give what is left as chunks."""
        waiting, n_rows = self._waiting, self._n_rows
        self.clear()
        if not n_rows:
            return
        columns = tuple(Column.join(some) for some in zip(*waiting, strict=True))
        positions = ring_positions(self.schema, columns[self._key])
        order = np.argsort(positions, kind="stable")
        for part in _cut(order, positions[order], np.array(sorted(borders), np.uint64)):
            yield from self._chunks_of(columns, positions, np.sort(part))

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting, self._n_rows, self._n_bytes = [], 0, 0

    @property
    def _key(self) -> int:
        names = [definition.name for definition in self._definitions]
        return names.index(self.schema.partition_key)

    def _chunks_of(
        self, columns: tuple[Column, ...], positions: NDArray[np.uint64], rows: NDArray[np.int64]
    ) -> Iterator[Chunk]:
        taken = tuple(take(column, rows) for column in columns)
        payload = encode_parameters(self._shape, taken)
        if len(payload) <= CHUNK_BYTES_MAX:
            yield Chunk(len(rows), ranges_of_positions(positions[rows]), payload)
        elif len(rows) == 1:
            raise StatementError(f"a row takes {len(payload):,} bytes; a row may have {CHUNK_BYTES_MAX:,}")
        else:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                yield from self._chunks_of(columns, positions, half)

    def _completed(self, taken: Intake) -> tuple[Column, ...]:
        """Give exactly the load's columns: NULL where an insert leaves one out."""
        given = dict(zip(taken.definitions, taken.columns, strict=True))
        for definition in taken.definitions:
            if definition not in self._definitions:
                names = ", ".join(each.name for each in self._definitions)
                raise TypeMismatchError(
                    f"column {definition.name!r} is none of the load's, which are {names}"
                )
        completed = []
        for definition in self._definitions:
            column = given.get(definition)
            if column is None:
                if not self._fills:
                    raise TypeMismatchError(
                        f"column {definition.name!r} is one of the load's, and the rows do not give it; "
                        "begin the load with columns=[…] if it is to keep its values"
                    )
                column = _nulls(definition, taken.n_rows)
            completed.append(column)
        return tuple(completed)


def _nulls(definition: ColumnDef, n: int) -> Column:
    return Column(definition.type, np.zeros(n, PHYSICAL[definition.type]), np.zeros(n, np.bool_))


def _cut(
    order: NDArray[np.int64], positions: NDArray[np.uint64], borders: NDArray[np.uint64]
) -> Iterator[NDArray[np.int64]]:
    """Cut rows that ascend by position where arcs begin, and where there are too many."""
    cuts = [0, *np.searchsorted(positions, borders).tolist(), len(order)]
    for start, stop in pairwise(cuts):
        for first in range(start, stop, ROWS_MAX):
            yield order[first : min(first + ROWS_MAX, stop)]
