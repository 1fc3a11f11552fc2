"""Ring ranges of predicates: never too narrow, disjoint, ascending, few."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine import partition
from crescando.engine.partition import position_of
from crescando.engine.ranges import (
    RANGES_MAX,
    intersect,
    key_constant,
    key_ranges,
    merge_neighbours,
    ranges_of_positions,
    unite,
)
from crescando.engine.statement import Apply, Column, ColumnRef, Operation, Parameter
from crescando.schema import ColumnDef, DataType, HashPartition, RangePartition, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.generator import World
from tests.engine.oracle import Err, Oracle, inside
from tests.engine.workbench import CLIENT, apply, par, table

INT64, FLOAT64, STRING = DataType.INT64, DataType.FLOAT64, DataType.STRING
KEY = ColumnRef(0, INT64)


def test_every_row_that_matches_or_errs_lies_in_the_ranges() -> None:
    narrow = sum(check_seed(seed) for seed in range(50))
    assert narrow > 400


def check_seed(seed: int) -> int:
    """Play one random table; gives how many predicates touched less than the whole ring."""
    world = World(Random(seed), plain=False)
    oracle = Oracle(world.schema)
    statements = [world.refill(0)]
    narrow = 0
    for _ in range(10):
        for shape, parameters in statements:
            if shape.where is not None:
                ranges = key_ranges(world.schema, shape.where, parameters)
                check_form(ranges)
                narrow += ranges != (FULL_RING,)
                program = oracle.program(shape.where)
                for row in oracle.rows:
                    truth = program(row.values, parameters)
                    if truth is True or type(truth) is Err:
                        where = seed, shape.where, parameters, row
                        assert any(inside(row.position, r) for r in ranges), where
            oracle.execute(Operation(1, CLIENT, 1, shape, parameters, (FULL_RING,)))
        world.present = sorted({world.key_number(row.values[0]) for row in oracle.rows})
        statements = world.batch(8)
    return narrow


def check_form(ranges: tuple[KeyRange, ...]) -> None:
    assert 1 <= len(ranges) <= RANGES_MAX
    for key_range in ranges:
        assert 0 <= key_range.low <= key_range.high <= RING_MAX
    for left, right in pairwise(ranges):
        assert left.high < right.low


def test_equality_on_a_hashed_key_is_one_position() -> None:
    schema = table(partition=HashPartition(3))
    at = position_of(schema, 17)
    assert key_ranges(schema, apply("=", KEY, par(0, INT64)), (17,)) == (KeyRange(at, at),)
    assert key_ranges(schema, apply("=", par(0, INT64), KEY), (17,)) == (KeyRange(at, at),)
    assert key_ranges(schema, apply("=", KEY, par(0, FLOAT64)), (17.0,)) == (KeyRange(at, at),)


def test_comparisons_on_a_hashed_key_touch_everything() -> None:
    schema = table(partition=HashPartition(3))
    assert key_ranges(schema, apply("<", KEY, par(0, INT64)), (17,)) == (FULL_RING,)
    assert key_ranges(schema, None, ()) == (FULL_RING,)


def test_and_intersects_and_or_unites() -> None:
    schema = table(partition=RangePartition(0, 1_000))
    low, high = apply(">=", KEY, par(0, INT64)), apply("<", KEY, par(1, INT64))
    both = key_ranges(schema, apply("and", low, high), (200, 300))
    assert both == (KeyRange(position_of(schema, 200), position_of(schema, 300)),)
    either = key_ranges(schema, apply("or", high, low), (800, 100))
    assert either == (KeyRange(0, position_of(schema, 100)), KeyRange(position_of(schema, 800), RING_MAX))
    assert key_ranges(schema, apply("or", high, apply("is_null", KEY)), (800, 100)) == (FULL_RING,)


@pytest.mark.parametrize("constant", [None, 2.5, float("nan"), float("inf"), 1e30])
def test_a_constant_that_no_key_equals_touches_one_position(constant: float | None) -> None:
    found = key_ranges(table(), apply("=", KEY, par(0, FLOAT64)), (constant,))
    assert found == (KeyRange(0, 0),)


def test_a_long_list_is_merged_into_few_ranges() -> None:
    schema = table(partition=HashPartition())
    keys = tuple(range(1_000))
    ranges = key_ranges(schema, apply("in", KEY, par(0, INT64, True)), (keys,))
    check_form(ranges)
    assert len(ranges) == RANGES_MAX
    assert all(any(inside(position_of(schema, key), r) for r in ranges) for key in keys)
    assert key_ranges(schema, apply("in", KEY, par(0, INT64, True)), ((),)) == (KeyRange(0, 0),)


@pytest.mark.parametrize(
    ("kind", "given", "values", "beyond"),
    [
        (DataType.INT32, INT64, (3, 1, 3, -7), 1 << 40),
        (FLOAT64, FLOAT64, (3.0, -0.0, 0.0, float("nan"), float("nan")), None),
        (DataType.decimal(9, 2), INT64, (3, 1, -7), 1 << 40),
        (STRING, STRING, ("k3", "", "k3", "\0"), None),
        (DataType.BYTES, DataType.BYTES, (b"k3", b"", b"\0"), None),
    ],
)
def test_a_list_touches_what_each_of_its_values_does(
    kind: DataType, given: DataType, values: tuple[Any, ...], beyond: Any
) -> None:
    schema = TableSchema("t", (ColumnDef("k", kind, False),), "k", ("k",), HashPartition(3)).with_ids(1)
    key = ColumnRef(schema.columns[0].id, kind)
    one_by_one: tuple[KeyRange, ...] = ()
    for value in values:
        one_by_one = unite(one_by_one, key_ranges(schema, apply("=", key, par(0, given)), (value,)))

    listed = (None, *values, beyond)
    assert key_ranges(schema, apply("in", key, par(0, given, True)), (listed,)) == one_by_one


def test_very_many_values_are_placed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each of 200,000 took seconds."""
    calls: list[int] = []
    place = partition.ring_positions

    def counting(schema: TableSchema, column: Column) -> Any:
        calls.append(len(column.values))
        return place(schema, column)

    monkeypatch.setattr(partition, "ring_positions", counting)
    keys = tuple(range(5_000))
    key_ranges(table(partition=HashPartition()), apply("in", KEY, par(0, INT64, True)), (keys,))

    assert calls == [5_000]


