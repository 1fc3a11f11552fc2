"""What happened, told from the order: enough to know what there is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from crescando.routing.base import Refusal
from crescando.routing.rubberband import (
    Contract,
    CreateTable,
    DropChange,
    Expand,
    Join,
    Leave,
    MessageId,
    Ready,
    Rebalance,
    Reconfigure,
    Replace,
    Ring,
    Rubberband,
    Suspect,
    Trust,
)
from crescando.routing.rubberband.happenings import (
    Available,
    Began,
    Dropped,
    Ended,
    Failed,
    Happening,
    Joined,
    Left,
    Readied,
    TableChanged,
    Unavailable,
)
from crescando.routing.rubberband.history import AFTERWARDS, happenings_of
from crescando.routing.rubberband.keyspace import Transformation, transformed
from crescando.routing.rubberband.planner import make_plan
from crescando.types import ProcessId
from tests.routing.worlds import (
    CLIENT,
    config_message,
    random_config_message,
    random_ring,
    schema,
    simple,
    storage,
    super_,
)

A, B, C, D = (storage(n) for n in range(4))
NEW, NEWER = storage(8), storage(9)


@dataclass
class Account:
    """What somebody knows who was told everything that happened."""

    members: set[ProcessId]
    ring: Ring
    tables: set[str]
    pending: set[ProcessId] = field(default_factory=set)
    changes: dict[MessageId, Transformation] = field(default_factory=dict)
    n_ready: dict[MessageId, int] = field(default_factory=dict)

    def take(self, what: Happening) -> None:
        match what:
            case Joined(process):
                self.members.add(process)
            case Left(process) | Failed(process):
                self.members.remove(process)
            case Unavailable(process):
                self.pending.add(process)
            case Available(process):
                self.pending.remove(process)
            case Began(change, transformation):
                self.changes[change] = transformation
                self.n_ready[change] = 0
            case Readied(change):
                self.n_ready[change] += 1
            case Ended(change):
                assert change == next(iter(self.changes)), "changes end in order"
                self.ring = transformed(self.ring, self.changes.pop(change))
            case Dropped(change):
                del self.changes[change]
            case TableChanged(name, how):
                assert (name in self.tables) == (how != "created")
                self.tables = self.tables - {name} if how == "dropped" else self.tables | {name}

    def agrees(self, config: Rubberband) -> bool:
        return (
            self.members == config.storages | config.supers
            and self.ring == config.ring
            and self.pending == config.pending
            and list(self.changes) == [change.id for change in config.changes]
            and self.tables == {table.name for table in config.tables}
        )


@pytest.mark.parametrize("seed", range(150))
def test_whoever_is_told_everything_knows_what_there_is(seed: int) -> None:
    rng = random.Random(seed)
    config = random_ring(rng)
    account = Account(set(config.storages | config.supers), config.ring, {"t"})

    for number in range(1, 80):
        message = random_config_message(rng, config, number)
        try:
            config.destset(message)
        except Refusal:
            continue
        after = config.apply(message)
        for what in happenings_of(config, message, after):
            account.take(what)
        assert account.agrees(after), f"seed {seed}, message {number}: {message}"
        config = after


class World:
    """Four storage processes, each range on two, one on standby, and one super."""

    def __init__(self, n_supers: int = 1) -> None:
        self.config = simple(4, 2, n_supers=n_supers)
        self.number = 0
        self.tell(NEW, Join(NEW), number=1)

    def tell(self, sender: ProcessId, body: object, *, number: int | None = None) -> list[Happening]:
        self.number += 1
        message = config_message(sender, body, number or 10 + self.number)  # type: ignore[arg-type]
        self.config.destset(message)
        before, self.config = self.config, self.config.apply(message)
        return list(happenings_of(before, message, self.config))

    def begin(self, transformation: Transformation) -> MessageId:
        plan = make_plan(self.config.target, transformation)
        (began,) = self.tell(CLIENT, Reconfigure(transformation, plan.copies, self.config.layout))
        assert isinstance(began, Began)
        return began.change

    def ready(self, change: MessageId) -> list[Happening]:
        """Let every copy of a change arrive; gives what the last one did."""
        found: list[Happening] = []
        (copies,) = [known.copies for known in self.config.changes if known.id == change]
        for index, copy in enumerate(copies):
            found = self.tell(copy.receiver, Ready(change, index))
        return found


def test_joins_leaves_and_failures() -> None:
    world = World()

    assert world.tell(NEWER, Join(NEWER), number=1) == [Joined(NEWER)]
    assert world.tell(NEWER, Leave(NEWER)) == [Left(NEWER)]
    assert world.tell(super_(0), Suspect(A)) == [Failed(A)]
    assert world.tell(CLIENT, Leave(CLIENT)) == []


def test_votes_that_have_no_effect_yet_are_no_news() -> None:
    world = World(n_supers=3)

    assert world.tell(super_(0), Suspect(A)) == []
    assert world.tell(super_(0), Trust(A)) == []


def test_one_that_is_the_last_of_a_range_is_unavailable_until_it_answers() -> None:
    world = World()
    world.tell(super_(0), Suspect(A))

    (told,) = world.tell(super_(0), Suspect(B))

    # A was the only other owner of its own partition.
    assert told == Unavailable(B, (world.config.ring.arcs[0],))
    assert world.tell(super_(0), Trust(B)) == [Available(B)]


def test_a_change_from_beginning_to_end() -> None:
    world = World()
    change = world.begin(Expand(NEW, 1 << 60))

    told = world.ready(change)

    assert [type(what) for what in told] == [Readied, Ended]
    assert told[1] == Ended(change)
    assert NEW in world.config.ring.processes


def test_a_change_that_moves_nothing_begins_and_ends_at_once() -> None:
    world = World()
    # Both hold everything, wherever they are.
    world.config = simple(2, 2)
    wider = Rebalance(B, world.config.ring.ids[1] + 5)

    told = world.tell(CLIENT, Reconfigure(wider, (), None))

    assert told == [Began(told[1].change, wider, ()), Ended(told[1].change)]  # type: ignore[union-attr]


def test_changes_that_are_dropped_say_why() -> None:
    world = World()
    first = world.begin(Expand(NEW, 1 << 60))
    second = world.begin(Contract(C))

    told = world.tell(CLIENT, DropChange(first, "changed my mind"))

    assert told == [Dropped(first, "changed my mind"), Dropped(second, AFTERWARDS)]


def test_a_change_whose_receiver_fails_is_dropped_after_the_failure() -> None:
    world = World()
    change = world.begin(Replace(C, NEW))

    told = world.tell(super_(0), Suspect(NEW))

    assert told == [Failed(NEW), Dropped(change, f"{NEW} is out")]


def test_a_change_whose_sender_answers_no_more_is_dropped() -> None:
    world = World()
    world.tell(super_(0), Suspect(A))
    plan = make_plan(world.config.target, Replace(A, NEW), failed=frozenset({A}))
    (began,) = world.tell(CLIENT, Reconfigure(Replace(A, NEW), plan.copies, world.config.layout))
    assert isinstance(began, Began)

    told = world.tell(super_(0), Suspect(B))

    assert told[0] == Unavailable(B, (world.config.ring.arcs[0],))
    assert told[1:] == [Dropped(began.change, f"{B} does not answer")]


def test_tables() -> None:
    world = World()

    assert world.tell(CLIENT, CreateTable(schema("x"))) == [TableChanged("x", "created")]
