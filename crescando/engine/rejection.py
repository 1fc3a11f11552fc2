"""Which of many failed rows is told: the one with the smallest key, then the smallest cause.

Rules of the file: the choice depends on keys and causes alone, never on where
rows lie or in which order they were met. NULL (in a key that was refused) is
below every value; floats are ordered with NaN last; texts by code point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crescando.engine.functions import Cause
from crescando.engine.keys import I64, float_keys
from crescando.engine.statement import Scalar
from crescando.engine.values import Errors, Value


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed row.

    Attributes
    ----------
    rank : tuple
        Compares as (key, cause) does.
    key : tuple of scalar
    cause : Cause
    """

    rank: tuple[Any, ...]
    key: tuple[Scalar, ...]
    cause: Cause


class Failures:
    """The smallest failure of each of many groups, and how many rows failed."""

    def __init__(self) -> None:
        self.smallest: dict[int, Failure] = {}
        self.counts: dict[int, int] = {}

    def add(self, groups: I64, keys: Sequence[Value], causes: Errors) -> None:
        """Add failed rows.

        Parameters
        ----------
        groups : ndarray of int64, shape (n,)
        keys : sequence of Value, each of shape (n,)
            The rows' key columns.
        causes : ndarray of uint8, shape (n,)
        """
        columns: list[Any] = [causes]
        for value in reversed(keys):
            columns.append(value.keys())
            if value.valid is not None:
                columns[-1] = np.where(value.valid, columns[-1], 0)
                columns.append(value.valid)
        order = np.lexsort((*columns, groups))
        ordered = groups[order]
        starts = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0]
        counts = np.diff(np.append(starts, len(ordered)))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            row, group = int(order[start]), int(ordered[start])
            self.counts[group] = self.counts.get(group, 0) + count
            self._note(group, failure_of(keys, row, Cause(int(causes[row]))))

    def join(self, others: Failures) -> None:
        """Add what failed elsewhere."""
        for group, count in others.counts.items():
            self.counts[group] = self.counts.get(group, 0) + count
            self._note(group, others.smallest[group])

    def _note(self, group: int, failure: Failure) -> None:
        known = self.smallest.get(group)
        if known is None or failure.rank < known.rank:
            self.smallest[group] = failure


def failure_of(keys: Sequence[Value], row: int, cause: Cause) -> Failure:
    """Give one row's failure."""
    key: list[Scalar] = []
    rank: list[Any] = []
    for value in keys:
        if value.valid is not None and not value.valid[row]:
            key.append(None)
            rank.append((0,))
            continue
        item = value.data[row].item()
        if value.type.is_textual:
            # One text of a pool that may have millions.
            (item,) = value.strings().decode(value.data[row : row + 1])
            rank.append((1, item))
        elif value.type.is_float:
            rank.append((1, int(float_keys(value.data[row : row + 1])[0])))
        else:
            rank.append((1, item))
        key.append(item)
    return Failure((*rank, int(cause)), tuple(key), cause)
