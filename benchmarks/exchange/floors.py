"""What Spark alone needs: the floor below which nothing can be that is written in Python for it.

Rules of the file: the same rows pass the same borders, between Java and its workers in
Python, and are dropped there, or come from nowhere.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.exchange.side import TASKS, drain
from benchmarks.tickets.spark_job import BATCH_ROWS, piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIALS = 3


def floors(spark: SparkSession, frame: DataFrame, n_rows: int) -> dict[str, dict[str, Any]]:
    """Give, for loads (L) and extracts (X), what Spark needs for nothing but the rows' way through it."""
    read_s = _median_s(lambda: drain(frame))
    to_python_s = _median_s(lambda: frame.coalesce(TASKS).mapInArrow(_dropped, "n bigint").collect())
    n_batches = -(-n_rows // BATCH_ROWS)

    def repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (batch,) = piece(0, BATCH_ROWS).to_batches()
        for asked in batches:
            for _ in range(asked.num_rows):
                yield batch

    made = spark.range(0, n_batches, 1, TASKS).mapInArrow(repeated, frame.schema)
    from_python_s = _median_s(lambda: drain(made))
    return {
        "L": {
            "source_read": round(n_rows / read_s),
            "source_to_python_and_dropped": round(n_rows / to_python_s),
        },
        "X": {"made_in_python_and_dropped": round(n_batches * BATCH_ROWS / from_python_s)},
    }


def _dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def _median_s(work: Callable[[], Any]) -> float:
    taken = []
    work()
    for _ in range(TRIALS):
        begin_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin_s)
    return statistics.median(taken)
