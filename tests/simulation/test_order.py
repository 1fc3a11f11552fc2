"""The ordering path alone under seeds: order, delivery, verdicts and memory, under every kind of fault."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from crescando.testing.order_faults import INJECTIONS
from crescando.testing.order_run import draw_order_faults, run_order_seed
from crescando.testing.transcript import describe_verdict

pytestmark = pytest.mark.simulation

SEEDS = 3000
SEEDS_A_TEST = 100


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_every_seed_is_correct(first: int) -> None:
    logging.disable(logging.WARNING)
    counted: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        verdict = run_order_seed(seed)
        assert verdict.is_correct, describe_verdict(verdict)
        counted.update(verdict.counted)

    assert [kind for kind in INJECTIONS if not counted[kind]] == []
    assert counted["fault_during_change"] >= 0.2 * SEEDS_A_TEST
    assert counted["config_inside_batch"] >= SEEDS_A_TEST


def test_a_run_depends_on_nothing_but_its_seed() -> None:
    program = (
        "import logging; logging.disable(logging.WARNING)\n"
        "from crescando.testing.order_run import run_order_seed\n"
        "for seed in (3, 8, 21): v = run_order_seed(seed); print(v.trace_digest, sorted(v.counted.items()))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("1", "77")
    ]

    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 3


def test_a_schedule_given_is_the_schedule_run() -> None:
    faults = draw_order_faults(5)

    own, given, none = run_order_seed(5), run_order_seed(5, faults=faults), run_order_seed(5, faults=[])

    assert own.trace_digest == given.trace_digest
    assert none.faults == []
    assert not set(none.counted) & set(INJECTIONS)
