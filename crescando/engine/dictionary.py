"""Strings as codes: pools of distinct texts, their order and translations between pools.

Rules of the file: a pool never forgets or moves a code, it only grows; texts
in one pool are distinct, so equal codes are equal strings over their full
length ("" , "\\0" and "a\\0" are three strings). Work on texts is done once per
distinct text, never once per row. Order is by code point, as Python compares.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


class Pool:
    """A growing list of distinct texts; a text's index is its code."""

    __slots__ = ("_index", "_order", "_ranks", "_sorted", "_translations", "n_bytes", "texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: list[str] = []
        self.n_bytes = 0
        self._index: dict[str, int] = {}
        self._order: list[int] = []
        self._sorted: list[str] = []
        self._ranks: I64 = np.zeros(0, np.int64)
        self._translations: dict[tuple[int, bool], tuple[Pool, int, int, I64]] = {}
        self.intern(texts)
        if not self.texts:
            self.intern(("",))  # Rows that are NULL carry code 0, which must exist.

    def __len__(self) -> int:
        return len(self.texts)

    def intern(self, texts: Iterable[str]) -> I64:
        """Give the code of each text, adding those that are new."""
        index, known = self._index, self.texts
        codes = []
        for text in texts:
            code = index.get(text)
            if code is None:
                code = index[text] = len(known)
                known.append(text)
                self.n_bytes += len(text)
            codes.append(code)
        return np.array(codes, np.int64)

    def find(self, text: str) -> int:
        """Give a text's code, or -1."""
        return self._index.get(text, -1)

    def ranks(self) -> I64:
        """Give each code's place in code point order; shape (len(self),), not to be changed."""
        self._sort()
        return self._ranks

    def sorted_texts(self) -> list[str]:
        """Give the texts in order; not to be changed."""
        self._sort()
        return self._sorted

    def _sort(self) -> None:
        done = len(self._order)
        if done == len(self.texts):
            return
        # The old order is one ascending run, so that sorting costs about one merge.
        order = self._order + sorted(range(done, len(self.texts)), key=self.texts.__getitem__)
        order.sort(key=self.texts.__getitem__)
        self._order = order
        self._sorted = [self.texts[code] for code in order]
        ranks = np.empty(len(order), np.int64)
        ranks[np.array(order, np.int64)] = np.arange(len(order))
        self._ranks = ranks

    def codes_in(self, other: Pool) -> I64:
        """Give for each of our codes the code of the same text in `other`, or -1."""
        return self._translated(other, False, other.find)

    def places_in(self, other: Pool) -> I64:
        """Give for each of our codes its place among the texts of `other`.

        The place of a text that `other` has is ``2 * rank + 1``; of another text
        the even number between its neighbours.
        """
        ordered = other.sorted_texts()

        def place(text: str) -> int:
            at = bisect_left(ordered, text)
            return 2 * at + (at < len(ordered) and ordered[at] == text)

        return self._translated(other, True, place)

    def _translated(self, other: Pool, ordered: bool, translate: Callable[[str], int]) -> I64:
        key = (id(other), ordered)
        found = self._translations.get(key)
        if found is not None and found[0] is other and found[1:3] == (len(self), len(other)):
            return found[3]
        codes = np.fromiter(map(translate, self.texts), np.int64, len(self.texts))
        # Most translated pools (constants, computed texts) die with the cycle; a
        # table's own pool may be translated too and must not hoard the others.
        if len(self._translations) >= 4:
            self._translations.clear()
        self._translations[key] = (other, len(self), len(other), codes)
        return codes


def unify_order(left: Pool, left_codes: I64, right: Pool, right_codes: I64) -> tuple[I64, I64]:
    """Give numbers for two lists of codes that compare as their texts do."""
    if left is right:
        ranks = left.ranks()
        return ranks[left_codes], ranks[right_codes]
    if len(left) < len(right):
        swapped = unify_order(right, right_codes, left, left_codes)
        return swapped[1], swapped[0]
    return 2 * left.ranks()[left_codes] + 1, right.places_in(left)[right_codes]


def unify_equality(left: Pool, left_codes: I64, right: Pool, right_codes: I64) -> tuple[I64, I64]:
    """Give numbers for two lists of codes that are equal where their texts are."""
    if left is right:
        return left_codes, right_codes
    if len(left) < len(right):
        return left.codes_in(right)[left_codes], right_codes
    return left_codes, right.codes_in(left)[right_codes]
