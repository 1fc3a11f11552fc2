"""The contract of a side: something that Spark can load a frame into and extract it from.

Rules of the file: a load is over when everything is there for others to read; an
extract is over when Spark has had every value of every row. What a side does not
promise, it says itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
"""Tasks and connections with which each side loads and extracts."""

KEY = "ticket_id"


class Side:
    """One side, with nothing in it until `load`.

    Attributes
    ----------
    name : str
    lacks : str
        What it does not do.
    spark : SparkSession
    schema : StructType
        Of the rows that are to be loaded.
    """

    name: ClassVar[str]
    lacks: ClassVar[str]

    def __init__(self, spark: SparkSession, schema: Any) -> None:
        self.spark = spark
        self.schema = schema

    def open(self) -> None:
        """Start what it needs; not timed."""

    def clear(self) -> None:
        """Be empty again and ready for a load; not timed."""
        raise NotImplementedError

    def load(self, frame: DataFrame) -> None:
        """Load a frame; timed."""
        raise NotImplementedError

    def extract(self) -> DataFrame:
        """Give a frame of all rows; timed, with a sink that takes every value and keeps none."""
        raise NotImplementedError

    def pids(self) -> dict[str, list[int]]:
        """Give processes of its own, by what they do."""
        return {}

    def close(self) -> None:
        """End and remove everything; harmless when there is nothing."""


def checksum(frame: DataFrame, schema: Any) -> tuple[int, int]:
    """Give how many rows a frame has and a sum that depends on every value of every row.

    It does not depend on the sequence of rows, nor on how wide a side keeps integers.

    Parameters
    ----------
    frame : DataFrame
    schema : StructType
        Columns by name and type; a value that does not fit is an error.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import DecimalType

    values = [f.col(field.name).cast(field.dataType) for field in schema]
    # The hash passes over NULL, so that one could move to the next column unseen.
    hashed = f.xxhash64(*values, *[value.isNull() for value in values])
    found = frame.agg(f.count(f.lit(1)), f.sum(hashed.cast(DecimalType(20, 0)))).first()
    assert found is not None
    return int(found[0]), int(found[1] or 0)


def drain(frame: DataFrame) -> None:
    """Have Spark take every value of a frame and keep none."""
    frame.write.format("noop").mode("overwrite").save()
