"""Partition functions: where on the ring a key lies (RB13 §6.1).

Rules of the file: every function is a pure, vectorised map from key values to
``uint64`` positions that all processes and clients compute alike, on every
platform and in every run; so it uses integer arithmetic and correctly rounded
floating point only, and never Python's ``hash``. *hash* spreads keys evenly;
*range* keeps their order (it is monotone, not injective) so that ranges of
keys touch few arcs. Golden vectors in the tests keep both from drifting:
changing either is a new `version` and moves all data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.heap import Texts
from crescando.engine.kernels.texts import mix
from crescando.engine.placing import Placing
from crescando.engine.scaled import to_floats
from crescando.engine.statement import PHYSICAL, Column, Scalar
from crescando.errors import SpecError
from crescando.schema import PARTITION_VERSION, DataType, HashPartition, RangePartition, TableSchema
from crescando.types import RING_MAX

U64 = NDArray[np.uint64]

_RING_SIZE = 1 << 64
_DIGITS = 7
"""Bytes of a string that a range function looks at, after the common prefix: 257**7 < 2**63."""

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)


def ring_positions(schema: TableSchema, column: Column) -> U64:
    """Give the ring position of each partition key value.

    Parameters
    ----------
    schema : TableSchema
    column : Column, shape (n,)
        Values of the partition key, of its declared type.

    Returns
    -------
    ndarray of uint64, shape (n,)
        NULL, which no stored row has, lies at 0: the owner of 0 rejects it.

    Raises
    ------
    SpecError
        If the schema asks for a function or version that does not exist.
    """
    partition = schema.partition
    if partition.version != PARTITION_VERSION:
        raise SpecError(f"partition function version {partition.version} is not known")
    if column.type.is_textual:
        positions = _string_positions(partition, column)
    else:
        positions = _number_positions(partition, column.type, column.values)
    if column.valid is not None:
        positions = np.where(column.valid, positions, np.uint64(0))
    return positions


def _number_positions(partition: HashPartition | RangePartition, kind: DataType, values: NDArray[Any]) -> U64:
    if isinstance(partition, HashPartition):
        return _hash_words(canonical_words(kind, values), partition.salt)
    return _spread_numbers(partition, to_floats(values, kind.scale) if kind.is_decimal else values)


def placing(schema: TableSchema) -> Placing | None:
    """Give how a table's rows are placed, or None if that takes longer than looking it up."""
    key = schema.column(schema.partition_key)
    if key.type.is_textual:
        return None
    return Placing(key.id, partial(_number_positions, schema.partition, key.type))


def position_of(schema: TableSchema, value: Scalar) -> int:
    """Give the ring position of one partition key value, which must fit the key's type."""
    return 0 if value is None else int(positions_of(schema, [value])[0])


def positions_of(schema: TableSchema, values: Sequence[Scalar]) -> U64:
    """Give the ring position of each of some distinct partition key values, none of them NULL."""
    kind = schema.column(schema.partition_key).type
    if kind.is_textual:
        column = Column(kind, np.arange(len(values), dtype=np.int32), None, tuple(values))
    else:
        column = Column(kind, np.array(values, PHYSICAL[kind]))
    return ring_positions(schema, column)


def spread_position(partition: RangePartition, value: int | float | Fraction | str) -> int:
    """Give where a *bound* of any number type, or a text, lies under a range function.

    Unlike `position_of` the value need not fit the column's type; the map is
    still monotone against it, since all numbers go through the nearest float64.
    """
    if isinstance(value, str):
        return _spread_strings(partition, [value])[0]
    return int(_spread_numbers(partition, np.array([float(value)]))[0])


def canonical_words(kind: DataType, values: NDArray[Any]) -> U64:
    """Give one 64-bit word per value, equal exactly where values are equal.

    Whole numbers, dates, timestamps and bools are sign-extended; floats are the
    bits of their float64 with one zero and one NaN.
    """
    if kind.is_float:
        wide = values.astype(np.float64)
        wide[wide == 0.0] = 0.0
        wide[np.isnan(wide)] = np.nan
        return wide.view(np.uint64)
    return values.astype(np.int64).view(np.uint64)


@lru_cache(maxsize=64)
def _seed(salt: int) -> np.uint64:
    seed = mix(np.array([salt & RING_MAX], np.uint64) + _GOLDEN)
    return np.uint64(seed[0])


def _hash_words(words: U64, salt: int) -> U64:
    return kernels.active().texts.hash_words(words, _seed(salt))


def hash_list(texts: Texts, salt: int) -> U64:
    """Hash the bytes of texts in words of eight, zero padded, with the length mixed in first."""
    return kernels.active().texts.hash_slices(texts.heap, texts.starts, texts.lengths, _seed(salt))


def _string_positions(partition: HashPartition | RangePartition, column: Column) -> U64:
    """Map each distinct string once, then spread the results over the codes."""
    if len(column.values) == 0:
        return np.zeros(0, np.uint64)
    valid = True if column.valid is None else column.valid
    codes = np.where(valid, column.values, 0).astype(np.int64)
    if not len(column.texts):
        return np.zeros(len(codes), np.uint64)  # All are NULL.
    texts = column.texts
    if len(texts) > 2 * len(codes):
        used, codes = np.unique(codes, return_inverse=True)
        texts = texts.take(used)
    if isinstance(partition, HashPartition):
        return hash_list(texts, partition.salt)[codes]
    return np.array(_spread_strings(partition, texts.to_list()), np.uint64)[codes]


def _spread_numbers(partition: RangePartition, values: NDArray[Any]) -> U64:
    """Spread numbers linearly; each step rounds monotonically, hence so does the whole.

    Halves keep the width of the widest declared range finite.
    """
    low, high = float(partition.low), float(partition.high)
    wide = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        share = (wide * 0.5 - low * 0.5) / (high * 0.5 - low * 0.5)
        inside = (wide > low) & (wide < high) & (share > 0.0) & (share < 1.0)
        # float64 below 1.0 times 2**64 is at most 2**64 - 2048, which uint64 holds.
        positions = np.where(inside, share * float(_RING_SIZE), 0.0).astype(np.uint64)
    # NaN counts as above +inf; it is never stored, but a bound may be NaN.
    above = (wide >= high) | np.isnan(wide) | (share >= 1.0)
    positions[above & ~(wide <= low)] = RING_MAX
    return positions


def _spread_strings(partition: RangePartition, texts: list[str]) -> list[int]:
    """Spread strings linearly by the bytes that follow the bounds' common prefix.

    UTF-8 keeps code point order, and every string between the bounds shares
    their prefix, so the map is monotone in code point order.
    """
    low, high = str(partition.low), str(partition.high)
    skip = _common_prefix(low, high)
    bottom = _leading_number(low[skip:])
    width = _leading_number(high[skip:]) - bottom
    positions = []
    for text in texts:
        if text <= low:
            positions.append(0)
        elif text >= high:
            positions.append(RING_MAX)
        else:
            offset = (_leading_number(text[skip:]) - bottom) * _RING_SIZE // width
            positions.append(min(offset, RING_MAX))
    return positions


def _common_prefix(left: str, right: str) -> int:
    """Count the code points with which both texts begin."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _leading_number(text: str) -> int:
    """Read the first bytes as digits of base 257, where an absent byte is zero."""
    number = 0
    data = text[:_DIGITS].encode("utf-8", "surrogatepass")[:_DIGITS]
    for byte in data:
        number = number * 257 + byte + 1
    return number * int(257 ** (_DIGITS - len(data)))
