"""What a write did, summed over the ranges and operations it consists of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crescando.client.base import WriteOutcome
from crescando.client.constant import EPOCH
from crescando.engine.base import Rejection
from crescando.engine.statement import Scalar
from crescando.schema import DataType, TableSchema

_DAY_ZERO = EPOCH.date()


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """The smallest key whose row kept its values, and why."""

    key: tuple[object, ...]
    """Values of the primary key; (position, ordinal) in a table without one."""
    cause: str


@dataclass(frozen=True, slots=True)
class WriteResult:
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
    """

    position: int
    affected: int
    rejected: int
    rejection: RejectedRow | None
    positions: tuple[int, ...]


def summarise(schema: TableSchema, outcomes: Sequence[WriteOutcome]) -> WriteResult:
    """Sum up the operations of one write."""
    counts = [count for outcome in outcomes for count in outcome.counts]
    rejections = [count.rejection for count in counts if count.rejection is not None]
    smallest = min(rejections, key=_rank, default=None)
    positions = tuple(int(outcome.position) for outcome in outcomes)
    return WriteResult(
        position=positions[-1],
        affected=sum(count.affected for count in counts),
        rejected=sum(count.rejected for count in counts),
        rejection=None if smallest is None else RejectedRow(_key(schema, smallest), smallest.cause),
        positions=positions,
    )


def _rank(rejection: Rejection) -> tuple[tuple[int, Any], ...]:
    """Order keys as the engine does: NULL first, NaN last."""
    return tuple(
        (0, 0) if value is None else (2, 0) if value != value else (1, value) for value in rejection.key
    )


def _key(schema: TableSchema, rejection: Rejection) -> tuple[object, ...]:
    if not schema.primary_key:
        return tuple(rejection.key)
    kinds = [schema.column(name).type for name in schema.primary_key]
    return tuple(python_value(kind, value) for kind, value in zip(kinds, rejection.key, strict=True))


def python_value(kind: DataType, value: Scalar) -> object:
    """Give a physical value as Python has it: dates, and timestamps in UTC."""
    if value is None:
        return None
    if kind is DataType.DATE:
        return _DAY_ZERO + dt.timedelta(days=value)  # type: ignore[arg-type]
    if kind is DataType.TIMESTAMP:
        return EPOCH + dt.timedelta(microseconds=value)  # type: ignore[arg-type]
    return value
