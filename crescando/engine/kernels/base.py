"""What a set of kernels offers; `plain` says what each one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.coding import CodeKernels
from crescando.engine.kernels.counting import CountKernels
from crescando.engine.kernels.texts import TextKernels

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Physical = NDArray[Any]
"""A column's integers as they lie in memory: one to eight bytes, signed, or bools as uint8."""


class Kernels(NamedTuple):
    """One set of kernels.

    Each attribute is the function of the same name in `crescando.engine.kernels.plain`,
    `crescando.engine.kernels.searching` or `crescando.engine.kernels.posting`, or its twin.

    Attributes
    ----------
    name : str
    intervals_alone : int
        So many intervals are tested one by one, faster than any is looked up (measured).
    """

    name: str
    intervals_alone: int
    find_few: Callable[[Physical, I64], tuple[I64, I64]]
    find_between: Callable[[Physical, int, int], I64]
    find_direct: Callable[[Physical, int, U64, I32], tuple[I64, I64]]
    find_hashed: Callable[[Physical, int, U64, I64, I64], tuple[I64, I64]]
    find_intervals: Callable[[Physical, int, int, U64, I64, I64, I64], tuple[I64, I64]]
    fold: Callable[[U64, Physical, int], None]
    within: Callable[[Physical, I64, I64, I64, I64], Mask]
    pair_up: Callable[[I64, I64, I64, I64, I64], tuple[I64, I64]]
    post_direct: Callable[[I64, I64, int, int], tuple[U64, I32, I64, I64, I64]]
    append_digit: Callable[[NDArray[Any], Physical, int, int, int], None]
    pair_within: Callable[[I64, I64, I64, I64, I64, Physical, I64, I64], tuple[I64, I64]]
    group_order: Callable[[I64, int], tuple[I64, I64]]
    search_order: Callable[[U8, NDArray[Any], I32, U64, U8, I64, I64, Mask], tuple[I64, I64]]
    group_places: Callable[[I64, int], tuple[I64, I64]]
    scatter: Callable[[Physical, I64, Physical, I64], None]
    take_bits: Callable[[U8, I64], Mask]
    divide: Callable[[Physical, int, NDArray[np.float64]], None]
    pack: Callable[[Physical, Mask, int, int, Physical], bool]
    pack_bytes: Callable[[Physical, Mask, int, int, U8], bool]
    widen_bytes: Callable[[U8, int, int, Physical], None]
    take_bytes: Callable[[U8, I64, int, int, Physical], None]
    widen: Callable[[Physical, int, int, Physical], None]
    number_codes: Callable[[I32, int], tuple[I32, I32]]
    add_lengths: Callable[[I64, NDArray[Any], I32], None]
    texts: TextKernels
    codes: CodeKernels
    counts: CountKernels
