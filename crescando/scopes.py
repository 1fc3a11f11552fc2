"""Arithmetic of ring ranges.

Rules of the file: ranges are closed, and those of one argument or result are disjoint and
ascending; only `merged` takes any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from crescando.types import KeyRange, Scope


def subtract(ranges: Sequence[KeyRange], scope: Scope) -> list[KeyRange]:
    """Take a scope off some ranges."""
    left = list(ranges)
    for low, high in scope:
        if not left:
            break
        kept: list[KeyRange] = []
        for key_range in left:
            if high < key_range.low or low > key_range.high:
                kept.append(key_range)
                continue
            if key_range.low < low:
                kept.append(KeyRange(key_range.low, low - 1))
            if key_range.high > high:
                kept.append(KeyRange(high + 1, key_range.high))
        left = kept
    return left


def merged(ranges: Iterable[KeyRange]) -> Scope:
    """Give some ranges, which may overlap, as the fewest that hold the same positions."""
    found: list[KeyRange] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1].high + 1:
            found[-1] = KeyRange(found[-1].low, max(found[-1].high, high))
        else:
            found.append(KeyRange(low, high))
    return tuple(found)


def common(ranges: Sequence[KeyRange], scope: Sequence[KeyRange]) -> list[KeyRange]:
    """Give the positions that lie in both."""
    return [
        KeyRange(max(a.low, b.low), min(a.high, b.high))
        for a in ranges
        for b in scope
        if a.low <= b.high and b.low <= a.high
    ]


def covers(scope: Sequence[KeyRange], ranges: Sequence[KeyRange]) -> bool:
    """Say whether all positions of some ranges lie in a scope."""
    return not subtract(ranges, tuple(scope))


def cut(ranges: Sequence[KeyRange], borders: Sequence[int]) -> Scope:
    """Cut ranges in two wherever one of some positions, ascending, would not be the first of its range."""
    pieces: list[KeyRange] = []
    for low, high in ranges:
        for border in borders[bisect_right(borders, low) : bisect_right(borders, high)]:
            pieces.append(KeyRange(low, border - 1))
            low = border
        pieces.append(KeyRange(low, high))
    return tuple(pieces)
