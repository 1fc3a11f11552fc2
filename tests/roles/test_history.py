"""What a super remembers, and how it answers those who ask."""

from __future__ import annotations

from crescando.roles.history import EVENTS_MAX, TOLD_MAX, WATCHERS_MAX, History
from crescando.roles.messages import Watch, Watched
from crescando.routing.rubberband.happenings import Event, Failed, Joined
from crescando.types import ProcessId
from tests.routing.worlds import storage

ALICE, BOB = ProcessId("client", "alice", 1), ProcessId("client", "bob", 1)
JOINED = Joined(storage(7))


def full(n: int) -> History:
    """Give a history with an event at each of the positions 10, 20, … 10 n."""
    history = History()
    for number in range(1, n + 1):
        history.add(10 * number, [JOINED])
    return history


def test_events_behind_a_position_are_told_at_once() -> None:
    history = full(3)

    history.watch(ALICE, Watch(5, 10))

    assert list(history.answers()) == [(ALICE, Watched(5, -1, 30, (Event(20, JOINED), Event(30, JOINED))))]
    assert list(history.answers()) == []


def test_a_question_waits_for_the_next_event_and_is_answered_once() -> None:
    history = full(2)
    history.watch(ALICE, Watch(1, 20))
    assert list(history.answers()) == []

    history.add(30, [])
    assert list(history.answers()) == []
    history.add(40, [JOINED, Failed(storage(7))])

    events = (Event(40, JOINED), Event(40, Failed(storage(7))))
    assert list(history.answers()) == [(ALICE, Watched(1, -1, 40, events))]
    history.add(50, [JOINED])
    assert list(history.answers()) == []


def test_a_new_question_takes_the_place_of_an_older_one() -> None:
    history = full(1)
    history.watch(ALICE, Watch(1, 10))
    history.watch(ALICE, Watch(2, 0))

    ((_, told),) = history.answers()

    assert told.request == 2


def test_who_has_gone_is_told_nothing() -> None:
    history = full(1)
    history.watch(ALICE, Watch(1, 0))
    history.watch(BOB, Watch(2, 0))
    history.end_session(ALICE)

    assert [peer for peer, _ in history.answers()] == [BOB]


def test_a_gap_is_told_at_once_even_if_nothing_has_happened_since() -> None:
    history = History()
    history.begin(500)
    history.watch(ALICE, Watch(1, 40))
    history.watch(BOB, Watch(2, 500))

    assert list(history.answers()) == [(ALICE, Watched(1, 500, 500, ()))]


def test_one_who_knows_more_than_this_super_waits_until_it_has_caught_up() -> None:
    history = full(2)
    history.watch(ALICE, Watch(1, 30))
    history.add(30, [JOINED])
    assert list(history.answers()) == []

    history.add(40, [JOINED])

    assert list(history.answers()) == [(ALICE, Watched(1, -1, 40, (Event(40, JOINED),)))]


def test_the_oldest_events_are_forgotten_by_whole_positions() -> None:
    history = History()
    history.add(1, [JOINED] * 3)
    for position in range(2, EVENTS_MAX + 1):
        history.add(position, [JOINED])

    assert history.since == 1
    history.watch(ALICE, Watch(1, 0))
    ((_, told),) = history.answers()
    assert (told.since, told.events[0].position) == (1, 2)


def test_many_events_are_told_a_part_at_a_time_and_no_position_is_cut() -> None:
    history = History()
    for position in range(1, TOLD_MAX):
        history.add(position, [JOINED])
    history.add(1000, [JOINED] * 5)
    history.add(2000, [JOINED])

    history.watch(ALICE, Watch(1, -1))
    ((_, first),) = history.answers()
    history.watch(ALICE, Watch(2, first.upto))
    ((_, second),) = history.answers()

    assert (len(first.events), first.upto) == (TOLD_MAX - 1 + 5, 1000)
    assert (second.events, second.upto) == ((Event(2000, JOINED),), 2000)


def test_a_stream_over_two_supers_misses_nothing_and_repeats_nothing() -> None:
    one, other = full(5), full(9)
    one.watch(ALICE, Watch(1, -1))
    ((_, first),) = one.answers()

    other.watch(ALICE, Watch(2, first.upto))
    ((_, second),) = other.answers()

    assert [event.position for event in (*first.events, *second.events)] == [10 * n for n in range(1, 10)]


def test_not_more_wait_than_may() -> None:
    history = full(1)
    for number in range(WATCHERS_MAX + 10):
        history.watch(ProcessId("client", f"c{number}", 1), Watch(number, 10))

    told = list(history.answers())

    assert len(told) == 10
    assert all(not answer.events for _, answer in told)
