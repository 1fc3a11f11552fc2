"""Changes of the keyspace, step by step: what begins at p, what ends at q, and what drops it between."""

from __future__ import annotations

from collections import Counter

import pytest

from crescando.errors import SpecError
from crescando.routing.base import Refusal
from crescando.routing.rubberband import (
    ConfigMessage,
    Contract,
    Copy,
    DropChange,
    Expand,
    Join,
    Leave,
    MessageId,
    Ready,
    Rebalance,
    Reconfigure,
    Rubberband,
    Suspect,
    Transformation,
)
from crescando.routing.rubberband.planner import make_plan
from crescando.types import KeyRange, MessageKind, ProcessId
from tests.routing.worlds import CLIENT, config_message, data_message, simple, storage, super_

READ, WRITE = MessageKind.READ, MessageKind.WRITE
A, B, C, D = map(storage, range(4))
NEW, NEWER = ProcessId("storage", "new"), ProcessId("storage", "newer")


class World:
    """A configuration and everybody's next number."""

    def __init__(self, n: int, f: int, *, n_supers: int = 1) -> None:
        self.config = simple(n, f, n_supers=n_supers, ring_ids=[100 * place for place in range(n)])
        self._numbers: Counter[ProcessId] = Counter({CLIENT: 1})
        for process in (NEW, NEWER):
            self.send(process, Join(process))

    def send(self, sender: ProcessId, body: ConfigMessage) -> MessageId:
        """Apply a message that must not be refused."""
        self._numbers[sender] += 1
        message = config_message(sender, body, self._numbers[sender])
        assert self.config.destset(message)
        self.config = self.config.apply(message)
        return MessageId(sender, message.number)

    def begin(
        self, transformation: Transformation, copies: tuple[Copy, ...] | None = None
    ) -> tuple[MessageId, tuple[Copy, ...]]:
        """Let an administrator plan and begin a change."""
        config = self.config
        if copies is None:
            failed = frozenset(config.target.processes) - config.storages
            copies = make_plan(config.target, transformation, failed=failed).copies
        return self.send(CLIENT, Reconfigure(transformation, copies, config.layout)), copies

    def arrive(self, change: MessageId, copies: tuple[Copy, ...]) -> None:
        """Let every copy of a change arrive."""
        for index, copy in enumerate(copies):
            self.send(copy.receiver, Ready(change, index))

    def suspect(self, accused: ProcessId) -> MessageId:
        return self.send(super_(0), Suspect(accused))

    def written(self, at: int) -> set[ProcessId]:
        return set(self.config.destset(data_message(WRITE, [KeyRange(at, at)])))

    def read(self, at: int) -> set[ProcessId]:
        point = [KeyRange(at, at)]
        return {
            process
            for offset in range(12)
            for process in self.config.destset(data_message(READ, point, offset))
        }


def refusal(config: Rubberband, sender: ProcessId, body: ConfigMessage, number: int = 50) -> str:
    with pytest.raises(Refusal) as refused:
        config.destset(config_message(sender, body, number))
    assert config.apply(config_message(sender, body, number)) is config
    return str(refused.value)


def test_a_newcomer_is_written_from_the_first_step_on_and_read_from_the_second() -> None:
    world = World(4, 2)
    change, copies = world.begin(Expand(NEW, 150))

    assert world.config.layout == change
    assert copies == (Copy(B, NEW, (KeyRange(100, 199),)),)
    assert world.written(160) == {B, C, NEW}
    assert world.read(160) == {B, C}
    assert world.config.owned_arcs(NEW) == ()
    report = world.config.destset(data_message(WRITE, [KeyRange(160, 160)]))
    assert report == {B: (KeyRange(100, 199),), C: (), NEW: ()}

    world.arrive(change, copies)

    assert world.config.changes == ()
    assert world.config.layout == change
    assert world.written(160) == world.read(160) == {NEW, C}
    assert world.written(110) == world.read(110) == {B, NEW}
    assert world.config.owned_arcs(NEW) == (KeyRange(100, 149), KeyRange(150, 199))


def test_only_what_is_touched_goes_to_a_newcomer() -> None:
    world = World(4, 2)
    world.begin(Expand(NEW, 150))

    assert world.written(50) == {A, B}
    assert world.written(250) == {C, D}


def test_a_later_change_waits_for_the_one_it_builds_on() -> None:
    world = World(4, 2)
    first, to_first = world.begin(Expand(NEW, 150))
    second, to_second = world.begin(Expand(NEWER, 175))

    world.arrive(second, to_second)
    assert [change.id for change in world.config.changes] == [first, second]
    assert world.read(180) == {B, C}

    world.arrive(first, to_first)
    assert world.config.changes == ()
    assert world.read(180) == {NEWER, C}
    assert world.read(160) == {NEW, NEWER}


