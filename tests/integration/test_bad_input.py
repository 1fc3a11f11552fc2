"""Bad input through the public surface: one clear error each, nothing lost, the store still usable."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import pytest

import crescando
from crescando import col, errors
from crescando.client.table import Table
from tests.integration.stores import N_COUNTERS, standstill, with_counters


@pytest.fixture(scope="module")
def store() -> Iterator[crescando.Store]:
    with with_counters(storages=2, replication=2) as store:
        yield store


@pytest.fixture
def table(store: crescando.Store) -> Iterator[Table]:
    """Give the counters, and see to it that they are whole and writable after the test."""
    table = store.table("counters")
    yield table
    assert table.count() == N_COUNTERS
    assert table.update("k = 7", {"v": col("v") + 1}).result().affected == 1
    assert table.update("k = 7", {"v": 0}).result().affected == 1
    assert table.aggregate(total=crescando.agg.sum("v")).rows() == [(0,)]
    assert store.in_flight() == 0


def test_unknown_table_names_the_nearest(store: crescando.Store, table: Table) -> None:
    with pytest.raises(errors.UnknownTableError, match="did you mean 'counters'") as caught:
        store.table("conuters")

    assert (caught.value.table, caught.value.nearest) == ("conuters", "counters")
    with pytest.raises(errors.UnknownTableError):
        store.drop_table("conuters")


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.select(["lable"]),
        lambda table: table.select(where=col("lable") == "x"),
        lambda table: table.select(where="lable = 'x'"),
        lambda table: table.select(order_by="lable"),
        lambda table: table.update("k = 1", {"lable": "x"}),
        lambda table: table.delete("lable = 'x'"),
        lambda table: table.insert({"k": 1, "v": 1, "lable": "x"}),
        lambda table: table.aggregate(n=crescando.agg.max("lable")),
    ],
)
def test_unknown_column_names_the_nearest(table: Table, call: Callable[[Table], object]) -> None:
    with pytest.raises(errors.UnknownColumnError, match="did you mean 'label'") as caught:
        call(table)

    assert caught.value.nearest == "label"


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.select(where=col("v") == "seven"),
        lambda table: table.select(where="v = 'seven'"),
        lambda table: table.select(where="label < 3"),
        lambda table: table.select(where=col("label") + 1 > 2),
        lambda table: table.update("k = 1", {"v": "seven"}),
        lambda table: table.update("k = 1", {"label": 7}),
        lambda table: table.insert({"k": 100, "v": "seven"}),
        lambda table: table.insert({"k": 1 << 70, "v": 1}),
        lambda table: table.select(where="v = ?", params=({},)),
    ],
)
def test_wrong_type(table: Table, call: Callable[[Table], object]) -> None:
    with pytest.raises(errors.TypeMismatchError):
        call(table)


@pytest.mark.parametrize("row", [{"k": None, "v": 1}, {"k": 100, "v": None}, {"k": 100}, {"v": 1}])
def test_null_into_a_column_that_takes_none(table: Table, row: dict[str, int | None]) -> None:
    with pytest.raises(errors.StatementError, match=r"NULL|null"):
        table.insert(row)


def test_null_assigned_to_a_column_that_takes_none(table: Table) -> None:
    with pytest.raises((errors.StatementError, errors.RowsRejectedError), match=r"NULL|null"):
        table.update("k = 1", {"v": None}).result()


@pytest.mark.parametrize(
    ("text", "position"),
    [("v = = 3", 4), ("v = 3 AND", 6), ("(v = 3", 5), ("v = 3)", 5), ("v ~ 3", 2), ("label = 'open", 8)],
)
def test_malformed_predicate_says_where(table: Table, text: str, position: int) -> None:
    with pytest.raises(errors.PredicateError) as caught:
        table.select(where=text)

    assert caught.value.position == position
    assert caught.value.text == text


@pytest.mark.parametrize(
    "predicate",
    [
        lambda: (col("v") == 1) and (col("k") == 2),
        lambda: (col("v") == 1) or (col("k") == 2),
        lambda: not (col("v") > 1),
        lambda: 1 < col("v") < 3,
    ],
)
def test_and_instead_of_ampersand(table: Table, predicate: Callable[[], object]) -> None:
    with pytest.raises(errors.PredicateError, match="&"):
        table.select(where=predicate())


def test_update_of_a_key_column(table: Table) -> None:
    with pytest.raises(errors.KeyUpdateError, match="k"):
        table.update("k = 1", {"k": 2})
    with pytest.raises(errors.KeyUpdateError, match="k"):
        table.update("k = 1", "k = k + 1")


@pytest.mark.parametrize(
    "call",
    [
        lambda table, when: table.insert({"k": 100, "v": 1, "at": when}),
        lambda table, when: table.update("k = 1", {"at": when}),
        lambda table, when: table.select(where=col("at") < when),
        lambda table, when: table.select(where="at < ?", params=(when,)),
    ],
)
def test_naive_datetime(table: Table, call: Callable[[Table, dt.datetime], object]) -> None:
    with pytest.raises(errors.TypeMismatchError, match=r"naive|time zone|UTC"):
        call(table, dt.datetime(2013, 7, 4))


def test_passed_deadline(store: crescando.Store, table: Table) -> None:
    with standstill(store):
        handle = table.update("k = 3", {"v": col("v") + 5})
        with pytest.raises(errors.DeadlineError, match="may yet take effect") as caught:
            handle.result(timeout_s=0.05)
        with pytest.raises(errors.DeadlineError):
            table.select(timeout_s=0.05)

    assert caught.value.applied == "unknown"
    assert handle.result().affected == 1
    assert table.update("k = 3", {"v": 0}).result().affected == 1


def test_more_replicas_than_storages() -> None:
    with pytest.raises(errors.SpecError, match="raise storages or lower replication"):
        crescando.open(storages=2, replication=3)


@pytest.mark.parametrize(
    "arguments", [{"routers": 0}, {"storages": -1}, {"supers": True}, {"replication": 1.5}]
)
def test_impossible_numbers_of_processes(arguments: dict[str, object]) -> None:
    with pytest.raises(errors.SpecError, match=next(iter(arguments))):
        crescando.open(**arguments)  # type: ignore[arg-type]


def test_closed_store_refuses_and_another_is_not_touched(store: crescando.Store, table: Table) -> None:
    closed = with_counters()
    counters = closed.table("counters")
    handle = counters.update("k = 1", {"v": 9})
    closed.close()

    for call in (
        counters.select,
        lambda: counters.insert({"k": 1, "v": 1}),
        lambda: closed.table("counters"),
        closed.tables,
    ):
        with pytest.raises(errors.ClosedError):
            call()
    assert handle.result().affected == 1
    closed.close()
    assert repr(closed).endswith("closed>")


def test_what_the_cluster_refuses_changes_nothing(store: crescando.Store, table: Table) -> None:
    with pytest.raises(errors.RefusedError, match="exists") as caught:
        store.create_table(table.schema)

    assert caught.value.applied == "no"
