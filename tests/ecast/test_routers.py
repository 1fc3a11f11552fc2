"""Routers that come and go, as application processes and the other routers see it."""

from __future__ import annotations

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.fellows import CALL_S
from crescando.routing.ecast.messages import Hello, Pulse, Routers, Welcome
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import CreateTable, Rubberband
from crescando.types import ProcessId
from tests.ecast.parties import CONFIG, R1, R2, S0, ScriptedOrder, batch, configure, of, write
from tests.routing.worlds import schema

R3, R4, R5 = (ProcessId("router", f"r{n}", 1) for n in (3, 4, 5))


def led_router(*peers: ProcessId) -> tuple[Router[Rubberband], ScriptedOrder]:
    order = ScriptedOrder(R2, *peers)
    router: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=order)
    router.on_start(0.0)
    order.lead()
    router.flush(0.0)
    return router, order


def grow(order: ScriptedOrder, *members: ProcessId) -> None:
    """Let a change of the membership be learned."""
    order.membership = Membership(order.membership.number + 1, members)
    order.peers = tuple(member for member in members if member != order.me)
    order.output.membership = order.membership


def test_of_two_members_the_later_one_asks_for_the_session() -> None:
    order = ScriptedOrder(R2, R1, R3)
    order.membership = Membership(0, (R3, R2, R1))
    router: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=order)

    router.on_start(0.0)

    assert router.flush(0.0).connect == [R3]


def test_a_member_that_left_is_asked_for_since_it_may_not_know_whom_to_ask() -> None:
    order = ScriptedOrder(R2, R1, R3)
    order.membership = Membership(1, (R2, R1))
    router: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=order)

    router.on_start(0.0)

    assert router.flush(0.0).connect == [R3]


def test_one_that_is_no_member_asks_everybody() -> None:
    order = ScriptedOrder(R2, R1, R3)
    order.membership = Membership(0, (R1, R3))
    router: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=order)

    router.on_start(0.0)

    assert router.flush(0.0).connect == [R1, R3]


def test_a_process_is_told_the_routers_when_it_says_hello() -> None:
    router, _ = led_router(R1)
    router.on_connected(S0, 0.0)
    router.on_message(S0, Hello(), 0.0)

    sent = [message for to, message in router.flush(0.0).send if to == S0]

    assert [type(message) for message in sent[:2]] == [Welcome, Routers]
    assert Routers(0, 0, (R1, R2)) in sent


def test_everybody_is_told_of_a_change_and_the_new_router_asks_for_the_session() -> None:
    router, order = led_router(R1)
    router.on_connected(S0, 0.0)
    router.on_message(S0, Hello(), 0.0)
    router.flush(0.0)

    grow(order, R1, R2, R3)
    output = router.flush(0.1)

    assert (S0, Routers(0, 1, (R1, R2, R3))) in output.send
    assert R3 not in output.connect


def test_one_that_knows_no_leader_asks_everybody_it_has_no_session_with() -> None:
    order = ScriptedOrder(R2, R1, R3)
    router: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=order)
    router.on_start(0.0)
    router.on_connected(R1, 0.0)
    router.flush(0.0)

    assert router.flush(1.0).connect == [R3]

    order.depose(Ballot(1, R1))
    assert router.flush(2.0).connect == []


def test_a_router_that_left_is_not_asked_for_again() -> None:
    router, order = led_router(R1, R3)
    router.on_refused(R3, 0.0)
    grow(order, R1, R2)

    assert R3 not in router.flush(9.0).connect
    assert order.refused == [R3], "a refused session is the detector's business too"


def test_a_change_that_is_asked_for_resizes_the_group() -> None:
    router, order = led_router(R1)

    assert router.change_routers(add=R3) == ""

    assert order.wanted == [Change(0, add=R3, resizes=True)]


def test_a_router_stops_when_its_broadcast_does() -> None:
    router, order = led_router(R1)

    order.output.stop = "removed"

    assert router.flush(0.0).stop == "removed"