def test_a_sender_that_fails_before_its_copy_arrived_drops_the_change_and_what_builds_on_it() -> None:
    world = World(4, 2)
    before = world.config.ring
    first, copies = world.begin(Expand(NEW, 150))
    world.begin(Expand(NEWER, 175))

    fault = world.suspect(copies[0].sender)

    assert world.config.changes == ()
    assert world.config.ring == before
    assert world.config.layout == fault
    assert NEW not in world.written(160)
    assert "not under way" in refusal(world.config, NEW, Ready(first, 0))


def test_a_sender_that_fails_after_its_copy_arrived_drops_nothing() -> None:
    world = World(4, 2)
    halves = (Copy(B, NEW, (KeyRange(100, 149),)), Copy(C, NEW, (KeyRange(150, 199),)))
    change, _ = world.begin(Expand(NEW, 150), halves)
    world.send(NEW, Ready(change, 0))

    world.suspect(B)

    assert [each.id for each in world.config.changes] == [change]
    world.send(NEW, Ready(change, 1))
    assert world.read(110) == {NEW}


def test_a_receiver_that_fails_before_the_end_drops_the_change_also_if_it_was_ready() -> None:
    world = World(5, 3)
    change, copies = world.begin(Contract(C))
    world.send(copies[0].receiver, Ready(change, 0))

    world.suspect(copies[0].receiver)

    assert world.config.changes == ()
    assert C in world.config.ring.processes


def test_a_sender_that_answers_no_more_drops_the_change_though_it_must_not_be_suspected() -> None:
    world = World(4, 1)
    _, copies = world.begin(Expand(NEW, 150))

    world.suspect(copies[0].sender)

    assert world.config.pending == {copies[0].sender}
    assert world.config.changes == ()


def test_a_change_after_which_a_range_had_no_owner_who_lives_is_dropped_at_its_end() -> None:
    # C gives up [0, 99] to B and D, which have failed; A, the third owner, dies while E still receives.
    world = World(6, 3)
    world.suspect(B)
    world.suspect(D)
    change, copies = world.begin(Contract(C, force=True))
    assert [(copy.sender, copy.receiver) for copy in copies] == [(C, storage(4))]
    world.suspect(A)
    assert [each.id for each in world.config.changes] == [change]

    world.arrive(change, copies)

    assert world.config.changes == ()
    assert world.config.layout == MessageId(storage(4), 1)
    assert world.read(50) == {C}


def test_a_change_that_moves_nothing_ends_at_once() -> None:
    world = World(3, 3)

    change, copies = world.begin(Rebalance(A, 150))

    assert copies == ()
    assert world.config.changes == ()
    assert world.config.layout == change
    assert world.config.ring.ids == (100, 150, 200)


def test_what_one_change_did_another_one_takes_back() -> None:
    world = World(3, 3)
    ring = world.config.ring

    for transformation in (Expand(NEW, 150), Contract(NEW)):
        world.arrive(*world.begin(transformation))

    assert world.config.ring == ring


def test_whoever_takes_part_may_give_up_and_nobody_else_of_the_storage_processes() -> None:
    world = World(4, 2)
    change, copies = world.begin(Expand(NEW, 150))
    (copy,) = copies

    assert "has no part" in refusal(world.config, A, DropChange(change, "why not"))
    told = world.send(copy.receiver, DropChange(change, "no room"))

    assert world.config.changes == ()
    assert world.config.layout == told


def test_a_change_planned_for_another_layout_is_refused() -> None:
    world = World(4, 2)
    planned = make_plan(world.config.target, Expand(NEWER, 250)).copies
    stale = Reconfigure(Expand(NEWER, 250), planned, world.config.layout)
    world.begin(Expand(NEW, 150))

    assert "not the present one; plan again" in refusal(world.config, CLIENT, stale)


def test_a_process_with_a_part_in_a_change_cannot_leave() -> None:
    world = World(4, 2)
    world.begin(Expand(NEW, 150))

    assert "has a part in a change" in refusal(world.config, NEW, Leave(NEW))


