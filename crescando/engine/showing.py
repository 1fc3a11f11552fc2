"""Hidden rows become visible, all at once.

Rules of the file: the outcome is that of executing the rows one by one, in the order of partitions,
chunks and rows, and is worked out key by key for all keys together: the rows of a key that
decide it are *chosen*, the others only counted. Segments of new rows are hung over to the
table as they are; nothing here is done row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from crescando.engine import holding
from crescando.engine.functions import Cause
from crescando.engine.holding import Holding
from crescando.engine.incoming import KeyIndex, key_words
from crescando.engine.keys import I64, Mask
from crescando.engine.loads import (
    Begin,
    LoadCount,
    LoadRule,
    LoadStep,
    LoadWrite,
)
from crescando.engine.records import Rejected, part_of, tell
from crescando.engine.rejection import Failures
from crescando.engine.segment import Segment
from crescando.engine.table import STAGED_PART, STAGED_ROW, Hidden, Table
from crescando.engine.values import Errors, Value, concatenate
from crescando.engine.written import Rejection, Written
from crescando.types import KeyRange

BLOCK_ROWS = 1 << 18
"""Visible rows are looked at in so many at a time."""

_AGAIN = {
    LoadWrite.INSERT: LoadCount.REPLACED,
    LoadWrite.UPSERT: LoadCount.UPDATED,
    LoadWrite.OVERWRITE: LoadCount.REPLACED,
}
"""What a row does whose key is there, if it is not kept."""


class Shares:
    """What one step of a load did, arc by arc.

    Parameters
    ----------
    arcs : tuple of KeyRange
    """

    def __init__(self, arcs: tuple[KeyRange, ...]) -> None:
        self._arcs = arcs
        self._affected = np.zeros((len(LoadCount), len(arcs)), np.int64)
        self._failures = Failures()

    def add(self, count: LoadCount, arcs: I64) -> None:
        """Count rows by the arcs they lie in."""
        self._affected[count] += np.bincount(arcs, minlength=len(self._arcs))

    def add_segments(self, count: LoadCount, rows: Holding) -> None:
        """Count all living rows."""
        for segment in rows.all_segments():
            self._affected[count, segment.arc] += segment.n_rows - segment.n_dead

    def reject(self, count: LoadCount, arcs: I64, keys: Sequence[Value], causes: Errors) -> None:
        """Count rows as rejected."""
        if len(arcs):
            self._failures.add(int(count) * len(self._arcs) + arcs, keys, causes)

    def written(self, step: LoadStep) -> Written:
        """Give all that is told of the step."""
        rejected = {
            cell: Rejected(self._failures.counts[cell], Rejection(failure.key, failure.cause.text))
            for cell, failure in self._failures.smallest.items()
        }
        return tell(step, self._arcs, self._affected, rejected)


class _Staged:
    """The living hidden rows of a load, end to end.

    Attributes
    ----------
    arc : ndarray of int64, shape (n_rows,)
    """

    def __init__(self, hidden: Hidden) -> None:
        self._types, self._pools = hidden.types, hidden.pools
        self._segments = [segment for segment in hidden.all_segments() if segment.n_rows > segment.n_dead]
        self._rows = [segment.live_rows().nonzero()[0] for segment in self._segments]
        self._starts = np.cumsum([0, *map(len, self._rows)])
        self.n_rows = int(self._starts[-1])
        arcs = np.array([segment.arc for segment in self._segments], np.int64)
        self.arc: I64 = np.repeat(arcs, np.diff(self._starts))

    def column(self, column_id: int) -> Value:
        """Give a column of all rows."""
        values = []
        for segment, rows in zip(self._segments, self._rows, strict=True):
            mask = segment.valid.get(column_id)
            values.append(
                Value(
                    self._types[column_id],
                    segment.data[column_id][rows],
                    None if mask is None else mask[rows],
                    None,
                    self._pools.get(column_id),
                )
            )
        return concatenate(values, [len(rows) for rows in self._rows])

    def keep(self, kept: Mask) -> None:
        """Let some rows go; what else is known of them stays as it was."""
        for segment, rows, start in zip(self._segments, self._rows, self._starts.tolist(), strict=False):
            gone = rows[~kept[start : start + len(rows)]]
            if len(gone):
                segment.kill(gone)


class _Keys:
    """The distinct keys of hidden rows, and for each the row that is chosen.

    Parameters
    ----------
    table : Table
    staged : _Staged
    is_first : bool
        Whether the first row of a key is chosen; otherwise the last.

    Attributes
    ----------
    of_row : ndarray of int64, shape (n_rows,)
        The key of each row.
    chosen : ndarray of int64, shape (n_keys,)
        Rows.
    """

    def __init__(self, table: Table, staged: _Staged, *, is_first: bool) -> None:
        self._table = table
        self.values = [staged.column(key_id) for key_id in table.key_ids]
        words = [key_words(value) for value in self.values]
        n_rows = staged.n_rows
        self.of_row = self.chosen = np.arange(n_rows)
        if not _has_equal(words):
            self.has_duplicates = False
            return
        self.has_duplicates = True
        place = [staged.column(column_id).data for column_id in (STAGED_ROW, STAGED_PART)]
        order = np.lexsort((*place, *words))
        fresh = np.ones(n_rows, np.bool_)
        fresh[1:] = False
        for word in words:
            ordered = word[order]
            fresh[1:] |= ordered[1:] != ordered[:-1]
        self.of_row = np.empty(n_rows, np.int64)
        self.of_row[order] = np.cumsum(fresh) - 1
        self.chosen = order[fresh if is_first else np.append(fresh[1:], True)]

    @property
    def n_keys(self) -> int:
        """How many there are."""
        return len(self.chosen)

    @property
    def is_chosen(self) -> Mask:
        """Which rows are; shape (n_rows,)."""
        chosen = np.zeros(len(self.of_row), np.bool_)
        chosen[self.chosen] = True
        return chosen

    def index(self) -> KeyIndex:
        """Index them."""
        keys = self.values
        if self.has_duplicates:
            keys = [value.take(self.chosen) for value in keys]
        return KeyIndex(self._table.key_ids, keys)


_Met = list[tuple[Segment, I64, I64]]
"""Visible rows of a segment, and the keys that they have."""


def drop_losers(hidden: Hidden, winners: Iterable[tuple[int, int]]) -> None:
    """Let go of the rows of all attempts but some."""
    parts = np.array(sorted(part_of(*winner) for winner in winners), np.int64)
    for segment in hidden.all_segments():
        part = segment.data[STAGED_PART][: segment.n_rows]
        starts = np.append(True, part[1:] != part[:-1]).nonzero()[0]
        wins = np.isin(part[starts], parts)
        if not wins.all():
            lost = np.repeat(~wins, np.diff(np.append(starts, len(part))))
            segment.kill((lost & segment.live_rows()).nonzero()[0])


def seal(table: Table, hidden: Hidden, shares: Shares) -> None:
    """Reserve the keys of hidden rows, and drop and tell those that clash."""
    staged = _Staged(hidden)
    if table.schema.primary_key and staged.n_rows:
        keys = _Keys(table, staged, is_first=True)
        index = keys.index()
        causes = np.zeros(keys.n_keys, np.uint8)
        causes[_reserved(table, index)] = Cause.RESERVED_KEY
        for _, _, there in _meet(table, index):
            causes[there] = Cause.DUPLICATE_KEY
        clashing = np.where(keys.is_chosen, causes[keys.of_row], 0).astype(np.uint8)
        _reject(LoadCount.CLASHING, clashing, staged, keys, shares)
        again = np.where(keys.is_chosen, 0, Cause.DUPLICATE_KEY).astype(np.uint8)
        _reject(LoadCount.DUPLICATE, again, staged, keys, shares)
        staged.keep((clashing == 0) & (again == 0))
    hidden.is_sealed = True
    shares.add_segments(LoadCount.RESERVED, hidden)


def publish(table: Table, hidden: Hidden, shares: Shares) -> None:
    """Show rows whose keys were reserved."""
    shares.add_segments(LoadCount.INSERTED, hidden)
    _hang_over(table, hidden)


def show(table: Table, hidden: Hidden, begin: Begin, shares: Shares) -> None:
    """Show the rows of a load, or do with them what they are for; `hidden` is not used any more."""
    if begin.write is LoadWrite.OVERWRITE:
        shares.add_segments(LoadCount.DELETED, table)
        for arc in table.segments:
            arc.clear()
    staged = _Staged(hidden)
    if not table.schema.primary_key:
        shares.add_segments(LoadCount.INSERTED, hidden)
        _hang_over(table, hidden)
    elif staged.n_rows:
        _show_keyed(table, hidden, staged, begin, shares)


def _show_keyed(table: Table, hidden: Hidden, staged: _Staged, begin: Begin, shares: Shares) -> None:
    write = begin.write
    is_keeping = write is LoadWrite.INSERT and begin.rule is not LoadRule.REPLACE
    keys = _Keys(table, staged, is_first=is_keeping)
    index = keys.index()
    met: _Met = [] if write is LoadWrite.OVERWRITE else _meet(table, index)
    there = np.zeros(keys.n_keys, np.bool_)
    for _, _, some in met:
        there[some] = True
    brings = write in (LoadWrite.INSERT, LoadWrite.UPSERT, LoadWrite.OVERWRITE)
    causes = np.zeros(keys.n_keys, np.uint8)
    if brings:
        causes[_reserved(table, index)] = Cause.RESERVED_KEY
        if any(not each.nullable and each.id not in begin.columns for each in table.schema.columns):
            causes[:] = Cause.NULL_VALUE
        causes[there] = 0
    rejected = causes[keys.of_row]
    _reject(LoadCount.INSERTED, rejected, staged, keys, shares)
    # Of each key that is not rejected: whether its row is there before, and what all others do.
    is_there, is_chosen, counts = there[keys.of_row], keys.is_chosen, rejected == 0
    if brings:
        shares.add(LoadCount.INSERTED, staged.arc[counts & is_chosen & ~is_there])
        shares.add(
            LoadCount.KEPT if is_keeping else _AGAIN[write], staged.arc[counts & (~is_chosen | is_there)]
        )
        if write is LoadWrite.UPSERT:
            _update(table, staged, keys, met, begin)
        elif not is_keeping:
            _kill(met)
            is_there = np.zeros(len(is_there), np.bool_)
        staged.keep(counts & is_chosen & ~is_there)
        _hang_over(table, hidden)
        return
    shares.add(LoadCount.MISSING, staged.arc[~is_there])
    if write is LoadWrite.UPDATE:
        shares.add(LoadCount.UPDATED, staged.arc[is_there])
        _update(table, staged, keys, met, begin)
    else:
        shares.add(LoadCount.DELETED, staged.arc[is_there & is_chosen])
        shares.add(LoadCount.MISSING, staged.arc[is_there & ~is_chosen])
        _kill(met)


def _reject(count: LoadCount, causes: Errors, staged: _Staged, keys: _Keys, shares: Shares) -> None:
    bad = causes.nonzero()[0]
    if len(bad):
        shares.reject(count, staged.arc[bad], [value.take(bad) for value in keys.values], causes[bad])


def _has_equal(words: Sequence[I64]) -> bool:
    """Say whether two rows may have the same words."""
    if len(words) > 1:
        return True
    ordered = np.sort(words[0])
    return bool((ordered[1:] == ordered[:-1]).any())


def _meet(table: Table, index: KeyIndex) -> _Met:
    """Find the visible rows that have one of some keys."""
    found: _Met = []
    for block in table.blocks(BLOCK_ROWS):
        rows, keys = index.find(block)
        if len(rows):
            found.append((block.segment, rows + block.start, keys))
    return found


def _reserved(table: Table, index: KeyIndex) -> I64:
    """Give those of some keys that loads have reserved."""
    return np.concatenate(
        [np.zeros(0, np.int64), *(index.find(block)[1] for block in table.reserved_blocks())]
    )


def _kill(met: _Met) -> None:
    for segment, rows, _ in met:
        segment.kill(rows)


def _update(table: Table, staged: _Staged, keys: _Keys, met: _Met, begin: Begin) -> None:
    """Put what the chosen rows give into the visible rows of their keys."""
    for column_id in begin.columns if met else ():
        if column_id in table.key_ids:
            continue
        value = staged.column(column_id).take(keys.chosen)
        for segment, rows, places in met:
            some = value.take(places)
            segment.store(column_id, rows, some.data, some.valid)


def _hang_over(table: Table, hidden: Hidden) -> None:
    """Put hidden rows into the table: large segments as they are, others copied behind what is there."""
    for arc, (visible, segments) in enumerate(zip(table.segments, hidden.segments, strict=True)):
        for segment in segments:
            n_rows = segment.n_rows - segment.n_dead
            if n_rows == 0:
                continue
            for column_id in (STAGED_PART, STAGED_ROW):
                segment.drop_column(column_id)
            for column_id in sorted(table.types.keys() - segment.data.keys()):
                segment.add_column(column_id, table.types[column_id])
            if n_rows < holding.SMALL_ROWS:
                rows = segment.live_rows().nonzero()[0]
                while len(rows):
                    rows = rows[table.room(arc, len(rows)).take_over(segment, rows) :]
            else:
                if segment.is_sparse:
                    segment.compact()
                # The last one is filled up, whoever comes.
                visible.insert(max(len(visible) - 1, 0), segment)
        segments.clear()
