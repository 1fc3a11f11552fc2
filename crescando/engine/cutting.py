"""Long answers are cut into pieces, so that no message of results is large.

Rules of the file: a piece is a run of the rows (or groups) of several reads, laid
end to end; where it is cut lies inside a read, which then goes on in the next
piece. What rows weigh is a function of their values alone, so that a read's
size, and whether it is too much, does not depend on who shares its scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crescando.engine.keys import I64
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Value

PIECE_BYTES = 8 << 20
"""About what one piece weighs: enough to be carried well, little enough to let others between."""

ANSWER_BYTES_MAX = 256 << 20
"""What the answer of one read over one process's scope may weigh; beyond it the read fails, alone."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One piece: rows ``start:stop``, reads ``first:last`` of which it holds some.

    Attributes
    ----------
    start, stop, first, last : int
    part : int
        How many pieces of its first read's answer come before.
    has_more : bool
        Whether its last read's answer goes on in the next piece.
    """

    start: int
    stop: int
    first: int
    last: int
    part: int
    has_more: bool


def weights(values: Sequence[Value], n_rows: int) -> I64:
    """Give what each row weighs in bytes: its values, with the texts in full.

    Rows of which all together are at most one piece are given as weighing nothing.
    """
    weight = np.zeros(n_rows, np.int64)
    if are_light(values, n_rows):
        return weight
    for value in values:
        # By type: how narrow codes are kept, and whether a mask is, depends on the layout.
        weight += PHYSICAL[value.type].itemsize + 1
        if value.pool is not None:
            codes = np.ascontiguousarray(value.data, np.int32)
            if value.valid is not None:
                codes = np.where(value.valid, codes, np.int32(-1))
            value.pool.add_lengths(weight, codes)
    return weight


def are_light(values: Sequence[Value], n_rows: int) -> bool:
    """Say whether rows are certainly one piece at most, all of them together."""
    return sum(map(_weight_max, values)) * n_rows <= PIECE_BYTES


def _weight_max(value: Value) -> int:
    """Give at least what any row of a value weighs."""
    return PHYSICAL[value.type].itemsize + 1 + (0 if value.pool is None else value.pool.longest)


def sums(weight: I64, offsets: I64) -> I64:
    """Give what the rows of each read weigh together."""
    ends = np.append(0, np.cumsum(weight))
    total: I64 = ends[offsets[1:]] - ends[offsets[:-1]]
    return total


def cut(weight: I64, offsets: I64) -> Iterator[Cut]:
    """Cut reads' rows into pieces.

    Parameters
    ----------
    weight : ndarray of int64, shape (n_rows,)
    offsets : ndarray of int64, shape (n_reads + 1,)
        From 0 to `n_rows`.
    """
    n_rows, n_reads = len(weight), len(offsets) - 1
    ends = np.cumsum(weight)
    if n_rows == 0 or int(ends[-1]) <= PIECE_BYTES:
        yield Cut(0, n_rows, 0, n_reads, 0, False)
        return
    # The row on which a multiple of the piece's size falls ends its piece.
    marks = np.arange(1, int(ends[-1]) // PIECE_BYTES + 1) * PIECE_BYTES
    inner = np.unique(np.searchsorted(ends, marks) + 1)
    bounds = [0, *(bound for bound in inner.tolist() if bound < n_rows), n_rows]
    begins, finishes = offsets[:-1], offsets[1:]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        # A read without rows belongs to the piece that begins where it lies, or to the last one.
        first = int(min(np.searchsorted(finishes, start, "right"), np.searchsorted(begins, start)))
        last = n_reads if stop == n_rows else int(np.searchsorted(begins, stop))
        origin = int(begins[first])
        part = number - (int(np.searchsorted(bounds, origin, "right")) - 1) if origin < start else 0
        yield Cut(start, stop, first, last, part, bool(finishes[last - 1] > stop))
