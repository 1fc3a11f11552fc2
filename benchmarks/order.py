"""The ordering path alone, beside its peers: ``python -m benchmarks.order [--quick] [--json] [--out FILE]``.

Three routers of the product's own cores, destinations that do next to nothing,
and clients with one awaitable for each put: as operating-system processes over
mutual TLS and plain TCP, and all in one process. Nothing is durable: a put is
acknowledged once it is stable, applied by every live destination of its three
copies. Prints one object with the keys M1 … M9.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ordering import failover, measures
from benchmarks.ordering.event_loop import loop_name, run
from benchmarks.report import machine, out_path, parser_of, progress, publish
from crescando.interpreter import tune_interpreter

KEYS = tuple(f"M{number}" for number in range(1, 10))


async def measure(plan: measures.Plan, wanted: Sequence[str], plot: Path) -> dict[str, Any]:
    """Take the wanted measures, cheapest set-up first."""
    tune_interpreter()
    told: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    if {"M1", "M2", "M3", "M4", "M5"} & set(wanted):
        progress("TLS, operating-system processes")
        parts = await measures.secure(plan)
        told |= {key: parts[key] for key in ("M1", "M3")}
    if "M2" in wanted:
        progress("TCP")
        told["M2"] = await measures.m2(plan, parts["M2"]["tls"])
    if "M5" in wanted:
        progress("16 destinations")
        told["M5"] = measures.m5(parts["M5"], await measures.m5_sixteen(plan))
    if {"M4", "M9"} & set(wanted):
        progress("embedded")
        tls_one = parts["M4"]["tls"] if parts else {"p50_ms": {"median": float("inf")}}
        told |= await measures.embedded(plan, tls_one)
    if "M6" in wanted:
        progress("peers")
        told["M6"] = await measures.m6(plan)
    if "M7" in wanted:
        progress("killed and hung leaders")
        told["M7"] = await failover.kills(plan.kills)
        shown = await failover.trace(3.0 if plan.is_full else 1.5)
        plot.with_suffix(".json").write_text(json.dumps(shown) + "\n", encoding="utf-8")
        told["M7"]["trace"] = {
            "events": [f"{at:.2f} s {what}" for at, what in shown["events"]],
            "rates": plot.with_suffix(".json").name,
            "plot": failover.draw(shown, plot) or plot.name,
        }
    if "M8" in wanted:
        progress(f"saturation for {plan.saturation_s:g} s")
        told["M8"] = await failover.false_elections(plan.saturation_s)
    return {key: told[key] for key in KEYS if key in told and key in wanted}


def setting(plan: measures.Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    return {
        **machine(),
        "loop": loop_name(),
        "trials": plan.trials,
        "seconds": plan.seconds,
        "payload_bytes": measures.PAYLOAD_BYTES,
        "durability": "none: everything is in memory",
        "clients": "in the measuring process, one awaitable for each put",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = parser_of("python -m benchmarks.order", __doc__, KEYS, "M").parse_args(arguments)
    plan = measures.QUICK if options.quick else measures.Plan()
    out = out_path(options.out, "order.json")
    beginning = setting(plan)
    told = run(measure(plan, options.only, out.with_name(out.stem + "-failover.png")))
    publish(told, beginning, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
