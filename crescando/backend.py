"""A client process as users' threads see it: the `Backend` over a client core.

Rules of the file: users' threads put what they want into a queue and wake the
loop once (`Submitted`); everything else happens in the loop's thread. A future is
resolved exactly once, with the outcome that the core gives.
"""

from __future__ import annotations

import threading
import time
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from crescando.client.base import (
    Batch,
    Explanation,
    Failed,
    LoadBegin,
    Pending,
    ReadOutcome,
    Request,
    WriteOutcome,
)
from crescando.client.pinned import PinAnswer, PinId, PinQuestion
from crescando.client.promise import fail, resolve, then
from crescando.engine.statement import encode_parameters
from crescando.errors import (
    LOAD_GONE,
    ClosedError,
    DeadlineError,
    LoadGoneError,
    OperationError,
    UnknownTableError,
)
from crescando.loop import LoopThread
from crescando.pump import Handle, Pump
from crescando.roles.asked import Asked, Waiting, n_requests
from crescando.roles.client import Client
from crescando.roles.completion import Completion, Executed, Stable
from crescando.roles.messages import AskPinned, Explain, ReadReplica
from crescando.routing.ecast.messages import ConfigState
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import (
    AbortLoad,
    BeginLoad,
    CloseLoad,
    ConfigMessage,
    CreateTable,
    DropTable,
    Leave,
    Pin,
    RenewLoad,
    encode_message,
)
from crescando.schema import TableSchema
from crescando.submitted import Submitted
from crescando.transport.base import Transport
from crescando.types import KeyRange, LoadId, ProcessId
from crescando.unsettled import Unsettled

CATALOG_RETRY_S = 0.02
"""Pause before a catalog that does not show a change yet is asked for again."""

CATALOG_ATTEMPTS = 50
"""A second's worth: longer than a new leader takes to learn what the old one had decided."""

K = TypeVar("K", contravariant=True)

_Done = Callable[[Completion], None]


class Check(Protocol[K]):
    """Looks whether a catalog or configuration shows what it must; True if no more need be asked."""

    def __call__(self, known: K, /, *, is_last: bool) -> bool: ...


