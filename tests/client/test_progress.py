"""When the leases of what a session works on are renewed."""

from __future__ import annotations

import pytest

from crescando.client import progress
from crescando.client.progress import Progress


class _Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_lease_is_renewed_at_once_and_then_a_few_times_in_its_length(clock: _Clock) -> None:
    done, renewed_s = Progress(), []
    for _ in range(300):
        if done.is_due("load", 9.0):
            renewed_s.append(clock.now_s - 100.0)
        clock.now_s += 0.125

    assert renewed_s == [3.0 * n for n in range(13)]


def test_each_lease_is_renewed_for_itself(clock: _Clock) -> None:
    done = Progress()

    assert [done.is_due(each, 9.0) for each in "abab"] == [True, True, False, False]
    clock.now_s += 3.0
    assert [done.is_due(each, 9.0) for each in "ab"] == [True, True]


def test_what_was_renewed_long_ago_is_forgotten(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "KEPT_MAX", 2)
    done = Progress()
    assert [done.is_due(each, 9.0) for each in (1, 2, 3)] == [True] * 3

    assert [done.is_due(each, 9.0) for each in (2, 3, 1)] == [False, False, True]
