"""Small scopes that begin in the midst of a change of the membership, and faults to find in them.

Each script drives the cores to where the change is proposed and on its way; from
there every interleaving is explored to its end.
"""

from __future__ import annotations

from typing import Any

import pytest

from crescando.consensus.membership import Memberships
from crescando.consensus.multipaxos.messages import Accept, Canvass, Heartbeat, HeartbeatReply
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.testing.broadcast_scope import Steady
from crescando.testing.calm import Calm
from crescando.testing.exhaustive import Explorer, Violation
from crescando.testing.membership_scope import MembershipScope
from crescando.testing.scope import Left
from crescando.testing.whole import Action
from crescando.types import ProcessId
from tests.simulation.small_scopes import LED, R1, R2, R3, Case, may_change, only

PAIR, TRIO = (R1, R2), (R1, R2, R3)


def timing(alpha: int) -> PaxosTiming:
    return PaxosTiming(heartbeat_s=0.5, election_s=1.0, window=alpha, lag=2)


def changing(
    members: tuple[ProcessId, ...],
    *changes: dict[str, ProcessId],
    alpha: int = 2,
    senders: tuple[tuple[str, ...], ...] = (("a1",),),
    replica: type[Replica[Any]] = Replica,
    impatient: frozenset[ProcessId] = frozenset(),
    **options: Any,
) -> MembershipScope:
    """Give the scope of these members and of r1 to r3; the requests for changes come after the senders'.

    Whoever is impatient lets changes govern at once.
    """
    genesis = Membership(0, members)

    def make(me: ProcessId) -> Replica[Any]:
        return replica(me, genesis, timing(1 if me in impatient else alpha), Steady())

    more = tuple(may_change(**change, resizes=True) for change in changes)
    return MembershipScope(TRIO, make, senders, more=more, genesis=genesis, alpha=alpha, **options)


def joining(alpha: int = 2, **options: Any) -> MembershipScope:
    return changing(PAIR, {"add": R3}, alpha=alpha, **options)


def leaving(alpha: int = 2, **options: Any) -> MembershipScope:
    return changing(TRIO, {"remove": R3}, alpha=alpha, **options)


PROPOSED: tuple[Action, ...] = (*LED, ("ask", 0, 1))
"""The change is on its way to the others."""

PROPOSED_ALONE: tuple[Action, ...] = (*LED, ("ask", 0, 0))
"""The same where nobody has anything else to say."""

CHANGES: dict[str, Case] = {
    "join": Case(joining(), Left(), PROPOSED, changes_leader=False),
    "join_leader_crash": Case(
        joining(1, waking=only(R2, R3), crashing=only(R1)), Left(crash=1, wake=1), PROPOSED
    ),
    "join_follower_crash": Case(
        joining(waking=only(R1), crashing=only(R2), senders=()),
        Left(crash=1, wake=2),
        PROPOSED_ALONE,
        changes_leader=False,
    ),
    "join_joiner_leads": Case(joining(waking=only(R3), crashing=only(R1)), Left(crash=1, wake=1), PROPOSED),
    "join_reset": Case(joining(), Left(reset=1), PROPOSED, changes_leader=False),
    "leave": Case(leaving(), Left(), PROPOSED, changes_leader=False),
    "leave_crash": Case(leaving(waking=only(R2), crashing=only(R1)), Left(crash=1, wake=1), PROPOSED),
    "leave_reset": Case(leaving(), Left(reset=1), PROPOSED, changes_leader=False),
    "leave_beat": Case(
        leaving(waking=only(R1), senders=()), Left(wake=2), PROPOSED_ALONE, changes_leader=False
    ),
    "leave_beat_crash": Case(
        leaving(waking=only(R1), senders=()), Left(wake=2, crash=1), PROPOSED_ALONE, changes_leader=False
    ),
}
"""Small enough to be explored to their ends in a second or two each."""

LARGER_CHANGES: dict[str, Case] = {
    "join_and_any_crash": Case(joining(1), Left(crash=1, wake=1), PROPOSED),
    "join_and_reset_of_one": Case(joining(1, waking=only(R1)), Left(reset=1, wake=1), PROPOSED),
    "leave_and_any_crash": Case(leaving(waking=only(R2)), Left(crash=1, wake=1), PROPOSED),
    "leave_and_beats": Case(leaving(waking=only(R1)), Left(wake=2), PROPOSED),
    "join_and_crash": Case(joining(waking=only(R2)), Left(crash=1, wake=1), PROPOSED),
    "join_and_crash_twice_woken": Case(joining(1, waking=only(R2)), Left(crash=1, wake=2), PROPOSED),
    "join_and_beats": Case(joining(waking=only(R1)), Left(wake=2), PROPOSED),
    "join_and_reset": Case(joining(waking=only(R1)), Left(reset=1, wake=1), PROPOSED),
    "leave_and_reset": Case(leaving(1, waking=only(R1)), Left(reset=1, wake=2), PROPOSED),
    "join_then_leave": Case(
        changing(PAIR, {"add": R3}, {"remove": R2}, senders=()), Left(wake=1), PROPOSED_ALONE
    ),
}