class LoopBackend:
    """One client process in the loop of a store.

    Parameters
    ----------
    core : Client
    loop : LoopThread
    transport : Transport
    ended : callable
        Called once, when the session is closed.
    """

    def __init__(
        self, core: Client, loop: LoopThread, transport: Transport, ended: Callable[[], None]
    ) -> None:
        self.core = core
        self._ended = ended
        self._loop = loop
        self._pump = Pump(core, transport, loop.agenda, after_turn=self._after_turn, stopped=self._stopped)
        self._submitted = Submitted(loop, self._take, n_requests)
        self._operations = Unsettled()
        self._callbacks: dict[int, _Done] = {}
        self._asked: set[Future[Any]] = set()
        """What is waited for beside operations."""
        self._next_token = 0
        self._tables: dict[str, TableSchema] = {}
        self._closed = ""
        loop.call(self._pump.start)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is taken: it was closed, stopped or expelled."""
        return bool(self._closed) or self.core.is_over

    # Data.

    @property
    def request_bytes_max(self) -> int:
        """How long a request may be; see `Backend.request_bytes_max`."""
        return self.core.limits.request_bytes

    @property
    def in_flight(self) -> int:
        """How many operations have no outcome; see `Backend.in_flight`."""
        return len(self._operations)

    def submit(self, request: Request, pending: Pending) -> None:
        """Submit one operation; see `Backend.submit`."""
        here = _get_running_loop()
        with self._loop.lock:
            # Under the lock, so that what is taken here is seen by whoever ends the session.
            if self._closed:
                raise ClosedError(self._closed)
            token = pending.number = self._next_token = self._next_token + 1
            self._operations.add(token, pending)
            is_first = self._submitted.add((token, request), here)
        if is_first:
            self._submitted.see_to_it(here)

    def make_room(self) -> None:
        """Let a thread wait that is far ahead of the loop; see `Backend.make_room`."""
        if _get_running_loop() is None:
            self._submitted.make_room()

    def submit_batch(self, requests: Sequence[Request], failed: Failed) -> Batch:
        """Submit operations in order; see `Backend.submit_batch`."""
        with self._loop.lock:
            if self._closed:
                raise ClosedError(self._closed)
            tokens = range(self._next_token + 1, self._next_token + 1 + len(requests))
            batch = Batch(tokens.start, len(requests), failed)
            self._next_token += len(requests)
            self._operations.add_batch(tokens, batch)
            is_first = self._submitted.add(Asked(tokens, requests), None)
        if is_first:
            self._submitted.see_to_it(None)
        return batch

    def hurry(self) -> None:
        """Have what was submitted set off now; see `Backend.hurry`."""
        self._submitted.hurry()

    def _take(self, submitted: deque[Waiting | Asked]) -> None:
        alone: list[Waiting] = []
        for asked in submitted:
            if isinstance(asked, Asked):
                self._request_each(alone)
                self.core.request_together(asked)
            else:
                alone.append(asked)
        self._request_each(alone)
        self._pump.need_turn()

    def _request_each(self, alone: list[Waiting]) -> None:
        """Ask for what came alone, one behind the other, as for what came together; nothing is left."""
        if alone:
            tokens, requests = zip(*alone, strict=True)
            self.core.request_together(Asked(tokens, requests))
            alone.clear()

    def cancel(self, pendings: tuple[Pending, ...]) -> None:
        """Call off reads; see `Backend.cancel`."""

        def call_off() -> None:
            self.core.cancel([pending.number for pending in pendings])
            self._pump.need_turn()

        with suppress(ClosedError):
            self._submitted.hand_over(call_off)

    # Catalog.

    def create_table(self, schema: TableSchema) -> Future[TableSchema]:
        """Order a table's creation; see `Backend.create_table`."""
        done: Future[TableSchema] = Future()

        def created(catalog: Mapping[str, TableSchema], *, is_last: bool) -> bool:
            if schema.name in catalog:
                resolve(done, catalog[schema.name])
            elif is_last:
                fail(done, UnknownTableError(schema.name, tuple(catalog)))
            return done.done()

        self._change_catalog(encode_message(CreateTable(schema)), done, created)
        return done

    def drop_table(self, name: str) -> Future[None]:
        """Order a table's removal; see `Backend.drop_table`."""
        done: Future[None] = Future()

        def dropped(catalog: Mapping[str, TableSchema], *, is_last: bool) -> bool:
            # One of that name may have been made again meanwhile.
            if name not in catalog or is_last:
                resolve(done, None)
            return done.done()

        self._change_catalog(encode_message(DropTable(name)), done, dropped)
        return done

    def catalog(self) -> Mapping[str, TableSchema]:
        """Give the newest catalog this client has heard of."""
        return self._tables

    def refresh_catalog(self) -> Future[Mapping[str, TableSchema]]:
        """Ask the routers for the present catalog."""
        done: Future[Mapping[str, TableSchema]] = Future()

        def fresh(catalog: Mapping[str, TableSchema], *, is_last: bool) -> bool:
            resolve(done, catalog)
            return True

        self._in_loop(lambda: self._ask_catalog(done, fresh), done)
        return done

    def _change_catalog(
        self, payload: bytes, done: Future[Any], check: Check[Mapping[str, TableSchema]]
    ) -> None:
        def decided(completion: Completion) -> None:
            if completion.error is not None:
                fail(done, completion.error)
            else:
                self._ask_catalog(done, check)

        def start() -> None:
            token = self._call_back(decided)
            self.core.configure(token, payload)
            self._pump.need_turn()

        # Behind what this thread has submitted before.
        self._in_loop(start, done)

    def _ask_catalog(self, done: Future[Any], check: Check[Mapping[str, TableSchema]]) -> None:
        """Ask until the catalog shows what it must."""

        def look(config: Rubberband, *, is_last: bool) -> bool:
            self._tables = {table.name: table for table in config.tables}
            return check(self._tables, is_last=is_last)

        self._ask_configuration(done, look)

    def _ask_configuration(self, done: Future[Any], check: Check[Rubberband], attempt: int = 1) -> None:
        """Ask until the configuration shows what it must: a router may still lag behind.

        After some attempts it is not the router that lags: things have moved on.
        """

        def answered(completion: Completion) -> None:
            if completion.error is not None or not isinstance(completion.outcome, ConfigState):
                fail(done, completion.error or ClosedError("no answer"))
                return
            config = Rubberband.decode(completion.outcome.config)
            if not check(config, is_last=attempt >= CATALOG_ATTEMPTS):
                again_s = self._loop.agenda.now_s() + CATALOG_RETRY_S
                self._loop.agenda.call_at(again_s, lambda: self._ask_configuration(done, check, attempt + 1))

        if not done.done():
            self.core.ask_config(self._call_back(answered))
            self._pump.need_turn()

    # Atomic loads.

    def begin_load(self, begin: LoadBegin) -> Future[tuple[LoadId, bool]]:
        """Order the beginning of an atomic load; see `Backend.begin_load`."""
        done: Future[tuple[LoadId, bool]] = Future()
        numbers: list[int] = []

        def known(config: Rubberband, *, is_last: bool) -> bool:
            load = LoadId(self.core.me, numbers[0])
            is_repeat = config.loads.is_repeat(begin.table, begin.job, begin.epoch)
            if is_repeat or config.loads.find(load) is not None:
                resolve(done, (load, is_repeat))
            elif is_last:
                fail(done, LoadGoneError(f"{LOAD_GONE}: {load}"))
            return done.done()

        def decided(completion: Completion) -> None:
            if completion.error is not None:
                fail(done, completion.error)
            else:
                self._ask_configuration(done, known)

        def start() -> None:
            body = BeginLoad(*(getattr(begin, name) for name in begin.__struct_fields__))
            number = self.core.configure(self._call_back(decided), encode_message(body))
            if number is not None:
                numbers.append(number)
            self._pump.need_turn()

        self._in_loop(start, done)
        return done

    def renew_load(self, load: LoadId) -> Future[None]:
        """Order that a load's lease begins anew; see `Backend.renew_load`."""
        return self.order(RenewLoad(load), lambda number: None)

    def close_load(self, load: LoadId) -> Future[None]:
        """Order that nothing more is staged for a load; see `Backend.close_load`."""
        return self.order(CloseLoad(load), lambda number: None)

    def abort_load(self, load: LoadId) -> Future[None]:
        """Order the end of a load; see `Backend.abort_load`."""
        return self.order(AbortLoad(load), lambda number: None)

    def borders(self) -> tuple[int, ...]:
        """Give where arcs begin; see `Backend.borders`."""
        config = self.core.layout.config
        return config.borders() if isinstance(config, Rubberband) else ()

    # Administration.

    def layout(self) -> Future[tuple[int, Rubberband]]:
        """Ask the router that leads for the configuration, and the position it is of."""
        done: Future[tuple[int, Rubberband]] = Future()

        def answered(completion: Completion) -> None:
            state = completion.outcome
            if isinstance(state, ConfigState):
                resolve(done, (state.position, Rubberband.decode(state.config)))
            else:
                fail(done, completion.error or ClosedError("no answer"))

        def start() -> None:
            self.core.ask_config(self._call_back(answered))
            self._pump.need_turn()

        self._in_loop(start, done)
        return done

    def order(self, message: ConfigMessage, numbered: Callable[[int], object]) -> Future[None]:
        """Order a configuration message, behind what was submitted before.

        Parameters
        ----------
        message : ConfigMessage
        numbered : callable
            Called with the message's number when it is submitted, before it can have an outcome.

        Returns
        -------
        Future
            Done when the message is stable.
        """
        done: Future[None] = Future()

        def start() -> None:
            number = self.core.configure(self._call_back(_telling(done)), encode_message(message))
            if number is not None:
                numbered(number)
            self._pump.need_turn()

        self._in_loop(start, done)
        return done

    # Pinned snapshots.

    def pin(self, tables: tuple[int, ...], lease_s: float) -> Future[PinId]:
        """Order a pin; see `Backend.pin`."""
        numbers: list[int] = []
        ordered = self.order(Pin(tables, lease_s), numbers.append)
        return then(ordered, lambda _: PinId(self.core.me, numbers[0]))

    def holders(self) -> Future[tuple[ProcessId, ...]]:
        """Ask for the storage processes there are; see `Backend.holders`."""
        return then(self.layout(), lambda found: tuple(sorted(found[1].storages)))

    def ask_pinned(self, process: ProcessId, question: PinQuestion) -> Future[PinAnswer]:
        """Ask about a pinned snapshot; see `Backend.ask_pinned`."""
        asked = self.ask(process, lambda number: AskPinned(number, question))
        return then(asked, lambda answered: answered.answer)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back in the loop's thread after a while.

        Raises
        ------
        ClosedError
            If the store is closed.
        """
        agenda = self._loop.agenda
        self._loop.hand_over(lambda: _no_handle(agenda.call_at(agenda.now_s() + seconds, callback)))

    def ask(self, process: ProcessId, question: Callable[[int], Any]) -> Future[Any]:
        """Ask one process something outside the order.

        Parameters
        ----------
        process : ProcessId
            A storage process or a super.
        question : callable
            Gives the message, by the number of the question.
        """
        done: Future[Any] = Future()

        def start() -> None:
            self.core.ask(self._call_back(_telling(done)), process, question)
            self._pump.need_turn()

        self._in_loop(start, done)
        return done

    def read_replica(self, process: ProcessId, key_range: KeyRange, table: str) -> Future[ReadOutcome]:
        """Ask one replica for its rows of a range, all columns."""
        schema = self._tables.get(table)
        if schema is None:
            raise UnknownTableError(table, tuple(self._tables))
        columns = tuple(column.id for column in schema.columns)
        return self.ask(process, lambda number: ReadReplica(number, schema.id, key_range, columns))

    def explain(self, request: Request) -> Future[tuple[Explanation, ...]]:
        """Ask every storage process that can be reached; see `Backend.explain`."""
        done: Future[Any] = Future()
        found: list[Explanation] = []
        errors: list[Exception] = []
        shape, parameters = request.shape.encode(), encode_parameters(request.shape, request.parameters)

        def start() -> None:
            asked = tuple(self.core.reachable)

            def answered(completion: Completion) -> None:
                if isinstance(completion.outcome, Explanation):
                    found.append(completion.outcome)
                else:
                    errors.append(completion.error or ClosedError("no answer"))
                if len(found) + len(errors) == len(asked):
                    resolve(done, tuple(sorted(found, key=lambda each: each.process)))

            for process in asked:
                question = partial(Explain, shape=shape, parameters=parameters)
                self.core.ask(self._call_back(answered), process, question)
            if not asked:
                resolve(done, ())
            self._pump.need_turn()

        self._in_loop(start, done)
        return done

    # The end.

    def close(self, timeout_s: float) -> None:
        """Refuse new work, drain, leave; what has no outcome by then fails as unknown."""
        with self._loop.lock:
            if self._closed:
                return
            self._closed = "the session is closed"
        self.hurry()
        deadline_s = time.monotonic() + timeout_s
        while self._has_work() and time.monotonic() < deadline_s:
            self._wait_for_work(deadline_s)
        left: Future[Any] = Future()

        def leave() -> None:
            token = self._call_back(lambda _: resolve(left, None))
            self.core.configure(token, encode_message(Leave(self.core.me)))
            self._pump.need_turn()

        try:
            self._submitted.hand_over(leave)
            left.result(max(0.05, min(1.0, deadline_s - time.monotonic())))
        except (TimeoutError, ClosedError):
            # The cluster will notice by itself that we are gone.
            pass
        self.abandon("the session was closed before the operation had an outcome")
        self._ended()

    def abandon(self, reason: str) -> None:
        """End at once: no outcome will come any more."""
        with self._loop.lock:
            self._closed = self._closed or "the session is closed"
        with suppress(ClosedError, DeadlineError):
            self._loop.call(self._pump.stop)
        self._fail_all(DeadlineError(reason))

    def _has_work(self) -> bool:
        return bool(self._operations or self._callbacks)

    def _wait_for_work(self, deadline_s: float) -> None:
        oldest = self._operations.oldest()
        if oldest is None:
            time.sleep(0.002)
            return
        is_done = threading.Event()
        oldest.add_done_callback(lambda _: is_done.set())
        is_done.wait(max(0.0, deadline_s - time.monotonic()))

    # In the loop's thread.

    def _in_loop(self, start: Callable[[], None], done: Future[Any]) -> None:
        with self._loop.lock:
            # Under the lock, so that what is taken here is seen by whoever ends the session.
            if self._closed:
                raise ClosedError(self._closed)
            self._asked.add(done)
        done.add_done_callback(self._asked.discard)
        self._submitted.hand_over(start)

    def _call_back(self, callback: _Done) -> int:
        with self._loop.lock:
            self._next_token += 1
            token = self._next_token
        self._callbacks[token] = callback
        return token

    def _after_turn(self) -> None:
        told: list[Pending] = []
        for each in self.core.take_told():
            if isinstance(each, Executed):
                told += self._operations.settle(each)
            elif isinstance(each, Stable):
                self._operations.settle_stable(each.tokens)
            else:
                told += self._complete(each)
        # Whoever is woken by one finds all of them known, and need not wait again.
        Pending.tell_all(told)

    def _complete(self, completion: Completion) -> list[Pending]:
        """Take what is told of one operation, or of what else was asked; gives whom to tell of."""
        token, error = completion.token, completion.error
        if token not in self._operations:
            callback = self._callbacks.pop(token, None)
            if callback is not None:
                callback(completion)
        elif completion.is_stable:
            self._operations.settle_stable((token,))
        elif isinstance(completion.outcome, ReadOutcome | WriteOutcome):
            return self._operations.settle(Executed((token,), (completion.outcome,)))
        elif error is not None:
            return self._operations.fail(token, error)
        return []

    def _stopped(self, reason: str) -> None:
        with self._loop.lock:
            self._closed = f"the client process stopped: {reason}"
        # Not refused: what was handed over may be ordered and take effect.
        self._fail_all(OperationError(f"{self._closed}; the operation may have taken effect"))

    def _fail_all(self, error: Exception) -> None:
        with self._loop.lock:
            left, asked = self._operations.take_all(), list(self._asked)
        left.fail_all(error)
        for future in asked:
            fail(future, error)


def _no_handle(_: Handle) -> None:
    """Nobody will call it off."""


def _telling(done: Future[Any]) -> _Done:
    """Give what tells a future how something ended."""
    return lambda ended: fail(done, ended.error) if ended.error else resolve(done, ended.outcome)
