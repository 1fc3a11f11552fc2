"""Exactly typed columns from Python lists and NumPy arrays, and what is done with columns.

Rules of the file: nothing is converted by guess. A value either has the
column's type, or one of the few exact conversions of `crescando.client.constant`
applies, or the error names column, row and mend. Invalid slots hold 0.
NumPy's ``datetime64`` knows no zones; its instants are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.client.constant import INTEGER_RANGE, fit, normalise, python_value
from crescando.client.decimals import rescaled
from crescando.engine import kernels
from crescando.engine.dictionary import Pool
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from crescando.engine.heap import Texts
from crescando.engine.statement import PHYSICAL, Column
from crescando.errors import TypeMismatchError
from crescando.schema import ColumnDef, DataType

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

_EXACT_TYPES: dict[DataType, type] = {
    DataType.BOOL: bool,
    DataType.INT8: int,
    DataType.INT16: int,
    DataType.INT32: int,
    DataType.INT64: int,
    DataType.FLOAT64: float,
    DataType.STRING: str,
    DataType.BYTES: bytes,
}


_REPEATED = 4
"""Dictionaries with a text for fewer than so many rows are put end to end and not united."""

_SAMPLE = 1_024
"""About so many texts are looked at to see whether they repeat."""


def column_from_list(values: Sequence[object], definition: ColumnDef, *, nan_is_null: bool = False) -> Column:
    """Give Python values as a column.

    Parameters
    ----------
    values : sequence of length n
        None, or anything `crescando.client.constant.normalise` takes.
    definition : ColumnDef
    nan_is_null : bool
        Whether a float NaN stands for NULL.

    Raises
    ------
    TypeMismatchError
        Naming column and row, if a value does not fit; also for NULL in a
        column that is not nullable.
    """
    kind = definition.type
    exact = _EXACT_TYPES.get(kind)
    types = set(map(type, values))
    has_null = type(None) in types
    types.discard(type(None))
    is_exact = exact is not None and types <= {exact} and not (exact is float and nan_is_null)
    stored: list[Any] = list(values) if is_exact else _fitted(values, definition, nan_is_null)
    if not is_exact:
        has_null = None in stored
    valid: Mask | None = None
    if has_null:
        valid = np.fromiter((value is not None for value in stored), np.bool_, len(stored))
    if kind.is_textual:
        return checked(text_column(kind, stored, valid), definition)
    if has_null:
        stored = [0 if value is None else value for value in stored]
    if kind.is_integer:
        return checked(Column(kind, _integers(stored, definition), valid), definition)
    return checked(Column(kind, np.array(stored, PHYSICAL[kind]), valid), definition)


def _fitted(values: Sequence[object], definition: ColumnDef, nan_is_null: bool) -> list[Any]:
    fitted: list[Any] = []
    for row, value in enumerate(values):
        if nan_is_null and isinstance(value, float) and value != value:
            fitted.append(None)
            continue
        try:
            fitted.append(fit(normalise(value), definition.type))
        except TypeMismatchError as error:
            raise TypeMismatchError(f"column {definition.name!r}, row {row}: {error}") from error
    return fitted


def _integers(values: list[Any], definition: ColumnDef) -> NDArray[Any]:
    low, high = INTEGER_RANGE[definition.type]
    try:
        wide = np.array(values, np.int64)
    except OverflowError:
        row = next(index for index, value in enumerate(values) if not low <= value <= high)
        raise _out_of_range(definition, row, values[row]) from None
    return _narrowed(wide, definition)


def _narrowed(wide: NDArray[Any], definition: ColumnDef, valid: Mask | None = None) -> NDArray[Any]:
    if np.can_cast(wide.dtype, PHYSICAL[definition.type]):
        return wide.astype(PHYSICAL[definition.type])
    low, high = INTEGER_RANGE[definition.type]
    outside = (wide < low) | (wide > high)
    if valid is not None:
        outside &= valid
    if outside.any():
        row = int(outside.argmax())
        raise _out_of_range(definition, row, wide[row])
    return wide.astype(PHYSICAL[definition.type])


def _out_of_range(definition: ColumnDef, row: int, value: object) -> TypeMismatchError:
    low, high = INTEGER_RANGE[definition.type]
    return TypeMismatchError(
        f"column {definition.name!r}, row {row}: {value} is out of range for {definition.type.value}, "
        f"which ends at {low} and {high}"
    )


def text_column(kind: DataType, values: Sequence[Any], valid: Mask | None) -> Column:
    """Give strings or bytes as codes into a dictionary; codes of NULL are 0.

    Raises
    ------
    TypeMismatchError
        If a string is not Unicode (a lone surrogate).
    """
    n = len(values)
    looked_at = values if n <= _SAMPLE else values[:: n // _SAMPLE]
    if valid is None and 10 * len(set(looked_at)) > 9 * len(looked_at):
        # Texts that hardly repeat are united where they are looked up or stored.
        return Column(kind, np.arange(n, dtype=np.int32), None, Texts.of(values))
    # Dictionaries number texts at the speed of their hashes, as long as no line of ours runs for each.
    distinct = dict.fromkeys(values)
    distinct.pop(None, None)
    codes: dict[Any, int] = dict(zip(distinct, range(len(distinct)), strict=True))
    texts = Texts.of(distinct)
    codes[None] = 0
    coded = np.fromiter(map(codes.__getitem__, values), np.int32, n)
    return Column(kind, coded, valid, texts)


def column_from_array(
    values: NDArray[Any], definition: ColumnDef, *, valid: Mask | None = None, nan_is_null: bool = False
) -> Column:
    """Give a NumPy array as a column.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Masked arrays mark NULL by their mask. ``datetime64`` is taken as UTC.
    definition : ColumnDef
    valid : ndarray of bool, shape (n,), optional
        False marks NULL.
    nan_is_null : bool
        Whether NaN stands for NULL; then floats that are whole fit integer
        columns too, because that is how pandas keeps integers with gaps.

    Raises
    ------
    TypeMismatchError
        Naming column, row and mend.
    """
    if values.ndim != 1:
        raise TypeMismatchError(f"column {definition.name!r} takes one dimension, not {values.ndim}")
    if isinstance(values, np.ma.MaskedArray):
        unmasked = ~np.ma.getmaskarray(values)
        valid = unmasked if valid is None else valid & unmasked
        values = values.filled(None) if values.dtype == object else np.asarray(values.data)
    kind = values.dtype.kind
    if kind in "OUT":
        listed = values.tolist()
        if valid is not None:
            listed = [
                value if is_valid else None for value, is_valid in zip(listed, valid.tolist(), strict=True)
            ]
        return column_from_list(listed, definition, nan_is_null=nan_is_null)
    if kind == "f" and nan_is_null:
        present = ~np.isnan(values)
        valid = present if valid is None else valid & present
    if kind == "M":
        present = ~np.isnat(values)
        valid = present if valid is None else valid & present
    if valid is not None and valid.all():
        valid = None
    stored = _stored(values, definition, valid, nan_is_null)
    if valid is not None:
        stored = np.where(valid, stored, stored.dtype.type(0))
    return checked(Column(definition.type, stored, valid), definition)


def _stored(
    values: NDArray[Any], definition: ColumnDef, valid: Mask | None, nan_is_null: bool
) -> NDArray[Any]:
    """Give the physical values of an array; anything where not valid."""
    kind, target = values.dtype.kind, definition.type
    if kind == "b" and target is DataType.BOOL:
        # Every branch copies: the caller may change the array while the write is on its way.
        return values.copy()
    if kind in "iu" and target.is_integer:
        return _narrowed(values, definition, valid)
    if kind in "iu" and target.is_decimal:
        return rescaled(values, 0, definition, valid)
    if kind in "iu" and target.is_float:
        return _exact_floats(values, definition, valid)
    if kind == "f" and target.is_float:
        return _narrow_floats(values, definition, valid)
    if kind == "f" and target.is_integer and nan_is_null:
        return _whole_numbers(values, definition, valid)
    if kind == "M" and target is DataType.DATE:
        return _days(values, definition, valid)
    if kind == "M" and target is DataType.TIMESTAMP:
        return _microseconds(values, definition, valid)
    fix = ""
    if kind in "iuf" and target.is_number:
        fix = f"; convert with .astype({target.value!r})"
        if target.is_decimal:
            fix = "; pass Decimals, or cast in Arrow, which can round"
    elif kind == "S":
        fix = "; decode bytes with np.char.decode(values)"
        if target is DataType.BYTES:
            fix = "; it does not keep zero bytes at the end, so pass a list"
    raise TypeMismatchError(
        f"column {definition.name!r} is {target.value} and cannot take {values.dtype}{fix}"
    )


def _exact_floats(values: NDArray[Any], definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    limit = 1 << (24 if definition.type is DataType.FLOAT32 else 53)
    large = (values > limit) | (values < -limit) if values.dtype.kind == "i" else values > limit
    if valid is not None:
        large &= valid
    for row in np.flatnonzero(large).tolist():
        _fitted([int(values[row])], definition, False)
    return values.astype(PHYSICAL[definition.type])


def _narrow_floats(values: NDArray[Any], definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    if np.can_cast(values.dtype, PHYSICAL[definition.type]):
        return values.astype(PHYSICAL[definition.type])
    with np.errstate(over="ignore"):
        stored = values.astype(PHYSICAL[definition.type])
    lost = np.isinf(stored) & ~np.isinf(values)
    _refuse_rows(lost, valid, values, definition, f"is out of range for {definition.type.value}")
    return stored


def _whole_numbers(values: NDArray[Any], definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    present = np.where(np.isnan(values), 0, values)
    low, high = INTEGER_RANGE[definition.type]
    # As floats, the int64 limits round up to 2**63, which does not fit any more.
    outside = (present < low) | (present >= high + 1)
    _refuse_rows(outside, valid, values, definition, f"is out of range for {definition.type.value}")
    _refuse_rows(present != np.trunc(present), valid, values, definition, "is not a whole number")
    return present.astype(PHYSICAL[definition.type])


def _days(values: NDArray[Any], definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    days = values.astype("datetime64[D]")
    if values.dtype != days.dtype:
        lost = days.astype(values.dtype) != values
        _refuse_rows(lost, valid, values, definition, "has a time of day; a date column takes whole days")
    numbers = days.astype(np.int64)
    if lie_within(numbers, DATE_MIN, DATE_MAX):
        return numbers.astype(np.int32)
    _refuse_rows(
        (numbers < DATE_MIN) | (numbers > DATE_MAX), valid, values, definition, "is beyond year 9999"
    )
    return numbers.astype(np.int32)


def _microseconds(values: NDArray[Any], definition: ColumnDef, valid: Mask | None) -> NDArray[Any]:
    exact = values.astype("datetime64[us]", copy=False)
    if values.dtype != exact.dtype:
        lost = exact.astype(values.dtype) != values
        _refuse_rows(lost, valid, values, definition, "is finer than a microsecond; round to microseconds")
    numbers = exact.astype(np.int64)
    if lie_within(numbers, TIMESTAMP_MIN, TIMESTAMP_MAX):
        return numbers
    beyond = (numbers < TIMESTAMP_MIN) | (numbers > TIMESTAMP_MAX)
    _refuse_rows(beyond, valid, values, definition, "is beyond year 9999")
    return numbers


def lie_within(numbers: NDArray[Any], low: int, high: int) -> bool:
    """Say whether no number lies outside the bounds."""
    return len(numbers) == 0 or (int(numbers.min()) >= low and int(numbers.max()) <= high)


def _refuse_rows(
    faulty: Mask, valid: Mask | None, values: NDArray[Any], definition: ColumnDef, fault: str
) -> None:
    if valid is not None:
        faulty = faulty & valid
    if faulty.any():
        row = int(faulty.argmax())
        raise TypeMismatchError(f"column {definition.name!r}, row {row}: {values[row]} {fault}")


def checked(column: Column, definition: ColumnDef) -> Column:
    """Give a column as it is, if its definition allows the NULL in it.

    Raises
    ------
    TypeMismatchError
        Naming column and row.
    """
    if not definition.nullable and column.valid is not None and not column.valid.all():
        row = int(column.valid.argmin())
        raise TypeMismatchError(f"column {definition.name!r} is not nullable; row {row} has NULL")
    return column


def python_values(column: Column) -> list[Any]:
    """Give a column's values as Python has them: None, bool, int, float, Decimal, str, date or datetime."""
    if not (column.type.is_decimal or column.type in (DataType.DATE, DataType.TIMESTAMP)):
        return column.to_list()
    # Instants and prices repeat more often than not; each distinct one is built once.
    distinct, inverse = np.unique(column.values, return_inverse=True)
    built = [python_value(column.type, value) for value in distinct.tolist()]
    values: list[Any] = [built[index] for index in inverse.tolist()]
    if column.valid is not None:
        for row in np.flatnonzero(~column.valid).tolist():
            values[row] = None
    return values


