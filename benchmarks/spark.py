"""Loads and extracts by Spark beside its peers: ``python -m benchmarks.spark [--quick] [--json]``.

A million airline tickets of 47 columns and 350 bytes, made by a Spark job, are
loaded into a cluster of real processes over mutual TLS and extracted from it; Spark
does the same with Parquet files and with PostgreSQL, over JDBC and by COPY. Sides
take turns, and their rows must be equal in every column. Prints one object with
the keys L1, L3 (loads, at one and three copies of each row), X1, X3 (extracts).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.exchange.contest import Timing, compete
from benchmarks.exchange.floors import floors
from benchmarks.exchange.parquet_side import Parquet
from benchmarks.exchange.postgres_side import DRIVER, Copy, Jdbc, postgres_unavailable
from benchmarks.exchange.session import spark_session
from benchmarks.exchange.side import Side
from benchmarks.exchange.store_side import ROUTERS, SUPERS, Crescando
from benchmarks.exchange.targets import judged
from benchmarks.peers.processes import memory_folder
from benchmarks.report import machine, out_path, parser_of, progress, publish
from benchmarks.tickets.spark_job import spark_tickets
from benchmarks.verdicts import Outcome, outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ("L1", "X1", "L3", "X3")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and numbers of trials.

    Attributes
    ----------
    rows, trials : int
    partitions : int
        Of the frame that is loaded.
    seed : int
    """

    rows: int = 1_000_000
    trials: int = 5
    partitions: int = 8
    seed: int = 1


QUICK = Plan(rows=100_000, trials=3, partitions=4)


def source(spark: SparkSession, plan: Plan, folder: str) -> DataFrame:
    """Have Spark make the tickets and keep them as files; every load reads them anew."""
    path = f"{folder}/source"
    spark_tickets(spark, plan.rows, plan.seed, plan.partitions).write.parquet(path)
    return spark.read.parquet(path)


def measure(plan: Plan, wanted: Sequence[str]) -> dict[str, Outcome]:
    """Take the wanted measures; one that fails is told as such."""
    copies = sorted({int(key[1]) for key in wanted})
    why = postgres_unavailable()
    if why:
        progress(f"PostgreSQL is skipped: {why}")
    told: dict[str, Outcome] = {}
    with ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="bench-spark-", dir=memory_folder(4 << 30))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = stack.enter_context(spark_session("bench-spark", [] if why else [DRIVER]))
        progress(f"making {plan.rows:,} tickets")
        frame = source(spark, plan, folder)
        peers: list[type[Side]] = [Parquet, *([] if why else [Jdbc, Copy])]
        for replication in copies:
            sides = [
                Crescando(spark, frame.schema, replication=replication),
                *(peer(spark, frame.schema) for peer in peers),
            ]
            keys = [key for key in wanted if int(key[1]) == replication]
            try:
                timings, found = _contest(frame, sides, plan)
            except Exception as error:  # noqa: BLE001  # The other measures are worth having.
                progress(f"f = {replication} failed: {type(error).__name__}: {error}")
                told |= {
                    key: outcome(
                        None, "to run without error", False, failed=f"{type(error).__name__}: {error}"[:2000]
                    )
                    for key in keys
                }
                continue
            about = {
                "rows": found[0],
                "checksum_of_all_sides": str(found[1]),
                "does_not": {side.name: side.lacks for side in sides},
                **({"skipped": {"PostgreSQL": why}} if why else {}),
            }
            told |= {key: _outcome(key, timings, plan, about) for key in keys}
        for key, floor in floors(spark, frame, plan.rows).items():
            for which in (name for name in told if name[0] == key):
                told[which]["spark_alone"] = floor
    return {key: told[key] for key in KEYS if key in told}


def _contest(
    frame: DataFrame, sides: Sequence[Side], plan: Plan
) -> tuple[dict[str, Timing], tuple[int, int]]:
    try:
        for side in sides:
            progress(f"starting {side.name}")
            side.open()
        return compete(frame, sides, plan.trials, java_of())
    finally:
        for side in sides:
            side.close()


def java_of() -> int:
    """Give the process of this program's Spark."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    return int(gateway.proc.pid)


def _outcome(key: str, timings: dict[str, Timing], plan: Plan, about: dict[str, Any]) -> Outcome:
    what = "load" if key[0] == "L" else "extract"
    rates = {name: timing.rate(what, plan.rows) for name, timing in timings.items()}
    sides = {name: timing.told(plan.rows)[what] for name, timing in timings.items()}
    return judged(key, rates, plan.rows, sides=sides, **about)


def setting(plan: Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    from importlib.metadata import version

    return {
        **machine(),
        "pyspark": version("pyspark"),
        "spark": "local, two tasks at a time; Java, workers and all servers share the machine's cores",
        "durability": "none on any side: everything is in memory",
        "tls": "mutual TLS 1.3 between all processes of ours; none for peers",
        "ours": f"real processes: {ROUTERS} routers, {SUPERS} super, 2 storage at f = 1 and 3 at f = 3",
        "source": "Parquet files in memory, read anew by each load",
        **asdict(plan),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = parser_of("python -m benchmarks.spark", __doc__, KEYS, "KEY")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    if options.rows:
        plan = replace(plan, rows=options.rows, trials=1)
    out = out_path(options.out, "spark.json")
    beginning = setting(plan)
    publish(measure(plan, options.only), beginning, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
