"""Running seeds of elastic clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence

from crescando.testing.elastic import ELASTIC_KINDS
from crescando.testing.elastic_run import run_elastic_seed
from crescando.testing.factories import Factories
from crescando.testing.faults import Fault
from crescando.testing.verdict import Verdict
from tests.simulation.judge import TwinJudge, world_of
from tests.simulation.runs import small_engine


def run_elastic(
    seed: int,
    factories: Factories | None = None,
    kinds: tuple[str, ...] = ELASTIC_KINDS,
    faults: Sequence[Fault] | None = None,
) -> Verdict:
    """Run a seed with the real engine, judged by the independent twin."""
    return run_elastic_seed(
        seed,
        engine=small_engine,
        judge=TwinJudge(),
        view=world_of,
        factories=factories,
        kinds=kinds,
        faults=faults,
    )
