"""Instants are the same in every zone: of the session, of the JVM, of the Python processes."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F  # noqa: N812

from crescando import Store
from crescando.cluster import Cluster
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.spark import extract, load
from tests.spark.tables import fresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSIONS = ("UTC", "America/New_York", "Australia/Lord_Howe")
MACHINES = ("UTC", "Europe/Zurich", "America/St_Johns")
PROCESSES = ("UTC", "Asia/Kathmandu", "America/New_York", "Europe/Zurich")
COMBINATIONS = list(product(SESSIONS, MACHINES, PROCESSES))

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def instants() -> list[int]:
    """Give instants about every change of the clocks of 2024, in all of the zones, and far ones."""
    found = {micros(datetime.datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 1582, 1900, 1969, 9999)}
    found |= {-1, 0, 1}
    for zone in {ZoneInfo(name) for name in (*SESSIONS, *MACHINES, *PROCESSES)}:
        hour = datetime.datetime(2024, 1, 1, tzinfo=UTC)
        while hour.year == 2024:
            after = hour + datetime.timedelta(hours=1)
            if hour.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
                for minutes in (-61, -31, -1, 0, 1, 29, 59, 60, 91):
                    found.add(micros(after + datetime.timedelta(minutes=minutes, microseconds=minutes)))
            hour = after
    return sorted(found)


INSTANTS = instants()

# The wall shows it once in every zone here.
WALL = datetime.datetime(2024, 4, 1, 12, 0)


@contextmanager
def zones(spark: SparkSession, session: str, machine: str, process: str) -> Iterator[None]:
    """Put the session, the JVM and the Python processes into zones."""
    java: Any = spark._jvm
    before = java.java.util.TimeZone.getDefault(), os.environ.get("TZ")
    spark.conf.set("spark.sql.session.timeZone", session)
    java.java.util.TimeZone.setDefault(java.java.util.TimeZone.getTimeZone(machine))
    os.environ["TZ"] = process
    spark.sparkContext.environment["TZ"] = process
    time.tzset()
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        java.java.util.TimeZone.setDefault(before[0])
        del spark.sparkContext.environment["TZ"]
        if before[1] is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before[1]
        time.tzset()


@pytest.fixture(scope="module")
def table(store: Store[Cluster]) -> str:
    columns = (
        ColumnDef("combination", DataType.INT32, nullable=False),
        ColumnDef("micros", DataType.INT64, nullable=False),
        ColumnDef("moment", DataType.TIMESTAMP),
        ColumnDef("day", DataType.DATE),
    )
    name = fresh("zones")
    store.create_table(TableSchema(name, columns, "micros", ("micros", "combination")))
    return name


def test_the_clocks_do_change(spark: SparkSession) -> None:
    """What the matrix varies is what Spark shows; else it would try nothing."""
    shown = {}
    for session in SESSIONS:
        with zones(spark, session, "Europe/Zurich", "Asia/Kathmandu"):
            (row,) = spark.sql("select cast(timestamp_micros(0) as string) as at").collect()
            shown[session] = row["at"]
            assert datetime.datetime.fromtimestamp(0).isoformat() == "1970-01-01T05:30:00"

            def zone(batches: Any) -> Any:
                import pyarrow as pa

                for batch in batches:
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([time.tzname[0]] * len(batch))], names=["zone"]
                    )

            (row,) = spark.range(0, 1, 1, 1).mapInArrow(zone, "zone string").collect()
            assert row["zone"] == "+0545"
    assert len(set(shown.values())) == 3


@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids=lambda n: "-".join(COMBINATIONS[n]))
def test_instants_and_days_come_back_as_they_were(
    spark: SparkSession, at: dict[str, str], store: Store[Cluster], table: str, number: int
) -> None:
    session, machine, process = COMBINATIONS[number]
    border = WALL.replace(tzinfo=ZoneInfo(session))
    wanted = {each for each in INSTANTS if each >= micros(border)}
    assert 0 < len(wanted) < len(INSTANTS)
    with zones(spark, session, machine, process):
        numbers = spark.createDataFrame([(each,) for each in INSTANTS], "micros bigint")
        frame = numbers.select(
            F.lit(number).alias("combination"),
            "micros",
            F.timestamp_micros("micros").alias("moment"),
            F.lit(datetime.date(2024, 3, 31)).alias("day"),
        )
        load(frame, table, write="upsert", **at)
        of_it = f"combination = {number}"

        def read(pushes: bool) -> set[tuple[int, int, datetime.date]]:
            spark.conf.set("spark.sql.python.filterPushdown.enabled", str(pushes).lower())
            try:
                reader = spark.read.format("crescando").options(**at, table=table, where=of_it)
                after = reader.load().where(f"moment >= '{WALL}' and day = '2024-03-31'")
                rows = after.select("micros", F.unix_micros("moment").alias("moment"), "day").collect()
                return {(row["micros"], row["moment"], row["day"]) for row in rows}
            finally:
                spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")

        day = datetime.date(2024, 3, 31)
        assert read(pushes=True) == read(pushes=False) == {(each, each, day) for each in wanted}
        extracted = extract(spark, table, of_it, **at).select(F.unix_micros("moment").alias("moment"))
        assert sorted(row["moment"] for row in extracted.collect()) == INSTANTS
    kept = store.table(table).select(["micros", "moment"], of_it).rows()
    assert sorted(micros(moment) for _, moment in kept) == sorted(each for each, _ in kept) == INSTANTS
