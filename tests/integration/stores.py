"""Stores for the integration tests, and a loop that stands still while a test looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import crescando
from crescando.schema import ColumnDef, DataType, TableSchema

COUNTERS = TableSchema(
    "counters",
    (
        ColumnDef("k", DataType.INT64, nullable=False),
        ColumnDef("v", DataType.INT64, nullable=False),
        ColumnDef("label", DataType.STRING),
        ColumnDef("at", DataType.TIMESTAMP),
    ),
    partition_key="k",
    primary_key=("k",),
)
N_COUNTERS = 40


def with_counters(**processes: int) -> crescando.Store:
    """Open a store with counters 0 … 39, each at 0."""
    store = crescando.open(**processes, seed=1)
    table = store.create_table(COUNTERS)
    table.insert({"k": list(range(N_COUNTERS)), "v": [0] * N_COUNTERS}).result()
    return store


@contextmanager
def standstill(store: crescando.Store) -> Iterator[None]:
    """Let nothing happen inside a store: its loop waits until the block ends."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(30)

    store.cluster._loop.hand_over(stand)
    assert stands.wait(10)
    try:
        yield
    finally:
        go_on.set()
