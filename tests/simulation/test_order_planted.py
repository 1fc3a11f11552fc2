"""Faults planted in the ordering path: each is found by the simulated order within 200 seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from crescando.testing.factories import Factories
from crescando.testing.order_faults import ORDER_KINDS
from crescando.testing.order_run import run_order_seed
from tests.simulation.plants import ORDER_PLANTS

pytestmark = pytest.mark.simulation

SEEDS = 200

KINDS_OF_INTEREST: dict[str, tuple[str, ...]] = {
    "let_a_suspicion_share_the_data_credit": ("stuck",),
    "forget_a_promise_at_restart": ("usurp", "part_routers", "partition", "reset"),
    "count_a_joiner_before_it_holds_the_tail": ("restart_router", "kill_in_change", "usurp", "crash_router"),
    "prefer_the_lowest_ballot": ("usurp",),
    "govern_by_the_newest_membership_at_once": ("kill_in_change", "isolated_change", "usurp"),
    "take_in_numbers_twice": ("usurp",),
}
"""Faults to draw from where most kinds would only pass the time."""


PROVES_NOTHING = ("rest:", "failed: AttributeError", "failed: TypeError", "failed: NameError")
"""Of a plant that does not fit the code any more nothing would be known."""


@pytest.mark.parametrize("name", ORDER_PLANTS)
def test_a_planted_fault_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        factories = ORDER_PLANTS[name](patch)
        kinds = KINDS_OF_INTEREST.get(name, ORDER_KINDS)
        found = next(((s, v) for s in range(SEEDS) if (v := _violations(s, factories, kinds))), None)
    assert found is not None, f"{name} was not found within {SEEDS} seeds"
    seed, violations = found
    record_property("seed", seed)
    print(f"{name}: found by seed {seed}: {violations[0][:160]}")
    assert run_order_seed(seed, kinds=kinds).is_correct, "the seed fails without the fault too"


def _violations(seed: int, factories: Factories, kinds: tuple[str, ...]) -> list[str]:
    """Give what the checkers say, or that the run broke down; that it went round in circles is not enough."""
    try:
        found = run_order_seed(seed, factories=factories, kinds=kinds).violations
    except (AssertionError, LookupError, ValueError) as error:
        return [f"the run broke down: {error!r}"]
    return [violation for violation in found if not any(word in violation for word in PROVES_NOTHING)]