class Deal(NamedTuple):
    """How rows are dealt out to parts.

    Attributes
    ----------
    rows : ndarray of int64, shape (n,)
        In the order in which they are best read.
    part : ndarray of uint8, shape (n,)
        The part that each goes to; there it comes after those before it.
    order : ndarray of int64, shape (n,)
        The rows part by part.
    stops : list of int
        Where each part ends in `order`.
    """

    rows: I64
    part: NDArray[np.uint8]
    order: I64
    stops: list[int]

    @staticmethod
    def of(rows: I64, part: NDArray[np.uint8], n_parts: int) -> Deal:
        """Deal out rows to parts with these numbers."""
        # Sorting small numbers is counting them.
        order = rows if n_parts == 1 else rows[np.argsort(part, kind="stable")]
        return Deal(rows, part, order, np.cumsum(np.bincount(part, minlength=n_parts)).tolist())

    @staticmethod
    def some(part_of: NDArray[Any], first: int, n_parts: int) -> Deal:
        """Deal out the rows of the parts ``first : first + n_parts`` of many, as far as there are so many."""
        n_parts = min(n_parts, int(part_of.max()) + 1 - first)
        rows = ((part_of >= first) & (part_of < first + n_parts)).nonzero()[0]
        return Deal.of(rows, (part_of[rows] - first).astype(np.uint8), n_parts)

    def parts(self) -> Iterator[I64]:
        """Give the rows of each part."""
        for start, stop in pairwise([0, *self.stops]):
            yield self.order[start:stop]


