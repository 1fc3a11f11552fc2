"""Atomic loads under seeds: each is shown whole at one place or not at all, at every level of isolation.

`CRESCANDO_LOADING_SEEDS` says how many seeds are run instead of 10.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.errors import InvariantError
from crescando.roles import staging
from crescando.roles.beside import Beside
from crescando.roles.orphans import Orphans
from crescando.roles.staging import Staging
from crescando.routing.rubberband.loads import Loads
from crescando.testing.loading_run import run_loading_seed
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("CRESCANDO_LOADING_SEEDS", "10"))
SEEDS_A_TEST = 5

PLANT_SEEDS = 12


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_every_seed_with_loads_is_correct(first: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        verdict = run_loading_seed(seed, engine=small_engine)
        faults = [(fault.kind, round(fault.when_s, 3)) for fault in verdict.faults]
        assert verdict.is_correct, f"seed {seed}, {faults}: {verdict.violations[:5]}"
        counted.update(verdict.counted)
    assert counted["shown"] >= 2 * SEEDS_A_TEST, counted
    assert counted["chunks"] >= 5 * SEEDS_A_TEST, counted
    assert counted["attempts_killed"], counted
    assert counted["loads_begun_again"] + counted["loads_forgotten"], counted
    assert counted["changes_ended"], counted
    assert counted["chunks_late"], "no bytes came behind their order"


def test_seeds_with_loads_are_correct_with_the_other_engine() -> None:
    verdict = run_loading_seed(1_001, engine=KvEngine)

    assert verdict.is_correct, verdict.violations[:5]
    assert verdict.counted["shown"]


def leave_a_winner_out(patch: pytest.MonkeyPatch) -> None:
    """A load is shown without its last partition."""
    original = staging.work_of

    def careless(order: Any) -> Any:
        work = original(order)
        return work if not getattr(work, "winners", ()) else _with(work, winners=work.winners[:-1])

    patch.setattr(staging, "work_of", careless)


def commit_as_often_as_asked(patch: pytest.MonkeyPatch) -> None:
    """What a job has committed is forgotten."""
    patch.setattr(Loads, "is_repeat", lambda self, table, job, epoch: False)


def leave_orphans(patch: pytest.MonkeyPatch) -> None:
    """No super looks after leases."""
    patch.setattr(Orphans, "look", lambda self, config, supers, now_s: [])


def order_before_the_bytes_are_there(patch: pytest.MonkeyPatch) -> None:
    """A chunk is ordered as soon as one owner has its bytes, and nobody waits for them at the end."""

    def hasty(self: Any, step: Any, peer: Any, *, is_done: bool) -> None:
        if is_done:
            step.due_s.clear()
            step.done.add(peer)

    patch.setattr(Beside, "_on_said", hasty)
    patch.setattr(Loads, "check_held", lambda self, body, holders: None)
    patch.setattr(Staging, "_ask", lambda self, digest, lacking: setattr(lacking, "ask_at_s", 1e9))


def lose_staged_rows_on_the_way(patch: pytest.MonkeyPatch) -> None:
    """What is staged does not move with its range."""
    original = ScanEngine.take_in

    def careless(self: Any, piece: Any) -> None:
        if not piece.load:
            original(self, piece)

    patch.setattr(ScanEngine, "take_in", careless)


def keep_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """The end of a load by abort or lease does not reach the engines."""
    original = Staging.follow_orders

    def careless(self: Any, orders: Any, *rest: Any) -> bool:
        return original(self, [each for each in orders if each.kind != "abort"], *rest)

    patch.setattr(Staging, "follow_orders", careless)


def _with(work: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(work, **changes)


PLANTS = (
    leave_a_winner_out,
    commit_as_often_as_asked,
    leave_orphans,
    order_before_the_bytes_are_there,
    lose_staged_rows_on_the_way,
    keep_what_was_aborted,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_fault_planted_into_loads_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    plant(monkeypatch)
    for seed in range(PLANT_SEEDS):
        try:
            found = run_loading_seed(seed, engine=small_engine).violations
        except (InvariantError, AssertionError, LookupError, ValueError) as error:
            found = [f"the run broke down: {error!r}"]
        if found:
            record_property("seed", seed)
            print(f"{plant.__name__}: found by seed {seed}: {found[0][:160]}")
            return
    pytest.fail(f"{plant.__name__} was not found within {PLANT_SEEDS} seeds")
