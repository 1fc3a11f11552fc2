"""Handles: what a caller holds of an operation that is on its way.

Rules of the file: every handle can be waited for, polled and awaited; each
wait has a deadline and can be repeated. *Stable* means that every correct
replica has the operation; the *result* means that it is executed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import msgspec

from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.client.eventloop import waits_here
from crescando.client.flight import Desk, Flight
from crescando.client.outcome import WriteResult, summarise
from crescando.client.waiting import Awaited, Steps, checked_timeout, passed, wait, wait_async
from crescando.engine.statement import Returned
from crescando.errors import DeadlineError, RowsRejectedError
from crescando.schema import TableSchema

T = TypeVar("T")


class _Handle(Generic[T]):
    """Waiting, for whatever `_steps` of the subclass waits for."""

    __slots__ = ()

    _desk: Desk

    def _steps(self) -> Steps[T]:
        raise NotImplementedError

    def _name(self) -> str:
        raise NotImplementedError

    def done(self) -> bool:
        """Say whether the result is known, so that `result` does not wait."""
        raise NotImplementedError

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result.

        Parameters
        ----------
        timeout_s : float, optional
            The session's default if not given; 30 s unless it was opened otherwise.

        Raises
        ------
        DeadlineError
            If the time is over first; the operation goes on.
        OperationError
            As the operation failed; its `applied` says what it did.
        """
        self._desk.check_process()
        seconds = checked_timeout(timeout_s, self._desk.timeout_s)
        self._desk.backend.hurry()
        return wait(
            self._steps(), seconds, what=self._name(), twin="await handle, which the _nowait form gives"
        )

    async def wait(self, timeout_s: float | None = None) -> T:
        """Await the result; the twin of `result` for event loops."""
        self._desk.check_process()
        seconds = checked_timeout(timeout_s, self._desk.timeout_s)
        return await Awaited(wait_async(self._steps(), seconds, what=self._name))

    def __await__(self) -> Generator[Any, None, T]:
        return self.wait().__await__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name()}, {'done' if self.done() else 'on its way'}>"


class ControlHandle(_Handle[T]):
    """A change of the catalog, or a question about it, on its way."""

    __slots__ = ("_desk", "_finish", "_future", "_what")

    def __init__(self, desk: Desk, future: Future[Any], finish: Callable[[Any], T], what: str) -> None:
        self._desk = desk
        self._future = future
        self._finish = finish
        self._what = what

    def _steps(self) -> Steps[T]:
        yield self._future
        return self._finish(self._future.result())

    def _name(self) -> str:
        return self._what

    def done(self) -> bool:
        return self._future.done()


class StepsHandle(_Handle[T]):
    """Something that takes several steps, each of which is asked for once.

    Parameters
    ----------
    desk : Desk
    steps : callable
        Gives the steps anew for each wait; those that are done are not done again.
    what : str
    """

    __slots__ = ("_again", "_desk", "_first", "_what")

    def __init__(self, desk: Desk, steps: Callable[[], Steps[T]], what: str) -> None:
        self._desk = desk
        self._again = steps
        self._what = what
        self._first: Any = None

    def begin(self) -> None:
        """Ask for the first step, and wait for nothing."""
        try:
            self._first = next(self._again())
        except StopIteration:
            self._first = None

    def _steps(self) -> Steps[T]:
        return self._again()

    def _name(self) -> str:
        return self._what

    def done(self) -> bool:
        """Say whether the first step is done: of what follows nobody knows before somebody waits."""
        return self._first is None or self._first.done()


