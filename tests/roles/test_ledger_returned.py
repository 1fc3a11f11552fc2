"""Returned rows are kept with the outcomes of writes, while there is room for them."""

from __future__ import annotations

import numpy as np
import pytest

from crescando.engine.base import Count, Written
from crescando.engine.statement import Column
from crescando.roles import ledger
from crescando.roles.messages import Inquire
from crescando.schema import DataType
from crescando.types import FULL_RING


def written(number: int, n_rows: int) -> Written:
    column = Column(DataType.INT64, np.arange(n_rows))
    return Written(number, number, (Count(FULL_RING, n_rows, 0, None, (column,)),))


def test_rows_beyond_the_room_are_dropped_and_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    n_bytes = written(1, 100).returned_bytes
    monkeypatch.setattr(ledger, "RETURNED_BYTES_MAX", 2 * n_bytes)
    book = ledger.Ledger()
    for number in (1, 2, 3):
        book.keep_written(written(number, 100), 10)

    told = book.answer(Inquire(1, (1, 2, 3))).written
    assert [each.counts[0].affected for each in told] == [100] * 3
    assert [len(each.counts[0].returned) for each in told] == [1, 1, 0]

    book.forget(1)
    book.keep_written(written(4, 100), 10)
    (last,) = book.answer(Inquire(2, (4,))).written
    assert len(last.counts[0].returned) == 1


def test_outcomes_that_give_way_take_their_rows_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RETURNED_BYTES_MAX", written(1, 100).returned_bytes)
    book = ledger.Ledger()
    for number in range(1, 6):
        book.keep_written(written(number, 100 if number % 2 else 0), 1)
    (last,) = book.answer(Inquire(1, (5,))).written
    assert len(last.counts[0].returned) == 1
