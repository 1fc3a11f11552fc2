"""Worlds with something wrong in them, for the tests of the simulator's tools.

At the top of a module, so that the worker processes of a soak find them by name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from crescando.testing.faults import Fault
from crescando.testing.order_run import draw_order_faults, run_order_seed
from crescando.testing.runs import WORLDS, Known
from crescando.testing.verdict import Verdict
from tests.simulation.plants import never_ask_a_router_again


def run_shy(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run a seed of the order whose routers leave it at the first refusal."""
    with pytest.MonkeyPatch.context() as patch:
        return run_order_seed(seed, factories=never_ask_a_router_again(patch), faults=faults)


def run_breaking(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run nothing: every third seed raises, if its schedule has any faults."""
    schedule = draw_order_faults(seed) if faults is None else list(faults)
    if seed % 3 == 0 and schedule:
        raise KeyError("planted")
    return Verdict(seed, [], schedule, {"pause": 1 + seed % 2, "lost": seed}, virtual_s=1800.0)


def run_dying(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Take the whole worker process down."""
    os._exit(3)


SHY: Known = replace(WORLDS["ecast"], run=run_shy)
BREAKING: Known = replace(WORLDS["ecast"], run=run_breaking)
DYING: Known = replace(WORLDS["ecast"], run=run_dying)