class ReadHandle(_Handle[T], msgspec.Struct, Generic[T], gc=False, eq=False):
    """A read on its way."""

    _desk: Desk
    _finish: Callable[[ReadOutcome], T]
    _flight: Flight

    @property
    def number(self) -> int:
        """The session's sequence number of the operation."""
        return self._flight.number

    def result(self, timeout_s: float | None = None) -> T:
        if timeout_s is None:
            outcome = self._flight.taken()
            if outcome is not None:
                self._desk.check_process()
                return self._finish(outcome)
        return super().result(timeout_s)

    def __await__(self) -> Generator[Any, None, T]:
        # As `wait`, with as few steps as most reads need: many thousands are awaited in a second.
        self._desk.check_process()
        flight, began_s, timeout_s = self._flight, time.monotonic(), self._desk.timeout_s
        if flight.taken() is None and not (pending := flight.pending).done():
            waits = waits_here()
            waiter = waits.begin(pending, timeout_s)
            try:
                is_known = yield from waiter
            finally:
                waits.end(waiter, timeout_s)
            if not is_known and not pending.done():
                raise passed(self._name(), timeout_s)
        outcome = flight.taken()
        if outcome is not None:
            return self._finish(outcome)
        left_s = max(0.0, timeout_s - (time.monotonic() - began_s))
        return (yield from wait_async(self._steps(), left_s, what=self._name))

    def cancel(self) -> None:
        """Wait for the result no more: unless it is known, `result` raises `ReadCancelledError`.

        Storage processes do not begin the read any more, and leave it at the next
        block if they are at it. A read has no effect, so nothing else is changed.
        """
        self._flight.cancel()

    def only_result(self, timeout_s: float | None = None) -> T:
        """Wait for the result where nobody can wait again: the read is cancelled when the time is over.

        Raises
        ------
        DeadlineError, OperationError
            As `result`.
        """
        try:
            return self.result(timeout_s)
        except DeadlineError:
            self.cancel()
            raise

    def _steps(self) -> Steps[T]:
        outcome = yield from self._flight.outcome_steps()
        return self._finish(outcome)

    def _name(self) -> str:
        return f"read {self.number}"

    def done(self) -> bool:
        return self._flight.is_done()


class _Durable(_Handle[T]):
    """Waiting for stability, for whatever `_stable_steps` of the subclass waits for."""

    __slots__ = ()

    def _stable_steps(self) -> Steps[None]:
        raise NotImplementedError

    def stable(self, timeout_s: float | None = None) -> None:
        """Wait until every correct replica has the write, executed or not.

        Raises
        ------
        DeadlineError, RefusedError, LostError
            If the time is over first, or the write will never be stable.
        """
        self._desk.check_process()
        seconds = checked_timeout(timeout_s, self._desk.timeout_s)
        self._desk.backend.hurry()
        wait(self._stable_steps(), seconds, what=self._name(), twin="await handle.wait_stable()")

    async def wait_stable(self, timeout_s: float | None = None) -> None:
        """Await stability; the twin of `stable` for event loops."""
        self._desk.check_process()
        seconds = checked_timeout(timeout_s, self._desk.timeout_s)
        await Awaited(wait_async(self._stable_steps(), seconds, what=self._name))


