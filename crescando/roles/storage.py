"""The storage role: delivered operations into the engine, results out to clients.

Rules of the file: operations are executed as if in delivery order, a cycle at a
time; what arrives during a cycle rides on the next (`admission`). The configuration is
followed message by message, since it says which tables exist and who holds what. Confirmations
are withheld while the queue is over its budget, and reads outside the order refused. How deliveries
are read is in `arrivals`, what clients are told in `reporting`, what may be shown outside the
order in `serving`, and what moves from process to process in `copies`.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from crescando.client.base import Explanation
from crescando.engine.base import Explained, Failed, Results
from crescando.engine.statement import ColumnRef, Kind, Operation, Projection, Shape, decode_parameters
from crescando.process import Output, earliest
from crescando.roles.areas import Areas, TableChange
from crescando.roles.arrivals import Arrivals
from crescando.roles.copies import Copies, Layout
from crescando.roles.copy_messages import AskCopies, CopyHead, CopyUnknown, FetchParcels, Parcel
from crescando.roles.costs import Mean
from crescando.roles.cycles import CopyWork, Executed, Execution, Question, Weighing
from crescando.roles.following import Following, configure
from crescando.roles.limits import StorageLimits
from crescando.roles.load import Load
from crescando.roles.load_messages import AskStaged, Bring, ChunkOrder, Lack, Unknown
from crescando.roles.memory import Memory
from crescando.roles.messages import (
    RANGES_WEIGHED,
    Answered,
    AskPinned,
    Attach,
    Explain,
    Explains,
    Forget,
    Inquire,
    Ping,
    Pong,
    ReadBasic,
    ReadReplica,
    Retire,
    Taken,
    Weigh,
    Weighs,
)
from crescando.roles.pins import Pins
from crescando.roles.reporting import Reporter
from crescando.roles.restraint import Restraint
from crescando.roles.retirement import Retirement
from crescando.roles.serving import NO_LEASE, Serving
from crescando.roles.staging import Staging
from crescando.routing.base import Config, ExpelledEvent, Multicast, ReadsEvent, StableEvent
from crescando.routing.batch import Delivery, Message
from crescando.routing.ecast.messages import Lease, ReadRefused
from crescando.routing.rubberband.loads import LoadOrder, Loads
from crescando.schema import TableSchema
from crescando.types import FULL_RING, ProcessId, Scope


class StorageConfig(Config, Layout, Protocol):
    """What a storage process needs of a configuration beside its routing."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Every table, by ascending catalog id."""
        ...

    @property
    def loads(self) -> Loads:
        """The atomic loads under way."""
        ...

    @property
    def storages(self) -> frozenset[ProcessId]:
        """The member storage processes."""
        ...

    def holders(self, scope: Scope) -> frozenset[ProcessId]:
        """Give the processes that hold anything of some ranges."""
        ...

    def load_orders(self, message: Message, after: Any) -> tuple[LoadOrder, ...]:
        """Give what a message did to loads, given the configuration after it."""
        ...


