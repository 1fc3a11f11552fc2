"""A small scope over the real cores of an atomic broadcast: its members, and values to propose.

What is looked at is what the contracts promise and what goes over the wire,
never how a core keeps it. Names of violations are the kinds by which an
exploration reports them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from crescando import wire
from crescando.consensus.base import AtomicBroadcast, BroadcastOutput
from crescando.consensus.multipaxos.messages import Accept, Accepted, Promise
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.process import Output
from crescando.routing.ecast.messages import Batch
from crescando.testing.scope import Ask, Fact, Facts, Seen
from crescando.types import ProcessId

TIMING = PaxosTiming(heartbeat_s=0.5, election_s=1.0, window=4, lag=2)
"""Few heartbeats to an election time, so that few timers lead to an election; a lag that can be exceeded."""


class Steady(random.Random):
    """Chance without a state: always the same part of an interval.

    Clocks are independent of each other in an exploration, so which of two
    members' jitter is longer is explored without it.
    """

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * 0.5


class Member:
    """A broadcast core as a process: takes what is learned into a list, the state machine."""

    def __init__(self, me: ProcessId, broadcast: AtomicBroadcast[str]) -> None:
        self.me = me
        self.broadcast = broadcast
        self.base = 0
        self.learned: tuple[tuple[int, str | None], ...] = ()

    def on_start(self, now_s: float) -> None:
        self.broadcast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.broadcast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.broadcast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.broadcast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.broadcast.on_message(peer, message, now_s)

    def flush(self, now_s: float) -> Output:
        out = Output()
        result = self.broadcast.flush(now_s)
        self._take(result, out)
        if result.snapshot_for:
            for peer in result.snapshot_for:
                self.broadcast.provide_snapshot(peer, self.broadcast.learned, self.learned)
            self._take(self.broadcast.flush(now_s), out)
        if getattr(self.broadcast, "is_quiet", False):
            # It speaks of the turn that ends here: states that differ by it alone are the same.
            self.broadcast.is_quiet = False  # type: ignore[attr-defined]
        return out

    def _take(self, result: BroadcastOutput[str], out: Output) -> None:
        out.send += result.send
        if result.install is not None:
            self.learned = tuple((instance, value) for instance, value in result.install[1])
        self.learned += tuple(result.learned)
        out.wake_at_s = result.wake_at_s
        out.stop = getattr(result, "stop", "")


def _propose(values: tuple[str, ...]) -> Callable[[Any, int, float], None]:
    def ask(member: Any, count: int, now_s: float) -> None:
        member.broadcast.propose(values[count])

    return ask


def _can_propose(member: Any) -> bool:
    return bool(member.broadcast.can_propose())


@dataclass(frozen=True)
class BroadcastScope:
    """Members of a broadcast group, and senders whose values any leader may be asked to propose.

    Parameters
    ----------
    routers : tuple of ProcessId
    make_broadcast : callable
        Makes a member that remembers nothing.
    senders : tuple of tuple of str
        The values of each sender, in its order.
    majority : int
        Votes that decide; 0 if it changes on the way, and only what is learned is compared.
    more : tuple of Ask
        Further requests, as for a change of membership.
    late : tuple of ProcessId
    waking, crashing : frozenset of ProcessId, optional
        Whose timers are of interest, and who may crash; all by default.
    """

    routers: tuple[ProcessId, ...]
    make_broadcast: Callable[[ProcessId], AtomicBroadcast[str]]
    senders: tuple[tuple[str, ...], ...] = (("a1", "a2"), ("b1",))
    majority: int = 2
    more: tuple[Ask, ...] = ()
    late: tuple[ProcessId, ...] = ()
    waking: frozenset[ProcessId] | None = None
    crashing: frozenset[ProcessId] | None = None
    pause_s: float = 10.0
    lossy: tuple[type[Any], ...] = (Accept,)

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """Every router."""
        return self.routers

    @property
    def asks(self) -> tuple[Ask, ...]:
        """One request a sender, as often as it has values."""
        return (
            *(
                Ask(f"propose {'/'.join(values)}", self.routers, _can_propose, _propose(values), len(values))
                for values in self.senders
            ),
            *self.more,
        )

    def make(self, me: ProcessId) -> Member:
        """Make a member."""
        return Member(me, self.make_broadcast(me))

    def are_linked(self, a: ProcessId, b: ProcessId) -> bool:
        """Every two routers keep a session."""
        return True

    def may_wake(self, process: ProcessId) -> bool:
        """Whether this router's timers are of interest."""
        return self.waking is None or process in self.waking

    def may_crash(self, process: ProcessId) -> bool:
        """Whether this router may crash."""
        return self.crashing is None or process in self.crashing

    def observe(self, before: Member | None, after: Member, message: Any, output: Output) -> Seen:
        """Look at promises, votes, proposals and what is learned."""
        return look_at_order(before, after, output)

    def on_lost(self, message: Any) -> Seen:
        """Remember of which ballot something was lost: its leader need not get on."""
        return Seen(((("lossy", message.ballot), True),))

    def derive(self, facts: Facts) -> Iterable[Fact]:
        """Give what is decided, whether anybody knows it or not."""
        return decided(facts, self.majority) if self.majority else ()

    def at_rest(self, live: Mapping[ProcessId, Member], facts: Facts) -> Iterable[str]:
        """The leader whose ballot a majority has promised has learned all that it has proposed."""
        for me in effective_leaders(live, facts, self.majority):
            broadcast = live[me].broadcast
            proposed = {
                int(str(key[2])) for key in facts if key[0] == "ballot" and key[1] == broadcast.ballot
            }
            left = sorted(instance for instance in proposed if instance > broadcast.learned)
            if left:
                yield f"hole: {me} proposed {left} and never learns beyond {broadcast.learned}"


