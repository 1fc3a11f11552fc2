"""Small scopes of the order, and faults that an exploration of them must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from crescando.consensus.base import NO_BALLOT
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos import follower as follower_module
from crescando.consensus.multipaxos import replica as replica_module
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.leader import Leader
from crescando.consensus.multipaxos.messages import Accept, Accepted, Nack, Prepare, Promise, Vote
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.quorum import Membership
from crescando.routing.broadcast import Broadcast
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import Deliver, Welcome
from crescando.routing.ecast.router import Router
from crescando.testing.broadcast_scope import TIMING, BroadcastScope, Steady
from crescando.testing.ecast_scope import ECastScope
from crescando.testing.exhaustive import Exploration, Explorer
from crescando.testing.scope import Ask, Left, Scope
from crescando.testing.whole import SETTLE, Action
from crescando.types import ProcessId

R1, R2, R3 = (ProcessId("router", f"r{i}", 1) for i in (1, 2, 3))
ROUTERS = (R1, R2, R3)
S1, S2 = (ProcessId("storage", f"s{i}", 1) for i in (1, 2))
FIRST = Membership(0, ROUTERS)

LED: tuple[Action, ...] = (SETTLE, ("wake", 0), SETTLE)
"""r1 leads, and everybody knows."""

ONE_EACH = (("a1",), ("b1",))


@dataclass(frozen=True)
class Case:
    """A scope, how much may happen in it, and how far it is explored.

    Attributes
    ----------
    depth : int
        Actions of a schedule; beyond the longest one, all are followed to their ends.
    deeper : int
        The same for the long exploration.
    changes_leader : bool
        Whether another leader takes over in some schedules.
    """

    scope: Scope
    left: Left
    script: Sequence[Action] = LED
    depth: int = 99
    deeper: int = 0
    changes_leader: bool = True

    def explore(self, depth: int = 0, **options: Any) -> Exploration:
        """Explore it."""
        return Explorer(self.scope, self.left, self.script).explore(depth or self.depth, **options)


def group(
    senders: tuple[tuple[str, ...], ...] = ONE_EACH,
    *,
    replica: type[Replica[Any]] = Replica,
    routers: tuple[ProcessId, ...] = ROUTERS,
    **options: Any,
) -> BroadcastScope:
    """Give the scope of a broadcast group; every router begins by knowing the first three."""

    def make(me: ProcessId) -> Replica[Any]:
        return replica(me, FIRST, TIMING, Steady())

    return BroadcastScope(routers, make, senders, **options)


def ecast(
    *,
    router: type[Router[Any]] = Router,
    application: type[Application] = Application,
    **options: Any,
) -> ECastScope:
    """Give the scope of two senders and three routers."""
    config = Broadcast(frozenset({S1, S2}))

    def make_broadcast(me: ProcessId) -> Replica[Any]:
        return Replica(me, FIRST, TIMING, Steady())

    def make_router(me: ProcessId, broadcast: Any) -> Router[Any]:
        limits = RouterLimits(pulse_s=TIMING.heartbeat_s)
        return router(me, config=config, broadcast=broadcast, limits=limits)

    def make_application(me: ProcessId) -> Application:
        return application(me, ROUTERS)

    return ECastScope(ROUTERS, (S1, S2), make_broadcast, make_router, make_application, **options)


def only(*processes: ProcessId) -> frozenset[ProcessId]:
    return frozenset(processes)


def may_change(**what: ProcessId | bool) -> Ask:
    """A request to change the membership, of whoever would take it."""

    def change(member: Any) -> Change:
        return Change(member.broadcast.membership.number, **what)  # type: ignore[arg-type]

    def can(member: Any) -> bool:
        return bool(member.broadcast.is_leader and not member.broadcast.memberships.fault_of(change(member)))

    def do(member: Any, count: int, now_s: float) -> None:
        member.broadcast.request_change(change(member))

    return Ask(f"change the membership: {what}", ROUTERS, can, do)


# r1 to r3 are processes 0 to 2; s1 and s2 are 3 and 4.
CUT_AFTER_ONE_VOTE: tuple[Action, ...] = (
    *LED,
    ("ask", 3, 0),
    ("deliver", 3, 0),
    ("deliver", 0, 1),
    ("crash", 0),
)

TWO_LEADERS: tuple[Action, ...] = (
    *LED,
    *(("ask", 3, 0), ("deliver", 3, 0), ("deliver", 0, 1), ("deliver", 1, 0)),
    *(("reset", 0, 1), ("reset", 0, 2), ("deliver", 0, 1), ("deliver", 0, 2), ("wake", 1)),
    *(("deliver", 1, 2), ("deliver", 2, 1), ("deliver", 1, 2), ("deliver", 2, 1)),
)
"""r1 has decided something that is on its way to its destinations, and has not heard that r2 leads."""

LEARNED_BY_THE_NEXT: tuple[Action, ...] = (
    *LED,
    *(("ask", 3, 0), ("deliver", 3, 0), ("deliver", 0, 1), ("deliver", 1, 0)),
    *(("wake", 0), ("deliver", 0, 1), ("crash", 0)),
)
"""r2 has learned what r1 decided before it crashed; the sender was told nothing."""

CASES: dict[str, Case] = {
    "everything": Case(
        group((("a1", "a2"), ("b1",))),
        Left(wake=2, crash=1, reset=1),
        depth=7,
        deeper=10,
        changes_leader=False,
    ),
    "crash": Case(group(waking=only(R2)), Left(wake=1, crash=1)),
    "rivals": Case(group(waking=only(R2, R3)), Left(wake=2, crash=1), depth=11, deeper=18),
    "reset": Case(group((("a1",),), waking=only(R2)), Left(wake=1, reset=1)),
    "loss": Case(group(waking=only(R2)), Left(wake=1, crash=1, lose=1)),
    "losses": Case(group((("a1", "a2"),), waking=only(R2)), Left(wake=1, crash=1, lose=2)),
    "pause": Case(group(waking=only(R2)), Left(wake=1, pause=1, crash=1), depth=16, deeper=30),
    "ecast": Case(ecast(), Left(), changes_leader=False),
    "ecast_crash": Case(
        ecast(waking=only(R2), crashing=only(R1)),
        Left(wake=1, crash=1),
        depth=16,
        deeper=26,
        changes_leader=True,
    ),
    "ecast_two_leaders": Case(ecast(), Left(), TWO_LEADERS, depth=9, deeper=13, changes_leader=False),
    "ecast_resubmission": Case(
        ecast(waking=only(R2)), Left(wake=1), LEARNED_BY_THE_NEXT, depth=18, deeper=60
    ),
    "ecast_takeover": Case(ecast(waking=only(R2)), Left(wake=1), CUT_AFTER_ONE_VOTE),
}

LARGER_CASES: dict[str, Case] = {
    "crash_more": Case(group((("a1", "a2"), ("b1",)), waking=only(R2)), Left(wake=1, crash=1)),
}
"""For the long exploration alone."""


# Faults to plant. Each gives the case in which it must be found, and the kinds of violation that name it.

Plant = Callable[[pytest.MonkeyPatch], tuple[Case, frozenset[str]]]


def forget_a_promise(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A member that restarts under its old name has forgotten what it promised."""
    scope = group(waking=only(R3), crashing=only(R2))
    return Case(scope, Left(wake=1, crash=1, restart=1)), frozenset({"decided", "instance"})


