"""Cuts the schedule of a failing seed down to the faults that it takes to fail.

Delta debugging (Zeller and Hildebrandt 2002, "Simplifying and Isolating
Failure-Inducing Input"), over the list of faults, then over their lengths. The
seed's other choices stay as they are, as far as that can be: what a fault no
longer delays draws other delays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from crescando.testing.faults import Fault
from crescando.testing.verdict import Verdict

RunFaults = Callable[[Sequence[Fault]], Verdict]


def shrink(run: RunFaults, faults: Sequence[Fault]) -> Verdict:
    """Give the verdict of a schedule of which nothing can be left out.

    Parameters
    ----------
    run : callable
        Runs the seed under a schedule.
    faults : sequence of Fault
        A schedule under which it fails.

    Returns
    -------
    Verdict
        Of the shortest schedule found that still fails; it names it.

    Raises
    ------
    ValueError
        If the seed does not fail under `faults`.
    """
    best = run(faults)
    if best.is_correct:
        raise ValueError(f"seed {best.seed} does not fail under this schedule")
    while True:
        least = _leave_out(run, best)
        best = _shorten(run, least)
        if best is least:
            return best
        # Where a fault is shorter, it may take fewer others.


def _leave_out(run: RunFaults, best: Verdict) -> Verdict:
    parts = 2
    while best.faults:
        size = max(1, len(best.faults) // parts)
        found = _first_failing(run, _without_parts(best.faults, size))
        if found is not None:
            best, parts = found, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(best.faults))
    return best


def _shorten(run: RunFaults, best: Verdict) -> Verdict:
    for index in range(len(best.faults)):
        while best.faults[index].length_s > 0.01:
            fault = best.faults[index]
            shorter = list(best.faults)
            shorter[index] = replace(fault, length_s=fault.length_s / 2)
            verdict = run(shorter)
            if verdict.is_correct:
                break
            best = verdict
    return best


def _without_parts(faults: Sequence[Fault], size: int) -> list[list[Fault]]:
    return [[*faults[:at], *faults[at + size :]] for at in range(0, len(faults), size)]


def _first_failing(run: RunFaults, schedules: list[list[Fault]]) -> Verdict | None:
    for schedule in schedules:
        verdict = run(schedule)
        if not verdict.is_correct:
            return verdict
    return None
