"""Seconds of the churn that `make soak-engine` keeps up for ten minutes."""

from __future__ import annotations

from random import Random

import pytest

from tests.engine.churn import ROWS, Churn

pytestmark = [pytest.mark.differential, pytest.mark.slow]


def test_churn_leaves_the_right_rows_and_no_more_memory_than_they_need() -> None:
    churn = Churn(Random(7))
    before = churn.engine.statistics()["bytes"]

    churn.run(20.0)
    churn.check()

    after = churn.engine.statistics()
    print(f"{churn.batches} batches; tables took {before} bytes and take {after['bytes']}")
    assert after["rows"] == ROWS == len(churn.model)
    assert churn.batches >= 5
    # Tombstones and the texts of rows that have gone may wait a while.
    assert after["bytes"] <= 3 * before
