"""Tests that share a cluster or a Spark session go to one worker: the marker that says so is heeded."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("a group")
def test_a_group_is_part_of_the_name_by_which_workers_are_given_tests(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("no workers are used")
    assert request.node.nodeid.endswith("@a group"), "this pytest and this pytest-xdist do not go together"
