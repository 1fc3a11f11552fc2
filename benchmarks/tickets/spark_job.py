"""Tickets at any scale, as a Spark job: ``python -m benchmarks.tickets.spark_job --rows N --out DIR``.

Rules of the file: rows are drawn by `generate.tickets` and nowhere else. A table
is cut into pieces of a fixed size, each with a seed of its own, so that a row
follows from the seed and its number alone: neither from how many rows there are,
nor from how many tasks draw them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tickets.generate import tickets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE_ROWS = 1 << 15
BATCH_ROWS = 10_000
"""What a task hands to Spark at once; Spark's own batches are of that size."""

_SEED_STEP = 2_654_435_761
"""A prime: pieces of different tables have different seeds, and seeds differ in their low bits."""


def piece(number: int, n_rows: int, seed: int = 1) -> pa.Table:
    """Give the first rows of one piece of a table.

    Parameters
    ----------
    number : int
        Of the piece, from 0.
    n_rows : int
        How many of its rows; at most `PIECE_ROWS`.
    seed : int
        Of the whole table.
    """
    # Drawn whole: the values of a row depend on how many are drawn with it.
    return tickets(PIECE_ROWS, seed * _SEED_STEP + number, number * PIECE_ROWS).slice(0, n_rows)


def spark_tickets(spark: SparkSession, n_rows: int, seed: int = 1, n_partitions: int = 2) -> DataFrame:
    """Give a frame of tickets: 47 columns, some 350 bytes of values a row.

    The distribution is that of `generate.tickets`; the tickets of one booking lie in
    one piece of 32,768 rows.

    Parameters
    ----------
    spark : SparkSession
    n_rows : int
    seed : int
    n_partitions : int
        Tasks that draw them, at most; the rows do not depend on it.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    n_pieces = -(-n_rows // PIECE_ROWS)
    numbers = spark.range(0, n_pieces, 1, max(1, min(n_partitions, n_pieces)))
    return numbers.mapInArrow(drawing(n_rows, seed), from_arrow_schema(tickets(1).schema))


def drawing(n_rows: int, seed: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Give what makes batches of tickets of batches of numbers of pieces."""

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                n_here = min(PIECE_ROWS, n_rows - number * PIECE_ROWS)
                yield from piece(number, n_here, seed).to_batches(max_chunksize=BATCH_ROWS)

    return draw


def main(arguments: Sequence[str] | None = None) -> int:
    """Write tickets to files."""
    from benchmarks.exchange.session import spark_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.tickets.spark_job", description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--out", required=True, help="a folder, or any address that Spark can write to")
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=0, help="files to write; by default one for a core")
    options = parser.parse_args(arguments)
    if options.rows < 0 or options.partitions < 0:
        parser.error("--rows and --partitions are not negative")
    with spark_session("tickets") as spark:
        n_partitions = options.partitions or spark.sparkContext.defaultParallelism
        writer = spark_tickets(spark, options.rows, options.seed, n_partitions).write.mode("errorifexists")
        if options.format == "csv":
            writer = writer.option("header", True)
        writer.format(options.format).save(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
