"""A Spark of this machine alone, for benchmarks.

Rules of the file: everything is on loopback and in memory; nothing of the user's
own Spark configuration is changed, and its workers run this interpreter.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.processes import HOST, memory_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
TASKS = 2
"""That run at the same time; the machines that the figures are about have two cores."""

DRIVER_MEMORY = "3g"


@contextmanager
def spark_session(name: str, jars: Sequence[Path] = (), *, tasks: int = TASKS) -> Iterator[SparkSession]:
    """Give a session, and end it with its Java process.

    Parameters
    ----------
    name : str
    jars : sequence of Path
        Drivers that it loads.
    tasks : int
    """
    from pyspark.sql import SparkSession

    # Workers are started as `python3` unless told otherwise, and find this repository by the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("SPARK_LOCAL_IP", HOST)
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=memory_folder(1 << 30)) as scratch:
        builder = SparkSession.builder.master(f"local[{tasks}]").appName(name)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.ui.showConsoleProgress": "false",
            "spark.jars": ",".join(map(str, jars)),
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            end_session(spark)


def end_session(spark: SparkSession) -> None:
    """Stop a session, and the Java process that Python started for it."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        process = gateway.proc
        gateway.shutdown()
        # The Java process ends when its standard input does.
        process.stdin.close()
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None
