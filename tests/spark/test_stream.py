"""A stream's epochs are shown once each, whatever is started again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from crescando import Store, Table
from crescando.cluster import Cluster
from tests.spark.tables import fresh, keyed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, amount bigint, note string"


@pytest.fixture
def table(store: Store[Cluster]) -> Table:
    return store.create_table(keyed(fresh("stream")))


class Stream:
    """A folder that is read as a stream, one file for each epoch."""

    def __init__(self, spark: SparkSession, at: dict[str, str], table: Table, folder: Path) -> None:
        self.spark, self.at, self.table, self.folder = spark, at, table, folder
        self.checkpoint = folder / "checkpoint"

    def add(self, first: int, n: int) -> None:
        data = [(number, 1, "x") for number in range(first, first + n)]
        self.spark.createDataFrame(data, SCHEMA).write.mode("append").parquet(str(self.folder / "in"))

    def run(
        self, checkpoint: Path | None = None, mode: str = "append", where: str = "true", **options: str
    ) -> None:
        stream = self.spark.readStream.schema(SCHEMA).parquet(str(self.folder / "in")).where(where)
        query = (
            stream.writeStream.format("crescando")
            .outputMode(mode)
            .options(**self.at, table=self.table.name, **options)
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """As if Spark had died between our commit and its own note of it."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def n_open(self, store: Store[Cluster]) -> int:
        """Count the loads into the table that have not ended."""
        return sum(load.table == self.table.schema.id for load in store.cluster.config().loads.open)

    def ids(self) -> list[int]:
        return sorted(self.table.select(["id"]).column("id"))


@pytest.fixture
def stream(spark: SparkSession, at: dict[str, str], table: Table, tmp_path: Path) -> Stream:
    return Stream(spark, at, table, tmp_path)


def test_an_epoch_that_is_tried_again_is_shown_once(stream: Stream) -> None:
    stream.add(0, 20)
    stream.run(write="insert")
    assert stream.ids() == list(range(20))
    stream.forget_last_commit()
    # Inserted twice it would fail; the query goes on with what is new.
    stream.run(write="insert")
    assert stream.ids() == list(range(20))
    stream.add(20, 10)
    stream.run(write="insert")
    assert stream.ids() == list(range(30))


def test_a_query_on_a_new_checkpoint_is_another_one(stream: Stream) -> None:
    """Its epochs begin at 0 again; they are not taken for those of the first one."""
    stream.add(0, 5)
    stream.run(write="upsert")
    stream.table.delete("id >= 0").result()
    stream.run(stream.folder / "another", write="upsert")
    assert stream.ids() == list(range(5))


def test_a_job_that_is_named_is_one_whatever_its_checkpoint(stream: Stream) -> None:
    stream.add(0, 5)
    stream.run(job="feed")
    stream.run(stream.folder / "another", job="feed")
    assert stream.ids() == list(range(5))


def test_an_epoch_that_fails_shows_nothing_and_is_told(stream: Stream) -> None:
    stream.add(0, 5)
    stream.run()
    stream.add(4, 5)
    with pytest.raises(StreamingQueryException, match=r"LoadConflictError: 1 row has a key .*\(4,\)"):
        stream.run()
    assert stream.ids() == list(range(5))
    # What was in the way is mended, and the same epoch goes through.
    stream.table.delete("id = 4").result()
    stream.run()
    assert stream.ids() == list(range(9))


def test_what_a_try_without_any_result_has_left_is_dropped_by_the_next(
    stream: Stream, store: Store[Cluster]
) -> None:
    """No task has told of its load, so nobody can abort it."""
    stream.add(0, 5)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="nothing goes through"):
            stream.run(where="id < 0 or raise_error('nothing goes through') is null")
        assert stream.n_open(store) == 1
    stream.run()
    assert stream.n_open(store) == 0
    assert stream.ids() == list(range(5))
