"""A pytest plug-in: users' own Configs under the simulated order.

Marks a test with ``@pytest.mark.order_seeds(200)`` and takes the fixture
``simulate_order``: called with a `Scenario`, it runs that many seeds and fails
the test with the shortest schedule of the first seed that goes wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from crescando.testing.attempt import attempt
from crescando.testing.order_run import draw_order_faults, run_order_seed
from crescando.testing.scenario import Scenario
from crescando.testing.shrink import shrink
from crescando.testing.transcript import describe_verdict

SEEDS = 50
"""How many seeds a test runs if it does not say."""

SimulateOrder = Callable[[Scenario], int]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "order_seeds(n, first=0): how many seeds of the simulated order `simulate_order` runs"
    )


@pytest.fixture
def simulate_order(request: pytest.FixtureRequest) -> Iterator[SimulateOrder]:
    """Give a function that runs a `Scenario` under many seeds, and gives how many messages were ordered.

    Raises
    ------
    pytest.fail.Exception
        If a seed has a violation; the text holds its shortest schedule, and how to run that seed alone.
    """
    marker = request.node.get_closest_marker("order_seeds")
    seeds = _seeds_of(*marker.args, **marker.kwargs) if marker is not None else range(SEEDS)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    yield partial(simulate, seeds)
    logging.disable(before)


def simulate(seeds: range, scenario: Scenario) -> int:
    """Run seeds, and fail with the first one that goes wrong."""
    run = partial(attempt, partial(run_order_seed, scenario=scenario), draw_order_faults)
    n_messages = 0
    for seed in seeds:
        verdict = run(seed)
        if not verdict.is_correct:
            least = shrink(lambda faults, seed=seed: run(seed, faults=faults), verdict.faults)  # type: ignore[misc]
            again = f"this seed alone: @pytest.mark.order_seeds(1, first={seed})"
            pytest.fail(f"{type(scenario).__qualname__}: {describe_verdict(least)}\n{again}", pytrace=False)
        n_messages += verdict.counted["appended"]
    return n_messages


def _seeds_of(n: Any, first: Any = 0) -> range:
    if int(n) < 1:
        raise pytest.UsageError("order_seeds(n, first=0): a test that runs no seed shows nothing")
    return range(int(first), int(first) + int(n))
