"""Operations that were submitted together: what is known of each, by its place among them.

Rules of the file: one thread learns of operations, others look. What thousands of them end
with is told by a few calls; an object of its own (`Pending`) an operation gets only where
somebody waits for it alone. It is found by both threads or by none: each first leaves what it
has to say, and then looks for what the other one has left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import lt
from typing import Any

from crescando.client.pending import Pending

Failed = Callable[["Batch", int], None]


class Batch:
    """Operations with consecutive numbers.

    Parameters
    ----------
    first : int
        The session's number of the first one.
    n : int
    failed : Failed
        Told of each operation that fails, with its place, by the thread that learns of it.

    Attributes
    ----------
    outcomes : list
        What each operation has ended with; None while that is not known, and if it failed.
    """

    __slots__ = ("_errors", "_failed", "_pendings", "_stable", "first", "outcomes")

    def __init__(self, first: int, n: int, failed: Failed) -> None:
        self.first = first
        self.outcomes: list[Any] = [None] * n
        self._failed = failed
        self._errors: dict[int, Exception] = {}
        self._pendings: dict[int, Pending] = {}
        self._stable = bytearray(n)

    def __len__(self) -> int:
        return len(self.outcomes)

    def pending(self, place: int) -> Pending:
        """Give one operation as something to wait for."""
        pending = self._pendings.get(place)
        if pending is None:
            pending = self._pendings.setdefault(place, Pending(self.first + place))
            if self._stable[place]:
                pending.settle_stable()
            if self._is_known(place):
                self._pendings.pop(place, None)
                self._keep(place, pending)
                pending.tell()
        return pending

    def _is_known(self, place: int) -> bool:
        return self.outcomes[place] is not None or place in self._errors

    def _keep(self, place: int, pending: Pending) -> None:
        error = self._errors.get(place)
        if error is None:
            pending.keep(self.outcomes[place])
        else:
            pending.fail(error)

    # For the thread that learns of operations.

    def open(self) -> Iterator[int]:
        """Give the places of those that have no outcome."""
        return (place for place in range(len(self)) if not self._is_known(place))

    def settle_stable(self, tokens: Sequence[int]) -> None:
        """Tell of some operations, by their numbers, that they are stable."""
        first, stable = self.first, self._stable
        if tokens[-1] - tokens[0] == len(tokens) - 1 and _ascends(tokens):
            stable[tokens[0] - first : tokens[-1] - first + 1] = b"\1" * len(tokens)
        else:
            for token in tokens:
                stable[token - first] = 1
        if self._pendings:
            for _, pending in self._waiting(tokens):
                pending.settle_stable()

    def settle(self, tokens: Sequence[int], outcomes: Sequence[Any]) -> list[Pending]:
        """Keep what some operations ended with; gives those of whom somebody is to be told."""
        first, known = self.first, self.outcomes
        if tokens[-1] - tokens[0] == len(tokens) - 1 and _ascends(tokens):
            known[tokens[0] - first : tokens[-1] - first + 1] = outcomes
        else:
            for token, outcome in zip(tokens, outcomes, strict=True):
                known[token - first] = outcome
        return self._told(tokens) if self._pendings else []

    def fail(self, token: int, error: Exception) -> list[Pending]:
        """Note what one operation failed with; gives it if somebody is to be told."""
        place = token - self.first
        self._errors[place] = error
        told = self._told((token,))
        self._failed(self, place)
        return told

    def _told(self, tokens: Sequence[int]) -> list[Pending]:
        told = []
        for place, pending in self._waiting(tokens):
            # Who comes later makes one that knows at once.
            self._pendings.pop(place, None)
            self._keep(place, pending)
            told.append(pending)
        return told

    def _waiting(self, tokens: Sequence[int]) -> list[tuple[int, Pending]]:
        """Give those of some operations that have an object of their own."""
        first, pendings = self.first, self._pendings
        places: Iterable[int] = [token - first for token in tokens]
        if len(pendings) < len(tokens):
            places = set(places).intersection(list(pendings))
        found = zip(places, map(pendings.get, places), strict=True)
        return [(place, pending) for place, pending in found if pending is not None]


def _ascends(tokens: Sequence[int]) -> bool:
    """Say whether numbers, the last of which is so far from the first, follow one another."""
    return isinstance(tokens, range) or all(map(lt, tokens, tokens[1:]))


def spans_of(tokens: Sequence[int], operations: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Cut operations into those of one batch each, those alone, and those that nobody has any more."""
    start, n = 0, len(tokens)
    while start < n:
        first, stop = operations[start], start + 1
        if isinstance(first, Batch):
            # Numbers ascend but for what was submitted anew.
            stop = max(stop, bisect_left(tokens, first.first + len(first), start))
            if operations[start:stop].count(first) < stop - start:
                stop = start + 1
        else:
            kind = type(first)
            while stop < n and type(operations[stop]) is kind:
                stop += 1
        yield start, stop
        start = stop
