"""When a client hopes no more: what routers say, and what they leave unsaid."""

from __future__ import annotations

from crescando.consensus.base import Ballot
from crescando.errors import NoQuorumError
from crescando.roles.limits import ClientLimits
from crescando.roles.quorum import QuorumWatch
from crescando.routing.base import ExpelledEvent
from crescando.routing.ecast.messages import Pulse, Quorum
from crescando.types import ProcessId
from tests.roles.test_client import ROUTER, Desk
from tests.roles.test_storage import add, read_all

OTHER = ProcessId("router", "r2", 1)
PULSE = Pulse(Ballot(1, ROUTER), 0, 1000)


def watch_of(*routers: ProcessId) -> QuorumWatch:
    watch = QuorumWatch(2.0, 10.0)
    for router in routers:
        watch.on_connected(router)
    assert not watch.look(0.0)
    return watch


def look_until(watch: QuorumWatch, now_s: float, end_s: float) -> bool:
    """Look whenever the watch asks for it."""
    while watch.wake_at_s is not None and watch.wake_at_s <= end_s:
        now_s = watch.wake_at_s
        watch.look(now_s)
    return watch.look(end_s)


def test_a_router_that_hangs_is_not_hoped_for_without_end() -> None:
    watch = watch_of(ROUTER, OTHER)
    watch.on_quorum(OTHER, is_there=False)

    assert not look_until(watch, 0.0, 9.9)
    assert look_until(watch, 9.9, 10.1)

    assert "has said anything for 10 s" in str(watch.error("no"))
    watch.hear(ROUTER)
    assert not watch.look(10.2)


def test_a_leader_that_speaks_is_hoped_for() -> None:
    watch = watch_of(ROUTER, OTHER)
    watch.on_quorum(OTHER, is_there=False)

    for second in range(1, 100):
        watch.hear(ROUTER)
        assert not look_until(watch, second - 1.0, float(second))


def test_one_that_says_there_is_no_leader_gives_no_hope_by_speaking() -> None:
    watch = watch_of(ROUTER, OTHER)
    watch.on_quorum(OTHER, is_there=False)

    for second in range(1, 12):
        watch.hear(OTHER)
        look_until(watch, second - 1.0, float(second))

    assert watch.is_lost


def test_a_pause_of_its_own_is_no_silence_of_the_routers() -> None:
    watch = watch_of(ROUTER)

    assert not watch.look(1000.0)
    assert not watch.look(1001.0)


def test_without_a_router_that_speaks_everything_ends_though_the_sessions_last() -> None:
    desk = Desk(ClientLimits(silence_s=10.0))
    desk.core.on_connected(ROUTER, 0.0)
    desk.ask(add(1, 1), read_all())

    for _ in range(30):
        wake_at_s = desk.flush().wake_at_s
        assert wake_at_s is not None or desk.outcome(2) is not None
        desk.now_s += 0.5

    assert [desk.outcome(token).applied for token in (2, 3)] == ["unknown", "no"]
    assert isinstance(desk.outcome(2), NoQuorumError)
    desk.tell(ROUTER, PULSE)
    desk.ask(add(2, 2))
    assert desk.numbers()[-1] == [4], "it is taken again"


def test_whoever_waits_for_nothing_does_not_wake_to_listen() -> None:
    desk = Desk()
    desk.core.on_connected(ROUTER, 0.0)

    assert desk.flush().wake_at_s is None


def test_a_leader_speaks_no_more_to_one_that_was_expelled() -> None:
    desk = Desk(ClientLimits(silence_s=1.0))
    desk.core.on_connected(ROUTER, 0.0)
    desk.ask(add(1, 1))
    desk.multicast.events.append(ExpelledEvent(500, 2))
    desk.flush()

    for _ in range(10):
        desk.pass_time(0.5)

    assert desk.outcome(2) is None
    desk.tell(ROUTER, Quorum(False))
    assert isinstance(desk.outcome(2), NoQuorumError)
