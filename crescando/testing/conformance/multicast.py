"""The laws of a multicast (EC11 §3, RB13 App. 1), as trials of a small system under faults.

Rules of the file: the routers and the ends are the subject's; the Config, the
senders and the judge are the suite's. The judge knows what was submitted and
what was delivered where; positions tell in which order, and the Config at each
prefix who ought to have delivered it.

===============  ===============================================================
rule             what breaks it
===============  ===============================================================
numbers          the next number is not the one after what was submitted
delivery order   a destination delivers below what it has delivered
one position     two messages have one position, or one has two
submit order     two messages of a sender are ordered against their numbers
validity         something is delivered that was not submitted, or was refused
minimality       somebody delivers what does not go to it, or with another scope
completeness     a destination does not deliver what goes to it
stability        a verdict is taken back, is wrong, or of what was not submitted
termination      a message gets no verdict in time
holding          a message is stable before a destination that holds has confirmed
expulsion        a process that is no member is not told, or goes on
joining          a joiner is not told the Config after its join, or somebody else is told one
reads            a read beside the order shows too little, too much or what is over
noise            a foreign or malformed message does harm
rest             much is sent while nothing is asked
failure          a process fails
===============  ===============================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crescando.process import ProcessCore
from crescando.routing.base import Multicast
from crescando.routing.batch import Message, submission
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import CreateTable, Join, Leave, Suspect, encode_message
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.testing.conformance.decisions import target_of
from crescando.testing.conformance.endpoint import EndProcess, ReadWords
from crescando.testing.conformance.messages import draw_ranges
from crescando.testing.conformance.reads import AskedRead, judge_reads
from crescando.testing.conformance.rules import ConformanceError
from crescando.testing.conformance.stage import Stage
from crescando.types import MessageKind, ProcessId

STRANGERS = (ProcessId("client", "nobody", 1), ProcessId("storage", "nobody", 1))
"""Not of role router: what a router says is true, and who may be one is the transport's business."""

GARBAGE: tuple[object, ...] = (None, b"\0", 7, "x", (), object())
UNKNOWN_TABLE = 7
IDLE_S = 5.0

READS_S = 5.0
"""Time within which a read is run or refused, while nothing fails."""

IDLE_MESSAGES_MAX = 100
"""Per second and process, while nothing is asked."""


@dataclass(frozen=True, slots=True)
class MulticastSubject:
    """An implementation of both sides.

    Parameters
    ----------
    make_router : callable
        Gives a router's core, given itself, all routers, the first Config and
        its source of chance.
    make_multicast : callable
        Gives an application process's end, given itself and the routers.
    routers : int
    crashes : int
        How many routers may crash.
    settle_s : float
        Virtual time within which what was submitted has a verdict, once there are no faults.
    reads : ReadWords, optional
        How snapshot reads are asked for, if there are any.
    """

    make_router: Callable[[ProcessId, tuple[ProcessId, ...], Rubberband, random.Random], ProcessCore]
    make_multicast: Callable[[ProcessId, tuple[ProcessId, ...]], Multicast]
    routers: int = 3
    crashes: int = 1
    settle_s: float = 20.0
    reads: ReadWords | None = None


Law = Callable[[MulticastSubject, int], None]


