"""Ring positions of stored rows that are worked out from their keys instead of being kept.

Rules of the file: a key is never changed, and where it lies follows from it alone (`engine/partition.py`),
so positions take no memory where working them out costs little. Who asks gives rows, and gets
what an array of all positions would hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine.packed import Lane, Packed

U64 = NDArray[np.uint64]


class Placing(NamedTuple):
    """How rows of a table are placed.

    Attributes
    ----------
    column_id : int
        Of the partition key.
    positions : callable
        Gives the ring positions of key values, none of which is NULL.
    """

    column_id: int
    positions: Callable[[NDArray[Any]], U64]


class Placed(Packed):
    """The ring positions of rows, by their keys.

    Parameters
    ----------
    keys : Lane
    positions : callable
        See `Placing`.
    """

    __slots__ = ("_keys", "_positions")

    dtype = np.dtype(np.uint64)

    def __init__(self, keys: Lane, positions: Callable[[NDArray[Any]], U64]) -> None:
        self._keys = keys
        self._positions = positions

    def __getitem__(self, rows: NDArray[Any] | slice) -> U64:
        """Give the positions of some rows."""
        return self._positions(self._keys[rows])

    def parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give no arrays, as it has none of its own."""
        return []
