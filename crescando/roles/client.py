"""The client role: an ordered stream of operations, and their outcomes.

Rules of the file: an operation is done when every ring range it asked for is covered by exactly one
answer; scopes prove it, no matching of duplicates is needed. Sequential reads and writes go through the
order; results come back on direct channels. If an owner dies between the order and the answer, the other
owners are asked: they tell what writes did, and reads that nobody holds any more are sent again, whole,
at a new position, unless the session has written since (`ReadLostError`). What is not even stable,
though a storage process keeps silent for long, is waited for no more (`contact`). Snapshot and basic
reads go around the order (`direct`); their answers, like those of replica reads, are numbered below 0.
Steps of loads are ordered when everything is where it must be (`beside`). While no majority of routers
answers, only basic reads are taken, and nobody waits for what was ordered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from crescando.client.base import Request, SchemaChanged
from crescando.engine.base import Failed, Partials, Results, Rows
from crescando.engine.written import Written
from crescando.errors import (
    ClosedError,
    CountUnknownError,
    CrescandoError,
    LostError,
    OperationError,
    ReadCancelledError,
    ReadLostError,
    RefusedError,
)
from crescando.process import Output, earliest
from crescando.roles.answers import Answer, Parts, answers_of
from crescando.roles.asked import Asked
from crescando.roles.beside import Beside
from crescando.roles.completion import Completion, Executed, Stable, Told
from crescando.roles.configurations import Configurations
from crescando.roles.contact import Contact
from crescando.roles.direct import DirectReads, basic_apart
from crescando.roles.flight import Coverage, InFlight
from crescando.roles.inquiry import GivenUp, Inquiries
from crescando.roles.limits import ClientLimits
from crescando.roles.load_messages import Brought, Lack, StagedTold
from crescando.roles.messages import Answered, Attach, BasicRefused, Inquired, Ping, Pong, Taken
from crescando.roles.outbox import is_long
from crescando.roles.payload import Spread
from crescando.roles.quorum import QuorumWatch
from crescando.roles.receipts import Receipts
from crescando.roles.reconnects import Reconnects
from crescando.roles.replica import ANSWERS, no_session
from crescando.roles.requests import Requests
from crescando.roles.runs import Runs
from crescando.routing.base import Config, ExpelledEvent, Multicast, StableEvent
from crescando.routing.batch import Message, submission
from crescando.routing.ecast.messages import ConfigRequest, ConfigState, Quorum, ReadRefused, Welcome
from crescando.types import MessageKind, ProcessId, Verdict

_POSITION = attrgetter("position")


class Client:
    """One client process's core.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    storages : sequence of ProcessId
        The storage processes, from which results come.
    join : bytes
        Payload of the message with which this client joins, its number 1.
    config_type : type
        Of the routing configuration, by which basic reads find their owners.
    supers : sequence of ProcessId
        Those that look after it; later ones it learns from them.
    limits : ClientLimits
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        multicast: Multicast,
        storages: Sequence[ProcessId],
        join: bytes,
        config_type: type[Config],
        supers: Sequence[ProcessId] = (),
        limits: ClientLimits | None = None,
    ) -> None:
        self.me = me
        self.limits = limits or ClientLimits()
        self.multicast = multicast
        self.resubmitted = 0
        self._storages = dict.fromkeys(storages)
        self.reachable: dict[ProcessId, None] = {}
        self.supers: set[ProcessId] = set()
        self._reconnects = Reconnects((*storages, *supers))
        self._operations = Runs()
        self._configurations = Configurations()
        self._completions: list[Told] = []
        self._resubmissions: dict[int, int] = {}
        self._verdict_by_s: float | None = None
        self._contact = Contact(storages, self.limits.give_up_s, self.limits.alone_s)
        self._inquiries = Inquiries(self.limits)
        self._parts = Parts()
        self._direct = DirectReads(me, self.limits, config_type)
        self._replicas = self._direct.replicas
        self._requests = Requests(self._direct)
        self.layout = self._direct.basics.layout
        self._beside = Beside(me, self.limits, self.layout, self._direct.numbers, self._completions)
        self._watch = QuorumWatch(self.limits.unreachable_s, self.limits.silence_s)
        self._seen = -1
        self._submitted_s = 0.0
        self._receipts = Receipts()
        self._closed = ""
        self._out = Output()
        self._submit([Message(me, 1, MessageKind.CONFIG, -1, (), 0, join)], b"")
        self._offsets = Spread(me.incarnation)

    # What users ask.

    @property
    def is_over(self) -> bool:
        """Whether it was expelled: nothing more is taken."""
        return bool(self._closed)

    @property
    def n_in_flight(self) -> int:
        """How many data operations have no outcome yet."""
        return len(self._requests) + len(self._operations) + len(self._direct) + len(self._beside)

    @property
    def _refusal(self) -> CrescandoError | None:
        """Why nothing new is taken now."""
        return ClosedError(self._closed) if self._closed else self._watch.hopeless

    def request(self, token: int, request: Request) -> None:
        """Take a data operation; it is submitted with the turn's others."""
        self.request_all(((token, request),))

    def request_all(self, asked: Collection[tuple[int, Request]]) -> None:
        """Take data operations in their order; as `request`."""
        refusal = self._refusal
        if refusal is not None:
            asked, refused = basic_apart(asked) if not self._closed else ([], asked)
            self._completions += [Completion(token, error=refusal) for token, _ in refused]
        asked = self._beside.take(asked)
        if asked:
            self._requests.take(asked)

    def request_together(self, asked: Asked) -> None:
        """Take data operations that were asked for together, behind all others; as `request`."""
        if self._refusal is not None or not self._requests.take_together(asked):
            self.request_all(asked.each())

    def configure(self, token: int, payload: bytes) -> int | None:
        """Submit a configuration message, behind everything requested before; gives its number if it is."""
        refusal = self._refusal
        if refusal is not None:
            self._completions.append(Completion(token, error=refusal))
            return None
        self._submit_waiting(None)
        number = self.multicast.next_number
        self._configurations.add(number, token)
        self._submit([Message(self.me, number, MessageKind.CONFIG, -1, (), 0, payload)], b"")
        return number

    def ask_config(self, token: int) -> None:
        """Ask the lead router for the present configuration; the outcome is a `ConfigState`."""
        if self._closed:
            # No router welcomes a client that was expelled, so it may know none that leads.
            self._completions.append(Completion(token, error=ClosedError(self._closed)))
            return
        self._configurations.asked.append(token)
        self._ask_config()

    def cancel(self, tokens: Iterable[int]) -> None:
        """Wait no more for some reads; what is no read, or has its outcome, is left alone."""
        self._receipts.cancel(tokens)

    def ask(self, token: int, process: ProcessId, question: Callable[[int], Any]) -> None:
        """Ask a storage process or a super something outside the order, in a message with a number."""
        if process not in self.reachable and process not in self.supers:
            self._completions.append(no_session(token, process))
        else:
            self._out.send.append((process, question(self._replicas.ask(token, process))))

    def numbers(self) -> dict[int, int]:
        """Give the message number of each data operation that has no outcome yet, by token."""
        return dict(self._operations.tokens())

    def take_told(self) -> list[Told]:
        """Give what happened since the last call."""
        self._beside.finish(self._completions)
        told = self._completions.copy()
        self._completions.clear()
        return told

    # Inputs.

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)
        self._out.connect.extend(self._reconnects.wanted)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._reconnects.drop(peer)
        if peer.role == "storage":
            self._contact.on_connected(peer, now_s)
            self.reachable[peer] = None
            self._out.send += [(peer, Attach()), (peer, Answered(self._receipts.answered))]
            # Results sent while there was no session are gone.
            self._inquiries.suspect()
            self._direct.snapshots.lose_session()
        elif peer.role == "super":
            self.supers.add(peer)
        else:
            self._watch.on_connected(peer)
            self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._direct.end_session(peer, now_s)
        self._reconnects.lost(peer, now_s + self.limits.inquire_s)
        self._completions += self._replicas.end(peer, "went away before it answered")
        if peer.role != "storage":
            self.supers.discard(peer)
            self._watch.on_disconnected(peer)
            self.multicast.on_disconnected(peer, now_s)
            return
        self.reachable.pop(peer, None)
        self._contact.on_disconnected(peer, now_s)
        self._inquiries.suspect()
        self._inquiries.end_session(peer)
        self._parts.end_session(peer)
        self._beside.end_session(peer)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self._reconnects.lost(peer, now_s + self.limits.inquire_s)
        self.multicast.on_refused(peer, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Clients execute nothing."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router or a storage process."""
        self._contact.hear(peer, now_s)
        match message:
            case Results():
                if is_long(message):
                    self._out.send.append((peer, Taken(1)))
                self._on_results(message, now_s)
            case Inquired():
                self._on_inquired(peer, message)
            case _ if isinstance(message, ANSWERS):
                self._completions += self._replicas.answered(message)
            case ReadRefused() | BasicRefused():
                for read in self._direct.on_refused(peer, message, now_s):
                    self._fail(read, RefusedError(message.reason))
            case Ping():
                self._out.send.append((peer, Pong(message.sent_s)))
                self._out.connect += self._reconnects.hear(peer, message, self._storages, self._contact)
            case Pong():
                """Its coming is all it says."""
            case Brought() | Lack() | StagedTold():
                self._beside.on_message(peer, message)
            case Quorum():
                self._watch.on_quorum(peer, is_there=message.is_there)
            case ConfigState():
                self.layout.answered(message.position, message.config)
                self._completions += self._configurations.answered(message)
                self._inquiries.confirm(message.storages)
                self._out.connect += self._reconnects.meet(message.storages, self._storages, self._contact)
            case _:
                self._watch.hear(peer)
                self.multicast.on_message(peer, message, now_s)
                if isinstance(message, Welcome):
                    self._ask_config()

    def flush(self, now_s: float) -> Output:
        """Submit what waits, look after what lacks an answer, and send."""
        for event in self.multicast.take_events():
            if isinstance(event, StableEvent):
                self._on_stable(event, now_s)
            elif isinstance(event, ExpelledEvent):
                self._on_expelled(event, now_s)
        for given_up in self._inquiries.conclude(self._operations, now_s):
            self._give_up(given_up)
        is_asked = bool(self.n_in_flight or self._configurations or self._configurations.asked)
        if self._watch.look(now_s, is_asked=is_asked, is_member=not self._closed):
            self._fail_without_quorum()
        if self._verdict_by_s is not None and now_s >= self._verdict_by_s:
            self._verdict_by_s = None
            self._fail_unstable(self._closed, self.multicast.next_number)
        self._look_after(now_s)
        if self._receipts.has_cancelled:
            self._call_off()
        self._requests.take(self._beside.flush(now_s, self.multicast.lead, self.reachable))
        self._submit_waiting(now_s)
        self._send_direct(now_s)
        self._inquire(now_s)
        # The owners may forget what nobody will ask for.
        lowest = self._operations.lowest(self.multicast.next_number)
        for message in self._receipts.take(lowest, is_idle=not self._operations):
            self._out.send.extend((peer, message) for peer in self.reachable)
        self._out.send += self._beside.take_to_send()
        self._out.connect += self._reconnects.take_due(now_s)
        protocol = self.multicast.flush(now_s)
        out, self._out = self._out, Output()
        out.reset += protocol.reset
        out.connect += protocol.connect
        out.send += protocol.send
        out.wake_at_s = earliest(
            protocol.wake_at_s,
            self._inquiries.wake_at_s,
            self._verdict_by_s,
            self._contact.wake_at_s,
            self._direct.wake_at_s,
            self._beside.wake_at_s,
            self._watch.wake_at_s,
            self._reconnects.wake_at_s,
            # What time alone cannot submit must not be waited for: it would be due at once, for ever.
            self._submitted_s + self.limits.stall_s if self._requests and self._may_submit(1e99) else None,
        )
        return out

    # Submitting.

    def _submit(self, messages: list[Message], shared: bytes) -> None:
        self.multicast.submit(submission(messages, shared=shared, acknowledged=self.multicast.acknowledged))

    def _submit_waiting(self, now_s: float | None) -> None:
        """Pack waiting operations; nothing while enough is on its way, unless the time is None."""
        while self._requests and (now_s is None or self._may_submit(now_s)):
            self._submitted_s = now_s if now_s is not None else self._submitted_s
            first, limits = self.multicast.next_number, self.limits
            packing, run = self._requests.pack(first, limits.batch_operations, limits.batch_bytes)
            self._operations.add(run)
            sent = packing.submission(self.me, first, self.multicast.acknowledged, self._offsets)
            self.multicast.submit(sent)

    def _send_direct(self, now_s: float) -> None:
        """Send the reads around the order whose session's earlier writes are on their way, or done."""
        turn = self._direct.flush(
            now_s,
            lead=self.multicast.lead,
            lowest=self._operations.lowest(self.multicast.next_number),
            seen=self._seen,
            reachable=self.reachable,
            offset=self._offsets.__next__,
            hopeless=self._watch.hopeless,
        )
        self._out.send += turn.send
        self._completions += turn.ended

    def _may_submit(self, now_s: float) -> bool:
        n_unstable, limits = self.multicast.n_unstable, self.limits
        if n_unstable < limits.open_submissions and len(self._operations) < limits.open_operations:
            return True
        return n_unstable < limits.stalled_submissions and now_s >= self._submitted_s + limits.stall_s

    # Outcomes.

    def _on_results(self, results: Results, now_s: float) -> None:
        in_parts: list[Rows | Partials] = list(results.partials)
        self._direct.hear(results, now_s)
        for rows in results.rows:
            if self._parts or rows.part or rows.has_more:
                in_parts.append(rows)
            else:
                reads = self._direct if rows.number.item(0) < 0 else self._operations
                told, others = reads.on_rows(rows)
                self._take(told)
                for answer in others:
                    self._on_answer(results.process, answer)
        for answer in itertools.chain.from_iterable(map(answers_of, in_parts)):
            self._on_answer(results.process, answer)
        self._on_written(results.written)
        for failed in results.failed:
            self._on_failed(failed)

    def _take(self, told: Sequence[Stable | Executed]) -> None:
        """Tell what has become of many operations."""
        self._completions += told
        for each in told:
            if isinstance(each, Executed):
                self._seen = max(self._seen, max(map(_POSITION, each.outcomes)))
                if self._resubmissions:
                    for token in each.tokens:
                        self._resubmissions.pop(token, None)

    def _find(self, number: int, at: int) -> InFlight | None:
        """Give the operation that an answer at a position belongs to, if it lacks one."""
        if number < 0:
            return self._direct.find(number, at)
        return self._operations.get(number)

    def _on_answer(self, process: ProcessId, answer: Answer) -> None:
        number, at = answer.number, answer.position
        is_of_replica = number < 0 and self._replicas.is_open(number)
        operation = None if is_of_replica else self._find(number, at)
        whole = self._parts.join(process, answer) if is_of_replica or operation is not None else None
        if whole is None:
            return
        if operation is None:
            self._completions.append(self._replicas.complete(number, at, whole))
        elif operation.cover(answer.content.scope, at):
            operation.take(whole)
            self._finish_if_done(operation)

    def _on_written(self, pieces: Iterable[Written]) -> None:
        for written in pieces:
            told, others = self._operations.on_written(written)
            self._take(told)
            for operation in self._operations.count(others, Coverage(written.arcs)):
                self._finish_if_done(operation)

    def _on_failed(self, failed: Failed) -> None:
        token = self._replicas.take(failed.number)
        if token is not None:
            self._completions.append(Completion(token, error=CrescandoError(failed.text)))
            return
        operation = self._find(failed.number, failed.position)
        if operation is not None and failed.kind != "read":
            self._fail(operation, (SchemaChanged if failed.kind == "schema" else RefusedError)(failed.text))
        elif operation is not None and operation.cover(failed.scope, failed.position):
            operation.failures = *operation.failures, failed
            self._finish_if_done(operation)

    def _finish_if_done(self, operation: InFlight) -> None:
        if operation.is_done:
            self._complete(operation, operation.completion())

    def _complete(self, operation: InFlight, completion: Completion) -> None:
        if self._parts:
            self._parts.end_read(operation.number)
        if operation.number < 0:
            self._direct.finish(operation.number)
        else:
            del self._operations[operation.number]
            self._resubmissions.pop(operation.token, None)
        if completion.error is None:
            self._seen = max(self._seen, operation.latest)
        if not operation.is_stable and completion.error is None:
            # A read's answer proves that its message is ordered on a majority.
            self._completions.append(Completion(operation.token, is_stable=True))
        self._completions.append(completion)

    def _fail(self, operation: InFlight, error: Exception) -> None:
        self._complete(operation, Completion(operation.token, error=error))

    def _on_stable(self, event: StableEvent, now_s: float) -> None:
        excepted = {exception.number: exception for exception in event.exceptions}
        self._completions += self._configurations.settle(event.upto, excepted)
        lost: list[InFlight] = []
        for number, exception in sorted(excepted.items()):
            operation = self._operations.get(number)
            if operation is None or operation.is_stable:
                continue
            if exception.verdict == Verdict.REFUSED.value:
                self._fail(operation, RefusedError(exception.reason))
            elif operation.is_read:
                lost.append(operation)
            else:
                self._fail(operation, LostError(exception.reason))
        # Each goes before what waits, so the last one first.
        for operation in reversed(lost):
            self._resubmit(operation)
        told, records = self._operations.on_stable(event.upto, now_s)
        if told:
            self._inquiries.expect(now_s)
        self._take(told)
        for operation in records:
            if not operation.is_stable:
                operation.is_stable, operation.stable_s = True, now_s
                self._inquiries.expect(now_s)
                self._completions.append(Completion(operation.token, is_stable=True))
                if not operation.missing:
                    self._finish_if_done(operation)

    def _on_expelled(self, event: ExpelledEvent, now_s: float) -> None:
        self._closed = f"this client was expelled from the cluster at position {event.position}"
        self._verdict_by_s = now_s + self.limits.verdict_s
        if event.learned < max(1, self.multicast.acknowledged):
            # The routers have forgotten even its join: what it sent last may be in the order or not.
            self._fail_unstable(self._closed, self.multicast.next_number)
        for number in list(self._operations):
            if number > event.learned and not self._operations[number].is_stable:
                self._fail(self._operations[number], RefusedError(f"void: {self._closed}"))
        void = RefusedError(f"void: {self._closed}")
        self._completions += self._configurations.end(void, lambda number: number > event.learned)
        self._fail_unsent(ClosedError(self._closed))

    def _fail_unstable(self, reason: str, below: int) -> None:
        """End what nobody tells this client of, of the numbers below one: it may take effect or not."""
        error = OperationError(f"{reason}; nobody knows any more whether the operation took effect")
        old = itertools.takewhile(lambda number: number < below, list(self._operations))
        for operation in [self._operations[number] for number in old]:
            if not operation.is_stable:
                lost = ReadLostError(f"{reason}; retry the read")
                self._fail(operation, lost if operation.is_read else error)
        self._completions += self._configurations.end(error, lambda number: number < below)

    def _call_off(self) -> None:
        """End the reads that their users have cancelled."""
        unsent, sent = self._receipts.take_cancelled(self._requests, self._operations, self._direct)
        error = ReadCancelledError("the read was cancelled")
        for operation in sent:
            self._fail(operation, error)
        self._completions += [Completion(token, error=error) for token in unsent]

    def _look_after(self, now_s: float) -> None:
        """Wait no more for what a storage process that keeps silent may never confirm or answer."""
        if not (self._operations or self._requests or self._configurations or self._replicas):
            self._contact.rest()
            return
        for peer in self._contact.look(now_s, self.multicast.next_number):
            self._out.send.append((peer, Ping(now_s)))
        if not self._contact.silent:
            return
        for peer in self._contact.silent:
            self._completions += self._replicas.end(peer, "keeps silent")
        reason = f"nothing has been heard of {', '.join(map(str, sorted(self._contact.silent)))} for long"
        self._fail_unstable(reason, self._contact.hopeless)
        if self._requests and self._contact.hopeless >= self.multicast.next_number:
            # As long ago the last one was sent: what is open is all that may be, and does not end.
            error = RefusedError(f"not sent, since too much is not confirmed: {reason}")
            self._end_unsent(self._requests.clear(), error)

    def _fail_unsent(self, error: Exception) -> None:
        """Fail what has no number yet, and what changes nothing."""
        direct = self._direct if self._closed else self._direct.snapshots
        unsent = [*self._requests.clear(), *direct.take_all(), *self._beside.take_all()]
        self._end_unsent([*unsent, *self._configurations.take_asked()], error)

    def _end_unsent(self, tokens: list[int], error: Exception) -> None:
        for token in tokens:
            self._resubmissions.pop(token, None)
        self._requests.forget_writes()
        self._completions += [Completion(token, error=error) for token in tokens]

    def _fail_without_quorum(self) -> None:
        """Let nobody wait for an order that does not come, and say what is known."""
        self._fail_unsent(self._watch.error("no"))
        for operation in list(self._operations.values()):
            if not operation.is_stable:
                self._fail(operation, self._watch.error("no" if operation.is_read else "unknown"))
        self._completions += self._configurations.end(self._watch.error("unknown"))

    def _resubmit(self, operation: InFlight) -> None:
        """Send a read again, whole, at a new position; never across an own later write."""
        attempt = self._resubmissions.get(operation.token, 0) + 1
        obstacle = self._closed
        if self._requests.last_write > operation.number:
            obstacle = "the session has written since"
        elif attempt > self.limits.resubmissions:
            obstacle = f"so did those of {attempt - 1} more attempts"
        if obstacle:
            self._fail(operation, ReadLostError(f"the read's owner failed, and {obstacle}; retry it"))
            return
        self._resubmissions[operation.token] = attempt
        del self._operations[operation.number]
        self._parts.end_read(operation.number)
        self.resubmitted += 1
        self._requests.take_first((operation.token, operation.request))

    # Asking the owners.

    def _inquire(self, now_s: float) -> None:
        """Ask every reachable owner about stable operations that lack an outcome."""
        owners = self.reachable.keys() | self._storages.keys()
        question = self._inquiries.look(self._operations, self.reachable, now_s, n_owners=len(owners))
        if question is not None:
            self._out.send.extend((peer, question) for peer in self.reachable)
            self._ask_config()

    def _give_up(self, given_up: GivenUp) -> None:
        """Take it that an outcome died with whoever knew it."""
        operation = given_up.operation
        if not operation.is_read:
            self._direct.basics.doubt()
            self._fail(operation, CountUnknownError(given_up.reason))
        elif self.reachable:
            self._resubmit(operation)
        else:
            self._fail(operation, ReadLostError(f"{given_up.reason}; retry the read"))

    def _on_inquired(self, peer: ProcessId, message: Inquired) -> None:
        self._inquiries.on_inquired(peer, message)
        self._on_written(message.written)
        for failed in message.failed:
            self._on_failed(failed)

    def _ask_config(self) -> None:
        if self.multicast.lead is not None:
            request = ConfigRequest(wants_config=bool(self._configurations.asked))
            self._out.send.append((self.multicast.lead, request))
