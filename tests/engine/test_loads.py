"""Loads are hidden until one place of the order, and equal to their rows one by one from there on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.engine import holding, pieces, records, showing, staging
from crescando.engine import table as tables
from crescando.engine.holding import Holding
from crescando.engine.kv import KvEngine
from crescando.engine.kv import loads as kv_loads
from crescando.engine.kv import pieces as kv_pieces
from crescando.engine.loads import Begin, LoadCount, LoadRule, LoadWrite
from crescando.engine.scan import ScanEngine
from crescando.engine.segment import Segment
from crescando.engine.table import Hidden, Table
from crescando.errors import InvariantError
from tests.engine import test_loads_steps as steps
from tests.engine.evolving import KINDS
from tests.engine.loading import load

N_ROUNDS = 30

ENGINES: dict[str, Callable[[], Any]] = {"scan": lambda: ScanEngine(64), "kv": KvEngine}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what happens to many rows happen to few."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_048)
    monkeypatch.setattr(kv_pieces, "PIECE_BYTES", 16_384)
    monkeypatch.setattr(pieces, "CHUNK_ROWS", 8)
    monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 4)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 64)
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MIN", 16)
    monkeypatch.setattr(holding, "SMALL_ROWS", 24)


@pytest.mark.parametrize(("chunk", "kind"), [(1, "scan"), *((0, kind) for kind in KINDS)])
@pytest.mark.usefixtures("small")
def test_loads_among_operations_and_moves_equal_their_rows_one_by_one(
    chunk: int, kind: str, kernels_in_turn: str
) -> None:
    done: Counter[str] = Counter()
    for seed in range(4_000 + 3 * chunk, 4_003 + 3 * chunk):
        world = load(seed, kind, N_ROUNDS)
        done += world.done + Counter(vars(world.moving.counted))
    print(f"on kernels of {kernels_in_turn}: {sorted(done.items())}")
    often = ("Commit", "Publish", "Seal", "Abort", "repeated chunks", "adopted")
    assert min(done[name] for name in often) >= 2, done
    rows = ("INSERTED", "REPLACED", "KEPT", "UPDATED", "DELETED", "MISSING")
    assert min(done[f"{name} rows"] for name in rows) >= 1, done
    refused = ("STAGED rejected", "CLASHING rejected", "DUPLICATE rejected", "reserved rows told")
    assert min(done[name] for name in refused) >= 1, done


Plant = Callable[[pytest.MonkeyPatch], None]


def visible_before_commit(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Table) -> Any:
        yield from Holding.all_segments(self)
        for hidden in self.hidden.values():
            yield from (each for each in hidden.all_segments() if self.types.keys() <= each.data.keys())

    patch.setattr(Table, "all_segments", planted)
    patch.setattr(Table, "n_stored", property(lambda self: sum(each.n_rows for each in self.all_segments())))


def losers_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(staging, "drop_losers", lambda _hidden, _winners: None)


def first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    column = showing._Staged.column

    def planted(self: Any, column_id: int) -> Any:
        found = column(self, column_id)
        if column_id in (tables.STAGED_PART, tables.STAGED_ROW):
            found.data = np.zeros_like(found.data)
        return found

    patch.setattr(showing._Staged, "column", planted)


def nothing_is_reserved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Table, "reserved_blocks", lambda _self: ())


def loads_ignore_reservations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(showing, "_reserved", lambda _table, _index: np.zeros(0, np.int64))


def rows_lost_in_a_move(patch: pytest.MonkeyPatch) -> None:
    hang_over = Hidden.hang_over

    def planted(self: Hidden, other: Hidden) -> None:
        other.segments = [[] for _ in other.segments]
        hang_over(self, other)

    patch.setattr(Hidden, "hang_over", planted)


def seal_lost_in_a_move(patch: pytest.MonkeyPatch) -> None:
    take = staging.Loads.take

    def planted(self: staging.Loads, records: Any) -> None:
        take(self, records)
        for table in self._tables.values():
            for hidden in table.hidden.values():
                hidden.is_sealed = False

    patch.setattr(staging.Loads, "take", planted)


def rows_stay_behind(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Hidden, arcs: Any) -> None:
        kept = [each for segments in self.segments for each in segments][: 1 if arcs else 0]
        Holding.set_arcs(self, arcs)
        if arcs and not any(self.segments):
            for each in kept:
                self._place(each, 0)

    patch.setattr(Hidden, "set_arcs", planted)


def overwritten_by_nothing(patch: pytest.MonkeyPatch) -> None:
    show = showing.show

    def planted(table: Table, hidden: Hidden, begin: Begin, shares: Any) -> None:
        if begin.write is LoadWrite.OVERWRITE:
            hidden.segments = [[] for _ in hidden.segments]
        show(table, hidden, begin, shares)

    patch.setattr(staging, "show", planted)


def overwritten_in_part(patch: pytest.MonkeyPatch) -> None:
    show = showing.show

    def planted(table: Table, hidden: Hidden, begin: Begin, shares: Any) -> None:
        last = [list(segments[-1:]) for segments in table.segments]
        show(table, hidden, begin, shares)
        if begin.write is LoadWrite.OVERWRITE:
            table.segments = [[*old, *new] for old, new in zip(last, table.segments, strict=True)]

    patch.setattr(staging, "show", planted)


def committed_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records.Records, "check_new", lambda *_: None)


def texts_of_hidden_rows_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Table, "_every_segment", Holding.all_segments)


def repeated_chunks_doubled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hidden, "knows", lambda _self, _part, row, _positions: np.zeros(len(row), np.bool_))


def kept_is_replaced(patch: pytest.MonkeyPatch) -> None:
    show = showing.show

    def planted(table: Table, hidden: Hidden, begin: Begin, shares: Any) -> None:
        show(table, hidden, msgspec.structs.replace(begin, rule=LoadRule.REPLACE), shares)

    patch.setattr(staging, "show", planted)


def stale_image(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "_is_shared", lambda _self, _array: False)


def kv_reserves_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kv_loads.KvLoads, "_reserve", lambda _self: None)


def kv_loses_rows_in_a_move(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kv_loads.KvLoads, "pieces", lambda _self, _scope: [])


PLANTS: tuple[tuple[Plant, str], ...] = (
    (visible_before_commit, "scan"),
    (losers_are_shown, "scan"),
    (first_come_first_served, "scan"),
    (nothing_is_reserved, "scan"),
    (loads_ignore_reservations, "scan"),
    (rows_lost_in_a_move, "scan"),
    (seal_lost_in_a_move, "scan"),
    (rows_stay_behind, "scan"),
    (overwritten_by_nothing, "scan"),
    (overwritten_in_part, "scan"),
    (committed_twice, "scan"),
    (texts_of_hidden_rows_forgotten, "scan"),
    (repeated_chunks_doubled, "scan"),
    (kept_is_replaced, "scan"),
    (stale_image, "scan"),
    (kv_reserves_nothing, "kv"),
    (kv_loses_rows_in_a_move, "kv"),
)


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=[f"{p.__name__}-{kind}" for p, kind in PLANTS])
@pytest.mark.usefixtures("small")
def test_a_planted_fault_is_found(plant: Plant, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, InvariantError)) as found:
        load_some(kind)
    print(f"{type(found.value).__name__}: {str(found.value)[:200]}", *getattr(found.value, "__notes__", ()))


CHECKS: tuple[Callable[[str], None], ...] = (
    steps.test_nothing_shows_before_the_commit_and_everything_after_it,
    steps.test_what_is_sealed_cannot_be_born_elsewhere_until_the_load_ends,
    steps.test_a_chunk_that_comes_twice_is_kept_once_and_told_twice,
    steps.test_a_step_at_the_wrong_time_says_so,
    lambda kind: steps.test_of_keys_that_come_twice_the_places_decide_and_not_the_arrival(
        kind,
        LoadWrite.INSERT,
        LoadRule.KEEP,
        {LoadCount.INSERTED: 1, LoadCount.KEPT: 3},
        ["0 b", "1 c"],
    ),
    lambda kind: steps.test_a_range_takes_its_staged_rows_its_seals_and_the_records_along(kind, kind),
)
"""What finds most faults at once; the others take some luck."""


def load_some(kind: str) -> None:
    for check in CHECKS:
        check(kind)
    for seed in range(5_000, 5_030):
        load(seed, kind, 27)
