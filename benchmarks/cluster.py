"""A whole cluster over TLS: ``python -m benchmarks.cluster [--quick] [--json] [--out FILE]``.

RB13's headline figures (§7.3, §7.4) in their own units: operating-system
processes started by the launcher from a cluster file, tickets hash partitioned by
rloc, three copies of each row, and operations with one equality predicate on
rloc, complete when every affected process has executed them. All processes and
the clients share this machine; everything is in memory. M1 … M6 are the ordering
path alone over TLS, as ``python -m benchmarks.order`` measures it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import order
from benchmarks.ordering import measures
from benchmarks.ordering.event_loop import loop_name, run
from benchmarks.report import machine, out_path, parser_of, progress, publish
from benchmarks.served.plan import QUICK, Plan
from benchmarks.served.rates import measured
from benchmarks.served.rivals import c4
from benchmarks.served.world import SUSPICION_S, World

OWN = ("C1", "C2", "C3", "C4", "C5")
ORDERING = ("M1", "M2", "M3", "M4", "M5", "M6")
KEYS = (*OWN, *ORDERING)


def measure(plan: Plan, wanted: Sequence[str], told: dict[str, Any]) -> None:
    """Take the wanted measures of a cluster, and tell each as soon as it is there."""
    with World(plan) as world:
        if set(wanted) & {"C1", "C2", "C3", "C4"}:
            table = measured(world, "tickets", plan.rows, waits="C2" in wanted)
            told["C1"], told["C3"] = table.c1(), table.c3()
            if "C2" in wanted:
                told["C2"] = table.c2()
            if "C4" in wanted:
                # The cluster is idle meanwhile.
                told["C4"] = c4(table)
        if "C5" in wanted and plan.large_rows:
            told["C5"] = measured(world, "many_tickets", plan.large_rows, waits=False).c1()


def setting(plan: Plan) -> dict[str, Any]:
    """Say on what and how the measures were taken."""
    return {
        **machine(),
        "loop": loop_name(),
        "trials": plan.trials,
        "seconds": plan.seconds,
        "processes": {
            "routers": plan.routers,
            "storage": plan.storages,
            "supers": plan.supers,
            "clients": plan.clients,
        },
        "copies": plan.replication,
        "partition": "hash of rloc",
        "tls": "1.3, mutual",
        "operations": "rloc = ?; reads give five columns as row tuples, writes add to one column",
        "calls": f"{plan.block} operations each, {plan.at_once} under way in each client",
        "durability": "none: everything is in memory",
        "suspicion_s": SUSPICION_S,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = parser_of("python -m benchmarks.cluster", __doc__, KEYS, "KEY").parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    out = out_path(options.out, "cluster.json")
    beginning = setting(plan)
    told: dict[str, Any] = {}
    try:
        if set(OWN) & set(options.only):
            measure(plan, options.only, told)
        ordering = [key for key in ORDERING if key in options.only]
        if ordering:
            progress("the ordering path alone")
            told |= run(
                order.measure(
                    measures.QUICK if options.quick else measures.Plan(),
                    ordering,
                    out.with_name(out.stem + "-failover.png"),
                )
            )
    finally:
        # What was measured is told, also if a later measure fails.
        told = {key: told[key] for key in KEYS if key in told and key in options.only}
        publish(told, beginning, out, only_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
