"""Random batches on every layout of engines equal the oracle and SQLite, after every batch.

Each seed is one table. All seeds run on the oracle and on one engine with blocks
of 64 rows; half of them on a second layout as well: alone, one operation per
batch, on two engines, or on four, in turn. Every other one also runs on SQLite.
What the second layouts cost is more than all the rest of it; `make
soak-differential` runs each of them on every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from crescando.engine import (
    aggregate,
    decimals,
    events,
    grouping,
    images,
    incoming,
    join,
    keys,
    match,
    order,
    returning,
    rowset,
    scan,
    terms,
)
from crescando.engine.dictionary import Pool
from crescando.engine.frame import Frame
from crescando.engine.group import Coverage
from crescando.engine.operations import singles
from crescando.engine.segment import Block
from crescando.engine.statement import Apply, Kind
from crescando.engine.values import Value
from tests.engine.differential import Play, Shares

pytestmark = pytest.mark.differential

CHUNKS = 40
SEEDS_PER_CHUNK = 20
BATCHES_PER_SEED = 25
"""40 x 20 x 25 = 20,000 batches."""

BATCH_SIZE = 9


def play(seed: int, shares: Shares, others: Sequence[int], n_batches: int = BATCHES_PER_SEED) -> None:
    game = Play(seed, plain=seed // 3 % 2 == 0, others=others)
    for _ in range(n_batches):
        game.next_batch(shares, BATCH_SIZE)
    game.close()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_batches_equal_the_oracle_and_sqlite(chunk: int, kernels_in_turn: str) -> None:
    shares = Shares()
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        # Six seeds in a row are each layout with and without SQLite.
        play(seed, shares, (1 + seed % 3,) if seed // 6 % 2 == 0 else ())
    print(f"on kernels of {kernels_in_turn}", shares, sep="\n")
    shares.check()


def test_all_layouts_give_the_same_answers_to_the_same_batches() -> None:
    shares = Shares()
    for seed in range(100_000, 100_012):
        play(seed, shares, (1, 2, 3))


Plant = Callable[[pytest.MonkeyPatch], None]


def writes_before_reads(patch: pytest.MonkeyPatch) -> None:
    execute = scan.ScanEngine.execute

    def planted(self: Any, operations: Any) -> Any:
        return execute(self, sorted(singles(operations), key=lambda o: o.shape.kind is Kind.READ))

    patch.setattr(scan.ScanEngine, "execute", planted)


def null_equals_null(patch: pytest.MonkeyPatch) -> None:
    compare = terms._STRICT["="]

    def planted(term: Apply, values: list[Value]) -> Value:
        result = compare(term, values)
        if values[0].valid is not None and values[1].valid is not None:
            both = ~values[0].valid & ~values[1].valid
            valid = np.ones(1, np.bool_) if result.valid is None else result.valid
            return Value(result.type, result.data | both, valid | both, result.error)
        return result

    patch.setitem(terms._STRICT, "=", planted)


def trailing_nul_ignored(patch: pytest.MonkeyPatch) -> None:
    intern = Pool.intern
    zeros: dict[type, Any] = {str: "\0", bytes: b"\0"}
    patch.setattr(Pool, "intern", lambda self, texts: intern(self, (t.rstrip(zeros[type(t)]) for t in texts)))


def duplicate_keys_born_twice(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any) -> Any:
        return np.arange(len(self.arc)), np.arange(len(self.arc))

    patch.setattr(incoming.KeySlots, "_number", planted)


def errors_are_false(patch: pytest.MonkeyPatch) -> None:
    split = terms.matches
    patch.setattr(match, "matches", lambda value, n_rows: (split(value, n_rows)[0], None))


def nan_is_lowest(patch: pytest.MonkeyPatch) -> None:
    original = keys.float_keys

    def planted(values: Any) -> Any:
        found = original(values)
        found[np.isnan(values)] = keys.KEY_MIN + 1
        return found

    patch.setattr(keys, "float_keys", planted)


def integers_compared_as_floats(patch: pytest.MonkeyPatch) -> None:
    def planted(whole: Any, real: Any, scale: int) -> Any:
        return np.sign(whole / 10.0**scale - real).astype(np.int8)

    patch.setattr(keys, "compare_floats", planted)


def matches_never_looked_up_again(patch: pytest.MonkeyPatch) -> None:
    nothing = events.NOTHING
    patch.setattr(order.Replay, "_look_up_again", lambda self, *arguments: (nothing, nothing))


def text_ranks_stale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(join.Join, "_count_texts", lambda self: [])


def tombstones_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Block, "live", lambda self: None)


def scopes_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coverage, "visible", lambda self, *arguments: None)
    patch.setattr(Coverage, "skipped", lambda self, arc: None)


def upper_bounds_excluded(patch: pytest.MonkeyPatch) -> None:
    bounds = join.key_intervals

    def planted(is_float: bool, op: str, *constants: Any) -> Any:
        return bounds(is_float, "<" if op == "<=" else op, *constants)

    patch.setattr(join, "key_intervals", planted)


def unknown_is_false(patch: pytest.MonkeyPatch) -> None:
    junction = terms._junction

    def planted(arguments: Any, frame: Frame, *, dominant: bool) -> Value:
        value = junction(arguments, frame, dominant=dominant)
        return Value(value.type, value.data, None, value.error)

    patch.setattr(terms, "_junction", planted)


def scales_ignored(patch: pytest.MonkeyPatch) -> None:
    def located(units: Any, scale: int, target: int) -> Any:
        none = np.zeros(units.shape, np.bool_)
        return units.astype(np.int64), none, none

    def compared(left: Any, right: Any, left_scale: int, right_scale: int) -> Any:
        return np.sign(left.astype(np.int64) - right).astype(np.int8)

    patch.setattr(keys, "grow_to", located)
    patch.setattr(keys, "compare_units", compared)


def decimals_overflow_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decimals, "beyond", lambda units, target: np.zeros(units.shape, np.bool_))


def null_group_lost(patch: pytest.MonkeyPatch) -> None:
    words = grouping.words

    def planted(value: Value) -> Any:
        return words(Value(value.type, value.data, None, value.error, value.pool))

    patch.setattr(grouping, "words", planted)


def ties_cut_anyhow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rowset.TopRows, "_roughly", lambda self, operations, key: np.arange(len(operations))[::2])


def nulls_last_ascending(patch: pytest.MonkeyPatch) -> None:
    sort_keys = rowset.sort_keys

    def planted(value: Value, *, is_descending: bool) -> Any:
        found = sort_keys(value, is_descending=is_descending)
        return [~found[0], *found[1:]] if len(found) > 1 else found

    patch.setattr(rowset, "sort_keys", planted)


def first_rows_pruned_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rowset, "_PENDING_MIN", 0)
    patch.setattr(rowset.TopRows, "_note_worst", _note_best)


def _note_best(self: Any, operations: Any, key: Value) -> None:
    counts = np.bincount(operations, minlength=len(self._limits))
    self._is_full = counts > 0
    self._worst = key.take(np.minimum(np.cumsum(counts) - counts, max(len(operations) - 1, 0)))


def after_image_told_as_before(patch: pytest.MonkeyPatch) -> None:
    look = returning.ReturnedRows.look

    def planted(self: Any, source: Any, rows: Any, exists: Any, *, is_before: bool) -> Any:
        if is_before:
            self._late = exists
            return {}
        return look(self, source, rows, self._late, is_before=True) | look(
            self, source, rows, exists, is_before=False
        )

    patch.setattr(returning.ReturnedRows, "look", planted)


def distinct_values_counted_per_piece(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aggregate, "factorise", lambda columns: (np.arange(len(columns[0])),) * 2)


def pruned_by_a_column_updated_earlier(patch: pytest.MonkeyPatch) -> None:
    begin = order.Replay.__init__

    def planted(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        groups = self._groups
        updated = {c for group in groups if not group.plan.gives_rows for c in group.plan.assigned}
        for place, group in enumerate(groups):
            # What the stored value of an indexed column excludes is never looked at again.
            if any(access.column in updated for access in group.plan.accesses):
                self._is_dynamic[place] = False

    patch.setattr(order.Replay, "__init__", planted)


def tombstone_reused_under_an_older_read(patch: pytest.MonkeyPatch) -> None:
    def add(self: Any, n_rows: int, column: Any) -> int:
        first = self.n_rows
        self._late = [*getattr(self, "_late", []), column]
        self.n_rows += n_rows
        return int(first)

    patch.setattr(images.Snapshots, "add", add)
    # Read when the batch is over: whatever has taken the row's place by then.
    patch.setattr(
        images.Snapshots, "column", lambda self, column_id: self._join([c(column_id) for c in self._late])
    )


# Some bugs show only where rare things meet; their search begins where they do.
PLANTS: list[tuple[Plant, int, tuple[int, ...]]] = [
    (writes_before_reads, 0, ()),
    (null_equals_null, 0, ()),
    (trailing_nul_ignored, 0, ()),
    (duplicate_keys_born_twice, 0, ()),
    (errors_are_false, 0, ()),
    (nan_is_lowest, 10, ()),
    (integers_compared_as_floats, 50, ()),
    (matches_never_looked_up_again, 0, ()),
    (pruned_by_a_column_updated_earlier, 0, ()),
    (tombstone_reused_under_an_older_read, 0, ()),
    (text_ranks_stale, 70, ()),
    (tombstones_seen, 0, ()),
    (scopes_ignored, 0, (2,)),
    (upper_bounds_excluded, 0, ()),
    (unknown_is_false, 0, ()),
    (scales_ignored, 0, ()),
    (decimals_overflow_unnoticed, 0, ()),
    (null_group_lost, 0, ()),
    (ties_cut_anyhow, 0, ()),
    (nulls_last_ascending, 100, ()),
    (first_rows_pruned_too_early, 0, ()),
    (after_image_told_as_before, 0, ()),
    (distinct_values_counted_per_piece, 0, ()),
]


@pytest.mark.parametrize(("plant", "first", "others"), PLANTS, ids=[plant.__name__ for plant, _, _ in PLANTS])
def test_a_planted_bug_is_found(
    plant: Plant, first: int, others: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(200_000 + first, 200_040 + first):
        try:
            play(seed, Shares(), others, 8)
        except AssertionError:  # Anything else is a plant that no longer fits what it is planted in.
            return
    pytest.fail("the checker found nothing")
