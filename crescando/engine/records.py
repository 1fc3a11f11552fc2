"""What engines know of loads beside the rows, and whether a step of one can be executed.

Rules of the file: nothing here looks at rows, so that all engines with an arc come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from crescando.engine.keys import I64
from crescando.engine.loads import (
    ATTEMPT_MAX,
    JOBS_MAX,
    LOADS_MAX,
    NAME_MAX,
    NO_EPOCH,
    NUMBER_MAX,
    PARTITION_MAX,
    Abort,
    Begin,
    Commit,
    CommittedJob,
    LoadCount,
    LoadRecords,
    LoadRule,
    LoadStep,
    LoadWork,
    LoadWrite,
    OpenLoad,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.validate import StaleShape, validate_load, validate_rows
from crescando.engine.written import Rejection, Remark, Written
from crescando.errors import StatementError
from crescando.schema import TableSchema
from crescando.types import AT_COMMIT, KeyRange

_SHOWN = (
    LoadCount.INSERTED,
    LoadCount.REPLACED,
    LoadCount.KEPT,
    LoadCount.UPDATED,
    LoadCount.DELETED,
    LoadCount.MISSING,
)
_SEALED = (LoadCount.RESERVED, LoadCount.CLASHING, LoadCount.DUPLICATE)

_TOLD: dict[type[LoadWork], tuple[LoadCount, ...]] = {
    Begin: (LoadCount.STAGED,),
    Stage: (LoadCount.STAGED,),
    Commit: _SHOWN,
    Publish: _SHOWN,
    Seal: _SEALED,
    Abort: (LoadCount.DISCARDED,),
}


class Refused(Exception):  # noqa: N818  # An outcome, not a fault.
    """A step of a load cannot be executed; see `engine.base.Failed`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Records:
    """The open loads and the committed jobs of one engine.

    Attributes
    ----------
    loads : dict of str to OpenLoad
        By id, in the order of their beginning.
    jobs : dict of str to CommittedJob
        By name, in the order of their last commit.
    """

    def __init__(self) -> None:
        self.loads: dict[str, OpenLoad] = {}
        self.jobs: dict[str, CommittedJob] = {}

    def state(self) -> LoadRecords:
        """Give everything."""
        return LoadRecords(tuple(self.loads.values()), tuple(self.jobs.values()))

    def take(self, records: LoadRecords) -> None:
        """Take over what another engine knows."""
        self.loads = {load.begin.load: load for load in records.loads}
        self.jobs = {job.job: job for job in records.jobs}

    def begin(self, work: Begin, position: int, schema: TableSchema | None) -> None:
        """Open a load.

        Raises
        ------
        Refused
        """
        if not 0 < len(work.load) <= NAME_MAX or not 0 < len(work.job) <= NAME_MAX:
            raise Refused("invalid", f"loads and jobs have names of 1 to {NAME_MAX} characters")
        if work.epoch != AT_COMMIT:
            self.check_new(work.job, work.epoch)
        if work.load in self.loads:
            raise Refused("load", f"load {work.load!r} is open already")
        if len(self.loads) >= LOADS_MAX:
            raise Refused(
                "load", f"{LOADS_MAX:,} loads are open, which is as many as may be; end some of them"
            )
        if schema is None:
            raise Refused("schema", f"table {work.table} does not exist")
        try:
            validate_load(work, schema)
        except StaleShape as fault:
            raise Refused("schema", str(fault)) from fault
        except StatementError as fault:
            raise Refused("invalid", str(fault)) from fault
        self.loads[work.load] = OpenLoad(work, position)

    def check_new(self, job: str, epoch: int) -> None:
        """Check that a job's epoch was not committed.

        Raises
        ------
        Refused
        """
        if not 0 < len(job) <= NAME_MAX:
            raise Refused("invalid", f"a job has a name of 1 to {NAME_MAX} characters")
        if not NO_EPOCH <= epoch < 1 << 63:
            raise Refused("invalid", f"{epoch} is no epoch")
        known = self.jobs.get(job)
        if known is not None and known.epoch >= epoch:
            what = f"job {job!r}" if known.epoch == NO_EPOCH else f"epoch {known.epoch} of job {job!r}"
            raise Refused("repeat", f"{what} was committed at position {known.position}")

    def open(self, load: str, schemas: Callable[[int], TableSchema | None]) -> tuple[OpenLoad, TableSchema]:
        """Give an open load, and the schema of its table, which has all of its columns.

        Raises
        ------
        Refused
        """
        found = self.loads.get(load)
        if found is None:
            raise Refused("load", f"load {load!r} is not open: it was committed, aborted, or never begun")
        schema = schemas(found.begin.table)
        if schema is None:
            raise Refused("schema", f"table {found.begin.table} does not exist any more")
        for column_id in found.begin.columns:
            if schema.column_by_id(column_id) is None:
                raise Refused(
                    "schema", f"column {column_id} of table {schema.name!r} does not exist any more"
                )
        return found, schema

    def to_end(
        self, work: Commit | Seal | Publish, schemas: Callable[[int], TableSchema | None]
    ) -> tuple[OpenLoad, TableSchema]:
        """Give the load that a step is to show, or to seal.

        Raises
        ------
        Refused
        """
        self.check_new(work.job, work.epoch)
        load, schema = self.open(work.load, schemas)
        begin = load.begin
        if begin.epoch != AT_COMMIT and (begin.job, begin.epoch) != (work.job, work.epoch):
            raise Refused("invalid", f"load {work.load!r} is of another job or epoch")
        is_strict = begin.write is LoadWrite.INSERT and begin.rule is LoadRule.FAIL
        if isinstance(work, Publish):
            if load.sealed_at < 0:
                raise Refused("load", f"load {work.load!r} is not sealed")
            return load, schema
        if load.sealed_at >= 0 and isinstance(work, Commit):
            raise Refused("load", f"load {work.load!r} is sealed, and is published or aborted")
        if isinstance(work, Commit) and is_strict:
            raise Refused("load", f"load {work.load!r} must be sealed, and is then published or aborted")
        if isinstance(work, Seal) and not is_strict:
            raise Refused("load", f"load {work.load!r} has another rule than {LoadRule.FAIL.value!r}")
        partitions = {partition for partition, _ in work.winners}
        if len(partitions) < len(work.winners):
            raise Refused("invalid", "two attempts of one partition cannot both win")
        if not all(_is_attempt(*winner) for winner in work.winners):
            raise Refused("invalid", NO_ATTEMPT)
        return load, schema

    def seal(self, load: OpenLoad, position: int) -> None:
        """Note that a load is sealed."""
        self.loads[load.begin.load] = msgspec.structs.replace(load, sealed_at=position)

    def commit(self, end: Commit | Publish, position: int) -> None:
        """Note that a load is shown."""
        del self.loads[end.load]
        self.jobs.pop(end.job, None)
        self.jobs[end.job] = CommittedJob(end.job, end.epoch, position)
        if len(self.jobs) > JOBS_MAX:
            del self.jobs[next(iter(self.jobs))]


