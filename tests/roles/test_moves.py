"""Ranges move between storage processes while written and read, and nothing is lost or done twice."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import pytest

from crescando import wire
from crescando.engine.scan import ScanEngine
from crescando.roles.copy_messages import AskCopies, CopiesTold, CopyUnknown
from crescando.roles.limits import StorageLimits
from crescando.routing.rubberband import (
    AddColumn,
    Contract,
    CreateTable,
    DropChange,
    DropColumn,
    Expand,
    Rebalance,
    Replace,
    Suspect,
    Transformation,
    decode_message,
)
from crescando.schema import ColumnDef, DataType
from crescando.testing.workload import KEYS, SCHEMA
from crescando.types import RING_MAX, ProcessId
from tests.roles.moving import ADMIN, ALICE, BOB, WORK, Town
from tests.roles.stage import sent
from tests.routing.worlds import storage, super_

S = [storage(i) for i in range(8)]
QUARTERS = [0, 1 << 62, 1 << 63, 3 << 62]
SMALL = StorageLimits(copy_window_bytes=300, cycle_operations=8)


def town(n: int = 4, replication: int = 2, n_standbys: int = 2, **options: Any) -> Town:
    made = Town(
        S[:n], replication=replication, standbys=S[n : n + n_standbys], ring_ids=QUARTERS[:n], **options
    )
    made.order_config(ADMIN, CreateTable(SCHEMA))
    made.order_data(ALICE, [WORK._put("insert", list(range(KEYS)), [10 * k for k in range(KEYS)], 1)])
    return made


CHANGES = {
    "expand": Expand(S[4], 1 << 61),
    "expand over the end": Expand(S[4], RING_MAX - 5),
    "contract": Contract(S[1]),
    "replace": Replace(S[2], S[4]),
    "rebalance": Rebalance(S[3], 1 << 61),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_moves_exactly_what_it_must(name: str) -> None:
    world = town()
    assert world.change(CHANGES[name]) is not None
    world.settle()
    world.order_data(BOB, [WORK._where("add_by_group", (5, 1)), WORK._where("read_all", ())])
    world.settle()
    world.check()
    world.check_reported()


@pytest.mark.parametrize("seed", range(int(os.environ.get("MOVES_SEEDS", "40"))))
def test_changes_under_writes_and_reads_equal_one_engine_that_never_moved(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", range(5_000, 5_000 + int(os.environ.get("MOVES_SEEDS", "25"))))
def test_no_write_is_lost_while_processes_die_in_the_middle_of_changes(seed: int) -> None:
    walk(seed, deaths=0.3)


def walk(seed: int, *, deaths: float = 0.0, **options: Any) -> None:
    """Let clients write and read, and administrators change the ring, all drawn from a seed.

    Parameters
    ----------
    deaths : float
        How often a process dies, instead of whatever else happens.
    """
    rng = random.Random(seed)
    limits = StorageLimits(
        copy_window_bytes=rng.choice((200, 2000, 1 << 20)), cycle_operations=rng.choice((1, 3, 8, 100))
    )
    n = rng.choice((3, 4))
    world = town(n, rng.choice((1, 2, 3)), 3, limits=limits, **options)
    for _ in range(rng.randrange(4, 12)):
        what = rng.random()
        if what < 0.35:
            transformation = draw(rng, world)
            if transformation is not None:
                world.change(transformation)
        elif what < 0.4 and world.config.changes:
            world.order_config(ADMIN, DropChange(rng.choice(world.config.changes).id, "no more"))
        elif what < 0.45:
            name = f"x{rng.randrange(2)}"
            has = any(column.name == name for column in world.config.table("accounts").columns)
            body = (
                DropColumn("accounts", name)
                if has
                else AddColumn("accounts", ColumnDef(name, DataType.STRING))
            )
            world.order_config(ADMIN, body)
        elif what > 1.0 - deaths:
            die(rng, world)
        for _ in range(rng.randrange(1, 4)):
            world.order_data(
                rng.choice((ALICE, BOB)), [WORK.draw(rng) for _ in range(rng.choice((1, 2, 12)))]
            )
            for _ in range(rng.randrange(60)):
                world.random_step(rng)
    world.settle()
    world.check()
    if not deaths:
        world.check_reported()


def die(rng: random.Random, world: Town) -> None:
    """Let a process die of which each range has another owner that lives, and be voted out a while later."""
    living = {host.me for host in world.alive()} & world.config.storages
    owners = [world.config.ring.owners(arc) for arc in range(len(world.config.ring.arcs))]
    mortal = [each for each in sorted(living) if all((living - {each}).intersection(some) for some in owners)]
    if not mortal:
        return
    victim = rng.choice(mortal)
    world.crash(victim)
    for _ in range(rng.randrange(40)):
        world.random_step(rng)
    # It may be the last owner of a range by now, which is not available then.
    accuse(world, victim)


def draw(rng: random.Random, world: Town) -> Transformation | None:
    """Draw a transformation of the ring that the changes under way will give."""
    target = world.config.target
    standbys = sorted(world.config.storages - set(target.processes))
    at = rng.choice((rng.randrange(RING_MAX), rng.choice(QUARTERS) + rng.randrange(1000)))
    process = rng.choice(target.processes)
    kinds: list[Transformation] = [Rebalance(process, at)]
    if standbys:
        kinds += [Expand(rng.choice(standbys), at), Replace(process, rng.choice(standbys))]
    if len(target.processes) > target.replication:
        kinds.append(Contract(process))
    return rng.choice(kinds)


def test_changes_of_a_store_of_scans_equal_one_engine_that_never_moved() -> None:
    for seed in range(8):
        walk(1000 + seed, engine=partial(ScanEngine, block_rows=8))


# What goes wrong.


def begin_an_expansion(world: Town) -> Town:
    """Begin to give s4 a position, and take the image at its senders, but let nothing arrive."""
    assert world.change(CHANGES["expand"]) is not None
    for host in world.alive():
        world.receive(host, 100)
        while host.work is not None:
            world.execute(host)
    return world


def accuse(world: Town, process: ProcessId) -> None:
    """Let the supers declare a process failed."""
    world.order_config(super_(0), Suspect(process), world.numbers.get(super_(0), 0) + 1)
    world.numbers[super_(0)] = world.numbers.get(super_(0), 0) + 1


def test_a_sender_that_dies_is_voted_out_which_drops_the_change_and_another_one_takes_its_place() -> None:
    world = begin_an_expansion(town(limits=SMALL))
    (sender,) = {copy.sender for copy in world.config.changes[0].copies}

    world.crash(sender)
    world.order_data(ALICE, [WORK._where("add_by_group", (1, 1))])
    accuse(world, sender)
    assert not world.config.changes
    world.settle()
    world.check()
    assert world.hosts[S[4]].engine.statistics()["rows"] == 0

    world.change(Replace(sender, S[5]))
    world.settle()
    world.check()


def test_a_receiver_that_dies_leaves_nothing_behind() -> None:
    world = begin_an_expansion(town(limits=SMALL))

    world.crash(S[4])
    accuse(world, S[4])
    world.settle()

    world.check()
    assert all(not host.core.copies._outgoing for host in world.alive())


def test_a_change_that_is_dropped_leaves_the_old_layout_and_no_rows() -> None:
    world = begin_an_expansion(town(limits=SMALL))
    (change,) = world.config.changes
    world.order_config(ADMIN, DropChange(change.id, "enough"))
    world.order_data(BOB, [WORK._where("read_all", ())])
    world.settle()

    world.check()
    assert world.hosts[S[4]].engine.statistics()["rows"] == 0
    assert world.config.owned_arcs(S[4]) == ()


def test_a_receiver_that_would_keep_too_much_gives_up_and_says_why() -> None:
    limits = StorageLimits(copy_window_bytes=300, cycle_operations=8, copy_bytes=20_000)
    world = begin_an_expansion(town(limits=limits))
    for _ in range(12):
        world.order_data(ALICE, [WORK._where("add_by_group", (1, 1)) for _ in range(20)])
    host = world.hosts[S[4]]
    for _ in range(60):
        world.receive(host)
        world.execute(host)

    said = [decode_message(batch.payload_of(0)) for batch in host.multicast.submitted]
    (drop,) = [body for body in said if isinstance(body, DropChange)]
    assert "wait to be executed, and 20,000 may" in drop.reason
    world.settle()
    world.check()


def test_a_receiver_whose_memory_is_nearly_full_gives_up_before_it_must_stop() -> None:
    limits = StorageLimits(copy_window_bytes=300, memory_bytes=1 << 30, memory_watermark=1 / (1 << 30))
    world = begin_an_expansion(town(limits=limits))
    world.order_data(ALICE, [WORK._where("add_by_group", (1, 1))])
    world.settle()

    said = [decode_message(b.payload_of(0)) for b in world.hosts[S[4]].multicast.submitted]
    assert [type(body) for body in said] == [DropChange]
    assert "memory's watermark" in said[0].reason
    # Those that are as full and only send go on.
    assert not any(host.multicast.submitted for host in world.alive() if host.me != S[4])
    world.check()


def test_a_receiver_without_a_session_gives_up_after_a_while() -> None:
    world = town(limits=SMALL)
    world.change(CHANGES["expand"])
    (sender,) = {copy.sender for copy in world.config.changes[0].copies}
    world.cut.add(frozenset((S[4], sender)))
    receiver = world.hosts[S[4]]
    for host in (world.hosts[sender], receiver):
        world.receive(host, 100)
        world.execute(host)
    assert not world.sessions
    began_s = world.now_s

    for at_s, n in ((SMALL.copy_patience_s - 1.0, 0), (SMALL.copy_patience_s + 1.0, 1)):
        world.now_s = began_s + at_s
        world.turn(world.hosts[sender])
        world.turn(receiver)
        assert len(receiver.multicast.submitted) == n

    (batch,) = receiver.multicast.submitted
    drop = decode_message(batch.payload_of(0))
    assert isinstance(drop, DropChange)
    assert "no session with its sender for 30 s" in drop.reason
    # It waits for nothing any more but the order.
    assert receiver.core.copies.wake_at_s is None or receiver.core.copies.wake_at_s > world.now_s
    world.settle()
    world.check()


def test_a_sender_that_is_behind_is_asked_again() -> None:
    world = town(limits=SMALL)
    world.settle()
    world.change(Rebalance(S[3], 1 << 61))
    # The first in name asks for the session: here the receiver, which is ahead.
    copy = next(copy for copy in world.config.changes[0].copies if copy.receiver < copy.sender)
    receiver, sender = world.hosts[copy.receiver], world.hosts[copy.sender]
    world.receive(receiver, 100)
    world.execute(receiver)
    for _ in range(3):
        world.pass_on((receiver.me, sender.me))
        (answer,) = [wire.decode(data) for data in world.channels[sender.me, receiver.me]]
        assert isinstance(answer, CopyUnknown)
        world.pass_on((sender.me, receiver.me))
        assert not world.channels[receiver.me, sender.me]
        world.now_s += 0.2
        world.turn(receiver)

    world.settle()
    world.check()


def test_progress_is_told_to_whoever_asks() -> None:
    world = begin_an_expansion(town(limits=SMALL))
    (sender,) = {copy.sender for copy in world.config.changes[0].copies}

    def ask(process: ProcessId) -> CopiesTold:
        host = world.hosts[process]
        host.core.on_message(ALICE, AskCopies(3), world.now_s)
        (told,) = sent(host.core.flush(world.now_s), CopiesTold, to=ALICE)
        assert told.request == 3
        return told

    (incoming,) = ask(S[4]).incoming
    (outgoing,) = ask(sender).outgoing
    assert incoming.copy == outgoing.copy
    assert (incoming.sender, incoming.receiver) == (sender, S[4])
    assert incoming.stage == "connecting"
    assert sender.node in incoming.blocker
    assert outgoing.n_rows > 0
    assert outgoing.rows == 0
    for _ in range(400):
        world.now_s += 0.01
        for pair in [pair for pair, queue in world.channels.items() if queue]:
            world.pass_on(pair)
        for host in world.alive():
            world.receive(host)
            world.execute(host)
    (incoming,) = ask(S[4]).incoming
    assert (incoming.stage, incoming.rows) == ("ready", outgoing.n_rows)
    assert incoming.rows_s > 0
    world.settle()
    assert ask(S[4]).incoming == ()
    assert ask(sender).outgoing == ()


def test_a_range_that_was_moved_away_and_back_has_its_rows() -> None:
    world = town(limits=SMALL)
    world.change(Rebalance(S[3], 1 << 61))
    world.change(Rebalance(S[3], 3 << 62))
    world.change(Contract(S[0]))
    for amount in range(8):
        world.order_data(ALICE, [WORK._where("add_by_group", (amount, 1)), WORK._where("read_all", ())])
        for _ in range(20):
            world.random_step(random.Random(amount))
    world.settle()
    world.check()
    world.check_reported()


def test_a_session_that_comes_when_nobody_needs_it_any_more_ends() -> None:
    world = begin_an_expansion(town(limits=SMALL))
    (change,) = world.config.changes
    (copy,) = change.copies
    first, last = sorted((copy.sender, copy.receiver))
    world.end_session(first, last)
    world.order_config(ADMIN, DropChange(change.id, "enough"))
    for host in world.alive():
        world.receive(host, 100)

    # The answer to what was asked before comes only now.
    world.sessions.add(frozenset((first, last)))
    for one, other in ((last, first), (first, last)):
        world.hosts[one].core.on_connected(other, world.now_s)
        world.turn(world.hosts[one])

    world.settle()
    world.check()