class System:
    """Routers, two clients, three storage processes with each range on two of them, and a super.

    Parameters
    ----------
    subject : MulticastSubject
    seed : int
    """

    def __init__(self, subject: MulticastSubject, seed: int) -> None:
        self.subject = subject
        self.seed = seed
        self.stage = Stage(seed)
        self.routers = tuple(ProcessId("router", f"r{i}", 1) for i in range(1, subject.routers + 1))
        self.clients = tuple(ProcessId("client", f"c{i}", 1) for i in range(2))
        self.storages = tuple(ProcessId("storage", f"s{i}", 1) for i in range(3))
        self.super_ = ProcessId("super", "u0", 1)
        self.config = self._genesis()
        self.ends: dict[ProcessId, EndProcess] = {}
        self.asked: dict[tuple[ProcessId, int], AskedRead] = {}
        for me in self.routers:
            rng = random.Random(f"{seed}/{me}")
            self.stage.add(subject.make_router(me, self.routers, self.config, rng))
        for me in (*self.storages, self.super_, *self.clients):
            self.start(me)

    def _genesis(self) -> Rubberband:
        empty = Rubberband.genesis(
            storages=self.storages, replication=2, supers=(self.super_,), clients=self.clients
        )
        columns = (ColumnDef("k", DataType.INT64, False),)
        create = encode_message(CreateTable(TableSchema("t", columns, "k")))
        return empty.apply(Message(self.super_, 0, MessageKind.CONFIG, -1, (), 0, create))

    def broken(self, rule: str, text: str) -> ConformanceError:
        """Give the error that tells of a broken rule."""
        return ConformanceError(rule, text, f"seed {self.seed}, {self.stage.now_s():.2f} s")

    def start(self, me: ProcessId) -> None:
        """Start an application process."""
        self.ends[me] = EndProcess(me, self.subject.make_multicast(me, self.routers), self.subject.reads)
        self.stage.add(self.ends[me])

    # Submitting.

    def submit(self, me: ProcessId, n: int = 1, *, refused: float = 0.0) -> None:
        """Let a client submit random reads and writes, some of which must be refused."""
        rng, first = self.stage.rng, self.ends[me].multicast.next_number
        messages = []
        for number in range(first, first + n):
            kind = rng.choice((MessageKind.READ, MessageKind.WRITE))
            table = UNKNOWN_TABLE if rng.random() < refused else 0
            payload = rng.randbytes(rng.randrange(20))
            messages.append(Message(me, number, kind, table, draw_ranges(rng), rng.getrandbits(32), payload))
        self._give(me, messages)

    def configure(self, me: ProcessId, body: Join | Leave | Suspect) -> None:
        """Let a process submit a configuration message."""
        number = self.ends[me].multicast.next_number
        self._give(me, [Message(me, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))])

    def _give(self, me: ProcessId, messages: list[Message]) -> None:
        self.ends[me].submit(messages)
        self.stage.need_turn(me)

    def ask_reads(self, me: ProcessId, n: int) -> None:
        """Let a client ask for random snapshot reads, behind what it knows or may know."""
        rng, end = self.stage.rng, self.ends[me]
        first = 1 + sum(client == me for client, _ in self.asked)
        told = [
            part.position
            for other in self.ends.values()
            for part in other.delivered
            if part.sender == me and end.verdicts.get(part.number) == "stable"
        ]
        seen = rng.choice((-1, max(told, default=-1)))
        written = rng.choice((0, end.multicast.next_number - 1))
        stable = frozenset(
            (other, number)
            for other, known in self.ends.items()
            for number, verdict in known.verdicts.items()
            if verdict == "stable"
        )
        reads = [
            Message(me, number, MessageKind.READ, 0, draw_ranges(rng), rng.getrandbits(32), b"")
            for number in range(first, first + n)
        ]
        self.asked |= {(me, read.number): AskedRead(read, seen, written, stable) for read in reads}
        end.ask(submission(reads), seen, written)
        self.stage.need_turn(me)

    def judge_reads(self, *, is_calm: bool) -> None:
        """Judge every snapshot read; some must have run in full."""
        n_whole = judge_reads(
            self.asked, self.ends, self.order(), self.config, broken=self.broken, is_calm=is_calm
        )
        if not n_whole:
            raise self.broken("reads", f"of {len(self.asked)} reads none ran in full")

    # Waiting and judging.

    def settle(self) -> None:
        """Wait until every message of a member has a verdict and is delivered, then judge all."""

        def is_done() -> bool:
            # An expelled sender is told up to which number its messages took effect, and no more.
            return all(
                len(end.verdicts) == len(end.submitted) or end.expelled is not None
                for me, end in self.ends.items()
                if self.stage.is_alive(me)
            )

        if not self.stage.run_until(is_done, self.subject.settle_s):
            waiting = {
                str(me): sorted(end.submitted.keys() - end.verdicts.keys())
                for me, end in self.ends.items()
                if end.submitted.keys() - end.verdicts.keys()
            }
            self.check_failures()
            raise self.broken("termination", f"without a verdict after {self.subject.settle_s} s: {waiting}")
        # Stable is what one destination of each scope has confirmed; the others follow.
        self.stage.run(2.0)
        self.judge()

    def check_failures(self) -> None:
        """Check that no process has failed."""
        for me, reason in self.stage.stopped.items():
            if reason.startswith("ConformanceError: "):
                raise self.broken(*reason.removeprefix("ConformanceError: ").split(": ", 1))
            if "Error" in reason:
                raise self.broken("failure", f"{me} failed: {reason}")

    def order(self) -> list[tuple[int, Message]]:
        """Give everything delivered anywhere, by position.

        Raises
        ------
        ConformanceError
            If there is no such order, or something was not submitted.
        """
        by_position: dict[int, tuple[ProcessId, int]] = {}
        positions: dict[tuple[ProcessId, int], int] = {}
        for end in self.ends.values():
            for part in end.delivered:
                name = part.sender, part.number
                if by_position.setdefault(part.position, name) != name:
                    raise self.broken(
                        "one position", f"{part.position} is of {name} and {by_position[part.position]}"
                    )
                if positions.setdefault(name, part.position) != part.position:
                    raise self.broken("one position", f"{name} is at {part.position} and {positions[name]}")
                sender = self.ends.get(part.sender)
                if sender is None or part.number not in sender.submitted:
                    raise self.broken("validity", f"{name} was delivered and never submitted")
        last: dict[ProcessId, int] = {}
        ordered = []
        for position, (process, number) in sorted(by_position.items()):
            if number <= last.get(process, 0):
                raise self.broken("submit order", f"{process}'s {number} comes after {last[process]}")
            last[process] = number
            ordered.append((position, self.ends[process].submitted[number]))
        return ordered

    def judge(self) -> None:
        """Compare what was delivered and told with what the Config says of the order."""
        self.check_failures()
        deliveries = {me: {part.position: part for part in end.delivered} for me, end in self.ends.items()}
        config: Any = self.config
        missed: list[tuple[ProcessId, int, Message]] = []
        for position, message in self.order():
            target = target_of(config, message)
            if isinstance(target, str):
                raise self.broken("validity", f"{message} was delivered, and is refused: {target}")
            for me in self.ends:
                found = deliveries[me].get(position)
                if found is None:
                    missed += [(me, position, message)] if me in target else []
                elif me not in target or found.scope != target[me]:
                    raise self.broken("minimality", f"{me} delivered {found}, which goes to {dict(target)}")
            before = config
            if message.kind is MessageKind.CONFIG:
                config = config.apply(message)
            self._judge_told(message, position, before, config)
        for me, position, message in missed:
            # Whoever is expelled need not have delivered all before.
            if config.is_member(me):
                raise self.broken("completeness", f"{me} did not deliver {message} at {position}")
        for me, end in self.ends.items():
            if end.expelled is not None and config.is_member(me):
                raise self.broken("expulsion", f"{me} was told of its expulsion, and is a member")
        self._judge_verdicts(any(not config.is_member(me) for me in self.ends))

    def _judge_told(self, message: Message, position: int, before: Rubberband, after: Rubberband) -> None:
        """Compare who was told a Config with who joined by a message."""
        joiner = None if before.is_member(message.sender) else message.sender
        for me, end in self.ends.items():
            expected = after.encode() if me == joiner else b""
            told = {part.config for part in end.delivered if part.position == position}
            if told - {expected}:
                text = "no Config or a wrong one" if expected else "a Config though it did not join"
                raise self.broken("joining", f"{me} was told {text} with {message} at {position}")

    def _judge_verdicts(self, somebody_failed: bool) -> None:
        delivered: set[tuple[ProcessId, int]] = {
            (part.sender, part.number) for end in self.ends.values() for part in end.delivered
        }
        for me, end in self.ends.items():
            for number, verdict in end.verdicts.items():
                is_refused = end.submitted[number].table == UNKNOWN_TABLE
                allowed = {"refused"} if is_refused else {"stable", "lost"} if somebody_failed else {"stable"}
                if verdict not in allowed:
                    raise self.broken("stability", f"{me}'s {number} is {verdict}, not {sorted(allowed)}")
                if verdict == "stable" and (me, number) not in delivered:
                    raise self.broken("stability", f"{me}'s {number} is stable and was delivered nowhere")


