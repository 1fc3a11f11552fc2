"""The contract of an engine, and the results it gives.

An engine executes delivered operations in order, on the rows of the ring arcs
it holds. Its outcome is a function of the operations and the rows alone: never
of a clock, of chance, of other operations' presence or of its own layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.engine.aggregate import States, column_bytes
from crescando.engine.loads import LoadRecords
from crescando.engine.operations import Entry
from crescando.engine.statement import Column, Scalar, Shape
from crescando.engine.written import Written
from crescando.schema import TableSchema
from crescando.types import KeyRange, ProcessId, Scope

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

OUTCOME_BYTES = 256
"""What one outcome without rows takes, about."""


class Rows(msgspec.Struct, frozen=True, array_like=True):
    """Answers of reads of one sender that share a shape.

    Attributes
    ----------
    number, position : ndarray of int64, shape (n,)
    scope : ndarray of int64, shape (n,)
        Index into `scopes`.
    scopes : tuple of Scope
    offsets : ndarray of int64, shape (n + 1,)
        Rows ``offsets[i]:offsets[i + 1]`` of `columns` answer read i.
    names : tuple of str
    columns : tuple of Column
    part : int
        How many pieces of the first read's answer were given before.
    has_more : bool
        Whether the last read's answer goes on in the next piece.
    """

    number: I64
    position: I64
    scope: I64
    scopes: tuple[Scope, ...]
    offsets: I64
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    part: int = 0
    has_more: bool = False

    @property
    def n_bytes(self) -> int:
        """What they take in memory, about."""
        values = sum(map(column_bytes, self.columns))
        return values + 32 * len(self.number) + 64 * len(self.scopes)


class Partials(msgspec.Struct, frozen=True, array_like=True):
    """Mergeable partial aggregates of reads of one sender that share a shape.

    Attributes
    ----------
    number, position : ndarray of int64, shape (n,)
    scope : ndarray of int64, shape (n,)
        Index into `scopes`.
    scopes : tuple of Scope
    offsets : ndarray of int64, shape (n + 1,)
        Groups ``offsets[i]:offsets[i + 1]`` are those of read i; one each if
        the shape does not group.
    keys : tuple of Column
        The grouping terms' values, one row per group; empty if the shape does not group.
    states : tuple of States
        One per aggregate; merged by `engine.grouping`.
    part : int
    has_more : bool
        As of `Rows`.
    """

    number: I64
    position: I64
    scope: I64
    scopes: tuple[Scope, ...]
    offsets: I64
    keys: tuple[Column, ...]
    states: tuple[States, ...]
    part: int = 0
    has_more: bool = False

    def of_read(self, index: int) -> tuple[int, tuple[Column, ...], tuple[States, ...]]:
        """Give the number of groups, the keys and the states of read `index`."""
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        keys = tuple(key.slice(start, stop) for key in self.keys)
        return stop - start, keys, tuple(states.of_groups(start, stop) for states in self.states)

    @property
    def n_bytes(self) -> int:
        """What they take in memory, about."""
        values = sum(map(column_bytes, self.keys)) + sum(states.n_bytes for states in self.states)
        return values + 32 * len(self.number) + 64 * len(self.scopes)


class Failed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A read that met an erroneous row, or an operation whose schema changed."""

    number: int
    position: int
    scope: Scope
    kind: str
    """``read`` (an erroneous row), ``schema`` (it changed; prepare again), ``load`` (it is not in the right
    state), ``repeat`` (its job's epoch was committed before) or ``invalid`` (no honest client sends
    this); applied no in each case."""
    key: tuple[Scalar, ...]
    """The smallest key with an error, for ``read``."""
    text: str


class Results(msgspec.Struct, frozen=True, array_like=True, tag="results"):
    """Everything one execution gave to one sender."""

    process: ProcessId
    """The storage process that answers."""
    to: ProcessId
    executed: int
    """Position up to which this process has executed."""
    rows: tuple[Rows, ...] = ()
    partials: tuple[Partials, ...] = ()
    written: tuple[Written, ...] = ()
    failed: tuple[Failed, ...] = ()

    @property
    def n_bytes(self) -> int:
        """What they take in memory, about: exact for answers, by count for the rest."""
        written = sum(each.n_bytes for each in self.written)
        answers = sum(rows.n_bytes for rows in self.rows) + sum(each.n_bytes for each in self.partials)
        return answers + written + OUTCOME_BYTES * len(self.failed)


