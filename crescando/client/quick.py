"""Filling the parameters of one plan from plain values, one operation or a whole batch at a time.

Rules of the file: what comes out is exactly what `crescando.client.slot.fill`
gives; whatever is not plain, or does not fit, is left to that, which also says
what is wrong. Plain are tuples of exact built-in types, and most values are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crescando.client.constant import INT64_MAX, INT64_MIN
from crescando.client.slot import (
    PLAIN_TYPES,
    Slot,
    filled,
    quick_filler,
    quick_integer,
    quick_text,
)

Parameters = tuple[Any, ...]

Signature = tuple[type, ...]
"""The exact types of an operation's values, in order."""


class QuickFill:
    """Fills the slots of a plan from tuples of one signature.

    Parameters
    ----------
    slots : sequence of Slot
        None of them a list's.
    signature : Signature
    """

    def __init__(self, slots: Sequence[Slot], signature: Signature) -> None:
        self._fillers = [_filler(slot, signature) for slot in slots]
        places = [place for place, _ in self._fillers]
        checks = {filler for _, filler in self._fillers}
        self._is_as_given = places == list(range(len(signature))) and checks <= {quick_integer, quick_text}
        self._lone = self._fillers[0][1] if self._is_as_given and len(places) == 1 else None

    def fill(self, values: tuple[Any, ...]) -> Parameters:
        """Give the parameters of one operation, as `fill` of the slots.

        Raises
        ------
        Rebind, TypeMismatchError
        """
        if self._lone is not None:
            self._lone(values[0])
            return values
        if self._is_as_given:
            for (_, check), value in zip(self._fillers, values, strict=True):
                check(value)
            return values
        return tuple([filler(values[place]) for place, filler in self._fillers])

    def fill_all(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Give the parameters of many operations, column by column, as their values come.

        Raises
        ------
        Rebind, TypeMismatchError
        """
        return [_column(filler, columns[place]) for place, filler in self._fillers]


def quick_fill(slots: Sequence[Slot], signature: Signature, n_keys: int) -> QuickFill | None:
    """Give what fills slots quickly, if values of a signature allow it."""
    is_plain = n_keys == len(signature) and PLAIN_TYPES.issuperset(signature)
    if not is_plain or not slots or any(slot.many for slot in slots):
        return None
    return QuickFill(slots, signature)


def signature_of(columns: Sequence[Sequence[Any]]) -> Signature | None:
    """Give the types of values that come column by column, if each column has one type."""
    kinds = [set(map(type, column)) for column in columns]
    return None if any(len(each) != 1 for each in kinds) else tuple(each.pop() for each in kinds)


def _filler(slot: Slot, signature: Signature) -> tuple[int, Callable[[Any], Any]]:
    """Give which value a slot takes, and what makes it a parameter."""
    if slot.is_fixed:
        return 0, partial(_fixed, slot.stored)
    place = slot.source.key
    return place, quick_filler(slot, signature[place]) or partial(filled, slot)


def _fixed(stored: Any, _: object) -> Any:
    return stored


def _column(filler: Callable[[Any], Any], values: Sequence[Any]) -> Sequence[Any]:
    """Apply a filler to many values, all at once where one look at them is enough."""
    if filler is quick_integer and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
        return values
    if filler is quick_text and all(map(str.isascii, values)):
        return values
    return list(map(filler, values))