def take(column: Column, rows: I64) -> Column:
    """Give some rows of a column, a large dictionary cut down to what they use."""
    return deal(column, Deal.of(rows, np.zeros(len(rows), np.uint8), 1))[0]


def deal(column: Column, dealt: Deal) -> list[Column]:
    """Give several parts of a column's rows, each as `take` does."""
    kind, texts, order, stops = column.type, column.texts, dealt.order, dealt.stops
    valid = None if column.valid is None else _rows_of(column.valid, order)
    starts = [0, *stops[:-1]]
    if not kind.is_textual:
        return list(map(Column(kind, _rows_of(column.values, order), valid).slice, starts, stops))
    if not len(texts):  # All are NULL.
        return list(map(Column(kind, np.zeros(len(order), np.int32), valid).slice, starts, stops))
    spread: Texts | None = None
    values = _rows_of(column.values, order[: stops[0]])
    if _hardly_repeats(column, values if valid is None else np.where(valid[: stops[0]], values, 0)):
        present = None if column.valid is None else _rows_of(column.valid, dealt.rows)
        spread = texts.deal(_rows_of(column.values, dealt.rows), present, dealt.part, len(stops))
    else:
        values = _rows_of(column.values, order)
        if valid is not None:
            values = np.where(valid, values, np.int32(0))
    taken = []
    for start, stop in zip(starts, stops, strict=True):
        mask = None if valid is None else valid[start:stop]
        if spread is None:
            codes, used = _cut_down(values[start:stop], texts)
        else:
            codes, used = np.arange(stop - start, dtype=np.int32), spread.slice(start, stop)
        taken.append(Column(kind, codes, mask, used))
    return taken


