"""Look-ups: columns of a table beside a frame's rows, in order, NULL where there is no such key."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from crescando import Store, TableSchema
from crescando.cluster import Cluster
from crescando.errors import TypeMismatchError, UnknownColumnError
from crescando.schema import ColumnDef, DataType
from crescando.spark import lookup
from tests.spark.tables import COLUMNS, comparable, every_type, fresh, hard_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def table(store: Store[Cluster]) -> str:
    name = fresh("lookup")
    store.create_table(every_type(name)).insert(hard_rows()).result()
    return name


def test_rows_keep_their_order_and_missing_keys_give_null(
    spark: SparkSession, at: dict[str, str], table: str
) -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    keys = [chance.choice([None, *range(30)]) for _ in range(500)]
    frame = spark.createDataFrame(list(enumerate(keys)), "place int, id bigint").repartitionByRange(
        3, "place"
    )
    frame = frame.sortWithinPartitions("place").withColumn("tags", F.array(F.lit("nested things pass by")))
    found = lookup(frame, table, "id", columns=["name", "price"], **at)
    assert found.schema.simpleString() == (
        "struct<place:int,id:bigint,tags:array<string>,name:string,price:decimal(18,4)>"
    )
    kept = {row["id"]: (row.get("name"), row.get("price")) for row in hard_rows()}
    assert [(row["place"], row["id"], (row["name"], row["price"])) for row in found.collect()] == [
        (place, key, kept.get(key, (None, None))) for place, key in enumerate(keys)
    ]


def test_every_type_is_looked_up(spark: SparkSession, at: dict[str, str], table: str) -> None:
    names = [column.name for column in COLUMNS if column.name not in ("id", "moment")]
    frame = spark.range(len(hard_rows())).withColumnRenamed("id", "which")
    found = lookup(frame, table, {"which": "id"}, **at)
    rows = [{"which": row["id"], **{name: row.get(name) for name in names}} for row in hard_rows()]
    assert comparable(found.drop("moment").collect(), ["which", *names]) == comparable(
        rows, ["which", *names]
    )


def test_keys_of_several_columns_and_other_names(
    spark: SparkSession, at: dict[str, str], store: Store[Cluster]
) -> None:
    name = fresh("pairs")
    pairs = TableSchema(
        name,
        (
            ColumnDef("carrier", DataType.STRING, nullable=False),
            ColumnDef("leaves", DataType.TIMESTAMP, nullable=False),
            ColumnDef("seats", DataType.INT32),
        ),
        partition_key="carrier",
        primary_key=("carrier", "leaves"),
    )
    frame = spark.createDataFrame(
        [("UA", 1_000_001), ("UA", 5), ("B6", 1_000_001)], "of string, micros bigint"
    )
    frame = frame.withColumn("at", F.timestamp_micros("micros"))
    from crescando.spark import load

    load(
        frame.limit(1).select(
            F.col("of").alias("carrier"), F.col("at").alias("leaves"), F.lit(7).alias("seats")
        ),
        store.create_table(pairs).name,
        **at,
    )
    found = lookup(frame, name, {"at": "leaves", "of": "carrier"}, columns={"seats": "n"}, **at)
    assert {(row["of"], row["micros"], row["n"]) for row in found.collect()} == {
        ("UA", 1_000_001, 7),
        ("UA", 5, None),
        ("B6", 1_000_001, None),
    }


def test_a_lookup_that_cannot_be_is_an_error_of_the_call(
    spark: SparkSession, at: dict[str, str], table: str
) -> None:
    frame = spark.createDataFrame([(1, "x", 1.5)], "id bigint, name string, x double")
    with pytest.raises(TypeMismatchError, match=r"by the primary key of table .* \(id\), not by name"):
        lookup(frame, table, "name", columns=["price"], **at)
    with pytest.raises(TypeMismatchError, match=r"has a column 'name' already: rename it"):
        lookup(frame, table, "id", **at)
    with pytest.raises(UnknownColumnError, match="did you mean 'price'"):
        lookup(frame, table, "id", columns=["prise"], **at)
    with pytest.raises(UnknownColumnError, match="'idd'"):
        lookup(frame, table, "idd", columns=["price"], **at)
    with pytest.raises(TypeMismatchError, match=r"is float64, and key column 'id' .* is int64: cast it"):
        lookup(frame, table, {"x": "id"}, columns=["price"], **at)
