"""A `Backend` in one thread: real engines, no network, operations in the order of submission.

Rules of the file: what travels between processes is encoded and decoded here
too. Nothing is answered while the backend is held, so that tests can look at
operations on their way without sleeping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any

from crescando.client.base import (
    REQUEST_BYTES_MAX,
    Batch,
    Explanation,
    Failed,
    Groups,
    Pending,
    Piece,
    ReadInParts,
    Request,
    SchemaChanged,
    Step,
    WriteOutcome,
)
from crescando.client.promise import Promise
from crescando.engine.base import Results
from crescando.engine.ranges import intersect
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import (
    Column,
    Kind,
    Operation,
    Shape,
    decode_parameters,
    encode_parameters,
)
from crescando.engine.validate import validate_parameters, validate_shape
from crescando.errors import ClosedError, ReadCancelledError, ReadFailedError, RefusedError
from crescando.schema import TableSchema
from crescando.types import RING_MAX, KeyRange, Position, ProcessId, position
from tests.engine.reports import reports

CLIENT = ProcessId("client", "c1")


class EngineBackend:
    """Runs every operation on `n_engines` engines that share the ring.

    Parameters
    ----------
    n_engines : int
        Each owns two arcs.
    """

    def __init__(self, n_engines: int = 2) -> None:
        n_arcs = 2 * n_engines
        cuts = [(RING_MAX + 1) * n // n_arcs for n in range(n_arcs + 1)]
        arcs = [KeyRange(low, high - 1) for low, high in pairwise(cuts)]
        self.arcs = [tuple(arcs[n::n_engines]) for n in range(n_engines)]
        self.engines = [ScanEngine() for _ in range(n_engines)]
        for engine, owned in zip(self.engines, self.arcs, strict=True):
            engine.set_arcs(owned)
        self.tables: dict[str, TableSchema] = {}
        self.heard: dict[str, TableSchema] = {}
        self.n_batches = 0
        self.n_closed = 0
        self.is_held = False
        self.changed_is_stable = True
        self.fail_next: deque[Exception | None] = deque()
        self._waiting: deque[Callable[[], None]] = deque()
        self._number = 0
        self._n_open = 0
        self._instance = 0
        self._table_id = 0

    # What tests do.
    def hold(self) -> None:
        """Answer nothing from now on."""
        self.is_held = True

    def release(self) -> None:
        """Answer everything that was held back, in order."""
        self.is_held = False
        while self._waiting:
            self._waiting.popleft()()

    def replace_table(self, schema: TableSchema) -> None:
        """Drop a table and make it anew behind the session's back."""
        self._drop(schema.name)
        self._create(schema)

    # The contract.
    @property
    def in_flight(self) -> int:
        return self._n_open

    @property
    def request_bytes_max(self) -> int:
        return REQUEST_BYTES_MAX

    def submit(self, request: Request, pending: Pending) -> None:
        self._check()
        self._number += 1
        pending.number = self._number
        self._send(request, pending)

    def make_room(self) -> None:
        """Nothing waits."""

    def submit_batch(self, requests: Sequence[Request], failed: Failed) -> Batch:
        self._check()
        batch = Batch(self._number + 1, len(requests), failed)
        self._number += len(requests)
        for place, request in enumerate(requests):
            pending = batch.pending(place)
            pending.add_done_callback(partial(_learn, batch))
            self._send(request, pending)
        return batch

    def hurry(self) -> None:
        """Nothing waits."""

    def _check(self) -> None:
        if self.n_closed:
            raise ClosedError("the backend is closed")
        self.n_batches += 1

    def _send(self, request: Request, pending: Pending) -> None:
        assert request.ranges
        self._n_open += 1
        pending.add_done_callback(self._count)
        self._later(partial(self._answer, request, pending))

    def _count(self, _: object) -> None:
        self._n_open -= 1

    def create_table(self, schema: TableSchema) -> Future[TableSchema]:
        future: Future[TableSchema] = Future()
        self._later(lambda: _settle(future, lambda: self._create(schema, is_heard=True)))
        return future

    def explain(self, request: Request) -> Future[tuple[Explanation, ...]]:
        """Let every engine explain."""
        done: Future[tuple[Explanation, ...]] = Future()
        told = (engine.explain(request.shape, request.parameters) for engine in self.engines)
        done.set_result(tuple(Explanation(CLIENT, each, 0.0, 0.0, 0, 0.0, 0.0, 0.0) for each in told))
        return done

    def cancel(self, pendings: tuple[Pending, ...]) -> None:
        """End reads that have no outcome."""
        for pending in pendings:
            if not pending.outcome.done():
                pending.outcome.set_exception(ReadCancelledError("the read was cancelled"))

    def drop_table(self, name: str) -> Future[None]:
        future: Future[None] = Future()

        def drop() -> None:
            if name not in self.tables:
                raise RefusedError(f"no table is named {name!r}")
            self._drop(name)
            self.heard = {known: schema for known, schema in self.heard.items() if known != name}

        self._later(lambda: _settle(future, drop))
        return future

    def catalog(self) -> Mapping[str, TableSchema]:
        return self.heard

    def refresh_catalog(self) -> Future[Mapping[str, TableSchema]]:
        future: Future[Mapping[str, TableSchema]] = Future()

        def refresh() -> Mapping[str, TableSchema]:
            self.heard = dict(self.tables)
            return self.heard

        self._later(lambda: _settle(future, refresh))
        return future

    def close(self, timeout_s: float) -> None:
        self.n_closed += 1

    # How it works.
    def _later(self, task: Callable[[], None]) -> None:
        if self.is_held:
            self._waiting.append(task)
        else:
            task()

    def _create(self, schema: TableSchema, is_heard: bool = False) -> TableSchema:
        if schema.name in self.tables:
            raise RefusedError(f"table {schema.name!r} exists")
        self._table_id += 1
        made = schema.with_ids(self._table_id)
        for engine in self.engines:
            engine.create_table(made)
        self.tables[schema.name] = made
        if is_heard:
            self.heard = {**self.heard, schema.name: made}
        return made

    def _drop(self, name: str) -> None:
        made = self.tables.pop(name)
        for engine in self.engines:
            engine.drop_table(made.id)

    def _answer(self, request: Request, pending: Pending) -> None:
        error = self.fail_next.popleft() if self.fail_next else None
        if error is not None:
            if isinstance(error, SchemaChanged) and self.changed_is_stable:
                pending.stable.set_result(None)
            else:
                pending.stable.set_exception(error)
            pending.outcome.set_exception(error)
            return
        self._instance += 1
        at = position(self._instance, 0)
        pending.stable.set_result(None)
        steps = []
        writes: list[Request | Step] = [request, *request.then]
        for step in writes:
            shape = Shape.decode(step.shape.encode())
            parameters = decode_parameters(shape, encode_parameters(shape, step.parameters))
            schema = next((table for table in self.tables.values() if table.id == shape.table), None)
            if schema is None:
                pending.outcome.set_exception(SchemaChanged("the table is gone"))
                return
            validate_shape(shape, schema)
            validate_parameters(shape, schema, parameters)
            steps.append((shape, parameters))
        results = []
        for engine, arcs in zip(self.engines, self.arcs, strict=True):
            scope = intersect(request.ranges, arcs)
            if scope:
                operations = [
                    Operation(at, CLIENT, pending.number, *step, scope, place if request.then else -1)
                    for place, step in enumerate(steps)
                ]
                results.extend(engine.execute(operations))
        _settle(pending.outcome, lambda: _outcome(steps[0][0], at, results))


