"""Operations without an outcome are settled once, alone or with those they were submitted with."""

from __future__ import annotations

import random
from typing import Any

import pytest

from crescando.client.base import Batch, Pending, ReadInParts
from crescando.errors import OperationError
from crescando.roles.completion import Executed
from crescando.types import Position
from crescando.unsettled import Unsettled

GONE = OperationError("nobody knows")


def submitted(rng: random.Random) -> tuple[Unsettled, dict[int, Pending]]:
    """Give operations, alone and in batches, each with something to wait for."""
    operations, waiting = Unsettled(), {}
    token = 1
    while token < 40:
        n = rng.choice((1, 1, 3, 9))
        if n == 1:
            waiting[token] = Pending(number=token)
            operations.add(token, waiting[token])
        else:
            batch = Batch(token, n, lambda batch, place: None)
            operations.add_batch(range(token, token + n), batch)
            waiting |= {token + place: batch.pending(place) for place in range(n)}
        token += n
    return operations, waiting


@pytest.mark.parametrize("seed", range(80))
def test_each_is_settled_once_however_it_is_told(seed: int) -> None:
    rng = random.Random(seed)
    operations, waiting = submitted(rng)
    expected: dict[int, Any] = {}
    stable: set[int] = set()
    told: list[int] = []
    while len(operations):
        first = rng.randrange(1, len(waiting) + 1)
        last = min(first + rng.choice((1, 2, 6, 20)), len(waiting) + 1)
        tokens: Any = range(first, last)
        how = rng.random()
        if how < 0.3:
            operations.settle_stable(rng.choice((tokens, list(tokens))))
            assert all(waiting[token].stable.done() for token in tokens)
            stable.update(token for token in tokens if token not in expected)
            assert not any(
                waiting[token].stable.done()
                for token in waiting
                if token not in stable and token not in expected
            )
        elif how < 0.8:
            tokens = rng.choice((tokens, list(tokens), sorted(rng.sample(tokens, (len(tokens) + 1) // 2))))
            outcomes = [ReadInParts(Position(100 * token)) for token in tokens]
            found = operations.settle(Executed(tokens, outcomes))
            fresh = [token for token in tokens if token not in expected]
            assert sorted(each.number for each in found) == fresh
            told += fresh
            expected |= {token: 100 * token for token in fresh}
        else:
            found = operations.fail(first, GONE)
            assert [each.number for each in found] == ([] if first in expected else [first])
            told += [first] if first not in expected else []
            expected.setdefault(first, GONE)
        assert len(operations) == len(waiting) - len(expected)
        assert all((token in operations) == (token not in expected) for token in waiting)

    assert sorted(told) == sorted(waiting)
    for token, pending in waiting.items():
        error = pending.exception()
        assert (error or pending.result().position) == expected[token]


def test_what_is_left_is_taken_away_whole_and_fails_together() -> None:
    operations, waiting = submitted(random.Random(5))
    operations.settle(Executed((1, 2), [ReadInParts(Position(7))] * 2))
    left = operations.take_all()
    assert (len(operations), len(left)) == (0, len(waiting) - 2)
    assert operations.settle(Executed((3,), [ReadInParts(Position(8))])) == []

    left.fail_all(GONE)

    assert len(left) == 0
    assert [pending.exception() for pending in waiting.values()] == [None, None] + [GONE] * (len(waiting) - 2)


def test_the_first_that_has_no_outcome_is_waited_for() -> None:
    operations, waiting = submitted(random.Random(6))
    assert operations.oldest() is waiting[1]
    operations.settle(Executed(range(1, 12), [ReadInParts(Position(7))] * 11))
    assert operations.oldest() is waiting[12]
    assert Unsettled().oldest() is None
