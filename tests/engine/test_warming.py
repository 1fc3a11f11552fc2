"""Kernels become ready beside the work, or stay what they are, and nobody waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crescando import warming

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


def test_of_many_who_want_to_compile_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling: list[Path] = []

    def load(place: Path) -> None:
        compiling.append(place)
        time.sleep(0.05)

    monkeypatch.setattr(warming, "load", load)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    threads = [threading.Thread(target=warming.main, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert compiling == [tmp_path]
    assert (tmp_path / "ready").exists()


def test_who_must_not_compile_takes_what_others_have_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    loaded: list[Path] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(warming.VARIABLE, "")
    monkeypatch.setattr(warming, "load", loaded.append)
    monkeypatch.setattr(warming, "_compile_elsewhere", lambda _: pytest.fail("it compiles"))
    monkeypatch.setattr(warming, "_LOOK_S", 0.01)
    place = warming.folder()
    assert warming.compiling() == [sys.executable, "-m", "crescando.warming", str(place)]

    waiting = threading.Thread(target=warming._warm, args=(False,))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert loaded == []
    place.mkdir(parents=True, exist_ok=True)
    (place / "ready").touch()
    waiting.join(60)

    assert loaded == [place]
    assert warming.compiling() is None


def test_nothing_is_compiled_where_numpys_kernels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warming.VARIABLE, "numpy")

    assert warming.compiling() is None
