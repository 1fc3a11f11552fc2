"""Atomic loads: rows that many workers stage, and one commit shows, at one position of the order.

Rules of the file: a *driver* begins a load and hands its ticket to *workers*, in other sessions and
processes, who stage partitions of the rows out of sight and hand receipts back. The driver's commit
names one receipt for each partition; whatever else was staged, by attempts that were repeated, run
twice or died, is dropped. So each load is shown once and whole, or not at all, whoever fails. What
makes it so is in the order; here is only what users hold. A worker that is too fast waits (`write`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from crescando.client.base import (
    LOAD_REPEAT,
    LoadEnd,
    Pending,
    Request,
    StagedChunk,
    WriteOutcome,
    load_digest,
)
from crescando.client.chunks import Chunk, Chunks
from crescando.client.flight import Desk
from crescando.client.handles import StepsHandle
from crescando.client.outcome import key_of, rank_of
from crescando.client.tickets import REPEAT, LoadOutcome, LoadTicket, PartReceipt
from crescando.client.waiting import Steps, checked_timeout, wait
from crescando.engine.loads import ATTEMPT_MAX, LoadCount
from crescando.engine.statement import Kind, Shape
from crescando.engine.written import Rejection
from crescando.errors import (
    LOAD_GONE,
    LOAD_PARTLY,
    ClosedError,
    CrescandoError,
    InvariantError,
    LoadConflictError,
    LoadGoneError,
    OperationError,
    RefusedError,
    RowsRejectedError,
    StatementError,
)
from crescando.schema import TableSchema
from crescando.types import FULL_RING

OPEN_BYTES_MAX = 32 << 20
"""What one worker may have on its way: above it, `write` waits."""


class Load:
    """An atomic load, as its driver holds it; made by ``Session.begin_load``.

    As a context manager it ends by `abort`, unless it was committed.

    Attributes
    ----------
    ticket : LoadTicket
        For the workers.
    """

    def __init__(self, desk: Desk, ticket: LoadTicket, schema: TableSchema) -> None:
        self.ticket = ticket
        self._desk = desk
        self._schema = schema
        self._lock = threading.Lock()
        self._pendings: dict[str, Pending] = {}
        self._outcome: LoadOutcome | None = None
        self._rejected: RowsRejectedError | None = None
        self._aborting: Future[None] | None = None
        self._is_over = False

    def commit(self, receipts: Iterable[PartReceipt], timeout_s: float | None = None) -> LoadOutcome:
        """Show the rows of the parts that receipts name, at one position, and end the load.

        May be called again, with the same receipts, if it did not return: what it does, it does once.

        Parameters
        ----------
        receipts : iterable of PartReceipt
            One for each partition.
        timeout_s : float, optional

        Raises
        ------
        StatementError
            If there are no receipts, two of one partition, or one of another load.
        LoadConflictError
            By the rule ``fail``, if keys are taken; the load has ended, and nothing of it is shown.
        LoadGoneError
            If the load has ended: aborted, its lease over, or taken over by a later one of its job.
        RowsRejectedError
            If some rows are not shown, since a constraint forbids it, or another load that is about to be
            shown has reserved their keys. All others are, and the load has ended.
        LoadLostError
            If nobody has some rows any more; nothing is shown.
        DeadlineError
            If the time is over first: whether it is shown is to be found out by calling again.
        """
        return self.commit_nowait(receipts).result(timeout_s)

    def commit_nowait(self, receipts: Iterable[PartReceipt]) -> StepsHandle[LoadOutcome]:
        """Begin a `commit` and give its handle."""
        winners, staged = self._winners(tuple(receipts))
        self._desk.check_usable()
        handle = StepsHandle(self._desk, lambda: self._commit_steps(winners, staged), self._name("commit"))
        # The order is asked now; what follows from its answer, when somebody waits.
        handle.begin()
        return handle

    def abort(self, timeout_s: float | None = None) -> None:
        """End the load: nothing of it is ever shown. One that has ended is left as it is.

        Raises
        ------
        DeadlineError
            If the time is over first; may be called again.
        """
        self.abort_nowait().result(timeout_s)

    def abort_nowait(self) -> StepsHandle[None]:
        """Begin an `abort` and give its handle."""
        handle = StepsHandle(self._desk, self._abort_steps, self._name("abort"))
        handle.begin()
        return handle

    def _abort_steps(self) -> Steps[None]:
        with self._lock:
            if self._is_over or self.ticket.is_committed:
                return
            if self._aborting is None:
                self._aborting = self._desk.backend.abort_load(self.ticket.load)
            future = self._aborting
        yield future
        error = future.exception()
        is_over = error is None or _is_gone(error)
        with self._lock:
            # Whoever tries again orders it again.
            self._aborting = None
            self._is_over = self._is_over or is_over
        if error is not None and not is_over:
            raise error

    def renew(self, timeout_s: float | None = None) -> None:
        """Let the lease begin anew, as workers do while they stage rows.

        Raises
        ------
        LoadGoneError
            If the load has ended.
        """
        self.renew_nowait().result(timeout_s)

    def renew_nowait(self) -> StepsHandle[None]:
        """Begin to `renew` and give the handle."""
        self._desk.check_usable()
        # What is committed needs no lease.
        future = None if self.ticket.is_committed else self._desk.backend.renew_load(self.ticket.load)

        def steps() -> Steps[None]:
            if future is not None:
                yield future
                with _translated():
                    future.result()

        handle = StepsHandle(self._desk, steps, self._name("renewal"))
        handle.begin()
        return handle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outcome is None and not self._is_over:
            try:
                self.abort()
            except (ClosedError, OperationError):
                # Its lease ends it; what is under way already says what went wrong.
                if error is None:
                    raise

    def __repr__(self) -> str:
        state = "over" if self._is_over else "committed" if self._outcome is not None else "open"
        return f"<load {self.ticket.load} into table {self.ticket.table!r}, {state}>"

    def _name(self, what: str) -> str:
        return f"the {what} of load {self.ticket.load} into table {self.ticket.table!r}"

    def _winners(self, receipts: Sequence[PartReceipt]) -> tuple[tuple[tuple[int, int, int, int], ...], int]:
        """Give what the commit names, and where the last of it was staged."""
        if self.ticket.is_committed:
            return (), -1
        if not receipts:
            raise StatementError(
                "there are no receipts; stage one part at least, an empty one counts, or abort the load"
            )
        known: dict[int, PartReceipt] = {}
        for receipt in receipts:
            if not isinstance(receipt, PartReceipt):
                raise StatementError(f"a receipt is what finish() gave, not a {type(receipt).__name__}")
            if receipt.load != self.ticket.load:
                raise StatementError(
                    f"the receipt of partition {receipt.partition} is one of load {receipt.load}, "
                    f"not of {self.ticket.load}"
                )
            if receipt.partition in known and known[receipt.partition] != receipt:
                attempts = sorted((known[receipt.partition].attempt, receipt.attempt))
                raise StatementError(
                    f"partition {receipt.partition} has two receipts, of attempts {attempts[0]} and "
                    f"{attempts[1]}; pass the one that counts"
                )
            known[receipt.partition] = receipt
        winners = tuple(
            (partition, receipt.writer, len(receipt.chunks), receipt.n_rows)
            for partition, receipt in sorted(known.items())
        )
        return winners, max(receipt.position for receipt in receipts)

    def _commit_steps(
        self, winners: tuple[tuple[int, int, int, int], ...], staged: int
    ) -> Steps[LoadOutcome]:
        if self.ticket.is_committed:
            return REPEAT
        if self._outcome is not None:
            if self._rejected is not None:
                raise self._rejected
            return self._outcome
        ticket, n_staged = self.ticket, sum(n_rows for *_, n_rows in winners)
        if ticket.write == "insert" and ticket.rule == "fail":
            sealed = yield from self._order("seal", winners, staged)
            if sealed is None:
                return self._ended(REPEAT)
            n_reserved = sum(count.affected for count in sealed.counts if count.step == LoadCount.RESERVED)
            if n_reserved != n_staged:
                with suppress(OperationError):
                    # If it cannot be ended now, its lease ends it.
                    yield from self._abort_steps()
                raise _conflict(self._schema, sealed, n_staged - n_reserved)
            shown = yield from self._order("publish", (), staged)
        else:
            shown = yield from self._order("commit", winners, staged)
        if shown is None:
            return self._ended(REPEAT)
        outcome = self._ended(_outcome_of(shown))
        self._rejected = _check(shown, outcome, ticket, n_staged, self._schema)
        if self._rejected is not None:
            raise self._rejected
        return outcome

    def _ended(self, outcome: LoadOutcome) -> LoadOutcome:
        self._outcome, self._is_over = outcome, True
        return outcome

    def _order(
        self,
        kind: Literal["commit", "seal", "publish"],
        winners: tuple[tuple[int, int, int, int], ...],
        staged: int,
    ) -> Steps[WriteOutcome | None]:
        """Order a step of the end, once; None if it is a repeat."""
        while True:
            pending = self._submitted(kind, winners, staged)
            yield pending.outcome
            error = pending.exception()
            if error is None:
                outcome: WriteOutcome = pending.result()
                return outcome
            with self._lock:
                # Whoever tries again orders it again; if it was done, that is a repeat.
                if self._pendings.get(kind) is pending:
                    del self._pendings[kind]
            if isinstance(error, RefusedError) and error.reason == LOAD_REPEAT:
                return None
            # Who holds it has changed since they were asked: all are asked again.
            if not (isinstance(error, RefusedError) and error.reason.startswith(LOAD_PARTLY)):
                with _translated():
                    raise error

    def _submitted(
        self,
        kind: Literal["commit", "seal", "publish"],
        winners: tuple[tuple[int, int, int, int], ...],
        staged: int,
    ) -> Pending:
        """Give a step that is on its way, or done."""
        ticket = self.ticket
        with self._lock:
            pending = self._pendings.get(kind)
            if pending is None:
                self._desk.check_usable()
                if kind != "publish":
                    # In front of it: what becomes of that is seen by what becomes of this.
                    self._desk.backend.close_load(ticket.load)
                end = LoadEnd(kind, ticket.load, ticket.table_id, ticket.job, ticket.epoch, winners, staged)
                pending = self._pendings[kind] = Pending()
                shape = Shape(Kind.UPDATE, ticket.table_id, ticket.version)
                self._desk.backend.submit(Request(shape, (), (FULL_RING,), load=end), pending)
            return pending


BROKEN_OFF = "it was broken off while rows were cut and sent"


class StagedPart:
    """One attempt at a partition of a load, as its worker holds it; made by ``Session.stage``.

    As a context manager it gives up what was not finished in its block: without a receipt it never counts.
    """

    def __init__(
        self, desk: Desk, ticket: LoadTicket, schema: TableSchema, partition: int, attempt: int
    ) -> None:
        self.ticket = ticket
        self.partition = partition
        self.attempt = attempt
        self._desk = desk
        self._writer = _writer_of(desk, attempt)
        self._chunks = Chunks(schema, ticket.columns, ticket.write)
        self._cut: Iterator[Chunk] = iter(())
        self._next: Chunk | None = None
        """What is cut and not sent: this one, then the others."""
        self._fault = ""
        """Why it cannot be finished any more."""
        self._open: deque[tuple[int, Pending]] = deque()
        self._open_bytes = 0
        self._digests: list[bytes] = []
        self._n_rows = 0
        self._position = -1
        self._receipt: PartReceipt | None = None

    def write(self, rows: object, timeout_s: float | None = None) -> None:
        """Stage rows, in any form that `Table.insert` takes; waits first, while too much is on its way.

        Parameters
        ----------
        rows : object
        timeout_s : float, optional
            Of the wait, if there is one.

        Raises
        ------
        UnknownColumnError, TypeMismatchError
            If the rows do not fit the load's columns; none of them is taken.
        DeadlineError
            If the cluster does not take in time what was written before. None of the rows is taken:
            they may be written again.
        RowsRejectedError
            If a constraint fails on a row that was written before; the part cannot be finished.
        LoadGoneError
            If the load has ended.
        StatementError
            If the part is finished, or cannot be any more.
        """
        self._check_open()
        self._keep_alive()
        self._send_all(timeout_s)
        self._cut = self._chunks.add(rows, self._desk.backend.borders())
        self._send_some()

    def finish(self, timeout_s: float | None = None) -> PartReceipt:
        """Stage what is left, wait until every row is staged, and give the receipt.

        May be called again if it did not return: every row is staged once.

        Raises
        ------
        RowsRejectedError
            If a constraint fails on a row; the part cannot be committed.
        LoadGoneError, DeadlineError, OperationError
            As `write`.
        """
        if self._receipt is not None:
            return self._receipt
        self._check_open()
        self._keep_alive()
        self._send_all(timeout_s)
        self._cut = self._chunks.rest(self._desk.backend.borders())
        self._send_all(timeout_s)
        while self._open:
            self._take_first(timeout_s)
        self._receipt = PartReceipt(
            self.ticket.load,
            self.partition,
            self.attempt,
            self._n_rows,
            tuple(self._digests),
            self._writer,
            self._position,
        )
        return self._receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._chunks.clear()
        if self._receipt is None and not self._fault:
            self._fault = "its block was left before finish()"

    def __repr__(self) -> str:
        state = "finished" if self._receipt is not None else "broken off" if self._fault else "open"
        return f"<partition {self.partition} of load {self.ticket.load}, attempt {self.attempt}, {state}>"

    def _check_open(self) -> None:
        self._desk.check_usable()
        if self._receipt is not None:
            raise StatementError(
                f"partition {self.partition} is finished; write before finish(), or stage another attempt"
            )
        if self._fault:
            raise StatementError(
                f"attempt {self.attempt} at partition {self.partition} cannot be finished any more: "
                f"{self._fault}; stage another attempt"
            )

    def _keep_alive(self) -> None:
        """Renew the load's lease now and then: there is progress."""
        if self._desk.progress.is_due(self.ticket.load, self.ticket.lease_s):
            # What comes of it need not be waited for: if the load has ended, what is staged says so.
            self._desk.backend.renew_load(self.ticket.load)

    def _send_all(self, timeout_s: float | None) -> None:
        """Send all that is cut; waits while too much is on its way."""
        while not self._send_some():
            self._take_first(timeout_s)

    def _send_some(self) -> bool:
        """Send of what is cut as much as may be on its way; says whether that was all."""
        while True:
            if self._next is None:
                self._next = self._cut_next()
            if self._next is None:
                return True
            if self._open and self._open_bytes + len(self._next.payload) > OPEN_BYTES_MAX:
                if not self._open[0][1].outcome.done():
                    return False
                self._take_first(None)
            else:
                self._send(self._next)

    def _cut_next(self) -> Chunk | None:
        # Whoever breaks this off loses rows that have been taken, and nobody can tell which.
        self._fault = BROKEN_OFF
        try:
            chunk = next(self._cut, None)
        except CrescandoError as error:
            self._fault = str(error)
            raise
        self._fault = ""
        return chunk

    def _send(self, chunk: Chunk) -> None:
        self._fault = BROKEN_OFF
        ticket, digest = self.ticket, load_digest(chunk.payload)
        staged = StagedChunk(
            ticket.load,
            self.partition,
            self._writer,
            len(self._digests),
            chunk.n_rows,
            digest,
            chunk.payload,
        )
        shape, pending = Shape(Kind.UPDATE, ticket.table_id, ticket.version), Pending()
        self._desk.backend.submit(Request(shape, (), chunk.ranges, load=staged), pending)
        self._digests.append(digest)
        self._n_rows += chunk.n_rows
        self._open.append((len(chunk.payload), pending))
        self._open_bytes += len(chunk.payload)
        self._next, self._fault = None, ""

    def _take_first(self, timeout_s: float | None) -> None:
        """Wait until what was sent first is staged."""
        n_bytes, pending = self._open[0]
        seconds = checked_timeout(timeout_s, self._desk.timeout_s)

        def steps() -> Steps[WriteOutcome]:
            yield pending.outcome
            with _translated():
                outcome: WriteOutcome = pending.result()
            return outcome

        outcome = wait(steps(), seconds, what=f"a chunk of {self!r}", twin="await in another thread")
        rejected = [count for count in outcome.counts if count.rejection is not None]
        if rejected:
            first = min((count.rejection for count in rejected if count.rejection), key=rank_of)
            n_rejected = sum(count.rejected for count in rejected)
            key = key_of(self._chunks.schema, first)
            raise RowsRejectedError(self._n_rows - n_rejected, n_rejected, key, first.cause)
        self._open.popleft()
        self._open_bytes -= n_bytes
        self._position = max(self._position, int(outcome.position))
        self._keep_alive()


