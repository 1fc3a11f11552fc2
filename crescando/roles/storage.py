"""The storage role: delivered operations into the engine, results out to clients.

Rules of the file: operations are executed as if in delivery order, a cycle at a
time; what arrives during a cycle rides on the next (`admission`). The configuration is
followed message by message, since it says which tables exist. Every outcome of
a write is kept until its client has it (`ledger`). Confirmations are withheld
while the queue is over its budget, and snapshot reads refused. These run where
they came in the order, and are numbered below 0 from here on, since their
numbers are no messages'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from crescando.client.base import Explanation
from crescando.engine.base import Explained, Failed, Results
from crescando.engine.statement import (
    ColumnRef,
    Kind,
    Operation,
    Projection,
    Shape,
    decode_call,
    decode_parameters,
    decode_shapes,
)
from crescando.process import Output, earliest
from crescando.roles.admission import Admission
from crescando.roles.bunches import Bunch
from crescando.roles.costs import Mean
from crescando.roles.cycles import Executed, Execution, Question, TableChange
from crescando.roles.decoding import OPERATION_BYTES, decode_together
from crescando.roles.ledger import Ledger, Ledgers
from crescando.roles.load import Load
from crescando.roles.memory import UNLIMITED, Memory
from crescando.roles.messages import (
    Answered,
    Attach,
    Explain,
    Explains,
    Forget,
    Inquire,
    Ping,
    Pong,
    ReadReplica,
    Taken,
)
from crescando.roles.outbox import Outbox, is_long, n_outcomes, numbers_of
from crescando.roles.restraint import Restraint
from crescando.roles.shapes import Shapes
from crescando.routing.base import Config, ExpelledEvent, Multicast, ReadsEvent
from crescando.routing.batch import Delivery, Message
from crescando.routing.ecast.messages import ReadRefused
from crescando.schema import TableSchema
from crescando.types import KeyRange, MessageKind, ProcessId


class StorageConfig(Config, Protocol):
    """What a storage process needs of a configuration beside its routing."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Every table, by ascending catalog id."""
        ...

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the ring ranges whose rows `process` holds."""
        ...


_CONFIG = int(MessageKind.CONFIG)


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """Bounds of one storage process.

    Parameters
    ----------
    cycle_operations : int
        Operations that share one cycle at most; bounds every operation's latency.
    cycle_s : float
        The time that one cycle is to take, as far as can be foreseen; see `admission`.
    backlog_s : float
        Work of so long a time may be queued before confirmations are withheld for a while, so
        that whoever sends too much waits at the routers and not in front of everybody here.
    queue_bytes : int
        Queued and executing work above which confirmations are withheld.
    queue_s : float
        Time that one cycle may take before confirmations are withheld: an
        engine that is stuck must not look like one that keeps up.
    shapes, shapes_bytes : int
        Decoded statement shapes that are remembered, and their encodings' bytes.
    records : int
        Outcomes of one client's writes that are kept until it has them; credit
        lets no honest client come near.
    gone_s : float
        How long outcomes are kept of a client that was voted out: it may only have
        been cut off, and come back to ask.
    gone_records : int
        Outcomes that are kept of all such clients together.
    memory_bytes : int
        What rows, texts, queued work and answers may take together; at more the process
        stops, as one that fails.
    memory_watermark : float
        Share of that above which it tells the supers that it is full.
    replica_reads : int
        Reads of exactly this replica that may wait for the next cycle.
    answers_bytes : int
        Answers that may wait for one client that takes them slowly; no less than one
        read may answer.
    answers_total_bytes : int
        The same of all clients together.
    """

    cycle_operations: int = 16_384
    cycle_s: float = 0.02
    backlog_s: float = 0.1
    queue_bytes: int = 64 << 20
    queue_s: float = 30.0
    shapes: int = 4096
    shapes_bytes: int = 16 << 20
    records: int = 1 << 18
    gone_s: float = 60.0
    gone_records: int = 1 << 18
    replica_reads: int = 256
    answers_bytes: int = 512 << 20
    answers_total_bytes: int = 2 << 30
    memory_bytes: int = UNLIMITED
    memory_watermark: float = 0.8


class Storage:
    """One storage process's core.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    config : StorageConfig
        The configuration before the first message.
    limits : StorageLimits
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        multicast: Multicast,
        config: StorageConfig,
        limits: StorageLimits | None = None,
    ) -> None:
        self.me = me
        self.config = config
        self.limits = limits or StorageLimits()
        self.multicast = multicast
        self.executed = -1
        self.stopped = ""
        self._waiting: Admission[TableChange] = Admission(self.limits.cycle_operations, self.limits.cycle_s)
        self._load: Load | None = None
        self._cycle_bytes = 0
        self._is_busy = False
        self.memory = Memory(self.limits.memory_bytes, self.limits.memory_watermark)
        self._clients: dict[ProcessId, Outbox] = {}
        self._ledgers = Ledgers(self.limits.gone_s, self.limits.gone_records)
        self._now_s = 0.0
        self._busy_since_s = 0.0
        self._is_late = False
        self._shapes = Shapes(self.limits.shapes, self.limits.shapes_bytes)
        self._replica_reads: list[tuple[ProcessId, ReadReplica]] = []
        self._questions: list[Question] = []
        self._mean = Mean()
        self._restraint = Restraint(self.limits.backlog_s)
        self._called_off: dict[ProcessId, set[int]] = {}
        """Reads that clients have called off since the last turn."""
        self._cancelled: frozenset[tuple[ProcessId, int]] = frozenset()
        """What may be left out of the running cycle; its thread looks at it."""
        self._out = Output()

    @property
    def n_queued(self) -> int:
        """How many operations wait for a cycle."""
        return len(self._waiting)

    # Inputs.

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)
        for schema in self.config.tables:
            self._waiting.put(TableChange(None, schema), -1, 0)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._end_session(peer)
        self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router, a client or a super."""
        match message:
            case Attach():
                self._end_session(peer)
                self._clients[peer] = Outbox(self.limits.answers_bytes)
            case Taken():
                if peer in self._clients:
                    self._send_all(peer, *self._clients[peer].take(message.pieces))
            case Answered():
                self._ledger(peer).forget(message.upto)
            case Forget():
                self._called_off.setdefault(peer, set()).update(message.numbers)
            case Inquire():
                self._out.send.append((peer, self._ledger(peer).answer(message)))
            case ReadReplica():
                self._on_read_replica(peer, message)
            case Explain():
                self._on_explain(peer, message)
            case Ping():
                self._out.send.append((peer, Pong(message.sent_s, self.memory.is_full)))
            case _:
                self.multicast.on_message(peer, message, now_s)

    def on_executed(self, result: Executed, now_s: float) -> None:
        """Take a cycle's end: keep what writes did, send each client its results."""
        self._is_busy = False
        self._cycle_bytes = 0
        if self._load is not None:
            self._waiting.costs.learn(self._load.weights, result.took_s)
            if self._load.n:
                self._mean.add(result.took_s or now_s - self._busy_since_s, self._load.n)
        for question, explained in result.told:
            self._tell(question, explained)
        self.executed = max(self.executed, result.upto)
        unsent = self._unsent_bytes
        self._out.stop = self.memory.look(result.n_bytes + unsent + self._waiting.n_bytes)
        for results in _short_first(result.results):
            self._report(results)

    def flush(self, now_s: float) -> Output:
        """Queue what was delivered, start a cycle if none runs, and send."""
        self._now_s = now_s
        self._is_late = self._is_busy and now_s - self._busy_since_s > self.limits.queue_s
        for event in self.multicast.take_events():
            if isinstance(event, Delivery):
                self._enqueue(event)
            elif isinstance(event, ReadsEvent):
                self._enqueue_reads(event)
            elif isinstance(event, ExpelledEvent):
                # State that the others no longer wait for must not be served.
                self._out.stop = event.reason
        for client, numbers in self._called_off.items():
            self._call_off(client, numbers)
        self._called_off.clear()
        has_work = bool(self._waiting or self._replica_reads or self._questions)
        if has_work and not self._is_busy and not self._out.stop:
            self._out.execute = self._next_cycle()
            self._is_busy, self._busy_since_s = True, now_s
        self._ledgers.flush(now_s)
        is_behind = self._restraint.look(self._waiting.backlog_s, now_s)
        self.multicast.hold_confirms(self._is_over_budget or is_behind)
        protocol = self.multicast.flush(now_s)
        out, self._out = self._out, Output()
        out.reset += protocol.reset
        out.connect += protocol.connect
        out.send += protocol.send
        out.wake_at_s = earliest(protocol.wake_at_s, self._ledgers.wake_at_s, self._restraint.wake_at_s)
        return out

    def _call_off(self, client: ProcessId, numbers: set[int]) -> None:
        """Drop reads for whose answers nobody waits, wherever they are; writes happen."""
        ledger = self._ledger(client)
        left = numbers - self._waiting.drop(client, numbers)
        if client in self._clients:
            self._clients[client].forget(numbers)
        for number in numbers:
            _, is_write = ledger.scopes.get(number, ((), False))
            if not is_write:
                ledger.scopes.pop(number, None)
        for number in left:
            ledger.call_off(number)
        if self._is_busy:
            self._cancelled |= {(client, number) for number in left}

    # Into the engine.

    @property
    def _is_over_budget(self) -> bool:
        """Whether the engine has more to do than may be promised, in bytes or in time."""
        return self._is_late or self._waiting.n_bytes + self._cycle_bytes > self.limits.queue_bytes

    def _enqueue(self, part: Delivery) -> None:
        shapes = _shapes_of(part)
        together = None if (part.kind == _CONFIG).any() else self._decode_together(part, shapes)
        if together is not None:
            ledger = self._ledger(part.sender)
            together = _without_called_off(together, ledger)
            for bunch in together:
                ledger.enter(bunch)
            self._waiting.put_all(together)
            return
        for index in range(len(part)):
            at, number = int(part.position[index]), int(part.number[index])
            if part.kind[index] == _CONFIG:
                payload = part.payload_of(index)
                self._apply(Message(part.sender, number, MessageKind.CONFIG, -1, (), 0, payload), at)
                continue
            scope = part.scope_of(index)
            operations = self._decode(part, index, shapes)
            if not operations:
                text = "the operation's payload is malformed"
                failed = Failed(number, at, scope, "invalid", (), text)
                ledger = self._ledger(part.sender)
                ledger.keep_failed(failed, self.limits.records)
                self._send_results(Results(self.me, part.sender, self.executed, failed=(failed,)))
                continue
            is_write = operations[0].shape.kind is not Kind.READ
            ledger = self._ledger(part.sender)
            if _is_called_off(operations[0], ledger):
                continue
            ledger.scopes[number] = (scope, is_write)
            self._append(part, index, operations)

    def _append(self, part: Delivery, index: int, operations: tuple[Operation, ...]) -> None:
        n_bytes = int(part.payload_offsets[index + 1] - part.payload_offsets[index])
        n_bytes += OPERATION_BYTES * len(operations)
        work = operations[0] if len(operations) == 1 else operations
        self._waiting.put(work, operations[0].position, n_bytes)

    def _enqueue_reads(self, event: ReadsEvent) -> None:
        """Queue snapshot reads behind everything delivered, or refuse those of each client."""
        for part in event.parts:
            refusal = event.refusal or ("its queue is over budget" if self._is_over_budget else "")
            if refusal:
                refused = ReadRefused(tuple(part.number.tolist()), f"{self.me}: {refusal}")
                self._out.send.append((part.sender, refused))
                continue
            shapes = _shapes_of(part)
            attempts = msgspec.structs.replace(part, number=-part.number)
            together = self._decode_together(attempts, shapes)
            if together is not None and all(bunch.is_read for bunch in together):
                self._waiting.put_all(_without_called_off(together, self._ledger(part.sender)))
                continue
            for index in range(len(attempts)):
                operations = self._decode(attempts, index, shapes)
                if operations and operations[0].shape.kind is Kind.READ:
                    if _is_called_off(operations[0], self._ledger(part.sender)):
                        continue
                    self._append(attempts, index, operations)
                    continue
                number, scope = int(attempts.number[index]), attempts.scope_of(index)
                text = "the operation's payload is malformed"
                failed = Failed(number, event.position, scope, "invalid", (), text)
                self._send_results(Results(self.me, part.sender, self.executed, failed=(failed,)))

    def _decode_together(self, part: Delivery, shapes: tuple[bytes, ...]) -> list[Bunch] | None:
        """Give the operations, shape by shape; None if any message has to be looked at alone."""
        return decode_together(
            part, lambda code: self._shapes.of(shapes[code]) if 0 <= code < len(shapes) else None
        )

    def _decode(self, part: Delivery, index: int, shapes: tuple[bytes, ...]) -> tuple[Operation, ...]:
        """Give the operation, or a transaction's; none if no honest client could have sent it."""
        found: list[tuple[Shape, tuple[Any, ...]]] = []
        try:
            calls = decode_call(part.payload_of(index)).steps
            for call in calls:
                known = self._shapes.of(shapes[call.shape]) if call.shape >= 0 else None
                if known is None or not _is_routed_as(known.shape, part, index, step=len(found)):
                    return ()
                found.append((known.shape, decode_parameters(known.shape, call.parameters)))
        except (msgspec.MsgspecError, ValueError, IndexError, TypeError, RecursionError):
            return ()
        at, number, scope = int(part.position[index]), int(part.number[index]), part.scope_of(index)
        if len(found) == 1:
            return (Operation(at, part.sender, number, *found[0], scope),)
        return tuple(
            Operation(at, part.sender, number, *shape_and_parameters, scope, step)
            for step, shape_and_parameters in enumerate(found)
        )

    def _apply(self, message: Message, at: int) -> None:
        before = {table.id: table for table in self.config.tables}
        self.config = self.config.apply(message)
        for client in self._ledgers.present:
            if not self.config.is_member(client):
                # Whoever left by itself waits for nothing any more.
                self._ledgers.depart(client, self._now_s, may_return=client != message.sender)
        after = {table.id: table for table in self.config.tables}
        for table in sorted(before.keys() | after.keys()):
            if before.get(table) != after.get(table):
                self._waiting.put(TableChange(before.get(table), after.get(table)), at, 0)

    def _next_cycle(self) -> Execution:
        admitted = self._waiting.take()
        self._load = admitted.load
        self._cycle_bytes += admitted.n_bytes
        upto = max(self.executed, admitted.upto)
        reads, self._replica_reads = self._replica_reads, []
        if reads:
            admitted.add([self._replica_operation(peer, read, upto) for peer, read in reads])
        self._cancelled = frozenset()
        questions, self._questions = tuple(self._questions), []
        return Execution(
            tuple(admitted.steps), upto, lambda: self._cancelled, questions, self.memory.is_limited
        )

    def _on_explain(self, peer: ProcessId, message: Explain) -> None:
        """Let the next cycle tell what the engine would do."""
        fault = "too many questions wait; ask again later"
        if len(self._questions) < self.limits.replica_reads:
            fault = "the operation is malformed"
            known = self._shapes.of(message.shape)
            try:
                if known is not None:
                    parameters = decode_parameters(known.shape, message.parameters)
                    self._questions.append(Question(peer, message.request, known.shape, parameters))
                    return
            except (msgspec.MsgspecError, ValueError, TypeError, IndexError, RecursionError):
                pass
        told = Explanation(self.me, Explained(fault=fault), 0.0, 0.0, 0, 0.0, 0.0, 0.0)
        self._out.send.append((peer, Explains(message.request, told)))

    def _tell(self, question: Question, explained: Explained) -> None:
        """Answer a question, with what there is to say of cycles."""
        waiting, mean, cost = self._waiting, self._mean, self._waiting.costs.of(question.shape)
        told = Explanation(
            self.me,
            explained,
            mean.cycle_s,
            mean.operations,
            len(waiting),
            waiting.backlog_s,
            cost.scan_s,
            cost.each_s,
        )
        self._out.send.append((question.asker, Explains(question.request, told)))

    def _on_read_replica(self, peer: ProcessId, read: ReadReplica) -> None:
        if len(self._replica_reads) < self.limits.replica_reads:
            self._replica_reads.append((peer, read))
            return
        text = f"{self.me} has {len(self._replica_reads)} reads of this replica waiting; ask again later"
        failed = Failed(-read.request, self.executed, (read.key_range,), "read", (), text)
        self._out.send.append((peer, Results(self.me, peer, self.executed, failed=(failed,))))

    def _replica_operation(self, peer: ProcessId, read: ReadReplica, at: int) -> Operation:
        """Give the plain read that shows what this replica holds, behind all it executes now."""
        schemas = {table.id: table for table in self.config.tables}
        schema = schemas.get(read.table)
        columns = [] if schema is None else [schema.column_by_id(column) for column in read.columns]
        projections = tuple(
            Projection(column.name, ColumnRef(column.id, column.type))
            for column in columns
            if column is not None
        )
        version = 0 if schema is None else schema.version
        shape = Shape(Kind.READ, read.table, version, projections=projections)
        return Operation(at, peer, -read.request, shape, (), (read.key_range,))

    # Out to clients.

    def _report(self, results: Results) -> None:
        ledger = self._ledger(results.to)
        limit = self.limits.records
        reported = [part for written in results.written for part in ledger.keep_written(written, limit)]
        for failed in results.failed:
            _, is_write = ledger.scopes.get(failed.number, ((), False))
            ledger.report_all.discard(failed.number)
            if is_write:
                ledger.keep_failed(failed, limit)
        self._send_results(
            msgspec.structs.replace(results, process=self.me, executed=self.executed, written=tuple(reported))
        )

    def _ledger(self, client: ProcessId) -> Ledger:
        return self._ledgers.of(client, is_member=self.config.is_member(client))

    @property
    def _unsent_bytes(self) -> int:
        """What waits for clients that take it slowly."""
        return sum(outbox.n_bytes for outbox in self._clients.values())

    def _send_results(self, results: Results) -> None:
        if not (results.rows or results.partials or results.written or results.failed):
            return
        # Whoever is not there gets nothing, and will ask.
        outbox = self._clients.get(results.to)
        if outbox is not None:
            room = self.limits.answers_total_bytes - self._unsent_bytes if is_long(results) else 0
            self._send_all(results.to, *outbox.offer(results, room))
        else:
            self._send_all(results.to, [], numbers_of(results))

    def _send_all(self, client: ProcessId, to_send: list[Results], ended: list[int]) -> None:
        """Send results, with which the answers of some reads are given."""
        self._ledger(client).leave(ended)
        if client in self._clients:
            self._out.send.extend((client, results) for results in to_send)

    def _end_session(self, client: ProcessId) -> None:
        """Forget what waits for a client, which will ask for it."""
        outbox = self._clients.pop(client, None)
        if outbox is not None:
            self._send_all(client, [], outbox.drop())


