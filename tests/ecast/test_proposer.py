"""Whose turn it is at a leader: fairness, the reserve, and destinations that are slow for themselves."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import msgspec
import pytest

from crescando.routing.batch import Submission
from crescando.routing.ecast.limits import CONFIG_CREDIT_BYTES, RouterLimits
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.proposer import Proposer
from crescando.routing.ecast.stability import Window
from crescando.routing.rubberband import CreateTable, Rubberband, Suspect
from crescando.types import ProcessId
from tests.ecast.parties import CONFIG, OTHER, R1, S0, S1, S2, U0, ScriptedOrder, configure, of, point, write
from tests.routing.worlds import CLIENT, schema

FAST, MIXED = point(S0, S1), point(S1, S2)
"""A point that the slow S2 does not hold, and one that it does."""


class Line:
    """A proposer, the window it looks at, and an order that decides one batch at a time."""

    def __init__(self, *, window: int = 1, **limits: Any) -> None:
        self.order = ScriptedOrder(R1)
        self.order.lead()
        self.order.window = window
        self.limits = RouterLimits(**limits)
        self.proposer: Proposer[Rubberband] = Proposer(self.order, self.limits)
        self.window: Window[Rubberband] = Window()

    def put(self, *submissions: Submission) -> None:
        for submission in submissions:
            assert self.proposer.put(submission)

    def propose(self) -> list[Batch]:
        before = len(self.order.proposed)
        self.proposer.propose(self.window, CONFIG)
        return self.order.proposed[before:]

    def batches(self, n: int) -> list[Batch]:
        """Propose and decide so many times."""
        found = []
        for _ in range(n):
            found += self.propose()
            while self.order.open:
                self.order.decide()
        return found


def numbers(batches: list[Batch], sender: ProcessId) -> list[int]:
    """Give the numbers of a sender in the order of their proposal."""
    return [
        number
        for batch in batches
        for part in batch.submissions
        if part.sender == sender
        for number in range(part.first, part.last + 1)
    ]


def client(n: int) -> ProcessId:
    return ProcessId("client", f"n{n}", 1)


def backlog(sender: ProcessId, n_submissions: int, n_messages: int) -> list[Submission]:
    """Give many submissions, as one that never waits sends them."""
    one = of(*(write(n, sender=sender) for n in range(1, n_messages + 1)))
    return [msgspec.structs.replace(one, first=1 + n_messages * index) for index in range(n_submissions)]


# Fairness.


def test_a_thousand_small_senders_beside_an_endless_one_are_in_the_next_batches() -> None:
    line = Line()
    line.put(*backlog(client(0), 60, 1024))
    line.batches(1)

    line.put(*(of(write(1, sender=client(n))) for n in range(1, 1024)))
    found = line.batches(2)

    served = {part.sender for batch in found for part in batch.submissions}
    assert served >= {client(n) for n in range(1, 1024)}
    assert client(0) in served


def test_a_small_sender_does_not_wait_behind_many_with_a_backlog() -> None:
    line = Line(batch_messages=64)
    for n in range(100):
        line.put(*backlog(client(n), 4, 64))
    line.batches(15)

    line.put(of(write(1, sender=OTHER)))

    assert numbers(line.batches(1), OTHER) == [1]


def test_new_senders_without_end_do_not_starve_one_with_a_backlog() -> None:
    line = Line(batch_messages=8)
    line.put(*backlog(OTHER, 10, 1))

    for turn in range(24):
        line.put(*(of(write(1, sender=client(100 * turn + n))) for n in range(20)))
        line.batches(1)

    assert len(numbers(line.order.proposed, OTHER)) == 10


def test_a_turn_is_a_part_of_a_batch_unless_nobody_else_waits() -> None:
    line = Line(batch_messages=80)
    line.put(*backlog(CLIENT, 1, 80))
    assert [len(part) for part in line.batches(1)[0].submissions] == [80]

    line.put(*(s for n in range(4) for s in backlog(client(n), 1, 80)))

    assert {len(part) for part in line.batches(1)[0].submissions} == {10}


def test_one_message_larger_than_a_turn_is_taken_in_its_turn() -> None:
    line = Line(batch_bytes=4_000)
    large = msgspec.structs.replace(write(1, sender=OTHER), payload=b"x" * 2_000)
    line.put(of(write(1)), of(large), of(write(1, sender=client(1))))

    assert [part.sender for part in line.batches(1)[0].submissions] == [CLIENT, OTHER, client(1)]


# Configuration messages.


def test_configuration_messages_go_first_and_leave_their_followers_behind() -> None:
    line = Line()
    line.put(of(write(1, sender=OTHER)), of(configure(1, CreateTable(schema("u"))), write(2)))

    (batch,) = line.batches(1)

    assert [(part.sender, part.first, part.last) for part in batch.submissions] == [
        (CLIENT, 1, 1),
        (OTHER, 1, 1),
        (CLIENT, 2, 2),
    ]


def test_a_suspicion_passes_a_full_window_and_a_slow_destination_of_everything() -> None:
    line = Line(window_bytes=1)
    line.window.n_bytes = 999
    line.window.slow = {S0, S1, S2}
    line.put(*backlog(CLIENT, 5, 10))
    assert line.batches(2) == []

    line.put(of(configure(1, Suspect(S2), sender=U0)))

    assert [part.sender for batch in line.batches(2) for part in batch.submissions] == [U0]


# Slow destinations.


def test_a_slow_destination_holds_back_what_is_for_it_and_the_same_sender_s_later_messages() -> None:
    line = Line()
    line.window.slow = {S2}
    line.put(of(write(1, FAST), write(2, MIXED), write(3, FAST)), of(write(4, FAST)))
    line.put(of(write(1, FAST, sender=OTHER)))

    found = line.batches(3)

    assert numbers(found, CLIENT) == [1]
    assert numbers(found, OTHER) == [1]
    assert line.proposer.held == {CLIENT}


def test_what_was_held_goes_in_order_when_the_destination_has_caught_up() -> None:
    line = Line()
    line.window.slow = {S2}
    line.put(of(write(1, FAST), write(2, MIXED), write(3, FAST)))
    line.batches(2)
    line.put(of(write(4, MIXED)))
    line.batches(2)

    line.window.slow = set()
    found = line.batches(3)

    assert numbers(found, CLIENT) == [2, 3, 4]
    assert line.proposer.held == frozenset()


def test_what_is_held_does_not_make_others_worth_an_instance() -> None:
    line = Line(window=2, eager_messages=3)
    line.window.slow = {S2}
    line.put(*(of(write(n, MIXED)) for n in range(1, 9)))
    assert line.propose() == []
    line.put(of(write(1, FAST, sender=OTHER)))
    line.propose()

    line.put(of(write(2, FAST, sender=OTHER)))

    assert line.propose() == []


def test_a_message_that_is_refused_everywhere_is_held_back_by_nobody() -> None:
    line = Line()
    line.window.slow = {S0, S1, S2}
    line.put(of(write(1, table=99)))

    assert numbers(line.batches(1), CLIENT) == [1]


# Bounds, and nothing lost.


def test_one_that_sends_far_beyond_its_credit_is_not_taken() -> None:
    line = Line(window=0, sender_bytes=100_000)
    taken = 0
    for submission in backlog(CLIENT, 500, 1_000):
        if not line.proposer.put(submission):
            break
        taken += submission.n_bytes

    assert 100_000 < taken < 3 * (100_000 + CONFIG_CREDIT_BYTES)
    assert line.proposer.n_bytes == taken


def test_configuration_messages_beyond_theirs_are_not_taken_either() -> None:
    line = Line(window=0)
    count = 0
    while line.proposer.put(of(configure(count + 1, CreateTable(schema("u" * 5_000)), sender=U0))):
        count += 1
        assert count < 5_000

    assert line.proposer.n_bytes > CONFIG_CREDIT_BYTES


def test_a_forgotten_sender_leaves_nothing_behind() -> None:
    line = Line(window=0)
    line.window.slow = {S2}
    line.put(of(write(1, MIXED)), of(write(1, FAST, sender=OTHER)))
    line.order.window = 1
    line.batches(1)
    for sender in (CLIENT, OTHER, client(7)):
        line.proposer.forget(sender)

    assert line.proposer.n_bytes == 0
    assert line.proposer.held == frozenset()
    assert line.proposer.taken(CLIENT) == 0
    line.put(of(write(1, FAST)))
    assert numbers(line.batches(1), CLIENT) == [1]


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_proposed_once_and_in_order_whatever_is_slow_when(seed: int) -> None:
    rng = random.Random(seed)
    line = Line(
        window=rng.choice((1, 3)),
        batch_messages=rng.choice((1, 5, 64)),
        batch_bytes=rng.choice((10, 700, 1 << 20)),
        eager_messages=rng.choice((1, 20)),
    )
    senders = [CLIENT, OTHER, U0, *(client(n) for n in range(3))]
    next_number = Counter(dict.fromkeys(senders, 1))
    for _ in range(120):
        sender = rng.choice(senders)
        messages = []
        for _ in range(rng.randint(1, 6)):
            number = next_number[sender]
            next_number[sender] += 1
            if rng.random() < 0.2:
                messages.append(configure(number, Suspect(OTHER), sender=sender))
            else:
                messages.append(write(number, rng.choice((FAST, MIXED)), sender=sender))
        line.put(of(*messages))
        roll = rng.random()
        if roll < 0.3:
            line.window.slow = set(rng.sample([S0, S1, S2], rng.randint(0, 2)))
        if roll < 0.6:
            line.propose()
        elif line.order.open:
            line.order.decide()
    line.window.slow = set()
    line.batches(500)

    for sender in senders:
        assert numbers(line.order.proposed, sender) == list(range(1, next_number[sender]))
    assert line.proposer.n_bytes == 0
    assert (line.proposer._ready_messages, line.proposer._ready_bytes) == (0, 0)
    assert line.proposer.open_bytes == (0, 0)
    bound = max(
        line.limits.batch_bytes, max(part.n_bytes for b in line.order.proposed for part in b.submissions)
    )
    assert all(batch.n_bytes <= bound for batch in line.order.proposed)


def test_a_new_leadership_counts_what_it_proposes_again() -> None:
    line = Line(window=0)
    line.order.open = deque(
        [Batch((of(write(1), write(2)),)), Batch((of(configure(1, Suspect(S2), sender=U0)),))]
    )

    proposer: Proposer[Rubberband] = Proposer(line.order, line.limits)

    assert (proposer.taken(CLIENT), proposer.taken(U0), proposer.taken(OTHER)) == (2, 1, 0)
    data, config = proposer.open_bytes
    assert data == of(write(1), write(2)).n_bytes
    assert config == of(configure(1, Suspect(S2), sender=U0)).n_bytes


# Credit.


def test_all_grants_together_are_one_window_and_shrink_as_it_fills() -> None:
    limits = RouterLimits()
    for n in (1, 10, 64, 1_024, 4_000):
        grants = [
            limits.credit(held, n) for held in range(0, 2 * limits.window_bytes, limits.window_bytes // 16)
        ]
        assert grants == sorted(grants, reverse=True)
        assert n * grants[0] <= limits.window_bytes
    assert limits.credit(0, 8) == limits.credit(limits.window_bytes // 2, 8) == limits.sender_bytes
    assert limits.credit(limits.window_bytes * 3 // 4, 8) == limits.sender_bytes // 2
    assert 0 < limits.credit(limits.window_bytes, 8) == limits.credit(1 << 60, 8) < limits.sender_bytes // 16
