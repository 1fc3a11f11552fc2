"""Partition functions: golden vectors, order, spread."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.partition import position_of, ring_positions
from crescando.engine.statement import Column
from crescando.errors import SpecError
from crescando.schema import ColumnDef, DataType, HashPartition, RangePartition, TableSchema
from crescando.types import RING_MAX
from tests.engine.generator import as_column


def schema_of(kind: DataType, partition: HashPartition | RangePartition) -> TableSchema:
    return TableSchema("t", (ColumnDef("k", kind, False),), "k", partition=partition).with_ids(1)


GOLDEN = [
    (DataType.INT64, HashPartition(), 0, 0x568A9B0B1A2C05EC),
    (DataType.INT64, HashPartition(), 1, 0x85C61A300EC70FA1),
    (DataType.INT64, HashPartition(7), 1, 0x57C324C96EEA3787),
    (DataType.INT64, HashPartition(), -1, 0x2A28B166501827C),
    (DataType.BOOL, HashPartition(), True, 0x85C61A300EC70FA1),
    (DataType.DATE, HashPartition(), 20_000, 0x809B07E5A283207B),
    (DataType.FLOAT64, HashPartition(), 1.5, 0x3E1C1AEC920E9680),
    (DataType.FLOAT32, HashPartition(), 1.5, 0x3E1C1AEC920E9680),
    (DataType.FLOAT64, HashPartition(), 0.0, 0x568A9B0B1A2C05EC),
    (DataType.decimal(9, 2), HashPartition(), 150, 0x92C5A69FD99BB60B),
    (DataType.decimal(18, 6), HashPartition(5), -1, 0x6051123A3D74BE5C),
    (DataType.STRING, HashPartition(), "", 0x6246A58789053B93),
    (DataType.STRING, HashPartition(), "a", 0xFFB7E979B87A6386),
    (DataType.STRING, HashPartition(), "a\0", 0xAF6460201DEDB098),
    (DataType.STRING, HashPartition(7), "a", 0xA0A55B98371B56D1),
    (DataType.STRING, HashPartition(), "N14228", 0x3214B945AF2A4D9A),
    (DataType.STRING, HashPartition(), "twelve bytes and more \U0001d11e", 0x2FC3C4418C759E4),
    (DataType.INT64, RangePartition(0, 100), 50, 0x8000000000000000),
    (DataType.INT32, RangePartition(-3, 4), 0, 0x6DB6DB6DB6DB6C00),
    (DataType.FLOAT64, RangePartition(0.0, 3.0), 1.0, 0x5555555555555400),
    (
        DataType.TIMESTAMP,
        RangePartition(1_356_998_400_000_000, 1_388_534_400_000_000),
        1_370_000_000_000_000,
        0x698B0D95F698B000,
    ),
    (DataType.decimal(9, 2), RangePartition(0, 100), 2550, 0x4147AE147AE14800),
    (DataType.decimal(18, 18), RangePartition(0.0, 1.0), 10**18 - 1, RING_MAX),
    (DataType.decimal(18, 1), RangePartition(0, 10), -5, 0),
    (DataType.STRING, RangePartition("N100", "N999"), "N14228", 0x7F3736B9B8AD47),
    (DataType.STRING, RangePartition("a", "b"), "aé", 0xC3E571381E8ACBDD),
]


@pytest.mark.parametrize(("kind", "partition", "value", "position"), GOLDEN)
def test_positions_are_what_they_always_were(
    kind: DataType, partition: HashPartition | RangePartition, value: object, position: int
) -> None:
    assert position_of(schema_of(kind, partition), value) == position  # type: ignore[arg-type]


def test_equal_values_lie_at_one_position() -> None:
    for partition in (HashPartition(3), RangePartition(-1.0, 1.0)):
        schema = schema_of(DataType.FLOAT64, partition)
        assert position_of(schema, 0.0) == position_of(schema, -0.0)
        nans = np.array([math.nan, -math.nan])
        assert len(set(ring_positions(schema, Column(DataType.FLOAT64, nans)).tolist())) == 1
    assert position_of(schema_of(DataType.FLOAT32, HashPartition()), 1.5) == position_of(
        schema_of(DataType.FLOAT64, HashPartition()), 1.5
    )


def test_null_lies_at_zero() -> None:
    for kind, partition in ((DataType.INT64, HashPartition()), (DataType.STRING, RangePartition("a", "b"))):
        value = 5 if kind is DataType.INT64 else "ab"
        positions = ring_positions(schema_of(kind, partition), as_column(kind, [None, value, None]))
        assert positions[0] == 0
        assert positions[1] != 0
        assert positions[2] == 0


def test_position_does_not_depend_on_the_dictionary() -> None:
    schema = schema_of(DataType.STRING, HashPartition())
    wide = Column(DataType.STRING, np.array([2, 0], np.int32), None, ("x", "unused", "y"))
    narrow = Column(DataType.STRING, np.array([0, 1], np.int32), None, ("y", "x"))
    assert ring_positions(schema, wide).tolist() == ring_positions(schema, narrow).tolist()


@pytest.mark.parametrize("salt", [0, 1, 99])
def test_hash_spreads_small_and_similar_keys_evenly(salt: int) -> None:
    n, buckets = 64_000, 64
    numbers = Column(DataType.INT64, np.arange(n))
    texts = as_column(DataType.STRING, [f"N{i:05d}" for i in range(8_000)])
    for kind, column in ((DataType.INT64, numbers), (DataType.STRING, texts)):
        positions = ring_positions(schema_of(kind, HashPartition(salt)), column)
        counts = np.bincount((positions >> np.uint64(58)).astype(np.int64), minlength=buckets)
        expected = len(column) / buckets
        assert abs(counts - expected).max() < 6 * math.sqrt(expected)


def test_range_is_clamped_at_its_bounds() -> None:
    schema = schema_of(DataType.INT64, RangePartition(10, 20))
    ends = [position_of(schema, value) for value in (-(1 << 63), 9, 10, 20, 21, (1 << 63) - 1)]
    assert ends == [0, 0, 0, RING_MAX, RING_MAX, RING_MAX]


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2),
    st.integers(-50, 50),
    st.integers(1, 1 << 40),
)
def test_range_keeps_the_order_of_integers(values: list[int], low: int, width: int) -> None:
    column = Column(DataType.INT64, np.array(sorted(values)))
    positions = ring_positions(schema_of(DataType.INT64, RangePartition(low, low + width)), column)
    assert (positions[1:] >= positions[:-1]).all()


@given(st.lists(st.floats(allow_nan=False), min_size=2), st.floats(-1e308, 1e308), st.floats(-1e308, 1e308))
def test_range_keeps_the_order_of_floats(values: list[float], low: float, high: float) -> None:
    if not low < high:
        return
    column = Column(DataType.FLOAT64, np.array(sorted(values)))
    positions = ring_positions(schema_of(DataType.FLOAT64, RangePartition(low, high)), column)
    assert (positions[1:] >= positions[:-1]).all()


@given(st.lists(st.text(), min_size=2), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
def test_range_keeps_the_order_of_texts(values: list[str], prefix: str, low: str, high: str) -> None:
    if not low < high:
        return
    texts = sorted({*values, *(prefix + value for value in values)})
    schema = schema_of(DataType.STRING, RangePartition(prefix + low, prefix + high))
    positions = ring_positions(schema, as_column(DataType.STRING, texts))
    assert (positions[1:] >= positions[:-1]).all()


def test_range_skips_the_common_prefix_of_texts() -> None:
    schema = schema_of(DataType.STRING, RangePartition("customer-000000", "customer-999999"))
    texts = [f"customer-{number:06d}" for number in range(0, 1_000_000, 1_000)]
    positions = ring_positions(schema, as_column(DataType.STRING, texts))
    # Digits are ten of 257 values each, so that the spread is coarse, but never one lump.
    counts = np.bincount((positions >> np.uint64(60)).astype(np.int64), minlength=16)
    assert counts.max() < 0.2 * len(texts)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(SpecError, match="version 2"):
        position_of(schema_of(DataType.INT64, HashPartition(0, 2)), 1)
