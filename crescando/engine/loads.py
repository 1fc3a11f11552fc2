"""The steps of an atomic load: rows are staged out of sight, and shown at one place of the order, or never.

Rules of the file: every step is an ordered operation and executed at its place; what it does
depends on the rows and the step alone, so that all owners of a range do the same. What is staged
is *hidden*: no read, no write and no digest of visible rows meets it. A load is

- begun, once (`Begin`);
- staged in chunks (`Stage`), by any number of partitions and attempts, in any interleaving;
- committed (`Commit`), which names the attempts that won; or, if clashes with visible keys are a
  fault, sealed (`Seal`) and then published (`Publish`);
- or aborted (`Abort`), at any time before.

`Stage` must reach the engines that hold an arc which a row lies in, all other steps every engine that holds
an arc of the ring: each keeps the *records* of all loads, which travel with ranges.
"""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from crescando.engine.statement import Column
from crescando.types import ProcessId, Scope

NO_EPOCH = -1
"""The epoch of a job that has none; below all others."""

PARTITION_MAX = (1 << 20) - 1

ATTEMPT_MAX = (1 << 42) - 1
"""So many that two writers that draw theirs blindly do not draw the same one."""

NUMBER_MAX = (1 << 31) - 1
"""Of chunks, and of the rows of a chunk."""

NAME_MAX = 256
"""Characters of a load's id, and of a job's name."""

JOBS_MAX = 1_024
"""Committed jobs that are remembered; the one whose last commit is the oldest is forgotten first.

No more than a cluster's configuration remembers, which tells repeats from new loads."""

LOADS_MAX = 4_096
"""Loads that may be open at a time."""


class LoadWrite(Enum):
    """What becomes of the staged rows when they are shown.

    In each case the outcome is that of executing the rows one by one at the commit's position, in the
    order of their partitions, their chunks, and their places in these.
    """

    INSERT = "insert"
    """New rows, by the load's rule."""
    UPSERT = "upsert"
    """New rows; those that are there take the given columns."""
    UPDATE = "update"
    """Rows that are there take the given columns."""
    DELETE = "delete"
    """Rows that are there go; only keys are given."""
    OVERWRITE = "overwrite"
    """All visible rows of the table go, and these come; of a key that comes twice the last one stays."""


class LoadRule(Enum):
    """What an inserted row does whose key is there, be it visible or staged before it."""

    FAIL = "fail"
    """It is told by the seal, and not shown."""
    KEEP = "keep"
    """It is not shown."""
    REPLACE = "replace"
    """It takes the other one's place; columns that are not given are NULL."""


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="load-begin"):
    """Open a load.

    Attributes
    ----------
    load : str
        The id of this one load; never used for another.
    table : int
    write : LoadWrite
    rule : LoadRule
        Of inserts.
    columns : tuple of int
        Catalog ids of the columns that every chunk gives.
    job : str
        What is loaded, whatever the attempt.
    epoch : int
        Of a job with many: which one. Refused as a repeat if this one or a higher one was committed;
        `AT_COMMIT` if whoever shows the load says of which job and epoch it is.
    """

    load: str
    table: int
    write: LoadWrite
    rule: LoadRule
    columns: tuple[int, ...]
    job: str
    epoch: int = NO_EPOCH


class Stage(msgspec.Struct, frozen=True, array_like=True, tag="load-stage"):
    """Keep some rows out of sight.

    A row on which a constraint fails is refused, alone. A chunk that comes
    twice is kept once, and told as the first time.

    Attributes
    ----------
    load : str
    partition, attempt, chunk : int
        Whose rows they are, and which of its chunks.
    columns : tuple of Column
        In the order of the load's columns.
    """

    load: str
    partition: int
    attempt: int
    chunk: int
    columns: tuple[Column, ...]


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="load-commit"):
    """Show the rows of some attempts, drop all others, and end the load.

    Attributes
    ----------
    load : str
    job, epoch
        As of the load's `Begin`, so that a repeat is told from an unknown load; or what that left open.
    winners : tuple of (int, int)
        Partition and attempt, one for each partition that has rows.
    """

    load: str
    job: str
    epoch: int
    winners: tuple[tuple[int, int], ...]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="load-seal"):
    """Reserve the keys that some attempts have staged, drop all others, and tell of clashes.

    A row whose key is visible, staged before it, or reserved by another load clashes and is
    dropped. Of the others no row with their key can come to be until the load ends.
    A load that is sealed is left as it is, and what it has reserved is told again. Attributes are those of
    `Commit`.
    """

    load: str
    job: str
    epoch: int
    winners: tuple[tuple[int, int], ...]


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="load-publish"):
    """Show the rows of a sealed load, and end it; attributes are those of `Commit`."""

    load: str
    job: str
    epoch: int


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="load-abort"):
    """Drop a load with everything staged; of one that is not open nothing is to be dropped."""

    load: str


LoadWork = Begin | Stage | Commit | Seal | Publish | Abort


class LoadStep(msgspec.Struct, frozen=True, gc=False):
    """One delivered step of a load, ready to execute; stands in a batch among other operations.

    Attributes
    ----------
    position, sender, number, scope
        As of `engine.statement.Operation`.
    work : Begin, Stage, Commit, Seal, Publish or Abort

    A step that cannot be executed is told as `engine.base.Failed`, whose kind is ``repeat`` if
    its job's epoch was committed before, ``load`` if the load is not in the right state, ``schema`` or
    ``invalid`` as with other operations. What any other did is told as the *steps* of one entry
    of `Written`, each of them a `LoadCount`, for every arc.
    """

    position: int
    sender: ProcessId
    number: int
    scope: Scope
    work: LoadWork


class LoadCount(IntEnum):
    """What is told of a load's step, as the `step` of a `Written`: of each the rows affected.

    A commit or a publish tells `INSERTED` to `MISSING`, which together are the rows that were
    staged (of `OVERWRITE` `DELETED` comes in addition); a seal tells `RESERVED`, `CLASHING` and
    `DUPLICATE`; the others tell one.
    """

    STAGED = 0
    """Rows kept out of sight; those refused are told as rejected. Of `Begin`: none."""
    INSERTED = 1
    """Rows that are there now; told as rejected are those that a constraint or a reservation forbids."""
    REPLACED = 2
    KEPT = 3
    """Rows that were not shown since there was one."""
    UPDATED = 4
    DELETED = 5
    MISSING = 6
    """Rows of an update or delete that met none."""
    RESERVED = 7
    CLASHING = 8
    """Rows whose key is visible, or reserved by another load; they are told as rejected."""
    DUPLICATE = 9
    """Rows whose key another one of the load has that comes before; they are told as rejected."""
    DISCARDED = 10
    """Of an abort: staged rows that went."""


class OpenLoad(msgspec.Struct, frozen=True, array_like=True):
    """What an engine knows of an open load beside its rows.

    Attributes
    ----------
    begin : Begin
    position : int
        Where it began.
    sealed_at : int
        Where it was sealed; -1 if it is not.
    """

    begin: Begin
    position: int
    sealed_at: int = -1


class CommittedJob(msgspec.Struct, frozen=True, array_like=True):
    """The highest epoch of a job that was committed, and where."""

    job: str
    epoch: int
    position: int


class LoadRecords(msgspec.Struct, frozen=True, array_like=True):
    """What all engines that hold an arc know alike: open loads in the order of their beginning, and jobs."""

    loads: tuple[OpenLoad, ...] = ()
    jobs: tuple[CommittedJob, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to know."""
        return not (self.loads or self.jobs)