def calm(subject: MulticastSubject, seed: int) -> None:
    """Without faults everything is delivered where it goes, in one order, and is stable."""
    system = System(subject, seed)
    for _ in range(25):
        system.submit(system.stage.rng.choice(system.clients), system.stage.rng.randint(1, 6))
        system.stage.run(system.stage.rng.uniform(0.0, 0.05))
    system.settle()


def refusals(subject: MulticastSubject, seed: int) -> None:
    """What must not take effect is refused by its number, is delivered nowhere, and holds nothing up."""
    system = System(subject, seed)
    for _ in range(20):
        system.submit(system.stage.rng.choice(system.clients), system.stage.rng.randint(1, 5), refused=0.4)
        system.stage.run(system.stage.rng.uniform(0.0, 0.05))
    system.settle()


def sessions(subject: MulticastSubject, seed: int) -> None:
    """Whatever sessions end and whoever is cut off for a while, nothing is lost or done twice."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    for _ in range(25):
        system.submit(rng.choice(system.clients), rng.randint(1, 5), refused=0.1)
        fault = rng.randrange(4)
        if fault == 0:
            stage.reset_some(rng.randint(1, 4))
        elif fault == 1:
            stage.isolate(rng.choice(sorted(system.ends)))
        elif fault == 2:
            stage.heal(resets=rng.random() < 0.5)
        stage.run(rng.choice((0.01, 0.1, 0.3)))
    stage.heal(resets=True)
    system.settle()


def router_crashes(subject: MulticastSubject, seed: int) -> None:
    """When the lead router crashes with messages on their way, another one goes on."""
    system = System(subject, seed)
    for _ in range(subject.crashes):
        for _ in range(8):
            system.submit(system.stage.rng.choice(system.clients), system.stage.rng.randint(1, 5))
            system.stage.run(system.stage.rng.uniform(0.0, 0.2))
        leads = [end.multicast.lead for end in system.ends.values()]
        lead = next((router for router in leads if router is not None), system.routers[0])
        system.submit(system.clients[0], 5)
        system.stage.run(system.stage.rng.uniform(0.0, 0.01))
        system.stage.crash(lead)
        system.submit(system.clients[1], 5)
    system.settle()


def holding(subject: MulticastSubject, seed: int) -> None:
    """What only goes to a process that holds its confirmations is stable when it confirms, not before."""
    system = System(subject, seed)
    system.submit(system.clients[0], 3)
    system.settle()
    for me in system.storages:
        system.ends[me].multicast.hold_confirms(True)
    before = len(system.ends[system.clients[0]].verdicts)
    system.submit(system.clients[0], 5)
    system.stage.run(1.5)
    if len(system.ends[system.clients[0]].verdicts) != before:
        raise system.broken("holding", "messages are stable that nobody has confirmed")
    for me in system.storages:
        system.ends[me].multicast.hold_confirms(False)
        system.stage.need_turn(me)
    system.settle()


def expulsion(subject: MulticastSubject, seed: int) -> None:
    """Who is declared failed, or leaves, is told; others' messages go on without it."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    victim = rng.choice(system.storages)
    for burst in range(12):
        system.submit(system.clients[0], rng.randint(1, 4))
        system.submit(system.clients[1], 1) if burst < 6 else None
        if burst == 3:
            system.configure(system.super_, Suspect(victim))
        if burst == 6:
            system.configure(system.clients[1], Leave(system.clients[1]))
        stage.run(rng.uniform(0.0, 0.1))
    system.settle()
    gone = (victim, system.clients[1])

    def are_told() -> bool:
        return all(system.ends[me].expelled is not None for me in gone)

    if not stage.run_until(are_told, subject.settle_s):
        untold = [str(me) for me in gone if system.ends[me].expelled is None]
        raise system.broken("expulsion", f"{untold} are no members any more and were not told")


