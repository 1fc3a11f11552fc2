"""Many seeds in several processes, and what they add up to.

A soak passes if no seed has a violation and, once it is long enough, if it has
met every kind of fault and every rare situation often enough: a checker that
was never put to the test proves nothing.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from typing import TextIO

from crescando.testing.runs import WORLDS
from crescando.testing.verdict import Verdict

SEEDS_A_TASK = 25

SHOWN_MAX = 40
"""Failing seeds that a summary names."""

BOUNDS_FROM_SEEDS = 20_000
"""A soak of at least so many seeds must meet everything often enough."""

FAULTS_MIN = 1_000
SITUATIONS_MIN = 200
SHARE_MIN = 0.30
"""Of seeds in which a fault falls into a change of the routers' membership."""


@dataclass(slots=True)
class Tally:
    """The sum of many verdicts.

    Attributes
    ----------
    counted : Counter
        What all verdicts counted, added up.
    seeds_with : Counter
        In how many seeds each thing happened at all.
    violations : dict of int to list of str
        Per failing seed.
    """

    n_seeds: int = 0
    virtual_s: float = 0.0
    counted: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)
    violations: dict[int, list[str]] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        """Take a verdict in."""
        self.n_seeds += 1
        self.virtual_s += verdict.virtual_s
        self.counted.update(verdict.counted)
        self.seeds_with.update(name for name, n in verdict.counted.items() if n)
        if verdict.violations:
            self.violations[verdict.seed] = verdict.violations[:5]

    def merge(self, other: Tally) -> None:
        """Take another tally in."""
        self.n_seeds += other.n_seeds
        self.virtual_s += other.virtual_s
        self.counted.update(other.counted)
        self.seeds_with.update(other.seeds_with)
        self.violations.update(other.violations)


def tally_seeds(run: Callable[[int], Verdict], seeds: range) -> Tally:
    """Run seeds one after the other."""
    logging.disable(logging.WARNING)
    tally = Tally()
    for seed in seeds:
        tally.add(run(seed))
    return tally


def soak(world: str, seeds: range, *, workers: int = 2, progress: TextIO | None = None) -> Tally:
    """Run seeds of one of `WORLDS` in worker processes, telling on standard error how far it is."""
    progress = progress or sys.stderr
    total = Tally()
    begun_s = time.monotonic()
    task = partial(tally_seeds, WORLDS[world].attempt)
    with ProcessPoolExecutor(max_workers=workers) as pool:
        pending = [pool.submit(task, part) for part in _parts(seeds)]
        for done in as_completed(pending):
            total.merge(done.result())
            rate = total.n_seeds / (time.monotonic() - begun_s)
            left_s = (len(seeds) - total.n_seeds) / rate
            print(
                f"\r{total.n_seeds}/{len(seeds)} seeds, {rate:.0f}/s, {left_s:.0f} s left, "
                f"{len(total.violations)} failing",
                end="",
                file=progress,
                flush=True,
            )
    print(file=progress)
    return total


def _parts(seeds: range) -> Iterator[range]:
    for first in range(seeds.start, seeds.stop, SEEDS_A_TASK):
        yield range(first, min(first + SEEDS_A_TASK, seeds.stop))


def shortfalls(world: str, tally: Tally) -> list[str]:
    """Say what a long soak has met too rarely; nothing of a short one."""
    if tally.n_seeds < BOUNDS_FROM_SEEDS:
        return []
    known = WORLDS[world]
    short = [
        f"{name}: {tally.counted[name]} of {least}"
        for names, least in ((known.kinds, FAULTS_MIN), (known.situations, SITUATIONS_MIN))
        for name in names
        if tally.counted[name] < least
    ]
    if known.share and tally.seeds_with[known.share] < SHARE_MIN * tally.n_seeds:
        short.append(f"{known.share}: in {tally.seeds_with[known.share]} of {tally.n_seeds} seeds")
    return short


def summary(world: str, tally: Tally) -> str:
    """Give the text that a soak ends with."""
    known = WORLDS[world]
    lines = [f"{tally.n_seeds} seeds, {tally.virtual_s / 3600:.1f} simulated hours"]
    for title, names in (("faults", known.kinds), ("situations", known.situations)):
        lines.append(f"{title} (times; seeds):")
        lines += [f"  {name:28} {tally.counted[name]:9}; {tally.seeds_with[name]}" for name in names]
    others = sorted(tally.counted.keys() - {*known.kinds, *known.situations})
    lines.append("also:")
    lines += [f"  {name:28} {tally.counted[name]:9}; {tally.seeds_with[name]}" for name in others]
    if known.share:
        share = tally.seeds_with[known.share] / max(1, tally.n_seeds)
        lines.append(f"seeds with a fault during a membership change: {share:.1%}")
    lines += [f"too rare: {text}" for text in shortfalls(world, tally)]
    lines.append(f"violations: {len(tally.violations)} seeds")
    shown = sorted(tally.violations.items())[:SHOWN_MAX]
    lines += [f"  seed {seed}: {'; '.join(found)[:400]}" for seed, found in shown]
    return "\n".join(lines)
