"""Reads: what is there, all of it, at one position; filters pushed or not."""

from __future__ import annotations

import datetime
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from crescando import Store, col
from crescando.cluster import Cluster
from crescando.errors import PredicateError, UnknownTableError
from crescando.spark import extract
from tests.spark.tables import COLUMNS, comparable, every_type, fresh, hard_rows, keyed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMES = [column.name for column in COLUMNS]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def table(store: Store[Cluster]) -> str:
    name = fresh("read")
    store.create_table(every_type(name)).insert(hard_rows()).result()
    return name


def read(spark: SparkSession, at: dict[str, str], table: str, **options: str) -> DataFrame:
    return spark.read.format("crescando").options(**at, table=table, **options).load()


def micros(rows: DataFrame) -> DataFrame:
    """Instants as numbers: Python cannot say the first and the last ones in every zone."""
    return rows.withColumn("moment", F.unix_micros("moment"))


def expected() -> list[dict[str, Any]]:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return [
        {
            **row,
            "moment": None
            if row["moment"] is None
            else (row["moment"] - epoch) // datetime.timedelta(microseconds=1),
        }
        for row in ({name: row.get(name) for name in NAMES} for row in hard_rows())
    ]


def test_every_type_is_read_as_it_is(spark: SparkSession, at: dict[str, str], table: str) -> None:
    frame = read(spark, at, table)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,flag:boolean,tiny:tinyint,small:smallint,medium:int,large:bigint,single:float,"
        "double:double,price:decimal(18,4),name:string,raw:binary,day:date,moment:timestamp>"
    )
    assert [field.nullable for field in frame.schema] == [False] + [True] * 12
    wanted = comparable(expected(), NAMES)
    assert comparable(micros(frame).collect(), NAMES) == wanted
    assert comparable(micros(extract(spark, table, **at)).collect(), NAMES) == wanted


def test_columns_are_those_that_are_asked_for(spark: SparkSession, at: dict[str, str], table: str) -> None:
    by_option = read(spark, at, table, columns="name,id", where="id >= 5")
    by_schema = (
        spark.read.format("crescando")
        .schema("name string, id bigint")
        .options(**at, table=table, where="id >= 5")
        .load()
    )
    by_call = extract(spark, table, col("id") >= 5, columns=["name", "id"], n_parts=7, **at)
    assert by_option.columns == by_schema.columns == by_call.columns == ["name", "id"]
    wanted = sorted((row["id"], row["name"]) for row in expected() if row["id"] >= 5)
    for frame in (by_option, by_schema, by_call):
        assert sorted((row["id"], row["name"]) for row in frame.collect()) == wanted
    assert by_call.rdd.getNumPartitions() >= 7


MOMENT = datetime.datetime(2024, 3, 31, 2, 0, tzinfo=datetime.UTC)


def conditions() -> list[Column]:
    """Of every kind that is taken, and some that are left; made where there is a session."""
    return [
        F.col("medium") > 5,
        ~(F.col("medium") > 5),
        F.col("medium").isNull(),
        F.col("medium").eqNullSafe(None) | (F.col("id") < 0),
        F.col("medium").eqNullSafe(7),
        F.col("flag"),
        ~F.col("flag"),
        F.col("name").startswith("n\u00e4me"),
        F.col("name").contains("me 1"),
        F.col("name").contains("%"),
        ~F.col("name").endswith("5"),
        F.col("name").isin("n\u00e4me 1", ""),
        F.col("price") <= Decimal("1.5000"),
        F.col("single") >= 2.5,
        F.col("double") > 1e308,
        F.col("double") != 2.0,
        F.col("day") == datetime.date(2024, 4, 1),
        F.col("raw") > b"\x05",
        F.col("moment") >= F.lit(MOMENT),
        (F.col("moment") < F.lit(MOMENT)) & F.col("flag") & F.col("medium").isNotNull(),
        F.col("large").isin(*(number << 40 for number in range(0, 20, 3))),
    ]


