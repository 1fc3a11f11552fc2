"""The verbs of a table, on real engines."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crescando.client import agg, template
from crescando.client import functions as f
from crescando.client.expression import col, lit
from crescando.client.loading import ROWS_MAX
from crescando.client.store import Session
from crescando.client.table import Table
from crescando.client.textual import expr
from crescando.errors import (
    ClosedError,
    KeyUpdateError,
    PredicateError,
    ReadFailedError,
    RowsRejectedError,
    StatementError,
    TypeMismatchError,
    UnknownColumnError,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS

UTC = dt.UTC
MOMENT = dt.datetime(2013, 7, 4, 18, tzinfo=UTC)

JULY_4, JULY_5 = dt.date(2013, 7, 4), dt.date(2013, 7, 5)
NAN = float("nan")

NAMES = ("id", "origin", "delay", "fare", "day", "departs", "cancelled")
VALUES = (
    (1, "JFK", 5, 10.5, JULY_4, MOMENT, False),
    (2, "LGA", None, 20.0, JULY_5, None, None),
    (3, None, -3, NAN, None, MOMENT, True),
)
ROWS = [dict(zip(NAMES, values, strict=True)) for values in VALUES]


@pytest.fixture
def backend() -> EngineBackend:
    return EngineBackend()


@pytest.fixture
def flights(backend: EngineBackend) -> Table:
    table = Session(backend).create_table(FLIGHTS)
    assert table.insert(ROWS).result().affected == 3
    return table


def ids(answer) -> list[int]:
    return sorted(answer.column("id"))


def test_what_goes_in_comes_out(flights: Table) -> None:
    answer = flights.select(where=col("id") == 1)

    assert answer.names == FLIGHTS.column_names
    assert answer.rows() == [(1, "JFK", 5, None, 10.5, None, dt.date(2013, 7, 4), MOMENT, False)]
    assert answer.position > 0


@pytest.mark.parametrize(
    ("where", "params", "found"),
    [
        (None, (), [1, 2, 3]),
        ("origin = ?", ("JFK",), [1]),
        ("origin IN ?", (["JFK", "LGA"],), [1, 2]),
        ("delay < :most OR cancelled", {"most": 6}, [1, 3]),
        (col("delay").is_null(), (), [2]),
        (~(col("origin") == "JFK"), (), [2]),
        (col("fare") > 15, (), [2, 3]),
        (col("departs") == "2013-07-04T14:00-04:00", (), [1, 3]),
        (col("day") - "2013-07-04" == 1, (), [2]),
        (col("seats") < 10**30, (), []),
        (col("delay").isin([]), (), []),
        (~col("delay").isin([]), (), [1, 2, 3]),
        (~col("delay").isin([5, None]), (), []),
        (lit(True), (), [1, 2, 3]),
        ("TRUE", (), [1, 2, 3]),
        ("false", (), []),
        ("cancelled", (), [3]),
    ],
)
def test_predicates_select(flights: Table, where, params, found) -> None:
    assert ids(flights.select(["id"], where, params)) == found
    assert flights.count(where, params) == len(found)


def test_output_columns_may_be_names_text_and_expressions(flights: Table) -> None:
    answer = flights.select(
        ["id", "lower(origin) AS o", (col("delay") * 2).alias("twice"), "fare + ?"], "id = ?", (1.0, 1)
    )

    assert answer.dicts() == [{"id": 1, "o": "jfk", "twice": 10, "fare + ?": 11.5}]
    assert flights.select("id", col("id") == 2).rows() == [(2,)]


def test_order_and_limit(flights: Table) -> None:
    assert flights.select(["id"], order_by="delay").column("id") == [2, 3, 1]
    assert flights.select(["id"], order_by="delay desc").column("id") == [1, 3, 2]
    assert flights.select(["id"], order_by=col("fare").desc()).column("id") == [3, 2, 1]
    assert flights.select(["id"], order_by=["cancelled", col("id").desc()], limit=2).column("id") == [2, 1]
    assert flights.select(["origin AS o"], order_by="o").column("o") == [None, "JFK", "LGA"]
    assert len(flights.select(limit=0)) == 0
    with pytest.raises(PredicateError, match="limit"):
        flights.select(limit=-1)
    with pytest.raises(PredicateError, match="parameters"):
        flights.select(order_by="id + ?")


def test_aggregates(flights: Table) -> None:
    answer = flights.aggregate(
        n=agg.count(),
        known=agg.count("delay"),
        total=agg.sum("delay"),
        least=agg.min("origin"),
        latest=agg.max(col("departs")),
        mean=agg.avg("delay * 2"),
    )

    assert answer.dicts() == [{"n": 3, "known": 2, "total": 2, "least": "JFK", "latest": MOMENT, "mean": 2.0}]
    assert flights.aggregate("id > ?", (99,), n=agg.count(), total=agg.sum("delay")).rows() == [(0, None)]
    with pytest.raises(PredicateError, match="at least one"):
        flights.aggregate()
    with pytest.raises(PredicateError, match="n=agg"):
        flights.aggregate(n="delay")  # type: ignore[arg-type]


def test_update_takes_constants_expressions_and_text(flights: Table) -> None:
    assert flights.update(col("id") == 1, {"delay": col("delay") + 1, "origin": "EWR"}).result().affected == 1
    assert flights.update("id = ?", {"fare": expr("fare * ?", (2,))}, (1,)).result().affected == 1
    assert flights.update("id = ?", "seats = ?, cancelled = NOT cancelled", (7, 1)).result().affected == 1

    answer = flights.select(["origin", "delay", "fare", "seats", "cancelled"], "id = 1")
    assert answer.rows() == [("EWR", 6, 21.0, 7, True)]


def test_a_str_in_set_is_a_constant(flights: Table) -> None:
    flights.update(None, {"origin": "delay"}).result()

    assert set(flights.select(["origin"]).column("origin")) == {"delay"}


def test_delete_and_upsert(flights: Table) -> None:
    assert flights.delete("delay > 0").result().affected == 1
    assert flights.upsert([{"id": 2, "delay": 9}, {"id": 7, "delay": 1}]).result().affected == 2

    assert flights.select(["id", "origin", "delay"], order_by="id").rows() == [
        (2, "LGA", 9),
        (3, None, -3),
        (7, None, 1),
    ]
    assert flights.delete(None).result().affected == 3


def test_rejected_rows_are_told(flights: Table) -> None:
    handle = flights.insert([{"id": 4}, {"id": 1}, {"id": 2}])

    with pytest.raises(RowsRejectedError) as caught:
        handle.result()
    result = handle.result(check=False)

    assert caught.value.applied == "partial"
    assert (caught.value.affected, caught.value.rejected, caught.value.key) == (1, 2, (1,))
    assert "duplicate" in caught.value.cause
    assert (result.affected, result.rejected) == (1, 2)
    assert result.rejection is not None
    assert result.rejection.key == (1,)
    assert handle.position == result.position


def test_rejected_keys_come_back_as_python_values() -> None:
    schema = TableSchema(
        "t", (ColumnDef("at", DataType.TIMESTAMP, False), ColumnDef("n", DataType.INT8)), "at", ("at",)
    )
    table = Session(EngineBackend()).create_table(schema)
    table.insert([{"at": MOMENT, "n": 100}]).result()

    result = table.update(None, {"n": col("n") + 100}).result(check=False)

    assert result.rejected == 1
    assert result.rejection is not None
    assert result.rejection.key == (MOMENT,)


def test_a_failing_read_fails_alone(flights: Table) -> None:
    with pytest.raises(ReadFailedError):
        flights.select(where=f.div(1, col("delay") - 5) > 0)

    assert len(flights.select()) == 3


def test_bulk_insert_is_split_along_the_ring_and_has_one_handle(backend: EngineBackend) -> None:
    table = Session(backend).create_table(FLIGHTS)
    n = 3 * ROWS_MAX + 5
    rows = {"id": np.arange(n), "origin": [f"A{i % 100}" for i in range(n)], "delay": np.arange(n) % 1000}

    handle = table.insert(rows)
    result = handle.result()

    assert result.affected == n
    assert len(result.positions) == 4
    assert list(result.positions) == sorted(result.positions)
    assert result.position == result.positions[-1]
    answer = table.select(["id", "origin", "delay"], order_by="id").to_numpy()
    assert np.array_equal(answer["id"], rows["id"])
    assert answer["origin"].tolist() == rows["origin"]
    assert table.insert({"id": np.arange(n - 1, n + 1)}).result(check=False).rejected == 1


def test_equal_keys_in_a_split_insert_keep_their_order(backend: EngineBackend) -> None:
    table = Session(backend).create_table(FLIGHTS)
    n = ROWS_MAX + 10

    inserted = table.insert({"id": np.zeros(n, np.int32), "seats": np.arange(n)}).result(check=False)
    assert (inserted.affected, inserted.rejected) == (1, n - 1)
    assert table.select(["seats"]).rows() == [(0,)]

    table.upsert({"id": np.zeros(n, np.int32), "seats": np.arange(n)}).result()
    assert table.select(["seats"]).rows() == [(n - 1,)]


def test_an_empty_insert_is_a_write_of_no_rows(flights: Table) -> None:
    assert flights.insert([]).result().affected == 0
    assert flights.insert(pd.DataFrame({"id": [], "delay": []}).astype("int64")).result().affected == 0


@pytest.mark.parametrize("form", ["dicts", "numpy", "pandas", "arrow"])
def test_an_answer_can_be_inserted_again(flights: Table, form: str) -> None:
    answer = flights.select(order_by="id")
    copy = Session(EngineBackend()).create_table("copy", like=answer, primary_key="id")
    rows = {
        "dicts": answer.dicts,
        "numpy": answer.to_numpy,
        "pandas": answer.to_pandas,
        "arrow": lambda: pa.table(answer),
    }[form]()

    copy.insert(rows).result()

    assert repr(copy.select(order_by="id").rows()) == repr(answer.rows())


def test_tables_without_a_key_refuse_upsert() -> None:
    schema = TableSchema("log", (ColumnDef("at", DataType.INT64, False),), "at")
    table = Session(EngineBackend()).create_table(schema)
    table.insert([{"at": 1}, {"at": 1}]).result()

    assert table.count() == 2
    with pytest.raises(StatementError, match="no primary key"):
        table.upsert({"at": 1})


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.select(["nope"]), UnknownColumnError),
        (lambda t: t.select(["id", "id"]), PredicateError),
        (lambda t: t.select([]), PredicateError),
        (lambda t: t.select(where="id = "), PredicateError),
        (lambda t: t.select(where=True), PredicateError),
        (lambda t: t.select(where=5), PredicateError),
        (lambda t: t.select(where="id"), TypeMismatchError),
        (lambda t: t.select(where="id = ?"), PredicateError),
        (lambda t: t.update(None, {}), PredicateError),
        (lambda t: t.update(None, [1]), PredicateError),
        (lambda t: t.update(None, {"id": 1}), KeyUpdateError),
        (lambda t: t.update(None, {"nope": 1}), UnknownColumnError),
        (lambda t: t.update(None, {"delay": "x"}), TypeMismatchError),
        (lambda t: t.update(None, "delay = 1, delay = 2"), PredicateError),
        (lambda t: t.insert({"id": None}), TypeMismatchError),
        (lambda t: t.insert({"id": 9, "departs": dt.datetime(2013, 1, 1)}), TypeMismatchError),
        (lambda t: t.delete(dt.datetime(2013, 1, 1) < col("departs")), TypeMismatchError),
        (lambda t: t.select(timeout_s=-1), StatementError),
        (lambda t: t.select(timeout_s=float("inf")), StatementError),
    ],
)
def test_a_wrong_statement_changes_nothing_and_the_table_stays_usable(flights: Table, call, error) -> None:
    with pytest.raises(error):
        call(flights)

    assert flights.count() == 3


def test_prepared_statements_submit_one_batch(flights: Table, backend: EngineBackend) -> None:
    by_id = flights.prepare_select(["id", "origin"], "id = ?")
    before = backend.n_batches

    answers = [handle.result() for handle in by_id.many([(n % 4,) for n in range(200)])]

    assert backend.n_batches == before + 1
    assert [answer.rows() for answer in answers[:4]] == [[], [(1, "JFK")], [(2, "LGA")], [(3, None)]]
    assert by_id.many([]) == []
    assert by_id((2,)).result().rows() == [(2, "LGA")]


def test_prepared_updates_and_mixed_batches(flights: Table, backend: EngineBackend) -> None:
    session = Session(backend)
    add = flights.prepare_update("id = ?", "delay = coalesce(delay, 0) + ?")
    remove = flights.prepare_delete(col("id") == 3)
    total = flights.prepare_aggregate(total=agg.sum("delay"))
    before = backend.n_batches

    handles = session.submit_many(
        [total.bind(), add.bind((10, 1)), total.bind(), remove.bind(), total.bind()]
    )

    assert backend.n_batches == before + 1
    assert [handle.result().rows() for handle in handles[::2]] == [[(2,)], [(12,)], [(15,)]]
    assert handles[1].result().affected == 1


def test_a_wrong_set_of_values_sends_nothing(flights: Table) -> None:
    add = flights.prepare_update("id = ?", {"delay": 9})
    with pytest.raises(TypeMismatchError):
        add.many([(1,), ("x",)])

    assert flights.count("delay = 9") == 0


def test_statements_of_one_form_are_bound_once(flights: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []
    real = template.bind_template
    monkeypatch.setattr(template, "bind_template", lambda *args: bound.append(args) or real(*args))

    found = [flights.select(["id"], (col("id") == n) & col("delay").isin([5, n])).rows() for n in range(1, 4)]
    for n in range(3):
        flights.update(f"id = {n}", {"origin": f"A{n}", "delay": col("delay") + n}).result()

    assert found == [[(1,)], [], []]
    assert len(bound) == 2
    assert flights.select(["id", "origin", "delay"], order_by="id").rows() == [
        (1, "A1", 6),
        (2, "A2", None),
        (3, None, -3),
    ]


def test_constants_of_other_types_are_bound_anew(flights: Table) -> None:
    for value, found in ((5, [1]), (5.0, [1]), (5.5, []), (2**70, []), (None, []), (6, [])):
        assert ids(flights.select(["id"], col("delay") == value)) == found
        assert ids(flights.select(["id"], col("delay").isin([value]))) == found
    for value, other, found in (
        ("2013-07-01", 3, [1]),
        (dt.date(2013, 7, 2), 3, [2]),
        (3, "2013-07-01", [1]),
    ):
        assert ids(flights.select(["id"], col("day") - value == other)) == found


def test_errors_speak_of_what_was_written(flights: Table) -> None:
    flights.select(where=(col("delay") > 5) & (col("origin") == "JFK"))
    with pytest.raises(TypeMismatchError, match=r"col\('origin'\) == 5"):
        flights.select(where=(col("delay") > 5) & (col("origin") == 5))
    with pytest.raises(PredicateError, match="has 1 parameters and was given 0"):
        flights.select(where="delay > 5 AND origin = ?")
    with pytest.raises(PredicateError, match=r"write \('JFK',\)"):
        flights.select(where="delay > 5 AND origin = ?", params="JFK")


def test_awaiting_is_the_twin_of_waiting(flights: Table) -> None:
    async def main() -> None:
        write = flights.update(col("id") == 1, {"delay": 50})
        await write.wait_stable()
        assert (await write).affected == 1
        assert (await flights.select_nowait(["delay"], "id = 1")).rows() == [(50,)]
        assert await flights.count_nowait() == 3
        with pytest.raises(RowsRejectedError):
            await flights.insert({"id": 1})
        assert (await flights.insert({"id": 1}).wait(check=False)).rejected == 1

    asyncio.run(main())


def test_closed_sessions_refuse(flights: Table, backend: EngineBackend) -> None:
    session = Session(backend)
    table = session.table("flights")
    session.close()
    session.close()

    assert backend.n_closed == 1
    for call in (
        lambda: table.insert({"id": 9}),
        lambda: table.select(),
        lambda: session.table("flights"),
        lambda: session.create_table(FLIGHTS),
        lambda: session.tables(),
    ):
        with pytest.raises(ClosedError):
            call()


LITERALS = {
    "whole": [0, 1, -7, 300, 2**40, 2**63, None],
    "real": [0.0, -0.5, 1.0, 1e300, None],
    "text": ["", "a", "b", "a\0", None],
    "raw": [b"", b"a", b"b", b"a\0", b"\xff", None],
}
COLUMNS = {
    "whole": [0, 1, -7, 120, None],
    "real": [0.0, -0.5, 1.0, 7.25, None],
    "text": ["", "a", "B", "a\0", None],
    "raw": [b"", b"a", b"\xff", b"a\0", None],
}


def test_comparisons_equal_sqlite_whatever_the_spelling() -> None:
    """K29, K30, K32, K33: literals are typed once, for every operator."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (id INTEGER, whole INTEGER, real REAL, text TEXT, raw BLOB)")
    rows = [{"id": n, **{name: values[n] for name, values in COLUMNS.items()}} for n in range(5)]
    base.executemany("INSERT INTO t VALUES (:id, :whole, :real, :text, :raw)", rows)
    schema = TableSchema(
        "t",
        (
            ColumnDef("id", DataType.INT64, False),
            ColumnDef("whole", DataType.INT8),
            ColumnDef("real", DataType.FLOAT64),
            ColumnDef("text", DataType.STRING),
            ColumnDef("raw", DataType.BYTES),
        ),
        "id",
    )
    table = Session(EngineBackend()).create_table(schema)
    table.insert(rows).result()
    n_checked = 0
    for name in COLUMNS:
        numbers = [*LITERALS["whole"], *LITERALS["real"]]
        for value in LITERALS[name] if name in ("text", "raw") else numbers:
            # SQLite cannot bind integers beyond int64, but compares reals exactly with integers.
            theirs = float(value) if value == 2**63 else value
            for op in ("=", "<>", "<", "<=", ">", ">="):
                for text in (f"{name} {op} ?", f"NOT {name} {op} ?", f"({name} {op} ?) IS NULL"):
                    expected = [row[0] for row in base.execute(f"SELECT id FROM t WHERE {text}", (theirs,))]
                    assert ids(table.select(["id"], text, (value,))) == expected, (text, value)
                    n_checked += 1
            for values in (
                [],
                [value],
                [value, None],
                [value, *LITERALS[name if name in ("text", "raw") else "whole"][:2]],
            ):
                for negation in ("", "NOT "):
                    marks = ", ".join("?" * len(values))
                    text = f"{name} {negation}IN ({marks})"
                    bound = [float(each) if each == 2**63 else each for each in values]
                    expected = [row[0] for row in base.execute(f"SELECT id FROM t WHERE {text}", bound)]
                    assert ids(table.select(["id"], text, values)) == expected, (text, values)
                    assert ids(table.select(["id"], f"{name} {negation}IN ?", (values,))) == expected
                    found = col(name).isin(values)
                    assert ids(table.select(["id"], ~found if negation else found)) == expected
                    n_checked += 1
    assert n_checked > 500


@pytest.mark.parametrize("n_terms", [1, 64, 65, 4_000])
def test_wide_predicates_are_answered(flights: Table, n_terms: int) -> None:
    """K35: from one term to thousands, as expressions and as text."""
    terms = range(5, 5 + n_terms)

    assert ids(flights.select(["id"], f.any_of(col("delay") == n for n in terms))) == [1]
    assert ids(flights.select(["id"], col("delay").isin(terms))) == [1]
    text = " OR ".join(f"delay = {n}" for n in terms)
    if n_terms < 1_000:
        assert ids(flights.select(["id"], text)) == [1]
    else:
        with pytest.raises(PredicateError, match="compare with a list of constants by IN"):
            flights.select(["id"], text)
