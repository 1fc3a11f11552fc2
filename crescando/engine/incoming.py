"""The rows that a batch's inserts and upserts bring.

Rules of the file: only rows of the engine's own arcs are kept (another owner
has the others); rows that no state of the table could accept are rejected
here, the rest wait for their place in the order. Equal keys get equal *slots*,
which the replay turns into images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.arcs import arc_of
from crescando.engine.conversion import domain_errors
from crescando.engine.dictionary import Pool
from crescando.engine.functions import Cause
from crescando.engine.group import Group
from crescando.engine.index import PointIndex
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.kernels.texts import mix
from crescando.engine.keys import I64, Mask, order_keys
from crescando.engine.partition import ring_positions
from crescando.engine.segment import Block
from crescando.engine.statement import Column, Kind
from crescando.engine.table import HIDDEN_ORDINAL, HIDDEN_POSITION, Table
from crescando.engine.transactions import STEP_ROWS
from crescando.engine.values import (
    Errors,
    Value,
    concatenate,
    first_cause,
    one_zero,
    raised,
)
from crescando.schema import DataType
from crescando.types import KeyRange

U64 = NDArray[np.uint64]

_ROWS_ALONE = 512
"""Operations of so many rows, on average, have their texts looked up one by one: joining would copy them."""


@dataclass(slots=True)
class Incoming:
    """Rows of one group of inserts or upserts.

    Attributes
    ----------
    group : Group
    operation : ndarray of int64, shape (n,)
        Local number of the operation that brings the row; ascending.
    values : dict of int to Value
        The given columns, strings in the table's pools, and the hidden key.
    position : ndarray of uint64
    arc : ndarray of int64
    error : ndarray of uint8
        The cause for rows that cannot be accepted, else 0.
    missing_not_null : bool
        Whether a column that is not nullable is not given, so that no row can be born.
    slot : ndarray of int64
        Key group of each acceptable row; filled in by `KeySlots`.
    reserved : ndarray of bool, or None
        Whose keys loads have reserved, so that they cannot be born; None if no acceptable row's is.
    """

    group: Group
    operation: I64
    values: dict[int, Value]
    position: U64
    arc: I64
    error: Errors
    missing_not_null: bool
    slot: I64
    reserved: Mask | None = None


def arrive(group: Group, table: Table, arcs: Sequence[KeyRange]) -> Incoming:
    """Gather the rows of a group and check what can be checked without the table."""
    shape, schema = group.plan.shape, table.schema
    rows = group.members.rows()
    lengths = [len(columns[0]) for columns in rows]
    operation = np.repeat(group.every, lengths)
    ordinal = np.arange(len(operation)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    given = {column_id: [columns[place] for columns in rows] for place, column_id in enumerate(shape.columns)}
    partition_id = schema.column(schema.partition_key).id
    position = ring_positions(schema, Column.join(given[partition_id]))
    arc = arc_of(position, arcs)
    owned: I64 | slice = slice(None)
    if len(arc) and int(arc.min()) < 0:
        owned = (arc >= 0).nonzero()[0]
    values = {
        column_id: _gather(each, owned, table.pools.get(column_id)) for column_id, each in given.items()
    }
    for key_id in table.key_ids if schema.primary_key else ():
        # Rows of one key may come as 0.0 and -0.0: which one was first must not show.
        values[key_id] = one_zero(values[key_id])
    operation = operation[owned]
    if not schema.primary_key:
        values[HIDDEN_POSITION] = Value(DataType.INT64, group.members.position[operation])
        step = group.members.step[operation]
        values[HIDDEN_ORDINAL] = Value(DataType.INT64, ordinal[owned] + np.maximum(step, 0) * STEP_ROWS)
    missing = any(not c.nullable for c in schema.columns if c.id not in values)
    error = row_errors(table, values, len(operation), missing and shape.kind is Kind.INSERT)
    return Incoming(
        group, operation, values, position[owned], arc[owned], error, missing, np.full(len(operation), -1)
    )


def _gather(columns: list[Column], rows: I64 | slice, pool: Pool | None) -> Value:
    """Give the rows that are kept of several operations."""
    lengths = list(map(len, columns))
    if pool is None or isinstance(rows, np.ndarray) or sum(lengths) < _ROWS_ALONE * len(columns):
        return own(Column.join(columns), rows, pool)
    first, *others = columns
    before = len(pool)
    values = [own(first, rows, pool)]
    n_fresh, n_left = len(pool) - before, sum(lengths) - len(first)
    if 4 * n_fresh > len(first):
        # Most texts are new, and so will those of the other operations be.
        pool.expect(n_fresh * n_left // len(first))
    values += [own(column, rows, pool) for column in others]
    return concatenate(values, lengths)


def own(column: Column, rows: I64 | slice, pool: Pool | None) -> Value:
    """Give the rows that are kept; only their texts enter the table's pool."""
    values = column.values[rows]
    valid = None if column.valid is None else column.valid[rows]
    if pool is None:
        return Value(column.type, values, valid)
    texts = column.texts
    if not len(texts):
        return Value(column.type, np.zeros(len(values), np.int32), valid, None, pool)  # All are NULL.
    if len(texts) > 16 * len(values) + 1024:
        given = values if valid is None else values[valid]
        places, index = np.unique(given, return_inverse=True)
        few = np.zeros(len(values), np.int32)
        few[slice(None) if valid is None else valid] = pool.intern_some(texts, places)[index]
        return Value(column.type, few, valid, None, pool)
    made, mask = kernels.active().codes, NO_MASK if valid is None else np.ascontiguousarray(valid)
    values = np.ascontiguousarray(values, np.int32)
    used, is_in_order = made.used_texts(values, mask, len(texts))
    if is_in_order:
        return Value(column.type, pool.intern_texts(texts), valid, None, pool)
    if len(used) == len(texts):
        codes = pool.intern_texts(texts)
    else:
        codes = np.zeros(len(texts), np.int32)
        codes[used] = pool.intern_some(texts, used)
    return Value(column.type, made.spread_codes(codes, values, mask), valid, None, pool)


