"""One data operation on its way, and what is still missing of its outcome.

An operation is done when every ring range it asked for is covered by exactly
one answer: scopes prove it, and an answer that covers nothing new is a
duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from crescando.client.base import Groups, Piece, ReadInParts, ReadOutcome, Request, WriteOutcome
from crescando.engine.base import Failed
from crescando.engine.statement import Kind
from crescando.engine.written import Count, Report
from crescando.errors import ReadFailedError
from crescando.roles.completion import Completion
from crescando.scopes import subtract
from crescando.types import KeyRange, Position, Scope

READ = Kind.READ
"""An enumeration's member costs ten times a global where it is asked for of every operation."""


class InFlight(msgspec.Struct, eq=False, gc=False):
    """A submitted data operation, until it has its outcome.

    Attributes
    ----------
    token : int
        What the user calls it; a resubmitted read keeps it.
    number : int
        The sequence number of its message.
    missing : sequence of KeyRange
        Ring ranges that no answer covers yet; disjoint and ascending.
    stable_s : float
        When it became stable, or the owners were last asked.
    inquiry : int
        The last inquiry that asked about it.
    waited_s, alone_s : float
        How long the owners have been asked in vain, some of which answered, or none.
    places : sequence of (Scope, Position)
        Where each part of an answer was read, of what is not ordered.
    """

    token: int
    number: int
    request: Request
    missing: Sequence[KeyRange]
    position: int = -1
    is_stable: bool = False
    stable_s: float = 0.0
    inquiry: int = 0
    waited_s: float = 0.0
    alone_s: float = 0.0
    pieces: Sequence[Piece] = ()
    groups: Sequence[Groups] = ()
    counts: Sequence[Count] = ()
    failures: Sequence[Failed] = ()
    places: Sequence[tuple[Scope, Position]] = ()

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.request.shape.kind is READ

    @property
    def latest(self) -> int:
        """The highest position of what was answered."""
        return max([self.position, *(place for _, place in self.places)])

    @property
    def is_done(self) -> bool:
        """Whether its outcome may be told: a write must also be on every correct replica."""
        return not self.missing and (self.is_read or self.is_stable)

    def cover(self, scope: Scope, at: int) -> bool:
        """Take an answer's scope off what is missing; False if nothing of it was."""
        if self.number < 0:
            self.places = (*self.places, (scope, Position(at)))
        if scope == self.missing:
            # One owner answers all of it; most reads of few rows are answered so.
            self.missing, self.position = (), at
            return bool(scope)
        missing = list(self.missing)
        left = subtract(missing, scope)
        if left == missing:
            return False
        self.missing = left
        self.position = at
        return True

    def count(self, report: Report, coverage: Coverage) -> None:
        """Keep what a write did, range by range."""
        left, fresh = coverage.of(self.missing)
        if fresh:
            self.missing, self.position = left, report.position
            counts = report.counts
            if len(fresh) < len(coverage.arcs):
                counts = tuple(count for count in counts if count.key_range in fresh)
            self.counts = (*self.counts, *counts) if self.counts else counts

    def take(self, answers: Sequence[Piece | Groups]) -> None:
        """Keep what was answered for a scope."""
        self.pieces = *self.pieces, *(answer for answer in answers if isinstance(answer, Piece))
        self.groups = *self.groups, *(answer for answer in answers if isinstance(answer, Groups))

    def outcome(self) -> ReadOutcome | WriteOutcome:
        """Give the outcome of an operation that is done.

        Raises
        ------
        ReadFailedError
            If an answer was a failure: that of the smallest key, whoever told it.
        """
        at, places = Position(self.position), tuple(self.places)
        if len({place for _, place in places}) > 1:
            # What lies before all of them is in every part.
            at = min(place for _, place in places)
        else:
            places = ()
        if self.failures:
            first = min(self.failures, key=lambda failed: (_key_order(failed.key), failed.text))
            raise ReadFailedError(f"{first.text} (smallest key {first.key!r})")
        if self.is_read:
            return ReadInParts(at, tuple(self.pieces), tuple(self.groups), places)
        return WriteOutcome(at, tuple(self.counts))

    def completion(self) -> Completion:
        """Give what to tell of an operation that is done."""
        try:
            return Completion(self.token, outcome=self.outcome())
        except ReadFailedError as error:
            return Completion(self.token, error=error)


class Coverage:
    """What ring arcs cover of what operations lack; worked out once for all that lack the same.

    Parameters
    ----------
    arcs : tuple of KeyRange
        Of which some writes are told together.
    """

    def __init__(self, arcs: tuple[KeyRange, ...]) -> None:
        self.arcs = arcs
        self._last: Sequence[KeyRange] | None = None
        self._found: tuple[Sequence[KeyRange], frozenset[KeyRange]] = (), frozenset()

    def of(self, missing: Sequence[KeyRange]) -> tuple[Sequence[KeyRange], frozenset[KeyRange]]:
        """Give what is missing still, and which of the arcs cover something of it."""
        if missing is not self._last:
            left: list[KeyRange] = list(missing)
            fresh = set[KeyRange]()
            for arc in self.arcs:
                less = subtract(left, (arc,))
                if less != left:
                    fresh.add(arc)
                    left = less
            self._last, self._found = missing, (tuple(left), frozenset(fresh))
        return self._found


def _key_order(key: tuple[Any, ...]) -> tuple[tuple[int, Any], ...]:
    """Order keys whose parts may be missing."""
    return tuple((0, 0) if part is None else (1, part) for part in key)
