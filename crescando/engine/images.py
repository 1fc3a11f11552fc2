"""Row images: the rows that a batch may change, gathered in one small table.

Rules of the file: an image is one *key group*: all rows, stored or born, that a
unique key has during a batch, of which at most one lives at a time. Stored
rows are not touched until the cycle ends and `write_back` puts the images'
last state in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.keys import I64, Mask
from crescando.engine.segment import Block, Segment
from crescando.engine.statement import PHYSICAL
from crescando.engine.table import Table
from crescando.engine.values import Value

U64 = NDArray[np.uint64]


class Origins:
    """Where the images of stored rows come from, as a scan finds them."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Segment, I64]] = []
        self.n_rows = 0

    def add(self, block: Block, rows: I64) -> int:
        """Add rows of a block; gives the number of the first one's image."""
        first = self.n_rows
        if len(rows):
            self.pieces.append((block.segment, rows + block.start))
            self.n_rows += len(rows)
        return first

    def join(self, others: Origins) -> int:
        """Add rows that were found elsewhere; gives the number of the first one's image."""
        first = self.n_rows
        self.pieces.extend(others.pieces)
        self.n_rows += others.n_rows
        return first

    def merged(self) -> list[tuple[slice, Segment, I64]]:
        """Give the rows segment by segment, with the images they have."""
        found: list[tuple[slice, Segment, I64]] = []
        start = 0
        for segment, pieces in groupby(self.pieces, itemgetter(0)):
            rows = np.concatenate([rows for _, rows in pieces])
            found.append((slice(start, start + len(rows)), segment, rows))
            start += len(rows)
        return found


class Images:
    """The images of a batch, as a source of columns (see `engine.frame`).

    Parameters
    ----------
    table : Table
    origins : Origins
        Stored rows; their images come first.
    n_void : int
        Images of keys that no stored row has; nothing lives there yet.

    Attributes
    ----------
    alive, changed, is_key_group : ndarray of bool, shape (n_rows,)
        Whether a row lives in the image; whether its last state differs from
        the stored one; whether an insert or upsert of the batch names its key.
    arc : ndarray of int64
    """

    def __init__(self, table: Table, origins: Origins, n_void: int) -> None:
        self._table = table
        self._pieces = origins.merged()
        n_stored = origins.n_rows
        self.n_stored = n_stored
        self.n_rows = n_stored + n_void
        self._data: dict[int, NDArray[Any]] = {}
        self._valid: dict[int, Mask] = {}
        self._written: set[int] = set()
        self._position: U64 | None = None
        self.alive: Mask = np.zeros(self.n_rows, np.bool_)
        self.alive[:n_stored] = True
        self.changed: Mask = np.zeros(self.n_rows, np.bool_)
        self.is_key_group: Mask = np.zeros(self.n_rows, np.bool_)
        self.is_key_group[n_stored:] = True
        self.arc: I64 = np.zeros(self.n_rows, np.int64)
        for here, segment, _ in self._pieces:
            self.arc[here] = segment.arc

    @property
    def position(self) -> U64:
        """Ring positions; shape (n_rows,)."""
        if self._position is None:
            self._position = np.zeros(self.n_rows, np.uint64)
            for here, segment, rows in self._pieces:
                self._position[here] = segment.position[rows]
        return self._position

    def _gather(self, column_id: int) -> NDArray[Any]:
        """Take a column from the stored rows, which are as they were, when it is first asked for."""
        data = self._data.get(column_id)
        if data is not None:
            return data
        data = np.zeros(self.n_rows, PHYSICAL[self._table.types[column_id]])
        for here, segment, rows in self._pieces:
            data[here] = segment.data[column_id][rows]
            mask = segment.valid.get(column_id)
            if mask is not None:
                self._mask(column_id)[here] = mask[rows]
        self._data[column_id] = data
        return data

    def _mask(self, column_id: int) -> Mask:
        """Give where a column is not NULL, to be changed."""
        mask = self._valid.get(column_id)
        if mask is None:
            mask = self._valid[column_id] = np.ones(self.n_rows, np.bool_)
        return mask

    def column(self, column_id: int) -> Value:
        """Give the present values of a column; shape (n_rows,)."""
        data = self._gather(column_id)
        pool = self._table.pools.get(column_id)
        return Value(self._table.types[column_id], data, self._valid.get(column_id), None, pool)

    def store(self, column_id: int, images: I64, value: Value) -> None:
        """Write values (of the column's own type and pool) into some images."""
        self._gather(column_id)[images] = value.data
        self._written.add(column_id)
        if column_id not in self._valid and (value.valid is None or value.valid.all()):
            return
        self._mask(column_id)[images] = True if value.valid is None else value.valid

    def clear(self, column_id: int, images: I64) -> None:
        """Write NULL into a column of some images."""
        self._gather(column_id)
        self._written.add(column_id)
        self._mask(column_id)[images] = False

    def write_back(self) -> None:
        """Put the last state of every changed image in its place in the table."""
        written = sorted(self._written)
        for here, segment, rows in self._pieces:
            alive = self.alive[here]
            kept = self.changed[here] & alive
            is_all = bool(kept.all())
            for column_id in written if is_all or kept.any() else ():
                data, valid = self._data[column_id][here], self._valid.get(column_id)
                valid = None if valid is None else valid[here]
                if is_all:
                    segment.store(column_id, rows, data, valid)
                else:
                    segment.store(column_id, rows[kept], data[kept], None if valid is None else valid[kept])
            if not alive.all():
                segment.kill(rows[~alive])
        self._place_born()

    def _place_born(self) -> None:
        born = self.n_stored + self.alive[self.n_stored :].nonzero()[0]
        if len(born):
            columns = {column_id: self.column(column_id).take(born) for column_id in self._table.types}
            self._table.take_in(self.arc[born], columns, self.position[born])


class Snapshots:
    """Row versions that reads saw between two writes, as a source of columns."""

    def __init__(self, images: Images, column_ids: Iterable[int]) -> None:
        self._images = images
        self._column_ids = tuple(sorted(column_ids))
        self._pieces: dict[int, list[Value]] = {column_id: [] for column_id in self._column_ids}
        self._lengths: list[int] = []
        self._whole: dict[int, Value] = {}
        self.n_rows = 0

    def take(self, images: I64) -> int:
        """Copy the present state of some images; gives the number of the first copy."""
        return self.add(len(images), lambda column_id: self._images.column(column_id).take(images))

    def add(self, n_rows: int, column: Callable[[int], Value]) -> int:
        """Add row versions, given column by column; gives the number of the first one."""
        first = self.n_rows
        for column_id, pieces in self._pieces.items():
            pieces.append(column(column_id))
        self._lengths.append(n_rows)
        self.n_rows += n_rows
        return first

    def column(self, column_id: int) -> Value:
        """Give one column of all copies; shape (n_rows,)."""
        found = self._whole.get(column_id)
        if found is None or len(found.data) != self.n_rows:
            found = self._whole[column_id] = self._join(self._pieces[column_id])
        return found

    def _join(self, pieces: list[Value]) -> Value:
        data = np.concatenate([piece.data for piece in pieces])
        valid = None
        if any(piece.valid is not None for piece in pieces):
            masks = [np.ones(len(p.data), np.bool_) if p.valid is None else p.valid for p in pieces]
            valid = np.concatenate(masks)
        return Value(pieces[0].type, data, valid, None, pieces[0].pool)
