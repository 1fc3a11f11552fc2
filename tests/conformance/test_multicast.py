"""The laws of a multicast: E-Cast keeps them, broken ends do not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.process import Output
from crescando.routing.base import MulticastEvent, NotStable, ReadsEvent, StableEvent
from crescando.routing.batch import Delivery
from crescando.routing.ecast import reads as reads_module
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.messages import Inject, ReadRefused
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband import Rubberband
from crescando.testing.conformance import ConformanceError
from crescando.testing.conformance.endpoint import ReadWords
from crescando.testing.conformance.multicast import (
    Law,
    MulticastSubject,
    check_multicast,
    laws_for,
    snapshot_reads,
    snapshot_reads_under_faults,
)
from crescando.types import FULL_RING, ProcessId


def router(
    me: ProcessId, routers: tuple[ProcessId, ...], config: Rubberband, rng: random.Random
) -> Router[Rubberband]:
    replica: Replica[Any] = Replica(me, Membership(0, routers), PaxosTiming(removal_s=60.0), rng)
    return Router(me, config=config, broadcast=replica)


def refused(message: object) -> tuple[int, ...]:
    return message.numbers if isinstance(message, ReadRefused) else ()


WORDS = ReadWords(Inject, refused)

SUBJECTS = {
    "e-cast": MulticastSubject(router, Application, reads=WORDS),
    "e-cast of one router": MulticastSubject(router, Application, routers=1, crashes=0, reads=WORDS),
    "e-cast of five routers": MulticastSubject(router, Application, routers=5, crashes=2, reads=WORDS),
}
TRIALS = [(name, law) for name, subject in SUBJECTS.items() for law in laws_for(subject)]


@pytest.mark.parametrize(("name", "law"), TRIALS, ids=[f"{name}-{law.__name__}" for name, law in TRIALS])
def test_the_law_is_kept(name: str, law: Law) -> None:
    for seed in range(3):
        law(SUBJECTS[name], seed)


class Altered(Application):
    """Changes what is delivered or told at one storage process or client."""

    def take_events(self) -> list[MulticastEvent]:
        return [event for given in super().take_events() for event in self.alter(given)]

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        raise NotImplementedError


class Dropping(Altered):
    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        is_dropped = self.me.node == "s1" and isinstance(event, Delivery) and event.number[0] % 3 == 0
        return [] if is_dropped else [event]


class Repeating(Altered):
    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [event, event] if self.me.node == "s1" and isinstance(event, Delivery) else [event]


class Unscoped(Altered):
    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if self.me.role == "storage" and isinstance(event, Delivery):
            return [msgspec.structs.replace(event, scopes=((),) * len(event.scopes))]
        return [event]


class Shifted(Altered):
    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if self.me.node == "s1" and isinstance(event, Delivery):
            return [msgspec.structs.replace(event, position=event.position + (1 << 20))]
        return [event]


class Renumbering(Altered):
    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if self.me.role == "storage" and isinstance(event, Delivery):
            return [msgspec.structs.replace(event, number=event.number + 1_000)]
        return [event]


class Hopeful(Altered):
    """Calls everything stable."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [StableEvent(event.upto, ())] if isinstance(event, StableEvent) else [event]


class Gloomy(Altered):
    """Calls everything lost."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if isinstance(event, StableEvent):
            return [StableEvent(event.upto, (NotStable(event.upto, "lost", "?"),) if event.upto else ())]
        return [event]


class Mute(Altered):
    """Never tells what became of a message."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [] if isinstance(event, StableEvent) else [event]


class Eager(Application):
    """Confirms although it is to hold."""

    def hold_confirms(self, hold: bool) -> None: ...


class Unaware(Altered):
    """Does not tell that it was expelled."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [event] if isinstance(event, Delivery | StableEvent) else []


class Uninformed(Altered):
    """Begins with nothing."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [msgspec.structs.replace(event, config=b"")] if isinstance(event, Delivery) else [event]


