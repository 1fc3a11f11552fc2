"""How the interpreter is set up for a program that holds a store."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from crescando.interpreter import COLLECTOR_THRESHOLDS, SWITCH_S

TUNED = """
import gc, sys, crescando
sys.setswitchinterval({before})
crescando.tune_interpreter()
print(gc.get_threshold(), gc.get_freeze_count() > 0, round(sys.getswitchinterval(), 6))
"""


@pytest.mark.parametrize(("before", "after"), [(0.005, SWITCH_S), (0.00025, 0.00025)])
def test_collections_are_rare_and_turns_are_short_and_never_made_longer(before: float, after: float) -> None:
    # In a process of its own: it holds for the whole program.
    program = TUNED.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == f"{COLLECTOR_THRESHOLDS} True {after}"


def test_the_library_leaves_the_interpreter_alone() -> None:
    import crescando

    before = gc.get_threshold(), sys.getswitchinterval()
    with crescando.open() as store:
        numbers = store.create_table("numbers", like={"n": [1]}, primary_key="n")
        numbers.insert([{"n": 1}]).result()
        assert numbers.select().rows() == [(1,)]
    assert (gc.get_threshold(), sys.getswitchinterval()) == before