def _learn(batch: Batch, pending: Pending) -> None:
    """Let a batch know what one of its operations, for which somebody may wait already, has ended with."""
    error = pending.exception()
    if error is None:
        batch.settle((pending.number,), (pending.result(),))
    else:
        batch.fail(pending.number, error)


def _settle(future: Future[Any] | Promise[Any], task: Callable[[], Any]) -> None:
    try:
        future.set_result(task())
    except Exception as error:  # noqa: BLE001  # The future carries it.
        future.set_exception(error)


def _outcome(shape: Shape, at: Position, results: Sequence[Results]) -> Any:
    for result in results:
        for failed in result.failed:
            if failed.kind == "schema":
                raise SchemaChanged(failed.text)
            raise ReadFailedError(failed.text)
    if shape.kind is not Kind.READ:
        return WriteOutcome(
            at, tuple(c for result in results for w in reports(result.written) for c in w.counts)
        )
    return ReadInParts(
        at,
        tuple(piece for result in results for piece in _pieces(result)),
        tuple(groups for result in results for groups in _groups(result)),
    )


def _groups(result: Results) -> list[Groups]:
    return [
        Groups(partials.scopes[scope], *partials.of_read(index))
        for partials in result.partials
        for index, scope in enumerate(partials.scope.tolist())
    ]


def _pieces(result: Results) -> list[Piece]:
    pieces = []
    for rows in result.rows:
        for index in range(len(rows.number)):
            start, stop = int(rows.offsets[index]), int(rows.offsets[index + 1])
            columns: tuple[Column, ...] = tuple(column.slice(start, stop) for column in rows.columns)
            pieces.append(Piece.of(rows.scopes[int(rows.scope[index])], rows.names, columns))
    return pieces
