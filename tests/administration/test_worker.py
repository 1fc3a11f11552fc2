"""The administrator's thread: jobs in order, looks between, an end for whoever waits."""

from __future__ import annotations

import threading

import pytest

from crescando.administration.worker import Worker
from crescando.errors import ClosedError

SECONDS = 60.0


def no_look() -> None:
    return None


def test_jobs_are_done_in_order_and_what_one_raises_is_its_own() -> None:
    worker = Worker(no_look, lambda error: None)
    done: list[int] = []
    futures = [worker.submit(lambda n=n: done.append(n) or 10 // (2 - n)) for n in range(4)]

    assert [futures[n].result(SECONDS) for n in (0, 1, 3)] == [5, 10, -10]
    with pytest.raises(ZeroDivisionError):
        futures[2].result(SECONDS)
    assert done == [0, 1, 2, 3]
    worker.close(SECONDS)
    with pytest.raises(ClosedError):
        worker.submit(no_look)


def test_looks_come_between_jobs_and_again_when_they_wish() -> None:
    looks, enough = [0], threading.Event()

    def look() -> float | None:
        looks[0] += 1
        if looks[0] < 5:
            return 0.001
        enough.set()
        return None

    worker = Worker(look, lambda error: None)
    worker.submit(no_look)

    assert enough.wait(SECONDS)
    worker.close(SECONDS)


def test_a_look_that_fails_is_told_and_the_thread_goes_on() -> None:
    told: list[Exception] = []

    def look() -> float | None:
        raise RuntimeError("blind")

    worker = Worker(look, told.append)
    worker.submit(no_look).result(SECONDS)
    assert worker.submit(lambda: 7).result(SECONDS) == 7

    worker.close(SECONDS)
    assert [str(error) for error in told] == ["blind", "blind"]


def test_what_waits_when_it_is_closed_is_told() -> None:
    worker = Worker(no_look, lambda error: None)
    begun, go_on = threading.Event(), threading.Event()
    running = worker.submit(lambda: begun.set() or go_on.wait(SECONDS))
    assert begun.wait(SECONDS)
    waiting = worker.submit(no_look)

    worker.close(0.0)
    go_on.set()

    assert running.result(SECONDS)
    with pytest.raises(ClosedError):
        waiting.result(SECONDS)