# What holds of any atomic broadcast of ballots, whoever uses it.


class Ordered(Protocol):
    """A process that has a broadcast core and remembers what that gave out.

    Attributes
    ----------
    base : int
        The instance of the snapshot that `learned` begins after.
    """

    me: ProcessId

    @property
    def broadcast(self) -> AtomicBroadcast[Any]: ...

    @property
    def base(self) -> int: ...

    @property
    def learned(self) -> tuple[tuple[int, Hashable], ...]: ...


def word_of(value: Any) -> Hashable:
    """Give a proposed value as a word to compare it by."""
    if value is None or isinstance(value, str):
        return value
    return wire.encode_any(value) if isinstance(value, Batch) else ("inner", value)


def given_out(word: Hashable) -> Hashable:
    """Give what members give out of a value: what is only for the broadcast itself looks like a no-op."""
    return None if isinstance(word, tuple) else word


def look_at_order(before: Ordered | None, after: Ordered, output: Output) -> Seen:
    """Look at one step of a member: promises, votes, proposals and what is learned."""
    facts: dict[Fact, None] = {}
    faults: list[str] = []
    promised = before.broadcast.ballot if before is not None else None
    had = before.learned if before is not None and before.base == after.base else ()
    if promised is not None and after.broadcast.ballot < promised:
        faults.append(f"promise: {after.me} goes back from {promised} to {after.broadcast.ballot}")
    for _, sent in output.send:
        if isinstance(sent, Accepted | Promise) and promised is not None and sent.ballot < promised:
            faults.append(f"promise: {after.me} takes part in {sent.ballot} after {promised}")
        if isinstance(sent, Accept):
            word = word_of(sent.value)
            facts[("ballot", sent.ballot, sent.instance), word] = None
            facts[("proposed", sent.instance, given_out(word)), True] = None
            if after.broadcast.ballot == sent.ballot:
                facts[("vote", sent.ballot, sent.instance, after.me), True] = None
        elif isinstance(sent, Accepted):
            facts[("vote", sent.ballot, sent.instance, after.me), True] = None
    if after.broadcast.is_leader and not (before is not None and before.broadcast.is_leader):
        facts[("leader", after.broadcast.ballot), after.me] = None
    members = after.broadcast.membership
    facts[("membership", members.number), members] = None
    expected = range(after.base + 1, after.base + 1 + len(after.learned))
    if [instance for instance, _ in after.learned] != list(expected):
        faults.append(f"gap: {after.me} has learned {after.learned} after {after.base}")
    if after.learned[: len(had)] != had:
        faults.append(f"unlearned: {after.me} had learned {had}, and then {after.learned}")
    new = after.learned[len(had) :]
    facts.update(((("instance", instance), word), None) for instance, word in new)
    demands = tuple((("proposed", instance, word), True) for instance, word in new)
    return Seen(tuple(facts), demands, tuple(faults))


def decided(facts: Facts, majority: int) -> Iterable[Fact]:
    """Give every instance for which so many have voted in one ballot."""
    votes = Counter((key[1], key[2]) for key in facts if key[0] == "vote")
    for (ballot, instance), n in votes.items():
        value = facts.get(("ballot", ballot, instance), _UNKNOWN)
        if n >= majority and value is not _UNKNOWN:
            yield ("decided", instance), value
            yield ("instance", instance), given_out(value)


def effective_leaders(live: Mapping[ProcessId, Ordered], facts: Facts, majority: int) -> Iterable[ProcessId]:
    """Give who leads a majority, and lost nothing that it would not say again."""
    promised = [process.broadcast.ballot for process in live.values()]
    for me, process in live.items():
        ballot = process.broadcast.ballot
        is_followed = majority > 0 and promised.count(ballot) >= majority
        if process.broadcast.is_leader and is_followed and ("lossy", ballot) not in facts:
            yield me


_UNKNOWN = object()