class Behindhand(Altered):
    """Is told the Config before its join."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if isinstance(event, Delivery) and event.config:
            config = Rubberband.decode(event.config)
            before = replace(config, membership=config.membership.without(self.me))
            return [msgspec.structs.replace(event, config=before.encode())]
        return [event]


class Touchy(Application):
    """Fails on what it does not know."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        if not isinstance(message, msgspec.Struct):
            raise TypeError(f"{message!r} is no message")
        super().on_message(peer, message, now_s)


class Chatty(Application):
    """Says something all the time."""

    def flush(self, now_s: float) -> Output:
        out = super().flush(now_s)
        out.wake_at_s = now_s + 0.001
        if self.lead is not None:
            out.send += [(self.lead, None)] * 2
        return out


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (Dropping, {"completeness"}),
        (Repeating, {"delivery order"}),
        (Unscoped, {"minimality"}),
        (Shifted, {"one position"}),
        (Renumbering, {"validity"}),
        (Hopeful, {"stability"}),
        (Gloomy, {"stability"}),
        (Mute, {"termination"}),
        (Eager, {"holding"}),
        (Unaware, {"expulsion"}),
        (Uninformed, {"joining"}),
        (Behindhand, {"joining"}),
        (Touchy, {"noise"}),
        (Chatty, {"rest"}),
    ],
)
def test_a_planted_bug_is_found_and_its_rule_named(kind: type[Application], rules: set[str]) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_multicast(MulticastSubject(router, kind, crashes=0, settle_s=6.0), seeds=2)

    assert caught.value.rule in rules, str(caught.value)


# Reads beside the order.


class Hurried(Application):
    """Runs reads before what was delivered in the same turn."""

    def take_events(self) -> list[MulticastEvent]:
        return sorted(super().take_events(), key=lambda event: not isinstance(event, ReadsEvent))


class Absent(Altered):
    """Runs no reads, and refuses none."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        return [] if isinstance(event, ReadsEvent) and self.me.node == "s1" else [event]


class Widened(Altered):
    """Answers for ranges that another process was asked for."""

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if not isinstance(event, ReadsEvent):
            return [event]
        whole = tuple(
            msgspec.structs.replace(part, scopes=((FULL_RING,),) * len(part.scopes)) for part in event.parts
        )
        return [replace(event, parts=whole)]


class Tardy(Altered):
    """Runs reads after what follows them, at the position that they were given."""

    def __init__(self, me: ProcessId, routers: tuple[ProcessId, ...]) -> None:
        super().__init__(me, routers)
        self._kept: list[MulticastEvent] = []

    def alter(self, event: MulticastEvent) -> list[MulticastEvent]:
        if isinstance(event, ReadsEvent):
            self._kept.append(event)
            return []
        kept, self._kept = self._kept, []
        return [event, *kept]


READ_LAWS = [snapshot_reads, snapshot_reads_under_faults]


def hold_to_read_laws(subject: MulticastSubject) -> None:
    for seed in range(6):
        for law in READ_LAWS:
            law(subject, seed)


def reads_found_wrong(subject: MulticastSubject) -> str:
    """Give what the laws of reads find first."""
    with pytest.raises(ConformanceError) as caught:
        hold_to_read_laws(subject)
    assert caught.value.rule == "reads", str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", [Hurried, Absent, Widened, Tardy])
def test_an_end_that_runs_reads_wrongly_is_found(kind: type[Application]) -> None:
    assert reads_found_wrong(MulticastSubject(router, kind, reads=WORDS))


def test_a_router_that_runs_reads_as_they_come_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    inject = reads_module.Reads.inject

    def inject_at_once(self: Any, mseq: Any, outboxes: Any, *, proven: int, now_s: float) -> None:
        inject(self, mseq, outboxes, proven=self.proof, now_s=now_s)

    monkeypatch.setattr(reads_module.Reads, "inject", inject_at_once)
    monkeypatch.setattr(reads_module, "_may_run", lambda *_: True)

    assert "was known" in reads_found_wrong(SUBJECTS["e-cast"])


def test_a_router_that_forgets_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module.Reads, "take_refusals", lambda self: [])
    monkeypatch.setattr(reads_module, "_may_run", lambda client, inject, mseq: inject.written == 0)

    assert "nor refused" in reads_found_wrong(SUBJECTS["e-cast of one router"])
