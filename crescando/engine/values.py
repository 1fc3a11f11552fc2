"""`Value`: the typed, three-valued-plus-error vector that every term evaluates to.

Rules of the file: a row of a value is an ERROR where `error` is not zero, else
NULL where not `valid`, else `data`. Data of other rows is arbitrary (but never
out of a pool). Arrays have shape (n,), or (1,) for a constant, and are shared,
never changed in place by a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.dictionary import Pool
from crescando.engine.functions import Cause
from crescando.engine.heap import Texts
from crescando.engine.keys import I64, Mask, order_keys
from crescando.engine.statement import PHYSICAL, Column
from crescando.schema import DataType

Errors = NDArray[np.uint8]
"""A `Cause` per row, 0 for none."""


@dataclass(slots=True)
class Value:
    """A vector of one type.

    Attributes
    ----------
    type : DataType
    data : ndarray, shape (n,) or (1,)
        Physical values; for strings codes into `pool`. `valid` and `error` may
        still be of shape (1,), where a constant decided them; see `spread`.
    valid : ndarray of bool or None
        None means that no row is NULL.
    error : ndarray of uint8 or None
        None means that no row is an ERROR.
    pool : Pool or None
        Of strings only.
    """

    type: DataType
    data: NDArray[Any]
    valid: Mask | None = None
    error: Errors | None = None
    pool: Pool | None = None

    def take(self, rows: NDArray[Any]) -> Value:
        """Give the rows at some indices, copied."""
        return Value(
            self.type,
            self.data[rows],
            None if self.valid is None else self.valid[rows],
            None if self.error is None else self.error[rows],
            self.pool,
        )

    def slice(self, start: int, stop: int) -> Value:
        """Give consecutive rows of a value whose arrays all have shape (n,); they are shared."""
        return Value(
            self.type,
            self.data[start:stop],
            None if self.valid is None else self.valid[start:stop],
            None if self.error is None else self.error[start:stop],
            self.pool,
        )

    def spread(self, n: int) -> Value:
        """Give the value with every array of shape (n,), repeating constants."""
        if (
            len(self.data) == n
            and (self.valid is None or len(self.valid) == n)
            and (self.error is None or len(self.error) == n)
        ):
            return self
        return Value(
            self.type,
            stretched(self.data, (n,)),
            None if self.valid is None else stretched(self.valid, (n,)),
            None if self.error is None else stretched(self.error, (n,)),
            self.pool,
        )

    def strings(self) -> Pool:
        """Give the pool of a string value."""
        assert self.pool is not None
        return self.pool

    def keys(self) -> NDArray[Any]:
        """Give order keys of the data: integers (int64, or int32 of strings) that sort as the values do."""
        if self.type.is_textual:
            ranks: NDArray[Any] = self.strings().ranks()[self.data]
            return ranks
        return order_keys(self.data)

    def known(self) -> Mask:
        """Give where the rows are neither NULL nor ERROR."""
        shape = self.data.shape
        known = np.ones(shape, np.bool_) if self.valid is None else self.valid
        if self.error is not None:
            known = known & (self.error == 0)
        return known


def stretched(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Give an array as it is if it has a shape, else a view that repeats it and may not be written."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def both_valid(left: Mask | None, right: Mask | None) -> Mask | None:
    """Combine validity: a row is valid if both are."""
    if left is None:
        return right
    return left if right is None else left & right


def first_cause(left: Errors | None, right: Errors | None) -> Errors | None:
    """Combine errors: the smallest cause of each row wins, whatever came first."""
    if left is None:
        return right
    if right is None:
        return left
    # Unsigned wrap-around makes "no error" the largest number.
    one = np.uint8(1)
    combined: Errors = np.minimum(left - one, right - one) + one
    return combined


def raised(where: Mask, cause: Cause) -> Errors | None:
    """Give an error array with one cause at some rows, or None if there are none."""
    if not where.any():
        return None
    return where.astype(np.uint8) * np.uint8(cause)


def with_raised(source: Value, target: DataType, data: NDArray[Any], error: Errors | None) -> Value:
    """Give a result of `source`'s rows whose computation raised errors.

    Errors raised on rows that were NULL or ERROR before do not count.
    """
    if error is not None:
        known = source.known()
        error = np.where(known, error, np.uint8(0))
    return Value(target, data, source.valid, first_cause(source.error, error), source.pool)


def interned(texts: Texts, kind: DataType) -> tuple[Pool, NDArray[Any]]:
    """Give a pool of some texts, and the code of each."""
    pool = new_pool(kind)
    if len(texts) == 1:
        # As where one operation of a shape is asked for: nothing need be told apart.
        return pool, pool.begin_with(texts)
    pool.expect(len(texts))
    return pool, pool.intern_texts(texts)


def from_column(column: Column) -> Value:
    """Give a column as a value; strings get a pool of their own."""
    if not column.type.is_textual:
        return Value(column.type, column.values, column.valid)
    pool, codes = interned(column.texts, column.type)
    if len(codes) == 0:
        return Value(column.type, np.zeros(len(column), np.int64), column.valid, None, pool)
    inside = column.values if column.valid is None else np.where(column.valid, column.values, 0)
    return Value(column.type, codes[inside], column.valid, None, pool)


def to_column(value: Value) -> Column:
    """Give a value without errors as a `Column` of its own, with the used texts only."""
    valid = value.valid
    if valid is not None and valid.all():
        valid = None
    data = value.data
    if valid is not None:
        data = np.where(valid, data, np.zeros(1, data.dtype))
    if not value.type.is_textual:
        return Column(value.type, np.ascontiguousarray(data, PHYSICAL[value.type]), valid)
    pool = value.strings()
    used, codes = kernels.active().number_codes(np.ascontiguousarray(data, np.int32), len(pool))
    return Column(value.type, codes, valid, pool.take(used))


def as_integers(data: NDArray[Any]) -> NDArray[Any]:
    """Give numbers of any type as the integers that lie in memory, of types that kernels know."""
    if data.dtype.kind in "fb" or data.dtype == np.int8:
        return data.view(_SAME_WIDTH[data.dtype.itemsize])
    return data


_SAME_WIDTH = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def distinct_codes(codes: NDArray[Any], n_texts: int) -> tuple[I64, I64]:
    """Give the used codes, ascending, and each row's index among them."""
    if n_texts > 16 * len(codes) + 1024:
        used, where = np.unique(codes, return_inverse=True)
        return used.astype(np.int64), where.astype(np.int64)
    seen = np.zeros(n_texts, np.bool_)
    seen[codes] = True
    used = seen.nonzero()[0]
    if len(used) == n_texts:
        return used, codes.astype(np.int64, copy=False)
    index = np.empty(n_texts, np.int64)
    index[used] = np.arange(len(used))
    return used, index[codes]


