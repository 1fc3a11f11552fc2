"""Loops of torture, and what they showed: ``python -m tests.nodes.torture --loops 25``.

A loop is a cluster of three routers, five storage processes of which one stands
by, three supers and two clients, as processes of their own over mutual TLS and
behind relays. Each loop prints its seed; ``--seed N --loops 1`` repeats its plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crescando.roles.healing import HealingPolicy
from crescando.roles.limits import StorageLimits
from crescando.roles.super import SuperTiming
from tests.nodes.torture.loop import Seen, run_loop
from tests.nodes.torture.plan import FAULTS

KILL_P50_S, KILL_MAX_S = 2.0, 5.0
HANG_MAX_S = SuperTiming().suspicion_s + 1.0
"""The longest until the first success after a kill, and after a hang."""

RESTART_S = 10.0
"""A node that was killed is started again, imports everything, and joins: on a host with one core for
every ten processes."""

WELL_P50_S = SuperTiming().suspicion_s + HealingPolicy().delay_s + RESTART_S
WELL_MAX_S = 2 * SuperTiming().suspicion_s + StorageLimits().copy_patience_s + RESTART_S
"""The longest until all is well, when the faults of an episode are over: half of the time, and always.

A process is suspected, a place is free for a moment, and the node comes back; what it copies weighs next
to nothing. In the worst case the process that a copy comes from is lost too: the copy waits for a session
with it as long as copies do, is given up, and begins anew from another one. Whoever takes longer waits for
something that nobody ought to wait for.
"""


def figures(seen: list[Seen]) -> dict[str, object]:
    """Give what all loops showed together, and whether it is within bounds."""

    def counted(what: str) -> int:
        return sum(each.found.counted.get(what, 0) for each in seen)

    alone = [(hit, first_s) for each in seen for hit, first_s in each.first_s if hit.is_alone]
    kills = [first_s for hit, first_s in alone if hit.fault.startswith("kill") and hit.node[0] in "rs"]
    hangs = [first_s for hit, first_s in alone if hit.fault.startswith("hang")]
    well = [well_s for each in seen for well_s in each.well_s]
    lost = sum(len(each.found.lost) for each in seen)
    wrong = sum(len(each.found.wrong) for each in seen)
    other = sum(len(each.found.other) for each in seen)
    told: dict[str, object] = {
        "loops": len(seen),
        "operations": counted("asked"),
        "acknowledged_writes": counted("written"),
        "acknowledged_writes_lost": lost,
        "loads_shown": counted("loads_shown"),
        "extracts": counted("extracts"),
        "wrong_answers": wrong,
        "other_faults": other,
        "kills": len(kills),
        "first_success_after_kill_p50_s": round(statistics.median(kills), 2) if kills else None,
        "first_success_after_kill_max_s": round(max(kills), 2) if kills else None,
        "hangs": len(hangs),
        "first_success_after_hang_max_s": round(max(hangs), 2) if hangs else None,
        "well_again_p50_s": round(statistics.median(well), 1) if well else None,
        "well_again_max_s": round(max(well), 1) if well else None,
        "took_s": round(sum(each.took_s for each in seen), 1),
    }
    told["ok"] = (
        lost == wrong == other == 0
        # Of nothing, nothing can be lost.
        and all(
            each.found.counted.get(what, 0) > 0
            for each in seen
            for what in ("written", "loads_shown", "extracts")
        )
        and (not kills or (statistics.median(kills) <= KILL_P50_S and max(kills) <= KILL_MAX_S))
        and (not hangs or max(hangs) <= HANG_MAX_S)
        and (not well or (statistics.median(well) <= WELL_P50_S and max(well) <= WELL_MAX_S))
    )
    return told


@contextmanager
def _folder(keep: Path | None, seed: int) -> Iterator[Path]:
    """Give a loop an empty folder, kept if somebody wants to look at it."""
    if keep is not None:
        folder = keep / f"seed-{seed}"
        folder.mkdir(parents=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="torture-") as name:
            yield Path(name)


def main() -> int:
    """Run loops, print what they showed, and say whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.nodes.torture", description=__doc__)
    parser.add_argument("--loops", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1, help="of the first loop")
    parser.add_argument("--episodes", type=int, default=3, help="of a loop")
    parser.add_argument("--only", choices=FAULTS, default="", help="this fault instead of those drawn")
    parser.add_argument("--keep", type=Path, help="keep each loop's folder in this one")
    parsed = parser.parse_args()
    seen: list[Seen] = []
    for seed in range(parsed.seed, parsed.seed + parsed.loops):
        print(f"seed {seed}", flush=True)
        with _folder(parsed.keep, seed) as folder:
            each = run_loop(
                seed,
                folder,
                episodes=parsed.episodes,
                only=parsed.only,
                tell=lambda line: print(line, flush=True),
            )
        each.evidence = None
        seen.append(each)
        for hit, first_s in each.first_s:
            beside = "" if hit.is_alone else ", beside network faults"
            print(f"  {hit.fault} of {hit.node}: first success after {first_s:.2f} s{beside}")
        well = ", ".join(f"{well_s:.1f}" for well_s in each.well_s)
        print(f"  {each.took_s:.1f} s, well after {well} s; {each.found.counted}", flush=True)
        for violation in each.found.violations[:20]:
            print(f"  VIOLATION {violation[:2000]}", flush=True)
    told = figures(seen)
    print(json.dumps(told))
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