def leave_a_hole(patch: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A new leader goes on at the lowest vote it finds, and fills no hole below it."""

    class Leaping(Leader[Any]):
        def on_promise(self, peer: ProcessId, promise: Promise[Any]) -> None:
            super().on_promise(peer, promise)
            self.next_instance = max(self.next_instance, min(self.votes, default=0))

    patch.setattr(replica_module, "Leader", Leaping)
    return CASES["losses"], frozenset({"hole"})


def skip_an_instance(patch: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Striding(Leader[Any]):
        def propose(self, value: Any) -> int:
            self.next_instance += 1
            return super().propose(value)

    patch.setattr(replica_module, "Leader", Striding)
    return CASES["crash"], frozenset({"hole"})


def vote_below_a_promise(patch: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Obliging(Acceptor[Any]):
        def on_accept(self, message: Accept[Any]) -> Accepted | Nack:
            self.votes[message.instance] = Vote(message.instance, message.ballot, message.value)
            return Accepted(message.ballot, message.instance)

    class Deferential(Replica[Any]):
        def _on_accept(self, peer: ProcessId, message: Accept[Any], now_s: float) -> None:
            self._send(peer, self.acceptor.on_accept(message))

    patch.setattr(follower_module, "Acceptor", Obliging)
    case = Case(group(replica=Deferential, waking=only(R2)), Left(wake=1, reset=1))
    return case, frozenset({"promise"})


def promise_without_votes(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Discreet(Replica[Any]):
        def _promise(self, prepare: Prepare) -> Promise[Any]:
            promise = super()._promise(prepare)
            return Promise(promise.ballot, (), promise.learned, promise.trimmed)

    return Case(group(replica=Discreet, waking=only(R2)), Left(wake=1, crash=1)), frozenset({"decided"})


def decide_by_one_vote(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Hasty(Replica[Any]):
        def _count_accepted(self, leader: Leader[Any], peer: ProcessId, instance: int) -> bool:
            if instance not in leader.open:
                return False
            self.learner.decide(instance, leader.open.pop(instance).value)
            self._advance()
            return True

    return Case(group(replica=Hasty, waking=only(R2)), Left(wake=1, crash=1)), frozenset({"instance"})


def forget_watermarks_at_failover(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Amnesiac(Router[Any]):
        def _change_leadership(self) -> None:
            if self.broadcast.is_leader:
                self.mseq.learned = dict.fromkeys(self.mseq.learned, 0)
            super()._change_leadership()

    case = CASES["ecast_resubmission"]
    return Case(ecast(router=Amnesiac, waking=only(R2)), case.left, case.script), frozenset(
        {"fifo", "message"}
    )


def deliver_to_an_old_leader(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Trusting(Application):
        def _on_deliver(self, peer: ProcessId, message: Deliver) -> None:
            self._events.extend(message.parts)
            self.delivered = max(self.delivered, message.last)
            self._confirm_to = peer

    return Case(ecast(application=Trusting), Left(), TWO_LEADERS), frozenset({"order", "fifo"})


def send_again_only_what_was_never_sent(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Optimist(Application):
        def _on_welcome(self, peer: ProcessId, message: Welcome) -> None:
            sent = self.next_number - 1 if self.lead is not None or self.ballot > NO_BALLOT else 0
            learned = max(sent, message.learned)
            super()._on_welcome(peer, msgspec.structs.replace(message, learned=learned))

    script = (*LED, ("ask", 3, 0), ("deliver", 3, 0), ("crash", 0))
    case = Case(ecast(application=Optimist, waking=only(R2)), Left(wake=1), script)
    return case, frozenset({"stuck"})


PLANTS: tuple[Plant, ...] = (
    forget_a_promise,
    leave_a_hole,
    skip_an_instance,
    vote_below_a_promise,
    promise_without_votes,
    decide_by_one_vote,
    forget_watermarks_at_failover,
    deliver_to_an_old_leader,
    send_again_only_what_was_never_sent,
)
