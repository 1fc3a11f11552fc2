"""Streams: each epoch is a load, shown once however often Spark tries it.

An epoch is one of a *query*, which Spark names in its checkpoint, and counts its epochs
there. Only tasks are told which query they work for, and only who commits is told the
epoch; so the load of an epoch begins without either, and its commit says whose it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crescando.client.tickets import LoadTicket
from crescando.errors import SpecError
from crescando.spark.options import WriteOptions
from crescando.spark.writing import Staged, abort, begin, commit, stage
from crescando.types import AT_COMMIT, NAMELESS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY = "sql.streaming.queryId"
"""The property by which Spark tells tasks of their query: the same at every start on one checkpoint."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a task of an epoch ends with.

    Attributes
    ----------
    ticket : bytes
    query : str
    staged : Staged
    """

    ticket: bytes
    query: str
    staged: Staged


def begin_stream(options: WriteOptions, frame: StructType) -> LoadTicket:
    """Begin the load of whatever epoch comes next; ends what a try before it, on one checkpoint, has left."""
    job = None
    if options.checkpoint is not None:
        digest = hashlib.blake2b(options.checkpoint.encode(), digest_size=16)
        job = f"{NAMELESS}stream-{digest.hexdigest()}"
    return begin(options, frame, AT_COMMIT, job=job)


def stage_epoch(options: WriteOptions, ticket: LoadTicket, batches: Iterable[Any]) -> Epoch:
    """Stage the rows of the task that runs in this process."""
    from pyspark import TaskContext

    staged = stage(options.place, ticket, batches, options.timeout_s)
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY)
    return Epoch(ticket.encode(), query or "", staged)


def commit_epoch(options: WriteOptions, epochs: Sequence[Epoch], epoch: int) -> None:
    """Show the rows of an epoch, unless that was done before.

    Raises
    ------
    CrescandoError
        If it cannot be done; Spark tries the epoch again when the query is started again.
    """
    if not epochs:
        return
    job = options.job or epochs[0].query
    if not job:
        raise SpecError("Spark does not say of which query this stream is: say the option job")
    ticket = LoadTicket.decode(epochs[0].ticket)
    commit(options, ticket, [each.staged for each in epochs], job=job, epoch=epoch)


def abort_epoch(options: WriteOptions, epochs: Sequence[Epoch]) -> None:
    """End the load of an epoch that failed; one of which nothing is known ends with its lease."""
    if epochs:
        abort(options, LoadTicket.decode(epochs[0].ticket))
