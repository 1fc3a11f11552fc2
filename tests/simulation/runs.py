"""Running seeds for the tests of this folder."""

from __future__ import annotations

from crescando.engine.scan import ScanEngine
from crescando.testing.factories import Factories
from crescando.testing.faults import KINDS
from crescando.testing.simulation import Verdict, run_seed
from tests.simulation.judge import TwinJudge, world_of


def small_engine() -> ScanEngine:
    """Make an engine whose blocks are small, so that its table has several."""
    return ScanEngine(block_rows=8)


def run(seed: int, factories: Factories | None = None, kinds: tuple[str, ...] = KINDS) -> Verdict:
    """Run a seed with the real engine, judged by the independent twin."""
    return run_seed(
        seed, engine=small_engine, judge=TwinJudge(), view=world_of, factories=factories, kinds=kinds
    )
