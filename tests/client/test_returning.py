"""What writes return: rows as they were before and as they are after, once each."""

from __future__ import annotations

import pytest

from crescando.client.expression import col
from crescando.client.loading import ROWS_MAX
from crescando.client.store import Session
from crescando.client.table import Table
from crescando.engine import returning
from crescando.errors import PredicateError, ReturnedLostError, RowsRejectedError, UnknownColumnError
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS


@pytest.fixture
def flights() -> Table:
    table = Session(EngineBackend(3)).create_table(FLIGHTS)
    table.insert([{"id": number, "delay": number, "origin": "JFK"} for number in range(10)]).result()
    return table


def rows_of(answer: object) -> list[tuple[object, ...]]:
    return sorted(answer.rows(), key=repr)  # type: ignore[attr-defined]


def test_updates_return_both_images(flights: Table) -> None:
    columns = ["id", "old.delay", "new.delay"]
    result = flights.update("id < ?", {"delay": col("delay") * 2}, (3,), returning=columns).result()

    assert result.affected == 3
    assert result.returned is not None
    assert result.returned.names == ("id", "old.delay", "new.delay")
    assert rows_of(result.returned) == [(0, 0, 0), (1, 1, 2), (2, 2, 4)]
    assert result.returned.position == result.position


def test_deletes_return_what_was(flights: Table) -> None:
    result = flights.delete("id > ?", (7,), returning="*").result()
    assert result.returned is not None
    assert result.returned.names == FLIGHTS.column_names
    assert sorted(result.returned.column("id")) == [8, 9]
    gone = flights.delete(col("id") == 7, returning=["new.id", "old.id", "id"]).result()
    assert gone.returned is not None
    assert gone.returned.rows() == [(None, 7, 7)]


def test_inserts_and_upserts_return_images(flights: Table) -> None:
    result = flights.upsert(
        [{"id": 9, "delay": -1}, {"id": 10, "delay": -2}],
        returning=["id", "origin", "old.delay", "new.delay"],
    ).result()
    assert result.returned is not None
    assert rows_of(result.returned) == [(10, None, None, -2), (9, "JFK", 9, -1)]


def test_rejected_rows_return_nothing(flights: Table) -> None:
    handle = flights.insert([{"id": 3}, {"id": 30}], returning="id")
    with pytest.raises(RowsRejectedError):
        handle.result()
    result = handle.result(check=False)
    assert result.returned is not None
    assert result.returned.rows() == [(30,)]


def test_a_write_of_nothing_returns_no_rows(flights: Table) -> None:
    result = flights.delete("id < 0", returning=["id", "origin"]).result()
    assert result.returned is not None
    assert result.returned.rows() == []
    assert flights.delete("id < 0").result().returned is None


def test_bulk_inserts_return_the_rows_of_all_operations(flights: Table) -> None:
    rows = {"id": list(range(100, 101 + ROWS_MAX)), "delay": [1] * (ROWS_MAX + 1)}
    result = flights.insert(rows, returning="id").result()
    assert result.returned is not None
    assert sorted(result.returned.column("id")) == rows["id"]


def test_prepared_writes_return_rows(flights: Table) -> None:
    bump = flights.prepare_update("id = ?", "delay = ?", returning=["old.delay", "delay"])
    results = [handle.result() for handle in bump.many([(7, 1), (8, 1), (9, 2)])]
    assert [each.returned.rows() for each in results if each.returned] == [[(1, 7)], [(7, 8)], [(2, 9)]]


def test_rows_beyond_the_limit_are_lost_and_the_write_is_not(
    flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "RETURNED_MAX", 1)
    handle = flights.update(None, {"origin": "EWR"}, returning="id")
    with pytest.raises(ReturnedLostError, match="affected 10 rows"):
        handle.result()
    assert flights.count("origin = 'EWR'") == 10


def test_mistakes_are_told_before_anything_is_sent(flights: Table) -> None:
    with pytest.raises(UnknownColumnError, match="delay"):
        flights.delete(None, returning="old.dely")
    with pytest.raises(PredicateError, match="at least one"):
        flights.delete(None, returning=[])
    with pytest.raises(PredicateError, match="named twice"):
        flights.delete(None, returning=["id", "id"])
    with pytest.raises(PredicateError, match="names of columns"):
        flights.delete(None, returning=[col("id")])  # type: ignore[list-item]
    assert flights.count() == 10
