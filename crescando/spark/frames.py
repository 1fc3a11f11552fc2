"""Loads, extracts, look-ups and updates as functions on frames, for every Spark since 3.5.

All of it is ``mapInArrow``: tasks get record batches and give some. What a driver must
know of tasks comes back as the rows of a small frame, one for each partition, of which
Spark keeps those of one attempt. For batch frames, and for those of ``foreachBatch``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crescando.client.expression import Expr
from crescando.client.tickets import LoadOutcome, LoadTicket
from crescando.errors import CrescandoError, SpecError
from crescando.spark.connections import Place
from crescando.spark.options import CLIENT, LOAD_LEASE_S, READ_LEASE_S, read_options, write_options
from crescando.spark.reading import Piece, arrow_schema, condition, look_up, pin
from crescando.spark.types import spark_schema
from crescando.spark.writing import Staged, abort, begin, commit, kept_alive, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECEIPTS = "partition int, receipt binary, fault string"


def load(
    df: DataFrame,
    table: str,
    *,
    url: str | None = None,
    tls: Path | str | None = None,
    client: str = CLIENT,
    write: str = "insert",
    rule: str | None = None,
    columns: Iterable[str] | None = None,
    job: str | None = None,
    epoch: int | None = None,
    confirm_overwrite: str | None = None,
    lease_s: float = LOAD_LEASE_S,
    timeout_s: float | None = None,
) -> LoadOutcome:
    """Write a frame into a table: all of its rows become visible at one position, or none.

    Parameters
    ----------
    df : DataFrame
    table : str
    url, tls, client
        As `crescando.connect` takes them; `tls` is a path that is the same on all hosts. Without
        `url` and `tls`, the driver's ``CRESCANDO_URL`` and ``CRESCANDO_TLS``.
    write : str
        ``insert``, ``upsert``, ``update``, ``delete`` (of the keys that the frame has), or ``overwrite``.
    rule : str, optional
        What an insert does with a key that exists: ``fail`` (by default), ``keep`` or ``replace``.
    columns : iterable of str, optional
        Those that the frame has, if these are not all of the table's.
    job : str, optional
        A name under which the load takes effect once, however often the program runs.
    epoch : int, optional
        Which of the job's loads this is: a number that grows, such as the one that
        ``foreachBatch`` gives. One that is committed, or older, is not loaded again.
    confirm_overwrite : str, optional
        The table's name once more, if `write` is ``overwrite``.
    lease_s : float
        After how long without this driver, or rows from its tasks, everything staged is dropped.
    timeout_s : float, optional
        How long each step may take.

    Returns
    -------
    LoadOutcome

    Raises
    ------
    CrescandoError
        If anything went wrong; nothing of the load is visible then, unless the error
        says that this is unknown.
    """
    options = write_options(
        {
            **_where_to(url, tls, client, table, columns),
            "write": write,
            "rule": rule,
            "job": job,
            "confirm_overwrite": confirm_overwrite,
            "lease_s": lease_s,
            "timeout_s": timeout_s,
        },
        overwrites=write == "overwrite",
    )
    if epoch is not None and job is None:
        raise SpecError("an epoch is one of a job: say job, a name that stays the same for all of its epochs")
    ticket = begin(options, df.schema, epoch)
    if ticket.is_committed:
        return commit(options, ticket, ())
    try:
        with _told_by_spark(), kept_alive(options, ticket):
            task = partial(_staged, options.place, ticket.encode(), options.timeout_s)
            rows = df.mapInArrow(task, _RECEIPTS).collect()
        return commit(options, ticket, [Staged(row[0], bytes(row[1]), row[2]) for row in rows])
    except BaseException:
        with suppress(CrescandoError):
            abort(options, ticket)
        raise


def _staged(place: Place, ticket: bytes, timeout_s: float | None, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    staged = stage(place, LoadTicket.decode(ticket), batches, timeout_s)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([staged.partition], pa.int32()),
            pa.array([staged.receipt], pa.binary()),
            pa.array([staged.fault], pa.string()),
        ],
        names=["partition", "receipt", "fault"],
    )


def update_from(df: DataFrame, table: str, **options: Any) -> LoadOutcome:
    """Set columns of existing rows from a frame that has their keys; all at one position.

    Parameters
    ----------
    df : DataFrame
        The table's key columns, and those that are to change.
    table : str
    **options
        As for `load`, but for `write` and `rule`.

    Returns
    -------
    LoadOutcome
        ``updated`` rows, and ``missing`` ones, whose key the table does not have.
    """
    return load(df, table, write="update", **options)


def extract(
    spark: SparkSession,
    table: str,
    where: str | Expr | None = None,
    *,
    columns: Iterable[str] | None = None,
    url: str | None = None,
    tls: Path | str | None = None,
    client: str = CLIENT,
    n_parts: int | None = None,
    lease_s: float = READ_LEASE_S,
    timeout_s: float | None = None,
) -> DataFrame:
    """Give rows of a table as a frame, all as of one position: that of this call.

    Parameters
    ----------
    spark : SparkSession
    table : str
    where : str or Expr, optional
        Which rows; text or an expression, evaluated by the shared scans.
    columns : iterable of str, optional
    url, tls, client
        As for `load`.
    n_parts : int, optional
        How many partitions the frame has; at least one for each process that keeps rows.
    lease_s : float
        How long the position is kept when no task reads it. A frame that is used later is an error;
        write it somewhere, or cache it, before.
    timeout_s : float, optional

    Returns
    -------
    DataFrame
    """
    options = read_options(
        {**_where_to(url, tls, client, table, columns), "lease_s": lease_s, "timeout_s": timeout_s}
    )
    schema = spark_schema(look_up(options), options.columns)
    pieces = pin(
        options, schema.fieldNames(), condition(where), n_parts or spark.sparkContext.defaultParallelism
    )
    indices = spark.range(0, len(pieces), 1, len(pieces))
    return indices.mapInArrow(partial(_extracted, pieces, schema), schema)


def _extracted(pieces: tuple[Piece, ...], schema: Any, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from pieces[index].batches(arrow_schema(schema))


def _where_to(
    url: str | None, tls: Path | str | None, client: str, table: str, columns: Iterable[str] | None
) -> dict[str, object]:
    named: object = [columns] if isinstance(columns, str) else columns
    return {
        "url": url,
        "tls": tls,
        "client": client,
        "table": table,
        "columns": named,
    }


_TOLD = re.compile(r"crescando\.errors\.(?P<kind>\w+): (?P<text>.*)")


@contextmanager
def _told_by_spark() -> Iterator[None]:
    """Say in one line what made a job fail, if it was something of crescando's."""
    try:
        yield
    except CrescandoError:
        raise
    except Exception as error:
        found = _TOLD.search(str(error))
        if found is None:
            raise
        raise CrescandoError(f"a task failed with {found['kind']}: {found['text']}") from error