def test_filters_select_the_same_rows_pushed_or_not(
    spark: SparkSession, at: dict[str, str], table: str
) -> None:
    """All conditions in one query each way: which of them each row is selected by."""
    frames: dict[str, set[tuple[int, int]]] = {}
    for setting in ("true", "false"):
        spark.conf.set(PUSHDOWN, setting)
        try:
            every = [
                read(spark, at, table).where(condition).select(F.lit(number).alias("condition"), "id")
                for number, condition in enumerate(conditions())
            ]
            union = every[0]
            for each in every[1:]:
                union = union.union(each)
            frames[setting] = {(row["condition"], row["id"]) for row in union.collect()}
            plan = every[0]._jdf.queryExecution().executedPlan().toString()
            assert ("Filter (" in plan) == (setting == "false"), plan
        finally:
            spark.conf.set(PUSHDOWN, "true")
    assert frames["true"] == frames["false"]
    assert {condition for condition, _ in frames["true"]} == set(range(len(conditions())))


def test_an_extract_during_writes_equals_one_position(
    spark: SparkSession, at: dict[str, str], store: Store[Cluster]
) -> None:
    """Every update adds one to each row: rows of one position have one amount."""
    name = fresh("moving")
    moving = store.create_table(keyed(name))
    n = 500
    moving.insert([{"id": number, "amount": 0, "note": "x"} for number in range(n)]).result()
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            moving.update(col("id") >= 0, {"amount": col("amount") + 1}).result()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = []
        for frame in (
            read(spark, at, name),
            extract(spark, name, n_parts=6, **at),
            extract(spark, name, "amount >= 0", n_parts=6, **at),
        ):
            amounts = [row["amount"] for row in frame.select("amount").collect()]
            assert len(amounts) == n
            assert len(set(amounts)) == 1, sorted(set(amounts))
            seen.append(amounts[0])
        # What was extracted stays as it was.
        assert {row["amount"] for row in frame.collect()} == {seen[-1]}
    finally:
        is_over.set()
        writer.join()
    # An extract is of the position of its call, a frame of the data source of that of its use.
    now = moving.select(["amount"]).rows()[0][0]
    assert now >= seen[0] >= seen[2] >= seen[1]
    assert now > seen[1], "nothing was written meanwhile"


def test_a_frame_that_is_used_after_its_lease_says_so(
    spark: SparkSession, at: dict[str, str], table: str
) -> None:
    frame = extract(spark, table, lease_s=0.2, **at)
    time.sleep(0.5)

    with pytest.raises(PySparkException, match="the pinned snapshot is over"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "nowhere"}, "UnknownTableError: no table is named 'nowhere'"),
        ({"colums": "id"}, "SpecError: no option is named 'colums'; did you mean 'columns'"),
        ({"columns": "id,nam"}, "UnknownColumnError: table .* has no column 'nam'; did you mean 'name'"),
        ({"where": "id >"}, "PredicateError"),
        ({"where": "idd > 5"}, "UnknownColumnError: .*'idd'"),
        ({"where": "name > 5"}, "TypeMismatchError"),
        ({"tls": "/nowhere/client.pem"}, "CredentialsError: /nowhere/client.pem"),
        ({"url": "127.0.0.1:1"}, "SpecError: the address of a cluster is crescando://"),
        ({"url": "crescando://127.0.0.1:1", "timeout_s": "0.5"}, "DeadlineError: no router of the cluster"),
    ],
)
def test_a_read_that_cannot_be_says_why_in_its_first_line(
    spark: SparkSession, at: dict[str, str], table: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text) as told:
        spark.read.format("crescando").options(**{**at, "table": table, **options}).load().collect()
    assert text.partition(":")[0] in str(told.value).splitlines()[0]


def test_an_extract_that_cannot_be_is_an_error_of_the_call(
    spark: SparkSession, at: dict[str, str], table: str
) -> None:
    with pytest.raises(UnknownTableError, match="nowhere"):
        extract(spark, "nowhere", **at)
    with pytest.raises(PredicateError):
        extract(spark, table, "id >", **at)


def test_a_schema_of_other_types_is_refused(spark: SparkSession, at: dict[str, str], table: str) -> None:
    reader = spark.read.format("crescando").options(**at, table=table)
    with pytest.raises(AnalysisException, match=r"column 'id' of table .* is bigint"):
        reader.schema("id int").load().collect()
