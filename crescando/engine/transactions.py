"""Transactions: several writes that share one message and one position of the order.

Rules of the file: a transaction's writes follow one another in a batch, so that
each sees what those before it did and nobody sees any without the others. What
the catalog or the statement itself forbids, forbids the whole transaction, alike
on every owner: it is told for the first such write, and none of the others
happens. A row that one of them rejects keeps its values, as with a write alone,
and hinders no other: what happens to a row must not depend on rows elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from crescando.engine.base import Failed
from crescando.engine.statement import Operation
from crescando.types import ProcessId

STEP_ROWS = 1 << 32
"""In a table without a key rows are told apart by position and ordinal; those of a transaction's
next write begin so much higher."""


class Transactions:
    """Which transactions of a batch cannot be executed, and why."""

    def __init__(self) -> None:
        self._refused: dict[int, tuple[ProcessId, int, Failed]] = {}

    @property
    def refused(self) -> tuple[int, ...]:
        """The positions of those of which nothing may happen."""
        return tuple(self._refused)

    def refuse(self, sender: ProcessId, step: int, failed: Failed) -> None:
        """Note that a step cannot be executed at all."""
        known = self._refused.get(failed.position)
        if known is None or step < known[1]:
            text = f"write {step + 1} of the transaction: {failed.text}"
            self._refused[failed.position] = sender, step, msgspec.structs.replace(failed, text=text)

    def failed(self) -> Iterator[tuple[ProcessId, Failed]]:
        """Give why each transaction was refused, in order."""
        for position in sorted(self._refused):
            sender, _, failed = self._refused[position]
            yield sender, failed


def units(operations: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
    """Give the operations one by one, but the writes of a transaction together."""
    start = 0
    while start < len(operations):
        first, stop = operations[start], start + 1
        if first.step >= 0:
            while stop < len(operations) and operations[stop].position == first.position:
                if operations[stop].step < 0:
                    break
                stop += 1
        yield operations[start:stop]
        start = stop