class AccessPath(msgspec.Struct, frozen=True, array_like=True):
    """One way to find the rows of an operation.

    Attributes
    ----------
    text : str
        What is looked at, with ``?`` for constants.
    kind : str
        ``point``, ``list``, ``range``, ``prefix``, ``composite`` or ``computed``: through an index
        of the batch's constants; ``scan``: the predicate itself, on every row; ``key``: of rows given.
    cost : float
        Estimated time per row, in that of one look into an index.
    """

    text: str
    kind: str
    cost: float


class Explained(msgspec.Struct, frozen=True, array_like=True):
    """How an engine would execute an operation.

    Attributes
    ----------
    statement, table : str
        Kind of statement, and name.
    n_rows, n_blocks : int
        What a scan reads here.
    paths : tuple of AccessPath
        The first is taken.
    kernels : str
        ``numba``, ``numpy``, or ``python`` for an engine that has none.
    fault : str
        Why it would not execute it; everything else is empty then.
    """

    statement: str = ""
    table: str = ""
    n_rows: int = 0
    n_blocks: int = 0
    paths: tuple[AccessPath, ...] = ()
    kernels: str = ""
    fault: str = ""


class Piece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """Some rows of one table on their way to another process; or what is known of loads beside their rows.

    Attributes
    ----------
    table, version : int
        Of the schema that the columns follow.
    position : ndarray of uint64, shape (n,)
        Ring positions.
    columns : tuple of Column, shape (n,)
        Everything that is stored of a row: the schema's columns in its order and, of a
        table without a primary key, its hidden key behind them.
    load : str
        Of rows that are staged, by which load: they have the load's columns that the schema
        still has, in the load's order, their hidden key as above, and their places in the load.
    records : LoadRecords or None
        If given there is nothing else; comes before all rows.
    """

    table: int
    version: int
    position: U64
    columns: tuple[Column, ...]
    load: str = ""
    records: LoadRecords | None = None

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.position.nbytes + sum(map(column_bytes, self.columns))


class Image(Protocol):
    """The rows of some ring ranges as they were when it was taken: no later write shows in it.

    Rows that loads have staged there are in it, and what is known of loads.

    Attributes
    ----------
    n_rows, n_bytes : int
        What it holds; bytes about.
    n_pieces : int
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_bytes(self) -> int: ...

    @property
    def n_pieces(self) -> int: ...

    def piece(self, index: int) -> Piece:
        """Give some of the rows; equal for equal indices, whenever it is asked for."""
        ...

    def close(self) -> None:
        """Let go of the memory that later writes had to leave alone; called once."""
        ...


class Strips(NamedTuple):
    """Some rows of a pinned read, and where to go on.

    Attributes
    ----------
    names : tuple of str
    columns : tuple of Column
    strip, offset : int
        The first row that is not given yet: in which strip, and behind how many of its rows. With an
        offset above 0 the last strip goes on; behind the last one there is nothing left.
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    strip: int
    offset: int


class PinnedRead(Protocol):
    """One read of a part of a pinned table: first its rows are found, then they are given strip by strip."""

    @property
    def n_bytes(self) -> int:
        """What it keeps in memory, about."""
        ...

    def look(self) -> bool:
        """Look at some more rows; says whether all have been looked at."""
        ...

    def give(self, strip: int, offset: int, bytes_max: int) -> Strips | ReadFault:
        """Give rows from a place on, about as many as weigh so much; called when all were looked at.

        Where strips begin is the same wherever the table is pinned; in which order the rows of
        one come is not.
        """
        ...


class ReadFault(NamedTuple):
    """Why a pinned read fails as a whole: its erroneous row with the smallest key."""

    key: tuple[Scalar, ...]
    text: str


