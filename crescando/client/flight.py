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
from typing import Any, TypeVar

import msgspec

from crescando.client.base import Backend, Pending, Request, SchemaChanged, Step
from crescando.client.promise import Promise, Waitable
from crescando.client.waiting import TIMEOUT_S_DEFAULT, Steps
from crescando.engine.statement import Shape
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
    """

    def __init__(self, backend: Backend, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.backend = backend
        self.timeout_s = timeout_s
        self._generation = _process.generation
        self.lock = threading.Lock()
        self._in_flight = 0
        self._is_closed = False
        self._statements: OrderedDict[Hashable, Any] = OrderedDict()

    @property
    def home(self) -> Desk:
        """The session's own desk, where statements are prepared."""
        return self

    @property
    def in_flight(self) -> int:
        """How many operations are sent and not answered."""
        return self._in_flight

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

    def send(self, requests: Sequence[Request], agains: Sequence[Again]) -> tuple[Flight, ...]:
        """Submit operations as one batch.

        Raises
        ------
        ClosedError
            If the session is closed.
        """
        self.check_usable()
        pendings = self.backend.submit(tuple(requests))
        with self.lock:
            self._in_flight += len(pendings)
        return tuple(
            _Sent(self, request.shape, request.then, pending, again)
            for request, pending, again in zip(requests, pendings, agains, strict=True)
        )

    def send_one(self, request: Request, again: Again) -> Flight:
        """Submit one operation; as `send`."""
        self.check_usable()
        (pending,) = self.backend.submit((request,))
        with self.lock:
            self._in_flight += 1
        return _Sent(self, request.shape, request.then, pending, again)

    def hand_out(self, handle: V) -> V:
        """Give a handle to the caller."""
        return handle

    def landed(self) -> None:
        """Count one operation as answered."""
        with self.lock:
            self._in_flight -= 1


class Flight:
    """One operation on its way.

    Attributes
    ----------
    pending : Pending
        Its first sending.
    """

    __slots__ = ()

    pending: Pending
    _desk: Desk
    _shape: Shape
    _then: tuple[Step, ...]
    _again: Again
    _second: Promise[Pending] | None

    @property
    def number(self) -> int:
        """The session's sequence number of the operation."""
        return self.pending.number

    def is_done(self) -> bool:
        """Say whether the outcome is known."""
        if not self.pending.outcome.done():
            return False
        second = self._second
        if second is None:
            return not _is_refused(self.pending)
        return second.done() and (second.exception() is not None or second.result().outcome.done())

    @property
    def was_taken(self) -> bool:
        """Whether the first sending has its outcome, and it is the operation's."""
        pending = self.pending
        return pending.done() and (pending.exception() is None or not _is_refused(pending))

    def cancel(self) -> None:
        """Call it off, if it is a read."""
        second = self._second
        pendings = [self.pending]
        if second is not None and second.done() and second.exception() is None:
            pendings.append(second.result())
        self._desk.backend.cancel(tuple(pendings))

    def outcome(self) -> Steps[Any]:
        """Wait for the outcome; give it, or raise what it failed with."""
        yield self.pending.outcome
        if not _is_refused(self.pending):
            return self.pending.outcome.result()
        second = self._send_again()
        yield second
        pending = second.result()
        yield pending.outcome
        with _changed_twice():
            return pending.outcome.result()

    def stable(self) -> Steps[None]:
        """Wait until every correct replica has the operation."""
        yield self.pending.stable
        error = self.pending.stable.exception()
        if error is not None and not isinstance(error, _REFUSALS):
            raise error
        if error is None and not (self.pending.outcome.done() and _is_refused(self.pending)):
            return
        # Ordered everywhere and refused everywhere: what counts is the second sending.
        second = self._send_again()
        yield second
        pending = second.result()
        yield pending.stable
        with _changed_twice():
            pending.stable.result()

    def __call__(self, _: Waitable) -> None:
        """Take note that the outcome is known."""
        self._desk.landed()
        if self.pending.exception() is not None and _is_refused(self.pending):
            self._send_again()

    def _send_again(self) -> Promise[Pending]:
        """Prepare and send again, once: the waiter or the callback, whoever comes first."""
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
            shapes = (self._shape, *(step.shape for step in self._then))
            prepared_for = [(shape.table, shape.schema_version) for shape in shapes]
            if isinstance(refusal, RefusedError) and known.issuperset(prepared_for):
                raise refusal
            second.set_result(self._desk.backend.submit((self._again(catalog),))[0])
        except StatementError as error:
            second.set_exception(error)
        except Exception as error:  # noqa: BLE001  # Whoever waits is told, whatever it was.
            # That nobody could tell the catalog is no better news than the refusal itself.
            second.set_exception(refusal if isinstance(refusal, RefusedError) else error)


class _Sent(Flight, msgspec.Struct, gc=False, eq=False):
    """The flight of an operation that stands alone."""

    _desk: Desk
    _shape: Shape
    _then: tuple[Step, ...]
    pending: Pending
    _again: Again
    _second: Promise[Pending] | None = None

    def __post_init__(self) -> None:
        self.pending.add_done_callback(self)


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
