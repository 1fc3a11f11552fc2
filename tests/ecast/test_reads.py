"""Snapshot reads through the lead router: positions, holding back, avoiding, refusing (RB13 §6.7)."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.routing.base import ReadsEvent
from crescando.routing.batch import HEADER_BYTES, Delivery, gather, submission
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import (
    Confirm,
    Deliver,
    DeliverRead,
    Fenced,
    Hello,
    Inject,
    Quorum,
    ReadRefused,
    Resume,
    Route,
    Welcome,
)
from crescando.routing.ecast.router import Router
from crescando.routing.ecast.snapshot import take_snapshot
from crescando.types import FULL_RING, KeyRange, ProcessId, position
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
    batch,
    of,
    point,
    read,
    write,
)
from tests.routing.worlds import CLIENT

STORAGES = (S0, S1, S2)


class Stage:
    """A router with an order that the test decides, and sessions with everybody."""

    def __init__(self, limits: RouterLimits | None = None) -> None:
        self.order = ScriptedOrder(R1)
        self.is_backed = True
        self.order.is_backed = lambda now_s: self.order.is_leader and self.is_backed  # type: ignore[method-assign]
        self.router = Router(R1, config=CONFIG, broadcast=self.order, limits=limits)
        self.now_s = 0.0
        self.sent: list[tuple[ProcessId, Any]] = []
        self.router.on_start(0.0)
        for peer in (CLIENT, OTHER, *STORAGES):
            self.router.on_connected(peer, 0.0)
            self.tell(peer, Hello())

    def lead(self) -> None:
        self.order.lead()
        self.flush()
        for storage in STORAGES:
            self.tell(storage, Resume(self.order.ballot, -1, -1))

    def tell(self, peer: ProcessId, message: Any) -> None:
        self.router.on_message(peer, message, self.now_s)
        self.flush()

    def flush(self) -> None:
        self.sent += self.router.flush(self.now_s).send

    def learn(self, *messages: Any) -> None:
        self.order.learn(batch(of(*messages)))
        self.flush()

    def ask(
        self, *ranges: KeyRange, first: int = 1, seen: int = -1, written: int = 0, client: Any = CLIENT
    ) -> None:
        messages = [read(number, at, sender=client) for number, at in enumerate(ranges, first)]
        self.tell(client, Inject(submission(messages), seen, written))

    def of(self, kind: type[Any], *, to: ProcessId | None = None) -> list[Any]:
        return [message for peer, message in self.sent if isinstance(message, kind) and to in (None, peer)]

    def destinations(self) -> set[ProcessId]:
        return {peer for peer, message in self.sent if isinstance(message, DeliverRead)}


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.lead()
    return stage


def test_a_read_runs_at_the_position_reached_behind_all_that_lies_before(stage: Stage) -> None:
    stage.learn(write(1), write(2))

    stage.ask(FULL_RING)

    delivered = [m for peer, m in stage.sent if peer == S0 and isinstance(m, Deliver | DeliverRead)]
    assert {m.position for m in stage.of(DeliverRead)} == {position(1, 1)}
    if S0 in stage.destinations():
        assert [type(m) for m in delivered] == [Deliver, DeliverRead]
        assert delivered[1].previous == delivered[0].last


def test_the_scopes_of_a_read_cover_what_it_asks_for(stage: Stage) -> None:
    stage.ask(FULL_RING)

    scopes = [part.scope_of(0) for message in stage.of(DeliverRead) for part in message.parts]

    pieces = sorted(piece for scope in scopes for piece in scope)
    assert pieces[0].low == 0
    assert pieces[-1].high == FULL_RING.high
    assert all(a.high + 1 == b.low for a, b in itertools.pairwise(pieces))


def test_the_reads_of_a_turn_are_one_message_a_destination(stage: Stage) -> None:
    router = stage.router
    for client in (CLIENT, OTHER):
        asked = submission([read(number, sender=client) for number in range(1, 50)])
        router.on_message(client, Inject(asked, -1, 0), 0.0)
    stage.flush()

    for storage in stage.destinations():
        (message,) = stage.of(DeliverRead, to=storage)
        assert {part.sender for part in message.parts} == {CLIENT, OTHER}
    assert sum(len(p) for m in stage.of(DeliverRead) for p in m.parts) >= 98


def test_a_read_waits_for_what_its_session_has_seen_and_written(stage: Stage) -> None:
    stage.ask(FULL_RING, first=1, seen=position(1, 0))
    stage.ask(FULL_RING, first=2, written=1, client=OTHER)
    assert not stage.of(DeliverRead)

    stage.learn(write(1))
    first = [p.sender for m in stage.of(DeliverRead) for p in m.parts]
    stage.learn(write(1, sender=OTHER))

    assert set(first) == {CLIENT}
    assert {m.position for m in stage.of(DeliverRead)} == {position(1, 0), position(2, 0)}


def test_a_leader_that_no_majority_backs_answers_nothing(stage: Stage) -> None:
    stage.order.answers = False

    stage.ask(FULL_RING)
    assert not stage.of(DeliverRead)
    assert not stage.of(ReadRefused)
    stage.now_s += stage.router.limits.leaderless_s
    stage.flush()

    (refused,) = stage.of(ReadRefused, to=CLIENT)
    assert refused.numbers == (1,)
    assert not refused.is_final
    assert not stage.of(DeliverRead)


def test_a_read_waits_for_answers_that_take_most_of_an_election_time(stage: Stage) -> None:
    stage.order.answers = False

    stage.ask(FULL_RING)
    # One round was under way when the read came, and the next takes as long.
    stage.now_s += 2 * 0.99 * PaxosTiming().election_s
    stage.flush()
    stage.order.answered = stage.order.round
    stage.flush()

    assert not stage.of(ReadRefused)
    assert stage.of(DeliverRead)


def test_what_was_asked_before_a_read_came_proves_nothing_for_it(stage: Stage) -> None:
    stage.order.answers = False
    stage.order.begin_round(stage.now_s)

    stage.ask(FULL_RING)
    stage.order.answered = stage.order.round
    stage.flush()
    held = list(stage.of(DeliverRead))
    stage.order.answered = stage.order.round
    stage.flush()

    assert not held
    assert stage.of(DeliverRead)


def test_reads_that_come_while_a_round_is_open_share_the_next_one(stage: Stage) -> None:
    stage.order.answers = False
    before = stage.order.round
    for number in range(1, 6):
        stage.ask(FULL_RING, first=number)
    rounds = [stage.order.round - before]
    for _ in range(2):
        stage.order.answered = stage.order.round
        stage.flush()
        rounds.append(stage.order.round - before)
    stage.flush()

    assert rounds == [1, 2, 2]
    assert len(stage.of(DeliverRead, to=S0)) <= 2
    numbers = {n for m in stage.of(DeliverRead) for part in m.parts for n in part.number.tolist()}
    assert numbers == {1, 2, 3, 4, 5}


def test_a_new_leader_first_learns_what_its_predecessors_may_have_decided() -> None:
    stage = Stage()
    stage.order.open.append(batch(of(write(1))))
    stage.lead()

    stage.ask(FULL_RING)
    held = list(stage.of(DeliverRead))
    stage.order.decide()
    stage.flush()

    assert not held
    assert {m.position for m in stage.of(DeliverRead)} == {position(1, 0)}


def test_own_proposals_do_not_hold_reads_up(stage: Stage) -> None:
    stage.tell(CLIENT, Route(of(write(1))))
    assert stage.order.n_open

    stage.ask(FULL_RING)

    assert stage.of(DeliverRead)


def test_a_router_that_does_not_lead_refuses_at_once() -> None:
    stage = Stage()

    stage.ask(FULL_RING, FULL_RING)

    assert [m.numbers for m in stage.of(ReadRefused, to=CLIENT)] == [(1, 2)]


def test_a_destination_without_a_session_is_avoided(stage: Stage) -> None:
    stage.router.on_disconnected(S0, 0.0)

    for number in range(1, 9):
        stage.ask(point(S0, S1), first=number)

    assert stage.destinations() == {S1}


def test_a_read_that_nobody_can_serve_is_refused_and_may_be_tried_again(stage: Stage) -> None:
    for storage in (S0, S1):
        stage.router.on_disconnected(storage, 0.0)

    stage.ask(point(S0, S1), point(S1, S2))

    (refused,) = stage.of(ReadRefused)
    assert refused.numbers == (1,)
    assert not refused.is_final
    assert stage.destinations() == {S2}


def test_a_refusal_of_the_config_is_final(stage: Stage) -> None:
    bad = write(1, table=9)
    message = submission([read(1)])
    asked = msgspec.structs.replace(message, table=np.array([bad.table], np.int64))
    stage.tell(CLIENT, Inject(asked, -1, 0))

    (refused,) = stage.of(ReadRefused)
    assert refused.is_final
    assert "9" in refused.reason


@pytest.mark.parametrize("kind", [write, "foreign"])
def test_what_is_no_honest_read_ends_the_session(stage: Stage, kind: Any) -> None:
    asked = submission([write(1)]) if kind is write else submission([read(1, sender=OTHER)])

    stage.router.on_message(CLIENT, Inject(asked, -1, 0), 0.0)

    assert CLIENT in stage.router.flush(0.0).reset
    assert not stage.of(DeliverRead)


def test_reads_wait_in_the_stream_of_a_destination_whose_credit_is_used_up() -> None:
    stage = Stage(RouterLimits(credit_bytes=1))
    stage.lead()
    for number in (1, 2, 3):
        stage.learn(write(number, point(S0, S1)))
    stage.ask(point(S0, S1))
    assert not stage.of(DeliverRead)
    stage.learn(write(4, point(S0, S1)))

    for instance in range(1, 5):
        for storage in (S0, S1):
            stage.tell(storage, Confirm(position(instance, 0)))

    (server,) = stage.destinations()
    stream = [m for p, m in stage.sent if p == server and isinstance(m, Deliver | DeliverRead)]
    assert [m.last if isinstance(m, Deliver) else "read" for m in stream] == [
        *(position(instance, 0) for instance in (1, 2, 3)),
        "read",
        position(4, 0),
    ]


def test_what_waits_for_a_destination_is_refused_when_its_session_ends() -> None:
    stage = Stage(RouterLimits(credit_bytes=1))
    stage.lead()
    for number in (1, 2, 3):
        stage.learn(write(number, point(S0, S1)))
    stage.ask(point(S0, S1))

    for storage in (S0, S1):
        stage.router.on_disconnected(storage, 0.0)
    stage.flush()

    assert [m.numbers for m in stage.of(ReadRefused)] == [(1,)]


def test_what_is_held_is_refused_when_the_leadership_ends(stage: Stage) -> None:
    stage.ask(FULL_RING, seen=1 << 40)

    stage.order.depose(Ballot(9, R2))
    stage.flush()

    assert [m.numbers for m in stage.of(ReadRefused)] == [(1,)]


@pytest.mark.parametrize(
    ("limits", "is_for_all"),
    [
        (RouterLimits(client_reads=3), False),
        (RouterLimits(client_read_bytes=4 * HEADER_BYTES), False),
        (RouterLimits(reads=2), True),
        (RouterLimits(read_bytes=4 * HEADER_BYTES), True),
    ],
)
def test_what_is_held_is_bounded_of_each_client_and_of_all(limits: RouterLimits, is_for_all: bool) -> None:
    stage = Stage(limits)
    stage.lead()

    stage.ask(FULL_RING, FULL_RING, first=1, seen=1 << 40)
    stage.ask(FULL_RING, FULL_RING, first=3, seen=1 << 40)
    stage.ask(FULL_RING, first=1, seen=1 << 40, client=OTHER)

    refused = stage.of(ReadRefused)
    assert [message.numbers for message in refused] == [(3, 4)] + [(1,)] * is_for_all
    assert all(message.pauses and not message.is_final for message in refused)


@pytest.mark.parametrize("limits", [RouterLimits(reads=12), RouterLimits(read_bytes=24 * HEADER_BYTES)])
def test_a_client_whose_reads_are_stuck_leaves_room_for_others(limits: RouterLimits) -> None:
    stage = Stage(limits)
    stage.lead()

    for number in range(1, 30):
        stage.ask(FULL_RING, first=number, seen=1 << 40)
    n_stuck = stage.router.reads.allowance.n_reads
    stage.ask(FULL_RING, client=OTHER)

    assert n_stuck == 6
    assert not stage.of(ReadRefused, to=OTHER)
    assert stage.of(DeliverRead)


def test_one_message_larger_than_a_clients_share_is_taken_if_it_has_nothing_else() -> None:
    stage = Stage(RouterLimits(client_reads=1, client_read_bytes=1))
    stage.lead()

    stage.ask(FULL_RING, FULL_RING)
    stage.ask(FULL_RING, FULL_RING, first=3)

    assert not stage.of(ReadRefused)
    assert len(stage.router.reads.allowance) == 0


def crowded_stage(limits: RouterLimits) -> Stage:
    """A router that may send nothing more to the owners of one range."""
    stage = Stage(limits)
    stage.lead()
    for number in (1, 2, 3):
        stage.learn(write(number, point(S0, S1)))
    return stage


def test_reads_that_wait_for_a_destination_count_until_they_are_sent() -> None:
    stage = crowded_stage(RouterLimits(credit_bytes=1, client_reads=2))
    for number in (1, 2, 3):
        stage.ask(point(S0, S1), first=number)
    stage.ask(point(S0, S1), client=OTHER)
    refused = [m.numbers for m in stage.of(ReadRefused)]

    for instance in (1, 2, 3):
        for storage in (S0, S1):
            stage.tell(storage, Confirm(position(instance, 0)))
    stage.ask(point(S0, S1), first=4)

    assert refused == [(3,)]
    assert len(stage.of(ReadRefused)) == 1
    assert (stage.router.reads.allowance.n_reads, stage.router.reads.allowance.n_bytes) == (0, 0)


def test_what_waits_for_one_destination_is_bounded_and_holds_up_nothing_for_others() -> None:
    room = 3 * HEADER_BYTES
    stage = crowded_stage(RouterLimits(credit_bytes=1, queued_read_bytes=room))
    router = stage.router
    for number in range(1, 41):
        # All in one turn: each must see what those before it have taken.
        router.on_message(CLIENT, Inject(submission([read(number, point(S0, S1))]), -1, 0), 0.0)
    stage.flush()
    stage.ask(point(S1, S2), first=99)

    refused = stage.of(ReadRefused)
    assert router.reads.allowance.n_bytes <= 2 * (room + 2 * HEADER_BYTES)
    assert len(refused) == 40 - router.reads.allowance.n_reads
    assert not any(message.is_final or message.pauses for message in refused)
    assert S2 in stage.destinations()


@pytest.mark.parametrize("how", ["client", "destination", "leadership"])
def test_what_is_given_up_counts_no_more(how: str) -> None:
    stage = crowded_stage(RouterLimits(credit_bytes=1))
    stage.ask(point(S0, S1), first=1)
    stage.ask(point(S0, S1), first=2, seen=1 << 40)
    assert stage.router.reads.allowance.n_reads == 2

    if how == "leadership":
        stage.order.depose(Ballot(9, R2))
        stage.flush()
    for peer in {"client": (CLIENT,), "destination": (S0, S1, CLIENT), "leadership": ()}[how]:
        stage.router.on_disconnected(peer, 0.0)

    assert stage.router.reads.allowance.n_reads == {"client": 1, "destination": 0, "leadership": 0}[how]


# Destinations.


def read_at(at: int, ballot: Ballot, *, previous: int = -1) -> DeliverRead:
    one = np.zeros(1, np.int64)
    part = gather(of(read(1)), one, one, ((FULL_RING,),), np.array([at]))
    return DeliverRead(ballot, at, previous, (part,))


def application() -> Application:
    app = Application(S0, (R1, R2))
    for router in (R1, R2):
        app.on_connected(router, 0.0)
    return app


def test_a_destination_runs_reads_behind_what_it_has_delivered() -> None:
    app = application()

    app.on_message(R1, read_at(7, Ballot(1, R1)), 0.0)

    (event,) = app.take_events()
    assert isinstance(event, ReadsEvent)
    assert not event.refusal
    assert app.delivered == 7, "nothing at or below it may follow"


@pytest.mark.parametrize("heard", ["welcome", "deliver"])
def test_a_destination_that_knows_a_higher_ballot_refuses(heard: str) -> None:
    app = application()
    app.on_message(R2, Welcome(Ballot(2, R2), True, R2, 0, 1), 0.0)
    if heard == "deliver":
        app.on_message(R2, Deliver(Ballot(2, R2), 1, -1, -1, ()), 0.0)
    app.flush(0.0)

    app.on_message(R1, read_at(7, Ballot(1, R1)), 0.0)

    (event,) = app.take_events()
    assert isinstance(event, ReadsEvent)
    assert event.refusal
    assert (R1, Fenced(Ballot(2, R2))) in app.flush(0.0).send


def test_a_destination_that_has_delivered_more_refuses() -> None:
    app = application()
    app.on_message(R1, Deliver(Ballot(1, R1), 1, -1, 9, ()), 0.0)

    app.on_message(R1, read_at(7, Ballot(1, R1)), 0.0)

    (event,) = app.take_events()
    assert isinstance(event, ReadsEvent)
    assert event.refusal


def test_a_read_behind_something_lost_breaks_the_session() -> None:
    app = application()

    app.on_message(R1, read_at(9, Ballot(1, R1), previous=8), 0.0)

    (event,) = app.take_events()
    assert isinstance(event, ReadsEvent)
    assert event.refusal
    assert app.flush(0.0).reset == [R1]


# Two leaders, an old one's read on its way, and a checker.


def stale_reads(events: list[Any]) -> list[str]:
    """Say which reads would run on a state that is not that of their position."""
    found, delivered = [], -1
    for event in events:
        if isinstance(event, Delivery):
            delivered = max(delivered, int(event.position[-1]))
        elif isinstance(event, ReadsEvent) and not event.refusal and event.position < delivered:
            found.append(f"a read at {event.position} runs behind {delivered}")
    return found


class Trusting(Application):
    """Runs every read that it is sent."""

    def _on_deliver_read(self, peer: ProcessId, message: DeliverRead) -> None:
        self._events.append(ReadsEvent(message.position, message.parts))


@pytest.mark.parametrize("kind", [Application, Trusting])
def test_an_old_leaders_read_that_arrives_late_is_found_if_it_runs(kind: type[Application]) -> None:
    old, new = ScriptedOrder(R1), ScriptedOrder(R2)
    routers = [Router(R1, config=CONFIG, broadcast=old), Router(R2, config=CONFIG, broadcast=new)]
    destinations = [kind(storage, (R1, R2)) for storage in STORAGES]
    bench = Bench(*routers, *destinations, Application(CLIENT, (R1, R2)))
    old.lead(1)
    for party in (*STORAGES, CLIENT):
        for router in (R1, R2):
            bench.connect(party, router)
    bench.settle()

    bench.cores[R1].on_message(CLIENT, Inject(submission([read(1)]), -1, 0), 0.0)
    bench.turn(R1)
    late = {s: [m for m in bench.links[R1, s] if isinstance(m, DeliverRead)] for s in STORAGES}
    for storage in STORAGES:
        bench.links[R1, storage].clear()
    new.lead(2)
    bench.turn(R2)
    bench.settle()
    new.learn(batch(of(write(1))))
    bench.turn(R2)
    bench.settle()
    for storage, messages in late.items():
        bench.links[R1, storage].extend(messages)
    bench.settle()

    assert any(late.values())
    found = [fault for storage in STORAGES for fault in stale_reads(bench.events[storage])]
    assert bool(found) == (kind is Trusting)


# Whether there is a majority.


def test_application_processes_are_told_of_a_long_absence_of_leaders_and_of_its_end() -> None:
    stage = Stage(RouterLimits(leaderless_s=2.0))
    stage.now_s = 1.9
    stage.flush()
    assert not stage.of(Quorum)

    stage.now_s = 2.0
    stage.flush()
    stage.lead()

    assert [m.is_there for m in stage.of(Quorum, to=CLIENT)] == [False, True]


def test_a_leader_without_a_majority_is_none(stage: Stage) -> None:
    # It looks with every pulse.
    stage.is_backed = False
    stage.now_s += 0.1
    stage.flush()
    stage.now_s += 2.0
    stage.flush()

    assert [m.is_there for m in stage.of(Quorum, to=S0)] == [False]


def test_a_leader_without_a_majority_does_not_ask_for_turns_without_end(stage: Stage) -> None:
    stage.is_backed = False
    for _ in range(30):
        stage.now_s += 0.1
        wake_at_s = stage.router.flush(stage.now_s).wake_at_s

        assert wake_at_s is None or wake_at_s > stage.now_s


def test_a_leader_deposed_by_a_snapshot_refuses_what_it_held_and_comes_to_rest(stage: Stage) -> None:
    stage.order.answers = False
    stage.ask(FULL_RING)
    snapshot = take_snapshot(stage.router.mseq, stage.router.window)

    stage.order.learned, stage.order.output.install = 5, (5, snapshot)
    stage.order.depose(Ballot(2, R2))
    stage.flush()
    stage.now_s += 2 * stage.router.limits.leaderless_s
    output = stage.router.flush(stage.now_s)

    assert [refused.numbers for refused in stage.of(ReadRefused, to=CLIENT)] == [(1,)]
    assert output.wake_at_s is None or output.wake_at_s > stage.now_s