def overlay(value: Value, rows: I64, other: Value) -> Value:
    """Give a value without errors with some rows replaced by those of another of its type and pool."""
    data = value.data.copy()
    data[rows] = other.data
    valid = value.valid
    if valid is not None or other.valid is not None:
        valid = np.ones(len(data), np.bool_) if valid is None else valid.copy()
        valid[rows] = True if other.valid is None else other.valid
    return Value(value.type, data, valid, None, value.pool)


def one_zero(value: Value) -> Value:
    """Give floats with one zero, so that values which are equal show alike."""
    if not value.type.is_float:
        return value
    return Value(value.type, value.data + value.data.dtype.type(0), value.valid, value.error)


def concatenate(values: Sequence[Value], lengths: Sequence[int]) -> Value:
    """Join values of one type end to end, constants spread to their lengths."""
    kind = values[0].type
    whole = [value.spread(n) for value, n in zip(values, lengths, strict=True)]
    if len(whole) == 1:
        return whole[0]
    pool: Pool | None = None
    if kind.is_textual:
        pool = whole[0].strings()
        if any(value.pool is not pool for value in whole):
            pool = new_pool(kind)
            whole = [recode(value, pool) for value in whole]
    valid = None
    if any(value.valid is not None for value in whole):
        valid = np.concatenate(
            [np.ones(len(v.data), np.bool_) if v.valid is None else v.valid for v in whole]
        )
    error = None
    if any(value.error is not None for value in whole):
        error = np.concatenate(
            [np.zeros(len(v.data), np.uint8) if v.error is None else v.error for v in whole]
        )
    return Value(kind, np.concatenate([value.data for value in whole]), valid, error, pool)


def recode(value: Value, pool: Pool) -> Value:
    """Give a string value with codes of another pool, adding the texts it uses."""
    source = value.strings()
    if source is pool:
        return value
    used, index = distinct_codes(value.data, len(source))
    codes = pool.intern_from(source, used)
    return Value(value.type, codes[index], value.valid, value.error, pool)


def new_pool(kind: DataType) -> Pool:
    """Give an empty pool for strings or for bytes."""
    return Pool(binary=kind is DataType.BYTES)


def empty(kind: DataType) -> Value:
    """Give a value of no rows."""
    pool = new_pool(kind) if kind.is_textual else None
    return Value(kind, np.zeros(0, PHYSICAL[kind]), None, None, pool)
