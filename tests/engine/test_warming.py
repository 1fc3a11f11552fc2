"""Kernels become ready beside the work, or stay what they are, and nobody waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine import cold_start

SLACK = 5
"""Machines that do other things too stall without our help; ``make cold-start`` has none."""

_PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(message)s")
began = time.monotonic()
from crescando import warming
from crescando.engine import kernels
thread = warming.warm_kernels()
assert kernels.active().name == "numpy"
if thread is not None:
    thread.join()
print(kernels.active().name)
"""


def _run(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=os.environ | environment, check=True
    )


def test_the_numpy_kernels_stay_where_they_are_asked_for() -> None:
    done = _run(CRESCANDO_KERNELS="numpy")
    assert done.stdout.split() == ["numpy"]


def test_a_place_that_cannot_be_written_to_means_numpy_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = _run(XDG_CACHE_HOME=str(tmp_path / "file"), CRESCANDO_KERNELS="")
    assert done.stdout.split() == ["numpy"]
    told = [line for line in done.stderr.splitlines() if line.startswith("crescando.warming")]
    assert len(told) == 1
    assert "NumPy kernels" in told[0]


def test_a_broken_numba_means_numpy_and_one_line(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('no LLVM on this machine')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = _run(PYTHONPATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"), CRESCANDO_KERNELS="")
    assert done.stdout.split() == ["numpy"]
    told = [line for line in done.stderr.splitlines() if line.startswith("crescando.warming")]
    assert len(told) == 1
    assert "no LLVM on this machine" in told[0]


@pytest.mark.slow
def test_a_fresh_process_answers_at_once_and_comes_to_full_speed_without_a_stall(tmp_path: Path) -> None:
    """The first has nothing compiled and compiles beside its work; the second loads what is there."""
    pytest.importorskip("numba")
    for name in ("cold", "warm"):
        figures = cold_start.measure(tmp_path)
        print(f"{name}: {figures}")
        assert figures.kernels == "numba"
        # Of processor time, since others have their part of the machine's.
        assert figures.first_cpu_s <= cold_start.FIRST_S
        assert figures.switch_s <= SLACK * cold_start.STALL_S
    ready = list(tmp_path.rglob("ready"))
    assert len(ready) == 1
    assert list(ready[0].parent.rglob("*.nbi"))
