"""What the client API needs of a running cluster: the `Backend` contract.

`crescando.client.table` and `.store` are written against this module only, so
that the same verbs serve an embedded store and, later, a remote one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol, overload

import msgspec

from crescando.client.batch import Batch, Failed
from crescando.client.block import Block, Piece
from crescando.client.pending import Pending
from crescando.client.pinned import PinAnswer, PinId, PinQuestion
from crescando.engine.aggregate import States
from crescando.engine.base import Explained
from crescando.engine.statement import Column, Shape
from crescando.engine.written import Count
from crescando.schema import TableSchema
from crescando.types import KeyRange, LoadId, Position, ProcessId, Scope

__all__ = [
    "DIGEST_BYTES",
    "LOAD_REPEAT",
    "Alike",
    "Backend",
    "Batch",
    "Block",
    "Explanation",
    "Failed",
    "Groups",
    "Isolation",
    "LoadBegin",
    "LoadEnd",
    "Pending",
    "Piece",
    "ReadAtOnce",
    "ReadInParts",
    "ReadOutcome",
    "Request",
    "SchemaChanged",
    "StagedChunk",
    "Step",
    "WriteOutcome",
    "load_digest",
]

Isolation = Literal["sequential", "snapshot", "basic"]
"""How a read is placed: *sequential* in its session's order; *snapshot* at the lead router's position;
*basic* wherever each of its owners is, behind what the session has seen."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that one storage process answered for one scope of a read."""

    scope: Scope
    n_groups: int
    keys: tuple[Column, ...]
    states: tuple[States, ...]
    """One per aggregate; merged by `engine.grouping`."""


class ReadOutcome:
    """A complete read: its pieces' scopes partition the ranges it asked for.

    Exactly one of `pieces` and `groups` is filled, as the shape demands. Of a basic
    read whose parts were read at several positions `position` is the lowest of these.
    """

    __slots__ = ()

    position: Position

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The rows that were found."""
        return ()

    @property
    def groups(self) -> tuple[Groups, ...]:
        """The groups that were found."""
        return ()

    @property
    def places(self) -> tuple[tuple[Scope, Position], ...]:
        """Where each part was read, if not all at `position`."""
        return ()

    @property
    def latest(self) -> Position:
        """The highest position that shows in it."""
        return max([self.position, *(place for _, place in self.places)])


class ReadInParts(ReadOutcome, msgspec.Struct, frozen=True, gc=False):
    """A read that was answered in any number of pieces, or by groups."""

    position: Position
    pieces: tuple[Piece, ...] = ()
    groups: tuple[Groups, ...] = ()
    places: tuple[tuple[Scope, Position], ...] = ()


class ReadAtOnce(ReadOutcome, Piece, frozen=True, gc=False):
    """A read that was answered in one piece, as most are: that piece. As such, one of no rows is false."""

    position: Position

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Itself."""
        return (self,)


class WriteOutcome(msgspec.Struct, frozen=True, gc=False):
    """A complete write: the counts' ranges partition the ranges it touched, for each step anew."""

    position: Position
    counts: tuple[Count, ...]

    @property
    def latest(self) -> Position:
        """The highest position that it tells of."""
        return self.position


@dataclass(frozen=True, slots=True)
class Step:
    """A further write of a transaction."""

    shape: Shape
    parameters: tuple[Any, ...]


class Explanation(msgspec.Struct, frozen=True, array_like=True):
    """What one storage process says of an operation that is not executed.

    Attributes
    ----------
    process : ProcessId
    explained : Explained
        How its engine would find the rows; ``paths[0]`` is the index it would use.
    cycle_s, cycle_operations : float
        What its last cycles took, and how many operations shared one.
    queued : int
        What waits for a cycle.
    backlog_s : float
        How long that is expected to take.
    scan_s, each_s : float
        What this shape costs a cycle, learned: once, and for each of its operations.
    """

    process: ProcessId
    explained: Explained
    cycle_s: float
    cycle_operations: float
    queued: int
    backlog_s: float
    scan_s: float
    each_s: float

    @property
    def expected_s(self) -> float:
        """When to expect the result: behind the running cycle and what waits, with the next one."""
        return self.cycle_s + self.backlog_s + self.scan_s + self.each_s

    def __str__(self) -> str:
        found = self.explained
        if found.fault:
            return f"{self.process}: not executed: {found.fault}"
        lines = [
            f"{self.process}: {found.statement} on {found.table}, {found.n_rows:,} rows in "
            f"{found.n_blocks:,} blocks, kernels in {found.kernels}",
            *(
                f"  {'by' if place == 0 else 'or'} {path.kind}: {path.text} (cost {path.cost:.1f} a row)"
                for place, path in enumerate(found.paths)
            ),
            f"  cycles of {1e3 * self.cycle_s:.1f} ms share {self.cycle_operations:.0f} operations; "
            f"{self.queued:,} wait; result expected in {1e3 * self.expected_s:.1f} ms",
        ]
        return "\n".join(lines)