def test_the_digest_after_each_change_of_the_config_is_attested() -> None:
    router, order = led_router(R1)

    order.learn(batch(of(write(1), configure(2, CreateTable(schema("u"))))))
    order.learn(batch(of(write(3))))
    router.flush(0.0)

    assert order.attested == {1: router.mseq.config.digest()}


def test_a_process_keeps_sessions_with_whoever_the_routers_are() -> None:
    app = Application(S0, (R1, R2))
    app.on_start(0.0)
    app.flush(0.0)

    app.on_message(R1, Routers(0, 1, (R2, R3)), 0.0)

    assert app.flush(0.0).connect == [R3]
    app.on_disconnected(R1, 1.0)
    assert R1 not in app.flush(60.0).connect


def test_an_older_list_of_routers_loses() -> None:
    app = Application(S0, (R1,))
    app.on_message(R1, Routers(0, 4, (R1, R2)), 0.0)

    app.on_message(R2, Routers(0, 3, (R1, R3)), 0.0)
    app.on_message(R2, Routers(0, 4, (R3,)), 0.0)

    assert app.routers == (R1, R2)


def test_a_later_epoch_begins_its_list_anew() -> None:
    app = Application(S0, (R1,))
    app.on_message(R1, Routers(0, 4, (R1, R2)), 0.0)

    app.on_message(R2, Routers(1, 0, (R2,)), 0.0)
    app.on_message(R1, Routers(0, 9, (R1,)), 0.0)
    app.on_connected(R2, 0.0)

    assert app.routers == (R2,)
    assert (R2, Hello(1)) in app.flush(0.0).send


def test_a_router_of_an_epoch_that_is_over_welcomes_nobody_who_knows() -> None:
    router, _ = led_router(R1)
    router.on_connected(S0, 0.0)

    router.on_message(S0, Hello(1), 0.0)

    output = router.flush(0.0)
    assert output.reset == [S0]
    assert not [message for to, message in output.send if to == S0]


def test_a_leader_that_is_no_router_any_more_is_heard_until_its_session_ends() -> None:
    app = Application(S0, (R1, R2))
    app.on_message(R1, Routers(0, 1, (R2, R3)), 0.0)

    app.on_message(R1, Pulse(app.ballot, 7 << 20), 0.0)

    assert app.delivered == 7 << 20


def test_a_leader_calls_on_whom_something_waits_for_and_who_does_not_come() -> None:
    router, order = led_router(R1)
    order.learn(batch(of(write(1))))
    router.flush(0.0)
    assert router.flush(1.0).connect == []

    called = router.flush(2.5).connect

    assert set(called) == {process for process, box in router.window.outboxes.items() if box.entries}
    assert called
    assert router.flush(2.6).connect == []


def test_one_that_is_called_on_says_hello_to_a_router_it_never_heard_of() -> None:
    app = Application(S0, (R1,))

    app.on_connected(R3, 0.0)

    assert app.flush(0.0).send == [(R3, Hello(0))]


def test_a_leader_calls_on_former_members_one_after_the_other() -> None:
    router, order = led_router(R1)
    order.former = (R3, R4, R5)
    router.on_connected(R5, 0.0)

    called = [router.flush(CALL_S * turn).connect for turn in range(1, 5)]
    early = router.flush(CALL_S * 4 + CALL_S / 2).connect

    assert called == [[R3], [R4], [R3], [R4]], "not one with which there is a session"
    assert early == []


def test_a_former_member_that_refuses_is_not_asked_again_at_once() -> None:
    router, order = led_router(R1)
    order.former = (R3,)
    router.flush(CALL_S)

    router.on_refused(R3, CALL_S)

    assert [router.flush(CALL_S + late_s).connect for late_s in (0.1, 0.5, 1.0)] == [[], [], []]


def test_a_follower_calls_nobody() -> None:
    router, order = led_router(R1)
    order.former = (R3,)
    order.depose(Ballot(3, R1))

    assert [router.flush(CALL_S * turn).connect for turn in range(1, 4)] == [[], [], []]
