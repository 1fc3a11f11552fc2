"""Clusters in which tables are pinned while ranges move and processes die: each part is at its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crescando.engine.segment import Still
from crescando.roles.cycles import Execution
from crescando.roles.pinning import TakePin
from crescando.roles.pins import Pins
from crescando.testing.elastic_run import run_elastic_seed
from crescando.testing.pins import PinningCluster, check_pins
from crescando.testing.verdict import Verdict
from tests.simulation.judge import TwinJudge, world_of
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

SEEDS = range(2)
SEEDS_PLANTED = range(40)


def run(seed: int) -> Verdict:
    return run_elastic_seed(
        seed,
        engine=small_engine,
        judge=TwinJudge(),
        view=world_of,
        cluster=PinningCluster,
        further=(check_pins,),
    )


def test_every_part_of_a_pin_is_at_its_place() -> None:
    counted: Counter[str] = Counter()
    for seed in SEEDS:
        verdict = run(seed)
        assert verdict.is_correct, f"seed {seed}: {verdict.violations[:5]}"
        counted.update(verdict.counted)
    assert counted["pins_seen"] >= 10 * len(SEEDS), counted
    assert counted["pin_over"] >= len(SEEDS), "no pin is ever over"
    assert counted["pin_unknown"] >= len(SEEDS), "nobody who does not know it is ever asked"
    assert counted["changes_ended"] >= len(SEEDS), counted


def take_it_a_batch_late(patch: pytest.MonkeyPatch) -> None:
    """What the same cycle executes behind a pin shows in it."""

    def late(self: Execution, *arguments: Any) -> Any:
        steps = sorted(self.steps, key=lambda step: isinstance(step, TakePin))
        return original(replace(self, steps=tuple(steps), written_bytes=()), *arguments)

    original = Execution.run
    patch.setattr(Execution, "run", late)


def let_later_writes_show(patch: pytest.MonkeyPatch) -> None:
    """Writes go into the arrays that a pin has."""
    patch.setattr(Still, "has", lambda self, array: False)


def answer_from_present_rows(patch: pytest.MonkeyPatch) -> None:
    """Whoever is asked pins its present rows first."""

    def fresh(self: Execution, engine: Any, *arguments: Any) -> Any:
        images = self.pins.images
        for pin in images._pins:
            images._pins[pin] = engine.pin((0,))
        images._reads.clear()
        return original(self, engine, *arguments)

    original = Execution.run
    patch.setattr(Execution, "run", fresh)


def answer_when_the_lease_is_over(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at a lease."""
    patch.setattr(Pins, "_expire", lambda self, now_s: None)


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    plant.__name__: plant
    for plant in (
        take_it_a_batch_late,
        let_later_writes_show,
        answer_from_present_rows,
        answer_when_the_lease_is_over,
    )
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    for seed in SEEDS_PLANTED:
        # Who never looks at a lease wakes up for it again and again.
        found = [each for each in run(seed).violations if each.startswith(("pins:", "rest:"))]
        if found:
            print(f"{name}: found by seed {seed}: {found[0][:160]}")
            return
    pytest.fail(f"{name} was not found within {len(SEEDS_PLANTED)} seeds")
