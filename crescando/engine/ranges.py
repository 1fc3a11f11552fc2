"""Which ring ranges a statement can touch: routing's view of a predicate.

Rules of the file: the answer may be too wide, never too narrow. A row outside
the ranges must make the predicate FALSE or UNKNOWN, so that it is neither
matched nor an error; anything not understood is the whole ring. Uses: a client
states the ranges of each operation; the predicate is evaluated in full anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.partition import positions_of, spread_position
from crescando.engine.statement import PHYSICAL, Apply, ColumnRef, Parameter, Scalar, Term
from crescando.schema import DataType, RangePartition, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange

RANGES_MAX = 64
"""More ranges than this are merged with their nearest neighbours: headers stay small."""

Ranges = tuple[KeyRange, ...]

_FULL: Ranges = (FULL_RING,)
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def key_ranges(schema: TableSchema, where: Term | None, parameters: tuple[Any, ...]) -> Ranges:
    """Give the ring ranges that a predicate can touch.

    Parameters
    ----------
    schema : TableSchema
        With catalog ids.
    where : Term or None
    parameters : tuple
        Physical constants, as in `Operation.parameters`.

    Returns
    -------
    tuple of KeyRange
        Disjoint, ascending, closed, at most `RANGES_MAX`, never empty: a
        predicate that no row can satisfy touches one position, so that
        somebody answers.
    """
    found = _FULL if where is None else _touched(schema, where, parameters)
    return merge_neighbours(found) if found else (KeyRange(0, 0),)


def ranges_of_positions(positions: NDArray[np.uint64]) -> Ranges:
    """Give ranges that cover the given ring positions (those of inserted rows)."""
    if len(positions) == 0:
        return (KeyRange(0, 0),)
    ordered = np.sort(positions)
    unique = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    if len(unique) > RANGES_MAX:
        gaps = np.diff(unique)
        cuts = np.sort(np.argpartition(gaps, -(RANGES_MAX - 1))[-(RANGES_MAX - 1) :])
    else:
        cuts = np.arange(len(unique) - 1)
    lows = unique[np.concatenate(([0], cuts + 1))]
    highs = unique[np.concatenate((cuts, [len(unique) - 1]))]
    return tuple(KeyRange(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True))


def unite(left: Ranges, right: Ranges) -> Ranges:
    """Give the union of two lists of ranges."""
    merged: list[KeyRange] = []
    for low, high in sorted((*left, *right)):
        if merged and low <= merged[-1].high + 1:
            merged[-1] = KeyRange(merged[-1].low, max(high, merged[-1].high))
        else:
            merged.append(KeyRange(low, high))
    return tuple(merged)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """Give the intersection of two lists of disjoint ascending ranges."""
    shared: list[KeyRange] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i].low, right[j].low), min(left[i].high, right[j].high)
        if low <= high:
            shared.append(KeyRange(low, high))
        if left[i].high < right[j].high:
            i += 1
        else:
            j += 1
    return tuple(shared)


def merge_neighbours(ranges: Ranges) -> Ranges:
    """Bring disjoint ascending ranges down to `RANGES_MAX` by closing the smallest gaps."""
    surplus = len(ranges) - RANGES_MAX
    if surplus <= 0:
        return ranges
    lows = np.fromiter((key_range.low for key_range in ranges), np.uint64, len(ranges))
    highs = np.fromiter((key_range.high for key_range in ranges), np.uint64, len(ranges))
    gaps = lows[1:] - highs[:-1]
    kept = np.sort(np.argsort(gaps, kind="stable")[surplus:])
    starts = lows[np.concatenate(([0], kept + 1))].tolist()
    return tuple(map(KeyRange, starts, highs[np.concatenate((kept, [-1]))].tolist()))


def number_of(kind: DataType, value: Any) -> Any:
    """Give a physical constant as the number that it is; only decimals differ from it."""
    return value if value is None or not kind.is_decimal else Fraction(value, 10**kind.scale)


def key_constant(kind: DataType, value: Scalar | Fraction) -> Scalar:
    """Fold a constant (see `number_of`) into a column type's own physical values; None if none equals it."""
    if value is None or kind.is_textual or kind is DataType.BOOL:
        return value  # type: ignore[return-value]
    if kind.is_float:
        return _float_constant(kind, value)
    if isinstance(value, int) and not kind.is_decimal:
        bounds = np.iinfo(PHYSICAL[kind])
        return value if bounds.min <= value <= bounds.max else None
    if isinstance(value, (str, bytes)) or not math.isfinite(value):
        return None
    units = Fraction(value) * 10**kind.scale
    if units.denominator != 1:
        return None
    if kind.is_decimal:
        return int(units) if abs(units) < 10**kind.precision else None
    return key_constant(kind, int(units))


def _float_constant(kind: DataType, value: Scalar | Fraction) -> float | None:
    try:
        wide = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    if isinstance(value, (int, Fraction)) and wide != value:
        return None
    with np.errstate(over="ignore"):
        narrow = float(PHYSICAL[kind].type(wide))
    return wide if narrow == wide or wide != wide else None


def _touched(schema: TableSchema, term: Term, parameters: tuple[Any, ...]) -> Ranges:
    if not isinstance(term, Apply):
        return _FULL
    if term.op == "and":
        found = _FULL
        for argument in term.args:
            found = intersect(found, _touched(schema, argument, parameters))
        return found
    if term.op == "or":
        found = ()
        for argument in term.args:
            found = unite(found, _touched(schema, argument, parameters))
            if found == _FULL:
                break
        return found
    if len(term.args) != 2:
        return _FULL
    left, right, op = term.args[0], term.args[1], term.op
    if isinstance(left, Parameter) and isinstance(right, ColumnRef) and op in _FLIPPED:
        left, right, op = right, left, _FLIPPED[op]
    if not (isinstance(left, ColumnRef) and isinstance(right, Parameter)):
        return _FULL
    if left.column != schema.column(schema.partition_key).id:
        return _FULL
    constant = parameters[right.index]
    if right.many:
        return _compared(schema, op, tuple(number_of(right.type, each) for each in constant))
    return _compared(schema, op, number_of(right.type, constant))


def _compared(schema: TableSchema, op: str, constant: Any) -> Ranges:
    """Give what ``key op constant`` can touch."""
    if op == "in":
        return _equal(schema, constant)
    if op not in _FLIPPED:
        return _FULL
    if constant is None:
        return ()
    if op == "=":
        return _equal(schema, (constant,))
    if not isinstance(schema.partition, RangePartition):
        return _FULL
    bound = spread_position(schema.partition, constant)
    if op in ("<", "<="):
        return (KeyRange(0, bound),)
    return (KeyRange(bound, RING_MAX),)


def _equal(schema: TableSchema, constants: Iterable[Any]) -> Ranges:
    """Give where keys lie that equal one of some constants; they may be very many."""
    kind = schema.column(schema.partition_key).type
    folded = {key_constant(kind, constant) for constant in constants} - {None}
    if not folded:
        return ()
    points = np.unique(positions_of(schema, list(folded))).tolist()
    return tuple(map(KeyRange, points, points))