CALM_S = 4.0
"""Several elections, and less than a silent member is given."""


def follow_up(explorer: Explorer) -> tuple[int, dict[str, Violation]]:
    """Let time go on from every state at rest that has the majorities it needs.

    Returns
    -------
    judged : int
    violations : dict of str to Violation
        The first of each kind.
    """
    scope = explorer.scope
    assert isinstance(scope, MembershipScope)
    seen: set[tuple[int, ...]] = set()
    found: dict[str, Violation] = {}
    judged = 0
    for state, schedule in explorer.resting():
        facts = explorer.whole.facts(state)
        if state.lives in seen or not scope.can_go_on(explorer.whole.live(state), facts):
            continue
        seen.add(state.lives)
        judged += 1
        calm = Calm(explorer.whole, state)
        calm.go_on(CALM_S)
        for fault in scope.after_calm(calm.live, calm.stopped):
            found.setdefault(fault.partition(":")[0], Violation(fault, schedule))
    return judged, found


# Faults to plant. Each gives the case in which it must be found, and the kinds of violation that name it.


def vote_before_the_tail(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A joiner votes for whatever it is asked to, although it holds nothing yet."""

    class Forward(Replica[Any]):
        def _on_accept(self, peer: ProcessId, message: Accept[Any], now_s: float) -> None:
            super()._on_accept(peer, message, now_s)
            if self._held.pop(message.instance, None) is not None:
                self._send(peer, self.acceptor.on_accept(message))

    return Case(joining(replica=Forward), Left(), PROPOSED), frozenset({"early"})


def claim_the_tail(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A joiner says that it has learned all that it was told to be decided."""

    class Boastful(Replica[Any]):
        def _on_heartbeat(self, peer: ProcessId, message: Heartbeat, now_s: float) -> None:
            super()._on_heartbeat(peer, message, now_s)
            learned = max(self.learned, message.chosen)
            self._send(peer, HeartbeatReply(message.ballot, learned, message.sent_s))

    case = Case(joining(replica=Boastful, waking=only(R1)), Left(wake=1), PROPOSED)
    return case, frozenset({"claim"})


def change_at_once_at_the_proposer(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """The leader counts by its change as soon as it is decided, and makes the next one before its time.

    A value that it gives out by its own vote alone is found. That another leader decides
    otherwise is not: with three routers the second change needs the vote of whoever
    remains, who knows of the first one by then and cannot lead without the proposer.
    """
    scope = changing(TRIO, {"remove": R3}, {"remove": R2}, alpha=3, impatient=only(R1), waking=only(R2))
    return Case(scope, Left(crash=1, wake=1), PROPOSED), frozenset({"undecided"})


def count_by_the_newest(patch: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """Votes for an instance of the old membership are counted by the new one."""
    patch.setattr(Memberships, "of", lambda self, instance: self.newest)
    case = Case(joining(3, senders=(("a1", "a2"),)), Left(), PROPOSED)
    return case, frozenset({"undecided"})


def wait_for_others_to_fill_up(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A leader proposes no no-ops behind a change."""

    class Idle(Replica[Any]):
        def _go_on(self, now_s: float) -> None:
            newest, self.memberships.governing[-1] = self.memberships.newest, self.memberships.governing[0]
            super()._go_on(now_s)
            self.memberships.governing[-1] = newest

    return Case(leaving(replica=Idle), Left(), PROPOSED), frozenset({"halfway"})


def dismiss_at_once(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """A leaver is let go as soon as the leader has learned all that it had a part in."""

    class Ungrateful(Replica[Any]):
        def _release_leavers(self) -> None:
            known = self._tenure.learned_by
            self._tenure.learned_by = dict.fromkeys(self.memberships.everyone(), self.learned)
            super()._release_leavers()
            self._tenure.learned_by = known

    case = Case(leaving(replica=Ungrateful, waking=only(R1)), Left(wake=1), PROPOSED)
    return case, frozenset({"released"})


def do_not_listen_to_a_joiner(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    """One that has not learned of a joiner takes no notice of it, although nobody else is left."""

    class Deaf(Replica[Any]):
        def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
            if not isinstance(message, Canvass) or peer in self.peers:
                super().on_message(peer, message, now_s)

    return Case(
        joining(1, replica=Deaf, waking=only(R2, R3), crashing=only(R1)), Left(crash=1), PROPOSED
    ), frozenset({"leaders"})


def never_dismiss(_: pytest.MonkeyPatch) -> tuple[Case, frozenset[str]]:
    class Clinging(Replica[Any]):
        def _release_leavers(self) -> None:
            """Let nobody go."""

    return Case(leaving(replica=Clinging), Left(), PROPOSED), frozenset({"lingering"})


STANDSTILLS = (do_not_listen_to_a_joiner, never_dismiss)
"""Nothing goes wrong in them; something never comes to pass."""

RECONFIGURATION_PLANTS = (
    vote_before_the_tail,
    claim_the_tail,
    change_at_once_at_the_proposer,
    count_by_the_newest,
    wait_for_others_to_fill_up,
    dismiss_at_once,
)
