"""Processes that are asked to leave."""

from __future__ import annotations

from crescando.roles.messages import Retire, Retires
from crescando.routing.base import ExpelledEvent, NotStable, StableEvent
from crescando.routing.rubberband import Join, Leave
from tests.roles.stage import sent
from tests.roles.test_super import CLIENT, CONFIG, ME, Watch
from tests.routing.worlds import OUTSIDER


def ask(watch: Watch, request: int = 1) -> list[Retires]:
    watch.core.on_message(CLIENT, Retire(request), watch.now_s)
    return sent(watch.core.flush(watch.now_s), Retires, to=CLIENT)


def refuse(watch: Watch, number: int) -> list[Retires]:
    watch.multicast.events.append(StableEvent(number, (NotStable(number, "refused", "not now"),)))
    return sent(watch.core.flush(watch.now_s), Retires)


def test_it_leaves_once_however_often_it_is_asked() -> None:
    watch = Watch()

    assert ask(watch) == []
    assert ask(watch) == []

    assert watch.votes() == [Leave(ME)]
    assert watch.core.following.is_leaving


def test_a_refused_leave_is_told_with_its_reason_and_may_be_asked_for_again() -> None:
    watch = Watch()
    ask(watch, 7)

    assert refuse(watch, 1) == [Retires(7, "not now")]
    assert not watch.core.following.is_leaving
    assert refuse(watch, 1) == []

    assert ask(watch, 8) == []
    assert watch.votes() == [Leave(ME), Leave(ME)]
    assert refuse(watch, 2) == [Retires(8, "not now")]


def test_everybody_who_asked_is_told() -> None:
    watch = Watch()
    ask(watch, 7)
    watch.core.on_message(OUTSIDER, Retire(3), watch.now_s)

    assert sorted(told.request for told in refuse(watch, 1)) == [3, 7]


def test_one_that_has_not_joined_cannot_leave() -> None:
    watch = Watch(None)

    (told,) = ask(watch)

    assert "has not joined yet" in told.refusal
    assert watch.votes() == [Join(ME)]
    watch.deliver(ME, Join(ME), config=CONFIG.encode())
    watch.core.flush(watch.now_s)
    assert ask(watch) == []
    assert watch.votes() == [Join(ME), Leave(ME)]


def test_one_that_has_left_says_so_when_it_stops() -> None:
    watch = Watch()
    ask(watch)
    watch.multicast.events.append(ExpelledEvent(9, 1))

    assert watch.core.flush(watch.now_s).stop == "left the cluster at position 9"
