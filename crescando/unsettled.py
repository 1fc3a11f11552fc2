"""The operations of a session that have no outcome yet, and what becomes of them.

Rules of the file: users' threads add operations, under the lock of the store's loop; the loop's
thread settles them. Whoever ends the session takes what is left away from it, and settles that
himself: each operation is settled by the one who has taken it, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from crescando.client.batch import Batch, spans_of
from crescando.client.pending import Pending
from crescando.client.promise import Promise
from crescando.roles.completion import Executed


class Unsettled:
    """What has no outcome, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, Pending | Batch] = {}
        """Of a batch, the batch for each of its operations."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, token: int) -> bool:
        return token in self._by_number

    def add(self, token: int, pending: Pending) -> None:
        """Take an operation."""
        self._by_number[token] = pending

    def add_batch(self, tokens: range, batch: Batch) -> None:
        """Take operations that were submitted together."""
        self._by_number.update(dict.fromkeys(tokens, batch))

    def oldest(self) -> Promise[Any] | None:
        """Give the outcome of the first operation, to be waited for."""
        # In one call that makes no objects: the collector, or another thread, would change them meanwhile.
        oldest = self._by_number.get(token := min(self._by_number, default=0))
        return oldest.pending(token - oldest.first) if isinstance(oldest, Batch) else oldest

    def settle(self, executed: Executed) -> list[Pending]:
        """Keep what operations ended with; gives those of whom somebody is to be told."""
        told: list[Pending] = []
        tokens, outcomes = executed.tokens, executed.outcomes
        taken = list(map(self._by_number.pop, tokens, repeat(None)))
        for start, stop in spans_of(tokens, taken):
            operation = taken[start]
            if isinstance(operation, Batch):
                told += operation.settle(tokens[start:stop], outcomes[start:stop])
            elif operation is not None:
                alone: list[Any] = taken[start:stop]
                Pending.keep_all(alone, outcomes[start:stop])
                told += alone
        return told

    def settle_stable(self, tokens: Sequence[int]) -> None:
        """Note that operations are stable."""
        batch = self._by_number.get(tokens[0])
        if isinstance(tokens, range) and isinstance(batch, Batch) and tokens[-1] < batch.first + len(batch):
            # That some of them have their outcome does not matter.
            batch.settle_stable(tokens)
            return
        found = list(map(self._by_number.get, tokens))
        for start, stop in spans_of(tokens, found):
            operation = found[start]
            if isinstance(operation, Batch):
                operation.settle_stable(tokens[start:stop])
            else:
                for each in found[start:stop]:
                    if isinstance(each, Pending):
                        each.settle_stable()

    def fail(self, token: int, error: Exception) -> list[Pending]:
        """Note what an operation failed with; gives it if somebody is to be told."""
        operation = self._by_number.pop(token, None)
        if operation is None:
            return []
        if isinstance(operation, Batch):
            return operation.fail(token, error)
        operation.fail(error)
        return [operation]

    def take_all(self) -> Unsettled:
        """Take away all that is left, under the lock of the loop."""
        left = Unsettled()
        left._by_number, self._by_number = self._by_number, left._by_number
        return left

    def fail_all(self, error: Exception) -> None:
        """Note what everything failed with, and tell whoever waits."""
        for token in list(self._by_number):
            # The loop may still take some.
            for pending in self.fail(token, error):
                pending.tell()
