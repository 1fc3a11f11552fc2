"""Random batches with every threshold turned down: what large tables meet, small ones meet here.

Buffers that fill, windows that close, indices that change their form and parts
of a pass depend on sizes that no small test reaches. Each seed draws other
values for all of them, one engine of the layout scans in several threads, and
the answers are the oracle's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from crescando.engine import (
    aggregate,
    computed,
    cutting,
    cycle,
    dictionary,
    evaluator,
    grouping,
    holding,
    index,
    join,
    match,
    order,
    parallel,
    rowset,
    sampling,
    scan,
    streaks,
    table,
    terms,
)
from crescando.engine.parallel import Workers
from crescando.engine.scan import ScanEngine
from crescando.scanning import Team
from tests.engine import differential
from tests.engine.differential import Play, Shares

pytestmark = pytest.mark.differential

SEEDS = 24
BATCHES = 6

THRESHOLDS: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (cycle, "PART_LOOKS_MIN", (1,)),
    (index, "PIECE_PAIRS", (1, 7, 1 << 18)),
    (match, "PIECE_PAIRS", (1, 7, 1 << 18)),
    (computed, "PIECE_PAIRS", (1, 7, 1 << 18)),
    (index, "FEW", (0, 1, 4)),
    (join, "_ROWS_PER_KEY", (0, 256)),
    (index, "_COVER_MAX", (1, 8)),
    (index, "_COVER_MIN", (1, 4, 1 << 16)),
    (index, "_SPREAD_MAX", (1, 64, 1 << 21)),
    (match, "_CROSS_ROWS_MAX", (0, 3, 512)),
    (match, "_SAMPLE_OPERATIONS", (1, 64)),
    (order, "WINDOW_PAIRS", (1, 9, 1 << 18)),
    (order, "WINDOW_OPERATIONS", (1, 3, 2048)),
    (order, "PAIRS_MAX", (1, 20, 1 << 22)),
    (rowset, "_PENDING_MIN", (0, 3, 1 << 14)),
    (parallel, "VALUES_MIN", (1, 50, 1 << 16)),
    (cutting, "PIECE_BYTES", (1, 2_000, 8 << 20)),
    (grouping, "_PENDING_MIN", (0, 3, 1 << 16)),
    (aggregate, "_PENDING_MIN", (0, 3, 1 << 16)),
    (aggregate, "_ROWS_EXACT", (1, 5, 1 << 20)),
    (holding, "SEGMENT_ROWS_MIN", (1, 16, 256)),
    (table, "POOL_TEXTS_MIN", (1, 4, 4096)),
    (streaks, "_LONG", (1, 2, 4)),
    (evaluator, "ROWS_MIN", (1, 1 << 15)),
    (terms, "ROWS_MIN", (1, 1 << 15)),
    (evaluator, "OPERATORS_MIN", (1, 3)),
    (dictionary, "DECODED_MAX", (0, 3, 4096)),
    (sampling, "SAMPLE_ROWS", (1, 1024)),
    (computed, "VARIANTS_MAX", (0, 1, 16)),
    (scan, "_PLANS_MAX", (1, 4096)),
)


@pytest.fixture
def team() -> Iterator[Team]:
    """Three threads that give way to each other all the time."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    helpers = Team(3)
    yield helpers
    helpers.close(10.0)
    sys.setswitchinterval(interval_s)


def turn_down(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a value for each threshold; the same name has one value in all modules."""
    drawn: dict[str, int] = {}
    random = Random(f"thresholds {seed}")
    for module, name, values in THRESHOLDS:
        value = drawn.setdefault(name + module.__name__ * name.startswith("_"), random.choice(values))
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_batches_equal_the_oracle_whatever_the_thresholds(
    seed: int, monkeypatch: pytest.MonkeyPatch, team: Team
) -> None:
    class Threaded(ScanEngine):
        def __init__(self, block_rows: int | None = None, workers: Workers = team) -> None:
            super().__init__(block_rows, team)

    monkeypatch.setattr(differential, "ScanEngine", Threaded)
    turn_down(seed, monkeypatch)
    game = Play(seed, plain=seed % 3 == 0, others=(1 + seed % 3,))
    for _ in range(BATCHES):
        game.next_batch(Shares(), 9 if seed % 4 else 40)
    game.close()


def test_a_window_that_forgets_what_it_closed_over_is_found(
    monkeypatch: pytest.MonkeyPatch, team: Team
) -> None:
    """Planted: what the checker is for. Without small thresholds no batch of these tests meets it."""
    cut = rowset.TopRows._cut

    def forgetful(self: rowset.TopRows) -> None:
        cut(self)
        if self._n_pending > 1 and rowset._PENDING_MIN < 3:
            self._pieces = [self._pieces[0].keep(self._pieces[0].operations >= 0)]
            self._limits = self._limits - 1

    monkeypatch.setattr(rowset.TopRows, "_cut", forgetful)
    n_found = 0
    for seed in range(SEEDS):
        with monkeypatch.context() as patch:
            try:
                test_batches_equal_the_oracle_whatever_the_thresholds(seed, patch, team)
            except AssertionError:
                n_found += 1
                break
    assert n_found
