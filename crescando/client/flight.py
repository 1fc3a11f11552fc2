"""Operations on their way: the desk that sends them, and each one's flight.

Rules of the file: sending never blocks; whatever is sent is counted until it
is answered. An operation whose table changed under it, or was dropped and made
anew, is prepared again once, against the fresh catalog, and sent again; its
place in the session's order is then that of the second sending. That is safe,
since a refused operation has changed nothing. In a forked child every use is refused, since
the threads that would answer stayed with the parent.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import repeat
from typing import Any, TypeVar

import msgspec

from crescando.client.base import Backend, Pending, Request, SchemaChanged
from crescando.client.batch import Batch
from crescando.client.progress import Progress
from crescando.client.promise import Promise
from crescando.client.stretches import stretches
from crescando.client.waiting import TIMEOUT_S_DEFAULT, Steps
from crescando.errors import ClosedError, RefusedError, StatementError, UnknownTableError
from crescando.schema import TableSchema

Catalog = Mapping[str, TableSchema]

Again = Callable[[Catalog], Request]
"""Prepares an operation against a newer catalog."""

STATEMENTS_MAX = 512
"""Prepared statements kept for text that comes again; a guess at what one program writes."""

V = TypeVar("V")


class _Process:
    """How many forks lie between this process and the first; asking the system each time is slow."""

    generation = 0

    def forked(self) -> None:
        """Count one; called in the child."""
        self.generation += 1


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)


class Desk:
    """What a session's tables and handles share.

    Parameters
    ----------
    backend : Backend
    timeout_s : float
        How long calls wait if they do not say.

    Attributes
    ----------
    progress : Progress
        Of loads and pinned reads whose leases this session renews.
    """

    def __init__(self, backend: Backend, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.backend = backend
        self.timeout_s = timeout_s
        self.progress = Progress()
        self._generation = _process.generation
        self.lock = threading.Lock()
        self._is_closed = False
        self._statements: OrderedDict[Hashable, Any] = OrderedDict()

    @property
    def home(self) -> Desk:
        """The session's own desk, where statements are prepared."""
        return self

    @property
    def in_flight(self) -> int:
        """How many operations are sent and not answered."""
        return self.backend.in_flight

    def nonce(self) -> bytes:
        """Give bytes that nobody was given before."""
        return os.urandom(16)

    @property
    def is_closed(self) -> bool:
        """Whether new work is refused."""
        return self._is_closed

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that opened the session."""
        return _process.generation != self._generation

    def check_usable(self) -> None:
        """Refuse new work on a closed session.

        Raises
        ------
        ClosedError
            If it is closed, or this is a forked child.
        """
        self.check_process()
        if self._is_closed:
            raise ClosedError("the session is closed; open a new one")

    def check_process(self) -> None:
        """Refuse use in a forked child.

        Raises
        ------
        ClosedError
            If this is one.
        """
        if _process.generation != self._generation:
            raise ClosedError(
                "this process was forked from the one that opened the store; "
                "handles do not survive a fork: open a store of its own here"
            )

    def refuse_new_work(self) -> bool:
        """Close the desk; False if it was closed before."""
        with self.lock:
            was_closed, self._is_closed = self._is_closed, True
        return not was_closed

    def schema(self, table: str) -> TableSchema:
        """Give a table's schema as far as this session has heard.

        Raises
        ------
        UnknownTableError
            With the nearest name.
        """
        catalog = self.backend.catalog()
        schema = catalog.get(table)
        if schema is None:
            raise UnknownTableError(table, tuple(catalog))
        return schema

    def statement(self, key: Hashable, build: Callable[[], V]) -> V:
        """Give what `build` once gave for this key; the least recently used is forgotten."""
        with self.lock:
            if key in self._statements:
                self._statements.move_to_end(key)
                found: V = self._statements[key]
                return found
        built = build()
        with self.lock:
            self._statements[key] = built
            if len(self._statements) > STATEMENTS_MAX:
                self._statements.popitem(last=False)
        return built

    def send(self, requests: Sequence[Request], agains: Sequence[Again]) -> Sequence[Flight]:
        """Submit operations in their order.

        Raises
        ------
        ClosedError
            If the session is closed.
        """
        if len(requests) == 1:
            return (self.send_one(requests[0], agains[0]),)
        self.check_usable()
        flights: list[Flight] = []
        for stretch in stretches(len(requests)):
            first, some = stretch.start, requests[stretch]
            sending = _Sending(self, requests, agains, first)
            if first:
                self.backend.make_room()
            try:
                batch = self.backend.submit_batch(some, sending.on_failed)
            except ClosedError as error:
                if not first:
                    raise
                # Some are on their way: which, the caller learns from the handles.
                batch = Batch(-len(some), len(some), sending.on_failed)
                for number in range(-len(some), 0):
                    batch.fail(number, error)
            flights += map(Member, repeat(sending), repeat(batch), range(len(some)))
        return flights

    def send_one(self, request: Request, again: Again) -> Flight:
        """Submit one operation; as `send`."""
        if self._is_closed or self._generation != _process.generation:
            self.check_usable()
        sent = _Sent(_desk=self, _request=request, _again=again)
        self.backend.submit(request, sent)
        return sent

    def hand_out(self, handles: list[V]) -> list[V]:
        """Give handles to the caller."""
        return handles


class Flight:
    """One operation on its way.

    Attributes
    ----------
    pending : Pending
        Its first sending.
    """

    __slots__ = ()

    _desk: Desk
    _again: Again
    _second: Promise[Pending] | None

    @property
    def pending(self) -> Pending:
        """Its first sending."""
        raise NotImplementedError

    @property
    def request(self) -> Request:
        """What was sent first."""
        raise NotImplementedError

    @property
    def number(self) -> int:
        """The session's sequence number of the operation."""
        return self.pending.number

    def taken(self) -> Any:
        """Give the outcome if it is known, of the first sending, and no failure; otherwise None."""
        pending = self.pending
        return pending.result() if pending.done() and pending.exception() is None else None

    def is_done(self) -> bool:
        """Say whether the outcome is known."""
        if not self.pending.outcome.done():
            return False
        second = self._second
        if second is None:
            return not _is_refused(self.pending)
        return second.done() and (second.exception() is not None or second.result().outcome.done())

    def cancel(self) -> None:
        """Call it off, if it is a read."""
        second = self._second
        pendings = [self.pending]
        if second is not None and second.done() and second.exception() is None:
            pendings.append(second.result())
        self._desk.backend.cancel(tuple(pendings))

    def outcome_steps(self) -> Steps[Any]:
        """Wait for the outcome; give it, or raise what it failed with."""
        yield self.pending.outcome
        if not _is_refused(self.pending):
            return self.pending.outcome.result()
        second = self.send_again()
        yield second
        pending = second.result()
        yield pending.outcome
        with _changed_twice():
            return pending.outcome.result()

    def stable_steps(self) -> Steps[None]:
        """Wait until every correct replica has the operation."""
        yield self.pending.stable
        error = self.pending.stable.exception()
        if error is not None and not isinstance(error, _REFUSALS):
            raise error
        if error is None and not (self.pending.outcome.done() and _is_refused(self.pending)):
            return
        # Ordered everywhere and refused everywhere: what counts is the second sending.
        second = self.send_again()
        yield second
        pending = second.result()
        yield pending.stable
        with _changed_twice():
            pending.stable.result()

    def send_again(self) -> Promise[Pending]:
        """Prepare and send again, once: the waiter or who learns of the refusal, whoever comes first."""
        with self._desk.lock:
            if self._second is not None:
                return self._second
            second = self._second = Promise()  # type: ignore[misc]
        try:
            self._desk.backend.refresh_catalog().add_done_callback(self._on_catalog)
        except Exception as error:  # noqa: BLE001  # Whoever waits is told, whatever it was.
            second.set_exception(error)
        return second

    def _on_catalog(self, refreshed: Future[Catalog]) -> None:
        second = self._second
        assert second is not None
        refusal = self.pending.outcome.exception() if self.pending.outcome.done() else None
        try:
            catalog = refreshed.result()
            known = {(schema.id, schema.version) for schema in catalog.values()}
            shapes = (self.request.shape, *(step.shape for step in self.request.then))
            prepared_for = [(shape.table, shape.schema_version) for shape in shapes]
            if isinstance(refusal, RefusedError) and known.issuperset(prepared_for):
                raise refusal
            pending = Pending()
            self._desk.backend.submit(self._again(catalog), pending)
            second.set_result(pending)
        except StatementError as error:
            second.set_exception(error)
        except Exception as error:  # noqa: BLE001  # Whoever waits is told, whatever it was.
            # That nobody could tell the catalog is no better news than the refusal itself.
            second.set_exception(refusal if isinstance(refusal, RefusedError) else error)


