"""Connections: one for each place, closed when it rests; nobody waits for another one's cluster."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import crescando
from crescando.errors import ClosedError, DeadlineError
from crescando.spark import connections
from crescando.spark.connections import Place, _Connections
from tests.spark.conftest import PATIENCE_S

HERE, THERE = Place("crescando://here:1", "/certs"), Place("crescando://there:1", "/certs")


class Store:
    """Knows only how it stands."""

    def __init__(self) -> None:
        self.is_closed = self.is_over = False
        self.fails: Exception | None = None
        self.n_tried = 0

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(default=self)

    def tables(self, *, timeout_s: float) -> tuple[str, ...]:
        self.n_tried += 1
        if self.fails is not None:
            raise self.fails
        return ()

    def close(self) -> None:
        self.is_closed = True


class Timer:
    """Fires when it is told to."""

    made: list[Timer]

    def __init__(self, seconds: float, function: Any, args: tuple[Any, ...]) -> None:
        self.fire = lambda: function(*args)
        self.daemon = False
        self.made.append(self)

    def start(self) -> None:
        assert self.daemon


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    Timer.made = []
    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(crescando, "connect", lambda *_, **__: Store(), raising=False)
    return Timer.made


def test_a_connection_that_is_used_often_has_one_timer(timers: list[Timer]) -> None:
    kept = _Connections()
    for _ in range(100):
        lent = kept.take(HERE, 1.0)
        kept.give_back(HERE, lent)
    assert len(timers) == 1
    timers[0].fire()
    assert not lent.store.is_closed, "it was used since the timer was set"
    assert len(timers) == 2
    assert kept.take(HERE, 1.0) is lent
    timers[1].fire()
    assert not lent.store.is_closed, "somebody uses it"
    kept.give_back(HERE, lent)
    timers[2].fire()
    assert lent.store.is_closed
    assert kept.take(HERE, 1.0) is not lent


def test_one_that_is_broken_is_closed_when_nobody_uses_it(timers: list[Timer]) -> None:
    kept = _Connections()
    first, second = kept.take(HERE, 1.0), kept.take(HERE, 1.0)
    kept.drop(HERE, first)
    kept.give_back(HERE, first)
    assert not timers
    another = kept.take(HERE, 1.0)
    kept.give_back(HERE, second)
    timers[0].fire()
    assert first is second
    assert (first.store.is_closed, another.store.is_closed) == (True, False)


GIVEN_UP = [("is_closed", True), ("is_over", True), ("fails", ClosedError("this client was expelled"))]


@pytest.mark.parametrize(("how", "value"), GIVEN_UP)
def test_one_that_the_cluster_has_given_up_is_not_lent(
    timers: list[Timer], monkeypatch: pytest.MonkeyPatch, how: str, value: object
) -> None:
    kept = _Connections()
    lent = kept.take(HERE, 1.0)
    kept.give_back(HERE, lent)
    assert kept.take(HERE, 1.0) is lent
    kept.give_back(HERE, lent)
    store: Any = lent.store
    assert store.n_tried == 0, "it was used just now"
    monkeypatch.setattr(connections, "TRUSTED_S", -1.0)
    assert kept.take(HERE, 1.0) is lent
    assert store.n_tried == 1
    kept.give_back(HERE, lent)
    store.fails = DeadlineError("nobody answers")
    assert kept.take(HERE, 1.0) is lent, "what it is lent for will tell"
    kept.give_back(HERE, lent)
    setattr(store, how, value)
    another = kept.take(HERE, 1.0)
    assert another is not lent
    timers[0].fire()
    timers[1].fire()
    assert store.is_closed
    assert not another.store.is_closed


def test_a_cluster_that_does_not_answer_holds_up_no_other(
    timers: list[Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def connect(url: str, **_: object) -> Store:
        if url == HERE.url:
            asked.set()
            assert answers.wait(PATIENCE_S)
        return Store()

    monkeypatch.setattr(crescando, "connect", connect)
    kept = _Connections()
    other = kept.take(THERE, 1.0)
    waiting = [threading.Thread(target=kept.take, args=(HERE, 1.0)) for _ in range(2)]
    for thread in waiting:
        thread.start()
    assert asked.wait(PATIENCE_S)
    kept.give_back(THERE, other)
    assert kept.take(THERE, 1.0) is other
    answers.set()
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert kept.kept[HERE].n_users == 2