def check_stage(work: Stage, begin: Begin, schema: TableSchema) -> None:
    """Check what comes to be staged.

    Raises
    ------
    Refused
    """
    if not _is_attempt(work.partition, work.attempt):
        raise Refused("invalid", NO_ATTEMPT)
    if not 0 <= work.chunk <= NUMBER_MAX:
        raise Refused("invalid", f"chunks are numbers from 0 to {NUMBER_MAX}")
    try:
        validate_rows(begin.columns, schema, work.columns)
    except StaleShape as fault:
        raise Refused("schema", str(fault)) from fault
    except StatementError as fault:
        raise Refused("invalid", str(fault)) from fault


NO_ATTEMPT = f"partitions are numbers from 0 to {PARTITION_MAX}, and attempts from 0 to {ATTEMPT_MAX}"


def _is_attempt(partition: int, attempt: int) -> bool:
    return 0 <= partition <= PARTITION_MAX and 0 <= attempt <= ATTEMPT_MAX


def part_of(partition: int, attempt: int) -> int:
    """Give a partition and an attempt at it as one number, by which partitions ascend."""
    return partition << ATTEMPT_MAX.bit_length() | attempt


def place(chunk: int, row: int) -> int:
    """Give a chunk and a row of it as one number, by which rows ascend."""
    return chunk << 32 | row


class Rejected(NamedTuple):
    """How many rows of an arc were rejected, and the smallest of them."""

    n_rows: int
    smallest: Rejection


def tell(
    step: LoadStep, arcs: tuple[KeyRange, ...], affected: I64, rejected: Mapping[int, Rejected]
) -> Written:
    """Give what a step of a load did.

    Parameters
    ----------
    step : LoadStep
    arcs : tuple of KeyRange
    affected : ndarray of int64, shape (len(LoadCount), n_arcs)
    rejected : mapping of int to Rejected
        By count and arc, at ``count * n_arcs + arc``.
    """
    counts = _TOLD[type(step.work)]
    remarks = []
    for write, count in enumerate(counts):
        for arc in range(len(arcs)):
            found = rejected.get(int(count) * len(arcs) + arc)
            if found is not None:
                remarks.append(Remark(write, arc, found.n_rows, found.smallest))
    return Written(
        np.full(len(counts), step.number),
        np.full(len(counts), step.position),
        np.array(counts, np.int64),
        arcs,
        affected[list(counts)].ravel(),
        tuple(remarks),
    )
