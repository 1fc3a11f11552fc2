"""The scanning threads: in order, told once, and gone when closed."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Any

from crescando.scanning import ScanThreads


def test_one_thread_does_the_work_in_order_and_tells_of_it() -> None:
    scans, told = ScanThreads(1), Queue[tuple[Any, Exception | None]]()

    for n in range(50):
        scans.submit(lambda n=n: n * n, lambda *outcome: told.put(outcome))  # type: ignore[misc]

    assert [told.get(timeout=10) for _ in range(50)] == [(n * n, None) for n in range(50)]
    scans.close(10)


def test_work_that_fails_is_told_and_the_next_is_done() -> None:
    scans, told = ScanThreads(1), Queue[tuple[Any, Exception | None]]()

    scans.submit(lambda: 1 // 0, lambda *outcome: told.put(outcome))
    scans.submit(lambda: "next", lambda *outcome: told.put(outcome))

    result, error = told.get(timeout=10)
    assert result is None
    assert isinstance(error, ZeroDivisionError)
    assert told.get(timeout=10) == ("next", None)
    scans.close(10)


def test_closing_waits_for_what_runs_and_drops_what_waits() -> None:
    before = set(threading.enumerate())
    scans, told = ScanThreads(2), Queue[tuple[Any, Exception | None]]()
    running, go_on = threading.Barrier(3), threading.Event()

    def work() -> str:
        running.wait(10)
        go_on.wait(10)
        return "done"

    for _ in range(2):
        scans.submit(work, lambda *outcome: told.put(outcome))
    running.wait(10)
    scans.submit(lambda: "never", lambda *outcome: told.put(outcome))
    threading.Timer(0.05, go_on.set).start()
    scans.close(10)

    assert [told.get_nowait() for _ in range(told.qsize())] == [("done", None)] * 2
    assert {
        thread.name for thread in set(threading.enumerate()) - before if "crescando" in thread.name
    } == set()