class _Sent(Pending, Flight, gc=False, eq=False, kw_only=True):
    """The flight of an operation that was sent alone, and its first sending in one."""

    _desk: Desk
    _request: Request
    _again: Again
    _second: Promise[Pending] | None = None

    @property
    def pending(self) -> Pending:
        return self

    @property
    def request(self) -> Request:
        return self._request

    def taken(self) -> Any:
        return self._value  # None if it failed.

    def failed(self) -> None:
        if isinstance(self._error, _REFUSALS):
            self.send_again()


class _OfBatch(Flight, msgspec.Struct, gc=False, eq=False):
    """The flight of an operation of a batch that somebody waits for alone, or that failed."""

    _desk: Desk
    _pending: Pending
    _request: Request
    _again: Again
    _second: Promise[Pending] | None = None

    @property
    def pending(self) -> Pending:
        return self._pending

    @property
    def request(self) -> Request:
        return self._request


class _Sending:
    """Operations that were sent together, and what it takes to send one of them again.

    Parameters
    ----------
    desk : Desk
    requests : sequence of Request
    agains : sequence of Again
    first : int
        Which of them was sent first; `place` counts from there.
    """

    __slots__ = ("_agains", "_desk", "_first", "_flights", "_requests")

    def __init__(self, desk: Desk, requests: Sequence[Request], agains: Sequence[Again], first: int) -> None:
        self._desk = desk
        self._first = first
        self._requests = requests
        self._agains = agains
        self._flights: dict[int, _OfBatch] = {}

    def flight(self, batch: Batch, place: int) -> Flight:
        """Give one operation's own flight."""
        found = self._flights.get(place)
        if found is None:
            at = self._first + place
            made = _OfBatch(self._desk, batch.pending(place), self._requests[at], self._agains[at])
            # Whoever comes second takes that of the first: it may have sent again.
            found = self._flights.setdefault(place, made)
        return found

    def on_failed(self, batch: Batch, place: int) -> None:
        """Send again what was refused, though nobody may wait for it."""
        flight = self.flight(batch, place)
        if _is_refused(flight.pending):
            flight.send_again()


