"""Spark in and out: loads that take effect as one, extracts of one position, look-ups and updates.

``format("crescando")`` is known to Spark 4.1 and newer by itself (`pyspark_crescando`).
The functions here do the same on ``mapInArrow``, in every version since 3.5.
"""

from __future__ import annotations

from crescando.spark.frames import extract, load, update_from
from crescando.spark.lookup import lookup
from crescando.spark.session import configure
from crescando.spark.types import spark_schema, table_schema

__all__ = ["configure", "extract", "load", "lookup", "spark_schema", "table_schema", "update_from"]
