"""What an application process may have on its way: its credit, and what waits for it."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from crescando.routing.batch import Submission
from crescando.routing.ecast.limits import CONFIG_CREDIT_BYTES
from crescando.routing.ecast.outgoing import Outgoing
from crescando.routing.rubberband import CreateTable, Suspect
from tests.ecast.parties import OTHER, configure, of, write
from tests.routing.worlds import schema

SIZE = of(write(1)).n_bytes


def filled(*submissions: Submission, credit: int, learned: int = 0) -> Outgoing:
    outgoing = Outgoing()
    for submission in submissions:
        outgoing.add(submission)
    outgoing.restart(learned, credit)
    return outgoing


def numbers(taken: list[Submission]) -> list[int]:
    return [number for part in taken for number in range(part.first, part.last + 1)]


def test_without_credit_one_message_of_data_is_on_its_way_at_a_time() -> None:
    outgoing = filled(of(configure(1, Suspect(OTHER)), write(2), write(3)), credit=0)

    assert numbers(outgoing.take()) == [1, 2]
    outgoing.settle(1)
    assert outgoing.take() == []
    outgoing.settle(2)
    assert numbers(outgoing.take()) == [3]


def test_only_so_much_is_sent_as_credit_allows_and_the_rest_follows_when_it_is_stable() -> None:
    outgoing = filled(*(of(write(n)) for n in range(1, 8)), credit=3 * SIZE)

    assert numbers(outgoing.take()) == [1, 2, 3]
    assert outgoing.take() == []
    outgoing.settle(2)

    assert numbers(outgoing.take()) == [4, 5]
    assert outgoing.on_way_bytes == 3 * SIZE
    assert len(outgoing) == 5


def test_a_large_submission_is_sent_in_parts() -> None:
    outgoing = filled(
        of(*(write(n) for n in range(1, 31))), credit=of(*(write(n) for n in range(1, 11))).n_bytes
    )
    sent: list[int] = []
    while len(outgoing):
        part = numbers(outgoing.take())
        assert len(part) == 10
        sent += part
        outgoing.settle(sent[-1])

    assert sent == list(range(1, 31))


def test_one_message_larger_than_the_credit_goes_alone() -> None:
    large = replace(write(2), payload=b"x" * 9_000)
    outgoing = filled(of(write(1)), of(large), of(write(3)), credit=2 * SIZE)

    assert numbers(outgoing.take()) == [1]
    outgoing.settle(1)
    assert numbers(outgoing.take()) == [2]
    outgoing.settle(2)
    assert numbers(outgoing.take()) == [3]


def test_configuration_messages_pass_without_credit_within_a_bound() -> None:
    outgoing = filled(of(write(1)), credit=SIZE)
    outgoing.take()
    n = 2
    for _ in range(400):
        outgoing.add(of(configure(n, CreateTable(schema("u" * 5_000)))))
        n += 1
    outgoing.add(of(write(n)))

    passed = outgoing.take()

    size = passed[0].n_bytes
    assert CONFIG_CREDIT_BYTES <= sum(part.n_bytes for part in passed) < CONFIG_CREDIT_BYTES + size
    assert outgoing.take() == []


def test_data_before_a_configuration_message_holds_it_back_for_the_order_of_one_sender() -> None:
    outgoing = filled(of(write(1)), of(write(2), configure(3, Suspect(OTHER))), credit=SIZE)

    assert numbers(outgoing.take()) == [1]
    outgoing.settle(1)
    assert numbers(outgoing.take()) == [2, 3]


def test_a_smaller_grant_stops_at_once_and_a_larger_one_goes_on() -> None:
    outgoing = filled(*(of(write(n)) for n in range(1, 9)), credit=4 * SIZE)
    assert len(outgoing.take()) == 4

    outgoing.credit = 2 * SIZE
    outgoing.settle(2)
    assert outgoing.take() == []

    outgoing.credit = 6 * SIZE
    assert numbers(outgoing.take()) == [5, 6, 7, 8]


def test_a_new_leader_is_sent_everything_above_what_it_has() -> None:
    outgoing = filled(of(write(1), write(2), write(3)), of(write(4)), of(write(5)), credit=3 * SIZE)
    outgoing.take()

    outgoing.restart(2, 1 << 20)

    assert numbers(outgoing.take()) == [3, 4, 5]
    outgoing.restart(5, 1 << 20)
    assert outgoing.take() == []
    assert outgoing.on_way_bytes > 0
    outgoing.settle(5)
    assert (len(outgoing), outgoing.on_way_bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_numbers_go_in_order_and_within_credit(seed: int) -> None:
    rng = random.Random(seed)
    outgoing = Outgoing()
    next_number, sent, stable = 1, 0, 0
    for _ in range(300):
        roll = rng.random()
        if roll < 0.35:
            n = rng.randint(1, 9)
            kinds = [rng.random() < 0.2 for _ in range(n)]
            outgoing.add(
                of(
                    *(
                        configure(next_number + i, Suspect(OTHER)) if config else write(next_number + i)
                        for i, config in enumerate(kinds)
                    )
                )
            )
            next_number += n
        elif roll < 0.7:
            for part in outgoing.take():
                assert part.first == sent + 1
                sent = part.last
        elif roll < 0.9:
            stable = rng.randint(stable, sent)
            outgoing.settle(stable)
        elif roll < 0.95:
            outgoing.credit = rng.choice((SIZE, 10 * SIZE, 1 << 20))
        else:
            sent = rng.randint(stable, sent)
            outgoing.restart(sent, outgoing.credit)
        assert outgoing._data_bytes >= 0 <= outgoing._config_bytes
    outgoing.credit = 1 << 30
    assert numbers(outgoing.take()) == list(range(sent + 1, next_number))
    outgoing.settle(next_number - 1)
    assert (len(outgoing), outgoing.on_way_bytes) == (0, 0)


def test_a_part_that_was_stable_when_a_leadership_begins_uses_up_no_credit() -> None:
    """It becomes stable once only: counted as on its way it would hold the rest back for ever."""
    outgoing = filled(of(*(write(n) for n in range(1, 7))), credit=6 * SIZE)
    outgoing.take()
    outgoing.settle(4)

    outgoing.restart(4, SIZE)

    assert numbers(outgoing.take()) == [5]
    assert outgoing.on_way_bytes <= SIZE
    outgoing.settle(5)
    assert numbers(outgoing.take()) == [6]


def test_what_becomes_stable_while_it_waits_is_not_sent_again() -> None:
    outgoing = filled(of(*(write(n) for n in range(1, 7))), credit=0)

    outgoing.settle(4)

    assert numbers(outgoing.take()) == [5]
    outgoing.settle(5)
    assert numbers(outgoing.take()) == [6]
    outgoing.settle(6)
    assert len(outgoing) == 0
    assert outgoing.on_way_bytes == 0