class PinnedTables(Protocol):
    """Some tables as they were when they were pinned: no later write shows, whatever becomes of them.

    Attributes
    ----------
    schemas : tuple of TableSchema
    """

    @property
    def schemas(self) -> tuple[TableSchema, ...]: ...

    def weigh(self, table: int, scope: Scope) -> tuple[int, int]:
        """Give how many rows a table has in some ranges, and what they take in bytes, about."""
        ...

    def read(
        self, shape: Shape, parameters: tuple[Any, ...], key_range: KeyRange, n_strips: int
    ) -> PinnedRead:
        """Begin a read of the rows in a range, which is cut into strips of equal width.

        Raises
        ------
        StatementError
            If it cannot be executed on the tables as they were.
        """
        ...

    def close(self) -> None:
        """Let go of the memory that later writes had to leave alone; called once."""
        ...


Cancelled = Callable[[], Collection[tuple[ProcessId, int]]]
"""Gives the reads, by sender and number, for whose answers nobody waits any more: the same
object as long as nothing has changed. Called between two blocks."""


class Engine(Protocol):
    """Executes operations in order; see `crescando.engine.scan` for the shared scan."""

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        """State the ring arcs whose rows this engine holds: disjoint, ascending, not wrapping.

        Called between two batches, and before any table exists. Rows stay where an old
        arc and a new one overlap, however both are cut; all others are deleted, and what
        is new is empty.
        """
        ...

    def beside(self, arcs: Sequence[KeyRange]) -> Engine:
        """Give an engine for further arcs, with the same tables and no rows.

        It lags behind: what this one executes from now on it executes later, catalog
        changes included, until `adopt` or until it is dropped. The two may share memory
        and are never used at the same time.
        """
        ...

    def take_in(self, piece: Piece) -> None:
        """Add rows that another process's engine held, in arcs of this one."""
        ...

    def adopt(self, other: Engine) -> None:
        """Take over the arcs and rows of an engine that was made by `beside` and has caught up.

        What both know of loads must be the same, unless this one has no arcs. The other one is not
        used any more.
        """
        ...

    def image(self, scope: Scope) -> Image:
        """Take an image of the rows in ranges that this engine holds; costs no copy of them."""
        ...

    def pin(self, tables: Sequence[int]) -> PinnedTables:
        """Pin whole tables as they are now, those that exist; costs no copy of their rows."""
        ...

    def weigh(self, scope: Scope) -> tuple[int, int]:
        """Give how many rows it holds in some ranges, staged ones too, and what they take in bytes, about."""
        ...

    def create_table(self, schema: TableSchema) -> None:
        """Make an empty table with catalog ids set."""
        ...

    def drop_table(self, table: int) -> None:
        """Drop a table and free its rows."""
        ...

    def alter_table(self, schema: TableSchema) -> None:
        """Take a table's new schema: columns added (NULL in every row) or dropped."""
        ...

    def execute(self, operations: Sequence[Entry], cancelled: Cancelled | None = None) -> list[Results]:
        """Execute operations, as if one at a time in ascending position.

        Parameters
        ----------
        operations : sequence of Operation, Operations, Interleaved or LoadStep
            Ascending in position; writes above everything executed before, reads above
            every write executed before. A run stands for its operations one after the
            other, interleaved ones for theirs in the order of their places. The writes of
            a transaction share a position and follow one another; if one of them cannot be
            executed at all, none is. The steps of a load are told as `engine.loads.LoadStep` says.
        cancelled : callable, optional
            Reads that it gives may be left unanswered; nothing else depends on it.

        Returns
        -------
        list of Results
            One per sender that has something to be told, and behind it one per
            further piece of its long answers. Reads report over
            their scope. Writes always report every owned arc they touch,
            whatever their scope: the storage role keeps the counts and sends
            those of the scope. `Results.process` is left to the role.
        """
        ...

    def explain(self, shape: Shape, parameters: tuple[Any, ...]) -> Explained:
        """Tell how an operation would be executed, without executing it; one that cannot be is a fault."""
        ...

    def digest(self, table: int, key_range: KeyRange) -> bytes:
        """Give the order-free digest of the logical rows in a ring range; staged ones are not in it."""
        ...

    def digest_loads(self, key_range: KeyRange) -> bytes:
        """Give the order-free digest of what loads have staged in a ring range, and of their records.

        Engines that hold the range and have executed the same give the same.
        """
        ...

    def statistics(self) -> dict[str, int]:
        """Give counters: rows, bytes, scans, operations, staged_rows, loads, pinned_bytes, …

        Staged rows are counted in bytes, and not in rows; so is what is kept for pins only.
        """
        ...
