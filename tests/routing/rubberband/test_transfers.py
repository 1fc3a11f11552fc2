"""What each process sends, receives and must keep, as follows from the configuration."""

from __future__ import annotations

import random

import pytest

from crescando.errors import SpecError
from crescando.routing.base import Refusal
from crescando.routing.rubberband import (
    Contract,
    Expand,
    Join,
    MessageId,
    Ready,
    Rebalance,
    Reconfigure,
    Replace,
    Rubberband,
    Transformation,
)
from crescando.routing.rubberband.planner import make_plan
from crescando.scopes import common, covers, subtract
from crescando.types import FULL_RING, RING_MAX, KeyRange, ProcessId
from tests.routing.worlds import CLIENT, config_message, storage

S = [storage(i) for i in range(6)]


def begin(config: Rubberband, transformation: Transformation, number: int) -> Rubberband:
    plan = make_plan(config.target, transformation)
    message = config_message(CLIENT, Reconfigure(transformation, plan.copies, config.layout), number)
    config.destset(message)
    return config.apply(message)


def ready(config: Rubberband, number: int, copy: int) -> Rubberband:
    (change,) = [each for each in config.changes if each.id.number == number]
    body = Ready(MessageId(CLIENT, number), copy)
    message = config_message(change.copies[copy].receiver, body, 100 * number + copy)
    config.destset(message)
    return config.apply(message)


def world() -> Rubberband:
    config = Rubberband.genesis(storages=S[:3], replication=1, clients=[CLIENT], ring_ids=[0, 1000, 2000])
    for process in S[3:]:
        config = config.apply(config_message(process, Join(process)))
    return config


def test_an_expansion_is_one_copy_of_what_the_newcomer_is_to_own() -> None:
    config = begin(world(), Expand(S[3], 500), 2)

    (transfer,) = config.transfers(S[3])
    assert config.transfers(S[0]) == (transfer,)
    assert config.transfers(S[1]) == ()
    assert transfer.scope == transfer.missing == (KeyRange(500, 999),)
    assert (transfer.sender, transfer.receiver) == (S[0], S[3])
    assert transfer.awaited == ()
    assert config.wanted(S[3]) == (KeyRange(500, 999),)
    assert config.wanted(S[0]) == (KeyRange(0, 999),)
    assert config.borders() == (0, 500, 1000, 2000)
    after = ready(config, 2, 0)
    assert after.transfers(S[3]) == after.transfers(S[0]) == ()
    assert after.wanted(S[0]) == (KeyRange(0, 499),)


def test_a_sender_that_is_still_to_receive_awaits_what_it_sends() -> None:
    config = begin(begin(world(), Expand(S[3], 500), 2), Replace(S[3], S[4]), 3)

    (second,) = config.transfers(S[4])
    assert second.missing == (KeyRange(500, 999),)
    assert common(second.missing, second.awaited)
    after = ready(config, 2, 0)
    (second,) = after.transfers(S[4])
    assert not common(second.missing, second.awaited)


def test_what_a_receiver_holds_or_is_to_receive_already_is_not_missing() -> None:
    config = begin(world(), Rebalance(S[1], 1500), 2)
    # s0 is to get [1000, 1499] of s1, and loses it again to a newcomer, and gets it back.
    config = begin(config, Expand(S[3], 1000), 3)
    config = begin(config, Contract(S[3]), 4)

    first, *_ = config.transfers(S[0])
    last = config.transfers(S[0])[-1]
    assert (first.scope, first.missing) == ((KeyRange(1000, 1499),), (KeyRange(1000, 1499),))
    assert (last.scope, last.missing) == ((KeyRange(1000, 1499),), ())


def test_an_identifier_that_goes_cuts_arcs_as_long_as_a_change_lasts_that_knew_it() -> None:
    config = begin(begin(world(), Contract(S[1]), 2), Expand(S[3], 2500), 3)
    assert config.borders() == (0, 1000, 2000, 2500)

    config = ready(config, 2, 0)
    assert config.ring.ids == (0, 2000)
    assert config.borders() == (0, 1000, 2000, 2500)

    config = ready(config, 3, 0)
    assert config.borders() == (0, 2000, 2500)


@pytest.mark.parametrize("seed", range(40))
def test_both_sides_agree_and_nobody_is_to_keep_what_nobody_brings(seed: int) -> None:
    rng = random.Random(seed)
    config = world()
    known: dict[tuple[MessageId, int], tuple[KeyRange, ...]] = {}
    live = {process: set(cells(config.owned_arcs(process))) for process in S}
    for number in range(2, 30):
        if config.changes and rng.random() < 0.6:
            change = rng.choice(config.changes)
            left = [copy for copy in range(len(change.copies)) if copy not in change.ready]
            if not left:
                continue
            # Only what its sender holds can have arrived.
            copy = rng.choice(left)
            transfer = next(
                each
                for each in config.transfers(change.copies[copy].receiver)
                if (each.change, each.number) == (change.id, copy)
            )
            missing = known[transfer.change, transfer.number]
            if common(missing, transfer.awaited):
                continue
            assert set(cells(missing)) <= live[transfer.sender]
            receiver = live[transfer.receiver]
            if not set(cells(subtract(transfer.scope, missing))) <= receiver:
                continue
            receiver |= set(cells(missing))
            config = ready(config, change.id.number, copy)
        else:
            try:
                config = begin(config, draw(rng, config), number)
            except (Refusal, SpecError):
                continue
        for process in S:
            for each in config.transfers(process):
                known.setdefault((each.change, each.number), each.missing)
                assert covers(each.scope, each.missing)
                assert covers(config.wanted(each.receiver), each.scope)
                assert [t for t in config.transfers(each.sender) if t[:2] == each[:2]] == [each]
            live[process] &= set(cells(config.wanted(process)))
            # Whoever owns a range has held it all the time, or received it.
            assert set(cells(config.owned_arcs(process))) <= live[process]
            # What is copied, and what is held already, begins where arcs do.
            for each in config.transfers(process):
                missing = known[each.change, each.number]
                held = subtract(each.scope, missing)
                begins = {low for low, _ in (*missing, *held)}
                assert begins <= {0, *config.borders()}


def cells(ranges: object) -> list[int]:
    """Give positions that stand for all others: those where anything may begin."""
    return [at for at in range(0, 4000, 50) if any(low <= at <= high for low, high in ranges)]  # type: ignore[attr-defined]


def draw(rng: random.Random, config: Rubberband) -> Transformation:
    target = config.target
    standbys: list[ProcessId] = sorted(config.storages - set(target.processes))
    at = 50 * rng.randrange(80)
    process = rng.choice(target.processes)
    kinds: list[Transformation] = [Rebalance(process, at)]
    if standbys:
        kinds += [Expand(rng.choice(standbys), at), Replace(process, rng.choice(standbys))]
    if len(target.processes) > target.replication:
        kinds.append(Contract(process))
    return rng.choice(kinds)


def test_the_whole_ring_is_wanted_by_somebody() -> None:
    config = begin(world(), Rebalance(S[2], RING_MAX), 2)
    wanted = [each for process in S for each in config.wanted(process)]
    assert subtract((FULL_RING,), tuple(wanted)) == []
