"""The pytest plug-in: a user's own Config under the simulated order, in a project of its own."""

from __future__ import annotations

import re

import pytest

from crescando.testing import plugin

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.simulation

# By name, whether or not an installation has made it known already.
PLUGIN = (
    "-p",
    "no:crescando",
    "-p",
    "crescando.testing.plugin",
    "-p",
    "no:cacheprovider",
    "--strict-markers",
)

SCENARIOS = """
import logging
from dataclasses import dataclass

import pytest

from crescando.testing.groups import Groups, GroupsScenario
from crescando.testing.judge import ConfigJudge
from crescando.types import MessageKind


class Counting(GroupsScenario):
    "Groups that are right; counts how often a world was built of them."

    worlds = 0

    def genesis(self, rng, founders):
        Counting.worlds += 1
        return super().genesis(rng, founders)


@dataclass(frozen=True, slots=True)
class Sloppy(Groups):
    "Sends a write to the first of a group alone, and says that it goes to all."

    def destset(self, message):
        whole = Groups.destset(self, message)
        if message.kind is MessageKind.WRITE:
            return dict(list(whole.items())[:1])
        return whole


class SloppyScenario(GroupsScenario):
    def genesis(self, rng, founders):
        return Sloppy(super().genesis(rng, founders).groups)


class RaisingScenario(GroupsScenario):
    "A bug of the scenario itself."

    def draw(self, rng, me, processes):
        raise KeyError("the scenario's own")
"""


def run(pytester: pytest.Pytester, tests: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(scenarios=SCENARIOS)
    pytester.makepyfile(test_mine=f"from scenarios import *\n\n{tests}")
    return pytester.runpytest_inprocess(*PLUGIN, *arguments)


def test_a_config_that_is_right_passes_under_as_many_seeds_as_marked(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.order_seeds(6)
def test_marked(simulate_order):
    assert simulate_order(Counting()) > 6
    assert Counting.worlds == 6

@pytest.mark.order_seeds(2, first=90)
def test_marked_from_some_seed_on(simulate_order):
    n = simulate_order(Counting())
    assert Counting.worlds == 6 + 2

    from crescando.testing.order_run import run_order_seed
    assert n == sum(run_order_seed(seed, scenario=Counting()).counted["appended"] for seed in (90, 91))
""",
    )

    result.assert_outcomes(passed=2)


def test_without_a_mark_it_runs_a_number_of_seeds(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "SEEDS", 3)
    result = run(
        pytester,
        """
def test_unmarked(simulate_order):
    simulate_order(Counting())
    assert Counting.worlds == 3
""",
    )

    result.assert_outcomes(passed=1)


def test_the_log_is_quiet_during_a_test_and_as_before_after_it(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture(autouse=True, scope="module")
def as_before():
    before = logging.root.manager.disable
    logging.disable(5)
    yield
    assert logging.root.manager.disable == 5
    logging.disable(before)

@pytest.mark.order_seeds(1)
def test_one(simulate_order):
    assert logging.root.manager.disable == logging.WARNING
""",
    )

    result.assert_outcomes(passed=1)


def test_a_config_that_is_wrong_fails_and_says_how_to_see_it_again(pytester: pytest.Pytester) -> None:
    sloppy = """
@pytest.mark.order_seeds({})
def test_sloppy(simulate_order):
    simulate_order(SloppyScenario())
"""
    result = run(pytester, sloppy.format(5))

    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines_random(
        [
            r"SloppyScenario: seed \d+, .* simulated s, trace [0-9a-f]{32}$",
            r"schedule:$",
            r"violations: [1-9]\d*$",
            r"this seed alone: @pytest\.mark\.order_seeds\(1, first=\d+\)$",
        ]
    )
    printed = result.stdout.str()
    again = re.search(r"order_seeds\((1, first=(\d+))\)$", printed, re.MULTILINE)
    assert again is not None
    assert f"SloppyScenario: seed {again[2]}, " in printed
    assert "Traceback" not in printed

    # Just so, and it is the same.
    repeated = run(pytester, sloppy.format(again[1]))

    repeated.assert_outcomes(failed=1)
    digests = [re.findall(r"trace ([0-9a-f]{32})", text)[0] for text in (printed, repeated.stdout.str())]
    assert digests[0] == digests[1]


def test_what_raises_names_its_seed_as_well(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.order_seeds(2, first=4)
def test_raising(simulate_order):
    simulate_order(RaisingScenario())
""",
    )

    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines_random(
        [
            r"RaisingScenario: seed 4, ",
            r".*the run broke down: KeyError\(\"the scenario's own\"\) in draw, .*scenarios\.py:\d+",
            r"this seed alone: @pytest\.mark\.order_seeds\(1, first=4\)$",
        ]
    )


@pytest.mark.parametrize(
    ("mark", "complaint"), [("0", "a test that runs no seed shows nothing"), ("", "missing 1 required")]
)
def test_a_mark_without_seeds_is_an_error(pytester: pytest.Pytester, mark: str, complaint: str) -> None:
    result = run(
        pytester,
        f"""
@pytest.mark.order_seeds({mark})
def test_nothing(simulate_order):
    simulate_order(Counting())
""",
    )

    result.assert_outcomes(errors=1)
    assert complaint in result.stdout.str()


def test_the_marker_is_explained(pytester: pytest.Pytester) -> None:
    result = run(pytester, "", "--markers")

    result.stdout.fnmatch_lines(["@pytest.mark.order_seeds(n, first=0): how many seeds *"])
