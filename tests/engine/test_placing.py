"""Ring positions that are not kept: whoever asks for them gets what the partition function gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crescando.engine.kernels import texts as plain
from crescando.engine.partition import placing, ring_positions
from crescando.engine.segment import Block, Segment
from crescando.engine.statement import PHYSICAL, Column
from crescando.schema import ColumnDef, DataType, HashPartition, RangePartition, TableSchema
from tests.engine.compiled import compiled_module
from tests.engine.workbench import Bench

N = 300
KINDS = [DataType.INT8, DataType.INT64, DataType.DATE, DataType.TIMESTAMP, DataType.FLOAT64, DataType.FLOAT32]
PARTITIONS = [HashPartition(), HashPartition(salt=9), RangePartition(-50, 90)]


def _schema(kind: DataType, partition: Any = PARTITIONS[0]) -> TableSchema:
    columns = ColumnDef("k", kind, nullable=False), ColumnDef("x", DataType.INT32)
    return TableSchema("t", columns, "k", ("k",), partition).with_ids(1)


def _filled(schema: TableSchema, keys: Any, positions: Any) -> Segment:
    types = {column.id: column.type for column in schema.columns}
    segment = Segment(0, 2 * N, types, placing(schema))
    for start in range(0, N, 100):
        target = slice(start, start + 100)
        for column_id in types:
            segment.store(column_id, target, keys[target].astype(PHYSICAL[types[column_id]]), None)
        segment.place(target, positions[target])
        segment.n_rows += 100
    return segment


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_positions_follow_from_keys(kind: DataType, partition: Any) -> None:
    schema = _schema(kind, partition)
    keys = (np.arange(N) % 120 - 60).astype(PHYSICAL[kind])
    positions = ring_positions(schema, Column(kind, keys))

    segment = _filled(schema, keys, positions)

    rows = np.arange(1, N, 3)
    assert segment.position[:N].tolist() == positions.tolist()
    assert segment.position[rows].tolist() == positions[rows].tolist()
    block = Block(segment, 50, 200, {}, {})
    assert block.positions().tolist() == positions[50:200].tolist()
    assert block.positions(np.array([3, 9])).tolist() == positions[[53, 59]].tolist()
    per_row = 4 if kind is DataType.FLOAT32 else 1
    assert segment.n_bytes == N * (per_row + 1), "they take nothing"


def test_positions_that_do_not_follow_are_kept() -> None:
    schema = _schema(DataType.INT64)
    keys = np.arange(N)
    positions = ring_positions(schema, Column(DataType.INT64, keys))
    positions[150] += np.uint64(1)

    segment = _filled(schema, keys, positions)
    still = segment.still()
    segment.kill(np.arange(0, N, 2))
    segment.compact()

    assert still.position[:N].tolist() == positions.tolist()
    assert segment.position[: segment.n_rows].tolist() == positions[1::2].tolist()
    other = Segment(0, N, {column.id: column.type for column in schema.columns}, placing(schema))
    other.take_over(segment, np.arange(100))
    assert other.position[:100].tolist() == positions[1:200:2].tolist()


def test_a_still_has_the_positions_of_its_keys() -> None:
    schema = _schema(DataType.INT64)
    keys = np.arange(N) * 3
    positions = ring_positions(schema, Column(DataType.INT64, keys))
    segment = _filled(schema, keys, positions)
    still = segment.still()

    segment.kill(np.arange(0, N, 2))
    segment.compact()
    far = np.array([1 << 60])
    segment.store(schema.columns[0].id, slice(150, 151), far, None)

    assert segment.position[:150].tolist() == positions[1::2].tolist()
    assert segment.position[150:151].tolist() == ring_positions(schema, Column(DataType.INT64, far)).tolist()
    assert still.position[:N].tolist() == positions.tolist()


@pytest.mark.parametrize("kind", [DataType.STRING, DataType.BYTES])
def test_positions_of_texts_are_kept(kind: DataType) -> None:
    assert placing(_schema(kind)) is None


def test_both_kernels_hash_words_alike() -> None:
    words = np.random.default_rng(1).integers(0, 1 << 63, 500).astype(np.uint64)
    words[:2] = 0, (1 << 64) - 1
    compiled = compiled_module().KERNELS.texts
    for seed in (np.uint64(0), np.uint64((1 << 64) - 1)):
        assert plain.hash_words(words, seed).tolist() == compiled.hash_words(words, seed).tolist()
    assert compiled.hash_words(words[:0], np.uint64(1)).tolist() == []


def test_a_table_keeps_no_positions() -> None:
    bench = Bench(_schema(DataType.INT64))
    bench.load(*((k, k) for k in range(N)))

    (segment,) = bench.engine._tables[1].segments[0]

    expected = ring_positions(_schema(DataType.INT64), Column(DataType.INT64, np.arange(N)))
    assert sorted(segment.position[:N].tolist()) == sorted(expected.tolist())
    assert segment._positions is None