def _short_first(results: Sequence[Results]) -> list[Results]:
    """Put those first who are told least: in one event loop nobody waits until thousands have been told."""
    told: dict[ProcessId, int] = {}
    for each in results:
        told[each.to] = told.get(each.to, 0) + n_outcomes(each)
    return sorted(results, key=lambda each: told[each.to])


def _shapes_of(part: Delivery) -> tuple[bytes, ...]:
    """Give the shapes that a delivery's payloads share; none if they are malformed."""
    try:
        return decode_shapes(part.shared) if part.shared else ()
    except (msgspec.MsgspecError, ValueError):
        return ()


def _is_called_off(operation: Operation, ledger: Ledger) -> bool:
    """Whether an operation is a read that was called off before it came; asked once."""
    if operation.shape.kind is not Kind.READ or operation.number not in ledger.forgotten:
        return False
    del ledger.forgotten[operation.number]
    return True


def _without_called_off(bunches: list[Bunch], ledger: Ledger) -> list[Bunch]:
    """Leave out reads that were called off before they came."""
    if not ledger.forgotten:
        return bunches
    left = []
    for bunch in bunches:
        wanted, unwanted = bunch.without_reads(ledger.forgotten)
        for number in unwanted:
            del ledger.forgotten[number]
        if len(wanted):
            left.append(wanted)
    return left


def _is_routed_as(shape: Shape, part: Delivery, index: int, *, step: int) -> bool:
    """Whether the routing header tells the truth: a write sent as a read would reach one replica only.

    It names the table of a transaction's first write; all others are writes too.
    """
    is_read = bool(part.kind[index] == MessageKind.READ)
    if step:
        return not is_read and shape.kind is not Kind.READ
    return (shape.kind is Kind.READ) == is_read and shape.table == part.table[index]
