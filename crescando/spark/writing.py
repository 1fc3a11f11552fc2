"""Writes that take effect once, as one: begun by the driver, staged by tasks, committed by the driver.

Tasks are repeated and run twice as Spark likes; each attempt stages its own rows out
of sight, and the commit names the attempts whose results Spark has kept. What is
wrong with rows is a *result* of a task and not its failure, since trying again is of
no use, and the driver is the one who should tell.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crescando.client.progress import PER_LEASE
from crescando.client.tickets import LoadOutcome, LoadTicket, PartReceipt
from crescando.errors import CrescandoError, StatementError, TypeMismatchError
from crescando.spark.connections import Place, connected
from crescando.spark.options import WriteOptions
from crescando.spark.types import check_write
from crescando.types import NAMELESS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ATTEMPT_BITS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt at a partition ends with.

    Attributes
    ----------
    partition : int
    receipt : bytes
        Encoded; empty if there is none.
    fault : str
        What is wrong with its rows; empty if nothing is.
    """

    partition: int
    receipt: bytes = b""
    fault: str = ""


def begin(
    options: WriteOptions, frame: StructType, epoch: int | None = None, *, job: str | None = None
) -> LoadTicket:
    """Check a frame against its table, and begin a load for it.

    Parameters
    ----------
    options : WriteOptions
    frame : StructType
    epoch : int, optional
        Which of the job's loads it is.
    job : str, optional
        Whose it is, if the options do not say.

    Raises
    ------
    CrescandoError
        Before anything is sent, if the frame does not fit.
    """
    with connected(options.place, options.timeout_s) as store:
        table = store.table_nowait(options.table).result(options.timeout_s).schema
        columns = check_write(frame, table, options.write, options.columns)
        return store.begin_load(
            options.table,
            job=options.job or job or f"{NAMELESS}spark-{uuid.uuid4()}",
            epoch=epoch,
            write=options.write,
            rule=options.rule,
            columns=columns,
            lease_s=options.lease_s,
            timeout_s=options.timeout_s,
        ).ticket


def stage(place: Place, ticket: LoadTicket, batches: Iterable[Any], timeout_s: float | None) -> Staged:
    """Stage the rows of the task that runs in this process.

    Parameters
    ----------
    place : Place
    ticket : LoadTicket
    batches : iterable of pyarrow.RecordBatch
    timeout_s : float or None
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise StatementError("rows are staged by Spark's tasks, and this is none")
    partition, attempt = context.partitionId(), context.taskAttemptId() & _ATTEMPT_BITS
    remaining = iter(batches)
    if ticket.is_committed:
        _drain(remaining)
        return Staged(partition)
    with connected(place, timeout_s) as store:
        try:
            with store.stage(ticket, partition, attempt) as part:
                for batch in remaining:
                    part.write(batch, timeout_s)
                return Staged(partition, part.finish(timeout_s).encode())
        except StatementError as error:
            fault = str(error)
    # Spark keeps a worker only if it has read all that it was sent.
    _drain(remaining)
    return Staged(partition, fault=fault)


@contextmanager
def kept_alive(options: WriteOptions, ticket: LoadTicket) -> Iterator[None]:
    """Renew a load's lease while its driver is inside: Spark may compute for long before the first row."""
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(ticket.lease_s / PER_LEASE):
            # If the load has ended, its tasks and its commit say so.
            with suppress(CrescandoError), connected(options.place, options.timeout_s) as store:
                store.resume_load(ticket).renew(options.timeout_s)

    threading.Thread(target=renew, name="crescando-lease", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _drain(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def commit(
    options: WriteOptions,
    ticket: LoadTicket,
    staged: Iterable[Staged | None],
    *,
    job: str | None = None,
    epoch: int | None = None,
) -> LoadOutcome:
    """Show the rows of the attempts that count, at one position; or nothing, and tell why.

    Parameters
    ----------
    options : WriteOptions
    ticket : LoadTicket
    staged : iterable of Staged or None
        None of tasks that failed.
    job, epoch
        Whose the load is, if it was begun without.

    Raises
    ------
    TypeMismatchError
        If rows did not fit the table.
    CrescandoError
        If the load cannot be committed.
    """
    parts = [each for each in staged if each is not None]
    faults = sorted((each.partition, each.fault) for each in parts if each.fault)
    if faults:
        with suppress(CrescandoError):
            # Its lease ends it, if this does not.
            abort(options, ticket)
        more = f" (and {len(faults) - 1} partitions more)" if len(faults) > 1 else ""
        partition, fault = faults[0]
        raise TypeMismatchError(
            f"nothing was written to {ticket.table!r}: partition {partition}: {fault}{more}"
        )
    with connected(options.place, options.timeout_s) as store:
        load = store.resume_load(ticket, job=job, epoch=epoch)
        receipts = [PartReceipt.decode(each.receipt) for each in parts if each.receipt]
        if not receipts and not ticket.is_committed:
            # A frame of no partitions is a load of no rows, and may overwrite.
            with store.stage(ticket, 0, 0) as part:
                receipts.append(part.finish(options.timeout_s))
        return load.commit(receipts, options.timeout_s)


def abort(options: WriteOptions, ticket: LoadTicket) -> None:
    """End a load: nothing of it is ever shown."""
    with connected(options.place, options.timeout_s) as store:
        store.resume_load(ticket).abort(options.timeout_s)
