"""The folder of a run: who holds it, who only looks, and what a launcher that was killed has left."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from crescando.errors import SpecError
from crescando.nodes import logs
from crescando.nodes.logs import cut_logs, last_lines
from crescando.nodes.runs import Running, find_running, is_held, make_folder, take, write_record


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a launcher that was killed has left."""
    folder = tmp_path / "test"
    with take(folder, "test"):
        write_record(folder, Running("test", "cluster.toml", ".", os.getpid(), {}, True))
        assert find_running(folder=tmp_path) is not None
    return folder


def test_whoever_looks_is_not_taken_for_a_launcher(left: Path) -> None:
    with (left / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)

        assert not is_held(left)
        assert find_running(folder=left.parent) is None


def test_a_launcher_waits_for_those_who_look_and_not_for_another_launcher(left: Path) -> None:
    with (left / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(other, fcntl.LOCK_UN)).start()
        with take(left, "test"):
            with pytest.raises(SpecError, match="runs already"):
                take(left, "test")
            with pytest.raises(SpecError, match="runs already"):
                make_folder(left.parent, "test")


def test_a_record_is_of_its_own_launcher_only(left: Path) -> None:
    with take(left, "test"):
        # `down` would end whoever has that number now.
        assert find_running(folder=left.parent) is None


def test_a_folder_that_cannot_be_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()

    for make in (
        lambda: take(tmp_path / "taken" / "test", "test"),
        lambda: make_folder(tmp_path / "taken", "test"),
    ):
        with pytest.raises(SpecError, match="cannot be written"):
            make()


def test_a_long_log_loses_its_older_part_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BYTES_MAX", 1000)
    monkeypatch.setattr(logs, "KEPT_BYTES", 100)
    path = tmp_path / "s1.log"
    with path.open("ab", buffering=0) as log:
        for n in range(200):
            log.write(b"line %d\n" % n)
        cut_logs(tmp_path)
        log.write(b"line 200\n")

    lines = path.read_text().splitlines()
    assert lines == [f"line {n}" for n in range(201 - len(lines), 201)]
    assert 5 < len(lines) < 20
    assert last_lines(path, 2) == ["line 199", "line 200"]
    assert last_lines(tmp_path / "none.log", 2) == []
