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
