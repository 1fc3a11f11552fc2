"""What a router keeps of processes that are no members: nothing for ever, and each gets a last answer."""

from __future__ import annotations

import pytest

from crescando.routing.base import ExpelledEvent
from crescando.routing.ecast import mseq as mseq_module
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.messages import Expelled, Pulse, Route, Stable, StableUpTo, Welcome
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import Join, Leave, Suspect
from crescando.types import NO_POSITION, ProcessId, position
from tests.ecast.parties import (
    CONFIG,
    OTHER,
    R1,
    R2,
    S0,
    U0,
    Bench,
    ScriptedOrder,
    batch,
    configure,
    of,
    write,
)
from tests.ecast.test_router import Desk, to
from tests.routing.worlds import CLIENT

STRANGER = ProcessId("client", "stranger")


def pulse(desk: Desk) -> list[object]:
    """Let one sign of life be due; gives everything sent."""
    desk.now_s += desk.router.limits.pulse_s
    return list(desk.flush().send)


def forget_departed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many clients leave after OTHER that nobody knows when it left."""
    monkeypatch.setattr(mseq_module, "DEPARTED_MAX", 2)
    desk.order_now(of(configure(1, Suspect(OTHER), sender=U0)))
    for n in range(3):
        passing = ProcessId("client", f"passing{n}")
        desk.hello(passing)
        messages = configure(1, Join(passing), sender=passing), configure(2, Leave(passing), sender=passing)
        desk.order_now(of(*messages))
    assert OTHER not in desk.router.mseq.departed


# Outboxes and verdicts.


def test_nothing_is_kept_of_one_that_came_and_never_became_a_member() -> None:
    desk = Desk()
    for n in range(50):
        passing = ProcessId("client", f"passing{n}")
        desk.hello(passing)
        desk.resume(passing)
        assert passing in desk.router.window.outboxes
        desk.router.on_disconnected(passing, desk.now_s)

    pulse(desk)

    assert not [process for process in desk.router.window.outboxes if process.node.startswith("passing")]


def test_what_a_member_must_have_had_is_remembered_while_it_is_away() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1)))
    for peer in (S0, OTHER):
        desk.router.on_disconnected(peer, desk.now_s)

    pulse(desk)

    assert S0 in desk.router.window.outboxes
    assert desk.router.window.outboxes[S0].entries


def test_a_follower_keeps_no_outbox_of_who_is_no_member() -> None:
    desk = Desk(leads=False)
    desk.router.on_disconnected(S0, 0.0)
    desk.order.learn(batch(of(configure(1, Suspect(S0), sender=U0))))
    desk.flush()

    # Said before the leader had learned that, and come late.
    desk.take(R2, StableUpTo(1, (), trimmed=((S0, 0), (STRANGER, 0))))

    assert not {S0, STRANGER} & desk.router.window.outboxes.keys()


def test_a_follower_forgets_what_was_lost_when_its_sender_says_so_or_is_gone() -> None:
    desk = Desk(leads=False)
    desk.order.learn(batch(of(write(1), write(2))))
    desk.take(R2, StableUpTo(1, ((CLIENT, 1), (CLIENT, 2), (STRANGER, 5))))
    assert desk.router.window.lost == {CLIENT: {1, 2}}, "nobody will ask for the stranger's"

    desk.order.learn(batch(of(write(3), acknowledged=1)))
    desk.flush()
    assert desk.router.window.lost == {CLIENT: {2}}
    desk.order.learn(batch(of(write(4), acknowledged=3)))
    desk.flush()

    assert not desk.router.window.lost


# One of whom it is forgotten when it left.


@pytest.mark.parametrize("acknowledged", [1, 40])
def test_a_former_member_that_is_forgotten_is_told_that_it_is_none(
    acknowledged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    forget_departed(desk, monkeypatch)

    output = desk.take(OTHER, Route(of(write(acknowledged + 1, sender=OTHER), acknowledged=acknowledged)))

    assert to(output, OTHER, Expelled) == [Expelled(desk.router.mseq.position, 0)]
    assert not to(output, OTHER, Welcome)


def test_a_silent_former_member_that_is_forgotten_is_told_so_with_the_next_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    forget_departed(desk, monkeypatch)
    desk.resume(OTHER, at=position(1, 0))

    first, second = pulse(desk), pulse(desk)

    assert [m for peer, m in first if peer == OTHER] == [Expelled(desk.router.mseq.position, 0)]
    assert not [m for peer, m in second if peer == OTHER], "once is enough"


def test_one_that_has_yet_to_join_is_not_taken_for_a_former_member() -> None:
    desk = Desk()
    desk.hello(STRANGER)
    desk.resume(STRANGER)

    (waiting,) = [m for peer, m in pulse(desk) if peer == STRANGER]
    assert isinstance(waiting, Pulse)
    assert waiting.idle == NO_POSITION, "it would look like a former member ever after"
    output = desk.take(STRANGER, Route(of(write(2, sender=STRANGER))))

    assert [m.learned for m in to(output, STRANGER, Welcome)] == [0]


def test_a_leader_that_has_not_learned_everything_yet_takes_nobody_for_forgotten() -> None:
    desk = Desk(leads=False)
    desk.order.open.append(batch(of(configure(1, Join(STRANGER), sender=STRANGER))))
    desk.order.lead()
    desk.flush()
    desk.hello(STRANGER)

    output = desk.take(STRANGER, Route(of(write(9, sender=STRANGER), acknowledged=8)))

    assert to(output, STRANGER, Welcome)
    assert not to(output, STRANGER, Expelled)


def test_the_conversation_with_a_forgotten_former_member_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mseq_module, "DEPARTED_MAX", 0)
    order = ScriptedOrder(R1)
    bench = Bench(Router(R1, config=CONFIG, broadcast=order), client := Application(OTHER, (R1,)))
    order.lead(1)
    bench.connect(OTHER, R1)
    client.submit(of(write(1, sender=OTHER)))
    bench.turn(OTHER)
    bench.settle()
    order.decide()
    client.on_message(R1, Stable(1, ()), 0.0)
    bench.disconnect(OTHER, R1)
    order.learn(batch(of(configure(1, Suspect(OTHER), sender=U0))))
    bench.turn(R1)

    client.submit(of(write(2, sender=OTHER), acknowledged=1))
    bench.connect(OTHER, R1)
    for _ in range(100):
        for a, b in [link for link, waiting in bench.links.items() if waiting]:
            bench.cores[b].on_message(a, bench.links[a, b].popleft(), 0.0)
            bench.turn(b)

    assert not any(bench.links.values()), "they still talk"
    assert type(bench.events[OTHER][-1]) is ExpelledEvent


def test_a_former_member_that_is_forgotten_does_not_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was ever acknowledged to it: it sends its join again, and all behind it."""
    desk = Desk()
    late = ProcessId("client", "late")
    sent = of(configure(1, Join(late), sender=late), write(2, sender=late))
    desk.hello(late)
    desk.order_now(sent)
    monkeypatch.setattr(mseq_module, "DEPARTED_MAX", 2)
    desk.order_now(of(configure(1, Suspect(late), sender=U0)))
    for n in range(3):
        passing = ProcessId("client", f"passing{n}")
        desk.hello(passing)
        messages = configure(1, Join(passing), sender=passing), configure(2, Leave(passing), sender=passing)
        desk.order_now(of(*messages))
    assert late not in desk.router.mseq.departed
    desk.hello(late)
    desk.resume(late, at=position(1, 0))
    n_proposed = len(desk.order.proposed)

    output = desk.route(sent)

    assert len(desk.order.proposed) == n_proposed
    assert to(output, late, Expelled) == [Expelled(desk.router.mseq.position, 0)]
