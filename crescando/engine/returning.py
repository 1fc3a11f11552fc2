"""RETURNING: the images of the rows that writes changed, as they were before and after.

Rules of the file: images are taken at the write's own moment in the order. An
output is a column of one image, and NULL where that image does not exist
(before an insert, after a delete); no output can fail, since a write that has
happened must not fail by what it tells. Rejected rows return nothing. Rows are
kept per arc, with the counts, so that whoever tells a range tells its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crescando.engine.frame import Source
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import Column, Returned
from crescando.engine.values import Value, concatenate, to_column

RETURNED_MAX = 1 << 16
"""Rows that one write returns from one arc. Every owner keeps them until the client has
them; beyond it the write happens all the same, and its client is told that they are lost."""


class ReturnedRows:
    """What the writes of one shape return.

    Parameters
    ----------
    outputs : sequence of Returned
    """

    def __init__(self, outputs: Sequence[Returned]) -> None:
        self._outputs = outputs
        self._cells: list[I64] = []
        self._pieces: list[list[Value]] = []

    def look(self, source: Source, rows: I64, exists: Mask | bool, *, is_before: bool) -> dict[int, Value]:
        """Give the outputs, by place, that one kind of image decides.

        Parameters
        ----------
        source : Source
        rows : ndarray of int64, shape (n,)
        exists : ndarray of bool, shape (n,), or bool
            Whether there is such an image of each row.
        is_before : bool
            Which kind of image the source shows now.
        """
        found = {}
        for place, output in enumerate(self._outputs):
            if output.is_before is is_before:
                value = source.column(output.column.column).take(rows)
                if exists is not True:
                    there = np.broadcast_to(exists, len(rows))
                    value.valid = there if value.valid is None else value.valid & there
                found[place] = value
        return found

    def add(self, cells: I64, before: dict[int, Value], after: dict[int, Value]) -> None:
        """Add rows.

        Parameters
        ----------
        cells : ndarray of int64, shape (n,)
            Which write in which arc each row belongs to.
        before, after : dict of int to Value
            From `look`.
        """
        outputs = before | after
        self._cells.append(cells)
        self._pieces.append([outputs[place] for place in range(len(self._outputs))])

    def by_cell(self) -> dict[int, tuple[Column, ...]]:
        """Give the rows of each write in each arc, in no particular order; not those that are too many."""
        if not any(map(len, self._cells)):
            return {}
        lengths = [len(cells) for cells in self._cells]
        cells = np.concatenate(self._cells)
        whole = [
            concatenate([piece[place] for piece in self._pieces], lengths)
            for place in range(len(self._outputs))
        ]
        order = np.argsort(cells, kind="stable")
        ordered = cells[order]
        starts = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0]
        stops = np.append(starts[1:], len(ordered))
        whole = [value.take(order) for value in whole]
        # Texts are cut down to those of each cell; other columns are sliced.
        plain = {place: to_column(value) for place, value in enumerate(whole) if value.pool is None}
        rows = np.arange(len(order))

        def cell(start: int, stop: int) -> tuple[Column, ...]:
            return tuple(
                plain[place].slice(start, stop) if place in plain else to_column(value.take(rows[start:stop]))
                for place, value in enumerate(whole)
            )

        return {
            int(ordered[start]): cell(start, stop)
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
            if stop - start <= RETURNED_MAX
        }
