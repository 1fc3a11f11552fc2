"""One data operation on its way, and what is still missing of its outcome.

An operation is done when every ring range it asked for is covered by exactly
one answer: scopes prove it, and an answer that covers nothing new is a
duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from crescando.client.base import Groups, Piece, ReadOutcome, Request, WriteOutcome
from crescando.engine.base import Failed
from crescando.engine.statement import Kind
from crescando.engine.written import Count, Report
from crescando.errors import ReadFailedError
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

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.request.shape.kind is READ

    @property
    def is_done(self) -> bool:
        """Whether its outcome may be told: a write must also be on every correct replica."""
        return not self.missing and (self.is_read or self.is_stable)

    def cover(self, scope: Scope, at: int) -> bool:
        """Take an answer's scope off what is missing; False if nothing of it was."""
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
        at = Position(self.position)
        if self.failures:
            first = min(self.failures, key=lambda failed: (_key_order(failed.key), failed.text))
            raise ReadFailedError(f"{first.text} (smallest key {first.key!r})")
        if self.is_read:
            return ReadOutcome(at, tuple(self.pieces), tuple(self.groups))
        return WriteOutcome(at, tuple(self.counts))


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
