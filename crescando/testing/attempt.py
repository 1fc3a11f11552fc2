"""Runs one seed, whatever comes of it: one that breaks down altogether is a finding as well.

Rules of the file: a seed that was found to break down can be replayed and cut
down like any other, so its verdict names the schedule.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from crescando.testing.faults import Fault
from crescando.testing.verdict import Verdict


class Run(Protocol):
    """Runs one seed, under its own schedule of faults or another."""

    def __call__(self, seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict: ...


Draw = Callable[[int], list[Fault]]
"""Gives a seed's own schedule."""


def attempt(run: Run, draw: Draw, seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run a seed; gives a verdict even if the run raises."""
    try:
        return run(seed, faults=faults)
    except Exception as error:  # noqa: BLE001  # Whatever it is, it is this seed's finding.
        where = traceback.extract_tb(error.__traceback__)[-1]
        broke_down = f"the run broke down: {error!r} in {where.name}, {where.filename}:{where.lineno}"
        return Verdict(seed, [broke_down], draw(seed) if faults is None else list(faults))
