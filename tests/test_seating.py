"""Threads that are woken to work beside others wake up on another core, and may then run anywhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from crescando import scanning, seating
from crescando.scanning import Team
from crescando.seating import Seat

moves = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="threads cannot be moved"
)


class _Sleeper:
    """A thread that was awake on some core, and where it may run when it is woken and later."""

    def __init__(self, core: int) -> None:
        self._woken: SimpleQueue[bool] = SimpleQueue()
        self._seen: SimpleQueue[set[int]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(core, os.sched_getaffinity(0)), daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self, core: int, everywhere: set[int]) -> None:
        self.seat = Seat()
        self.id = threading.get_native_id()
        os.sched_setaffinity(0, {core})
        self.seat.rest()
        os.sched_setaffinity(0, everywhere)
        self._ready.set()
        while self._woken.get():
            self._seen.put(os.sched_getaffinity(0))
            self.seat.take()
            self._seen.put(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {core})
            self.seat.rest()
            os.sched_setaffinity(0, everywhere)

    def wake(self) -> tuple[set[int], set[int]]:
        """Give where it may run when it wakes up, and after it has taken its seat."""
        self._woken.put(True)
        return self._seen.get(timeout=10), self._seen.get(timeout=10)

    def end(self) -> None:
        self._woken.put(False)
        self._thread.join(10)


@pytest.fixture
def core() -> Iterator[int]:
    """The core that the test is on, and stays on."""
    everywhere = os.sched_getaffinity(0)
    chosen = min(everywhere)
    os.sched_setaffinity(0, {chosen})
    yield chosen
    os.sched_setaffinity(0, everywhere)


@pytest.fixture
def everywhere() -> set[int]:
    return os.sched_getaffinity(0)


@moves
def test_who_was_here_wakes_up_elsewhere_once(everywhere: set[int], core: int) -> None:
    os.sched_setaffinity(0, everywhere)
    sleeper = _Sleeper(core)
    os.sched_setaffinity(0, {core})

    for _ in range(3):
        sleeper.seat.keep_off()
    first, then = sleeper.wake()
    unasked, _ = sleeper.wake()

    sleeper.end()
    assert first == everywhere - {core}
    assert then == unasked == everywhere


@moves
def test_who_was_kept_off_and_not_woken_is_kept_off_the_next_core(everywhere: set[int], core: int) -> None:
    os.sched_setaffinity(0, everywhere)
    sleeper = _Sleeper(core)
    other = max(everywhere - {core})

    for each in (core, other):
        os.sched_setaffinity(0, {each})
        sleeper.seat.keep_off()
    first, then = sleeper.wake()

    sleeper.end()
    assert first == everywhere - {other}
    assert then == everywhere


@moves
def test_who_was_elsewhere_or_is_awake_is_left_alone(everywhere: set[int], core: int) -> None:
    os.sched_setaffinity(0, everywhere)
    elsewhere = _Sleeper(max(everywhere - {core}))
    awake = _Sleeper(core)
    os.sched_setaffinity(0, {core})

    elsewhere.seat.keep_off()
    awake.seat.take()
    awake.seat.keep_off()

    seen = elsewhere.wake(), awake.wake()
    elsewhere.end()
    awake.end()
    assert seen == ((everywhere, everywhere), (everywhere, everywhere))


@moves
def test_who_has_one_core_keeps_it(core: int) -> None:
    sleeper = _Sleeper(core)

    sleeper.seat.keep_off()

    seen = sleeper.wake()
    sleeper.end()
    assert seen == ({core}, {core})


@moves
def test_what_somebody_else_says_meanwhile_holds(everywhere: set[int], core: int) -> None:
    os.sched_setaffinity(0, everywhere)
    sleeper = _Sleeper(core)
    os.sched_setaffinity(0, {core})

    sleeper.seat.keep_off()
    os.sched_setaffinity(sleeper.id, {core})

    seen = sleeper.wake()
    sleeper.end()
    assert seen == ({core}, {core})


@moves
def test_where_threads_must_not_be_moved_they_run_where_they_do(
    everywhere: set[int], core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.sched_setaffinity(0, everywhere)
    sleeper = _Sleeper(core)
    os.sched_setaffinity(0, {core})

    def refuse(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_setaffinity", refuse)
        sleeper.seat.keep_off()

    seen = sleeper.wake()
    sleeper.end()
    assert seen == (everywhere, everywhere)


def test_a_team_keeps_its_helpers_off_the_core_of_who_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    class Told(Seat):
        def rest(self) -> None:
            told.append(("rest", threading.current_thread().name))

        def keep_off(self) -> None:
            told.append(("keep off", threading.current_thread().name))

        def take(self) -> None:
            told.append(("take", threading.current_thread().name))

    monkeypatch.setattr(scanning, "Seat", Told)
    team = Team(2)
    both = threading.Barrier(2)

    for _ in range(2):
        team.run([both.wait, both.wait])
    team.close(10)

    mine, helper = threading.current_thread().name, "crescando-scan-part-1"
    assert told[-4:] == [("rest", helper), ("keep off", mine), ("take", helper), ("rest", helper)] or (
        # The caller was sooner back than the helper asleep.
        told[-4:] == [("keep off", mine), ("rest", helper), ("take", helper), ("rest", helper)]
    )


def test_where_cores_are_not_known_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def move(*_: object) -> None:
        raise AssertionError("a thread was moved")

    monkeypatch.setattr(seating, "_core", None)
    monkeypatch.setattr(os, "sched_setaffinity", move, raising=False)
    seat = Seat()

    for _ in range(2):
        seat.rest()
        seat.keep_off()
        seat.take()

    assert seat._core == -1


@moves
def test_on_linux_it_is_known_on_which_core_a_thread_runs(core: int) -> None:
    tell = seating._teller()
    assert tell is not None
    assert tell() == core