class Storage:
    """One storage process's core.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    config : StorageConfig or None
        The configuration before the first message; None for one that joins, on standby.
    config_type : type of StorageConfig
    limits : StorageLimits
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        multicast: Multicast,
        config: StorageConfig | None,
        config_type: type[StorageConfig],
        limits: StorageLimits | None = None,
    ) -> None:
        self.me = me
        self.following = Following(me, config, config_type)
        self.limits = limits or StorageLimits()
        self.multicast = multicast
        self.stopped = ""
        self.memory = Memory(self.limits.memory_bytes, self.limits.memory_watermark)
        self.reporter = Reporter(me, self.limits, self.following.is_member)
        self.arrivals = Arrivals(
            self.limits,
            ledger=self.reporter.ledger,
            apply=self._apply,
            fail=self.reporter.fail,
            stage=self._stage,
        )
        self.waiting = self.arrivals.waiting
        self.staging = Staging(me, self.limits, put=self.waiting.put_step, fail=self.reporter.refuse)
        self.copies = Copies(
            me,
            self.limits,
            put=lambda step, at: self.waiting.put(step, at, 0),
            outcomes=self.reporter.outcomes,
            keep=self.reporter.keep_moved,
            late=self.staging.late,
        )
        self._areas = Areas()
        self.pins = Pins(
            me,
            self.limits,
            put=lambda step, at: self.waiting.put(step, at, 0),
            shape_of=self.arrivals.shapes.of,
        )
        self._load: Load | None = None
        self._cycle_bytes = 0
        self._is_busy = False
        self._now_s = 0.0
        self._busy_since_s = 0.0
        self._is_late = False
        self._replica_reads: list[tuple[ProcessId, ReadReplica]] = []
        self._questions: list[Question] = []
        self._weighings: list[Weighing] = []
        self._mean = Mean()
        self._retirement = Retirement(self.following, multicast)
        self._restraint = Restraint(self.limits.backlog_s)
        self._serving = Serving(me, self.limits)
        self._called_off: dict[ProcessId, set[int]] = {}
        """Reads that clients have called off since the last turn."""
        self._cancelled: frozenset[tuple[ProcessId, int]] = frozenset()
        """What may be left out of the running cycle; its thread looks at it."""
        self._out = Output()

    @property
    def config(self) -> StorageConfig:
        """The configuration after everything delivered; see `Following`."""
        return self.following.config

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Every table there is, as far as this process knows."""
        return self.config.tables if self.following.is_joined else ()

    @property
    def executed(self) -> int:
        """The position up to which everything is executed."""
        return self.reporter.executed

    @property
    def n_queued(self) -> int:
        """How many operations wait for a cycle."""
        return len(self.waiting)

    @property
    def n_bytes_queued(self) -> int:
        """What queued and executing work takes."""
        return self.waiting.n_bytes + self._cycle_bytes

    # Inputs.

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)
        self.following.join(self.multicast)
        if self.following.is_joined:
            self.copies.begin(self.config)
            self.staging.follow(self.config)
        for schema in self.tables:
            self.waiting.put(TableChange(None, schema), -1, 0)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.staging.on_connected(peer)
        if peer.role == self.me.role:
            self.copies.on_connected(peer)
            self.staging.asked_in(peer)
        else:
            self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.staging.on_disconnected(peer)
        if peer.role == self.me.role:
            self.copies.on_disconnected(peer, now_s)
        else:
            self.reporter.end_session(peer)
            self._serving.end_session(peer)
            self.pins.end_session(peer)
            self._retirement.end_session(peer)
            self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        if peer.role == self.me.role:
            self.copies.on_refused(peer, now_s)
        else:
            self.multicast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router, a client, a super or another storage process."""
        match message:
            case Attach() | Taken() | Answered() | Inquire():
                self.reporter.on_message(peer, message)
            case Forget():
                self._called_off.setdefault(peer, set()).update(message.numbers)
            case ReadReplica():
                self._on_read_replica(peer, message)
            case ReadBasic():
                if not self._serving.take(peer, message):
                    self._out.reset.append(peer)
            case AskPinned():
                self.pins.on_message(peer, message, now_s)
            case Lease():
                self._serving.lease.on_lease(message)
            case Retire():
                self._out.send += self._retirement.take(peer, message)
            case Explain():
                self._on_explain(peer, message)
            case Weigh():
                self._on_weigh(peer, message)
            case Bring() | Lack() | Unknown() | AskStaged():
                if not self.staging.on_message(peer, message, now_s):
                    self._out.reset.append(peer)
            case FetchParcels() | CopyHead() | Parcel() | CopyUnknown():
                self.copies.on_message(peer, message, now_s)
            case AskCopies():
                self.copies.ask(peer, message)
            case Ping():
                self._out.send.append((peer, Pong(message.sent_s, self.memory.is_full)))
            case _:
                self.multicast.on_message(peer, message, now_s)

    def on_executed(self, result: Executed, now_s: float) -> None:
        """Take a cycle's end: keep what writes did, send each client its results."""
        self._is_busy = False
        self._cycle_bytes = 0
        if self._load is not None:
            self._load.learn(result.worked_s)
            if self._load.n:
                took_s = result.took_s or now_s - self._busy_since_s
                self._mean.add(took_s, self._load.n, result.worked_s or took_s)
        for question, explained in result.told:
            self._tell(question, explained)
        self._out.send += result.weighed
        self.reporter.executed = max(self.executed, result.upto)
        self.pins.on_executed(result.pinned, result.pinned_bytes, now_s)
        held = result.n_bytes + self.reporter.unsent_bytes + self.waiting.n_bytes + self.staging.n_bytes
        self._out.stop = self.memory.look(held)
        if self._out.stop and self.pins.relieve(all_of_them=True):
            self._out.stop = ""
        elif self.memory.is_full:
            self.pins.relieve()
        self.reporter.report(result.results)
        self.reporter.keep_replayed(result.moved.replayed)
        self.copies.on_executed(result.moved)

    def flush(self, now_s: float) -> Output:
        """Queue what was delivered, start a cycle if none runs, and send."""
        self._now_s = now_s
        self._is_late = self._is_busy and now_s - self._busy_since_s > self.limits.queue_s
        for event in self.multicast.take_events():
            if isinstance(event, Delivery):
                self.arrivals.take(event)
            elif isinstance(event, ReadsEvent):
                self._take_reads(event)
            elif isinstance(event, ExpelledEvent):
                # State that the others no longer wait for must not be served.
                self._out.stop = self.following.expel(event)
            elif isinstance(event, StableEvent):
                self._out.stop = self._out.stop or self.following.settle(event)
                self._out.send += self._retirement.settle(event)
        self._take_basic(now_s)
        for client, numbers in self._called_off.items():
            self._call_off(client, numbers)
        self._called_off.clear()
        has_questions = bool(self._replica_reads or self._questions or self._weighings)
        can_enter = bool(self.waiting)
        has_work = can_enter or has_questions or self.copies.has_work or self.pins.has_work
        if has_work and not self._is_busy and not self._out.stop:
            self._out.execute = self._next_cycle()
            self._is_busy, self._busy_since_s = True, now_s
        self.reporter.ledgers.flush(now_s)
        self.staging.flush(now_s, delivered=self.multicast.delivered)
        for body in self.staging.take_to_say():
            configure(self.multicast, self.me, body)
        self.copies.need(self.staging.needed())
        self._work_on_copies(now_s)
        is_behind = self._restraint.look(self.waiting.backlog_s * self._mean.stretch, now_s)
        self.multicast.hold_confirms(self._is_over_budget or is_behind)
        protocol = self.multicast.flush(now_s)
        out, self._out = self._out, Output()
        out.reset += protocol.reset
        out.connect += protocol.connect
        # Here and nowhere before: what was read in time may have waited since.
        out.send = self._serving.screen([*out.send, *self.reporter.take_to_send()], now_s)
        out.send += self.copies.take_to_send()
        out.send += self.staging.take_to_send()
        out.send += self.pins.take_to_send(now_s)
        out.send += protocol.send
        out.send += self._serving.lease.ask(now_s, self.multicast.lead)
        ledgers_s, restraint_s = self.reporter.ledgers.wake_at_s, self._restraint.wake_at_s
        copies_s, serving_s, pins_s = self.copies.wake_at_s, self._serving.wake_at_s, self.pins.wake_at_s
        out.wake_at_s = earliest(
            protocol.wake_at_s, ledgers_s, restraint_s, serving_s, copies_s, pins_s, self.staging.wake_at_s
        )
        return out

    def _work_on_copies(self, now_s: float) -> None:
        """Say in the order what is to be said of copies, and see to their sessions."""
        self.copies.flush(now_s, is_full=self.memory.is_full)
        for body in self.copies.take_to_say():
            configure(self.multicast, self.me, body)
        self._out.reset += self.copies.take_to_reset()
        self._out.connect += self.copies.take_to_connect(now_s)

    def _call_off(self, client: ProcessId, numbers: set[int]) -> None:
        """Drop reads for whose answers nobody waits, wherever they are; writes happen."""
        left = self.arrivals.call_off(client, numbers)
        self.reporter.call_off(client, numbers)
        if self._is_busy:
            self._cancelled |= {(client, number) for number in left}

    # Into the engine.

    @property
    def _is_over_budget(self) -> bool:
        """Whether the engine has more to do than may be promised, in bytes or in time."""
        return self._is_late or self.n_bytes_queued > self.limits.queue_bytes

    def _take_reads(self, event: ReadsEvent) -> None:
        """Queue snapshot reads behind everything delivered, or refuse those of each client."""
        lacks = "" if self._serving.lease.holds(self._now_s) else NO_LEASE
        for part in event.parts:
            refusal = event.refusal or lacks or ("its queue is over budget" if self._is_over_budget else "")
            if refusal:
                refused = ReadRefused(tuple(part.number.tolist()), f"{self.me}: {refusal}")
                self._out.send.append((part.sender, refused))
            else:
                self.arrivals.take_reads(part, event.position)

    def _take_basic(self, now_s: float) -> None:
        """Queue the basic reads that may run behind everything delivered."""
        reached = self.multicast.delivered
        config = self.config if self.following.is_joined else None
        ready, refusals = self._serving.look(
            now_s, delivered=reached, config=config, is_over_budget=self._is_over_budget
        )
        self._out.send += refusals
        for part in ready:
            self.arrivals.take_reads(part, reached)

    def _apply(self, part: Delivery, index: int) -> None:
        """Follow a configuration message, its own join among them."""
        before = {table.id: table for table in self.tables}
        message, known = self.following.take(part, index)
        at = self.following.position
        if known is not None:
            self._follow_loads(message, known)
        else:
            self.staging.follow(self.config)
        ledgers = self.reporter.ledgers
        for client in ledgers.present:
            if not self.config.is_member(client):
                # Whoever left by itself waits for nothing any more.
                ledgers.depart(client, self._now_s, may_return=client != message.sender)
        after = {table.id: table for table in self.tables}
        for table in sorted(before.keys() | after.keys()):
            if before.get(table) != after.get(table):
                self.waiting.put(TableChange(before.get(table), after.get(table)), at, 0)
        self.copies.follow(self.config, at, self._now_s)
        self.pins.follow(message, self.config, at, self._now_s)

    def _follow_loads(self, message: Message, before: StorageConfig) -> None:
        """Take what a configuration message did to atomic loads."""
        orders = before.load_orders(message, self.config)
        if self.staging.follow_orders(
            orders, message.sender, message.number, self.following.position, self.config
        ):
            # Every owner tells of all that it owns: the message has no scope.
            self.reporter.ledger(message.sender).scopes[message.number] = (FULL_RING,), True

    def _stage(self, chunk: ChunkOrder, sender: ProcessId, number: int, at: int, scope: Scope) -> None:
        """Take the order of a chunk of an atomic load."""
        failed = self.staging.order(chunk, sender, number, at, scope)
        if failed is not None:
            self.reporter.refuse(sender, failed)

    def _next_cycle(self) -> Execution:
        admitted = self.waiting.take()
        self._load = admitted.load
        self._cycle_bytes += admitted.n_bytes
        upto = max(self.executed, admitted.upto)
        reads, self._replica_reads = self._replica_reads, []
        if reads:
            admitted.add([self._replica_operation(peer, read, upto) for peer, read in reads])
        self._cancelled = frozenset()
        questions, self._questions = tuple(self._questions), []
        weighings, self._weighings = tuple(self._weighings), []
        return Execution(
            tuple(admitted.steps),
            upto,
            lambda: self._cancelled,
            questions,
            self.memory.is_limited,
            weighings,
            tuple(admitted.written_bytes),
            self._copy_work(),
            self.pins.take_work(),
        )

    def _copy_work(self) -> CopyWork:
        makes, hands = self.copies.take_work()
        return CopyWork(self._areas, makes, hands, self.limits.copy_s, self.limits.cycle_operations)

    # Questions outside the order.

    def _on_explain(self, peer: ProcessId, message: Explain) -> None:
        """Let the next cycle tell what the engine would do."""
        fault = "too many questions wait; ask again later"
        if len(self._questions) < self.limits.replica_reads:
            fault = "the operation is malformed"
            known = self.arrivals.shapes.of(message.shape)
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
        waiting, mean, cost = self.waiting, self._mean, self.waiting.costs.of(question.shape)
        told = Explanation(
            self.me,
            explained,
            mean.cycle_s,
            mean.operations,
            len(waiting),
            waiting.backlog_s * mean.stretch,
            cost.scan_s * mean.stretch,
            cost.each_s * mean.stretch,
        )
        self._out.send.append((question.asker, Explains(question.request, told)))

    def _on_weigh(self, peer: ProcessId, message: Weigh) -> None:
        """Let the next cycle weigh some ranges, unless that is too much to do at once."""
        n_ranges = len(message.ranges) + sum(len(each.ranges) for each in self._weighings)
        if n_ranges <= RANGES_WEIGHED and all(low <= high for low, high in message.ranges):
            self._weighings.append(Weighing(peer, message.request, message.ranges))
        else:
            self._out.send.append((peer, Weighs(message.request, ())))

    def _on_read_replica(self, peer: ProcessId, read: ReadReplica) -> None:
        self._serving.spare(peer, -read.request)
        if len(self._replica_reads) < self.limits.replica_reads:
            self._replica_reads.append((peer, read))
            return
        text = f"{self.me} has {len(self._replica_reads)} reads of this replica waiting; ask again later"
        failed = Failed(-read.request, self.executed, (read.key_range,), "read", (), text)
        self._out.send.append((peer, Results(self.me, peer, self.executed, failed=(failed,))))

    def _replica_operation(self, peer: ProcessId, read: ReadReplica, at: int) -> Operation:
        """Give the plain read that shows what this replica holds, behind all it executes now."""
        schemas = {table.id: table for table in self.tables}
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
