"""Groups, distinct rows and first rows through the verbs of a table, on real engines."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from crescando.client import agg
from crescando.client.expression import col
from crescando.client.store import Session
from crescando.client.table import Table
from crescando.errors import PredicateError, ReadFailedError, TypeMismatchError, UnknownColumnError
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS

ORIGINS = ("JFK", "LGA", "EWR", None, "")
RANDOM = Random(7)
ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "origin": RANDOM.choice(ORIGINS),
        "delay": RANDOM.choice((None, -3, 0, 5, 60)),
        "fare": RANDOM.choice((0.1, 0.2, float("nan"), -0.0, 0.0)),
    }
    for number in range(500)
]


@pytest.fixture
def flights() -> Table:
    table = Session(EngineBackend(3)).create_table(FLIGHTS)
    assert table.insert(ROWS).result().affected == 500
    return table


def of_origin(origin: str | None) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["origin"] == origin]


def test_groups_are_merged_over_all_storages(flights: Table) -> None:
    answer = flights.aggregate(
        group_by=["origin"],
        n=agg.count(),
        known=agg.count("delay"),
        total=agg.sum("delay"),
        kinds=agg.count_distinct("delay"),
        latest=agg.max("delay"),
        order_by="origin desc",
    )

    assert answer.names == ("origin", "n", "known", "total", "kinds", "latest")
    expected = []
    for origin in ("LGA", "JFK", "EWR", "", None):
        delays = [row["delay"] for row in of_origin(origin) if row["delay"] is not None]
        n = len(of_origin(origin))
        expected.append((origin, n, len(delays), sum(delays), len(set(delays)), max(delays)))
    assert answer.rows() == expected


def test_group_keys_are_expressions_and_zero_and_nan_are_one_group_each(flights: Table) -> None:
    answer = flights.aggregate(group_by=[(col("id") % 3).alias("rest"), "fare"], n=agg.count())

    kinds = Counter((row["id"] % 3, repr(row["fare"] + 0.0)) for row in ROWS)
    assert {(rest, repr(fare)): n for rest, fare, n in answer.rows()} == kinds
    text = flights.aggregate(
        "id < ?", (2, 90), group_by=["id % ? AS parity"], n=agg.count(), order_by="parity"
    )
    assert text.rows() == [(0, 45), (1, 45)]


def test_having_order_offset_and_limit_see_the_merged_groups(flights: Table) -> None:
    counts = sorted(((len(of_origin(o)), o) for o in ORIGINS), key=lambda pair: -pair[0])
    answer = flights.aggregate(group_by="origin", n=agg.count(), order_by="n desc", offset=1, limit=2)
    assert answer.column("n") == [n for n, _ in counts[1:3]]

    middle = counts[2][0]
    many = flights.aggregate(group_by="origin", n=agg.count(), having=col("n") > middle)
    assert sorted(many.column("n")) == sorted(n for n, _ in counts if n > middle)
    assert flights.aggregate(group_by="origin", n=agg.count(), having=f"n > {middle}").column(
        "n"
    ) == many.column("n")
    assert flights.aggregate(n=agg.count(), having="n > 500").rows() == []
    tied = flights.aggregate(group_by="origin", n=agg.count(), order_by=col("n") * 0, limit=2)
    assert tied.column("origin") == [None, ""]


def test_no_rows_make_no_groups(flights: Table) -> None:
    assert flights.aggregate("id < 0", group_by="origin", n=agg.count()).rows() == []
    assert flights.select("origin", "id < 0", distinct=True).rows() == []
    assert flights.aggregate("id < 0", n=agg.count(), kinds=agg.count_distinct("fare")).rows() == [(0, 0)]


def test_distinct_rows(flights: Table) -> None:
    answer = flights.select(["origin", "delay"], distinct=True)

    assert set(answer.rows()) == {(row["origin"], row["delay"]) for row in ROWS}
    assert len(answer) == len(set(answer.rows()))
    ordered = flights.select(["delay", "origin"], distinct=True, order_by=["delay desc", "origin"], limit=3)
    assert ordered.rows() == [(60, None), (60, ""), (60, "EWR")]
    assert len(flights.select(distinct=True)) == 500


def test_first_rows_of_all_storages(flights: Table) -> None:
    def rank(row: dict[str, Any]) -> tuple[Any, ...]:
        delay = row["delay"]
        return (delay is None, -(delay or 0), row["id"])

    expected = [row["id"] for row in sorted(ROWS, key=rank)]
    for offset, limit in ((0, 10), (3, 7), (495, 10), (600, 3), (0, 0), (2, 1 << 70)):
        answer = flights.select(["id"], order_by="delay desc", offset=offset, limit=limit)
        assert answer.column("id") == expected[offset : offset + limit]
    assert flights.select(["id"], limit=4, offset=1).column("id") == [1, 2, 3, 4]
    assert flights.select(["id"], order_by="id", offset=498).column("id") == [498, 499]
    # Which rows are left out must not depend on which process has them.
    assert flights.select(["id"], offset=497).column("id") == [497, 498, 499]


def test_storages_send_no_more_than_the_first_rows() -> None:
    backend = EngineBackend(2)
    table = Session(backend).create_table(FLIGHTS)
    table.insert(ROWS).result()
    sent: list[int] = []
    for engine in backend.engines:
        execute = engine.execute

        def counted(operations: Any, execute: Any = execute) -> Any:
            results = execute(operations)
            sent.extend(len(rows.columns[0]) for result in results for rows in result.rows)
            return results

        engine.execute = counted  # type: ignore[method-assign]

    assert table.select(["id"], order_by="fare", offset=2, limit=3).names == ("id",)
    assert sent == [5, 5]


def test_prepared_groups_and_first_rows(flights: Table) -> None:
    by_origin = flights.prepare_aggregate("id < ?", group_by="origin", n=agg.count(), order_by="origin")
    assert [sum(handle.result().column("n")) for handle in by_origin.many([(0,), (10,), (500,)])] == [
        0,
        10,
        500,
    ]
    last = flights.prepare_select(["id"], "id < ?", order_by="id desc", limit=1)
    assert [handle.result().rows() for handle in last.many([(3,), (9,)])] == [[(2,)], [(8,)]]


def test_mistakes_are_told_before_anything_is_sent(flights: Table) -> None:
    with pytest.raises(UnknownColumnError, match="answer"):
        flights.aggregate(group_by="origin", n=agg.count(), having=col("m") > 1)
    with pytest.raises(TypeMismatchError, match="predicate"):
        flights.aggregate(group_by="origin", n=agg.count(), having=col("n") + 1)
    with pytest.raises(PredicateError, match="no parameters"):
        flights.aggregate(group_by="origin", n=agg.count(), having="n > ?")
    with pytest.raises(PredicateError, match="named twice"):
        flights.aggregate(group_by="origin", origin=agg.count())
    with pytest.raises(PredicateError, match="offset"):
        flights.select(offset=-1)
    with pytest.raises(PredicateError, match="limit"):
        flights.aggregate(n=agg.count(), limit=True)
    with pytest.raises(UnknownColumnError):
        flights.select("origin", distinct=True, order_by="delay")
    with pytest.raises(ReadFailedError, match="division by zero, in HAVING"):
        flights.aggregate(group_by="origin", n=agg.count(), having=col("n") % (col("n") - col("n")) == 1)
