"""Clusters that grow, shrink and heal under seeds: no row is lost, doubled, shown stale or left behind.

`CRESCANDO_ELASTIC_SEEDS` says how many seeds are run instead of 300: `make test` sets it to
what fits a run of all tests, `make soak-elastic-seeds` to what is asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from crescando.engine.kv import KvEngine
from crescando.testing.crash_matrix import SPEC, Matrix, aims, run_round
from crescando.testing.elastic import TRANSFORMATIONS, VICTIMS, Aim, ElasticCluster
from crescando.testing.elastic_run import CHANGES_MIN, run_elastic_seed
from crescando.testing.stages import STEPS
from tests.simulation.elastic_runs import run_elastic
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("CRESCANDO_ELASTIC_SEEDS", "300"))
SEEDS_A_TEST = 10

ROUNDS = 40
"""Of the crash matrix: every step of every transformation once; `make soak-elastic` runs more."""

ROUNDS_A_TEST = 5


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_every_elastic_seed_is_correct(first: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        verdict = run_elastic(seed)
        faults = [(fault.kind, round(fault.when_s, 3)) for fault in verdict.faults]
        assert verdict.is_correct, f"seed {seed}, {faults}: {verdict.violations[:5]}"
        assert verdict.counted["begun_under_load"] >= CHANGES_MIN, f"seed {seed}: too few transformations"
        counted.update(verdict.counted)
    assert counted["under_faults"] >= CHANGES_MIN * SEEDS_A_TEST, counted
    assert counted["changes_ended"] >= 2 * SEEDS_A_TEST, counted
    assert all(counted[f"step_{step}"] for step in STEPS), counted
    assert counted["snapshot_reads"] >= 10 * SEEDS_A_TEST, "too few snapshot reads are answered"
    assert counted["basic_reads"] >= 5 * SEEDS_A_TEST, "too few basic reads are answered"


@pytest.mark.parametrize("seed", range(1_000, 1_005))
def test_elastic_seeds_are_correct_with_the_other_engine(seed: int) -> None:
    verdict = run_elastic_seed(seed, engine=KvEngine)

    assert verdict.is_correct, f"seed {seed}: {verdict.violations[:5]}"


@pytest.mark.parametrize(("supers", "n_left"), [(1, 1), (3, 2)])
def test_a_super_that_heals_is_struck_as_an_administrator_only_if_a_majority_is_left(
    supers: int, n_left: int
) -> None:
    world = ElasticCluster(0, engine=small_engine, spec=replace(SPEC, supers=supers), n_standbys=1)
    world.time.run_until(0.5)
    world.crash(world.newest().ring.processes[0], "crash_storage")
    world.aims.append(Aim("ordered", "admin"))
    world.time.run_until(20.0)

    assert not world.aims, "no cure was ordered"
    assert len(world.alive("super")) == n_left
    assert world.is_at_rest
    assert not world.newest().failed


def test_seed_214_keeps_the_only_super_though_its_cure_is_aimed_at() -> None:
    """Its cure of `s1` is catching up when the administrator of any change is to crash."""
    verdict = run_elastic(214)

    assert verdict.is_correct, verdict.violations[:5]
    assert verdict.counted["crash_receiver_at_half"] == 1
    assert "crash_admin_at_catching_up" not in verdict.counted


def test_an_elastic_run_depends_on_nothing_but_its_seed() -> None:
    first, second = (run_elastic(3) for _ in range(2))

    assert first.trace_digest == second.trace_digest
    assert first.counted == second.counted


@pytest.mark.parametrize("first", range(0, ROUNDS, ROUNDS_A_TEST))
def test_an_elastic_cluster_survives_a_crash_at_any_step(first: int) -> None:
    matrix = Matrix()
    for number, aim in list(enumerate(aims(ROUNDS)))[first : first + ROUNDS_A_TEST]:
        matrix.rounds.append(run_round(number, aim, engine=small_engine))
    assert not matrix.failing, matrix.table()
    assert sum(each.struck for each in matrix.rounds) >= ROUNDS_A_TEST // 2, matrix.table()


def test_the_elastic_matrix_goes_through_everything() -> None:
    everything = aims(len(TRANSFORMATIONS) * len(STEPS) * len(VICTIMS))

    assert len(set(everything)) == len(everything)
    first = everything[: len(TRANSFORMATIONS) * len(STEPS)]
    assert {(aim.kind, aim.step) for aim in first} == {(k, s) for k in TRANSFORMATIONS for s in STEPS}
