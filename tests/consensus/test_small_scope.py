"""Every interleaving of two proposers and three acceptors: one value at most is chosen.

The real acceptor and leader cores, with each request and each promise
delivered at any time or never. (What never comes are the states in which it
has not come yet.) A value is chosen once a quorum has voted for it in one
ballot, whether or not anybody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.leader import Leader
from crescando.consensus.multipaxos.messages import Accept, Accepted, Nack, Prepare, Promise, Vote
from crescando.consensus.quorum import Membership
from tests.consensus.group import R1, R2, R3

MEMBERS = (R1, R2, R3)
MEMBERSHIP = Membership(0, MEMBERS)
INSTANCE = 1

Action = tuple[str, int, int]
"""``prepare``, ``promise`` or ``accept``, of which proposer, at which acceptor."""


@dataclass
class State:
    """Two proposers with a value each, three acceptors, and what is on its way."""

    acceptors: list[Acceptor[str]]
    leaders: list[Leader[str]]
    asked: frozenset[Action]
    promises: dict[tuple[int, int], Promise[str]]
    cast: frozenset[tuple[int, Ballot, str | None]]

    @classmethod
    def first(cls, acceptor: type[Acceptor[str]]) -> State:
        leaders: list[Leader[str]] = [
            Leader(Ballot(attempt, MEMBERS[attempt - 1]), INSTANCE) for attempt in (1, 2)
        ]
        return cls([acceptor() for _ in MEMBERS], leaders, frozenset(), {}, frozenset())

    def copy(self) -> State:
        return State(
            [replace(acceptor, votes=dict(acceptor.votes)) for acceptor in self.acceptors],
            [copy_leader(known) for known in self.leaders],
            self.asked,
            dict(self.promises),
            self.cast,
        )

    def key(self) -> object:
        acceptors = tuple((a.promised.attempt, _summary(a.votes.values())) for a in self.acceptors)
        leaders = tuple(
            (
                tuple(sorted(leader.promised)),
                _summary(leader.votes.values()),
                leader.open[INSTANCE].value if leader.is_prepared else "",
            )
            for leader in self.leaders
        )
        promises = tuple(sorted((link, _summary(p.votes)) for link, p in self.promises.items()))
        return acceptors, leaders, self.asked, promises, self.cast

    def actions(self) -> list[Action]:
        found: list[Action] = [("promise", i, j) for i, j in self.promises]
        for i, leader in enumerate(self.leaders):
            what = "accept" if leader.is_prepared else "prepare"
            found += [(what, i, j) for j in range(3) if (what, i, j) not in self.asked]
        return found

    def act(self, action: Action) -> State:
        what, i, j = action
        state = self.copy()
        leader, acceptor = state.leaders[i], state.acceptors[j]
        if what == "promise":
            promise = state.promises.pop((i, j))
            leader.on_promise(MEMBERS[j], promise)
            if not leader.is_prepared and leader.may_propose(MEMBERSHIP):
                leader.is_prepared = True
                if leader.has_found_votes:
                    leader.take_found()
                else:
                    leader.propose(f"of {i}")
            return state
        state.asked |= {action}
        if what == "prepare":
            if acceptor.on_prepare(Prepare(leader.ballot, INSTANCE)) is None:
                votes = tuple(acceptor.votes_from(INSTANCE))
                state.promises[i, j] = Promise(leader.ballot, votes, 0, 0)
            return state
        value = leader.open[INSTANCE].value
        if isinstance(acceptor.on_accept(Accept(leader.ballot, INSTANCE, value, 0)), Accepted):
            state.cast |= {(j, leader.ballot, value)}
        return state

    def chosen(self) -> frozenset[str | None]:
        voters: dict[tuple[Ballot, str | None], set[int]] = {}
        for j, ballot, value in self.cast:
            voters.setdefault((ballot, value), set()).add(j)
        return frozenset(
            value for (_, value), known in voters.items() if MEMBERSHIP.is_quorum({MEMBERS[j] for j in known})
        )


def copy_leader(leader: Leader[str]) -> Leader[str]:
    copied: Leader[str] = Leader(
        leader.ballot,
        leader.first,
        set(leader.promised),
        dict(leader.votes),
        leader.last_vote,
        leader.is_prepared,
        open=dict(leader.open),
    )
    copied.next_instance = leader.next_instance
    return copied


def _summary(votes: object) -> tuple[tuple[int, str | None], ...]:
    return tuple((vote.ballot.attempt, vote.value) for vote in votes)  # type: ignore[attr-defined]


def explore(acceptor: type[Acceptor[str]]) -> tuple[int, set[frozenset[str | None]]]:
    """Visit every reachable state; give their number and the sets of values chosen in one."""
    first = State.first(acceptor)
    seen, waiting = {first.key()}, [first]
    outcomes: set[frozenset[str | None]] = set()
    while waiting:
        state = waiting.pop()
        outcomes.add(state.chosen())
        if max(map(len, outcomes)) > 1:
            break
        for action in state.actions():
            after = state.act(action)
            if (key := after.key()) not in seen:
                seen.add(key)
                waiting.append(after)
    return len(seen), outcomes


def test_whatever_happens_one_value_is_chosen_at_most() -> None:
    states, outcomes = explore(Acceptor)

    assert states > 1_000
    assert outcomes == {frozenset(), frozenset({"of 0"}), frozenset({"of 1"})}


class Obliging(Acceptor[str]):
    """Accepts whatever it is asked to: a promise binds it to nothing."""

    def on_accept(self, message: Accept[str]) -> Accepted | Nack:
        self.votes[message.instance] = Vote(message.instance, message.ballot, message.value)
        return Accepted(message.ballot, message.instance)


class Discreet(Acceptor[str]):
    """Does not tell what it has voted for."""

    def votes_from(self, first: int) -> list[Vote[str]]:
        return []


@pytest.mark.parametrize("acceptor", [Obliging, Discreet])
def test_the_search_finds_a_broken_acceptor(acceptor: type[Acceptor[str]]) -> None:
    _, outcomes = explore(acceptor)

    assert frozenset({"of 0", "of 1"}) in outcomes
