"""Faults planted in what moves ranges: each is found within 200 seeds, so the checkers can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crescando.testing.elastic import ELASTIC_KINDS
from tests.simulation.elastic_plants import AIMED_AT, BREAKS, ELASTIC_PLANTS, NAMED_BY
from tests.simulation.elastic_runs import run_elastic

pytestmark = pytest.mark.simulation

SEEDS = 200

FOUND_AT = {"count_layouts": 16, "take_the_image_before_the_batch": 22}
"""Where the search begins for what few seeds find; should runs have changed since, the others follow."""


@pytest.mark.parametrize("name", ELASTIC_PLANTS)
def test_a_planted_fault_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    ELASTIC_PLANTS[name](monkeypatch)
    for seed in (FOUND_AT.get(name, 0), *range(SEEDS)):
        found = _violations(seed, AIMED_AT.get(name, ELASTIC_KINDS), NAMED_BY.get(name, ""))
        if found:
            record_property("seed", seed)
            print(f"{name}: found by seed {seed}: {found[0][:160]}")
            return
    pytest.fail(f"{name} was not found within {SEEDS} seeds")


def _violations(seed: int, kinds: tuple[str, ...], prefix: str) -> list[str]:
    """Give what the checkers say; a run that breaks down altogether is found as well."""
    try:
        found = run_elastic(seed, kinds=kinds).violations
    except BREAKS as error:
        return [f"the run broke down: {error!r}"]
    return [violation for violation in found if violation.startswith(prefix)]
