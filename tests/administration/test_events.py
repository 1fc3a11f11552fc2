"""The chronicle that an administrator keeps, whichever supers answer and whatever they still know."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from crescando.administration.events import KEPT_MAX, Chronicle, EventStream, Missed, told
from crescando.errors import ClosedError, CrescandoError
from crescando.roles.history import EVENTS_MAX, History
from crescando.roles.messages import Watched
from crescando.routing.rubberband.happenings import Dropped, Ended, Event, Happening, Joined, TableChanged
from crescando.routing.rubberband.messages import MessageId
from crescando.types import ProcessId

U1, U2, U3 = (ProcessId("super", f"u{n}", 1) for n in (1, 2, 3))
CLIENT = ProcessId("client", "administration", 1)


class Scripted:
    """A client's sessions with supers, whose answers a test gives."""

    is_over = False

    def __init__(self, *supers: ProcessId) -> None:
        self.core = SimpleNamespace(supers=set(supers))
        self.open: dict[ProcessId, tuple[Any, Future[Any]]] = {}
        self.ticks: deque[Callable[[], None]] = deque()
        self.chronicle = Chronicle(lambda: self)  # type: ignore[arg-type, return-value]
        self.chronicle.start()
        self.tick()

    def ask(self, process: ProcessId, question: Callable[[int], Any]) -> Future[Any]:
        assert process not in self.open, "one question at a time"
        future: Future[Any] = Future()
        if process in self.core.supers:
            self.open[process] = (question(1), future)
        else:
            future.set_exception(CrescandoError("no session"))
        return future

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.ticks.append(callback)

    def tick(self) -> None:
        self.ticks.popleft()()

    def tell(self, process: ProcessId, *events: Event, since: int = -1, upto: int | None = None) -> None:
        question, future = self.open.pop(process)
        last = events[-1].position if events else question.after
        future.set_result(Watched(1, since, last if upto is None else upto, events))

    def die(self, process: ProcessId) -> None:
        self.core.supers.discard(process)
        _, future = self.open.pop(process)
        future.set_exception(CrescandoError("went away"))

    def seen(self, after: int = -1) -> list[tuple[int, object]]:
        found, _ = self.chronicle.after(after)
        return [(event.position, event.what) for event in found]


def made(position: int) -> Event:
    return Event(position, TableChanged(f"t{position}", "created"))


def pairs(*positions: int) -> list[tuple[int, object]]:
    return [(position, made(position).what) for position in positions]


def test_of_equal_answers_the_first_one_is_heard() -> None:
    world = Scripted(U1, U2)
    world.tell(U2, made(3), made(5))
    world.tell(U1, made(3))

    assert world.seen() == pairs(3, 5)
    assert world.open[U1][0].after == world.open[U2][0].after == 5
    world.tell(U1, made(9))
    world.tell(U2, made(9), made(12))
    assert world.seen(5) == pairs(9, 12)


def test_a_super_that_hangs_or_dies_takes_nothing_away() -> None:
    world = Scripted(U1, U2, U3)
    world.tell(U1, made(3))
    world.die(U1)
    # U2 hangs: its question stays open.
    world.tell(U3, made(3), made(4))
    world.core.supers.add(U1)
    world.tick()

    assert world.seen() == pairs(3, 4)
    assert world.open[U1][0].after == 4


def test_what_one_super_forgot_another_may_know() -> None:
    world = Scripted(U1, U2)
    world.tell(U1, made(9), since=7)
    assert world.seen() == []
    world.tell(U2, made(3), made(9))

    assert world.seen() == pairs(3, 9)


def test_what_nobody_knows_any_more_is_told() -> None:
    world = Scripted(U1, U2)
    world.tell(U1, made(9), since=7)
    world.tell(U2, made(6), made(9), since=5)

    assert world.seen() == [(5, Missed(-1))]
    world.tick()
    world.tell(U2, made(6), made(9), since=5)
    assert world.seen() == [(5, Missed(-1)), *pairs(6, 9)]


