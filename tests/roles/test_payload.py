"""Requests packed into submissions: no more than one may hold, whatever it is that takes the room."""

from __future__ import annotations

from collections import deque

from crescando.client.base import Request
from crescando.engine.statement import ColumnRef, Kind, Projection, Shape
from crescando.roles.payload import Packing
from crescando.schema import DataType
from crescando.types import FULL_RING

BYTES_MAX = 1 << 20
LONG = 100_000


def reads(n: int) -> deque[tuple[int, Request]]:
    """Give reads of which each is a long statement of its own."""
    names = [str(number) + "x" * LONG for number in range(n)]
    shapes = [
        Shape(Kind.READ, 1, 1, projections=(Projection(name, ColumnRef(1, DataType.INT64)),))
        for name in names
    ]
    return deque((token, Request(shape, (), (FULL_RING,))) for token, shape in enumerate(shapes))


def test_long_statements_count_as_what_they_bring_does() -> None:
    waiting = reads(50)
    taken: list[int] = []
    n_packed = 0
    while waiting:
        packing = Packing(waiting, 1024, BYTES_MAX)
        assert len(packing)
        assert sum(len(request.shape.encode()) for request in packing.requests) < BYTES_MAX + 2 * LONG
        taken += packing.tokens
        n_packed += 1

    assert taken == list(range(50))
    assert n_packed <= 6


def test_one_statement_many_times_counts_once() -> None:
    ((_, request),) = reads(1)
    packing = Packing(deque((token, request) for token in range(200)), 1024, BYTES_MAX)

    assert len(packing) == 200
