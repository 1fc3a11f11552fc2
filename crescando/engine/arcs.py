"""The ring arcs of an engine: where positions lie in them, and what a scope covers of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crescando.engine.keys import I64, Mask
from crescando.errors import InvariantError
from crescando.types import RING_MAX, KeyRange, Scope

U64 = NDArray[np.uint64]

NONE, WHOLE, PART = 0, 1, 2
"""How much of an arc a scope covers."""


def checked_arcs(arcs: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Give arcs as they were stated.

    Raises
    ------
    InvariantError
        If they are not disjoint, ascending and within the ring.
    """
    stated = tuple(KeyRange(*arc) for arc in arcs)
    for low, high in stated:
        if not 0 <= low <= high <= RING_MAX:
            raise InvariantError(f"[{low}, {high}] is no arc of the ring")
    for left, right in pairwise(stated):
        if left.high >= right.low:
            raise InvariantError(f"arcs {left} and {right} are not disjoint and ascending")
    return stated


def arc_of(position: U64, arcs: Sequence[KeyRange]) -> I64:
    """Give the index of the arc each position lies in, or -1."""
    if not arcs:
        return np.full(len(position), -1)
    lows = np.array([arc.low for arc in arcs], np.uint64)
    highs = np.array([arc.high for arc in arcs], np.uint64)
    place = np.searchsorted(lows, position, side="right") - 1
    found: I64 = np.where((place >= 0) & (position <= highs[np.maximum(place, 0)]), place, -1)
    return found


def lie_in(position: U64, scope: Scope) -> Mask:
    """Say which positions lie in a scope; shape (n,)."""
    inside = np.zeros(len(position), np.bool_)
    for low, high in scope:
        inside |= (position >= np.uint64(low)) & (position <= np.uint64(high))
    return inside


def cover_arc(scope: Scope, arc: KeyRange) -> int:
    """Say whether a scope covers an arc not at all, wholly or in part."""
    low = arc.low
    touched = False
    for start, stop in scope:
        if stop < arc.low or start > arc.high:
            continue
        touched = True
        # Ascending ranges cover the arc wholly if no position is left between them.
        if start <= low:
            low = max(low, stop + 1)
    if low > arc.high:
        return WHOLE
    return PART if touched else NONE


def check_held(scope: Scope, arcs: Sequence[KeyRange]) -> None:
    """Check that every position of a scope lies in some arc.

    Raises
    ------
    InvariantError
        If one does not.
    """
    for key_range in scope:
        if cover_arc(tuple(arcs), key_range) != WHOLE:
            raise InvariantError(f"{key_range} does not lie in the arcs of this engine")
