"""Order keys: every physical value as an ``int64`` that sorts as the value does.

Rules of the file: exactness. ``NaN = NaN`` and lies above ``+inf``; ``-0.0 =
0.0``; integers, decimals and floats are compared as the numbers they are, never
through a rounded copy. A comparison of a column with a constant becomes a closed
interval of keys, which is all a predicate index needs to know.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.scaled import compare_floats, compare_units, floor_to, floor_units, grow_to, to_floats

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

KEY_MIN, KEY_MAX = -(1 << 63), (1 << 63) - 1


def float_keys(values: NDArray[Any]) -> I64:
    """Map floats to integers in the same order: IEEE bits with negatives mirrored."""
    wide = values.astype(np.float64) + 0.0  # Adding zero turns -0.0 into 0.0.
    bits = wide.view(np.int64)
    keys = bits ^ ((bits >> np.int64(63)) & np.int64(KEY_MAX))
    nan = np.isnan(wide)
    if nan.any():
        keys[nan] = KEY_MAX - 1
    result: I64 = keys
    return result


def order_keys(values: NDArray[Any]) -> I64:
    """Map physical numbers (bools, dates and timestamps too) to order keys."""
    if values.dtype.kind == "f":
        return float_keys(values)
    return values.astype(np.int64, copy=False)


def less_than(left: NDArray[Any], right: NDArray[Any], left_scale: int = 0, right_scale: int = 0) -> Mask:
    """Give where ``left < right`` for physical numbers of any types; decimals come with their scale."""
    mask: Mask
    left_real, right_real = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_real and right_real:
        mask = (left < right) | (np.isnan(right) & ~np.isnan(left))
    elif right_real:
        mask = compare_floats(left, right, left_scale) < 0
    elif left_real:
        mask = compare_floats(right, left, right_scale) > 0
    elif left_scale != right_scale:
        mask = compare_units(left, right, left_scale, right_scale) < 0
    else:
        mask = left < right
    return mask


def equal_to(left: NDArray[Any], right: NDArray[Any], left_scale: int = 0, right_scale: int = 0) -> Mask:
    """Give where ``left = right`` for physical numbers of any types; decimals come with their scale."""
    mask: Mask
    left_real, right_real = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_real and right_real:
        mask = (left == right) | (np.isnan(left) & np.isnan(right))
    elif right_real:
        mask = compare_floats(left, right, left_scale) == 0
    elif left_real:
        mask = compare_floats(right, left, right_scale) == 0
    elif left_scale != right_scale:
        mask = compare_units(left, right, left_scale, right_scale) == 0
    else:
        mask = left == right
    return mask


def key_intervals(
    column_is_float: bool,
    op: str,
    constants: NDArray[Any],
    column_scale: int = 0,
    constant_scale: int = 0,
) -> tuple[I64, I64]:
    """Turn ``column op constant`` into closed intervals of the column's order keys.

    Parameters
    ----------
    column_is_float : bool
        Whether the column holds floats; otherwise whole numbers, decimals,
        dates, timestamps or bools.
    op : str
        One of ``= < <= > >=``.
    constants : ndarray, shape (n,)
        Physical constants of any comparable type, none of them NULL.
    column_scale, constant_scale : int
        Of decimals; 0 for everything else.

    Returns
    -------
    low, high : ndarray of int64, shape (n,)
        The interval is empty where ``low > high``.
    """
    if column_is_float:
        at, above, below = _locate_in_floats(constants, constant_scale)
    else:
        at, above, below = _locate_in_units(constants, constant_scale, column_scale)
    # `at` is the key of the constant itself, or, if the column cannot hold the
    # constant, the nearest key above it (`above`) or below it (`below`).
    n = len(constants)
    low = np.full(n, KEY_MIN, np.int64)
    high = np.full(n, KEY_MAX, np.int64)
    exact = ~above & ~below
    if op == "=":
        low = np.where(exact, at, 1)
        high = np.where(exact, at, 0)
    elif op in ("<", "<="):
        include = below | (exact if op == "<=" else False)
        high, impossible = _step(at, ~include, -1)
        low = np.where(impossible, 1, low)
        high = np.where(impossible, 0, high)
    else:
        include = above | (exact if op == ">=" else False)
        low, impossible = _step(at, ~include, 1)
        low = np.where(impossible, 1, low)
        high = np.where(impossible, 0, high)
    return low, high


def _step(at: I64, move: Mask, by: int) -> tuple[I64, Mask]:
    """Move some bounds by one key; those already at the end leave nothing."""
    end = KEY_MIN if by < 0 else KEY_MAX
    impossible = move & (at == end)
    return at + np.where(move & ~impossible, by, 0), impossible


def _locate_in_units(constants: NDArray[Any], scale: int, column_scale: int) -> tuple[I64, Mask, Mask]:
    none = np.zeros(len(constants), np.bool_)
    if constants.dtype.kind == "f":
        at, cut, too_low, too_high = floor_units(constants, column_scale)
    elif scale > column_scale:
        at, cut = floor_to(constants, scale, column_scale)
        return at, none, cut
    else:
        at, too_low, too_high = grow_to(constants, scale, column_scale)
        cut = none
    at[too_high] = KEY_MAX
    at[too_low] = KEY_MIN
    return at, too_low, too_high | (cut & ~too_low)


def _locate_in_floats(constants: NDArray[Any], scale: int) -> tuple[I64, Mask, Mask]:
    if constants.dtype.kind == "f":
        none = np.zeros(len(constants), np.bool_)
        return float_keys(constants), none, none
    nearest = to_floats(constants, scale)
    side = compare_floats(constants, nearest, scale)
    return float_keys(nearest), side < 0, side > 0