@pytest.mark.parametrize(
    ("transformation", "copies", "text"),
    [
        (Expand(NEW, 150), (), "nobody copies ring range"),
        (Expand(NEW, 150), (Copy(D, NEW, (KeyRange(100, 199),)),), "not the sender's to give"),
        (Expand(NEW, 150), (Copy(B, NEW, (KeyRange(100, 180),)),), "not cut where partitions begin"),
        (Expand(NEW, 150), (Copy(B, NEW, ()),), "not cut where partitions begin"),
        (Expand(NEW, 150), (Copy(B, NEW, (KeyRange(0, 199),)),), "more than the receiver needs"),
        (Expand(NEW, 150), (Copy(B, NEW, (KeyRange(100, 199),)),) * 2, "told before"),
        (Expand(NEW, 150), (Copy(B, A, (KeyRange(100, 199),)),), "more than the receiver needs"),
        (Expand(NEW, 150), (Copy(CLIENT, NEW, (KeyRange(100, 199),)),), "has failed or answers no more"),
        (Expand(ProcessId("storage", "x"), 150), (), "no member; start it"),
        (Expand(A, 150), (), "has a ring position already"),
        (Expand(NEW, 100), (), "is taken by"),
        (Contract(NEW), (), "has no ring position"),
    ],
)
def test_faulty_changes_are_refused_with_their_cause(
    transformation: Transformation, copies: tuple[Copy, ...], text: str
) -> None:
    world = World(4, 2)

    assert text in refusal(world.config, CLIENT, Reconfigure(transformation, copies, world.config.layout))


def test_storage_processes_do_not_begin_changes_and_only_receivers_are_ready() -> None:
    world = World(4, 2)
    body = Reconfigure(Expand(NEW, 150), (), world.config.layout)
    assert "only clients and supers" in refusal(world.config, A, body)

    change, _ = world.begin(Expand(NEW, 150))
    assert "not the receiver of copy 0" in refusal(world.config, B, Ready(change, 0))
    assert "not the receiver of copy 7" in refusal(world.config, NEW, Ready(change, 7))
    assert "not the receiver of copy -1" in refusal(world.config, NEW, Ready(change, -1))


def test_below_the_replication_factor_nobody_leaves_the_ring() -> None:
    world = World(3, 3)

    with pytest.raises(SpecError, match="replicas need as many processes"):
        world.begin(Contract(A))
    body = Reconfigure(Contract(A), (), world.config.layout)
    assert "replicas need as many processes" in refusal(world.config, CLIENT, body)


def test_no_change_leaves_fewer_copies_that_live_unless_it_is_forced() -> None:
    # C holds [100, 199] with B, and D, which is to hold it in its place, has failed.
    world = World(5, 2)
    world.suspect(D)
    copies = make_plan(world.config.ring, Contract(C), failed=frozenset({D})).copies
    body = Reconfigure(Contract(C), copies, world.config.layout)

    told = refusal(world.config, CLIENT, body)

    assert "ring range [100, 199] would have 1 copies that live instead of 2" in told
    assert "replace what has failed first, or force it" in told
    aside = Rebalance(C, 450)
    copies = make_plan(world.config.ring, aside, failed=frozenset({D})).copies
    assert "replace what has failed first" in refusal(
        world.config, CLIENT, Reconfigure(aside, copies, world.config.layout)
    )

    world.arrive(*world.begin(Contract(C, force=True)))

    assert world.read(150) == {B}
    assert C not in world.config.ring.processes


def test_what_has_failed_is_taken_off_the_ring_without_force() -> None:
    world = World(5, 2)
    world.suspect(C)
    world.suspect(storage(4))

    world.arrive(*world.begin(Contract(C)))

    assert C not in world.config.ring.processes


def test_by_force_fewer_processes_are_left_than_copies_are_promised_and_expansions_bring_them_back() -> None:
    world = World(3, 3)

    change, copies = world.begin(Contract(A, force=True))

    # Who is left holds everything already.
    assert copies == ()
    assert world.config.changes == ()
    assert world.config.layout == change
    ring = world.config.ring
    assert (ring.processes, ring.replication, ring.promised) == ((B, C), 2, 3)
    assert world.written(50) == world.read(50) == {B, C}
    assert world.config.owned_arcs(A) == ()
    assert Rubberband.decode(world.config.encode()) == world.config
    assert "3 replicas need as many processes" in refusal(
        world.config, CLIENT, Reconfigure(Contract(B), (), change)
    )

    world.begin(Contract(B, force=True))
    assert world.read(50) == {C}
    body = Reconfigure(Contract(C, force=True), (), world.config.layout)
    assert "nobody else holds anything" in refusal(world.config, CLIENT, body)

    for newcomer, at in ((NEW, 150), (A, 0)):
        world.arrive(*world.begin(Expand(newcomer, at)))
    ring = world.config.ring
    assert (ring.replication, ring.promised) == (3, 3)
    assert world.written(50) == {A, C, NEW}


def test_changes_are_part_of_the_value() -> None:
    world = World(5, 3)
    change, copies = world.begin(Contract(C))
    world.send(copies[0].receiver, Ready(change, 0))

    again = Rubberband.decode(world.config.encode())

    assert again == world.config
    assert again.changes[0].ready == (0,)
    assert again.target == world.config.target
    assert again.destset(data_message(WRITE, [KeyRange(0, 400)])) == world.config.destset(
        data_message(WRITE, [KeyRange(0, 400)])
    )
