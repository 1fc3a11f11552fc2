"""Storage processes that copy ranges to one another, turn by turn, in whatever order a test says.

The order, the routers and the network are played by the test: deliveries lag behind the order, at
each process by another amount, messages wait in channels, sessions end. What a single engine
that owns everything and never moved makes of the same order is what all must agree with.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from crescando import wire
from crescando.client.base import Request
from crescando.engine.base import Engine, Results
from crescando.engine.kv import KvEngine
from crescando.engine.statement import Call, Kind, Operation, encode_call, encode_parameters, encode_shapes
from crescando.errors import SpecError
from crescando.process import Output
from crescando.roles.cycles import Execution
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Attach, Inquire
from crescando.roles.storage import Storage
from crescando.routing.base import Refusal
from crescando.routing.batch import Delivery, Message, gather, submission
from crescando.routing.rubberband import (
    ConfigMessage,
    Join,
    MessageId,
    Reconfigure,
    Rubberband,
    Transformation,
    decode_message,
    encode_message,
)
from crescando.routing.rubberband.planner import make_plan
from crescando.scopes import common, covers, cut
from crescando.testing.workload import SCHEMA, Workload
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId, Scope, position
from tests.roles.stage import ScriptedMulticast
from tests.routing.worlds import super_

ADMIN, ALICE, BOB = (ProcessId("client", name, 1) for name in ("admin", "alice", "bob"))
WORK = Workload(SCHEMA.with_ids(0))


def payload_of(request: Request, shapes: dict[bytes, int]) -> bytes:
    """Give the payload of an operation, or of a transaction."""
    steps = [(request.shape, request.parameters), *((each.shape, each.parameters) for each in request.then)]
    calls = [
        (shapes.setdefault(shape.encode(), len(shapes)), encode_parameters(shape, parameters))
        for shape, parameters in steps
    ]
    return encode_call(*calls[0], tuple(Call(*call) for call in calls[1:]))


class Host:
    """One storage process, and what has not reached it yet."""

    def __init__(
        self, me: ProcessId, engine: Engine, config: Rubberband, limits: StorageLimits | None
    ) -> None:
        self.me = me
        self.multicast = ScriptedMulticast()
        self.engine = engine
        engine.set_arcs(config.owned_arcs(me))
        self.core = Storage(
            me, multicast=self.multicast, config=config, config_type=Rubberband, limits=limits
        )
        self.coming: deque[Delivery] = deque()
        self.work: Execution | None = None
        self.n_ordered = 0
        self.is_alive = True


class Town:
    """Storage processes under one order."""

    def __init__(
        self,
        storages: Sequence[ProcessId],
        *,
        replication: int,
        standbys: Sequence[ProcessId] = (),
        ring_ids: Sequence[int] | None = None,
        engine: Callable[[], Engine] = KvEngine,
        limits: StorageLimits | None = None,
    ) -> None:
        genesis = Rubberband.genesis(
            storages=storages,
            replication=replication,
            supers=[super_(0)],
            clients=[ADMIN, ALICE, BOB],
            ring_ids=ring_ids,
        )
        for process in standbys:
            genesis = genesis.apply(
                Message(process, 1, MessageKind.CONFIG, -1, (), 0, encode_message(Join(process)))
            )
        self.config = genesis
        self.instance = 0
        self.now_s = 0.0
        self.numbers: dict[ProcessId, int] = {}
        self.oracle = KvEngine()
        self.oracle.set_arcs(cut((FULL_RING,), genesis.borders()))
        self.hosts = {process: Host(process, engine(), genesis, limits) for process in (*storages, *standbys)}
        for host in self.hosts.values():
            host.multicast.next_number = 2
            host.core.on_start(0.0)
            for client in (ALICE, BOB):
                host.core.on_message(client, Attach(), 0.0)
        self.sessions: set[frozenset[ProcessId]] = set()
        self.cut: set[frozenset[ProcessId]] = set()
        """Pairs of processes that cannot have a session."""
        self.channels: dict[tuple[ProcessId, ProcessId], deque[Any]] = {}
        self.expected: dict[tuple[ProcessId, int], dict[KeyRange, int]] = {}
        """What each write did, arc by arc."""
        self.cuts: dict[tuple[ProcessId, int], frozenset[KeyRange]] = {}
        """How the ring was cut where each write was ordered."""
        self.answers: dict[tuple[ProcessId, ProcessId, int], Any] = {}
        """What each read must answer, by storage process, sender and number."""
        self.reported: dict[tuple[ProcessId, int], list[tuple[KeyRange, int]]] = {}
        self.refused: list[tuple[ConfigMessage, str]] = []
        self.n_answered = 0
        for table in genesis.tables:
            self.oracle.create_table(table)

    # The order.

    def _number(self, sender: ProcessId, n: int = 1) -> int:
        # A process's first message is its join.
        first = self.numbers.get(sender, 1) + 1
        self.numbers[sender] = first + n - 1
        return first

    def order_config(self, sender: ProcessId, body: ConfigMessage, number: int | None = None) -> bool:
        """Order a configuration message; says whether it is admitted."""
        if number is None:
            number = self._number(sender)
        message = Message(sender, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))
        self.instance += 1
        try:
            targets = self.config.destset(message)
        except Refusal as refusal:
            self.refused.append((body, refusal.reason))
            return False
        before = {table.id: table for table in self.config.tables}
        self.config = self.config.apply(message)
        after = {table.id: table for table in self.config.tables}
        for table in before.keys() - after.keys():
            self.oracle.drop_table(table)
        for table, schema in after.items():
            if table not in before:
                self.oracle.create_table(schema)
            elif schema != before[table]:
                self.oracle.alter_table(schema)
        self.oracle.set_arcs(cut((FULL_RING,), self.config.borders()))
        for target in targets:
            if target in self.hosts:
                self._deliver(target, [message], [()], [position(self.instance, 0)], b"")
        return True

    def order_data(self, sender: ProcessId, requests: Sequence[Request]) -> None:
        """Order operations of one client together."""
        self.instance += 1
        first = self._number(sender, len(requests))
        shapes: dict[bytes, int] = {}
        messages: list[Message] = []
        for number, request in enumerate(requests, first):
            kind = MessageKind.READ if request.shape.kind is Kind.READ else MessageKind.WRITE
            payload = payload_of(request, shapes)
            offset = number * 7
            messages.append(
                Message(sender, number, kind, request.shape.table, request.ranges, offset, payload)
            )
        parts: dict[ProcessId, tuple[list[Message], list[Scope], list[int]]] = {}
        for index, (message, request) in enumerate(zip(messages, requests, strict=True)):
            at = position(self.instance, index)
            try:
                targets = self.config.destset(message)
            except Refusal:
                # Nobody who answers owns some of it.
                assert self.config.pending
                continue
            for target, scope in targets.items():
                part = parts.setdefault(target, ([], [], []))
                for some, value in zip(part, (message, scope, at), strict=True):
                    some.append(value)  # type: ignore[attr-defined]
                if message.kind is MessageKind.READ:
                    self.answers[target, sender, message.number] = self._read(message, request, at, scope)
            if message.kind is MessageKind.WRITE:
                self._write(message, request, at)
        for target, (some, scopes, positions) in parts.items():
            if target in self.hosts:
                self._deliver(target, some, scopes, positions, encode_shapes(tuple(shapes)))

    def _read(self, message: Message, request: Request, at: int, scope: Scope) -> Any:
        operation = Operation(
            at, message.sender, message.number, request.shape, tuple(request.parameters), scope
        )
        (results,) = self.oracle.execute([operation])
        return rows_of(results)

    def _write(self, message: Message, request: Request, at: int) -> None:
        steps = [(request.shape, request.parameters), *((e.shape, e.parameters) for e in request.then)]
        operations = [
            Operation(
                at,
                message.sender,
                message.number,
                shape,
                tuple(parameters),
                (),
                step if len(steps) > 1 else -1,
            )
            for step, (shape, parameters) in enumerate(steps)
        ]
        found: dict[KeyRange, int] = {}
        for results in self.oracle.execute(operations):
            for written in results.written:
                for report in written.reports():
                    for count in report.counts:
                        found[count.key_range] = found.get(count.key_range, 0) + count.affected
        self.cuts[message.sender, message.number] = frozenset(found)
        # An engine tells of every arc it holds, but the order sends a write only where it may matter.
        self.expected[message.sender, message.number] = {
            arc: affected for arc, affected in found.items() if common([arc], request.ranges)
        }

    def _deliver(
        self,
        target: ProcessId,
        messages: Sequence[Message],
        scopes: Sequence[Scope],
        positions: Sequence[int],
        shared: bytes,
    ) -> None:
        distinct = list(dict.fromkeys(scopes))
        # Numbers of one delivery need not follow one another; those of a submission do.
        whole = [
            Message(m.sender, i, m.kind, m.table, m.ranges, 0, m.payload) for i, m in enumerate(messages, 1)
        ]
        picked = np.arange(len(messages), dtype=np.int64)
        part = gather(
            submission(whole, shared=shared),
            picked,
            np.array([distinct.index(scope) for scope in scopes], np.int64),
            tuple(distinct),
            np.array(positions, np.int64),
        )
        number = np.array([m.number for m in messages], np.int64)
        self.hosts[target].coming.append(msgspec.structs.replace(part, number=number))

    # What happens to the processes.

    def alive(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_alive]

    def receive(self, host: Host, n: int = 1) -> None:
        """Let a process take what comes to it next in the order."""
        for _ in range(min(n, len(host.coming))):
            host.multicast.events.append(host.coming.popleft())
        self.turn(host)

    def execute(self, host: Host) -> None:
        """Let a process's thread do what it was given."""
        if host.work is not None:
            work, host.work = host.work, None
            host.core.on_executed(work.run(host.engine), self.now_s)
            self.turn(host)

    def turn(self, host: Host) -> None:
        """Let a process take a turn, and carry out what it says."""
        self._carry_out(host, host.core.flush(self.now_s))

    def _carry_out(self, host: Host, output: Output) -> None:
        assert not output.stop, output.stop
        for peer in output.reset:
            self.end_session(host.me, peer)
        for peer in output.connect:
            other = self.hosts.get(peer)
            if other is None:
                continue
            if not other.is_alive or frozenset((host.me, peer)) in self.cut:
                host.core.on_refused(peer, self.now_s)
            elif frozenset((host.me, peer)) not in self.sessions:
                self.sessions.add(frozenset((host.me, peer)))
                host.core.on_connected(peer, self.now_s)
                other.core.on_connected(host.me, self.now_s)
        for peer, message in output.send:
            if isinstance(message, Results):
                self._take_results(host.me, message)
            elif peer in self.hosts and frozenset((host.me, peer)) in self.sessions:
                # As bytes, since that is how they travel.
                self.channels.setdefault((host.me, peer), deque()).append(wire.encode(message))
        if output.execute is not None:
            assert host.work is None
            host.work = output.execute

    def end_session(self, one: ProcessId, other: ProcessId) -> None:
        """End a session; what was on its way is lost."""
        if frozenset((one, other)) not in self.sessions:
            return
        self.sessions.discard(frozenset((one, other)))
        for pair in ((one, other), (other, one)):
            self.channels.pop(pair, None)
            if self.hosts[pair[0]].is_alive:
                self.hosts[pair[0]].core.on_disconnected(pair[1], self.now_s)

    def pass_on(self, pair: tuple[ProcessId, ProcessId]) -> None:
        """Let the next message between two processes arrive."""
        message = wire.decode(self.channels[pair].popleft())
        host = self.hosts[pair[1]]
        host.core.on_message(pair[0], message, self.now_s)
        self.turn(host)

    def crash(self, process: ProcessId) -> None:
        """End a process without a word."""
        host = self.hosts[process]
        host.is_alive = False
        for pair in [pair for pair in self.sessions if process in pair]:
            self.end_session(*pair)

    def order_said(self, host: Host) -> bool:
        """Order what a process has submitted, one message at a time; says whether there was something."""
        if host.n_ordered == len(host.multicast.submitted):
            return False
        message = host.multicast.submitted[host.n_ordered].message(0)
        host.n_ordered += 1
        self.order_config(host.me, decode_message(message.payload), message.number)
        return True

    def _take_results(self, process: ProcessId, results: Results) -> None:
        for rows in results.rows:
            for number, found in each_answer(rows):
                wanted = self.answers.pop((process, results.to, number))
                assert found == wanted, (process, number, found, wanted)
                self.n_answered += 1
        for written in results.written:
            for report in written.reports():
                key = results.to, report.number
                told: dict[KeyRange, int] = {}
                for count in report.counts:
                    told[count.key_range] = told.get(count.key_range, 0) + count.affected
                self.reported.setdefault(key, []).extend(told.items())

    def random_step(self, rng: random.Random, *, resets: float = 0.02) -> None:
        """Let something happen somewhere."""
        self.now_s += rng.choice((0.0, 0.001, 0.05))
        hosts = self.alive()
        host = rng.choice(hosts)
        choice = rng.random()
        if choice < resets and self.sessions:
            self.end_session(*rng.choice(sorted(map(sorted, self.sessions))))
        elif choice < 0.3:
            self.receive(host, rng.choice((1, 1, 4, 50)))
        elif choice < 0.6:
            self.execute(host)
        elif choice < 0.9:
            open_pairs = [pair for pair, queue in self.channels.items() if queue]
            if open_pairs:
                self.pass_on(rng.choice(sorted(open_pairs)))
            else:
                self.turn(host)
        else:
            self.order_said(host)

    def settle(self, steps_max: int = 5_000) -> None:
        """Let everything happen that is still to happen."""
        for _ in range(steps_max):
            self.now_s += 0.05
            is_quiet = True
            for host in self.alive():
                if host.coming or host.work is not None:
                    is_quiet = False
                self.receive(host, 100)
                self.execute(host)
                if self.order_said(host):
                    is_quiet = False
            for pair in sorted(self.channels):
                while self.channels.get(pair):
                    is_quiet = False
                    self.pass_on(pair)
            if is_quiet and not self.config.changes:
                return
        raise AssertionError(f"not quiet after {steps_max} rounds: {self.config.changes}")

    # Changes.

    def change(self, transformation: Transformation, *, sender: ProcessId = ADMIN) -> MessageId | None:
        """Begin a change as an administrator does; None if it is refused."""
        config = self.config
        try:
            plan = make_plan(config.target, transformation, failed=config.failed | config.pending)
        except SpecError:
            return None
        body = Reconfigure(transformation, plan.copies, config.layout)
        number = self._number(sender)
        return MessageId(sender, number) if self.order_config(sender, body, number) else None

    # What must hold in the end.

    def check(self) -> None:
        """Check that every process holds what it owns, nothing else, and can tell of every write."""
        config = self.config
        for host in self.alive():
            owned = config.owned_arcs(host.me)
            n_rows = 0
            for table in config.tables:
                for arc in owned:
                    assert host.engine.digest(table.id, arc) == self.oracle.digest(table.id, arc), (
                        host.me,
                        arc,
                    )
            wanted = sum(self.oracle.weigh((arc,))[0] for arc in owned)
            n_rows = host.engine.statistics()["rows"]
            assert n_rows == wanted, (host.me, n_rows, wanted)
            assert len(host.core._areas) == 0
            self._check_ledger(host, owned)
        assert not self.sessions, self.sessions
        assert not {key for key in self.answers if self.hosts[key[0]].is_alive}
        for key, told in self.reported.items():
            assert len(told) == len({arc for arc, _ in told}), (key, told)
            for arc, affected in told:
                assert self.expected[key].get(arc, 0) == affected, (key, arc, affected)

    def check_reported(self) -> None:
        """Check that what each write did was told, once for each range."""
        for key, expected in self.expected.items():
            assert dict(self.reported.get(key, ())).items() >= expected.items(), key

    def _check_ledger(self, host: Host, owned: Sequence[KeyRange]) -> None:
        """Check that a process tells of every write what it did in the ranges that it owns."""
        for (sender, number), expected in self.expected.items():
            ledger = host.core.reporter.ledger(sender)
            told = ledger.answer(Inquire(1, (number,)))
            assert not told.queued
            found: dict[KeyRange, int] = {}
            for written in told.written:
                for report in written.reports():
                    assert report.number == number
                    once: dict[KeyRange, int] = {}
                    for count in report.counts:
                        once[count.key_range] = once.get(count.key_range, 0) + count.affected
                    # Of an arc that was cut since, the senders of both parts may have told.
                    assert all(found.get(arc, n) == n for arc, n in once.items()), (host.me, number, once)
                    found.update(once)
            for arc, affected in found.items():
                assert expected.get(arc, affected) == affected, (host.me, number, arc)
                assert not found or arc in self.cuts[sender, number], (host.me, number, arc, "cut")
            for arc in expected:
                if any(a.low <= arc.high and arc.low <= a.high for a in owned):
                    assert covers(tuple(sorted(found)), (arc,)), (host.me, number, arc)


def rows_of(results: Results) -> list[tuple[Any, ...]]:
    """Give the rows of the only answer in some results."""
    ((_, found),) = [each for rows in results.rows for each in each_answer(rows)]
    return found


def each_answer(rows: Any) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """Give the number and the rows, ascending, of each answer."""
    columns = [column.to_list() for column in rows.columns]
    table = list(zip(*columns, strict=True))
    return [
        (number, sorted(table[rows.offsets[i] : rows.offsets[i + 1]]))
        for i, number in enumerate(rows.number.tolist())
    ]
