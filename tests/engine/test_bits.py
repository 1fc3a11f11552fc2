"""Masks in bits: whatever is written is given back, and nothing beside it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crescando.engine import kernels
from crescando.engine.bits import Bits
from crescando.engine.segment import Block, Segment
from crescando.schema import DataType
from tests.engine.compiled import compiled_module, using

N = 203


@pytest.fixture(params=["numpy", "numba"], autouse=True)
def made(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


@pytest.mark.parametrize("is_set", [True, False])
def test_bits_are_what_a_mask_would_be(is_set: bool) -> None:
    rng = np.random.default_rng(1)
    bits, mask = Bits.of(N, is_set), np.full(N, is_set)
    for turn in range(300):
        n = int(rng.integers(0, 40))
        values: Any = None if turn % 5 == 0 else rng.random(n) < 0.5
        rows: Any = rng.permutation(N)[:n]
        if turn % 2:
            start = int(rng.integers(0, N - n))
            rows = slice(start, start + n)
        bits.put(rows, values)
        mask[rows] = True if values is None else values
        start, stop = np.sort(rng.integers(0, N, 2)).tolist()
        some = rng.permutation(N)[:n]
        assert bits[:N].tolist() == mask.tolist()
        assert bits[start:stop].tolist() == mask[start:stop].tolist()
        assert bits[some].tolist() == mask[some].tolist()
    assert bits[:N].dtype == bits[np.arange(3)].dtype == np.bool_


def test_both_kernels_take_bits_alike() -> None:
    rng = np.random.default_rng(2)
    packed = rng.integers(0, 256, 50).astype(np.uint8)
    rows = rng.integers(0, 400, 300)
    found = [made.take_bits(packed, rows).tolist() for made in (kernels._PLAIN, compiled_module().KERNELS)]
    assert found[0] == found[1] == [bool(packed[row >> 3] >> (row & 7) & 1) for row in rows.tolist()]


def test_nulls_take_a_bit_a_row_and_stills_keep_theirs() -> None:
    segment = Segment(0, 1_000, {1: DataType.INT8})
    valid = np.arange(500) % 3 > 0
    segment.store(1, slice(0, 500), np.zeros(500, np.int8), valid)
    segment.n_rows = 500
    assert segment.n_bytes == 500 * 9 + 63
    still = segment.still()

    segment.store(1, slice(500, 510), np.zeros(10, np.int8), np.zeros(10, np.bool_))
    segment.n_rows = 510
    shared = segment.valid[1]
    segment.store(1, np.array([0, 1]), np.zeros(2, np.int8), np.array([True, False]))

    assert still.valid[1] is shared, "rows behind a still's are written without a copy"
    assert still.valid[1][:500].tolist() == valid.tolist()
    expected = np.concatenate((valid, np.zeros(10, np.bool_)))
    expected[:2] = True, False
    assert segment.valid[1][:510].tolist() == expected.tolist()
    still = segment.still()
    segment.kill(np.arange(0, 510, 2))
    segment.compact()
    assert segment.valid[1][:255].tolist() == expected[1::2].tolist()
    assert still.valid[1][:510].tolist() == expected.tolist()
    segment.store(1, slice(255, 257), np.zeros(2, np.int8), None)
    assert segment.valid[1][:257].tolist() == [*expected[1::2].tolist(), True, True]


def test_a_block_unpacks_a_column_once_while_it_keeps_it() -> None:
    segment = Segment(0, 1_000, {1: DataType.INT8})
    valid = np.arange(500) % 3 > 0
    segment.store(1, slice(0, 500), np.zeros(500, np.int8), valid)
    segment.n_rows = 500
    block = Block(segment, 13, 200, {1: DataType.INT8}, {})
    block.keep(True)

    first = block.column(1).valid

    assert first is not None
    assert first is block.column(1).valid
    assert first.tolist() == valid[13:200].tolist()
    taken = block.take(1, np.array([0, 5])).valid
    assert taken is not None
    assert taken.tolist() == valid[[13, 18]].tolist()
