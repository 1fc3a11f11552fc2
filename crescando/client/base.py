"""What the client API needs of a running cluster: the `Backend` contract.

`crescando.client.table` and `.store` are written against this module only, so
that the same verbs serve an embedded store and, later, a remote one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from crescando.client.batch import Batch, Failed
from crescando.client.block import Block, Piece
from crescando.client.pending import Pending
from crescando.engine.aggregate import States
from crescando.engine.base import Explained
from crescando.engine.statement import Column, Shape
from crescando.engine.written import Count
from crescando.schema import TableSchema
from crescando.types import KeyRange, Position, ProcessId, Scope

__all__ = [
    "Backend",
    "Batch",
    "Block",
    "Explanation",
    "Failed",
    "Groups",
    "Isolation",
    "Pending",
    "Piece",
    "ReadOutcome",
    "Request",
    "SchemaChanged",
    "Step",
    "WriteOutcome",
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


class ReadOutcome(msgspec.Struct, frozen=True, gc=False):
    """A complete read: its pieces' scopes partition the ranges it asked for.

    Exactly one of `pieces` and `groups` is filled, as the shape demands. Of a basic
    read whose parts were read at several positions `position` is the lowest of these.
    """

    position: Position
    pieces: tuple[Piece, ...] = ()
    groups: tuple[Groups, ...] = ()
    places: tuple[tuple[Scope, Position], ...] = ()
    """Where each part was read, if not all at `position`."""

    @property
    def latest(self) -> Position:
        """The highest position that shows in it."""
        return max([self.position, *(place for _, place in self.places)])


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

    def submit(self, request: Request, pending: Pending) -> None:
        """Submit one data operation, and keep `pending`, which gets its number.

        Raises
        ------
        ClosedError
            If the session or store is closed.
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

    def close(self, timeout_s: float) -> None:
        """Refuse new work, wait for the rest until the time is over, leave the cluster."""
        ...
