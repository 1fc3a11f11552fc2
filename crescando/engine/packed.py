"""What a segment's column lies in if not in an array of its values.

Rules of the file: a packed lane is known by index as an array is, and gives values as the
column's type has them; nobody else knows how they lie in memory. It is never changed in place where
rows in use lie: who stores a value gets another lane, so that a still keeps the one that it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Packed(ABC):
    """Values of one column.

    Attributes
    ----------
    dtype : dtype
        What the values are given as.
    """

    __slots__ = ()

    dtype: np.dtype[Any]

    @abstractmethod
    def __getitem__(self, rows: NDArray[Any] | slice) -> NDArray[Any]:
        """Give the values of some rows, copied."""

    @abstractmethod
    def parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give the arrays that it lies in, and how many bytes of each the first rows take."""


Lane = NDArray[Any] | Packed
"""What a column's values lie in."""


def lane_parts(lane: Lane, n_rows: int) -> list[tuple[NDArray[Any], int]]:
    """Give the arrays of any lane; see `Packed.parts`."""
    return lane.parts(n_rows) if isinstance(lane, Packed) else [(lane, lane.itemsize * n_rows)]
