"""Transactions: several writes, on any tables, at one position of the order.

Rules of the file: a block's writes are prepared one by one, so that a faulty one
raises where it stands, and sent as one message when the block ends; if it ends
by an exception, nothing is sent. Reads are refused: a transaction is a message,
which nobody can stop half-way to look at an answer. What a write is to depend
on goes into its predicate. If a table has changed meanwhile, nothing of it has
happened, and all of it is prepared again and sent again, once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from crescando.client.base import Request, Step, WriteOutcome
from crescando.client.flight import Again, Catalog, Desk, Flight
from crescando.client.handles import TransactionHandle, WriteHandle
from crescando.client.loading import ROWS_MAX
from crescando.client.prepared import BoundOperation, submit_many
from crescando.client.sizes import checked_size
from crescando.client.table import Table
from crescando.client.waiting import Steps
from crescando.engine.ranges import merge_neighbours, unite
from crescando.engine.statement import STEPS_MAX, Column, Kind
from crescando.errors import RefusedError, StatementError

V = TypeVar("V")

_EMPTY = "it holds no writes"

ROWS_TOGETHER = 8 * ROWS_MAX
"""Rows that one transaction may insert: every owner executes all of them at once."""


class Draft(Desk):
    """A desk that keeps what it is to send until it is told to send all of it as one.

    Parameters
    ----------
    home : Desk
        The session's.
    """

    def __init__(self, home: Desk) -> None:
        super().__init__(home.backend, home.timeout_s)
        self._home = home
        self._requests: list[Request] = []
        self._agains: list[Again] = []
        self._handles: list[WriteHandle] = []
        self._flight: Flight | None = None
        self._ended = ""

    @property
    def home(self) -> Desk:
        """The session's desk."""
        return self._home

    @property
    def flight(self) -> Flight:
        """The one operation that was sent.

        Raises
        ------
        StatementError
            If the block has not ended.
        RefusedError
            If nothing was sent, nor will be.
        """
        if self._flight is None:
            if not self._ended:
                raise StatementError("the transaction is sent when its block ends; ask behind it")
            raise RefusedError(f"nothing was sent: {self._ended}")
        return self._flight

    @property
    def number(self) -> int:
        """The session's number of the operation; 0 if it was not sent."""
        return 0 if self._flight is None else self._flight.number

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known, or nothing was sent and never will be."""
        return bool(self._ended) if self._flight is None else self._flight.is_done()

    @property
    def handle(self) -> TransactionHandle:
        """Everything on its way; raises as `flight`, but if there was nothing to send."""
        if self._ended == _EMPTY:
            return TransactionHandle(self._home, None, ())
        return TransactionHandle(self._home, self.flight, self._handles)

    def check_usable(self) -> None:
        """Refuse new work on a closed session, and behind the end of the block."""
        self._home.check_usable()
        if self._ended:
            raise StatementError("the transaction's block has ended; begin another one")

    def statement(self, key: Hashable, build: Callable[[], V]) -> V:
        """Give what the session's desk remembers."""
        return self._home.statement(key, build)

    def send(self, requests: Sequence[Request], agains: Sequence[Again]) -> tuple[StepFlight, ...]:
        """Keep writes for the end of the block.

        Raises
        ------
        StatementError
            For a read, and beyond what one transaction may hold; then none of them is kept.
        """
        self.check_usable()
        if any(request.shape.kind is Kind.READ for request in requests):
            raise StatementError(
                "a transaction holds writes only: it is one message, executed at one position, and nobody "
                "waits in the middle of it; read before it, and let predicates say what must still hold"
            )
        first = len(self._requests)
        if first + len(requests) > STEPS_MAX:
            raise StatementError(f"a transaction holds at most {STEPS_MAX} writes")
        n_rows = sum(map(_rows_of, [*self._requests, *requests]))
        if n_rows > ROWS_TOGETHER:
            raise StatementError(f"a transaction inserts at most {ROWS_TOGETHER} rows, not {n_rows}")
        self._requests += requests
        self._agains += agains
        return tuple(StepFlight(self, first + place) for place in range(len(requests)))

    def send_one(self, request: Request, again: Again) -> Flight:
        """Note one write."""
        return self.send((request,), (again,))[0]

    def hand_out(self, handles: list[V]) -> list[V]:
        """Remember the handles of writes."""
        self._handles += [handle for handle in handles if isinstance(handle, WriteHandle)]
        return handles

    def submit(self) -> None:
        """Send everything as one operation; nothing if there is nothing."""
        self.check_usable()
        requests, agains = tuple(self._requests), tuple(self._agains)
        self._ended = _EMPTY
        if requests:
            self._ended = "it was not sent"

            def again(catalog: Catalog) -> Request:
                return together([each(catalog) for each in agains])

            whole = checked_size(together(requests), self._home.backend.request_bytes_max)
            (self._flight,) = self._home.send([whole], [again])

    def abandon(self, reason: str) -> None:
        """Send nothing."""
        self._ended = reason


