"""The scanning threads: in order, told once, and gone when closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Queue
from typing import Any

import pytest

import crescando
from crescando.engine import cycle
from crescando.engine.part import Part
from crescando.engine.scan import ScanEngine
from crescando.roles.cycles import Executed
from crescando.roles.storage import Storage
from crescando.scanning import ScanThreads, Team, worked_s
from crescando.spec import ClusterSpec


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


def test_a_team_gives_results_in_the_order_of_the_tasks() -> None:
    team = Team(3)
    meeting = threading.Barrier(3)

    def task(n: int) -> tuple[int, str]:
        if n < 3:
            meeting.wait(10)  # Passed only by three threads at once.
        return n, threading.current_thread().name

    found = team.run([partial(task, n) for n in range(20)])

    assert [n for n, _ in found] == list(range(20))
    assert len({name for _, name in found[:3]}) == 3
    assert threading.current_thread().name in {name for _, name in found}
    team.close(10)


def test_helpers_that_are_busy_delay_nobody() -> None:
    team, go_on = Team(2), threading.Event()
    other = threading.Thread(target=team.run, args=([lambda: go_on.wait(10)] * 2,))
    other.start()

    assert team.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]

    assert not go_on.is_set()
    go_on.set()
    other.join(10)
    team.close(10)


def test_of_tasks_that_fail_the_first_is_told_when_all_have_ended() -> None:
    team = Team(2)
    ended: list[str] = []

    def fail(text: str, delay_s: float) -> None:
        time.sleep(delay_s)
        ended.append(text)
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        team.run([partial(fail, "first", 0.05), partial(fail, "second", 0.0), partial(ended.append, "last")])

    assert sorted(ended) == ["first", "last", "second"]
    assert team.run([lambda: 1, lambda: 2]) == [1, 2]
    team.close(10)


def test_a_closed_team_leaves_no_thread_and_works_on_alone() -> None:
    before = set(threading.enumerate())
    team = Team(4)
    assert len(set(threading.enumerate()) - before) == 3

    team.close(10)

    assert not set(threading.enumerate()) - before
    assert team.run([lambda: 1, lambda: 2]) == [1, 2]


def test_a_team_that_nobody_has_any_more_ends() -> None:
    before = set(threading.enumerate())
    team = Team(3)
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 2

    del team

    for helper in helpers:
        helper.join(10)
        assert not helper.is_alive()


def test_a_store_scans_in_as_many_threads_as_its_spec_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "PART_LOOKS_MIN", 1)
    before = set(threading.enumerate())
    seen: set[str] = set()
    scan: Callable[..., None] = Part.scan

    def watched(*args: Any) -> None:
        seen.add(threading.current_thread().name)
        time.sleep(0.01)  # So that no thread does all parts before another has come.
        scan(*args)

    monkeypatch.setattr(Part, "scan", watched)
    with crescando.open(spec=ClusterSpec(storages=3, replication=2, scan_threads=3)) as store:
        table = store.create_table("t", like={"k": [1], "v": [1]}, primary_key="k")
        table.insert({"k": list(range(300)), "v": [k % 7 for k in range(300)]}).result()
        assert sorted(table.select(["k"], "v = 3").rows()) == [(k,) for k in range(3, 300, 7)]
        assert table.update("v = 3", {"v": 4}).result().affected == len(range(3, 300, 7))
        assert table.select(["k"], "v = 3").rows() == []

    assert {name for name in seen if "part" in name} == {"crescando-scan-part-1", "crescando-scan-part-2"}
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if "crescando-scan" in thread.name]


def test_a_cycle_costs_what_it_computes_and_takes_as_long_as_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scanning thread that waits for a core, or for anything, has not worked meanwhile."""
    asleep_s = 0.2
    told: list[Executed] = []
    execute, on_executed = ScanEngine.execute, Storage.on_executed

    def slowly(self: ScanEngine, *arguments: Any) -> Any:
        time.sleep(asleep_s)
        return execute(self, *arguments)

    def note(self: Storage, result: Executed, now_s: float) -> None:
        told.append(result)
        on_executed(self, result, now_s)

    monkeypatch.setattr(ScanEngine, "execute", slowly)
    monkeypatch.setattr(Storage, "on_executed", note)
    with crescando.open(spec=ClusterSpec(storages=1, replication=1)) as store:
        table = store.create_table("t", like={"k": [1]}, primary_key="k")
        assert table.insert({"k": [1, 2]}).result().affected == 2

    cycles = [result for result in told if result.results]
    assert cycles
    for result in cycles:
        assert result.took_s >= asleep_s
        assert 0.0 < result.worked_s <= result.took_s - 0.9 * asleep_s


def test_work_that_helpers_do_counts_as_much_as_it_takes() -> None:
    """Whoever hands tasks over is not done before the longest of them is."""

    def compute(seconds: float) -> None:
        end_s = time.thread_time() + seconds
        while time.thread_time() < end_s:
            sum(range(1_000))

    team = Team(2)
    begin_s, own_s = worked_s(), time.thread_time()
    team.run([lambda: compute(0.01), lambda: compute(0.2)])
    worked, own_s = worked_s() - begin_s, time.thread_time() - own_s
    team.close(10)
    assert 0.19 < worked < 0.3, f"of which {own_s} by itself"
