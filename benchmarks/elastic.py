"""A store that scales, moves and heals: ``python -m benchmarks.elastic [--quick] [--json] [--out FILE]``.

Redoes RB13 §7.3 to §7.7 at this machine's scale and draws the figures: R8 to
R11 and R12 (with Fig. 13) as the paper numbers them, A3 with Figs. 14 and 15;
A1 and A2 are what the store promises while rows move under a full mixed load.
All processes are in one interpreter, embedded; everything is in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.moves import pictures, scaling, traces
from benchmarks.moves.plan import QUICK, Plan
from benchmarks.report import machine, out_path, parser_of, progress, publish
from benchmarks.tickets.generate import tickets

KEYS = ("R8", "R9", "R10", "R11", "R12", "A1", "A2", "A3")


def measures(plan: Plan) -> dict[str, Callable[[], dict[str, Any]]]:
    """Give what each key measures."""
    small, large = tickets(plan.rows), tickets(plan.promise_rows)
    return {
        "R8": lambda: scaling.write_scaling(plan, small),
        "R9": lambda: scaling.read_scaling(plan, small),
        "R10": lambda: scaling.coverage(plan, small),
        "R11": lambda: traces.elastic_throughput(plan, small),
        "R12": lambda: traces.elastic_latency(plan, small),
        "A1": lambda: traces.promise(plan, large, 3),
        "A2": lambda: traces.promise(plan, large, 1),
        "A3": lambda: traces.two_of_six(plan, small),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = parser_of("python -m benchmarks.elastic", __doc__, KEYS, "KEY").parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    out = out_path(options.out, "elastic.json")
    setting = {
        **machine(),
        "rows": plan.rows,
        "promise_rows": plan.promise_rows,
        "durability": "none: memory",
    }
    told: dict[str, Any] = {}
    for key, measure in measures(plan).items():
        if key in options.only:
            progress(key)
            told[key] = measure()
    setting["plots"] = pictures.draw(told, out)
    publish(told, setting, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