class WriteHandle(_Durable[WriteResult], msgspec.Struct, gc=False, eq=False):
    """A write on its way; a bulk insert's several operations count as one write."""

    _desk: Desk
    _schema: TableSchema
    _returning: Sequence[Returned]
    _flights: Sequence[Flight]

    @staticmethod
    def of_one(desk: Desk, schema: TableSchema, returning: Sequence[Returned], flight: Flight) -> WriteHandle:
        """Give the handle of a write that is one operation."""
        return WriteHandle(desk, schema, returning, (flight,))

    @property
    def number(self) -> int:
        """The session's sequence number of the (last) operation."""
        return self._flights[-1].number

    @property
    def position(self) -> int | None:
        """The place of the (last) operation in the global order, once executed; None before."""
        if not self.done():
            return None
        try:
            return self.result(0, check=False).position
        except Exception:  # noqa: BLE001  # A write that failed has no position.
            return None

    def _steps(self) -> Steps[WriteResult]:
        outcomes: list[WriteOutcome] = []
        for flight in self._flights:
            outcomes.append((yield from flight.outcome_steps()))
        return summarise(self._schema, outcomes, self._returning)

    def _stable_steps(self) -> Steps[None]:
        for flight in self._flights:
            yield from flight.stable_steps()

    def _name(self) -> str:
        first = self._flights[0].number
        return f"write {first}" if first == self.number else f"writes {first} to {self.number}"

    def done(self) -> bool:
        return all(flight.is_done() for flight in self._flights)

    def result(self, timeout_s: float | None = None, *, check: bool = True) -> WriteResult:
        """Wait until the write is executed.

        Parameters
        ----------
        timeout_s : float, optional
            The session's default if not given.
        check : bool
            Whether rejected rows are an error. Otherwise the result tells them.

        Raises
        ------
        RowsRejectedError
            If some rows kept their values.
        DeadlineError
            If the time is over first; the write goes on and may yet take effect.
        OperationError
            As the write failed; its `applied` says what it did.
        """
        flights = self._flights
        if timeout_s is None and len(flights) == 1:
            outcome = flights[0].taken()
            if outcome is not None:
                self._desk.check_process()
                return _checked(summarise(self._schema, (outcome,), self._returning), check)
        return _checked(super().result(timeout_s), check)

    async def wait(self, timeout_s: float | None = None, *, check: bool = True) -> WriteResult:
        """Await the result; the twin of `result` for event loops."""
        return _checked(await super().wait(timeout_s), check)


class TransactionHandle(_Durable[tuple[WriteResult, ...]]):
    """A transaction on its way; made by ``Transaction.handle``.

    Parameters
    ----------
    desk : Desk
    flight : Flight or None
        None for one that holds no writes, of which nothing was sent.
    writes : sequence of WriteHandle
        Its writes, in order.
    """

    __slots__ = ("_desk", "_flight", "_writes")

    def __init__(self, desk: Desk, flight: Flight | None, writes: Sequence[WriteHandle]) -> None:
        self._desk = desk
        self._flight = flight
        self._writes = tuple(writes)

    @property
    def number(self) -> int:
        """The session's sequence number of the transaction; 0 if nothing was sent."""
        return 0 if self._flight is None else self._flight.number

    @property
    def position(self) -> int | None:
        """Its place in the global order, once executed; None before."""
        return self._writes[0].position if self._writes else None

    def _steps(self) -> Steps[tuple[WriteResult, ...]]:
        results: list[WriteResult] = []
        for each in self._writes:
            results.append((yield from each._steps()))
        return tuple(results)

    def _stable_steps(self) -> Steps[None]:
        if self._flight is not None:
            yield from self._flight.stable_steps()

    def _name(self) -> str:
        return f"transaction {self.number}"

    def done(self) -> bool:
        return self._flight is None or self._flight.is_done()

    def result(self, timeout_s: float | None = None, *, check: bool = True) -> tuple[WriteResult, ...]:
        """Wait until the transaction is executed; give one result per write.

        Parameters
        ----------
        timeout_s : float, optional
            The session's default if not given.
        check : bool
            Whether rejected rows are an error. Otherwise the results tell them.

        Raises
        ------
        RowsRejectedError
            If some rows kept their values, of the first write that had any; all others were written.
        DeadlineError
            If the time is over first; the transaction goes on and may yet take effect.
        OperationError
            As the transaction failed; its `applied` says what it did.
        """
        return _each_checked(super().result(timeout_s), check)

    async def wait(self, timeout_s: float | None = None, *, check: bool = True) -> tuple[WriteResult, ...]:
        """Await the results; the twin of `result` for event loops."""
        return _each_checked(await super().wait(timeout_s), check)


def _checked(result: WriteResult, check: bool) -> WriteResult:
    if check and result.rejected:
        rejection = result.rejection
        key, cause = ((), "") if rejection is None else (rejection.key, rejection.cause)
        raise RowsRejectedError(result.affected, result.rejected, key, cause)
    return result


def _each_checked(results: tuple[WriteResult, ...], check: bool) -> tuple[WriteResult, ...]:
    for each in results:
        _checked(each, check)
    return results
