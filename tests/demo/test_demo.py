"""The demo finds nothing wrong with a right store, and every planted fault in a wrong one."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from crescando.demo import story
from crescando.demo.flights import load_flights
from crescando.demo.progress import Silence
from crescando.demo.report import Report
from crescando.demo.story import Plan, run
from tests.demo.fake import FakeStore, Faults

PLAN = Plan(seed=7, operations=1_500, agents=4, rows=4_000)


_flights = cache(load_flights)


@pytest.fixture(autouse=True)
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "load_flights", _flights)


def run_against(faults: Faults, plan: Plan = PLAN) -> Report:
    """Run the demo against the stand-in."""

    def opener(**_: Any) -> FakeStore:
        return FakeStore(faults, plan.operations)

    return run(plan, Silence(), opener)


def test_right_store_passes() -> None:
    report = run_against(Faults())

    assert report.failures() == ()
    assert report.verdict.told == []
    assert report.verdict.n_checked == 1_500
    assert report.verdict.n_replicas == 9
    assert len(report.kills) == 2


def test_reads_that_lost_their_owner_are_asked_again() -> None:
    faults = Faults(reads_lost=40)

    report = run_against(faults)

    assert report.failures() == ()
    assert faults.done.count("reads_lost") == 40
    assert sum(record.n_attempts - 1 for record in report.records) == 40


def test_a_ring_that_nobody_tells_of_while_a_leader_is_chosen_is_asked_for_again() -> None:
    faults = Faults(ring_untold=2)

    report = run_against(faults)

    assert report.failures() == ()
    assert faults.done.count("ring_untold") == 2
    assert [kill.what for kill in report.kills] == ["lead router", "storage process"]


PLANTED = {
    "an acknowledged update is lost": (Faults(lost_updates=1), "writes lost"),
    "an acknowledged insert is lost": (Faults(lost_inserts=1), "writes lost"),
    "an answer lacks a row": (Faults(torn_answers=1), "answers differ"),
    "a count is wrong": (Faults(wrong_counts=1), "answers differ"),
    "two operations share a position": (Faults(doubled_positions=1), "out of order"),
    "a write is below the one before it": (Faults(swapped_positions=1), "out of order"),
    "a read is below the one before it": (Faults(swapped_reads=1), "out of order"),
    "an outcome is not told": (Faults(no_outcome=1), "no known outcome"),
    "a read is lost for ever": (Faults(reads_lost=10**9), "no known outcome"),
    "a replica lacks a row": (Faults(stale_replicas=1), "replicas differ"),
    "a replica has a wrong value": (Faults(changed_replicas=1), "replicas differ"),
    "every replica lacks a row": (Faults(all_replicas_lack=1), "writes lost"),
    "a range has too few owners": (Faults(missing_owners=1), "lack replicas"),
    "a part of the ring has no owner": (Faults(hole_in_ring=True), "lack replicas"),
    "a dead process is named as an owner": (Faults(dead_are_named=True), "dead processes answer"),
    "a dead process answers": (Faults(dead_answer=True), "dead processes answer"),
    "hardly anything shares a scan": (Faults(per_scan=49), "shared a scan"),
    "hardly anything is in flight": (Faults(in_flight=24), "processes were killed"),
}


@pytest.mark.parametrize(("faults", "told"), PLANTED.values(), ids=PLANTED.keys())
def test_planted_fault_is_found(faults: Faults, told: str) -> None:
    report = run_against(replace(faults, done=[]))

    assert any(told in failure for failure in report.failures()), report.failures()


def test_lost_write_is_counted_and_named() -> None:
    report = run_against(Faults(lost_inserts=2))

    assert 1 <= report.verdict.writes_lost <= 2
    assert any(told.startswith("replica: all replicas together") for told in report.verdict.told)


def test_json_has_the_promised_keys() -> None:
    told = json.loads(run_against(Faults()).to_json())

    assert told["rows"] == 4_000
    assert told["operations"] == 1_500
    assert told["killed"] == 2
    assert told["in_flight_at_kill"] >= 100
    assert told["operations_per_scan"] == 64
    assert told["writes_lost"] == 0
    assert told["answers_differ"] == 0
    assert told["digests_equal"] is True
    assert told["throughput_ops_s"] > 0
    assert 0 < told["p50_ms"] <= told["p99_ms"]
