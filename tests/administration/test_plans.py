"""What administrators may wish for, and what is told of it before it begins."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from crescando.administration.plans import MovePlan, plan_for
from crescando.administration.status import status_of
from crescando.administration.wishes import Wish, standbys
from crescando.errors import SpecError
from crescando.naming import identify
from crescando.routing.batch import Message
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import Contract, Expand, Rebalance, Replace
from crescando.routing.rubberband.messages import (
    ConfigMessage,
    Join,
    Ready,
    Reconfigure,
    Suspect,
    encode_message,
)
from crescando.routing.rubberband.placement import Weights, cut, loads
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId

S1, S2, S3, S4, S5, S6 = (ProcessId("storage", f"s{i}", 1) for i in range(1, 7))
SUPERS = tuple(ProcessId("super", f"u{i}", 1) for i in range(1, 4))
ADMIN = ProcessId("client", "administration", 7)
EVEN = Weights.of(dict.fromkeys(cut(FULL_RING, 64), (100, 6400)))


class World:
    """A configuration, and messages that change it."""

    def __init__(self, *, replication: int = 2, standbys: tuple[ProcessId, ...] = (S5, S6)) -> None:
        self.config = Rubberband.genesis(
            storages=[S1, S2, S3, S4], replication=replication, supers=SUPERS, clients=[ADMIN]
        )
        self._numbers: dict[ProcessId, int] = {ADMIN: 1}
        for process in standbys:
            self.tell(process, Join(process))

    def tell(self, sender: ProcessId, body: ConfigMessage) -> None:
        number = self._numbers[sender] = self._numbers.get(sender, 0) + 1
        message = Message(sender, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))
        self.config.destset(message)
        self.config = self.config.apply(message)

    def fail(self, *processes: ProcessId) -> None:
        for process in processes:
            self.tell(SUPERS[0], Suspect(process))
            self.tell(SUPERS[1], Suspect(process))

    def plan(self, *wish: Any, **rest: Any) -> MovePlan:
        return plan_for(Wish(*wish, **rest), self.config, EVEN)

    def begin(self, plan: MovePlan) -> None:
        assert plan.transformation is not None
        assert not plan.refusal
        self.tell(ADMIN, Reconfigure(plan.transformation, plan.instructions, plan.layout))

    def end(self) -> None:
        change = self.config.changes[0]
        for index, copy in enumerate(change.copies):
            self.tell(copy.receiver, Ready(change.id, index))


def test_everything_is_expanded_replaced_contracted_and_rebalanced_as_planned() -> None:
    world = World()
    for plan, expected in (
        (lambda: world.plan("expand"), Expand),
        (lambda: world.plan("replace", "s2"), Replace),
        (lambda: world.plan("contract", "storage/s3"), Contract),
        (lambda: world.plan("rebalance", S4, at=5), Rebalance),
    ):
        made = plan()
        assert isinstance(made.transformation, expected)
        assert made.is_complete
        assert made.rows > 0
        assert made.n_bytes == 64 * made.rows
        before = world.config.ring
        world.begin(made)
        world.end()

        assert world.config.ring == made.after != before
        assert not world.config.changes


def test_a_newcomer_takes_the_place_that_lightens_the_heaviest() -> None:
    world = World()
    heavy = Weights.of({part: (1000 if part.low >> 62 == 2 else 1, 0) for part in cut(FULL_RING, 64)})

    plan = plan_for(Wish("expand"), world.config, heavy)

    assert isinstance(plan.transformation, Expand)
    assert plan.transformation.process == S5
    assert plan.transformation.at >> 62 == 2
    assert plan.after is not None
    before, after = loads(plan.before, heavy), loads(plan.after, heavy)
    assert max(after.values()) < max(before.values())


def test_several_are_planned_one_behind_the_other() -> None:
    world = World()
    first = world.plan("expand", at=1 << 61)
    world.begin(first)
    second = world.plan("expand", at=3 << 61)
    world.begin(second)
    # It has its place only when the first one has ended, and is planned for that.
    third = world.plan("rebalance", S5, at=(1 << 61) + 7)
    world.begin(third)

    assert first.before == world.config.ring
    assert second.before == first.after
    assert third.before == second.after
    assert any("queued behind 3 changes" in warning for warning in world.plan("contract", S1).warnings)
    for _ in range(3):
        world.end()
    assert world.config.ring == third.after


REFUSALS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "nobody stands by": (("expand",), {}, "on standby; start one"),
    "nobody stands by to replace": (("replace", "s1"), {}, "on standby; start one"),
    "an unknown process": (("contract", "s9"), {}, "is called s9; there are storage/s1"),
    "another role": (("contract", "router/r1"), {}, "is called router/r1"),
    "an old incarnation": (("contract", ProcessId("storage", "s1", 0)), {}, "is called storage/s1#0"),
    "a position that is taken": (("rebalance", "s2"), {"at": 0}, "ring position 0 is taken by storage/s1#1"),
    "by one with a position": (("replace", "s1"), {"by": "s2"}, "storage/s2#1 has a ring position already"),
    "expanded by one with a position": (("expand", "s2"), {}, "storage/s2#1 has a ring position already"),
    "a position for nobody": (("rebalance",), {"at": 5}, "which process"),
    "an even ring": (("rebalance",), {}, "no other position"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_is_refused_with_its_reason(name: str) -> None:
    wish, rest, reason = REFUSALS[name]
    world = World(standbys=())

    plan = world.plan(*wish, **rest)

    assert reason in plan.refusal
    assert reason in str(plan)
    assert not plan.copies


def test_no_process_leaves_a_ring_of_as_many_as_copies() -> None:
    world = World(replication=4, standbys=())

    assert "4 replicas need as many processes" in world.plan("contract", "s1").refusal


def test_by_force_it_leaves_and_what_is_missing_then_is_warned_of() -> None:
    world = World(replication=4, standbys=())

    plan = world.plan("contract", "s1", force=True)

    assert plan.transformation == Contract(S1, force=True)
    assert not plan.refusal
    assert "leaves the ring, by force" in str(plan)
    assert any("3 of 4 promised copies" in warning for warning in plan.warnings)
    world.begin(plan)
    told = status_of(world.config, position=0, lead_router=None, routers=(), is_alive={}, progress={})
    assert told.replication == 4
    assert [each.key_range for each in told.ranges] == list(told.degraded)
    assert "fewer copies than promised of 100.0% of the ring" in str(told)


def test_who_would_leave_a_range_to_the_failed_stays_unless_it_is_forced() -> None:
    world = World(standbys=())
    world.fail(S3)

    assert "replace what has failed first, or force it" in world.plan("contract", S2).refusal
    assert not world.plan("contract", S2, force=True).refusal
    assert not world.plan("contract", S3).refusal


def test_one_that_was_replaced_is_not_replaced_again() -> None:
    world = World()
    world.begin(world.plan("replace", "s2"))
    # It holds its place until the change ends, and is promised no other.
    assert "when the changes under way have ended" in world.plan("replace", "s2").refusal
    world.end()

    assert (
        "storage/s2#1 has no ring position: it was replaced or stands by"
        in world.plan("replace", "s2").refusal
    )
    assert standbys(world.config) == (S2, S6)


def test_one_that_failed_is_replaced_and_no_newcomer() -> None:
    world = World()
    world.fail(S3, S6)

    assert "storage/s6#1" in world.plan("expand", S6).refusal
    plan = world.plan("replace", "s3")

    assert not plan.refusal
    assert {copy.sender for copy in plan.copies}.isdisjoint({S3, S6})
    assert any("has failed and is not replaced" in warning for warning in world.plan("expand").warnings)


def test_what_nobody_holds_any_more_cannot_be_copied() -> None:
    world = World(replication=1)
    # The last replica of a range is never declared failed; it only answers no more.
    world.fail(S3)

    assert "no replica lives" in world.plan("contract", S3).refusal


def test_a_heavy_position_is_warned_of() -> None:
    parts = [KeyRange(0, 6), KeyRange(7, 7), KeyRange(8, RING_MAX)]
    weights = Weights.of(dict(zip(parts, [(10, 0), (500, 0), (490, 0)], strict=True)))

    plan = plan_for(Wish("expand"), World().config, weights)

    (warning,) = plan.warnings
    assert "position 0x0000000000000007 alone holds 500 rows, more than 1/10 of all" in warning


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (("shrink", "s1"), "'shrink' is no transformation"),
        (("contract",), "needs to be told which process"),
        (("contract", 7), "must be a process or its name"),
        (("contract", "s1", 5), "contract takes no at"),
        (("expand", None, 5, "s2"), "expand takes no by"),
        (("replace", "s1", None, None, True), "replace takes no force"),
        (("contract", "s1", None, None, "yes"), "force is True or False"),
        (("expand", None, "5"), "a whole number"),
        (("expand", None, True), "a whole number"),
        (("expand", None, -1), "does not lie in"),
        (("expand", None, 1 << 64), "does not lie in"),
    ],
)
def test_what_no_cluster_can_do_is_said_at_once(wish: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        Wish(*wish)


@pytest.mark.parametrize("name", [S2, "storage/s2#1", "storage/s2", "s2"])
def test_a_process_is_named_in_any_way(name: ProcessId | str) -> None:
    assert identify(name, [S1, S2, S3]) == S2


def test_a_node_that_came_back_is_meant_as_it_is_now() -> None:
    again = ProcessId("storage", "s2", 2)

    assert identify("s2", [S1, S2, again]) == again
    assert identify("storage/s2#1", [S1, S2, again]) == S2


@pytest.mark.parametrize("seed", range(10))
def test_plans_say_what_they_move_to_the_row(seed: int) -> None:
    rng = random.Random(seed)
    world = World(replication=rng.choice((1, 2, 3)))
    weights = Weights.of({part: (rng.randrange(50), rng.randrange(5000)) for part in cut(FULL_RING, 64)})

    plan = plan_for(Wish("expand"), world.config, weights)

    assert plan.after is not None
    before, after = loads(plan.before, weights), loads(plan.after, weights)
    assert abs(after[S5] - plan.rows) <= len(plan.copies)
    for delete in plan.deletes:
        assert abs(before[delete.process] - after[delete.process] - delete.rows) <= 2
    assert "whole" in plan.risk_text or "would take all" in plan.risk_text


def test_a_search_that_stopped_early_is_said_to() -> None:
    plan = World().plan("expand")
    assert plan.is_complete
    assert "stopped early" not in str(plan)

    assert "stopped early" in str(replace(plan, is_complete=False))
