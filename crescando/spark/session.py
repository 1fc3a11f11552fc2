"""What a Spark session needs: `configure` for its builder, and checks before one is made.

Rules of the file: settings are said in one table, which the doctor reads too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crescando.errors import SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""Filters go to the shared scans; errors say in their first line what is wrong; workers keep their
connections; nothing is printed but what a program prints itself."""


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what reads and writes of crescando need in a session that is yet to be made.

    Parameters
    ----------
    builder : SparkSession.Builder

    Returns
    -------
    SparkSession.Builder
        The same; whatever is set afterwards wins.

    Raises
    ------
    SpecError
        If there is no Java that Spark runs on.

    Examples
    --------
    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> spark = crescando.spark.configure(SparkSession.builder).getOrCreate()  # doctest: +SKIP
    """
    # Whole clusters come with it, and workers, who import this package, need none of them.
    from crescando.nodes.doctor import java

    found = java()
    if found.grade != "good":
        raise SpecError(f"Spark needs Java: {found.text}; {found.mend}")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder
