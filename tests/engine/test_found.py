"""Matches that a scan keeps for the replay: as many as there is room for, with the same outcome."""

from __future__ import annotations

from typing import Any

import pytest

from crescando.engine import found, order
from crescando.engine.found import Found
from tests.engine.differential import Play, Shares

pytestmark = pytest.mark.differential


def play(first: int, n_seeds: int) -> None:
    shares = Shares()
    for seed in range(first, first + n_seeds):
        game = Play(seed, plain=seed % 2 == 0, others=(1,))
        for _ in range(6):
            game.next_batch(shares, 9)
        game.close()


@pytest.mark.parametrize("room", [0, 3, 40])
def test_no_room_and_little_room_equal_the_oracle(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "PAIRS_KEPT", room)
    play(820_000, 8)


def test_small_windows_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "WINDOW_PAIRS", 3)
    play(821_000, 8)


def test_matches_are_kept_and_a_lost_one_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    put, kept = Found._put, []

    def planted(self: Any, index: int, matched: Any) -> None:
        kept.append(len(matched.rows))
        put(self, index, matched.pick(slice(1, None)))

    monkeypatch.setattr(Found, "_put", planted)
    with pytest.raises(AssertionError):
        play(822_000, 20)
    assert kept