def test_a_reader_that_is_too_slow_is_told_so() -> None:
    world = Scripted(U1)
    for first in range(0, KEPT_MAX + 100, 50):
        world.tell(U1, *map(made, range(first, first + 50)))

    found = world.seen(10)

    assert len(found) <= KEPT_MAX + 1
    first, missed = found[0]
    assert missed == Missed(10)
    assert found[1:] == pairs(*range(first + 1, first + len(found)))


def test_who_stops_in_the_middle_of_a_position_goes_on_without_missing_the_rest() -> None:
    client = Scripted(U1)
    together = [Event(2, TableChanged(name, "dropped")) for name in ("x", "y", "z")]
    client.tell(U1, made(1), *together, made(3))
    desk: Any = SimpleNamespace(check_process=lambda: None)
    everything = [made(1).what, *(each.what for each in together), made(3).what]
    for n_seen in range(1, len(everything)):
        stream = EventStream(desk, client.chronicle, -1, 60.0)
        seen = [next(stream).what for _ in range(n_seen)]
        again = EventStream(desk, client.chronicle, stream.position, 60.0)
        rest = []
        while everything[-1] not in rest:
            rest.append(next(again).what)

        assert [*seen, *(each for each in rest if each not in seen)] == everything


def test_how_a_change_ended_is_known() -> None:
    world = Scripted(U1)
    first, second = MessageId(CLIENT, 1), MessageId(CLIENT, 2)
    assert world.chronicle.conclusion(first) is None

    world.tell(U1, Event(3, Ended(first)), Event(5, Dropped(second, "why not")))

    done, dropped = world.chronicle.conclusion(first), world.chronicle.conclusion(second)
    assert done is not None
    assert (done.position, done.what) == (3, Ended(first))
    assert dropped is not None
    assert told(dropped.what) == "change 2 of client/administration#1 is dropped: why not"


def test_whoever_waits_is_woken_and_the_end_ends_all() -> None:
    world = Scripted(U1)
    _, changed = world.chronicle.after(-1)
    world.tell(U1, made(1))
    assert changed.done()

    _, changed = world.chronicle.after(1)
    assert not changed.done()
    world.chronicle.close()
    assert changed.done()
    with pytest.raises(ClosedError):
        world.chronicle.after(1)
    assert world.seen() == pairs(1), "what is known can be read yet"


@pytest.mark.parametrize("seed", range(20))
def test_with_real_histories_nothing_is_missed_or_told_twice(seed: int) -> None:
    rng = random.Random(seed)
    world = Scripted(U1, U2, U3)
    histories = {process: History() for process in (U1, U2, U3)}
    heard = dict.fromkeys(histories, 0)
    order: list[tuple[int, tuple[Happening, ...]]] = []
    seen: list[tuple[int, object]] = []
    for n in range(400):
        what = tuple(Joined(ProcessId("storage", f"s{n}", m)) for m in range(rng.choice((0, 1, 1, 2))))
        order.append((3 * n, what))
        for process, history in histories.items():
            # Supers follow at their own pace; at any time one of them is near the end.
            while heard[process] < len(order) and (process == U1 or rng.random() < 0.4):
                history.add(*order[heard[process]])
                heard[process] += 1
            if process in world.open and process in world.core.supers and rng.random() < 0.7:
                history.watch(CLIENT, world.open[process][0])
                for _, answer in history.answers():
                    _, future = world.open.pop(process)
                    future.set_result(answer)
        if rng.random() < 0.05:
            world.tick()
        seen += world.seen(seen[-1][0] if seen else -1)
    world.tick()
    for process in histories:
        while heard[process] < len(order):
            histories[process].add(*order[heard[process]])
            heard[process] += 1
        while process in world.open:
            histories[process].watch(CLIENT, world.open[process][0])
            answers = list(histories[process].answers())
            if not answers:
                break
            world.open.pop(process)[1].set_result(answers[0][1])
    seen += world.seen(seen[-1][0] if seen else -1)

    assert len(seen) < EVENTS_MAX
    assert seen == [(position, event) for position, what in order for event in what]
