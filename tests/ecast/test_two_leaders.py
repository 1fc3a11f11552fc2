"""Two routers that both believe to lead: nothing is lost, doubled or out of order."""

from __future__ import annotations

import random

import pytest

from crescando.consensus.base import Ballot
from crescando.routing.base import StableEvent
from crescando.routing.batch import Delivery
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.messages import Batch, Fenced
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import Join, Rubberband
from crescando.types import ProcessId
from tests.ecast.parties import (
    CONFIG,
    OTHER,
    R1,
    R2,
    S0,
    S1,
    S2,
    Bench,
    ScriptedOrder,
    configure,
    of,
    point,
    write,
)
from tests.routing.worlds import CLIENT

ROUTERS = (R1, R2)


class SharedOrder:
    """Two scripted members of one order: what either proposes may be decided, at both."""

    def __init__(self) -> None:
        self.members = {router: ScriptedOrder(router) for router in ROUTERS}
        self.decided = 0

    def decide(self, router: ProcessId) -> None:
        value: Batch = self.members[router].open.popleft()
        self.decided += 1
        for member in self.members.values():
            member.learn(value)

    def drop(self, router: ProcessId) -> None:
        """A proposal that no majority ever votes for."""
        self.members[router].open.popleft()


def bench() -> tuple[Bench, SharedOrder]:
    order = SharedOrder()
    routers = [Router[Rubberband](me, config=CONFIG, broadcast=order.members[me]) for me in ROUTERS]
    apps = [Application(me, ROUTERS) for me in (CLIENT, OTHER, S0, S1, S2)]
    world = Bench(*routers, *apps)
    for app in apps:
        for router in ROUTERS:
            world.connect(app.me, router)
    world.settle()
    return world, order


def lead(world: Bench, order: SharedOrder, router: ProcessId, attempt: int) -> None:
    order.members[router].lead(attempt)
    world.turn(router)
    world.settle()


def delivered(world: Bench, me: ProcessId) -> list[tuple[int, ProcessId, int]]:
    return [
        (int(at), event.sender, int(number))
        for event in world.events[me]
        if isinstance(event, Delivery)
        for at, number in zip(event.position, event.number, strict=True)
    ]


def submit(world: Bench, number: int, me: ProcessId = CLIENT) -> None:
    world.cores[me].submit(of(write(number, sender=me)))
    world.turn(me)
    world.settle()


def decide(world: Bench, order: SharedOrder, router: ProcessId) -> None:
    order.decide(router)
    world.turn(*ROUTERS)
    world.settle()


def test_a_lower_leader_is_fenced_by_the_destinations_and_hears_the_higher_ballot() -> None:
    world, order = bench()
    lead(world, order, R1, 1)
    submit(world, 1)
    lead(world, order, R2, 2)

    decide(world, order, R1)

    for me in (S0, S1, S2):
        assert [number for _, _, number in delivered(world, me)] == [1]
    assert world.messages(Fenced, to=R1)
    assert not world.messages(Fenced, to=R2)
    assert order.members[R1].observed[0] == Ballot(2, R2)


def test_what_both_leaders_propose_is_delivered_once() -> None:
    world, order = bench()
    lead(world, order, R1, 1)
    submit(world, 1)
    lead(world, order, R2, 2)
    assert order.members[R2].open, "the new leader was sent it again"

    decide(world, order, R1)
    decide(world, order, R2)

    for me in (S0, S1, S2):
        assert [number for _, _, number in delivered(world, me)] == [1]
    assert CLIENT in world.cores[R1].mseq.learned


def test_what_a_deposed_leader_alone_had_is_sent_again_and_stays_in_order() -> None:
    world, order = bench()
    lead(world, order, R1, 1)
    submit(world, 1)
    submit(world, 2)
    order.drop(R1)
    lead(world, order, R2, 2)

    decide(world, order, R2)
    while order.members[R2].open:
        decide(world, order, R2)

    assert [number for _, _, number in delivered(world, S0)] == [1, 2]
    assert [e.upto for e in world.events[CLIENT] if isinstance(e, StableEvent)][-1] == 2


def test_a_late_decision_of_the_old_leader_behind_a_hole_is_skipped_until_sent_again() -> None:
    world, order = bench()
    lead(world, order, R1, 1)
    submit(world, 1)
    submit(world, 2)
    order.members[R1].propose(Batch((of(write(2)),)))
    order.drop(R1)
    lead(world, order, R2, 2)

    decide(world, order, R1)
    assert delivered(world, S0) == []
    while order.members[R2].open:
        decide(world, order, R2)

    assert [number for _, _, number in delivered(world, S0)] == [1, 2]


@pytest.mark.parametrize("seed", range(25))
def test_whatever_two_leaders_do_everything_is_delivered_once_in_one_order(seed: int) -> None:
    rng = random.Random(seed)
    world, order = bench()
    lead(world, order, R1, 1)
    attempt, submitted = 1, {CLIENT: 0, OTHER: 0}
    for _ in range(120):
        router, client = rng.choice(ROUTERS), rng.choice((CLIENT, OTHER))
        open_ = order.members[router].open
        match rng.choices(("submit", "decide", "drop", "usurp", "reset"), (40, 40, 3, 6, 6))[0]:
            case "submit":
                submitted[client] += 1
                submit(world, submitted[client], client)
            case "decide" if open_:
                decide(world, order, router)
            case "drop" if open_ and router != max(order.members.values(), key=lambda m: m.ballot).me:
                order.drop(router)
            case "usurp":
                attempt += 1
                lead(world, order, router, attempt)
            case "reset":
                app = rng.choice((CLIENT, OTHER, S0, S1, S2))
                world.disconnect(app, router)
                world.connect(app, router)
                world.settle()
    attempt += 1
    lead(world, order, R2, attempt)
    while order.members[R2].open:
        decide(world, order, R2)

    whole = delivered(world, S0)
    for client, n in submitted.items():
        assert [number for _, sender, number in whole if sender == client] == list(range(1, n + 1)), seed
        told = [event for event in world.events[client] if isinstance(event, StableEvent)]
        assert (told[-1].upto if told else 0) == n, seed
        assert not [exception for event in told for exception in event.exceptions], seed
    assert whole == sorted(whole)
    assert delivered(world, S1) == whole
    assert delivered(world, S2) == whole


def test_a_point_write_reaches_its_owners_only() -> None:
    world, order = bench()
    lead(world, order, R1, 1)
    world.cores[CLIENT].submit(of(write(1, point(S0, S1))))
    world.turn(CLIENT)
    world.settle()

    decide(world, order, R1)

    assert [len(delivered(world, me)) for me in (S0, S1, S2)] == [1, 1, 0]


def test_a_join_that_fell_into_a_hole_is_sent_again_with_what_followed_it() -> None:
    world, order = bench()
    newcomer = Application(ProcessId("client", "new", 1), ROUTERS)
    world.cores[newcomer.me] = newcomer
    world.events[newcomer.me] = []
    for router in ROUTERS:
        world.connect(newcomer.me, router)
    newcomer.submit(of(configure(1, Join(newcomer.me), sender=newcomer.me)))
    newcomer.submit(of(write(2, sender=newcomer.me)))
    # What the old leader proposed behind a hole is found and proposed again by the new one.
    order.members[R2].open.append(Batch((of(write(2, sender=newcomer.me)),)))
    lead(world, order, R2, 2)

    while order.members[R2].open:
        decide(world, order, R2)

    assert world.cores[R2].mseq.learned[newcomer.me] == 2
    assert [number for _, sender, number in delivered(world, S0) if sender == newcomer.me] == [1, 2]