class _translated:  # noqa: N801  # Reads as a verb where it is used.
    """Tells a load that has ended from other refusals."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RefusedError) and _is_gone(error):
            raise LoadGoneError(error.reason) from None


def _is_gone(error: BaseException) -> bool:
    return isinstance(error, RefusedError) and error.reason.startswith(LOAD_GONE)


def _outcome_of(shown: WriteOutcome) -> LoadOutcome:
    told = dict.fromkeys(LoadCount, 0)
    for count in shown.counts:
        told[LoadCount(count.step)] += count.affected
    return LoadOutcome(
        int(shown.position),
        told[LoadCount.INSERTED],
        told[LoadCount.REPLACED],
        told[LoadCount.KEPT],
        told[LoadCount.UPDATED],
        told[LoadCount.DELETED],
        told[LoadCount.MISSING],
    )


def _check(
    shown: WriteOutcome, outcome: LoadOutcome, ticket: LoadTicket, n_staged: int, schema: TableSchema
) -> RowsRejectedError | None:
    """Give why some rows are not shown, if there are any.

    Raises
    ------
    InvariantError
        If what was shown is not what the receipts say.
    """
    n_rejected = sum(count.rejected for count in shown.counts)
    # Each staged row has one fate; what an overwrite deletes was not staged.
    n_shown = outcome.inserted + outcome.replaced + outcome.kept + outcome.updated + outcome.missing
    n_shown += outcome.deleted if ticket.write == "delete" else 0
    if n_shown + n_rejected != n_staged:
        raise InvariantError(
            f"the commit of load {ticket.load} at {shown.position} has shown {n_shown + n_rejected:,} "
            f"rows, and its receipts are of {n_staged:,}"
        )
    if not n_rejected:
        return None
    first = min((count.rejection for count in shown.counts if count.rejection is not None), key=rank_of)
    return RowsRejectedError(n_shown, n_rejected, key_of(schema, first), first.cause)


def _conflict(schema: TableSchema, sealed: WriteOutcome, n_conflicts: int) -> LoadConflictError:
    smallest: list[Rejection] = [each.rejection for each in sealed.counts if each.rejection is not None]
    keys = [key_of(schema, each) for each in sorted(smallest, key=rank_of)]
    return LoadConflictError(schema.name, n_conflicts, tuple(dict.fromkeys(keys)))


def _writer_of(desk: Desk, attempt: int) -> int:
    """Give a number for one attempt of one worker that no other one has, as far as chance allows."""
    return int.from_bytes(load_digest(f"{attempt}".encode() + desk.nonce())[:8], "big") & ATTEMPT_MAX
