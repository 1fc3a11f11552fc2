"""The same verbs on a whole embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import crescando
from crescando import agg, col, errors
from crescando.client.table import Table
from tests.client.tables import FLIGHTS

N_ROWS = 20_000


@pytest.fixture(scope="module")
def store() -> Iterator[crescando.Store]:
    with crescando.open(routers=3, storages=4, replication=3) as store:
        yield store


@pytest.fixture(scope="module")
def flights(store: crescando.Store) -> Table:
    table = store.create_table(FLIGHTS)
    rows = {
        "id": list(range(N_ROWS)),
        "origin": [f"A{n % 50}" for n in range(N_ROWS)],
        "delay": [n % 100 for n in range(N_ROWS)],
    }
    result = table.insert(rows).result()
    assert result.affected == N_ROWS
    assert len(result.positions) == 3
    return table


def test_pieces_of_all_storages_make_one_answer(flights: Table) -> None:
    answer = flights.select(["id", "origin"], "origin = ? AND delay < 10", ("A3",), order_by="id")

    assert answer.rows() == [(n, "A3") for n in range(N_ROWS) if n % 50 == 3 and n % 100 < 10]


def test_partial_states_of_all_storages_make_one_row(flights: Table) -> None:
    answer = flights.aggregate(n=agg.count(), mean=agg.avg("delay"), least=agg.min("origin"))

    assert answer.rows() == [(N_ROWS, 49.5, "A0")]


def test_a_session_reads_its_own_pipelined_writes(flights: Table) -> None:
    add = flights.prepare_update("id = ?", "seats = coalesce(seats, 0) + ?")
    read = flights.prepare_select(["seats"], "id = ?")
    handles = []
    for n in range(1, 51):
        handles.append(add((1, 77)))
        handles.append(read((77,)))
        if n == 25:
            flights.delete(col("id") == 78)

    assert [handle.result().rows() for handle in handles[1::2]] == [[(n,)] for n in range(1, 51)]
    positions = [handle.result().position for handle in handles]
    assert positions == sorted(set(positions))


def test_errors_and_rejections_come_back(flights: Table) -> None:
    with pytest.raises(errors.RowsRejectedError, match="duplicate"):
        flights.insert({"id": 1}).result()
    with pytest.raises(errors.ReadFailedError, match="zero"):
        flights.select(where=1 / (col("delay") - 5) > 0)
    assert (
        flights.update(col("id").isin([3, 4]), {"delay": col("delay") * 9_000}).result(check=False).rejected
        == 1
    )


def test_a_dropped_table_can_be_made_anew_behind_a_session_s_back(store: crescando.Store) -> None:
    like = {"k": [1], "v": ["a"]}
    store.create_table("notes", like=like, primary_key="k")
    other = store.session("other").table("notes")
    assert other.insert({"k": 1, "v": "x"}).result().affected == 1

    store.drop_table("notes")
    store.create_table("notes", like=like, primary_key="k")

    assert other.select().rows() == []
    assert other.insert({"k": 2, "v": "y"}).result().affected == 1
    assert store.table("notes").select().rows() == [(2, "y")]


def test_a_thousand_readers_on_an_event_loop(store: crescando.Store, flights: Table) -> None:
    async def main() -> list[int]:
        table = await store.session("async").table_nowait(flights.name)
        answers = await asyncio.gather(
            *(table.select_nowait(["id"], col("id") == n) for n in range(1_000, 2_000))
        )
        return [answer.rows()[0][0] for answer in answers]

    assert asyncio.run(main()) == list(range(1_000, 2_000))
