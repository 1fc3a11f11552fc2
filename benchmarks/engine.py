"""Shared scans beside their peers: ``python -m benchmarks.engine [--quick] [--json] [--out FILE]``.

A table of airline tickets of 47 columns and 350 bytes a row; batches of reads
and writes by any predicate on ours, and the same by every peer in the way in
which it is fastest: in one process, taking turns, with equal rows required.
Prints one object with the keys E1 … E11.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.report import machine, out_path, parser_of, progress, publish
from benchmarks.scans import reads
from benchmarks.scans.plan import QUICK, Plan, Stock, tiny
from benchmarks.verdicts import Outcome, outcome

MEASURES: dict[str, Callable[[Stock], Outcome]] = {
    "E1": reads.e1,
    "E2": reads.e2,
    "E3": reads.e3,
    "E11": reads.e11,
}
KEYS = tuple(f"E{number}" for number in range(1, 12))


def measure(plan: Plan, wanted: Sequence[str], out: Path) -> dict[str, Any]:
    """Take the wanted measures; one that fails is told as such and the others go on."""
    stock = Stock(plan)
    told: dict[str, Any] = {}
    try:
        for key, take in MEASURES.items():
            if key not in wanted:
                continue
            progress(key)
            try:
                told[key] = take(stock)
            except Exception as error:  # noqa: BLE001  # The other measures are worth having.
                progress(f"{key} failed: {error!r}")
                told[key] = outcome(None, "to run without error", False, failed=repr(error)[:2000])
    finally:
        stock.close()
    return {key: told[key] for key in KEYS if key in told}


def setting(plan: Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    return {**machine(), "durability": "none: everything is in memory", "tls": "none", **asdict(plan)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = parser_of("python -m benchmarks.engine", __doc__, KEYS, "E")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    plan = tiny(options.rows) if options.rows else QUICK if options.quick else Plan()
    out = out_path(options.out, "engine.json")
    beginning = setting(plan)
    publish(measure(plan, options.only, out), beginning, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
