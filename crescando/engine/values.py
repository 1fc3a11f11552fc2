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

from crescando.engine.dictionary import Pool
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Cause
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
            np.broadcast_to(self.data, n),
            None if self.valid is None else np.broadcast_to(self.valid, n),
            None if self.error is None else np.broadcast_to(self.error, n),
            self.pool,
        )

    def strings(self) -> Pool:
        """Give the pool of a string value."""
        assert self.pool is not None
        return self.pool

    def keys(self) -> I64:
        """Give order keys of the data: integers that sort as the values do."""
        if self.type is DataType.STRING:
            ranks: I64 = self.strings().ranks()[self.data]
            return ranks
        return order_keys(self.data)

    def known(self) -> Mask:
        """Give where the rows are neither NULL nor ERROR."""
        shape = self.data.shape
        known = np.ones(shape, np.bool_) if self.valid is None else self.valid
        if self.error is not None:
            known = known & (self.error == 0)
        return known


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


def convert(value: Value, target: DataType) -> Value:
    """Convert a number to another number type, or pass a value of the same type through.

    Whole numbers are checked against the target's range, floats are rounded
    once to FLOAT32, and a finite number that would become infinite is an error.
    Floats become integers only if `target` is one, by truncation.
    """
    if value.type is target:
        return value
    source = value.data
    dtype = PHYSICAL[target]
    error: Errors | None = None
    if target.is_float:
        with np.errstate(over="ignore"):
            data = source.astype(dtype)
        if target is DataType.FLOAT32:
            error = raised(np.isinf(data) & ~np.isinf(source.astype(np.float64)), Cause.OVERFLOW)
    elif value.type.is_float:
        data, error = _truncate(source, target)
    else:
        bounds = np.iinfo(dtype)
        wide = source.astype(np.int64, copy=False)
        error = raised((wide < bounds.min) | (wide > bounds.max), Cause.OUT_OF_RANGE)
        data = source.astype(dtype)
    return with_raised(value, target, data, error)


def _truncate(source: NDArray[Any], target: DataType) -> tuple[NDArray[Any], Errors | None]:
    bounds = np.iinfo(PHYSICAL[target])
    whole = np.trunc(source.astype(np.float64))
    # -2**63 is a float64; 2**63 - 1 is not, but 2**63 is the first number too large.
    fits = (whole >= float(bounds.min)) & (whole < float(bounds.max // 2 + 1) * 2.0)
    data = np.where(fits, whole, 0.0).astype(PHYSICAL[target])
    return data, raised(~fits, Cause.INVALID_CONVERSION)


def with_raised(source: Value, target: DataType, data: NDArray[Any], error: Errors | None) -> Value:
    """Give a result of `source`'s rows whose computation raised errors.

    Errors raised on rows that were NULL or ERROR before do not count.
    """
    if error is not None:
        known = source.known()
        error = np.where(known, error, np.uint8(0))
    return Value(target, data, source.valid, first_cause(source.error, error), source.pool)


def calendar_errors(kind: DataType, data: NDArray[Any]) -> Errors | None:
    """Mark dates and timestamps outside the years 1 to 9999."""
    if kind is DataType.DATE:
        return raised((data < DATE_MIN) | (data > DATE_MAX), Cause.OUT_OF_RANGE)
    if kind is DataType.TIMESTAMP:
        return raised((data < TIMESTAMP_MIN) | (data > TIMESTAMP_MAX), Cause.OUT_OF_RANGE)
    return None


def to_column(value: Value) -> Column:
    """Give a value without errors as a `Column` of its own, with the used texts only."""
    valid = value.valid
    if valid is not None and valid.all():
        valid = None
    data = value.data
    if valid is not None:
        data = np.where(valid, data, np.zeros(1, data.dtype))
    if value.type is not DataType.STRING:
        return Column(value.type, np.ascontiguousarray(data, PHYSICAL[value.type]), valid)
    texts = value.strings().texts
    used, codes = _distinct(data, len(texts))
    dictionary = tuple(texts[code] for code in used.tolist())
    return Column(value.type, codes.astype(np.int32), valid, dictionary)


def _distinct(codes: NDArray[Any], n_texts: int) -> tuple[I64, I64]:
    """Give the used codes, ascending, and each row's index among them."""
    if n_texts > 16 * len(codes) + 1024:
        used, where = np.unique(codes, return_inverse=True)
        return used.astype(np.int64), where.astype(np.int64)
    seen = np.zeros(n_texts, np.bool_)
    seen[codes] = True
    used = seen.nonzero()[0]
    index = np.cumsum(seen) - 1
    return used, index[codes]


def concatenate(values: Sequence[Value], lengths: Sequence[int]) -> Value:
    """Join values of one type end to end, constants spread to their lengths."""
    kind = values[0].type
    whole = [value.spread(n) for value, n in zip(values, lengths, strict=True)]
    if len(whole) == 1:
        return whole[0]
    pool: Pool | None = None
    if kind is DataType.STRING:
        pool = whole[0].strings()
        if any(value.pool is not pool for value in whole):
            pool = Pool()
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
    used, index = _distinct(value.data, len(source))
    codes = pool.intern(source.texts[code] for code in used.tolist())
    return Value(value.type, codes[index], value.valid, value.error, pool)


def empty(kind: DataType) -> Value:
    """Give a value of no rows."""
    pool = Pool() if kind is DataType.STRING else None
    return Value(kind, np.zeros(0, PHYSICAL[kind]), None, None, pool)
