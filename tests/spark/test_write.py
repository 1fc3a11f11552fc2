"""Writes: every kind of them, once and whole; and what cannot be written, told in one line."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from crescando import Store, Table, col
from crescando.certificates import Authority
from crescando.cluster import Cluster
from crescando.errors import (
    CrescandoError,
    LoadConflictError,
    SessionRefusedError,
    SpecError,
    StatementError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownTableError,
)
from crescando.spark import load, update_from
from tests.spark.tables import fresh, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id bigint, amount bigint, note string"


@pytest.fixture
def table(store: Store[Cluster]) -> Table:
    return store.create_table(keyed(fresh("write")))


def rows(n: int, amount: int = 0, first: int = 0) -> list[tuple[int, int, str]]:
    return [(number, amount, f"n{number}") for number in range(first, first + n)]


def frame(
    spark: SparkSession, data: list[tuple[Any, ...]], schema: str = SCHEMA, parts: int = 3
) -> DataFrame:
    return spark.createDataFrame(data, schema).repartition(parts)


def there(table: Table) -> list[tuple[Any, ...]]:
    return table.select(["id", "amount", "note"], order_by=["id"]).rows()


def save(df: DataFrame, at: dict[str, str], table: Table, mode: str = "append", **options: str) -> None:
    df.write.format("crescando").mode(mode).options(**at, table=table.name, **options).save()


def test_a_frame_is_appended_updated_and_deleted(
    spark: SparkSession, at: dict[str, str], table: Table
) -> None:
    save(frame(spark, rows(200)), at, table)
    assert there(table) == rows(200)
    save(frame(spark, rows(20, 5, 190)), at, table, write="upsert")
    assert there(table) == rows(190) + rows(20, 5, 190)
    save(frame(spark, [(3, 7), (999, 7)], "id bigint, amount bigint"), at, table, write="update")
    assert there(table)[3] == (3, 7, "n3")
    save(frame(spark, [(number,) for number in range(100)], "id bigint"), at, table, write="delete")
    assert there(table) == rows(90, 0, 100) + rows(20, 5, 190)
    save(frame(spark, rows(5, 1)), at, table, "overwrite", confirm_overwrite=table.name)
    assert there(table) == rows(5, 1)
    save(frame(spark, [(9, "y")], "id bigint, note string"), at, table, columns="id,note")
    assert there(table)[5:] == [(9, None, "y")]


def test_rows_whose_key_exists_follow_the_rule(spark: SparkSession, at: dict[str, str], table: Table) -> None:
    first = load(frame(spark, rows(10)), table.name, **at)
    assert (first.inserted, first.is_repeat) == (10, False)
    kept = load(frame(spark, rows(10, 1, 5)), table.name, rule="keep", **at)
    assert (kept.inserted, kept.kept) == (5, 5)
    assert there(table) == rows(10) + rows(5, 1, 10)
    replaced = load(frame(spark, rows(10, 2, 10)), table.name, rule="replace", **at)
    assert (replaced.inserted, replaced.replaced) == (5, 5)
    assert there(table) == rows(10) + rows(10, 2, 10)
    with pytest.raises(LoadConflictError, match=r"3 rows have keys .* the smallest: \(17,\)") as told:
        load(frame(spark, rows(10, 3, 17)), table.name, **at)
    assert told.value.n_conflicts == 3
    with pytest.raises(PySparkException, match="LoadConflictError: 3 rows have keys"):
        save(frame(spark, rows(10, 3, 17)), at, table)
    assert there(table) == rows(10) + rows(10, 2, 10)


def test_a_key_that_a_load_has_twice_is_told(spark: SparkSession, at: dict[str, str], table: Table) -> None:
    with pytest.raises(LoadConflictError, match=r"the load itself has already, the smallest: \(4,\)"):
        load(frame(spark, [*rows(50), (4, 1, "again")]), table.name, **at)
    assert there(table) == []


def test_an_update_tells_of_rows_that_are_missing(
    spark: SparkSession, at: dict[str, str], table: Table
) -> None:
    load(frame(spark, rows(10)), table.name, **at)
    outcome = update_from(frame(spark, [(3, 7), (99, 7)], "id bigint, amount bigint"), table.name, **at)
    assert (outcome.updated, outcome.missing) == (1, 1)


def test_a_job_is_done_once(spark: SparkSession, at: dict[str, str], table: Table) -> None:
    def once(epoch: int | None, job: str) -> bool:
        return load(frame(spark, rows(10)), table.name, write="upsert", job=job, epoch=epoch, **at).is_repeat

    assert [once(None, "nightly"), once(None, "nightly"), once(None, "weekly")] == [False, True, False]
    assert [once(epoch, "hourly") for epoch in (0, 1, 1, 0, 2)] == [False, False, True, True, False]
    save(frame(spark, rows(10, 1)), at, table, job="nightly", write="upsert")
    assert there(table) == rows(10)
    with pytest.raises(SpecError, match="say job"):
        load(frame(spark, rows(1)), table.name, epoch=1, **at)


def test_a_frame_without_rows_is_a_load_of_none(
    spark: SparkSession, at: dict[str, str], table: Table
) -> None:
    nothing = spark.createDataFrame([], SCHEMA)
    assert load(nothing, table.name, **at).inserted == 0
    save(nothing, at, table)
    load(frame(spark, rows(3)), table.name, **at)
    load(nothing, table.name, write="overwrite", confirm_overwrite=table.name, **at)
    assert there(table) == []


def test_an_overwrite_is_seen_wholly_old_or_wholly_new(
    spark: SparkSession, at: dict[str, str], table: Table, store: Store[Cluster]
) -> None:
    n = 300
    load(frame(spark, rows(n, 0)), table.name, **at)
    is_over = threading.Event()
    seen: list[tuple[int, set[int]]] = []

    def look() -> None:
        with store.session(fresh("looker")) as session:
            looked = session.table(table.name)
            while not is_over.is_set():
                amounts = looked.select(["amount"]).column("amount")
                seen.append((len(amounts), set(amounts)))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for amount in (1, 2):
            data = frame(spark, rows(n + amount, amount))
            save(data, at, table, "overwrite", confirm_overwrite=table.name)
        # One that fails leaves what was.
        broken = frame(spark, [*rows(n, 3), (None, 3, "x")])
        with pytest.raises(PySparkException, match="not nullable"):
            save(broken, at, table, "overwrite", confirm_overwrite=table.name)
    finally:
        is_over.set()
        looker.join()
    assert {(n_rows, frozenset(amounts)) for n_rows, amounts in seen} <= {
        (n + amount, frozenset({amount})) for amount in (0, 1, 2)
    }
    assert there(table) == rows(n + 2, 2)


BAD_FRAMES = [
    ("id bigint, amount bigint", (1, 2), TypeMismatchError, "the frame has no column 'note'"),
    (SCHEMA + ", extra int", (1, 2, "x", 3), UnknownColumnError, "has no column 'extra'"),
    ("id bigint, amount string, note string", (1, "2", "x"), TypeMismatchError, "cast it, as in"),
    ("id bigint, amount bigint, note array<string>", (1, 2, ["x"]), TypeMismatchError, "is nested"),
]


@pytest.mark.parametrize(("schema", "row", "error", "text"), BAD_FRAMES)
def test_a_frame_that_does_not_fit_is_refused_on_the_driver(
    spark: SparkSession,
    at: dict[str, str],
    table: Table,
    schema: str,
    row: tuple[Any, ...],
    error: type[Exception],
    text: str,
) -> None:
    bad = spark.createDataFrame([row], schema)
    with pytest.raises(error, match=text):
        load(bad, table.name, **at)
    with pytest.raises(PySparkException, match=text) as told:
        save(bad, at, table)
    assert error.__name__ in str(told.value).splitlines()[0]
    assert there(table) == []


def test_null_in_a_key_is_told_with_its_partition(
    spark: SparkSession, at: dict[str, str], table: Table
) -> None:
    bad = frame(spark, [*rows(20), (None, 1, "x")])
    with pytest.raises(
        TypeMismatchError, match=r"^nothing was written .*: partition \d: column 'id' is not null"
    ):
        load(bad, table.name, **at)
    with pytest.raises(PySparkException, match="column 'id' is not null") as told:
        save(bad, at, table)
    assert "nothing was written" in str(told.value).splitlines()[0]
    assert there(table) == []


def test_a_place_that_is_none_is_told(
    spark: SparkSession, at: dict[str, str], table: Table, tmp_path: Path
) -> None:
    one = frame(spark, rows(1))
    with pytest.raises(CrescandoError, match="no router of the cluster 'served' was found within"):
        load(one, table.name, url="crescando://127.0.0.1:1", tls=at["tls"], timeout_s=0.5)
    Authority.create(tmp_path / "other", cluster="served")
    with pytest.raises(SessionRefusedError) as told:
        load(one, table.name, url=at["url"], tls=tmp_path / "other")
    assert "\n" not in str(told.value)
    with pytest.raises(UnknownTableError, match="did you mean"):
        load(one, table.name + "x", **at)
    with pytest.raises(SpecError, match="a write needs the option url"):
        load(one, table.name)


def test_a_job_of_no_name_is_told(spark: SparkSession, at: dict[str, str], table: Table) -> None:
    one = frame(spark, rows(1))
    with pytest.raises(StatementError, match="job is a name of 1 to"):
        load(one, table.name, job="x" * 1000, **at)
    with pytest.raises(PySparkException, match="option job is a text"):
        save(one, at, table, job=" ")


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("ignore", {}, 'cannot be written in the "Ignore" mode'),
        ("errorifexists", {}, 'cannot be written in the "ErrorIfExists" mode'),
        ("overwrite", {}, "confirm it by the option confirm_overwrite="),
        ("append", {"write": "overwrite"}, "confirm it by the option confirm_overwrite="),
        ("append", {"path": "x"}, "a table is no path"),
        ("append", {"rul": "keep"}, "did you mean 'rule'"),
    ],
)
def test_a_mode_that_is_none_is_told(
    spark: SparkSession, at: dict[str, str], table: Table, mode: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text) as told:
        save(frame(spark, rows(1)), at, table, mode, **options)
    assert text in str(told.value).splitlines()[0]
    assert there(table) == []


def test_rows_are_written_from_for_each_batch(
    spark: SparkSession, at: dict[str, str], table: Table, tmp_path: Path
) -> None:
    """An epoch that Spark gives twice is loaded once."""
    frame(spark, rows(30)).write.parquet(str(tmp_path / "in"))
    outcomes = []

    def each(batch: DataFrame, epoch: int) -> None:
        outcomes.extend(load(batch, table.name, job="each", epoch=epoch, **at).is_repeat for _ in range(2))

    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(each).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert outcomes == [False, True]
    assert there(table) == rows(30)
    assert table.count(col("amount") == 0) == 30
