"""The worlds that can be run by name: how a seed of each is run, and what it is known to meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crescando.engine.scan import ScanEngine
from crescando.testing.attempt import Draw, Run, attempt
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.elastic import ELASTIC_KINDS, ElasticCluster, draw_elastic_faults
from crescando.testing.elastic_run import run_elastic_seed
from crescando.testing.faults import KINDS, Fault, draw_faults
from crescando.testing.order_faults import INJECTIONS
from crescando.testing.order_run import draw_order_faults, run_order_seed
from crescando.testing.simulation import SPAN_S, run_seed
from crescando.testing.situations import SITUATIONS
from crescando.testing.stages import STEPS
from crescando.testing.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Known:
    """A world by name.

    Attributes
    ----------
    run : Run
    draw : Draw
        Gives the schedule that `run` follows by itself.
    kinds, situations : tuple of str
        Faults and rare situations that a long soak must meet often enough.
    share : str
        The count whose share of seeds must be large, if there is one.
    """

    run: Run
    draw: Draw
    kinds: tuple[str, ...]
    situations: tuple[str, ...] = ()
    share: str = ""

    def attempt(self, seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
        """Run a seed; one that breaks down altogether has a verdict too."""
        return attempt(self.run, self.draw, seed, faults=faults)


def run_cluster_seed(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run a seed of a whole cluster with the scan engine, judged by the Config's scalar methods."""
    return run_seed(seed, engine=small_engine, faults=None if faults is None else list(faults))


def draw_cluster_faults(seed: int) -> list[Fault]:
    """Give the schedule of a seed, which is drawn after what the cluster itself needs."""
    return draw_faults(SimulatedCluster(seed, engine=small_engine).rng, span_s=SPAN_S)


def run_changing_seed(seed: int, *, faults: Sequence[Fault] | None = None) -> Verdict:
    """Run a seed of a cluster that grows, shrinks and heals."""
    return run_elastic_seed(seed, engine=small_engine, faults=faults)


def draw_changing_faults(seed: int) -> list[Fault]:
    """Give the schedule of a seed, which is drawn after what the cluster itself needs."""
    world = ElasticCluster(seed, engine=small_engine)
    return draw_elastic_faults(world.rng, span_s=SPAN_S, kinds=ELASTIC_KINDS)


def small_engine() -> ScanEngine:
    """Make an engine whose blocks are small, so that its table has several."""
    return ScanEngine(block_rows=8)


WORLDS: dict[str, Known] = {
    "ecast": Known(run_order_seed, draw_order_faults, tuple(INJECTIONS), SITUATIONS, "fault_during_change"),
    "cluster": Known(run_cluster_seed, draw_cluster_faults, KINDS),
    "elastic": Known(
        run_changing_seed, draw_changing_faults, ELASTIC_KINDS, tuple(f"step_{step}" for step in STEPS)
    ),
}
