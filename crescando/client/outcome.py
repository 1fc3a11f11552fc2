"""What a write did, summed over the ranges and operations it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from crescando.client.answer import Answer
from crescando.client.base import WriteOutcome
from crescando.client.columns import unite
from crescando.client.constant import python_value
from crescando.engine.returning import RETURNED_MAX
from crescando.engine.statement import PHYSICAL, Column, Returned
from crescando.engine.written import Count, Rejection
from crescando.errors import ReturnedLostError
from crescando.schema import TableSchema
from crescando.types import Position


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """The smallest key whose row kept its values, and why."""

    key: tuple[object, ...]
    """Values of the primary key; (position, ordinal) in a table without one."""
    cause: str


class WriteResult(msgspec.Struct, frozen=True, gc=False):
    """What a write did.

    Attributes
    ----------
    position : int
        Its place in the global order; of the last operation, if it was split.
    affected, rejected : int
        Rows written, and rows that kept their values because of an error.
    rejection : RejectedRow or None
    positions : tuple of int
        The places of all operations it was split into.
    returned : Answer or None
        What ``returning`` asked for, a row per row written, in no particular
        order; None if it asked for nothing.
    """

    position: int
    affected: int
    rejected: int
    rejection: RejectedRow | None
    positions: tuple[int, ...]
    returned: Answer | None = None


def summarise(
    schema: TableSchema, outcomes: Sequence[WriteOutcome], returning: Sequence[Returned] = ()
) -> WriteResult:
    """Sum up the operations of one write.

    Raises
    ------
    ReturnedLostError
        If it was to return more rows than are kept.
    """
    if len(outcomes) == 1 and len(outcomes[0].counts) == 1 and not returning:
        at, (count,) = outcomes[0].position, outcomes[0].counts
        if count.rejection is None:
            return WriteResult(at, count.affected, count.rejected, None, (at,))
    counts = [count for outcome in outcomes for count in outcome.counts]
    rejections = [count.rejection for count in counts if count.rejection is not None]
    smallest = min(rejections, key=rank_of, default=None)
    positions = tuple(int(outcome.position) for outcome in outcomes)
    return WriteResult(
        position=positions[-1],
        affected=sum(count.affected for count in counts),
        rejected=sum(count.rejected for count in counts),
        rejection=None if smallest is None else RejectedRow(key_of(schema, smallest), smallest.cause),
        positions=positions,
        returned=_returned(positions[-1], counts, returning) if returning else None,
    )


def _returned(at: int, counts: Sequence[Count], returning: Sequence[Returned]) -> Answer:
    pieces = [count.returned for count in counts if count.affected]
    if not all(pieces):
        raise ReturnedLostError(sum(count.affected for count in counts), RETURNED_MAX)
    columns = [
        unite([piece[place] for piece in pieces])
        if pieces
        else Column(each.column.type, np.zeros(0, PHYSICAL[each.column.type]))
        for place, each in enumerate(returning)
    ]
    return Answer.of(Position(at), tuple(each.name for each in returning), columns)


def rank_of(rejection: Rejection) -> tuple[tuple[int, Any], ...]:
    """Order keys as the engine does: NULL first, NaN last."""
    return tuple(
        (0, 0) if value is None else (2, 0) if value != value else (1, value) for value in rejection.key
    )


def key_of(schema: TableSchema, rejection: Rejection) -> tuple[object, ...]:
    """Give a rejected key as users know it."""
    if not schema.primary_key:
        return tuple(rejection.key)
    kinds = [schema.column(name).type for name in schema.primary_key]
    return tuple(python_value(kind, value) for kind, value in zip(kinds, rejection.key, strict=True))
