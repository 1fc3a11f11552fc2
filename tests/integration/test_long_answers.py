"""Long answers, groups and returned rows through a whole embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import crescando
from crescando import agg
from crescando.client.table import Table
from crescando.engine import answers, cutting
from crescando.types import FULL_RING
from tests.client.tables import FLIGHTS

N_ROWS = 5_000


@pytest.fixture(scope="module")
def store() -> Iterator[crescando.Store]:
    patch = pytest.MonkeyPatch()
    # As small as makes an answer of these rows hundreds of pieces.
    for module in (cutting, answers):
        patch.setattr(module, "PIECE_BYTES", 2_000)
    with crescando.open(routers=1, storages=3, replication=2) as store:
        yield store
    patch.undo()


@pytest.fixture(scope="module")
def flights(store: crescando.Store) -> Table:
    table = store.create_table(FLIGHTS)
    origins = [f"A{n % 50}" for n in range(N_ROWS)]
    table.insert({"id": list(range(N_ROWS)), "origin": origins, "delay": [1] * N_ROWS}).result()
    return table


@pytest.mark.parametrize("isolation", ["sequential", "snapshot", "basic"])
def test_a_long_answer_is_put_together(flights: Table, isolation: Any) -> None:
    answer = flights.select(["id", "origin"], isolation=isolation)
    assert sorted(answer.rows()) == sorted((n, f"A{n % 50}") for n in range(N_ROWS))


def test_many_long_answers_at_once(flights: Table) -> None:
    below = flights.prepare_select(["id"], "id < ?")
    handles = below.many([(n,) for n in (0, 1, 4_000, 17, 5_000, 3_000)])
    assert [sorted(handle.result().column("id")) for handle in handles] == [
        list(range(n)) for n in (0, 1, 4_000, 17, 5_000, 3_000)
    ]


def test_many_groups_are_put_together(flights: Table) -> None:
    answer = flights.aggregate(group_by=["id", "origin"], n=agg.count(), order_by="id")
    assert answer.rows() == [(n, f"A{n % 50}", 1) for n in range(N_ROWS)]
    few = flights.aggregate(group_by="origin", n=agg.count(), kinds=agg.count_distinct("id"))
    assert sorted(few.rows()) == sorted((f"A{n}", 100, 100) for n in range(50))


def test_a_replica_shows_all_it_holds(store: crescando.Store, flights: Table) -> None:
    owners = [status.process for status in store.cluster.status().storages]
    held = [len(store.cluster.read_replica(process, FULL_RING, "flights")) for process in owners]
    assert sum(held) == 2 * N_ROWS


def test_writes_return_rows_from_all_owners_once(flights: Table) -> None:
    columns = ["id", "old.delay", "new.delay"]
    result = flights.update("id < 100", "delay = delay + id", returning=columns).result()
    assert result.returned is not None
    assert sorted(result.returned.rows()) == [(n, 1, 1 + n) for n in range(100)]
