"""What users' threads submit is taken in order, a stretch in each turn of the loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from crescando.errors import ClosedError
from crescando.submitted import Submitted


class Turns:
    """A loop whose turns are done by hand."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.due: deque[Callable[[], object]] = deque()
        self.is_stopped = False

    def hand_over(self, callback: Callable[[], object]) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        for _ in range(len(self.due)):
            self.due.popleft()()


@pytest.fixture
def desk() -> tuple[Turns, Submitted[int], list[list[int]]]:
    turns: Any = Turns()
    taken: list[list[int]] = []
    return turns, Submitted(turns, lambda some: taken.append(list(some)), lambda _: 1, 3, 6), taken


Desk = tuple[Turns, Submitted[int], list[list[int]]]


def submit(desk: Desk, *entries: int) -> None:
    turns, submitted, _ = desk
    with turns.lock:
        are_first = [submitted.add(entry, None) for entry in entries]
    if any(are_first):
        submitted.see_to_it(None)


def test_much_is_taken_in_stretches_and_others_come_between(desk: Desk) -> None:
    turns, _, taken = desk
    submit(desk, *range(7))
    turns.hand_over(lambda: taken.append([-1]))
    turns.turn()
    submit(desk, 7)
    while turns.due:
        turns.turn()
    assert taken == [[0, 1, 2], [-1], [3, 4, 5], [6, 7]]


def test_as_much_as_fits_is_taken_at_once(desk: Desk) -> None:
    turns, _, taken = desk
    submit(desk, 0, 1)
    submit(desk, 2)
    turns.turn()
    assert taken == [[0, 1, 2]]
    assert not turns.due


def test_what_comes_behind_all_waits_for_what_was_submitted_before_and_for_no_more(desk: Desk) -> None:
    turns, submitted, taken = desk
    submit(desk, *range(8))
    submitted.hand_over(lambda: taken.append([-1]))
    at = 8
    while [-1] not in taken:
        submit(desk, *range(at, at + 6))
        at += 6
        turns.turn()
        assert max(map(len, taken)) <= 3
        assert at < 40, "it waits for what comes later"
    before = [each for some in taken[: taken.index([-1])] for each in some]
    assert before[:8] == list(range(8))
    while turns.due:
        turns.turn()
    assert [each for some in taken for each in some if each >= 0] == list(range(at))


def test_what_cannot_be_taken_holds_up_nothing_else(desk: Desk) -> None:
    turns, submitted, taken = desk
    take = submitted._take

    def fail(_: object) -> None:
        submitted._take = take
        raise ValueError("no")

    submitted._take = fail
    submit(desk, *range(5))
    with pytest.raises(ValueError, match="no"):
        turns.turn()
    submit(desk, 5)
    while turns.due:
        turns.turn()
    assert taken == [[3, 4, 5]]


def test_nothing_is_left_when_stretches_and_calls_mix(desk: Desk) -> None:
    turns, submitted, taken = desk
    for start in range(0, 40, 4):
        submit(desk, *range(start, start + 4))
        if start % 3 == 0:
            submitted.hand_over(lambda: None)
        if start % 8 == 0:
            turns.turn()
    while turns.due:
        turns.turn()
    assert [each for some in taken for each in some] == list(range(40))
    submit(desk, 40)
    turns.turn()
    assert taken[-1] == [40]


def test_an_entry_counts_as_what_it_stands_for() -> None:
    turns: Any = Turns()
    taken: list[list[range]] = []
    submitted: Submitted[range] = Submitted(turns, lambda some: taken.append(list(some)), len, 10, 30)
    for entry in (range(4), range(9), range(1), range(10), range(2)):
        submitted.add(entry, None)
    submitted.see_to_it(None)
    submitted.make_room()  # Of 30 only 26 wait.
    told: list[int] = []
    submitted.hand_over(lambda: told.append(sum(len(entry) for some in taken for entry in some)))
    while turns.due:
        turns.turn()

    assert taken == [[range(4), range(9)], [range(1), range(10)], [range(2)]]
    assert told == [26]


def make_room_aside(submitted: Submitted[int]) -> threading.Thread:
    thread = threading.Thread(target=submitted.make_room, daemon=True)
    thread.start()
    thread.join(0.05)
    return thread


def test_whoever_is_far_ahead_waits_until_what_he_submitted_is_taken(desk: Desk) -> None:
    turns, submitted, taken = desk
    submit(desk, *range(5))
    submitted.make_room()
    submit(desk, 5, 6)
    waiting = make_room_aside(submitted)
    for _ in range(3):
        assert waiting.is_alive()
        turns.turn()
    waiting.join(10)
    assert not waiting.is_alive()
    assert [each for some in taken for each in some] == list(range(7))


def test_nobody_waits_for_a_loop_that_has_ended(desk: Desk) -> None:
    turns, submitted, _ = desk
    submit(desk, *range(9))
    waiting = make_room_aside(submitted)
    assert waiting.is_alive()
    turns.is_stopped = True
    waiting.join(10)
    assert not waiting.is_alive()

    def ended(_: object) -> None:
        raise ClosedError("the store is closed")

    turns.hand_over = ended  # type: ignore[method-assign]
    submitted.make_room()
