"""Truth of a segment's rows, eight of them in a byte.

Rules of the file: rows that are read together are unpacked together, into a byte each, as masks
are everywhere else. Rows behind those in use share a byte with them: writing them leaves the
others as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.keys import I64, Mask
from crescando.engine.packed import Packed

U8 = NDArray[np.uint8]


class Bits(Packed):
    """One bit for every row of a segment, known by index as a mask is; the first row's is the lowest.

    Attributes
    ----------
    packed : ndarray of uint8
    """

    __slots__ = ("packed",)

    dtype = np.dtype(np.bool_)

    def __init__(self, packed: U8) -> None:
        self.packed = packed

    @staticmethod
    def of(capacity: int, is_set: bool) -> Bits:
        """Give bits that are all set, or none of which is."""
        return Bits(np.full(-(-capacity // 8), 0xFF if is_set else 0, np.uint8))

    def __getitem__(self, rows: NDArray[Any] | slice) -> Mask:
        """Give the bits of some rows."""
        if not isinstance(rows, slice):
            return kernels.active().take_bits(self.packed, np.ascontiguousarray(rows, np.int64))
        start, stop, _ = rows.indices(8 * len(self.packed))
        first = start // 8
        unpacked = np.unpackbits(self.packed[first : -(-stop // 8)], bitorder="little")
        return unpacked[start - 8 * first : max(stop, start) - 8 * first].view(np.bool_)

    def put(self, rows: I64 | slice, values: Mask | None) -> None:
        """Write the bits of some rows, or set them if no values are given."""
        if not isinstance(rows, slice):
            places, bit = rows >> 3, np.uint8(1) << (rows & 7).astype(np.uint8)
            kept = bit if values is None else np.where(values, bit, np.uint8(0))
            np.bitwise_and.at(self.packed, places, ~bit)
            np.bitwise_or.at(self.packed, places, kept)
            return
        first, stop = rows.start // 8, -(-rows.stop // 8)
        whole = np.unpackbits(self.packed[first:stop], bitorder="little")
        whole[rows.start - 8 * first : rows.stop - 8 * first] = True if values is None else values
        self.packed[first:stop] = np.packbits(whole, bitorder="little")

    def parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give the array that it lies in; see `Packed.parts`."""
        return [(self.packed, -(-n_rows // 8))]
