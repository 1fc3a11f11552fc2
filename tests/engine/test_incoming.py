"""Rows of several inserts in one batch: how they are put together is nobody's business."""

from __future__ import annotations

import numpy as np
import pytest

from crescando.engine import incoming
from crescando.engine.statement import Column
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.workbench import Bench, table

STRING, BYTES, INT64 = DataType.STRING, DataType.BYTES, DataType.INT64

TEXTS = ["", "\0", "a", "a\0", "é", "x" * 40, "x" * (1 << 16)]


def texts_of(chance: np.random.Generator, n_rows: int) -> tuple[Column, Column]:
    """Give a column of few texts and NULL, and one of a text for each row."""
    valid = chance.random(n_rows) < 0.7
    few = Column(STRING, chance.integers(0, len(TEXTS), n_rows).astype(np.int32), valid, tuple(TEXTS))
    many = [b"%d" % number for number in chance.integers(0, 1 << 20, n_rows).tolist()]
    return few, Column(BYTES, np.arange(n_rows, dtype=np.int32), None, tuple(many))


@pytest.mark.parametrize("sizes", [(40, 40, 40), (1, 90, 0, 17), (3,)])
def test_texts_are_the_same_looked_up_together_or_by_operation(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests, answers = [], []
    for alone in (1, 1 << 20):
        monkeypatch.setattr(incoming, "_ROWS_ALONE", alone)
        bench, chance = Bench(table(("s", STRING), ("t", BYTES))), np.random.default_rng(7)
        for _ in range(2):
            shape = bench.insert((0, None, b"")).shape
            operations = []
            for size in sizes:
                keys = Column(INT64, chance.integers(0, 1 << 40, size))
                operations.append(bench.operation(shape, keys, *texts_of(chance, size)))
            bench.run(*operations)
        digests.append(bench.engine.digest(1, FULL_RING))
        answers.append(bench.read(None))
    assert digests[0] == digests[1]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 2 * sum(sizes)


EXTREMES = [-(1 << 63), (1 << 63) - 1]


@pytest.mark.parametrize(
    ("keys", "n_kept"),
    [
        ([3, 1, 2, -4, 0], 5),
        ([3, 1, 3, 2], 3),
        ([7], 1),
        ([7, 7], 1),
        ([0, 1 << 40, 5], 3),
        ([0, 1 << 40, 5, 1 << 40], 3),
        (EXTREMES, 2),
        ([*EXTREMES, EXTREMES[0]], 2),
    ],
)
def test_keys_that_come_twice_are_found_wherever_they_lie(
    keys: list[int], n_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for spread in (0, 8):
        monkeypatch.setattr(incoming, "_SPREAD", spread)
        bench = Bench(table(("n", INT64)))
        shape = bench.insert((0, 0)).shape
        values = np.arange(len(keys))
        bench.run(bench.operation(shape, Column(INT64, np.array(keys)), Column(INT64, values)))
        rows = bench.read(None)
        assert len(rows) == n_kept
        found.append(sorted(map(repr, rows)))
        bench.run(bench.operation(shape, Column(INT64, np.array(keys[:1])), Column(INT64, values[:1] - 9)))
        assert sorted(map(repr, bench.read(None))) == found[-1]
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_surely_differ_if_they_are_close_and_none_comes_twice(seed: int) -> None:
    chance = np.random.default_rng(seed)
    low = int(chance.choice((-(1 << 63), -5, 0, (1 << 62))))
    words = low + chance.permutation(200)[: int(chance.integers(1, 200))].astype(np.int64)
    span = int(words.max()) - int(words.min()) + 1
    assert incoming._surely_differ(words) == (span <= 8 * len(words))
    assert not incoming._surely_differ(np.append(words, words[int(chance.integers(len(words)))]))
