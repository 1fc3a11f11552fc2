"""Ranges move between engines, and no answer, count or digest tells."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from crescando.engine import arcs, holding, pieces
from crescando.engine import segment as segments
from crescando.engine import table as tables
from crescando.engine.kv import pieces as kv_pieces
from crescando.engine.kv import table as kv_tables
from crescando.engine.segment import Segment, Still
from crescando.engine.table import Table
from crescando.errors import InvariantError
from tests.engine.differential import Play, Shares
from tests.engine.evolving import KINDS, Evolving, fleet
from tests.engine.moves import Counted, Moving

N_BATCHES = 30
N_ROUNDS = 45


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what happens to many rows happen to few."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_048)
    monkeypatch.setattr(kv_pieces, "PIECE_BYTES", 16_384)
    monkeypatch.setattr(pieces, "CHUNK_ROWS", 8)
    monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 4)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 64)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MIN", 16)


def play(seed: int, kind: str, n_batches: int = N_BATCHES) -> Counted:
    game = Play(seed, plain=False, others=())
    moving = Moving([game.world.schema], Random(seed), fleet(kind))
    game.layouts.append(moving)
    shares = Shares()
    for _ in range(n_batches):
        game.next_batch(shares, 7)
    game.close()
    return moving.counted


@pytest.mark.parametrize(("chunk", "kind"), [(0, "scan"), (1, "scan"), (0, "mixed")])
@pytest.mark.usefixtures("small")
def test_batches_on_ranges_that_move_equal_the_oracle(chunk: int, kind: str, kernels_in_turn: str) -> None:
    counted = [vars(play(seed, kind)) for seed in range(700_000 + 4 * chunk, 700_004 + 4 * chunk)]
    total = {name: sum(each[name] for each in counted) for name in counted[0]}
    print(f"on kernels of {kernels_in_turn}: {total}")
    assert min(total.values()) >= 4, total


def evolve(seed: int, kind: str, n_rounds: int = N_ROUNDS) -> Evolving:
    world = Evolving(seed, kind)
    for _ in range(n_rounds):
        world.round()
    return world


@pytest.mark.parametrize(("chunk", "kind"), [(1, "scan"), *((0, kind) for kind in KINDS)])
@pytest.mark.usefixtures("small")
def test_tables_that_change_while_they_move_equal_one_that_lies_still(
    chunk: int, kind: str, kernels_in_turn: str
) -> None:
    worlds = [evolve(seed, kind) for seed in range(800_000 + 4 * chunk, 800_004 + 4 * chunk)]
    moved = [vars(world.moving.counted) | world.counts for world in worlds]
    total = {name: sum(each[name] for each in moved) for name in moved[0]}
    print(f"on kernels of {kernels_in_turn}: {total}")
    assert min(total.values()) >= 4, total


Plant = Callable[[pytest.MonkeyPatch], None]


def kill_in_place(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Segment, rows: Any) -> None:
        if self.alive is None:
            self.alive = np.ones(self.capacity, np.bool_)
        self.alive[rows] = False
        self.n_dead += len(rows)

    patch.setattr(Segment, "kill", planted)


def write_in_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "_is_shared", lambda _self, _array: False)


def nulls_in_place(patch: pytest.MonkeyPatch) -> None:
    is_shared = Segment._is_shared

    def planted(self: Segment, array: Any) -> bool:
        return not any(array is bits.packed for bits in self.valid.values()) and is_shared(self, array)

    patch.setattr(Segment, "_is_shared", planted)


def compact_in_place(patch: pytest.MonkeyPatch) -> None:
    def planted(_self: Segment, array: Any, kept: Any) -> Any:
        array[: len(kept)] = array[kept]
        return array

    patch.setattr(Segment, "_compacted", planted)


def recode_in_place(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Segment, column_id: int, codes: Any, _dtype: Any) -> None:
        array = self.data[column_id]
        array[: self.n_rows] = codes[array[: self.n_rows]]

    patch.setattr(Segment, "recode", planted)


def no_still(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "still", lambda self: self)
    patch.setattr(Segment, "close", lambda _self: None, raising=False)
    patch.setattr(Segment, "array_bytes", lambda _self: {}, raising=False)


def hidden_key_forgotten(patch: pytest.MonkeyPatch) -> None:
    gather = pieces.gather

    def planted(column_id: int, *rest: Any) -> Any:
        values, valid = gather(column_id, *rest)
        return (np.zeros_like(values) if column_id == tables.HIDDEN_ORDINAL else values), valid

    patch.setattr(pieces, "gather", planted)


def collection_beside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Table, "shares_pools", False)


def own_pools(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tables, "_pool", lambda _id, kind, _kin: tables.new_pool(kind))


def stale_arc(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Table, segment: Segment, arc: int) -> None:
        self.segments[arc].append(segment)

    patch.setattr(Table, "_place", planted)


def border_twice(patch: pytest.MonkeyPatch) -> None:
    def planted(position: Any, scope: Any) -> Any:
        return arcs.lie_in(position, tuple((low, min(high + 1, (1 << 64) - 1)) for low, high in scope))

    patch.setattr(segments, "lie_in", planted)


def border_nowhere(patch: pytest.MonkeyPatch) -> None:
    def planted(position: Any, cuts: Any) -> Any:
        found = arcs.arc_of(position, cuts)
        highs = np.array([arc.high for arc in cuts], np.uint64)
        found[np.isin(position, highs) & (position < (1 << 64) - 1)] = -1
        return found

    patch.setattr(holding, "arc_of", planted)


def dead_rows_live(patch: pytest.MonkeyPatch) -> None:
    init = Still.__init__

    def planted(self: Still, segment: Segment) -> None:
        init(self, segment)
        self.n_dead = 0

    patch.setattr(Still, "__init__", planted)


def nulls_forgotten(patch: pytest.MonkeyPatch) -> None:
    take_over = Segment.take_over

    def planted(self: Segment, other: Segment, rows: Any) -> int:
        valid, other.valid = other.valid, {}
        count = take_over(self, other, rows)
        other.valid = valid
        return count

    patch.setattr(Segment, "take_over", planted)


def adopted_twice(patch: pytest.MonkeyPatch) -> None:
    adopt = Table.adopt

    def planted(self: Table, other: Table) -> None:
        lists = [list(each) for each in other.segments]
        adopt(self, other)
        for each, more in zip(self.segments, [[]] * (len(self.segments) - 1) + lists[-1:], strict=False):
            each += more

    patch.setattr(Table, "adopt", planted)


def values_changed_in_place(patch: pytest.MonkeyPatch) -> None:
    def planted(values: Any, new: Any) -> Any:
        for place, value in new:
            values[place] = value
        return values

    patch.setattr(kv_tables, "_replaced", planted)


def rows_stay(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, cuts: Any) -> None:
        self._arcs, self._lows = cuts, [arc.low for arc in cuts]

    patch.setattr(kv_tables.KvTable, "set_arcs", planted)


PLANTS: tuple[tuple[Plant, str], ...] = (
    (kill_in_place, "scan"),
    (write_in_place, "scan"),
    (nulls_in_place, "scan"),
    (compact_in_place, "scan"),
    (recode_in_place, "scan"),
    (no_still, "scan"),
    (hidden_key_forgotten, "scan"),
    (collection_beside, "scan"),
    (own_pools, "scan"),
    (stale_arc, "scan"),
    (border_twice, "scan"),
    (border_nowhere, "scan"),
    (dead_rows_live, "scan"),
    (nulls_forgotten, "scan"),
    (adopted_twice, "scan"),
    (values_changed_in_place, "kv"),
    (rows_stay, "kv"),
)


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=[f"{p.__name__}-{kind}" for p, kind in PLANTS])
@pytest.mark.usefixtures("small")
def test_a_planted_fault_is_found(plant: Plant, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, InvariantError, IndexError, ValueError)) as found:
        evolve_some(kind)
    print(f"{type(found.value).__name__}: {str(found.value)[:200]}", *found.value.__notes__)


def evolve_some(kind: str) -> None:
    for seed in range(900_004, 900_016):
        evolve(seed, kind, 40)