@given(st.lists(st.integers(0, RING_MAX), min_size=2 * RANGES_MAX, max_size=400, unique=True))
def test_the_smallest_gaps_are_closed_wherever_they_are(ends: list[int]) -> None:
    pairs = zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)
    ranges = tuple(KeyRange(low, high) for low, high in pairs)
    merged = list(ranges)
    while len(merged) > RANGES_MAX:
        _, place = min((merged[i + 1].low - merged[i].high, i) for i in range(len(merged) - 1))
        merged[place : place + 2] = [KeyRange(merged[place].low, merged[place + 1].high)]

    assert merge_neighbours(ranges) == tuple(merged)


range_lists = st.lists(st.integers(0, 60), min_size=0, max_size=12, unique=True).map(
    lambda ends: tuple(KeyRange(a, b) for a, b in zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


@given(range_lists, range_lists)
def test_set_operations_equal_those_on_sets(left: tuple[KeyRange, ...], right: tuple[KeyRange, ...]) -> None:
    def members(ranges: tuple[KeyRange, ...]) -> set[int]:
        return {point for low, high in ranges for point in range(low, high + 1)}

    assert members(unite(left, right)) == members(left) | members(right)
    assert members(intersect(left, right)) == members(left) & members(right)


@given(st.lists(st.integers(0, RING_MAX), min_size=1, max_size=300))
def test_positions_are_covered_by_few_ranges(positions: list[int]) -> None:
    ranges = ranges_of_positions(np.array(positions, np.uint64))
    check_form(ranges)
    assert all(any(inside(position, r) for r in ranges) for position in positions)
    if len(set(positions)) <= RANGES_MAX:
        assert len(ranges) == len(set(positions))


def test_the_smallest_gaps_are_closed_first() -> None:
    ranges = tuple(KeyRange(1_000 * i, 1_000 * i + 10) for i in range(RANGES_MAX))
    crowded = (*ranges, KeyRange(1_000 * RANGES_MAX - 985, 1_000 * RANGES_MAX - 980))
    assert merge_neighbours(crowded)[-1] == KeyRange(1_000 * (RANGES_MAX - 1), 1_000 * RANGES_MAX - 980)


@pytest.mark.parametrize(
    ("kind", "value", "folded"),
    [
        (DataType.INT8, 127, 127),
        (DataType.INT8, 128, None),
        (INT64, 3.0, 3),
        (INT64, 2.0**63, None),
        (FLOAT64, 1 << 53, float(1 << 53)),
        (FLOAT64, (1 << 53) + 1, None),
        (DataType.FLOAT32, 0.1, None),
        (DataType.FLOAT32, 0.5, 0.5),
        (DataType.FLOAT32, 1e300, None),
        (STRING, "x", "x"),
    ],
)
def test_constants_fold_into_the_column_exactly_or_not_at_all(
    kind: DataType, value: object, folded: object
) -> None:
    assert key_constant(kind, value) == folded  # type: ignore[arg-type]


def test_huge_predicates_are_walked_without_trouble() -> None:
    test = Apply("=", (KEY, Parameter(0, INT64)), DataType.BOOL)
    wide = Apply("or", (test,) * 5_000, DataType.BOOL)
    assert len(key_ranges(table(), wide, (5,))) == 1
