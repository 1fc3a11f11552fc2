"""The simulator on the command line: ``python -m crescando.testing soak | replay | shrink``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

from crescando.testing.faults import Fault
from crescando.testing.groups import GroupsScenario
from crescando.testing.order import OrderWorld
from crescando.testing.order_run import draw_order_faults, judge_world, run_order
from crescando.testing.runs import WORLDS
from crescando.testing.shrink import shrink
from crescando.testing.soak import shortfalls, soak, summary
from crescando.testing.transcript import describe_fault, describe_trace, describe_verdict
from crescando.testing.verdict import Verdict
from crescando.types import ProcessId


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives 1 if something is wrong with a seed."""
    parser = argparse.ArgumentParser(prog="python -m crescando.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = argparse.ArgumentParser(add_help=False)
    one.add_argument("--world", choices=sorted(WORLDS), default="ecast")
    add = partial(commands.add_parser, parents=[one])
    many = add("soak", help="run many seeds in several processes")
    many.add_argument("--seeds", type=int, default=1000)
    many.add_argument("--first", type=int, default=0)
    many.add_argument("--workers", type=int, default=2)
    again = add("replay", help="run one seed and print schedule, counters and violations")
    again.add_argument("seed", type=int)
    again.add_argument("--trace", action="store_true", help="print what was learned and delivered")
    again.add_argument("--messages", action="store_true", help="print every message; ecast only")
    less = add("shrink", help="find the fewest faults under which a seed fails")
    less.add_argument("seed", type=int)
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    if given.command == "soak":
        return _soak(given.world, range(given.first, given.first + given.seeds), given.workers)
    if given.command == "shrink":
        return _shrink(given.world, given.seed)
    if given.trace or given.messages:
        if given.world != "ecast":
            parser.error("only the world 'ecast' prints its trace")
        return _replay_in_full(given.seed, messages=given.messages)
    verdict = WORLDS[given.world].run(given.seed)
    print(describe_verdict(verdict))
    return int(not verdict.is_correct)


def _soak(world: str, seeds: range, workers: int) -> int:
    tally = soak(world, seeds, workers=workers)
    print(summary(world, tally))
    return int(bool(tally.violations or shortfalls(world, tally)))


def _shrink(world: str, seed: int) -> int:
    run = partial(_run_faults, world, seed)
    verdict = WORLDS[world].run(seed)
    if verdict.is_correct:
        print(f"seed {seed} does not fail")
        return 0
    least = shrink(run, verdict.faults)
    print(f"{len(verdict.faults)} faults, of which it takes {len(least.faults)}:")
    print(describe_verdict(least))
    return 1


def _run_faults(world: str, seed: int, faults: Sequence[Fault]) -> Verdict:
    return WORLDS[world].run(seed, faults=faults)


def _replay_in_full(seed: int, *, messages: bool) -> int:
    world, faults = OrderWorld(seed, scenario=GroupsScenario()), draw_order_faults(seed)
    witness = world.network.witness

    def tell(sender: ProcessId, receiver: ProcessId, message: object) -> None:
        if witness is not None:
            witness(sender, receiver, message)
        print(f"{world.time.now_s():9.5f}  {sender} -> {receiver}  {str(message)[:160]}")

    if messages:
        world.network.witness = tell
        for fault in faults:
            world.time.call_at(fault.when_s, partial(print, f"---- {describe_fault(fault)}"))
    run_order(world, faults)
    print("\n".join(describe_trace(world.trace)))
    verdict = judge_world(world, faults)
    print(describe_verdict(verdict))
    return int(not verdict.is_correct)


if __name__ == "__main__":
    sys.exit(main())
