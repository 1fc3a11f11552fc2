"""Outcomes that come with a range that moved, beside those of a process's own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crescando.engine.base import Failed
from crescando.engine.statement import Column
from crescando.engine.written import Count, Written, join_written
from crescando.roles import ledger, reporting
from crescando.roles.copy_messages import Outcomes
from crescando.roles.ledger import Ledger
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Inquire
from crescando.roles.reporting import Reporter
from crescando.schema import DataType
from crescando.types import KeyRange, ProcessId
from tests.engine.reports import reports

ARCS = [KeyRange(100 * n, 100 * n + 99) for n in range(4)]
CLIENT, GONE = ProcessId("client", "c", 1), ProcessId("client", "gone", 1)
ME = ProcessId("storage", "s1", 1)


def written(numbers: range | list[int], *arcs: int) -> Written:
    """Say what some writes did: in each arc as many rows as their number and the arc's together."""
    return join_written(
        [Written.of(n, 10 * n, [Count(ARCS[arc], 10 * n + arc, 0) for arc in arcs]) for n in numbers]
    )


def known(book: Ledger, *numbers: int) -> dict[int, dict[KeyRange, int]]:
    found: dict[int, dict[KeyRange, int]] = {}
    for report in reports(book.answer(Inquire(1, numbers)).written):
        for count in report.counts:
            assert found.setdefault(report.number, {}).setdefault(count.key_range, count.affected) == (
                count.affected
            )
    return found


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_when_is_known_until_the_client_has_it(seed: int) -> None:
    rng = random.Random(seed)
    book = Ledger()
    wanted: dict[int, dict[KeyRange, int]] = {}
    n = answered = 0

    def note(piece: Written) -> None:
        for report in reports([piece]):
            if report.number > answered:
                into = wanted.setdefault(report.number, {})
                into.update({count.key_range: count.affected for count in report.counts})

    for _ in range(60):
        what = rng.random()
        if what < 0.4:
            piece = written(range(n + 1, n + rng.randrange(2, 8)), 0, 1)
            n = int(piece.number[-1])
            book.keep_written(piece, 1000)
            note(piece)
        elif what < 0.7 and n > 1:
            some = sorted(rng.sample(range(1, n + 1), rng.randrange(1, min(n, 6) + 1)))
            piece = written(some, rng.choice((2, 3)))
            book.keep_late(piece, 1000)
            note(piece)
        elif n:
            answered = rng.randrange(answered, n + 1)
            book.forget(answered)
            wanted = {number: counts for number, counts in wanted.items() if number > answered}
        assert known(book, *range(1, n + 1)) == wanted
        assert len(book.written) == sum(map(len, book.written))


def test_the_oldest_give_way_wherever_they_came_from() -> None:
    book = Ledger()
    book.keep_written(written(range(5, 9), 0), 6)
    book.keep_late(written([1, 2], 2), 6)
    assert len(book) == 6

    book.keep_written(written([9], 0), 6)
    assert set(known(book, *range(1, 10))) == {5, 6, 7, 8, 9}
    book.keep_late(written([9], 3), 3)
    assert len(book) == 3
    assert known(book, 9)[9].keys() == {ARCS[0], ARCS[3]}


def reporter(*members: ProcessId) -> Reporter:
    return Reporter(ME, StorageLimits(), lambda process: process in members)


def test_outcomes_travel_as_far_as_they_concern_the_range_and_lie_before_it_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "SLICE", 2)
    monkeypatch.setattr(reporting, "SLICE", 2)
    sender, receiver = reporter(CLIENT), reporter(CLIENT)
    book = sender.ledger(CLIENT)
    book.keep_written(written(range(1, 6), 0, 1), 100)
    book.keep_late(written([2, 4], 2), 100)
    for number in (6, 7):
        book.keep_failed(Failed(number, 10 * number, (), "schema", (), "stale"), 100)

    # All of an arc of which a part moves, since it was counted as a whole.
    sent = sender.outcomes((KeyRange(150, 250),), 65)
    assert all(isinstance(each, Outcomes) and each.client == CLIENT for each in sent)
    assert max(sum(map(len, each.written)) for each in sent) == 2
    for each in sent:
        receiver.keep_moved(each, 0.0)
        receiver.keep_moved(each, 0.0)

    told = receiver.ledger(CLIENT)
    assert known(told, *range(1, 8)) == {
        n: {ARCS[1]: 10 * n + 1} | ({ARCS[2]: 10 * n + 2} if n in (2, 4) else {}) for n in range(1, 6)
    }
    assert set(told.failed) == {6}
    assert sender.outcomes((KeyRange(150, 250),), 10) == []


def test_a_transaction_travels_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SLICE", 1)
    steps = [Written.of(n, 10 * n, [Count(ARCS[0], step, 0)], step) for n in (1, 2) for step in (0, 1, 2)]
    book = Ledger()
    book.keep_written(join_written(steps), 100)

    pieces, _ = book.told((ARCS[0],), 1000)

    assert [piece.number.tolist() for piece in pieces] == [[1, 1, 1], [2, 2, 2]]


def test_outcomes_that_returned_much_travel_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SLICE_BYTES", 500)
    monkeypatch.setattr(reporting, "SLICE_BYTES", 500)
    rows = Column(DataType.INT64, np.arange(50))
    sender = reporter(CLIENT)
    many = [Written.of(n, 10 * n, [Count(ARCS[0], 50, 0, None, (rows,))]) for n in range(1, 6)]
    sender.ledger(CLIENT).keep_written(join_written(many), 100)

    sent = sender.outcomes((ARCS[0],), 1000)

    numbers = [[n for piece in each.written for n in piece.number.tolist()] for each in sent]
    assert [n for some in numbers for n in some] == [1, 2, 3, 4, 5]
    assert max(map(len, numbers)) == 2


def test_outcomes_of_a_client_that_was_cut_off_are_kept_for_a_while() -> None:
    receiver = reporter(CLIENT)
    receiver.keep_moved(Outcomes(GONE, (written([3], 1),), ()), 5.0)

    assert known(receiver.ledger(GONE), 3)
    receiver.ledgers.flush(5.0 + StorageLimits().gone_s)
    assert len(receiver.ledgers) == 0