class Member(Flight, msgspec.Struct, gc=False, eq=False):
    """An operation of a batch, as long as nothing but its outcome is asked for."""

    _sending: _Sending
    _batch: Batch
    _place: int

    @property
    def pending(self) -> Pending:
        return self._batch.pending(self._place)

    @property
    def number(self) -> int:
        return self._batch.first + self._place

    @property
    def _flight(self) -> Flight:
        return self._sending.flight(self._batch, self._place)

    def taken(self) -> Any:
        return self._batch.outcomes[self._place]

    def is_done(self) -> bool:
        return self._batch.outcomes[self._place] is not None or self._flight.is_done()

    def cancel(self) -> None:
        self._flight.cancel()

    def outcome_steps(self) -> Steps[Any]:
        known = self._batch.outcomes[self._place]
        if known is not None:
            return known
        return (yield from self._flight.outcome_steps())

    def stable_steps(self) -> Steps[None]:
        return self._flight.stable_steps()


_REFUSALS = (SchemaChanged, RefusedError)


def _is_refused(pending: Pending) -> bool:
    return isinstance(pending.exception(), _REFUSALS)


@contextmanager
def _changed_twice() -> Iterator[None]:
    try:
        yield
    except SchemaChanged as error:
        text = f"the table changed twice while the operation was on its way: {error}"
        raise RefusedError(text) from error
