"""The ordering path alone, beside its peers: ``python -m benchmarks.order [--quick] [--json] [--out FILE]``.

Three routers of the product's own cores, destinations that do next to nothing,
and clients with one awaitable for each put: as operating-system processes over
mutual TLS and plain TCP, and all in one process. Nothing is durable: a put is
acknowledged once it is stable, applied by every live destination of its three
copies. Prints one object with the keys M1 … M9.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(ROOT))

from benchmarks.ordering import failover, measures  # noqa: E402
from benchmarks.ordering.event_loop import loop_name, run  # noqa: E402
from benchmarks.ordering.node import calm_collector  # noqa: E402

KEYS = tuple(f"M{number}" for number in range(1, 10))


async def measure(plan: measures.Plan, wanted: Sequence[str], plot: Path) -> dict[str, Any]:
    """Take the wanted measures, cheapest set-up first."""
    calm_collector()
    told: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    if {"M1", "M2", "M3", "M4", "M5"} & set(wanted):
        _progress("TLS, operating-system processes")
        parts = await measures.secure(plan)
        told |= {key: parts[key] for key in ("M1", "M3")}
    if "M2" in wanted:
        _progress("TCP")
        told["M2"] = await measures.m2(plan, parts["M2"]["tls"])
    if "M5" in wanted:
        _progress("16 destinations")
        told["M5"] = measures.m5(parts["M5"], await measures.m5_sixteen(plan))
    if {"M4", "M9"} & set(wanted):
        _progress("embedded")
        tls_one = parts["M4"]["tls"] if parts else {"p50_ms": {"median": float("inf")}}
        told |= await measures.embedded(plan, tls_one)
    if "M6" in wanted:
        _progress("peers")
        told["M6"] = await measures.m6(plan)
    if "M7" in wanted:
        _progress("killed and hung leaders")
        told["M7"] = await failover.kills(plan.kills)
        shown = await failover.trace(3.0 if plan.is_full else 1.5)
        plot.with_suffix(".json").write_text(json.dumps(shown) + "\n", encoding="utf-8")
        told["M7"]["trace"] = {
            "events": [f"{at:.2f} s {what}" for at, what in shown["events"]],
            "rates": plot.with_suffix(".json").name,
            "plot": failover.draw(shown, plot) or plot.name,
        }
    if "M8" in wanted:
        _progress(f"saturation for {plan.saturation_s:g} s")
        told["M8"] = await failover.false_elections(plan.saturation_s)
    return {key: told[key] for key in KEYS if key in told and key in wanted}


def _progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def setting(plan: measures.Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "loop": loop_name(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "trials": plan.trials,
        "seconds": plan.seconds,
        "payload_bytes": measures.PAYLOAD_BYTES,
        "durability": "none: everything is in memory",
        "clients": "in the measuring process, one awaitable for each put",
    }


def table(told: dict[str, Any]) -> str:
    """Give the outcomes as lines of text."""
    lines = [f"{'':4}{'value':>14}  {'ok':4}target"]
    for key, entry in told.items():
        lines.append(f"{key:4}{entry['value']:>14,}  {'yes' if entry['ok'] else 'NO':4}{entry['target']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.order", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: at most four minutes")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--out", type=Path, help="write the JSON object to a file; the plot goes beside it")
    parser.add_argument("--only", nargs="+", choices=KEYS, default=KEYS, metavar="M", help="some measures")
    options = parser.parse_args(arguments)
    plan = measures.QUICK if options.quick else measures.Plan()
    out: Path = options.out or ROOT / "benchmarks" / "results" / "order.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    beginning = setting(plan)
    told = run(measure(plan, options.only, out.with_name(out.stem + "-failover.png")))
    text = json.dumps({**told, "setting": beginning}, indent=2)
    out.write_text(text + "\n", encoding="utf-8")
    if not options.json:
        print(table(told))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
