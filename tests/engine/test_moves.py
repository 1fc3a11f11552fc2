"""Ranges move between engines, and no answer, count or digest tells."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from crescando.engine import pieces
from crescando.engine import table as tables
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from tests.engine.differential import Play, Shares
from tests.engine.moves import Counted, Moving

N_BATCHES = 30

MAKERS: dict[str, Callable[[], Any]] = {"scan": lambda: ScanEngine(64), "kv": KvEngine}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what happens to many rows happen to few."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_048)
    monkeypatch.setattr(pieces, "CHUNK_ROWS", 8)
    monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 4)
    monkeypatch.setattr(tables, "SEGMENT_ROWS_MAX", 64)
    monkeypatch.setattr(tables, "SEGMENT_ROWS_MIN", 16)


def play(seed: int, kind: str, n_batches: int = N_BATCHES) -> Counted:
    game = Play(seed, plain=False, others=())
    moving = Moving(game.world.schema, Random(seed), [MAKERS[kind]() for _ in range(3)])
    game.layouts.append(moving)
    shares = Shares()
    for _ in range(n_batches):
        game.next_batch(shares, 7)
    game.close()
    return moving.counted


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("chunk", range(2))
@pytest.mark.usefixtures("small")
def test_batches_on_ranges_that_move_equal_the_oracle(chunk: int, kind: str, kernels_in_turn: str) -> None:
    counted = [vars(play(seed, kind)) for seed in range(700_000 + 6 * chunk, 700_006 + 6 * chunk)]
    total = {name: sum(each[name] for each in counted) for name in counted[0]}
    print(f"on kernels of {kernels_in_turn}: {total}")
    assert min(total.values()) >= 6, total