class StagedChunk(msgspec.Struct, frozen=True, gc=False):
    """Some rows of an atomic load: every owner has their bytes before they are ordered.

    Attributes
    ----------
    load : LoadId
    partition, attempt, chunk : int
        Whose rows they are, and which of its chunks.
    n_rows : int
    digest : bytes
        `load_digest` of the payload.
    payload : bytes
        The columns, as `engine.statement` encodes those of an insert.
    """

    load: LoadId
    partition: int
    attempt: int
    chunk: int
    n_rows: int
    digest: bytes
    payload: bytes


class LoadEnd(msgspec.Struct, frozen=True, gc=False):
    """A step that ends an atomic load, or prepares its end.

    Attributes
    ----------
    kind : str
        ``commit``; or ``seal``, then ``publish``.
    load : LoadId
    table : int
    job : str
    epoch : int
    winners : tuple of (int, int, int, int)
        Partition, attempt, chunks and rows of each attempt that counts.
    staged : int
        The position of the last chunk that counts.
    """

    kind: Literal["commit", "seal", "publish"]
    load: LoadId
    table: int
    job: str
    epoch: int
    winners: tuple[tuple[int, int, int, int], ...] = ()
    staged: int = -1


class LoadBegin(msgspec.Struct, frozen=True, gc=False):
    """What is said of an atomic load when it begins.

    Attributes
    ----------
    table, version : int
        Catalog id, and the schema's version.
    job : str
    epoch : int
    write, rule : str
    columns : tuple of int
        Catalog ids of the columns that its rows give.
    lease_ms : int
    """

    table: int
    version: int
    job: str
    epoch: int
    write: str
    rule: str
    columns: tuple[int, ...]
    lease_ms: int


LOAD_REPEAT = "the job has committed this epoch, or a later one, before"
"""Why a step that ends a load has changed nothing."""

DIGEST_BYTES = 16


def load_digest(payload: bytes) -> bytes:
    """Give what names the bytes of a chunk."""
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES).digest()


