"""Codes of a segment's column in which nearly every row has a text that is new.

Rules of the file: texts get their codes one after the other as rows come in, so that a row's
code is mostly the one after the row before. Of those rows a bit is kept, and of 64 together the
code before theirs (`engine/kernels/counting.py`): a fifth of a byte a row. Rows
that are NULL say nothing and have any code that the pool has. Other rows, which are changed or
have a text that was there before, are *odd* and listed; if they are many, the column does not
lie like this any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.keys import I64, Mask
from crescando.engine.packed import Packed

I32 = NDArray[np.int32]

_WORD_ROWS = 64

_FEW = 16
"""One row in so many may be odd."""

_SOME_ROWS = 1_024
"""So many rows are looked at first, those in the middle."""

_NONE: I32 = np.zeros(0, np.int32)


class Counted(Packed):
    """Codes of one column, of rows that come one behind the other; made by `of`."""

    __slots__ = ("_bases", "_last", "_odd_codes", "_odd_rows", "_words")

    dtype = np.dtype(np.int32)

    def __init__(self, words: NDArray[np.uint64], bases: I32, last: int, rows: I32, codes: I32) -> None:
        self._words = words
        self._bases = bases
        self._last = last
        """The highest code that was counted up to."""
        self._odd_rows = rows
        self._odd_codes = codes

    @staticmethod
    def of(codes: NDArray[Any], valid: Mask | None, capacity: int) -> Counted | None:
        """Give the lane of a column with its first codes in it, or None if they do not count up."""
        n_words = -(-capacity // _WORD_ROWS)
        empty = Counted(np.empty(n_words, np.uint64), np.empty(n_words, np.int32), 0, _NONE, _NONE)
        start = max(len(codes) - _SOME_ROWS, 0) // 2
        some = slice(start, start + _SOME_ROWS)
        looked_at = empty.appended(0, codes[some], None if valid is None else valid[some])
        return None if looked_at is None else empty.appended(0, codes, valid)

    def appended(self, n_rows: int, codes: NDArray[Any], valid: Mask | None) -> Counted | None:
        """Give the lane with codes of rows behind those in use, or None if too many are odd."""
        codes = np.ascontiguousarray(codes, np.int32)
        mask = NO_MASK if valid is None else np.ascontiguousarray(valid)
        last, odd = kernels.active().counts.count_up(
            codes, mask, n_rows, self._last, self._words, self._bases
        )
        rows = np.append(self._odd_rows, odd.astype(np.int32))
        if _FEW * len(rows) > n_rows + len(codes):
            return None
        return Counted(self._words, self._bases, last, rows, np.append(self._odd_codes, codes[odd - n_rows]))

    def changed(self, rows: I64, codes: NDArray[Any], valid: Mask | None, n_rows: int) -> Counted | None:
        """Give the lane with other codes in some of the rows in use, or None if too many are odd."""
        differs = self[rows] != codes
        if valid is not None:
            differs &= valid
        merged = np.concatenate((rows[differs].astype(np.int32), self._odd_rows))
        # Of two that are of one row the first counts, which is the new one.
        odd_rows, first = np.unique(merged, return_index=True)
        if _FEW * len(odd_rows) > n_rows:
            return None
        odd_codes = np.concatenate((codes[differs].astype(np.int32), self._odd_codes))[first]
        return Counted(self._words, self._bases, self._last, odd_rows, odd_codes)

    def __getitem__(self, rows: NDArray[Any] | slice) -> I32:
        """Give the codes of some rows, copied."""
        made = kernels.active().counts
        if not isinstance(rows, slice):
            wide = np.ascontiguousarray(rows, np.int64)
            return made.take_counted(self._words, self._bases, self._odd_rows, self._odd_codes, wide)
        start, stop, _ = rows.indices(len(self._words) * _WORD_ROWS)
        codes: I32 = np.empty(max(stop - start, 0), np.int32)
        made.spread_counted(self._words, self._bases, start, codes)
        first, end = np.searchsorted(self._odd_rows, (start, start + len(codes))).tolist()
        codes[self._odd_rows[first:end] - start] = self._odd_codes[first:end]
        return codes

    def find(self, keys: I64, start: int, stop: int) -> tuple[I64, I64]:
        """Give the rows ``start:stop`` that have some codes, ascending, and the index of each one's code.

        As codes count up, it is known where each one is, and compiled kernels need not look at each row.

        Parameters
        ----------
        keys : ndarray of int64, shape (n,)
            Ascending, none twice.
        start, stop : int
            Rows in use.
        """
        if stop <= start or not len(keys):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows, places = kernels.active().counts.find_counted(self._words, self._bases, start, stop, keys)
        first, end = np.searchsorted(self._odd_rows, (start, stop)).tolist()
        if first == end:
            return rows, places
        odd, codes = self._odd_rows[first:end], self._odd_codes[first:end]
        kept = odd[np.minimum(np.searchsorted(odd, rows), len(odd) - 1)] != rows
        at = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
        more = (keys[at] == codes).nonzero()[0]
        rows, places = np.append(rows[kept], odd[more]), np.append(places[kept], at[more])
        order = np.argsort(rows)
        return rows[order], places[order]

    def parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give the arrays that it lies in; see `Packed.parts`."""
        n_words = -(-n_rows // _WORD_ROWS)
        counted = [(array, array.itemsize * n_words) for array in (self._words, self._bases)]
        return [*counted, *((array, array.nbytes) for array in (self._odd_rows, self._odd_codes))]