class StepFlight(Flight):
    """One write of a transaction, on its way with the others."""

    __slots__ = ("_draft", "_step")

    def __init__(self, draft: Draft, step: int) -> None:
        # It is no operation of its own: everything is asked of the transaction's.
        self._draft = draft
        self._step = step

    @property
    def number(self) -> int:
        """The session's number of the transaction; 0 before it is sent."""
        return self._draft.number

    def is_done(self) -> bool:
        """Say whether the outcome is known."""
        return self._draft.is_done

    def taken(self) -> None:
        """Nothing: its outcome is a part of the transaction's."""

    def outcome_steps(self) -> Steps[Any]:
        """Wait for the transaction; give what this write of it did."""
        whole: WriteOutcome = yield from self._draft.flight.outcome_steps()
        counts = tuple(count for count in whole.counts if count.step == self._step)
        return WriteOutcome(whole.position, counts)

    def stable_steps(self) -> Steps[None]:
        """Wait until every correct replica has the transaction."""
        yield from self._draft.flight.stable_steps()


class Transaction:
    """Writes that take effect together; made by ``Session.transaction``, used as a block.

    Parameters
    ----------
    desk : Desk
        The session's.
    find : callable
        Gives a table of the session by name.
    """

    def __init__(self, desk: Desk, find: Callable[[str], Table]) -> None:
        self._draft = Draft(desk)
        self._find = find

    def table(self, name: str) -> Table:
        """Give a table whose writes belong to the transaction.

        They return handles as ever, which know nothing before the block has ended.

        Raises
        ------
        UnknownTableError
            With the nearest name, if the cluster has no such table.
        """
        self._find(name)
        return Table(self._draft, name)

    def add(self, operation: BoundOperation[WriteHandle]) -> WriteHandle:
        """Add a write of a prepared statement: ``transaction.add(prepared.bind(params))``."""
        return self.extend([operation])[0]

    def extend(self, operations: Sequence[BoundOperation[WriteHandle]]) -> list[WriteHandle]:
        """Add several writes of prepared statements."""
        return submit_many(self._draft, operations)

    @property
    def handle(self) -> TransactionHandle:
        """The transaction on its way, with one result per write, in their order.

        Raises
        ------
        StatementError
            If the block has not ended.
        RefusedError
            If it ended by an exception, so that nothing was sent.
        """
        return self._draft.handle

    def __enter__(self) -> Self:
        self._draft.check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._draft.submit()
        else:
            self._draft.abandon(f"its block ended by {type(error).__name__}")

    def __repr__(self) -> str:
        return f"<transaction {self._draft.number or 'not sent'}>"


def together(requests: Sequence[Request]) -> Request:
    """Give writes as one request, whose ranges are those of all."""
    first, *others = requests
    ranges = first.ranges
    for other in others:
        ranges = unite(ranges, other.ranges)
    then = tuple(Step(other.shape, other.parameters) for other in others)
    return Request(first.shape, first.parameters, merge_neighbours(ranges), then=then)


def _rows_of(request: Request) -> int:
    brings = request.shape.kind in (Kind.INSERT, Kind.UPSERT)
    return len(request.parameters[0]) if brings and isinstance(request.parameters[0], Column) else 0
