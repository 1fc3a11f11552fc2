"""What a storage process shows outside the order: with a lease, of what it owns, no older than promised."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.client.base import Request
from crescando.engine.base import Results
from crescando.process import Output
from crescando.roles.lease import RENEWALS, ServingLease
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Attach, BasicRefused, Forget, Ping, Pong, ReadBasic, ReadReplica
from crescando.roles.serving import Serving, covers
from crescando.routing.base import ReadsEvent
from crescando.routing.batch import Delivery, Message
from crescando.routing.ecast.messages import Lease, LeaseRequest, ReadRefused
from crescando.routing.rubberband import Join, Rubberband
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId, Scope
from tests.roles.stage import sent
from tests.roles.test_storage import (
    ALICE,
    BOB,
    CONFIG,
    CREATE,
    ME,
    ROUTER,
    Desk,
    add,
    configure,
    insert,
    read_all,
)
from tests.roles.test_storage_reads import part, values
from tests.routing.worlds import storage, super_

LEASE_S = StorageLimits().lease_s
WAIT_S = StorageLimits().basic_wait_s
CAROL = ProcessId("client", "carol", 1)


def served(desk: Desk | None = None, **given: Any) -> Desk:
    """Give a storage process that has its table and a lease."""
    desk = desk or Desk(**given)
    desk.run()
    return desk


def ask(
    desk: Desk,
    *requests: Request,
    seen: int = -1,
    laid: int = -1,
    scope: Scope = (FULL_RING,),
    first: int = 1,
    client: ProcessId = ALICE,
) -> Output:
    made = part(desk, 0, *(requests or (read_all(),)), first=first, client=client)
    return desk.tell(client, ReadBasic(msgspec.structs.replace(made, scopes=(scope,)), seen, laid))


def reach(desk: Desk, at: int) -> None:
    desk.multicast.delivered = at


def pass_time(desk: Desk, seconds: float) -> Output:
    desk.now_s += seconds
    return desk.flush()


def grant(desk: Desk, *, position: int = -1, after_s: float = 0.0) -> None:
    """Let the next request be answered, so much later."""
    requests = sent(desk.flush(), LeaseRequest, to=ROUTER)
    while not requests:
        requests = sent(pass_time(desk, LEASE_S / RENEWALS), LeaseRequest, to=ROUTER)
    desk.now_s += after_s
    desk.tell(ROUTER, Lease(requests[-1].sent_s, position))


# The lease.


def test_a_lease_is_counted_from_the_sending_of_the_request() -> None:
    lease = ServingLease(1.5)
    ((_, request),) = lease.ask(10.0, ROUTER)

    lease.on_lease(Lease(request.sent_s, 5))

    assert lease.holds(11.49), "however late the answer came"
    assert not lease.holds(11.5)


def test_nothing_is_served_before_the_first_answer_nor_for_a_request_that_was_not_made() -> None:
    lease = ServingLease(1.5)
    assert not lease.holds(0.0)
    lease.ask(10.0, ROUTER)

    lease.on_lease(Lease(1_000.0, 5))

    assert not lease.holds(10.1)


def test_a_lease_is_renewed_before_it_ends_and_asked_of_a_new_leader_at_once() -> None:
    lease, asked = ServingLease(1.5), []
    other = ProcessId("router", "r2", 1)

    for tick in range(300):
        asked += [tick / 100 for _ in lease.ask(tick / 100, ROUTER)]
    gaps = np.diff(asked)

    assert len(asked) == pytest.approx(2 * RENEWALS, abs=1), "few messages, none per read"
    assert gaps.max() < 1.5 / 2
    assert lease.ask(3.0001, other)
    assert not lease.ask(3.0002, None)
    assert lease.ask(3.0003, other), "whether it has lost what it was asked is unknown"


def test_an_older_answer_takes_nothing_back() -> None:
    lease = ServingLease(1.5)
    lease.ask(1.0, ROUTER)
    lease.ask(1.4, ROUTER)

    lease.on_lease(Lease(1.4, 9))
    lease.on_lease(Lease(1.0, 5))

    assert lease.holds(2.8)
    assert lease.floor == 9


# Basic reads.


def test_a_basic_read_runs_behind_everything_delivered_and_states_the_place() -> None:
    desk = served()
    desk.deliver(ALICE, 2, insert(1), add(5, 1))
    reach(desk, 77)

    ask(desk, read_all(), read_all())
    desk.deliver(BOB, 4, add(100, 1))
    results = desk.run()

    assert values(results) == {-1: [15], -2: [15]}
    assert {rows.position.tolist()[0] for r in results for rows in r.rows} == {77}


def test_many_basic_reads_share_a_scan() -> None:
    desk = served()
    desk.deliver(ALICE, 2, insert(1))
    desk.run()
    before = desk.engine.statistics()["cycles"]

    for client in (ALICE, BOB):
        for first in range(1, 400, 100):
            made = part(desk, 0, *[read_all()] * 100, first=first, client=client)
            desk.core.on_message(client, ReadBasic(made, -1, -1), desk.now_s)
    results = desk.run()

    assert sum(len(rows.number) for r in results for rows in r.rows) == 800
    assert desk.engine.statistics()["cycles"] - before < 100, "their cost is learned from small cycles first"


def test_a_read_waits_until_its_session_s_position_is_reached_and_asks_for_it() -> None:
    desk = served()
    desk.now_s = 0.1
    output = ask(desk, seen=80)

    assert not desk.work
    assert sent(output, LeaseRequest), "nothing may be addressed to this process for long"
    desk.deliver(ALICE, 2, insert(1))
    reach(desk, 80)

    assert values(desk.run()) == {-1: [10]}


def test_a_read_that_waits_in_vain_is_refused_and_another_replica_may_know_more() -> None:
    desk = served()
    output = ask(desk, seen=80)
    assert output.wake_at_s is not None
    assert output.wake_at_s <= WAIT_S

    output = pass_time(desk, WAIT_S)

    (refused,) = sent(output, BasicRefused, to=ALICE)
    assert refused.numbers == (1,)
    assert refused.is_busy
    assert not refused.layout
    assert "told of nothing above -1" in refused.reason
    assert not desk.run()


def test_nothing_older_is_shown_than_what_anybody_had_been_told_when_the_lease_was_asked_for() -> None:
    desk = served()
    grant(desk, position=60)

    ask(desk)
    held = bool(desk.work)
    desk.deliver(ALICE, 2, insert(1))
    reach(desk, 60)

    assert not held
    assert values(desk.run()) == {-1: [10]}


def test_who_does_not_own_a_range_says_who_does() -> None:
    desk = served(config=_spread())
    mine, other = _arcs(desk.core.config)
    reach(desk, 9)

    output = ask(desk, scope=other)

    (refused,) = sent(output, BasicRefused, to=ALICE)
    assert (refused.position, refused.is_busy) == (9, False)
    assert Rubberband.decode(refused.layout) == desk.core.config
    assert not desk.work
    assert not sent(ask(desk, scope=mine, first=2), BasicRefused)
    assert desk.work


def test_of_reads_that_come_together_only_those_are_refused_that_concern_others() -> None:
    desk = served(config=_spread())
    mine, other = _arcs(desk.core.config)
    made = part(desk, 0, *[read_all()] * 4)
    scope = np.array([0, 1, 0, 1], np.int64)

    output = desk.tell(
        ALICE, ReadBasic(msgspec.structs.replace(made, scope=scope, scopes=(mine, other)), -1, -1)
    )

    (refused,) = sent(output, BasicRefused)
    assert refused.numbers == (2, 4)
    assert sorted(values(desk.run())) == [-3, -1]


def test_a_client_that_knows_a_later_layout_is_waited_for() -> None:
    desk = served(config=_spread())
    _, other = _arcs(desk.core.config)

    output = ask(desk, scope=other, laid=50)
    assert not sent(output, BasicRefused)
    reach(desk, 50)

    assert sent(desk.flush(), BasicRefused)


def test_a_client_of_which_nothing_was_heard_yet_is_waited_for() -> None:
    desk = served()
    desk.core.on_message(CAROL, Attach(), desk.now_s)

    ask(desk, client=CAROL)
    assert not desk.work
    desk.deliver(CAROL, 1, configure(Join(CAROL)))

    desk.run()
    assert desk.core.executed >= 0


def test_a_queue_over_budget_refuses_and_says_that_it_is_busy() -> None:
    desk = served(limits=StorageLimits(queue_bytes=2000))
    desk.deliver(ALICE, 2, insert(1), insert(2), insert(3))
    desk.flush()

    (refused,) = sent(ask(desk), BasicRefused)

    assert refused.is_busy
    assert "over budget" in refused.reason


def test_what_is_held_is_bounded() -> None:
    desk = served(limits=StorageLimits(queue_bytes=20_000))
    refused = 0

    for first in range(1, 5_000, 50):
        refused += len(sent(ask(desk, *[read_all()] * 50, seen=80, first=first), BasicRefused))

    assert refused > 50
    assert sum(held.ask.reads.n_bytes for held in desk.core._serving._held) <= 20_000


def test_a_read_that_is_called_off_while_it_is_held_never_runs() -> None:
    desk = served()
    ask(desk, seen=80)

    desk.tell(ALICE, Forget((-1,)))
    reach(desk, 80)

    assert not desk.run()


def test_a_session_that_ends_takes_its_reads_along() -> None:
    desk = served()
    ask(desk, seen=80)

    desk.core.on_disconnected(ALICE, desk.now_s)
    reach(desk, 80)

    assert not desk.run()
    assert not sent(pass_time(desk, WAIT_S), BasicRefused)


def _spread() -> Rubberband:
    """Four processes and two copies: each range has owners and others."""
    config = Rubberband.genesis(
        storages=[storage(n) for n in range(4)], replication=2, supers=[super_(0)], clients=[ALICE, BOB]
    )
    return config.apply(Message(super_(0), 1, MessageKind.CONFIG, -1, (), 0, CREATE))


def _arcs(config: Any) -> tuple[Scope, Scope]:
    """Give a scope that this process owns, and one that it does not."""
    owned = config.owned_arcs(ME)
    other = [arc for arc in config.ring.arcs if arc not in owned]
    return (owned[0],), (other[0],)


# Malformed reads.


def _changed(**fields: Any) -> Callable[[Delivery], Delivery]:
    return lambda made: msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    "change",
    [
        _changed(sender=BOB),
        _changed(kind=np.array([2], np.uint8)),
        _changed(scope=np.array([1], np.int64)),
        _changed(scope=np.array([-1], np.int64)),
        _changed(scopes=()),
        _changed(scopes=((),)),
        _changed(scopes=((KeyRange(5, 4),),)),
        _changed(scopes=((KeyRange(5, 9), KeyRange(0, 1)),)),
        _changed(number=np.array([0], np.int64)),
        _changed(number=np.array([1, 1], np.int64)),
        _changed(payload_offsets=np.array([0, 999], np.int64)),
        _changed(payload_offsets=np.array([1, 2], np.int64)),
        _changed(
            number=np.zeros(0, np.int64),
            position=np.zeros(0, np.int64),
            kind=np.zeros(0, np.uint8),
            table=np.zeros(0, np.int64),
            scope=np.zeros(0, np.int64),
            payload_offsets=np.zeros(1, np.int64),
            payload=b"",
        ),
    ],
)
def test_what_no_honest_client_sends_ends_the_session(change: Callable[[Delivery], Delivery]) -> None:
    desk = served()
    made = change(part(desk, 0, read_all()))

    output = desk.tell(ALICE, ReadBasic(made, -1, -1))

    assert output.reset == [ALICE]
    assert not desk.run()


def test_a_write_in_disguise_never_runs() -> None:
    desk = served()
    made = part(desk, 0, insert(1))

    (results,) = sent(desk.tell(ALICE, ReadBasic(made, -1, -1)), Results)

    assert [failed.kind for failed in results.failed] == ["invalid"]
    assert desk.rows() == {}


# The end of a lease.


def test_without_a_lease_nothing_outside_the_order_is_taken() -> None:
    desk = served()
    pass_time(desk, LEASE_S)

    basic = ask(desk)
    desk.multicast.events.append(ReadsEvent(77, (part(desk, 77, read_all(), first=5),)))
    snapshot = desk.flush()

    (refused,) = sent(basic, BasicRefused)
    assert refused.is_busy
    assert "no lease" in refused.reason
    assert [message.numbers for message in sent(snapshot, ReadRefused)] == [(5,)]
    assert not desk.run()


def late(desk: Desk, *, is_snapshot: bool) -> Output:
    """Have a cycle begin with a lease and end without; gives what is sent then."""
    desk.deliver(ALICE, 2, insert(1))
    desk.run()
    if is_snapshot:
        desk.multicast.events.append(ReadsEvent(77, (part(desk, 77, read_all()),)))
        desk.flush()
    else:
        ask(desk)
    assert desk.work
    desk.now_s += LEASE_S
    return desk.execute()


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_what_a_cycle_read_is_withheld_if_the_lease_is_over_at_its_end(is_snapshot: bool) -> None:
    output = late(served(), is_snapshot=is_snapshot)

    assert not sent(output, Results)
    (refused,) = sent(output, ReadRefused, to=ALICE)
    assert refused.numbers == (1,)
    assert not refused.is_final


def test_a_pause_between_a_cycle_s_end_and_the_turn_that_sends_is_noticed() -> None:
    desk = served()
    desk.deliver(ALICE, 2, insert(1))
    desk.run()
    ask(desk)
    desk.core.on_executed(desk.work.pop(0).run(desk.engine), desk.now_s)

    output = pass_time(desk, LEASE_S)

    assert not sent(output, Results)
    assert sent(output, ReadRefused)


def test_ordered_answers_and_those_of_exactly_this_replica_need_no_lease() -> None:
    desk = served()
    desk.deliver(ALICE, 2, insert(1), read_all())
    ask(desk, first=9)
    desk.core.on_message(ALICE, ReadReplica(7, 0, FULL_RING, (0, 1)), desk.now_s)
    desk.flush()
    desk.now_s += LEASE_S
    found = sent(desk.execute(), Results)
    while desk.work:
        found += sent(desk.execute(), Results)

    numbers = {n for r in found for rows in r.rows for n in rows.number.tolist()}
    assert numbers == {3, -7}
    assert [w.number.tolist() for r in found for w in r.written] == [[2]]
    assert values(found)[3] == [10]


def test_a_process_that_wakes_from_a_long_pause_shows_nothing_of_before() -> None:
    desk = served()
    desk.deliver(ALICE, 2, insert(1))
    desk.run()
    desk.now_s += 100 * LEASE_S

    # All that waited comes before its first turn: another's old answer, and a client's read.
    desk.core.on_message(ROUTER, Lease(0.0, -1), desk.now_s)
    output = ask(desk)

    assert sent(output, BasicRefused)
    assert not sent(output, Results)
    grant(desk)
    ask(desk, first=2)
    assert values(desk.run()) == {-2: [10]}


# Planted: each of these would show what is over, and is seen to.


class Planted(Desk):
    """A storage process with another judge of what may be shown."""

    def __init__(self, serving: type[Serving], *, config: Rubberband = CONFIG) -> None:
        super().__init__(config=config)
        self.core._serving = serving(ME, self.core.limits)
        grant(self)


class CountedFromTheReply(Serving):
    def __init__(self, me: ProcessId, limits: StorageLimits) -> None:
        super().__init__(me, limits)
        self.lease = _FromReply(limits.lease_s)


class _FromReply(ServingLease):
    is_told = False

    def holds(self, now_s: float) -> bool:
        if self.is_told:
            self._until_s, self.is_told = now_s + self.length_s, False
        return super().holds(now_s)

    def on_lease(self, answer: Lease) -> None:
        self.is_told = True


class CheckedAtAdmissionOnly(Serving):
    def screen(self, send: Any, now_s: float) -> Any:
        return send


class SessionIgnored(Serving):
    def take(self, client: ProcessId, ask: ReadBasic) -> bool:
        return super().take(client, msgspec.structs.replace(ask, seen=-1))


def shows_after_a_slow_answer(desk: Desk) -> bool:
    """Whether rows are shown for more than a lease after the request was sent."""
    desk.now_s += 10 * LEASE_S
    grant(desk, after_s=0.9 * LEASE_S)
    desk.now_s += 0.2 * LEASE_S
    ask(desk)
    return bool(desk.run())


def shows_after_a_slow_cycle(desk: Desk) -> bool:
    return bool(sent(late(desk, is_snapshot=False), Results))


def shows_what_its_session_has_left_behind(desk: Desk) -> bool:
    reach(desk, 5)
    ask(desk, seen=6)
    return bool(desk.run())


@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        (CountedFromTheReply, shows_after_a_slow_answer),
        (CheckedAtAdmissionOnly, shows_after_a_slow_cycle),
        (SessionIgnored, shows_what_its_session_has_left_behind),
    ],
)
def test_a_planted_judge_shows_what_is_over(plant: type[Serving], scene: Callable[[Desk], bool]) -> None:
    assert not scene(served(Planted(Serving)))
    assert scene(served(Planted(plant)))


# Scopes and arcs.


def test_a_scope_is_owned_if_it_is_made_of_whole_owned_arcs() -> None:
    rng = random.Random(7)
    for _ in range(300):
        cuts = sorted({0, *(rng.randrange(1, 40) for _ in range(rng.randint(0, 6)))})
        arcs = [KeyRange(a, b - 1) for a, b in zip(cuts, [*cuts[1:], 40], strict=True)]
        owned = [arc for arc in arcs if rng.random() < 0.6]
        ends = sorted(rng.sample(range(41), 2 * rng.randint(1, 2)))
        scope = tuple(KeyRange(a, b - 1) for a, b in zip(ends[::2], ends[1::2], strict=True))
        positions = {p for low, high in scope for p in range(low, high + 1)}
        inside = {p for arc in owned for p in range(arc.low, arc.high + 1)}
        is_whole = all(
            not set(range(arc.low, arc.high + 1)) & positions
            or set(range(arc.low, arc.high + 1)) <= positions
            for arc in arcs
        )

        assert covers(owned, scope) == (positions <= inside and is_whole), (owned, scope)


def test_the_whole_ring_is_owned_arc_by_arc() -> None:
    assert covers((FULL_RING,), (FULL_RING,))
    assert covers((KeyRange(0, 9), KeyRange(10, RING_MAX)), (FULL_RING,))
    assert not covers((KeyRange(0, 9), KeyRange(11, RING_MAX)), (FULL_RING,))
    assert not covers((), ())


def test_a_storage_process_answers_whom_it_must_whatever_it_shows() -> None:
    desk = served()
    desk.now_s += 100.0

    assert sent(desk.tell(BOB, Ping(1.0)), Pong) == [Pong(1.0)]