def _rows_of(array: NDArray[Any], rows: I64) -> NDArray[Any]:
    taken = np.empty(len(rows), array.dtype)
    # With its place given and nothing to check, it is done in half the time.
    np.take(array, rows, out=taken, mode="clip")
    return taken


def _cut_down(codes: NDArray[Any], texts: Texts) -> tuple[NDArray[Any], Texts]:
    """Give codes with the texts that they use; a small list is left as it is."""
    if 4 * len(texts) <= len(codes) and len(texts.heap) <= 2 * len(codes):
        return codes, texts
    used, numbers = kernels.active().number_codes(np.ascontiguousarray(codes, np.int32), len(texts))
    return numbers, texts.take(used)


def _hardly_repeats(column: Column, codes: NDArray[Any]) -> bool:
    """Judge whether looking for equal texts among some rows would save nothing worth the time."""
    texts = column.texts
    if 2 * len(texts) <= len(column.values) or len(texts) <= 2 * len(codes):
        return False
    some = codes[:: max(len(codes) // _SAMPLE, 1)].astype(np.int64)
    n_bytes = int((texts.offsets[some + 1].astype(np.int64) - texts.offsets[some]).sum())
    # A long text that most rows have is sent once.
    return n_bytes * len(texts) <= 4 * len(texts.heap) * len(some)


def unite(columns: Sequence[Column]) -> Column:
    """Give the rows of several columns of one type, in order.

    Their dictionaries are united if rows repeat their texts; otherwise it would take longer than all
    the rest, and they are put end to end.
    """
    if len(columns) == 1:
        return columns[0]
    first = columns[0]
    valid: Mask | None = None
    if any(column.valid is not None for column in columns):
        valid = np.concatenate(
            [np.ones(len(column), np.bool_) if column.valid is None else column.valid for column in columns]
        )
    if not first.type.is_textual:
        return Column(first.type, np.concatenate([column.values for column in columns]), valid)
    texts = Texts.join([column.texts for column in columns])
    lengths = [len(column.texts) for column in columns]
    table: NDArray[Any] = np.arange(len(texts), dtype=np.int32)
    if len(texts) * _REPEATED < sum(map(len, columns)):
        pool = Pool(binary=texts.binary)
        table = pool.intern_texts(texts)
        texts = pool.texts
    translated = []
    for column, start in zip(columns, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True):
        # Codes where not valid are undefined and may lie outside the dictionary.
        inside = column.values if column.valid is None else np.where(column.valid, column.values, 0)
        some = table[start : start + len(column.texts)]
        translated.append(some[inside] if len(some) else np.zeros(len(column), np.int32))
    return Column(first.type, np.concatenate(translated), valid, texts)
