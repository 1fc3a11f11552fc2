"""Order keys: every physical value as an ``int64`` that sorts as the value does.

Rules of the file: exactness. ``NaN = NaN`` and lies above ``+inf``; ``-0.0 =
0.0``; int64 and float64 are compared as the numbers they are, never through a
rounded copy. A comparison of a column with a constant becomes a closed
interval of keys, which is all a predicate index needs to know.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

KEY_MIN, KEY_MAX = -(1 << 63), (1 << 63) - 1

_TWO_63 = 9223372036854775808.0
_EXACT = 1 << 53
"""Every whole number up to this magnitude is a float64."""


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


def compare_mixed(whole: NDArray[Any], real: NDArray[Any]) -> NDArray[np.int8]:
    """Compare integers with floats exactly: -1, 0 or 1 as ``whole`` is below, equal or above."""
    integers = whole.astype(np.int64, copy=False)
    floats = real.astype(np.float64, copy=False)
    below = (floats >= _TWO_63) | np.isnan(floats)
    above = floats < -_TWO_63
    bounded = np.where(below | above, 0.0, floats)
    floor = np.floor(bounded)
    floor_integers = floor.astype(np.int64)
    less = integers < floor_integers
    same = integers == floor_integers
    fraction = bounded > floor
    less = less | (same & fraction) | below
    equal = same & ~fraction & ~below & ~above
    return np.where(above, 1, np.where(less, -1, np.where(equal, 0, 1))).astype(np.int8)


def less_than(left: NDArray[Any], right: NDArray[Any]) -> Mask:
    """Give where ``left < right`` for physical numbers of any types."""
    mask: Mask
    left_real, right_real = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_real and right_real:
        mask = (left < right) | (np.isnan(right) & ~np.isnan(left))
    elif right_real:
        mask = compare_mixed(left, right) < 0
    elif left_real:
        mask = compare_mixed(right, left) > 0
    else:
        mask = left < right
    return mask


def equal_to(left: NDArray[Any], right: NDArray[Any]) -> Mask:
    """Give where ``left = right`` for physical numbers of any types."""
    mask: Mask
    left_real, right_real = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_real and right_real:
        mask = (left == right) | (np.isnan(left) & np.isnan(right))
    elif right_real:
        mask = compare_mixed(left, right) == 0
    elif left_real:
        mask = compare_mixed(right, left) == 0
    else:
        mask = left == right
    return mask


def key_intervals(column_is_float: bool, op: str, constants: NDArray[Any]) -> tuple[I64, I64]:
    """Turn ``column op constant`` into closed intervals of the column's order keys.

    Parameters
    ----------
    column_is_float : bool
        Whether the column holds floats; otherwise whole numbers, dates,
        timestamps or bools.
    op : str
        One of ``= < <= > >=``.
    constants : ndarray, shape (n,)
        Physical constants of any comparable type, none of them NULL.

    Returns
    -------
    low, high : ndarray of int64, shape (n,)
        The interval is empty where ``low > high``.
    """
    if column_is_float:
        at, above, below = _locate_in_floats(constants)
    else:
        at, above, below = _locate_in_integers(constants)
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


def _locate_in_integers(constants: NDArray[Any]) -> tuple[I64, Mask, Mask]:
    if constants.dtype.kind != "f":
        none = np.zeros(len(constants), np.bool_)
        return constants.astype(np.int64), none, none
    too_high = (constants >= _TWO_63) | np.isnan(constants)
    too_low = constants < -_TWO_63
    bounded = np.where(too_high | too_low, 0.0, constants)
    floor = np.floor(bounded)
    at = floor.astype(np.int64)
    at[too_high] = KEY_MAX
    at[too_low] = KEY_MIN
    below = too_high | (~too_low & (floor < bounded))
    return at, too_low, below


def _locate_in_floats(constants: NDArray[Any]) -> tuple[I64, Mask, Mask]:
    nearest = constants.astype(np.float64)
    at = float_keys(nearest)
    if constants.dtype.kind == "f":
        none = np.zeros(len(constants), np.bool_)
        return at, none, none
    side = compare_mixed(constants, nearest)
    return at, side < 0, side > 0
