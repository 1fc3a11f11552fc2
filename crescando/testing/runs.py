"""The worlds that can be run by name: how a seed of each is run, and what it is known to meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crescando.engine.scan import ScanEngine
from crescando.testing.faults import KINDS, Fault
from crescando.testing.order_faults import INJECTIONS
from crescando.testing.order_run import run_order_seed
from crescando.testing.simulation import run_seed
from crescando.testing.situations import SITUATIONS
from crescando.testing.verdict import Verdict


class Run(Protocol):
    """Runs one seed, under its own schedule of faults or another."""

    def __call__(self, seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Known:
    """A world by name.

    Attributes
    ----------
    kinds, situations : tuple of str
        Faults and rare situations that a long soak must meet often enough.
    share : str
        The count whose share of seeds must be large, if there is one.
    """

    run: Run
    kinds: tuple[str, ...]
    situations: tuple[str, ...] = ()
    share: str = ""


def run_cluster_seed(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run a seed of a whole cluster with the scan engine, judged by the Config's scalar methods."""
    return run_seed(seed, engine=small_engine, faults=None if faults is None else list(faults))


def small_engine() -> ScanEngine:
    """Make an engine whose blocks are small, so that its table has several."""
    return ScanEngine(block_rows=8)


WORLDS: dict[str, Known] = {
    "ecast": Known(run_order_seed, tuple(INJECTIONS), SITUATIONS, "fault_during_change"),
    "cluster": Known(run_cluster_seed, KINDS),
}
