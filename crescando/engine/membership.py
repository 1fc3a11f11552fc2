"""IN: whether a value is in the list of its operation, for many operations at once.

Rules of the file: lists are folded into the value's own order keys exactly (a
constant that the type cannot hold is in no column), so that IN agrees with =
on every value: NaN, both zeros, full-length strings, int64 against float.
"""

from __future__ import annotations

import numpy as np

from crescando.engine.constants import Lists
from crescando.engine.keys import I64, Mask, key_intervals, order_keys
from crescando.engine.values import Value


def list_keys(value: Value, lists: Lists) -> tuple[I64, I64]:
    """Give the list values as keys of `value`'s type, and the operation each belongs to.

    For strings keys are codes of `value`'s pool. Constants that no value of the
    type equals are left out.
    """
    owners = np.repeat(np.arange(len(lists.offsets) - 1), np.diff(lists.offsets))
    constants = lists.values
    if value.type.is_textual:
        keys = constants.strings().codes_in(value.strings())[constants.data]
        keep = keys >= 0
    else:
        column, scale = value.type, constants.type.scale
        keys, high = key_intervals(column.is_float, "=", constants.data, column.scale, scale)
        keep = keys <= high
    return keys[keep], owners[keep]


def is_member(value: Value, lists: Lists, operations: I64 | int) -> Mask:
    """Give where values are in their operation's list; NULL and ERROR rows are arbitrary."""
    keys, owners = list_keys(value, lists)
    data = value.data.astype(np.int64) if value.type.is_textual else order_keys(value.data)
    if isinstance(operations, int):
        return _found(np.unique(keys[owners == operations]), data)
    distinct = np.unique(keys)
    if len(distinct) == 0:
        return np.zeros(len(operations), np.bool_)
    # A pair (operation, key) becomes one number, since keys are numbered densely.
    place = np.searchsorted(distinct, data)
    place[place == len(distinct)] = 0
    present = distinct[place] == data
    wanted = np.unique(owners * len(distinct) + np.searchsorted(distinct, keys))
    member: Mask = present & _found(wanted, operations * len(distinct) + place)
    return member


def _found(ordered: I64, data: I64) -> Mask:
    if len(ordered) == 0:
        return np.zeros(data.shape, np.bool_)
    place = np.searchsorted(ordered, data)
    place[place == len(ordered)] = 0
    found: Mask = ordered[place] == data
    return found