def joining(subject: MulticastSubject, seed: int) -> None:
    """Who joins is told the Config after its join, whatever sessions end and whoever leads by then."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    late = [ProcessId(role, f"late{n}", 1) for n in range(3) for role in ("storage", "super")]
    crashes = subject.crashes
    for burst in range(18):
        system.submit(rng.choice(system.clients), rng.randint(1, 4))
        if burst % 3 == 0:
            joiner = late[burst // 3]
            system.start(joiner)
            system.configure(joiner, Join(joiner))
        fault = rng.randrange(4)
        if fault == 0:
            stage.reset_some(rng.randint(1, 4))
        elif fault == 1 and burst % 3 == 0:
            stage.isolate(joiner)
        elif fault == 2:
            stage.heal(resets=rng.random() < 0.5)
        if burst % 6 == 3 and crashes:
            crashes -= 1
            lead = system.ends[system.clients[0]].multicast.lead
            stage.crash(lead if lead is not None else system.routers[0])
        stage.run(rng.choice((0.0, 0.01, 0.1, 0.3)))
    stage.heal(resets=True)
    system.settle()
    untold = [str(me) for me in late if not any(part.config for part in system.ends[me].delivered)]
    if untold:
        raise system.broken("joining", f"{untold} have joined and were told nothing")


def snapshot_reads(subject: MulticastSubject, seed: int) -> None:
    """Reads beside the order run at one position, and show all that anybody knew when they were asked."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    for _ in range(25):
        system.submit(rng.choice(system.clients), rng.randint(1, 4))
        system.ask_reads(rng.choice(system.clients), rng.randint(1, 3))
        stage.run(rng.uniform(0.0, 0.05))
    system.settle()
    # What a router could not serve in time it has refused by now.
    stage.run(READS_S)
    system.judge_reads(is_calm=True)


