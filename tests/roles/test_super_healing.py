"""Supers that have the ring healed: what each of them submits, and when."""

from __future__ import annotations

from crescando.roles.healing import HealingPolicy
from crescando.roles.messages import Pong
from crescando.routing.base import NotStable, StableEvent
from crescando.routing.rubberband import (
    DropChange,
    Join,
    MessageId,
    Reconfigure,
    Replace,
    Suspect,
)
from crescando.types import ProcessId
from tests.roles.test_super import CLIENT, EVERYBODY, FIRST, ME, PEER, ROUTER, S0, S1, Watch
from tests.routing.worlds import storage

REPLACE = HealingPolicy("replace", delay_s=1.0)
NEW, NEWER = storage(7), storage(8)
LAST = PEER


class Ward:
    """Two storage processes with everything on both, one of which fails, and what one super does."""

    def __init__(self, me: ProcessId = FIRST, *standbys: ProcessId) -> None:
        self.watch = Watch(me=me, healing=REPLACE)
        self.me = me
        self.alive = tuple(p for p in (*EVERYBODY, ME) if p not in (me, S0)) + standbys
        for standby in standbys:
            self.watch.deliver(standby, Join(standby))
        self.watch.core.flush(0.0)
        self.watch.pass_time(0.5, alive=(*self.alive, S0))
        for voter in sorted({FIRST, ME, PEER} - {me}):
            self.watch.deliver(voter, Suspect(S0))

    def pass_time(self, seconds: float) -> list[Reconfigure]:
        """Let time pass; gives every cure that was submitted so far."""
        self.watch.pass_time(seconds, alive=self.alive)
        return self.cures()

    def cures(self) -> list[Reconfigure]:
        self.watch.core.flush(self.watch.now_s)
        return [vote for vote in self.watch.votes() if isinstance(vote, Reconfigure)]


def test_the_first_super_has_a_failed_process_replaced_at_once() -> None:
    ward = Ward(FIRST, NEW)

    (cure,) = ward.cures()

    assert cure.transformation == Replace(S0, NEW)
    assert [(copy.sender, copy.receiver) for copy in cure.copies] == [(S1, NEW)]
    assert cure.predecessor == MessageId(PEER, 1)


def test_the_others_wait_for_those_before_them() -> None:
    second, third = Ward(ME, NEW), Ward(LAST, NEW)
    assert second.cures() == third.cures() == []

    assert not second.pass_time(0.5)
    assert second.pass_time(0.5)
    assert not third.pass_time(1.5)
    assert third.pass_time(0.5)


def test_one_cure_at_a_time() -> None:
    ward = Ward(FIRST, NEW)

    assert len(ward.pass_time(10.0)) == 1


def test_what_another_super_has_begun_is_left_alone() -> None:
    first, second = Ward(FIRST, NEW), Ward(ME, NEW)
    (cure,) = first.cures()
    second.watch.deliver(FIRST, cure)

    assert second.pass_time(10.0) == []


def test_a_refused_cure_is_planned_again_after_a_pause() -> None:
    ward = Ward(FIRST, NEW)
    (cure,) = ward.cures()
    number = ward.watch.multicast.next_number - 1

    ward.watch.multicast.events.append(StableEvent(0, (NotStable(number, "refused", "planned again"),)))
    assert ward.cures() == [cure]

    assert ward.pass_time(0.5) == [cure]
    assert ward.pass_time(1.0) == [cure, cure]


def test_without_a_standby_it_waits_for_one_and_takes_it_once_it_is_heard() -> None:
    ward = Ward(FIRST)
    assert ward.pass_time(5.0) == []

    ward.watch.deliver(NEW, Join(NEW))
    assert ward.pass_time(0.5) == []
    ward.watch.core.on_message(NEW, Pong(0.0), ward.watch.now_s)
    ward.alive += (NEW,)

    (cure,) = ward.pass_time(0.5)
    assert cure.transformation == Replace(S0, NEW)


def test_a_standby_that_is_full_or_silent_is_not_taken() -> None:
    full = Ward(FIRST, NEW, NEWER)
    assert full.cures()[0].transformation == Replace(S0, NEW)

    ward = Ward(FIRST)
    ward.watch.deliver(NEW, Join(NEW))
    ward.watch.deliver(NEWER, Join(NEWER))
    assert ward.cures() == []
    ward.watch.core.on_message(NEW, Pong(0.0, is_full=True), ward.watch.now_s)
    ward.alive += (NEWER,)

    assert [cure.transformation for cure in ward.pass_time(0.5)] == [Replace(S0, NEWER)]


def test_nothing_is_submitted_while_no_router_leads() -> None:
    ward = Ward(FIRST)
    ward.watch.multicast.lead = None
    ward.watch.deliver(NEW, Join(NEW))
    ward.alive += (NEW,)
    assert ward.pass_time(2.0) == []

    ward.watch.multicast.lead = ROUTER

    assert len(ward.pass_time(0.5)) == 1


def test_a_policy_of_waiting_leaves_it_to_an_administrator() -> None:
    watch = Watch(me=FIRST, healing=HealingPolicy("wait"))
    watch.deliver(NEW, Join(NEW))
    watch.deliver(ME, Suspect(S0))
    watch.deliver(PEER, Suspect(S0))

    watch.pass_time(3.0, alive=(S1, ME, PEER, CLIENT, NEW))

    assert watch.votes() == []


def test_a_cure_that_was_dropped_is_tried_again_after_a_while() -> None:
    ward = Ward(FIRST, NEW)
    (cure,) = ward.cures()
    number = ward.watch.multicast.next_number - 1
    ward.watch.numbers[FIRST] = number - 1
    ward.watch.deliver(FIRST, cure)
    ward.watch.core.flush(ward.watch.now_s)

    ward.watch.deliver(NEW, DropChange(MessageId(FIRST, number), "it is too much"))

    assert ward.cures() == [cure]
    assert len(ward.pass_time(1.5)) == 1
    assert [each.transformation for each in ward.pass_time(0.5)] == [cure.transformation] * 2
