"""Order-free digests of logical rows: equal exactly where the rows are, as far as anyone can tell.

Rules of the file: a digest depends on values alone: not on codes, slots,
segments or the order in which rows lie. Rows are hashed column by column over
canonical words (one zero, one NaN, strings by content) and summed, twice with
different seeds; a sum, unlike an exclusive or, also counts duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.texts import mix
from crescando.engine.partition import canonical_words, hash_list
from crescando.engine.statement import Column

U64 = NDArray[np.uint64]

_SEEDS = (0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344)
_NULL = np.uint64(0xA409_3822_299F_31D0)
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)


def digest_columns(columns: Sequence[Column]) -> bytes:
    """Give the digest of some rows.

    Parameters
    ----------
    columns : sequence of Column, each of n_rows values
        All columns in the schema's order.

    Returns
    -------
    bytes
        24 bytes: two sums and the number of rows. Digests of disjoint sets of rows
        are combined by `combine`.
    """
    n_rows = len(columns[0])
    if not n_rows:
        return _pack(0, 0, 0)
    states: list[U64] = [np.full(n_rows, seed, np.uint64) for seed in _SEEDS]
    for column in columns:
        words = _column_words(column)
        states = [mix((state ^ words) + _STEP) for state in states]
    first, second = (int(np.add.reduce(state)) for state in states)
    return _pack(first, second, n_rows)


def combine(digests: Sequence[bytes]) -> bytes:
    """Give the digest of the union of disjoint sets of rows."""
    totals = [0, 0, 0]
    for digest in digests:
        for place in range(3):
            part = int.from_bytes(digest[8 * place : 8 * place + 8], "little")
            totals[place] = (totals[place] + part) & 0xFFFF_FFFF_FFFF_FFFF
    return _pack(*totals)


def _pack(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def _column_words(column: Column) -> U64:
    if column.type.is_textual:
        if not column.dictionary:
            words = np.zeros(len(column), np.uint64)
        else:
            texts = hash_list(column.texts, 0)
            codes = column.values if column.valid is None else np.where(column.valid, column.values, 0)
            words = texts[codes]
    else:
        words = mix(canonical_words(column.type, column.values))
    if column.valid is not None:
        words = np.where(column.valid, words, _NULL)
    return words
