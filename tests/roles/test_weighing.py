"""How much a storage process holds: told behind what it executes, a bounded amount at a time."""

from __future__ import annotations

from crescando.roles.messages import RANGES_WEIGHED, Weigh, Weighs
from crescando.types import FULL_RING, KeyRange
from tests.roles.stage import sent
from tests.roles.test_storage import ALICE, BOB, Desk, insert


def test_what_is_executed_with_the_question_is_weighed() -> None:
    desk = Desk()
    desk.run()
    desk.deliver(ALICE, 2, insert(1), insert(2), insert(3))
    desk.core.on_message(BOB, Weigh(7, (FULL_RING, KeyRange(0, 0))), 0.0)

    desk.flush()
    (told,) = sent(desk.execute(), Weighs, to=BOB)

    assert told.request == 7
    (rows, n_bytes), nothing = told.weights
    assert rows == 3
    assert n_bytes > 0
    assert nothing[0] == 0


def test_too_many_ranges_at_once_are_not_weighed() -> None:
    desk = Desk()
    desk.run()
    desk.core.on_message(ALICE, Weigh(1, (FULL_RING,) * RANGES_WEIGHED), 0.0)
    desk.core.on_message(BOB, Weigh(2, (FULL_RING,)), 0.0)
    desk.core.on_message(BOB, Weigh(3, (KeyRange(5, 4),)), 0.0)

    output = desk.flush()

    assert sent(output, Weighs, to=BOB) == [Weighs(2, ()), Weighs(3, ())]
    assert output.execute is not None
