"""The simulator on the command line: ``python -m crescando.testing COMMAND``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

from crescando.testing.crash_matrix import soak_matrix
from crescando.testing.faults import Fault
from crescando.testing.groups import GroupsScenario
from crescando.testing.order import OrderWorld
from crescando.testing.order_run import draw_order_faults, judge_world, run_order
from crescando.testing.runs import WORLDS, small_engine
from crescando.testing.scenario import Scenario
from crescando.testing.shrink import shrink
from crescando.testing.soak import shortfalls, soak, summary
from crescando.testing.transcript import describe_fault, describe_trace, describe_verdict
from crescando.types import ProcessId


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives 1 if something is wrong with a seed."""
    parser = argparse.ArgumentParser(prog="python -m crescando.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = argparse.ArgumentParser(add_help=False)
    one.add_argument("--world", choices=sorted(WORLDS), default="ecast")
    add = partial(commands.add_parser, parents=[one])
    many = add("soak", help="run many seeds in several processes")
    many.add_argument("--seeds", type=_at_least_one, default=1000)
    many.add_argument("--first", type=int, default=0)
    many.add_argument("--workers", type=_at_least_one, default=2)
    again = add("replay", help="run one seed and print schedule, counters and violations")
    again.add_argument("seed", type=int)
    again.add_argument("--trace", action="store_true", help="print what was learned and delivered")
    again.add_argument("--messages", action="store_true", help="print every message; ecast only")
    every = commands.add_parser("soak-elastic", help="crash someone at each step of each transformation")
    every.add_argument("--rounds", type=_at_least_one, default=200)
    every.add_argument("--workers", type=_at_least_one, default=2)
    less = add("shrink", help="find the fewest faults under which a seed fails")
    less.add_argument("seed", type=int)
    given = parser.parse_args(arguments)
    if given.command == "soak":
        return _soak(given.world, range(given.first, given.first + given.seeds), given.workers)
    if given.command == "soak-elastic":
        matrix = soak_matrix(given.rounds, engine=small_engine, workers=given.workers)
        print(matrix.table())
        # A step that nobody reached is no evidence, and too few rounds are none either.
        return int(bool(matrix.failing or matrix.bare))
    if given.command == "shrink":
        return _shrink(given.world, given.seed)
    if given.trace or given.messages:
        if given.world != "ecast":
            parser.error("only the world 'ecast' prints its trace")
        return _replay_in_full(given.seed, messages=given.messages)
    verdict = WORLDS[given.world].attempt(given.seed)
    print(describe_verdict(verdict))
    return int(not verdict.is_correct)


def _soak(world: str, seeds: range, workers: int) -> int:
    tally = soak(world, seeds, workers=workers)
    print(summary(world, tally))
    return int(bool(tally.violations or shortfalls(world, tally)))


def _shrink(world: str, seed: int) -> int:
    attempt = WORLDS[world].attempt
    verdict = attempt(seed)
    if verdict.is_correct:
        print(f"seed {seed} does not fail")
        return 0
    least = shrink(lambda faults: attempt(seed, faults=faults), verdict.faults)
    print(f"{len(verdict.faults)} faults, of which it takes {len(least.faults)}:")
    print(describe_verdict(least))
    return 1


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than one")
    return number


class _TellingWorld(OrderWorld):
    """Prints messages and faults as they come; it schedules nothing, so that the run is the same."""

    def __init__(self, seed: int, *, scenario: Scenario) -> None:
        super().__init__(seed, scenario=scenario)
        self.network.witness = self._tell

    def _tell(self, sender: ProcessId, receiver: ProcessId, message: object) -> None:
        self.watch.on_send(sender, receiver, message)
        print(f"{self.time.now_s():9.5f}  {sender} -> {receiver}  {str(message)[:160]}")

    def inject(self, fault: Fault) -> None:
        print(f"---- {describe_fault(fault)}")
        super().inject(fault)


def _replay_in_full(seed: int, *, messages: bool) -> int:
    kind = _TellingWorld if messages else OrderWorld
    world, faults = kind(seed, scenario=GroupsScenario()), draw_order_faults(seed)
    try:
        run_order(world, faults)
    finally:
        # Of a run that breaks down it says how far it came.
        print("\n".join(describe_trace(world.trace)))
    verdict = judge_world(world, faults)
    print(describe_verdict(verdict))
    return int(not verdict.is_correct)


if __name__ == "__main__":
    # Simulated processes warn of what is done to them.
    logging.disable(logging.WARNING)
    sys.exit(main())
