"""Blocks: rows that many reads share, made a stretch at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crescando.client.block import FEW_ROWS, ROWS_TOGETHER, STRETCHES_KEPT, Block
from crescando.client.columns import column_from_list
from crescando.engine.statement import Column
from crescando.schema import ColumnDef, DataType

N_ROWS = 9 * ROWS_TOGETHER + 5
"""More than are ever made at once."""


def block_of(listed: dict[DataType, list[object]]) -> Block:
    columns = [column_from_list(values, ColumnDef(kind.value, kind)) for kind, values in listed.items()]
    return Block(tuple(kind.value for kind in listed), tuple(columns))


@pytest.fixture(scope="module")
def listed() -> dict[DataType, list[object]]:
    return {
        DataType.INT64: list(range(N_ROWS)),
        DataType.STRING: [None if row % 7 == 0 else f"é{row % 300}" for row in range(N_ROWS)],
        DataType.BYTES: [b"\0" * (row % 5) for row in range(N_ROWS)],
        DataType.FLOAT64: [None if row % 11 == 0 else row / 2 for row in range(N_ROWS)],
    }


@pytest.mark.parametrize("seed", range(5))
def test_any_rows_are_those_of_the_columns(listed: dict[DataType, list[object]], seed: int) -> None:
    chance = random.Random(seed)
    block, expected = block_of(listed), list(zip(*listed.values(), strict=True))
    borders = [0, 1, FEW_ROWS, ROWS_TOGETHER - 1, ROWS_TOGETHER, ROWS_TOGETHER + 1, N_ROWS - 1, N_ROWS]
    for _ in range(200):
        start = chance.choice([*borders, chance.randrange(N_ROWS)])
        length = chance.choice([0, 1, 3, FEW_ROWS, ROWS_TOGETHER, ROWS_TOGETHER + 1, N_ROWS])
        stop = min(start + length, N_ROWS)
        assert block.rows(start, stop) == expected[start:stop]


def test_what_is_made_for_one_read_serves_its_neighbours(listed: dict[DataType, list[object]]) -> None:
    block = block_of(listed)
    for row in range(0, N_ROWS - 3, 997):
        first, again = block.rows(row, row + 3), block.rows(row, row + 3)
        assert all(map(lambda one, other: one is other, first, again)), "rows were made twice"
        assert first is not again, "whoever changes his list changes another's"


def test_a_column_of_nothing_but_null_has_no_texts_to_look_up() -> None:
    block = block_of({DataType.STRING: [None] * 200})
    assert block.rows(10, 110) == [(None,)] * 100


def test_of_a_large_block_few_rows_are_kept() -> None:
    n = (STRETCHES_KEPT + 4) * ROWS_TOGETHER
    large = Block(("a",), (Column(DataType.INT64, np.arange(n)),))
    for start in range(0, n, 10):
        stop = min(start + 10, n)
        assert large.rows(start, stop) == [(value,) for value in range(start, stop)]
    assert sum(map(len, large._stretches.values())) == STRETCHES_KEPT * ROWS_TOGETHER