def snapshot_reads_under_faults(subject: MulticastSubject, seed: int) -> None:
    """So they do whatever sessions end, who is cut off or expelled, and when the lead router crashes."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    victim, crashes = rng.choice(system.storages), subject.crashes
    for burst in range(30):
        system.submit(rng.choice(system.clients), rng.randint(1, 4))
        system.ask_reads(rng.choice(system.clients), rng.randint(1, 3))
        fault = rng.randrange(6)
        if fault == 0:
            stage.reset_some(rng.randint(1, 4))
        elif fault == 1:
            stage.isolate(rng.choice((*sorted(system.ends), *system.routers)))
        elif fault == 2:
            stage.heal(resets=rng.random() < 0.5)
        if burst == 10:
            system.configure(system.super_, Suspect(victim))
        if burst == 20 and crashes:
            stage.heal(resets=False)
            lead = system.ends[system.clients[0]].multicast.lead
            stage.crash(lead if lead is not None else system.routers[0])
        stage.run(rng.choice((0.01, 0.1, 0.3)))
    stage.heal(resets=True)
    system.settle()
    system.judge_reads(is_calm=False)


def noise(subject: MulticastSubject, seed: int) -> None:
    """Foreign and malformed messages change nothing, also those that others have sent before."""
    system = System(subject, seed)
    stage, rng = system.stage, system.stage.rng
    everyone = (*system.routers, *sorted(system.ends))
    for _ in range(25):
        system.submit(rng.choice(system.clients), rng.randint(1, 4), refused=0.1)
        stage.run(rng.uniform(0.0, 0.05))
        stage.replay(4, own=False, strangers=STRANGERS)
        stage.give(rng.choice(everyone), rng.choice((*everyone, *STRANGERS)), rng.choice(GARBAGE))
    stage.run(0.5)
    stage.reset_some(4)
    system.settle()


def rest(subject: MulticastSubject, seed: int) -> None:
    """When everything has its verdict, little is sent (EC11 §4.6, Quiescence)."""
    system = System(subject, seed)
    system.submit(system.clients[0], 10)
    system.settle()
    before = system.stage.network.n_messages
    system.stage.run(IDLE_S)
    rate = (system.stage.network.n_messages - before) / IDLE_S / len(system.stage.cores)
    if rate > IDLE_MESSAGES_MAX:
        raise system.broken("rest", f"{rate:.0f} messages a second and process, while nothing is asked")


def laws_for(subject: MulticastSubject) -> tuple[Law, ...]:
    """Give the laws that a subject can be held to."""
    always: tuple[Law, ...] = (calm, rest, refusals, sessions, holding, expulsion, joining, noise)
    if subject.reads is not None:
        always += snapshot_reads, snapshot_reads_under_faults
    return (*always, router_crashes) if subject.crashes else always


def check_multicast(subject: MulticastSubject, *, seeds: int = 5) -> int:
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