def row_errors(table: Table, values: dict[int, Value], n_rows: int, missing: bool = False) -> Errors:
    """Give the cause of each row that no state of the table could accept, else 0."""
    error: Errors | None = None
    for column in table.schema.columns:
        value = values.get(column.id)
        if value is None:
            continue
        if not column.nullable and value.valid is not None:
            error = first_cause(error, raised(~value.valid, Cause.NULL_VALUE))
        outside = domain_errors(column.type, value.data)
        if outside is not None and value.valid is not None:
            outside = np.where(value.valid, outside, np.uint8(0))
        error = first_cause(error, outside)
        if column.name == table.schema.partition_key and column.type.is_float:
            error = first_cause(error, raised(np.isnan(value.data), Cause.NAN_KEY))
    if missing:
        error = first_cause(error, np.full(n_rows, Cause.NULL_VALUE, np.uint8))
    return np.zeros(n_rows, np.uint8) if error is None else error


class KeySlots:
    """The distinct keys that a batch's inserts and upserts name.

    Parameters
    ----------
    table : Table
    incoming : sequence of Incoming
        Their `slot` is filled in: equal keys, equal slots; without a primary key
        every row has a slot of its own.
    """

    def __init__(self, table: Table, incoming: Sequence[Incoming]) -> None:
        self._key_ids = table.key_ids
        self._unique = bool(table.schema.primary_key)
        accepted = [(rows.error == 0).nonzero()[0] for rows in incoming]
        lengths = [len(rows) for rows in accepted]
        self.keys = [
            concatenate([i.values[key].take(r) for i, r in zip(incoming, accepted, strict=True)], lengths)
            for key in self._key_ids
        ]
        self.arc = np.concatenate([i.arc[r] for i, r in zip(incoming, accepted, strict=True)])
        self.position = np.concatenate([i.position[r] for i, r in zip(incoming, accepted, strict=True)])
        first, slots = self._number()
        self._n_rows = len(slots)
        self.keys = [key.take(first) for key in self.keys]
        self.arc, self.position = self.arc[first], self.position[first]
        self.n_slots = len(first)
        start = 0
        for rows, kept in zip(incoming, accepted, strict=True):
            rows.slot[kept] = slots[start : start + len(kept)]
            start += len(kept)
        self._index = KeyIndex(self._key_ids, self.keys) if self._unique else None
        self.any_reserved = False
        reserved = np.zeros(self.n_slots, np.bool_)
        for block in table.reserved_blocks():
            reserved[self.find(block)[1]] = True
        if reserved.any():
            self.any_reserved = True
            for rows in incoming:
                rows.reserved = (rows.error == 0) & reserved[rows.slot]

    def _number(self) -> tuple[I64, I64]:
        """Give the first row of each distinct key, and each row's key number."""
        n_rows = len(self.arc)
        if not self._unique:
            return np.arange(n_rows), np.arange(n_rows)
        words = [key_words(key) for key in self.keys]
        if len(words) == 1 and _surely_differ(words[0]):
            return np.arange(n_rows), np.arange(n_rows)
        order = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words)
        fresh = np.zeros(n_rows, np.bool_)
        fresh[:1] = True
        for word in words:
            ordered = word[order]
            fresh[1:] |= ordered[1:] != ordered[:-1]
        number = np.empty(n_rows, np.int64)
        number[order] = np.cumsum(fresh) - 1
        # The sort is stable, so that the first row of a run is the first to come.
        return order[fresh], number

    @property
    def n_rows(self) -> int:
        """How many acceptable rows there are; as many as slots if no key comes twice."""
        return self._n_rows

    def find(self, block: Block) -> tuple[I64, I64]:
        """Give the rows of a block that have one of the keys, and the key's slot."""
        return (_NOTHING, _NOTHING) if self._index is None else self._index.find(block)


