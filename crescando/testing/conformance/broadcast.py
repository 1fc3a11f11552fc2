"""The laws of an atomic broadcast (RB13 §4.4, §5.6), as trials of a small group under faults.

Rules of the file: a law is a function of a subject and a seed, and needs no
more of an implementation than the contract. A subject says what it can do;
a law that asks for more is left out by `laws_for`.

===============  ===============================================================
rule             what breaks it
===============  ===============================================================
agreement        two members learn different values in one instance
gaps             a member learns an instance before the one below
invention        a value is learned that nobody proposed
instance         a value is learned elsewhere than its proposer was told
termination      what should be learned is not, within the subject's time
window           more instances are open than may be, or not the ones proposed
leader           no leader comes, or one that cannot lead proposes
snapshot         a member far behind gets none, or a state of another instance
tail             a member little behind gets a snapshot
noise            a stale, repeated, foreign or malformed message does harm
membership       a change is not learned, or one that cannot be is taken
attestation      a member with another state goes on, or one with the right one stops
rest             many events while nothing is asked, or events without end
failure          a member fails, or stops without a reason
===============  ===============================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from crescando.consensus.base import AtomicBroadcast
from crescando.consensus.membership import Change
from crescando.consensus.quorum import Membership
from crescando.testing.conformance.member import ATTEST_EVERY, MemberProcess
from crescando.testing.conformance.rules import ConformanceError
from crescando.testing.conformance.stage import Stage
from crescando.types import ProcessId

STRANGERS = (ProcessId("router", "nobody", 1), ProcessId("client", "c", 1))
IDLE_S = 5.0
IDLE_EVENTS_MAX = 500
"""Per second and member: turns, messages and timers."""

GARBAGE: tuple[object, ...] = (None, b"\0", 7, "x", (), object())


@dataclass(frozen=True, slots=True)
class BroadcastSubject:
    """An implementation, and what may be asked of it.

    Parameters
    ----------
    make : callable
        Gives a member's core, given itself, the membership it knows (as a
        joiner it is not in it) and its source of chance.
    members : int
        Size of the group.
    crashes : int
        How many members may crash, and how many may be cut off.
    window : int
        Instances that may be open at once.
    lag : int or None
        Learned instances that are kept for a member that is behind; one further
        behind gets a snapshot. None if all are kept.
    changes : bool
        Whether the membership can change.
    attests : bool
        Whether members with another digest than the majority's stop.
    settle_s : float
        Virtual time within which a group without faults has a leader, and has
        learned what was proposed.
    """

    make: Callable[[ProcessId, Membership, random.Random], AtomicBroadcast[bytes]]
    members: int = 3
    crashes: int = 1
    window: int = 8
    lag: int | None = None
    changes: bool = True
    attests: bool = True
    settle_s: float = 15.0


Law = Callable[[BroadcastSubject, int], None]


class Group:
    """A group of members on a stage, what was proposed to it, and what must hold of its logs.

    Parameters
    ----------
    subject : BroadcastSubject
    seed : int
    """

    def __init__(self, subject: BroadcastSubject, seed: int) -> None:
        self.subject = subject
        self.seed = seed
        self.stage = Stage(seed)
        self.members = tuple(ProcessId("router", f"r{i}", 1) for i in range(1, subject.members + 1))
        self.processes: dict[ProcessId, MemberProcess] = {}
        self.proposed: dict[bytes, int] = {}
        for me in self.members:
            self.start(me)

    def start(self, me: ProcessId) -> MemberProcess:
        """Start a member, or a joiner."""
        rng = random.Random(f"{self.seed}/{me}")
        core = self.subject.make(me, Membership(0, self.members), rng)
        process = self.processes[me] = MemberProcess(me, core)
        self.stage.add(process)
        return process

    def broken(self, rule: str, text: str) -> ConformanceError:
        """Give the error that tells of a broken rule."""
        return ConformanceError(rule, text, f"seed {self.seed}, {self.stage.now_s():.2f} s")

    def alive(self) -> list[MemberProcess]:
        """Give the processes that run."""
        return [process for me, process in self.processes.items() if self.stage.is_alive(me)]

    def leader(self) -> MemberProcess | None:
        """Give a member that may propose."""
        return next((process for process in self.alive() if process.broadcast.can_propose()), None)

    def await_leader(self) -> MemberProcess:
        """Let time pass until some member may propose."""
        self.stage.run_until(lambda: self.leader() is not None, self.subject.settle_s)
        leader = self.leader()
        if leader is None:
            raise self.broken("leader", f"nobody may propose after {self.subject.settle_s} s")
        if not leader.broadcast.is_leader:
            raise self.broken("leader", f"{leader.me} may propose and does not lead")
        return leader

    def propose(self, process: MemberProcess) -> bytes:
        """Let a leader propose one more value."""
        value = f"{process.me.node}/{len(self.proposed)}".encode()
        self.proposed[value] = process.broadcast.propose(value)
        self.stage.need_turn(process.me)
        return value

    def propose_to_all(self, n: int) -> None:
        """Have values proposed by whoever leads, as the window allows."""
        for _ in range(n):
            self.propose(self.await_leader())
            self.stage.run(self.stage.rng.uniform(0.0, 0.01))

    def await_learned(self, *processes: MemberProcess) -> None:
        """Let time pass until processes have learned what a leader has, and it has nothing open."""

        def is_done() -> bool:
            leader = self.leader()
            everyone = processes or tuple(self.alive())
            return leader is not None and all(
                process.learned == leader.broadcast.learned and not leader.broadcast.n_open
                for process in everyone
            )

        if not self.stage.run_until(is_done, self.subject.settle_s):
            learned = {str(p.me): p.learned for p in self.alive()}
            raise self.broken(
                "termination", f"after {self.subject.settle_s} s members have learned {learned}"
            )
        self.check()

    def check(self) -> None:
        """Check what must hold of all logs at any time, and that nobody failed."""
        decided: dict[int, bytes | None] = {}
        for process in self.processes.values():
            for instance, value in process.log:
                if decided.setdefault(instance, value) != value:
                    raise self.broken(
                        "agreement", f"instance {instance}: {decided[instance]!r} and {value!r} were learned"
                    )
                if value is None:
                    continue
                if value not in self.proposed:
                    raise self.broken("invention", f"{value!r} was learned and never proposed")
                if self.proposed[value] != instance:
                    raise self.broken(
                        "instance", f"{value!r} was learned in {instance}, proposed in {self.proposed[value]}"
                    )
        for me, reason in self.stage.stopped.items():
            if "ConformanceError" in reason:
                raise self.broken(*reason.removeprefix("ConformanceError: ").split(": ", 1))
            if "Error" in reason:
                raise self.broken("failure", f"{me} failed: {reason}")

    def check_nobody_stopped(self) -> None:
        """Check that no member stopped itself."""
        for me, reason in self.stage.stopped.items():
            raise self.broken("failure", f"{me} stopped itself: {reason}")


def order(subject: BroadcastSubject, seed: int) -> None:
    """Without faults all members learn everything that was proposed, in its order."""
    group = Group(subject, seed)
    group.propose_to_all(40)
    group.await_learned()
    expected = list(group.proposed)
    for process in group.alive():
        if process.values != expected:
            raise group.broken("termination", f"{process.me} learned {process.values}, not {expected}")
    group.check_nobody_stopped()


def window(subject: BroadcastSubject, seed: int) -> None:
    """A leader opens no more instances than the window, and knows which."""
    group = Group(subject, seed)
    leader = group.await_leader()
    broadcast = leader.broadcast
    values: list[bytes] = []
    while broadcast.can_propose() and len(values) <= subject.window:
        values.append(group.propose(leader))
        # A member that is alone may decide at once.
        still_open = values[len(values) - broadcast.n_open :]
        if broadcast.open_values() != still_open:
            raise group.broken("window", f"open are {broadcast.open_values()}, not {still_open}")
    if broadcast.n_open > subject.window:
        raise group.broken("window", f"{broadcast.n_open} instances are open of {subject.window}")
    if len(values) < subject.window:
        raise group.broken("window", f"only {len(values)} of {subject.window} instances could be opened")
    group.await_learned()
    if broadcast.n_open or broadcast.open_values():
        raise group.broken("window", f"{broadcast.n_open} instances stay open")


def rest(subject: BroadcastSubject, seed: int) -> None:
    """A group that is asked nothing does little."""
    group = Group(subject, seed)
    group.propose_to_all(3)
    group.await_learned()
    before = group.stage.time.n_events
    group.stage.run(IDLE_S)
    rate = (group.stage.time.n_events - before) / IDLE_S / subject.members
    if rate > IDLE_EVENTS_MAX:
        raise group.broken("rest", f"{rate:.0f} events a second and member, while nothing is asked")


def faults(subject: BroadcastSubject, seed: int) -> None:
    """Whatever sessions end and whoever is cut off, logs agree; healed, all learn the same."""
    group = Group(subject, seed)
    stage, rng = group.stage, group.stage.rng
    for _ in range(30):
        for process in group.alive():
            while process.broadcast.can_propose() and rng.random() < 0.6:
                group.propose(process)
        fault = rng.randrange(5)
        if fault == 0:
            stage.reset_some(rng.randint(1, 3))
        elif fault == 1 and subject.crashes:
            stage.isolate(rng.choice(group.members))
        elif fault == 2:
            stage.heal(resets=rng.random() < 0.5)
        stage.run(rng.choice((0.01, 0.1, 0.7)))
        group.check()
    stage.heal(resets=True)
    group.propose_to_all(3)
    group.await_learned()
    group.check_nobody_stopped()


def noise(subject: BroadcastSubject, seed: int) -> None:
    """Stale, repeated, foreign and malformed messages change nothing."""
    group = Group(subject, seed)
    stage, rng = group.stage, group.stage.rng
    for _ in range(40):
        leader = group.leader()
        if leader is not None:
            group.propose(leader)
        stage.run(rng.uniform(0.0, 0.1))
        stage.replay(4, own=True, strangers=STRANGERS)
        stage.give(rng.choice(group.members), rng.choice((*group.members, *STRANGERS)), rng.choice(GARBAGE))
        if rng.random() < 0.2:
            stage.reset_some(1)
        group.check()
    stage.run(0.5)
    group.propose_to_all(3)
    group.await_learned()
    group.check_nobody_stopped()


def leader_change(subject: BroadcastSubject, seed: int) -> None:
    """When the leader crashes another one leads, and what anybody had learned stays."""
    group = Group(subject, seed)
    for _ in range(subject.crashes):
        group.propose_to_all(5)
        leader = group.await_leader()
        while leader.broadcast.can_propose():
            group.propose(leader)
        group.stage.run(group.stage.rng.uniform(0.0, 0.01))
        group.stage.crash(leader.me)
    group.propose_to_all(5)
    group.await_learned()


def tail(subject: BroadcastSubject, seed: int) -> None:
    """A member that was cut off for a while learns what it missed."""
    group = Group(subject, seed)
    missed, follower = _cut_off(group, min(subject.lag or 20, 20) // 2)
    if follower.values[-missed:] != list(group.proposed)[-missed:]:
        raise group.broken("tail", f"{follower.me} did not learn what it missed")
    if follower.installed:
        raise group.broken("tail", f"{follower.me} got a snapshot, being {missed} instances behind")


def snapshot(subject: BroadcastSubject, seed: int) -> None:
    """A member that is too far behind for the tail gets a snapshot, and goes on from it."""
    group = Group(subject, seed)
    assert subject.lag is not None
    _, follower = _cut_off(group, 4 * subject.lag + 8 * subject.window)
    if not follower.installed:
        raise group.broken("snapshot", f"{follower.me} got no snapshot")
    group.propose_to_all(3)
    group.await_learned()
    if follower.values != list(group.proposed):
        raise group.broken("snapshot", f"{follower.me} holds {follower.values}")


def _cut_off(group: Group, n: int) -> tuple[int, MemberProcess]:
    """Have `n` values learned while a follower is cut off, and let it come back."""
    group.propose_to_all(3)
    group.await_learned()
    leader = group.await_leader()
    follower = next(process for process in group.alive() if process is not leader)
    group.stage.isolate(follower.me)
    group.propose_to_all(n)
    group.await_learned(leader)
    group.stage.heal(resets=True)
    group.await_learned()
    return n, follower


def membership(subject: BroadcastSubject, seed: int) -> None:
    """A joiner becomes a member that counts; a removed member stops; the order goes on."""
    group = Group(subject, seed)
    group.propose_to_all(6)
    joiner = group.start(ProcessId("router", "r8", 1))
    _change(group, Change(group.await_leader().broadcast.membership.number, add=joiner.me, resizes=True))

    def has_joined() -> bool:
        return all(joiner.me in process.broadcast.membership.members for process in group.alive())

    if not group.stage.run_until(has_joined, 2 * subject.settle_s):
        raise group.broken("membership", f"{joiner.me} did not become a member")
    group.propose_to_all(6)
    group.await_learned()
    victim = next(process for process in group.alive() if process is not group.await_leader())
    _change(group, Change(victim.broadcast.membership.number, remove=victim.me, resizes=True))

    def is_gone() -> bool:
        return victim.me in group.stage.stopped and all(
            victim.me not in process.broadcast.membership.members for process in group.alive()
        )

    if not group.stage.run_until(is_gone, 2 * subject.settle_s):
        raise group.broken("membership", f"{victim.me} was removed and did not stop")
    group.propose_to_all(6)
    group.await_learned()


def _change(group: Group, change: Change) -> None:
    """Ask for a change until it is taken: there may be one in flight."""
    reason = ""

    def is_taken() -> bool:
        nonlocal reason
        leader = group.leader()
        if leader is None:
            return False
        reason = leader.broadcast.request_change(change)
        group.stage.need_turn(leader.me)
        return not reason

    if not group.stage.run_until(is_taken, group.subject.settle_s):
        raise group.broken("membership", f"{change} was not taken: {reason}")


def impossible_changes(subject: BroadcastSubject, seed: int) -> None:
    """Changes that cannot be are refused with a reason, and nothing changes."""
    group = Group(subject, seed)
    leader = group.await_leader()
    group.propose_to_all(2)
    group.await_learned()
    now = leader.broadcast.membership
    fresh = ProcessId("router", "r9", 1)
    impossible = [
        Change(now.number, remove=ProcessId("router", "ghost", 1)),
        Change(now.number, add=leader.me),
        Change(now.number, add=fresh, remove=leader.me),
        Change(now.number),
        Change(now.number + 1, add=fresh),
    ]
    if len(now.members) == 1:
        impossible.append(Change(now.number, remove=leader.me))
    for change in impossible:
        if not leader.broadcast.request_change(change):
            raise group.broken("membership", f"{change} was taken")
    group.propose_to_all(2)
    group.await_learned()
    if any(process.broadcast.membership.members != now.members for process in group.alive()):
        raise group.broken("membership", "an impossible change took effect")


def attestation(subject: BroadcastSubject, seed: int) -> None:
    """A member whose state differs from the majority's stops; the others go on."""
    group = Group(subject, seed)
    group.propose_to_all(3)
    group.await_learned()
    liar = group.stage.rng.choice(group.alive())
    liar.lies = True
    group.propose_to_all(2 * ATTEST_EVERY)
    if not group.stage.run_until(lambda: liar.me in group.stage.stopped, subject.settle_s):
        raise group.broken("attestation", f"{liar.me} has another state than the others, and goes on")
    if len(group.stage.stopped) > 1:
        raise group.broken(
            "attestation", f"{sorted(map(str, group.stage.stopped))} stopped, one of them lied"
        )
    group.propose_to_all(3)
    group.await_learned()


def laws_for(subject: BroadcastSubject) -> tuple[Law, ...]:
    """Give the laws that a subject can be held to."""
    laws: list[Law] = [order, window, rest, faults, noise]
    if subject.crashes:
        laws.append(leader_change)
    if subject.members > 1:
        laws.append(tail)
        if subject.lag is not None:
            laws.append(snapshot)
    if subject.changes and subject.members > 2:
        laws.append(membership)
    laws.append(impossible_changes)
    if subject.attests and subject.members > 2:
        laws.append(attestation)
    return tuple(laws)


def check_broadcast(subject: BroadcastSubject, *, seeds: int = 5) -> int:
    """Try every law that a subject can be held to, and give the number of trials.

    Raises
    ------
    ConformanceError
        If a law is broken; its `rule` says which.
    """
    laws = laws_for(subject)
    for law in laws:
        for seed in range(seeds):
            law(subject, seed)
    return len(laws) * seeds
