"""What writes did is kept in pieces, and the rows they returned with it while there is room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crescando.engine.statement import Column
from crescando.engine.written import Count, Report, Written, join_written
from crescando.roles import ledger
from crescando.roles.messages import Inquire
from crescando.schema import DataType
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.reports import reports

ARCS = (KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX))


def written(number: int, n_rows: int) -> Written:
    column = Column(DataType.INT64, np.arange(n_rows))
    return Written.of(number, number, (Count(FULL_RING, n_rows, 0, None, (column,)),))


def told(book: ledger.Ledger, *numbers: int) -> list[Report]:
    return reports(book.answer(Inquire(1, numbers)).written)


def test_rows_beyond_the_room_are_dropped_and_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    n_bytes = written(1, 100).remarks[0].returned_bytes
    monkeypatch.setattr(ledger, "RETURNED_BYTES_MAX", 2 * n_bytes)
    book = ledger.Ledger()
    book.keep_written(written(1, 100), 10)
    book.keep_written(join_written([written(2, 100), written(3, 100)]), 10)

    known = told(book, 1, 2, 3)
    assert [each.counts[0].affected for each in known] == [100] * 3
    assert [len(each.counts[0].returned) for each in known] == [1, 1, 0]

    book.forget(1)
    book.keep_written(written(4, 100), 10)
    (last,) = told(book, 4)
    assert len(last.counts[0].returned) == 1


def test_outcomes_that_give_way_take_their_rows_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RETURNED_BYTES_MAX", written(1, 100).remarks[0].returned_bytes)
    book = ledger.Ledger()
    for number in range(1, 6):
        book.keep_written(written(number, 100 if number % 2 else 0), 1)
    (last,) = told(book, 5)
    assert len(last.counts[0].returned) == 1
    assert len(book) == 1


def plain(numbers: range) -> Written:
    return join_written(
        [Written.of(n, 10 * n, [Count(arc, n + place, 0) for place, arc in enumerate(ARCS)]) for n in numbers]
    )


def test_pieces_are_forgotten_and_bounded_write_by_write() -> None:
    book = ledger.Ledger()
    book.keep_written(plain(range(1, 6)), 8)
    book.keep_written(plain(range(6, 11)), 8)
    assert [each.number for each in told(book, *range(11))] == list(range(3, 11))
    book.forget(6)
    assert len(book) == 4
    assert [each.number for each in told(book, 10, 7, 6)] == [7, 10]
    book.keep_written(plain(range(5, 8)), 8)
    assert len(book) == 5


def test_a_transaction_gives_way_as_a_whole() -> None:
    book = ledger.Ledger()
    steps = [Written.of(1, 10, [Count(FULL_RING, step, 0)], step) for step in range(3)]
    book.keep_written(join_written([*steps, written(20, 0)]), 3)
    assert [each.number for each in told(book, 1, 20)] == [20]


def test_each_write_is_reported_for_its_scope() -> None:
    book = ledger.Ledger()
    book.scopes |= {1: (ARCS[:1], True), 2: (ARCS[1:], True), 3: ((), True), 4: (ARCS[:1], True)}
    book.report_all.add(4)
    found = reports(book.keep_written(plain(range(1, 5)), 10))
    by_number = {each.number: [(c.key_range, c.affected) for c in each.counts] for each in found}
    assert by_number == {
        1: [(ARCS[0], 1)],
        2: [(ARCS[1], 3)],
        4: [(ARCS[0], 4), (ARCS[1], 5)],
    }
    assert not book.scopes
    assert not book.report_all


def test_only_pieces_that_may_have_what_is_asked_for_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece for each of hundreds of writes is usual, and so are questions after one of them."""
    book, searched, keep = ledger.Ledger(), [], Written.keep
    for first in range(1, 901, 3):
        book.keep_written(plain(range(first, first + 3)), 1000)
    book.keep_late(plain(range(700, 702)), 1000)

    def counting(self: Written, writes: Any) -> Written:
        searched.append(self.number.tolist())
        return keep(self, writes)

    monkeypatch.setattr(Written, "keep", counting)

    found = book.written.find([701, 5, 2000])

    assert sorted(number for piece in found for number in piece.number.tolist()) == [5, 701, 701]
    assert searched == [[4, 5, 6], [700, 701, 702], [700, 701]]
