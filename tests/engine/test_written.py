"""What writes did, as columns, tells what it tells one by one."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando import wire
from crescando.engine.base import Results
from crescando.engine.statement import Column
from crescando.engine.written import Count, Rejection, Report, Written, cut_written, join_written
from crescando.schema import DataType
from crescando.types import RING_MAX, KeyRange, ProcessId

ARCS = tuple(KeyRange(part * (RING_MAX // 4), (part + 1) * (RING_MAX // 4) - 1) for part in range(3))


def count(random: Random, arc: KeyRange) -> Count:
    affected = random.randrange(3)
    if random.random() < 0.6:
        return Count(arc, affected, 0)
    rejection = Rejection((random.randrange(9),), "cause")
    returned = (Column(DataType.INT64, np.arange(affected)),) if random.random() < 0.5 else ()
    rejected = random.randrange(2)
    return Count(arc, affected, rejected, rejection if rejected else None, returned)


def make(seed: int) -> tuple[list[Report], list[Written]]:
    """Give random writes and transactions, told one by one and as columns, in no order."""
    random = Random(seed)
    told, pieces = [], []
    for number in range(1, random.randrange(2, 30)):
        n_steps = random.choice([1, 1, 1, 3])
        steps = [tuple(count(random, arc) for arc in ARCS) for _ in range(n_steps)]
        pieces += [Written.of(number, 7 * number, counts, step) for step, counts in enumerate(steps)]
        counts = tuple(msgspec.structs.replace(c, step=s) for s, some in enumerate(steps) for c in some)
        told.append(Report(number, 7 * number, counts))
    random.shuffle(pieces)
    return told, pieces


def plain(reports: Iterable[Report]) -> list[Any]:
    """Give reports without arrays."""

    def told(count: Count) -> tuple[Any, ...]:
        returned = [column.to_list() for column in count.returned]
        return count.key_range, count.affected, count.rejected, count.rejection, returned, count.step

    return [(each.number, each.position, list(map(told, each.counts))) for each in reports]


@pytest.mark.parametrize("seed", range(20))
def test_columns_tell_what_single_writes_do(seed: int) -> None:
    told, pieces = make(seed)
    whole = join_written(pieces)
    assert plain(whole.reports()) == plain(told)

    cut = cut_written(whole, 8)
    assert plain(each for piece in cut for each in piece.reports()) == plain(told)

    left = [each for each in told if each.number > 5]
    assert plain(whole.after(5).reports()) == plain(left)

    scope = (ARCS[0], ARCS[2])
    seen = [
        Report(each.number, each.position, tuple(c for c in each.counts if c.key_range in scope))
        for each in told
    ]
    assert plain(whole.within(scope).reports()) == plain(seen)

    client = ProcessId("client", "c")
    sent = wire.decode(wire.encode(Results(client, client, 1, written=(whole,))))
    assert plain(sent.written[0].reports()) == plain(told)


def test_writes_of_equal_counts_share_them() -> None:
    whole = join_written([Written.of(n, n, [Count(ARCS[0], n % 2, 0)]) for n in range(10)])
    assert len({id(each.counts) for each in whole.reports()}) == 2