REQUEST_BYTES_MAX = 64 << 20
"""How long a request may be if nobody says otherwise, be it one insert or a transaction. It is one message
of the order, and whoever takes messages of clients has to have room for it."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One data operation, or the writes of one transaction, ready to be submitted."""

    shape: Shape
    parameters: tuple[Any, ...]
    ranges: tuple[KeyRange, ...]
    """Disjoint, ascending ring ranges that the operation can touch; never empty."""
    isolation: Isolation = "sequential"
    """Of a read; a write is always sequential."""
    then: tuple[Step, ...] = ()
    """The writes of a transaction after its first."""
    load: StagedChunk | LoadEnd | None = None
    """Of a step of an atomic load: what it is; the shape tells the table and nothing else."""
    order: bytes = b""
    """Of such a step when it can be ordered: what its message says, instead of shape and parameters."""
    is_config: bool = False
    """Whether that is a configuration message."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike(Sequence[Request]):
    """Data operations of one shape, none a transaction or a step of a load.

    Each becomes a `Request` where somebody looks at it.

    Attributes
    ----------
    shape : Shape
    parameters : list of tuple
    ranges : list of tuple of KeyRange
        Of each operation.
    isolation : Isolation
    """

    shape: Shape
    parameters: list[tuple[Any, ...]]
    ranges: list[tuple[KeyRange, ...]]
    isolation: Isolation

    def __len__(self) -> int:
        return len(self.parameters)

    @overload
    def __getitem__(self, place: int) -> Request: ...
    @overload
    def __getitem__(self, place: slice) -> Alike: ...
    def __getitem__(self, place: int | slice) -> Request | Alike:
        if isinstance(place, slice):
            return Alike(self.shape, self.parameters[place], self.ranges[place], self.isolation)
        return Request(self.shape, self.parameters[place], self.ranges[place], self.isolation)


class SchemaChanged(Exception):  # noqa: N818  # A signal to prepare again, not an error.
    """The statement was prepared against a schema that changed; applied `no`."""


class Backend(Protocol):
    """One client process of a cluster: an ordered stream of operations (a session).

    Every method is thread-safe and none blocks; waiting is the caller's.
    """

    @property
    def in_flight(self) -> int:
        """How many data operations are submitted and have no outcome."""
        ...

    @property
    def request_bytes_max(self) -> int:
        """How long a request may be: longer ones must not be submitted."""
        ...

    def submit(self, request: Request, pending: Pending) -> None:
        """Submit one data operation, and keep `pending`, which gets its number.

        In an event loop it sets off at the end of the loop's turn, with what the turn's other tasks submit.

        Raises
        ------
        ClosedError
            If the session or store is closed.
        """
        ...

    def make_room(self) -> None:
        """Let a thread wait that is far ahead of the store's loop: to be called between two of many batches.

        In an event loop, which must not wait, it does nothing.
        """
        ...

    def submit_batch(self, requests: Sequence[Request], failed: Failed) -> Batch:
        """Submit data operations, in order, as one batch.

        Parameters
        ----------
        requests : sequence of Request
        failed : callable
            See `Batch`.

        Raises
        ------
        ClosedError
            If the session or store is closed.
        """
        ...

    def hurry(self) -> None:
        """Have what was submitted set off now: what a task submits does so with its event loop's turn."""
        ...

    def explain(self, request: Request) -> Future[tuple[Explanation, ...]]:
        """Ask every storage process that can be reached what it would do, outside the order."""
        ...

    def cancel(self, pendings: tuple[Pending, ...]) -> None:
        """Call off reads: those without an outcome fail with `ReadCancelledError`, and are not executed
        where they have not been. Writes are left alone.
        """
        ...

    def create_table(self, schema: TableSchema) -> Future[TableSchema]:
        """Order a table's creation; gives the schema with catalog ids, once executed everywhere."""
        ...

    def drop_table(self, name: str) -> Future[None]:
        """Order a table's removal."""
        ...

    def catalog(self) -> Mapping[str, TableSchema]:
        """Give the newest catalog this client has heard of; another object when it is another one."""
        ...

    def refresh_catalog(self) -> Future[Mapping[str, TableSchema]]:
        """Ask the routers for the present catalog."""
        ...

    def begin_load(self, begin: LoadBegin) -> Future[tuple[LoadId, bool]]:
        """Order the beginning of an atomic load.

        Gives its id, and whether there is nothing to load since its job has committed the epoch.
        """
        ...

    def renew_load(self, load: LoadId) -> Future[None]:
        """Order that the lease of a load begins anew."""
        ...

    def close_load(self, load: LoadId) -> Future[None]:
        """Order that nothing more is staged for a load, whose end is to be ordered next."""
        ...

    def abort_load(self, load: LoadId) -> Future[None]:
        """Order the end of a load, of which nothing is ever shown."""
        ...

    def borders(self) -> tuple[int, ...]:
        """Give where the ring's arcs begin, as far as this client has heard; perhaps nothing."""
        ...

    def pin(self, tables: tuple[int, ...], lease_s: float) -> Future[PinId]:
        """Order a pin of tables, by catalog ids, behind what was submitted; done when it is stable."""
        ...

    def holders(self) -> Future[tuple[ProcessId, ...]]:
        """Ask the routers for the storage processes there are."""
        ...

    def ask_pinned(self, process: ProcessId, question: PinQuestion) -> Future[PinAnswer]:
        """Ask a storage process about a pinned snapshot, outside the order; fails if it cannot be reached."""
        ...

    def close(self, timeout_s: float) -> None:
        """Refuse new work, wait for the rest until the time is over, leave the cluster."""
        ...