class KeyIndex:
    """Keys of a table, to be met by its rows.

    Parameters
    ----------
    key_ids : sequence of int
    keys : sequence of Value, each of shape (n,)
        Texts in the table's pools; no key comes twice.
    """

    def __init__(self, key_ids: Sequence[int], keys: Sequence[Value]) -> None:
        self._key_ids = key_ids
        self._words = [key_words(key) for key in keys]
        self._n_keys = len(self._words[0])
        self._index = PointIndex(_fingerprint(self._words), np.arange(self._n_keys))

    def find(self, block: Block) -> tuple[I64, I64]:
        """Give the living rows of a block that have one of the keys, and which; no row comes twice."""
        if self._n_keys == 0:
            return _NOTHING, _NOTHING
        words = [key_words(block.column(key)) for key in self._key_ids]
        pairs = list(self._index.probe(_fingerprint(words)))
        if not pairs:
            return _NOTHING, _NOTHING
        rows = np.concatenate([pair[0] for pair in pairs])
        slots = np.concatenate([pair[1] for pair in pairs])
        same = np.ones(len(rows), np.bool_)
        for stored, wanted in zip(words, self._words, strict=True):
            same &= stored[rows] == wanted[slots]
        live = block.live()
        if live is not None:
            same &= live[rows]
        return rows[same], slots[same]


_NOTHING: I64 = np.zeros(0, np.int64)

_SPREAD = 8
"""Among so many times as many numbers as there are keys it is looked up, and not sorted, which come twice."""


def _surely_differ(words: I64) -> bool:
    """Say whether whole numbers are close together and none comes twice."""
    if len(words) == 0:
        return True
    low = int(words.min())
    span = int(words.max()) - low + 1
    if span > _SPREAD * len(words):
        return False
    seen = np.zeros(span, np.bool_)
    seen[words - low] = True
    return int(np.count_nonzero(seen)) == len(words)


def key_words(key: Value) -> I64:
    """Give integers that are equal where key values are; strings are codes of one pool."""
    if key.type.is_textual:
        return key.data.astype(np.int64)
    return order_keys(key.data)


def _fingerprint(words: list[Any]) -> I64:
    """Give one integer per key; unequal keys may share it unless the key is one column."""
    if len(words) == 1:
        single: I64 = words[0]
        return single
    mixed = np.zeros(len(words[0]), np.uint64)
    for word in words:
        mixed = mix(mixed ^ word.view(np.uint64))
    return mixed.view(np.int64)
