"""A small scope in which the membership changes: every instance is judged by whoever governs it.

Rules of the file: who governs what is worked out here from the votes on the
wire and the rule of R-alpha alone (Lamport, Malkhi, Zhou 2010), never by asking
a member. Kinds of violation: ``early`` is a vote or a proposal before the tail
is held (INV-7), ``claim`` a word about more than is held, ``membership`` a
member that believes in another membership than the order's, ``undecided``
something learned that no quorum of the governing members has voted for,
``released`` a leaver let go before a quorum holds all that it had a part in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from crescando.consensus.base import Ballot
from crescando.consensus.membership import Change
from crescando.consensus.multipaxos.messages import (
    Accept,
    Accepted,
    CanvassReply,
    HeartbeatReply,
    Promise,
    Removed,
)
from crescando.consensus.quorum import Membership
from crescando.process import Output
from crescando.testing.broadcast_scope import BroadcastScope, Member, given_out, look_at_order
from crescando.testing.scope import Fact, Facts, Key, Seen
from crescando.types import ProcessId


@dataclass(slots=True)
class Order:
    """What is decided, and by whom, as the votes on the wire have it.

    Attributes
    ----------
    decided : list of (int, object)
        Every instance with a quorum of its members behind a value, once per value.
    memberships : list of Membership
        Oldest first.
    learned : int
        The instance up to which all are decided.
    """

    decided: list[tuple[int, object]]
    memberships: list[Membership]
    learned: int = 0

    def of(self, instance: int) -> Membership:
        """Give the membership that governs an instance."""
        return next(known for known in reversed(self.memberships) if known.start <= instance)

    def since(self, instance: int) -> list[Membership]:
        """Give every membership that governs an instance or a later one."""
        return [self.of(instance), *(known for known in self.memberships if known.start > instance)]


def order_of(facts: Facts, genesis: Membership, alpha: int) -> Order:
    """Work out what the votes have decided.

    Parameters
    ----------
    facts : mapping
        With those of `look_at_order`.
    genesis : Membership
    alpha : int
        Distance from a change to the first instance that it governs.
    """
    votes: dict[int, dict[Ballot, set[ProcessId]]] = defaultdict(lambda: defaultdict(set))
    for key in facts:
        if key[0] == "vote":
            _, ballot, instance, voter = key
            assert isinstance(ballot, Ballot)
            assert isinstance(instance, int)
            assert isinstance(voter, ProcessId)
            votes[instance][ballot].add(voter)
    order = Order([], [genesis])
    values: dict[int, object] = {}
    instance = 0
    while (instance := instance + 1) <= order.learned + alpha:
        members = order.of(instance).members
        for ballot, voters in votes[instance].items():
            value = facts.get(("ballot", ballot, instance), _UNKNOWN)
            if value is not _UNKNOWN and is_majority(voters, members):
                order.decided.append((instance, value))
                values.setdefault(instance, value)
        while order.learned + 1 in values:
            order.learned += 1
            _take(order, values[order.learned], alpha)
    return order


def _take(order: Order, value: object, alpha: int) -> None:
    """Let a decided change, unless it is void, govern from alpha instances later on."""
    change = value[1] if isinstance(value, tuple) else None
    newest = order.memberships[-1]
    if not isinstance(change, Change) or change.number != newest.number or newest.start > order.learned:
        return
    members = tuple(member for member in newest.members if member != change.remove)
    if change.add is not None:
        members += (change.add,)
    order.memberships.append(Membership(newest.number + 1, members, order.learned + alpha))


def is_majority(voters: Collection[ProcessId], members: Collection[ProcessId]) -> bool:
    """Whether more than half of `members` are among the voters."""
    return 2 * sum(member in voters for member in members) > len(members)


@dataclass(frozen=True, kw_only=True)
class MembershipScope(BroadcastScope):
    """Members of a group that changes on the way.

    Parameters
    ----------
    genesis : Membership
    alpha : int
    """

    genesis: Membership
    alpha: int
    majority: int = 0

    def observe(self, before: Member | None, after: Member, message: object, output: Output) -> Seen:
        """Look at what any member shows, and whether it holds what it speaks of."""
        seen = look_at_order(before, after, output)
        learned = after.broadcast.learned
        faults = list(seen.faults)
        for _, sent in output.send:
            if isinstance(sent, Accept | Accepted) and sent.instance > learned + self.alpha:
                faults.append(f"early: {after.me} takes part in {sent.instance} and has learned {learned}")
            if isinstance(sent, CanvassReply | HeartbeatReply | Promise) and sent.learned > learned:
                faults.append(f"claim: {after.me} has learned {learned}, and says {sent}")
        facts = dict.fromkeys(fact for fact in seen.facts if fact[0][0] != "membership")
        demands = [fact for fact in seen.facts if fact[0][0] == "membership"]
        # What is given out must be decided; one that was never proposed is not decided either.
        demands += [(("undecided", *key[1:]), word) for key, word in facts if key[0] == "instance"]
        membership = after.broadcast.membership
        if learned >= membership.start - 1:
            facts[("holds", after.me, membership.number), True] = None
        gone = [peer for peer, sent in output.send if isinstance(sent, Removed)]
        if output.stop.startswith("removed"):
            gone.append(after.me)
        demands += [(("released", peer), True) for peer in gone]
        return Seen(tuple(facts), tuple(demands), tuple(faults))

    def derive(self, facts: Facts) -> Iterable[Fact]:
        """Give what is decided, the memberships that follow, and which leavers are needed no more."""
        order = order_of(facts, self.genesis, self.alpha)
        for instance, value in order.decided:
            yield ("decided", instance), value
            yield ("instance", instance), given_out(value)
            yield ("undecided", instance), given_out(value)
        before = order.memberships[0].members
        for membership in order.memberships:
            yield ("membership", membership.number), membership
            holders = set(_holders(facts, membership.number))
            if is_majority(holders, membership.members):
                for leaver in set(before) - set(membership.members):
                    yield ("released", leaver), True
            before = membership.members

    def at_rest(self, live: Mapping[ProcessId, Member], facts: Facts) -> Iterable[str]:
        """A leader that is followed has learned what it proposed, and its last change is in force."""
        order = order_of(facts, self.genesis, self.alpha)
        for me, process in live.items():
            ballot, learned = process.broadcast.ballot, process.broadcast.learned
            followers = {peer for peer, other in live.items() if other.broadcast.ballot == ballot}
            if not process.broadcast.is_leader or ("lossy", ballot) in facts:
                continue
            if not all(is_majority(followers, known.members) for known in order.since(learned + 1)):
                continue
            left = sorted(int(str(key[2])) for key in facts if _is_proposed(key, ballot, learned))
            if left:
                yield f"hole: {me} proposed {left} and never learns beyond {learned}"
            if order.memberships[-1].start > learned + 1:
                yield f"halfway: {order.memberships[-1]} never comes into force at {me}, which leads"

    def can_go_on(self, live: Mapping[ProcessId, Member], facts: Facts) -> bool:
        """Whether enough run to decide whatever comes after all that anybody running has learned."""
        order = order_of(facts, self.genesis, self.alpha)
        learned = max((process.broadcast.learned for process in live.values()), default=0)
        return all(is_majority(live, known.members) for known in order.since(learned + 1))

    def after_calm(self, live: Mapping[ProcessId, Member], stopped: Mapping[ProcessId, str]) -> Iterable[str]:
        """Give what is wrong after a while without faults: one leads, all know all, and leavers are gone."""
        memberships = {process.broadcast.membership for process in live.values()}
        newest = max(memberships, key=lambda known: known.number)
        members = {me: process for me, process in live.items() if me in newest.members}
        leaders = [str(me) for me, process in members.items() if process.broadcast.is_leader]
        if len(leaders) != 1:
            yield f"leaders: {leaders} lead {newest}"
        if len(memberships) != 1:
            yield f"beliefs: the members believe in {memberships}"
        learned = {str(me): process.learned for me, process in members.items()}
        if len(set(learned.values())) > 1:
            yield f"unheard: not all have learned the same: {learned}"
        if any(process.broadcast.learned < newest.start - 1 for process in members.values()):
            yield f"halfway: {newest} is not in force everywhere: {learned}"
        for me in live:
            if me not in members and me in self.genesis.members:
                yield f"lingering: {me} has left with {newest} and was not let go"
        for me, why in stopped.items():
            if me in newest.members or not why.startswith("removed"):
                yield f"stopped: {me}: {why}"


def _is_proposed(key: Key, ballot: Ballot, learned: int) -> bool:
    return key[0] == "ballot" and key[1] == ballot and int(str(key[2])) > learned


def _holders(facts: Facts, number: int) -> Iterator[ProcessId]:
    """Give who has held all that came before this membership or a later one."""
    for key in facts:
        if key[0] == "holds" and int(str(key[2])) >= number:
            assert isinstance(key[1], ProcessId)
            yield key[1]


_UNKNOWN = object()
