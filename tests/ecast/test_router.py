"""The router role (RB13 Alg. 2): sessions, credit, windows, fairness and leadership."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.consensus.base import Ballot, BroadcastOutput
from crescando.process import Output
from crescando.routing.batch import Submission
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import (
    Batch,
    ConfigRequest,
    ConfigState,
    Confirm,
    Deliver,
    Expelled,
    Fenced,
    Hello,
    Outdated,
    Pulse,
    Resume,
    Route,
    Stable,
    StableUpTo,
    Welcome,
)
from crescando.routing.ecast.router import PULSES_MAX, Router
from crescando.routing.ecast.snapshot import take_snapshot
from crescando.routing.rubberband import CreateTable, Rubberband, Suspect
from crescando.types import NO_POSITION, ProcessId, position
from tests.ecast.parties import (
    CONFIG,
    OTHER,
    R1,
    R2,
    S0,
    S1,
    S2,
    U0,
    ScriptedOrder,
    batch,
    configure,
    of,
    point,
    read,
    write,
)
from tests.routing.worlds import CLIENT, schema

EVERYBODY = (CLIENT, OTHER, S0, S1, S2, U0)


class Desk:
    """A router over a scripted order, and what it sent."""

    def __init__(self, *, leads: bool = True, limits: RouterLimits | None = None) -> None:
        self.order = ScriptedOrder(R1)
        self.router: Router[Rubberband] = Router(R1, config=CONFIG, broadcast=self.order, limits=limits)
        self.router.on_start(0.0)
        self.now_s = 0.0
        if leads:
            self.order.lead()
        self.flush()
        for peer in EVERYBODY:
            self.hello(peer)
        self.first = self.flush()

    def hello(self, peer: ProcessId) -> None:
        self.router.on_connected(peer, self.now_s)
        self.router.on_message(peer, Hello(), self.now_s)

    def take(self, peer: ProcessId, *messages: Any) -> Output:
        for message in messages:
            self.router.on_message(peer, message, self.now_s)
        return self.flush()

    def resume(self, *peers: ProcessId, at: int = NO_POSITION) -> Output:
        for peer in peers or EVERYBODY:
            self.router.on_message(peer, Resume(self.order.ballot, at, at), self.now_s)
        return self.flush()

    def route(self, *submissions: Submission) -> Output:
        """Take submissions of their senders, and propose them."""
        for submission in submissions:
            self.router.on_message(submission.sender, Route(submission), self.now_s)
        return self.flush()

    def order_now(self, *submissions: Submission) -> Output:
        """Take submissions, and have them decided."""
        self.route(*submissions)
        return self.decide()

    def decide(self) -> Output:
        while self.order.open:
            self.order.decide()
        return self.flush()

    def flush(self) -> Output:
        return self.router.flush(self.now_s)

    def proposed(self) -> list[list[tuple[ProcessId, int, int]]]:
        return [[(s.sender, s.first, s.last) for s in b.submissions] for b in self.order.proposed]


def to(output: Output, peer: ProcessId, kind: type[Any]) -> list[Any]:
    return [message for to, message in output.send if to == peer and isinstance(message, kind)]


# Sessions.


def test_a_leader_welcomes_with_the_learned_watermark() -> None:
    desk = Desk()
    desk.order_now(of(write(1), write(2)))

    (welcome,) = to(desk.take(CLIENT, Hello()), CLIENT, Welcome)

    assert welcome == Welcome(desk.order.ballot, True, R1, 2)


def test_a_follower_names_the_leader_and_takes_nothing() -> None:
    desk = Desk(leads=False)
    desk.order.depose(Ballot(3, R2))

    output = desk.route(of(write(1)))

    assert to(output, CLIENT, Welcome) == [Welcome(Ballot(3, R2), False, R2, 0)]
    assert desk.order.proposed == []


def test_nothing_is_sent_to_a_destination_before_it_has_said_where_it_stands() -> None:
    desk = Desk()
    desk.resume(S0)

    output = desk.order_now(of(write(1, point(S0, S1))))

    assert len(to(output, S0, Deliver)) == 1
    assert to(output, S1, Deliver) == []


def test_a_session_resumes_exactly_where_the_destination_states() -> None:
    desk = Desk()
    for number in (1, 2, 3, 4):
        desk.order_now(of(write(number, point(S0, S1))))

    output = desk.resume(S0, at=position(2, 0))

    sent = to(output, S0, Deliver)
    assert [(m.instance, m.previous) for m in sent] == [(3, position(2, 0)), (4, position(3, 0))]
    assert desk.router.window.entries[1].awaited == {S1}


def test_a_new_session_is_sent_what_was_not_confirmed_again() -> None:
    desk = Desk()
    desk.resume()
    for number in (1, 2):
        desk.order_now(of(write(number, point(S0, S1))))
    desk.take(S0, Confirm(position(1, 0)))
    desk.router.on_disconnected(S0, 0.0)
    assert to(desk.order_now(of(write(3, point(S0, S1)))), S0, Deliver) == []

    desk.hello(S0)
    desk.flush()
    output = desk.resume(S0, at=position(1, 0))

    assert [m.instance for m in to(output, S0, Deliver)] == [2, 3]


def test_a_session_resumed_again_confirms_but_is_sent_nothing_twice() -> None:
    desk = Desk()
    desk.resume()
    for number in (1, 2, 3):
        desk.order_now(of(write(number, point(S0, S1))))

    output = desk.take(S0, Resume(desk.order.ballot, position(2, 0), position(2, 0)))

    assert to(output, S0, Deliver) == []
    assert [S0 in desk.router.window.entries[instance].awaited for instance in (1, 2, 3)] == [
        False,
        False,
        True,
    ]


def test_a_resume_for_another_ballot_is_ignored() -> None:
    desk = Desk()
    desk.order_now(of(write(1)))

    output = desk.take(S0, Resume(Ballot(77, R2), NO_POSITION, NO_POSITION))

    assert to(output, S0, Deliver) == []


def test_one_that_lacks_what_it_had_confirmed_is_told_so_and_reported_to_the_supers() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1, point(S0, S1))))
    for peer in (S0, S1):
        desk.take(peer, Confirm(position(1, 0)))
    desk.router.on_disconnected(S0, 0.0)
    desk.hello(S0)
    desk.flush()

    output = desk.resume(S0, at=NO_POSITION)

    assert to(output, S0, Outdated) == [Outdated(position(1, 0))]
    assert to(output, S0, Expelled) == []
    assert to(desk.order_now(of(write(2, point(S0, S1)))), S0, Deliver) == []
    assert to(desk.take(U0, ConfigRequest()), U0, ConfigState)[0].lagging == (S0,)


def test_a_member_asks_for_sessions_with_those_that_joined_before_it() -> None:
    order = ScriptedOrder(R1)
    first: Router[Rubberband] = Router(R1, config=CONFIG, broadcast=order)
    second: Router[Rubberband] = Router(R2, config=CONFIG, broadcast=ScriptedOrder(R2))

    first.on_start(0.0)
    second.on_start(0.0)

    assert first.flush(0.0).connect == []
    assert second.flush(0.0).connect == [R1]
    second.on_disconnected(R1, 1.0)
    assert second.flush(1.0).connect == [R1]


# Into the order.


def broken(**changes: Any) -> Submission:
    return msgspec.structs.replace(of(write(1), read(2)), **changes)


@pytest.mark.parametrize(
    "submission",
    [
        of(write(1, sender=OTHER)),
        broken(first=0),
        broken(kind=np.array([2, 77], np.uint8)),
        broken(kind=np.array([], np.uint8)),
        broken(table=np.array([0], np.int64)),
        broken(replica_offset=np.zeros(5, np.uint32)),
        broken(range_offsets=np.array([0, 2, 1], np.int64)),
        broken(range_offsets=np.array([0, 0, 2], np.int64)),
        broken(range_low=np.array([9, 9], np.uint64), range_high=np.array([3, 9], np.uint64)),
        broken(range_high=np.array([3], np.uint64)),
        broken(payload_offsets=np.array([0, 1, 999], np.int64)),
        broken(payload_offsets=np.array([-1, 1, 2], np.int64)),
        broken(range_offsets=np.array([0.0, 1.0, 2.0])),
        broken(kind=np.array([2, 1], np.int64)),
        broken(range_low=np.array([-1, 0], np.int8)),
        broken(table=np.array([np.nan, 0.0])),
    ],
)
def test_a_malformed_submission_ends_its_sender_s_session_and_nothing_else(submission: Submission) -> None:
    desk = Desk()

    desk.router.on_message(CLIENT, Route(submission), 0.0)
    output = desk.route(of(write(1, sender=OTHER)))

    assert output.reset == [CLIENT]
    assert desk.proposed() == [[(OTHER, 1, 1)]]


def test_messages_of_one_turn_share_an_instance() -> None:
    desk = Desk()

    desk.route(of(write(1), write(2)), of(write(1, sender=OTHER)))

    assert desk.proposed() == [[(CLIENT, 1, 2), (OTHER, 1, 1)]]


def test_while_an_instance_is_open_few_messages_wait_for_company() -> None:
    desk = Desk(limits=RouterLimits(eager_messages=3))
    desk.route(of(write(1)))
    desk.route(of(write(2)))
    assert len(desk.order.proposed) == 1

    desk.route(of(write(3), write(4)))

    assert desk.proposed()[1:] == [[(CLIENT, 2, 2), (CLIENT, 3, 4)]]


def test_many_bytes_need_no_company() -> None:
    desk = Desk(limits=RouterLimits(eager_messages=99, eager_bytes=3 * of(write(1)).n_bytes))
    for number in (1, 2, 3):
        desk.route(of(write(number)))
    assert len(desk.order.proposed) == 1

    desk.route(of(write(4)))

    assert desk.proposed()[1:] == [[(CLIENT, 2, 2), (CLIENT, 3, 3), (CLIENT, 4, 4)]]


def test_what_waited_is_proposed_when_the_open_instance_is_decided() -> None:
    desk = Desk()
    desk.route(of(write(1)))
    desk.route(of(write(2)))
    assert len(desk.order.proposed) == 1

    desk.decide()

    assert desk.proposed()[1] == [(CLIENT, 2, 2)]


def test_what_is_on_its_way_is_not_proposed_twice() -> None:
    desk = Desk()
    desk.route(of(write(1), write(2)))

    desk.route(of(write(1), write(2)))
    desk.route(of(write(2), write(3)))
    desk.decide()
    desk.decide()

    assert desk.proposed() == [[(CLIENT, 1, 2)], [(CLIENT, 3, 3)]]


def test_a_sender_that_skips_a_number_is_told_where_to_go_on() -> None:
    desk = Desk()
    desk.route(of(write(1)))

    output = desk.route(of(write(3)))

    assert to(output, CLIENT, Welcome) == [Welcome(desk.order.ballot, True, R1, 1)]
    assert desk.proposed() == [[(CLIENT, 1, 1)]]


def test_a_hole_in_the_order_makes_its_sender_send_again() -> None:
    desk = Desk()
    desk.route(of(write(1)))
    desk.order.open.clear()
    desk.order.learn(batch(of(write(2))))

    output = desk.flush()

    assert to(output, CLIENT, Welcome) == [Welcome(desk.order.ballot, True, R1, 0)]
    desk.route(of(write(1), write(2)))
    assert desk.proposed()[-1] == [(CLIENT, 1, 2)]


def test_senders_take_turns_so_that_none_waits_behind_anothers_backlog() -> None:
    desk = Desk(limits=RouterLimits(batch_messages=2))
    desk.order.window = 0
    desk.route(*(of(write(n)) for n in range(1, 7)), of(write(1, sender=OTHER)))
    desk.order.window = 1

    desk.flush()

    assert desk.proposed()[0] == [(CLIENT, 1, 1), (OTHER, 1, 1)]


def test_what_did_not_fit_goes_on_in_the_next_batch() -> None:
    desk = Desk(limits=RouterLimits(batch_messages=3))
    desk.order.window = 0
    big = of(*(write(n, sender=OTHER) for n in range(1, 4)))
    desk.route(of(write(1)), big, of(write(2)), of(write(3)))
    desk.order.window = 1

    desk.flush()
    assert desk.proposed() == [[(CLIENT, 1, 1), (OTHER, 1, 1), (CLIENT, 2, 2)]]
    desk.decide()

    assert desk.proposed()[1] == [(OTHER, 2, 2), (CLIENT, 3, 3), (OTHER, 3, 3)]


def test_a_message_larger_than_a_batch_has_one_of_its_own() -> None:
    desk = Desk(limits=RouterLimits(batch_messages=2, batch_bytes=10))

    desk.route(of(*(write(n) for n in range(1, 4))))
    for _ in range(2):
        desk.decide()

    assert desk.proposed() == [[(CLIENT, n, n)] for n in (1, 2, 3)]


# Bounds.


def test_a_destination_is_sent_no_more_than_its_credit() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(credit_bytes=2 * size))
    desk.resume()
    sent = 0
    for number in range(1, 9):
        sent += len(to(desk.order_now(of(write(number, point(S0, S1)))), S0, Deliver))
    assert sent == 3

    output = desk.take(S0, Confirm(position(1, 0)))

    assert [m.instance for m in to(output, S0, Deliver)] == [4]


def test_a_destination_without_credit_holds_back_nobody_else() -> None:
    desk = Desk(limits=RouterLimits(credit_bytes=1))
    desk.resume()
    for number in (1, 2, 3):
        desk.order_now(of(write(number, point(S0, S1))))

    output = desk.order_now(of(write(1, point(S1, S2), sender=OTHER)))

    assert len(to(output, S2, Deliver)) == 1


def test_a_full_window_takes_no_data_but_configuration_messages() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(window_bytes=2 * size))
    for number in (1, 2):
        desk.order_now(of(write(number)))
    before = len(desk.order.proposed)

    desk.route(
        of(write(3)), of(configure(1, Suspect(OTHER), sender=U0), configure(2, Suspect(S2), sender=U0))
    )
    desk.decide()

    assert desk.proposed()[before:] == [[(U0, 1, 2)]]


def test_data_waits_until_the_window_has_room() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(window_bytes=size))
    desk.resume()
    desk.order_now(of(write(1, point(S0, S1))))
    desk.route(of(write(2, point(S0, S1))))
    assert len(desk.order.proposed) == 1

    desk.take(S0, Confirm(position(1, 0)))
    desk.take(S1, Confirm(position(1, 0)))

    assert desk.proposed()[1:] == [[(CLIENT, 2, 2)]]


def test_the_reserve_is_bounded_too() -> None:
    desk = Desk(limits=RouterLimits(reserve_bytes=1))
    desk.order_now(of(configure(1, Suspect(OTHER), sender=U0)))

    desk.route(of(configure(2, Suspect(S2), sender=U0)))
    assert len(desk.order.proposed) == 1

    desk.route(of(write(1)))
    assert desk.proposed()[1:] == [[(CLIENT, 1, 1)]]


def test_data_never_uses_the_reserve_however_much_is_open() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(window_bytes=2 * size, reserve_bytes=2 * size, eager_messages=1))
    for number in range(1, 9):
        desk.route(of(write(number)))
    assert len(desk.order.proposed) == 2

    desk.route(of(configure(1, Suspect(OTHER), sender=U0)))

    assert desk.proposed()[2:] == [[(U0, 1, 1)]]


def test_data_behind_a_configuration_message_of_one_submission_waits_alone() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(window_bytes=size))
    desk.order_now(of(write(1)))

    desk.route(of(configure(2, CreateTable(schema("u"))), write(3)))

    assert desk.proposed()[1:] == [[(CLIENT, 2, 2)]]


def test_what_is_delivered_but_not_confirmed_is_not_sent_again_and_still_counts() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(credit_bytes=2 * size))
    for number in range(1, 6):
        desk.order_now(of(write(number, point(S0, S1))))

    desk.router.on_message(S0, Resume(desk.order.ballot, position(3, 0), NO_POSITION), 0.0)
    output = desk.flush()

    assert to(output, S0, Deliver) == []
    assert S0 in desk.router.window.entries[1].awaited
    output = desk.take(S0, Confirm(position(2, 0)))
    assert [(m.instance, m.previous) for m in to(output, S0, Deliver)] == [
        (4, position(3, 0)),
        (5, position(4, 0)),
    ]


def test_a_slow_destination_delays_nobody_who_does_not_address_it() -> None:
    size = of(write(1)).n_bytes
    desk = Desk(limits=RouterLimits(lag_bytes=2 * size, window_bytes=40 * size))
    desk.resume()
    for number in range(1, 9):
        desk.order_now(of(write(number, point(S1, S2))))
        desk.take(S1, Confirm(position(desk.order.learned, 0)))
    assert desk.router.window.slow == {S2}
    assert desk.router.mseq.learned_of(CLIENT) == 3

    for number in range(1, 60):
        desk.order_now(of(write(number, point(S0, S1), sender=OTHER)))
        for peer in (S0, S1):
            output = desk.take(peer, Confirm(position(desk.order.learned, 0)))
        assert to(output, OTHER, Stable)[0].upto == number
    assert desk.router.mseq.learned_of(CLIENT) == 3

    desk.take(S2, Confirm(position(desk.order.learned, 0)))
    desk.decide()
    assert desk.router.mseq.learned_of(CLIENT) == 8


def test_credit_is_told_with_every_answer_and_shrinks_as_the_window_fills() -> None:
    desk = Desk(limits=RouterLimits(window_bytes=1 << 20, sender_bytes=1 << 20))
    desk.resume()
    (first,) = to(desk.take(CLIENT, Hello()), CLIENT, Welcome)
    assert first.credit == (1 << 20) // len(EVERYBODY)

    numbers = iter(range(1, 1 << 20))

    def pulsed_credit_at(n_bytes: int) -> int:
        while desk.router.window.n_bytes < n_bytes:
            desk.order_now(of(*(write(next(numbers), point(S0, S1)) for _ in range(100))))
        desk.now_s += 1.0
        (pulse,) = to(desk.flush(), CLIENT, Pulse)
        return int(pulse.credit)

    assert pulsed_credit_at(1 << 19) == first.credit, "hardly more than half is full"
    assert pulsed_credit_at(15 << 16) < first.credit
    desk.take(S0, Confirm(position(desk.order.learned, 99)))
    (stable,) = to(desk.take(S1, Confirm(position(desk.order.learned, 99))), CLIENT, Stable)
    assert stable.credit == first.credit


def test_a_sender_with_more_undecided_messages_than_credit_allows_is_reset() -> None:
    limits = RouterLimits(sender_bytes=64)
    desk = Desk(limits=limits)
    desk.router.mseq.learned[CLIENT] = 99_999

    output = desk.route(of(write(100_000), acknowledged=90_000))
    assert output.reset == []
    output = desk.route(of(write(100_001), acknowledged=9))
    assert output.reset == [CLIENT]


def test_a_sender_that_does_not_mind_its_credit_is_reset() -> None:
    desk = Desk(limits=RouterLimits(sender_bytes=64))
    desk.order.window = 0
    large = of(*(write(n) for n in range(1, 4_001)))
    resets = []
    for index in range(20):
        resets += desk.route(msgspec.structs.replace(large, first=1 + 4_000 * index)).reset

    assert CLIENT in resets
    assert desk.router.proposer.n_bytes < 4 << 20


def test_signs_of_life_come_round_to_any_number_of_sessions() -> None:
    desk = Desk()
    peers = [ProcessId("client", f"n{n}", 1) for n in range(1_000)]
    for peer in peers:
        desk.hello(peer)
    desk.flush()
    desk.resume(*peers)
    told: set[ProcessId] = set()
    for _ in range(8):
        desk.now_s += desk.router.limits.pulse_s
        pulsed = [peer for peer, message in desk.flush().send if isinstance(message, Pulse)]
        assert len(pulsed) <= PULSES_MAX
        told.update(pulsed)

    assert told >= set(peers)


# Lagging.


def owing(desk: Desk) -> None:
    """Let S0 owe a confirmation for longer than it may."""
    desk.resume()
    desk.order_now(of(write(1, point(S0, S1))))
    desk.take(S1, Confirm(position(1, 0)))
    for _ in range(round(desk.router.limits.max_lag_s / desk.router.limits.pulse_s) + 3):
        desk.now_s += desk.router.limits.pulse_s
        desk.flush()


def test_the_leader_names_those_that_owe_confirmations_to_whoever_asks_for_the_configuration() -> None:
    desk = Desk()
    owing(desk)

    assert to(desk.take(U0, ConfigRequest()), U0, ConfigState)[0].lagging == (S0,)

    desk.take(S0, Confirm(position(1, 0)))
    desk.now_s += desk.router.limits.pulse_s
    desk.flush()
    assert to(desk.take(U0, ConfigRequest()), U0, ConfigState)[0].lagging == ()


def test_a_leader_that_no_majority_backs_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    owing(desk)
    monkeypatch.setattr(desk.order, "is_backed", lambda now_s: False)

    assert to(desk.take(U0, ConfigRequest()), U0, ConfigState)[0].lagging == ()


def test_a_new_leadership_begins_to_count_anew() -> None:
    desk = Desk()
    owing(desk)
    desk.order.lead(7)
    desk.flush()

    assert to(desk.take(U0, ConfigRequest()), U0, ConfigState)[0].lagging == ()


# What became of it.


def confirm_all(desk: Desk, at: int) -> Output:
    for peer in (S0, S1, S2, U0):
        desk.router.on_message(peer, Confirm(at), 0.0)
    return desk.flush()


def test_the_sender_is_told_when_everybody_has_confirmed() -> None:
    desk = Desk()
    desk.resume()
    assert to(desk.order_now(of(write(1), write(2))), CLIENT, Stable) == []

    output = confirm_all(desk, position(1, 1))

    assert to(output, CLIENT, Stable) == [Stable(2, ())]


def test_a_repeated_submission_is_answered_and_not_ordered_again() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1)))
    confirm_all(desk, position(1, 0))

    output = desk.route(of(write(1)))

    assert to(output, CLIENT, Stable) == [Stable(1, ())]
    assert len(desk.order.proposed) == 1


def test_refused_and_lost_numbers_are_excepted() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1, table=9), write(2, point(S0, S1)), write(3, point(S1, S2))))
    for peer in (S0, S1):
        desk.router.window.suspect(peer)

    output = confirm_all(desk, position(1, 2))

    (stable,) = to(output, CLIENT, Stable)
    assert stable.upto == 3
    assert [(e.number, e.verdict) for e in stable.exceptions] == [(1, "refused"), (2, "lost")]


def test_what_the_sender_has_been_told_is_not_repeated() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1, table=9)))
    desk.order_now(of(write(2, table=9), acknowledged=1))

    (stable,) = to(desk.route(of(write(2, table=9), acknowledged=1)), CLIENT, Stable)

    assert [e.number for e in stable.exceptions] == [2]


def test_a_follower_tells_nobody_that_anything_is_stable() -> None:
    desk = Desk(leads=False)
    desk.order.learn(batch(of(write(1, table=9))))

    assert to(desk.flush(), CLIENT, Stable) == []
    assert desk.router.mseq.learned_of(CLIENT) == 1


def test_an_expelled_sender_is_told_so_whatever_it_sends() -> None:
    desk = Desk()
    desk.order_now(of(write(1, sender=OTHER)))
    output = desk.order_now(of(configure(1, Suspect(OTHER), sender=U0)))
    assert to(output, OTHER, Expelled) == [Expelled(position(2, 0), 1)]

    output = desk.route(of(write(2, sender=OTHER)))

    assert to(output, OTHER, Expelled) == [Expelled(position(2, 0), 1)]
    assert len(desk.order.proposed) == 2


# Leadership.


def test_a_new_leader_says_where_it_stands_and_sends_only_to_those_that_answer() -> None:
    desk = Desk(leads=False)
    desk.order.learn(batch(of(write(1))))
    desk.flush()

    desk.order.lead(5)
    output = desk.flush()
    assert to(output, CLIENT, Welcome) == [Welcome(Ballot(5, R1), True, R1, 1)]
    assert to(output, S0, Deliver) == []

    assert [m.ballot for m in to(desk.resume(S0), S0, Deliver)] == [Ballot(5, R1)]


def test_a_new_leader_counts_what_it_proposes_again_as_taken() -> None:
    desk = Desk(leads=False)
    desk.order.open.append(batch(of(write(1), write(2))))

    desk.order.lead(5)

    assert to(desk.flush(), CLIENT, Welcome)[0].learned == 2


def test_a_deposed_leader_forwards_and_answers_nothing() -> None:
    desk = Desk()
    desk.resume()
    desk.route(of(write(1)))

    desk.order.depose(Ballot(9, R2))
    desk.order.learn(batch(of(write(1))))
    output = desk.flush()

    assert [type(m) for _, m in output.send] == [Welcome] * len(EVERYBODY)
    assert not any(m.is_leader for _, m in output.send)
    assert desk.take(S0, Confirm(position(1, 0))).send == []


def test_what_waited_at_a_deposed_leader_is_forgotten() -> None:
    desk = Desk()
    desk.order.window = 0
    desk.route(of(write(1)))
    desk.order.depose(Ballot(9, R2))
    desk.flush()

    desk.order.window = 8
    desk.order.lead(10)

    assert to(desk.flush(), CLIENT, Welcome)[0].learned == 0
    assert desk.order.proposed == []


def test_a_fenced_leader_is_told_of_the_higher_ballot() -> None:
    desk = Desk()

    desk.take(S0, Fenced(Ballot(9, R2)))

    assert desk.order.observed == [Ballot(9, R2)]


def test_a_client_has_no_say_in_who_leads() -> None:
    desk = Desk()

    desk.take(CLIENT, Fenced(Ballot(9, R2)))

    assert desk.order.observed == []


def test_pulses_tell_the_idle_how_far_the_order_is() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1, point(S0, S1))))

    desk.now_s += desk.router.limits.pulse_s
    output = desk.flush()

    assert to(output, S2, Pulse) == [Pulse(desk.order.ballot, position(1, 0))]


def test_pulses_tell_followers_what_they_may_trim_and_what_not() -> None:
    desk, follower = Desk(), Desk(leads=False)
    desk.resume()
    for value in (of(write(1, point(S0, S1))), of(write(1, point(S1, S2), sender=OTHER))):
        desk.order_now(value)
        follower.order.learn(batch(value))
    follower.flush()

    def notice() -> None:
        desk.now_s += desk.router.limits.pulse_s
        follower.take(R2, *to(desk.flush(), R2, StableUpTo))

    notice()
    assert follower.router.n_pending == 2
    for peer in (S0, S1):
        desk.take(peer, Confirm(position(1, 0)))
    notice()
    assert follower.router.n_pending == 1
    confirm_all(desk, position(2, 0))
    notice()
    assert follower.router.n_pending == 0


def test_a_pulse_never_runs_ahead_of_what_was_sent() -> None:
    desk = Desk(limits=RouterLimits(credit_bytes=1))
    desk.resume()
    for number in (1, 2, 3):
        desk.order_now(of(write(number, point(S0, S1))))

    desk.now_s += desk.router.limits.pulse_s
    (pulse,) = to(desk.flush(), S0, Pulse)

    assert pulse.idle == position(1, 0)


def test_a_follower_trims_what_the_leader_calls_stable_but_only_what_it_has_learned() -> None:
    desk = Desk(leads=False)
    desk.order.learn(batch(of(write(1))))
    desk.flush()

    desk.take(R2, StableUpTo(2, ((CLIENT, 2),)))
    assert desk.router.n_pending == 0

    desk.order.learn(batch(of(write(2))))
    desk.flush()
    assert desk.router.n_pending == 0
    assert desk.router.window.lost == {CLIENT: {2}}


def test_a_leader_does_not_believe_another_that_something_is_stable() -> None:
    desk = Desk()
    desk.order_now(of(write(1)))

    desk.take(R2, StableUpTo(1, ()))

    assert list(desk.router.window.entries) == [1]


def test_the_configuration_is_told_to_whoever_asks() -> None:
    desk = Desk()
    desk.order_now(of(configure(1, CreateTable(schema("u")))))

    (state,) = to(desk.take(CLIENT, ConfigRequest()), CLIENT, ConfigState)

    assert state.position == position(1, 0)
    assert [table.name for table in Rubberband.decode(state.config).tables] == ["t", "u"]


def test_a_snapshot_is_provided_of_what_is_learned() -> None:
    desk = Desk()
    desk.order_now(of(write(1)))
    desk.order.output.snapshot_for.append(R2)

    desk.flush()

    ((peer, instance, state),) = desk.order.snapshots
    assert (peer, instance) == (R2, 1)
    assert state == take_snapshot(desk.router.mseq, desk.router.window)


def test_a_leader_that_takes_a_snapshot_over_begins_its_sessions_anew() -> None:
    donor = Desk()
    for number in (1, 2):
        donor.order_now(of(write(number, point(S0, S1))))
    desk = Desk()
    desk.resume()

    desk.order.learned = 2
    desk.order.output.install = (2, take_snapshot(donor.router.mseq, donor.router.window))
    output = desk.flush()

    assert to(output, CLIENT, Welcome) == [Welcome(desk.order.ballot, True, R1, 2)]
    assert [m.instance for m in to(desk.resume(S0), S0, Deliver)] == [1, 2]


def test_an_instance_without_a_batch_is_passed_over() -> None:
    desk = Desk()
    desk.resume()
    desk.order.learn(None)

    output = desk.order_now(of(write(1, point(S0, S1))))

    assert [m.instance for m in to(output, S0, Deliver)] == [2]
    assert isinstance(desk.order.proposed[0], Batch)


# Turns.


def test_a_confirmation_that_completes_nothing_leaves_nothing_to_do() -> None:
    desk = Desk()
    desk.resume()
    desk.order_now(of(write(1)))
    *others, last = (peer for peer, box in desk.router.window.outboxes.items() if box.entries)

    for owner in others:
        desk.router.on_message(owner, Confirm(position(1, 0)), 0.0)
        assert desk.router.is_quiet
    desk.router.on_message(last, Confirm(position(1, 0)), 0.0)

    assert others
    assert not desk.router.is_quiet
    assert to(desk.flush(), CLIENT, Stable)


def test_a_broadcast_that_says_when_it_is_quiet_is_asked_after_an_input_or_in_time() -> None:
    asked: list[float] = []

    class Telling(ScriptedOrder):
        is_quiet = False

        def flush(self, now_s: float) -> BroadcastOutput[Batch]:
            asked.append(now_s)
            output = super().flush(now_s)
            output.wake_at_s = 5.0
            return output

    order = Telling(R1)
    order.leader = R2
    router = Router(R1, config=CONFIG, broadcast=order)
    router.on_start(0.0)
    router.flush(0.0)

    router.on_connected(S0, 1.0)
    router.on_message(S0, Hello(), 1.0)
    assert router.flush(1.0).wake_at_s == 5.0
    router.on_message(R2, "anything", 2.0)
    router.flush(2.0)
    order.is_quiet = True
    router.on_message(R2, "counted", 3.0)
    router.flush(3.0)
    router.on_message(S0, Fenced(Ballot(7, R2)), 4.0)
    router.flush(4.0)
    router.flush(5.0)

    assert asked == [0.0, 2.0, 4.0, 5.0]


def test_a_confirmation_that_makes_room_leaves_something_to_do() -> None:
    desk = Desk(limits=RouterLimits(credit_bytes=1))
    desk.resume()
    for number in (1, 2, 3):
        desk.order_now(of(write(number)))
    (owner, *_) = (p for p, box in desk.router.window.outboxes.items() if box.n_sent < len(box.entries))

    desk.router.on_message(owner, Confirm(position(1, 0)), 0.0)

    assert not desk.router.is_quiet
    assert to(desk.flush(), owner, Deliver)
