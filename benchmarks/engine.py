"""Shared scans beside their peers: ``python -m benchmarks.engine [--quick] [--json] [--out FILE]``.

A table of airline tickets of 47 columns and 350 bytes a row; batches of reads
and writes by any predicate on ours, and the same by every peer in the way in
which it is fastest: in one process, taking turns, with equal rows required.
Prints one object with the keys E1 … E11.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.report import machine, out_path, parser_of, progress, publish
from benchmarks.scans import clients, loading, plots, reads, volume, writes
from benchmarks.scans.plan import QUICK, Plan, Stock, tiny
from benchmarks.verdicts import Outcome, outcome
from crescando.engine import kernels
from crescando.interpreter import COLLECTOR_THRESHOLDS, SWITCH_S, tune_interpreter
from crescando.warming import warm_kernels

MEASURES: dict[str, Callable[[Stock], Outcome]] = {
    "E1": reads.e1,
    "E2": reads.e2,
    "E3": reads.e3,
    "E11": reads.e11,
    "E9": loading.e9,
    "E4": writes.e4,
    "E5": writes.e5,
    "E6": clients.e6,
    "E10": clients.e10,
    "E8": volume.e8,
    "E7": volume.e7,
}
"""In the order in which they are taken: those that read before those that change rows."""

SWEEP = (1, 10, 100, 1_000, 10_000, 50_000)

KEYS = tuple(f"E{number}" for number in range(1, 12))


def measure(plan: Plan, wanted: Sequence[str], out: Path) -> dict[str, Any]:
    """Take the wanted measures; one that fails is told as such and the others go on."""
    stock = Stock(plan)
    told: dict[str, Any] = {}
    # For rivals too: rows of any side are tuples, through which the collector walks.
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    tune_interpreter()
    try:
        for key, take in MEASURES.items():
            if key not in wanted:
                continue
            progress(key)
            begin_s = time.perf_counter()
            try:
                told[key] = take(stock)
                if key == "E2":
                    told[key] |= _pictures(stock, told[key]["batches"], out)
            except Exception as error:  # noqa: BLE001  # The other measures are worth having.
                progress(f"{key} failed: {error!r}")
                told[key] = outcome(None, "to run without error", False, failed=repr(error)[:2000])
            told[key]["took_s"] = round(time.perf_counter() - begin_s, 1)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        sys.setswitchinterval(switch_s)
        stock.close()
    return {key: told[key] for key in KEYS if key in told}


def _pictures(stock: Stock, batches: dict[str, Any], out: Path) -> dict[str, Any]:
    """Measure the shared scan at many sizes of batch, and draw it beside E2's rivals."""
    progress("sweep over sizes of batch")
    swept = volume.sweep(stock, [n for n in SWEEP if n <= max(stock.plan.batches)])
    names = {name for entry in batches.values() for name in entry}
    others = {
        f"crescando, {name}, texts" if name in reads.OURS else f"{name}, batch join, texts": {
            int(n): batches[n][name]["ms"]["median"] / 1e3 for n in batches
        }
        for name in sorted(names)
    }
    return {"sweep": swept, "plots": plots.draw(swept, others, out)}


def setting(plan: Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    return {
        **machine(),
        "kernels": kernels.active().name,
        "durability": "none: everything is in memory",
        "tls": "none",
        "collector_thresholds": COLLECTOR_THRESHOLDS,
        "switch_interval_s": SWITCH_S,
        **asdict(plan),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = parser_of("python -m benchmarks.engine", __doc__, KEYS, "E")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    if options.rows:
        plan = (
            replace(plan, rows=options.rows, large_rows=options.rows) if options.quick else tiny(options.rows)
        )
    out = out_path(options.out, "engine.json")
    warming = warm_kernels() if options.quick or not options.rows else None
    if warming is not None:
        # A launcher warms them before it starts processes; once compiled they are kept.
        progress("kernels")
        warming.join()
    beginning = setting(plan)
    publish(measure(plan, options.only, out), beginning, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
