"""What drivers and workers of atomic loads hand to one another: tickets, receipts and outcomes, as values.

Rules of the file: a ticket and a receipt travel as bytes, by whatever carries them, and are believed
only as far as they can be checked; what a load is to be is checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from crescando.client.base import DIGEST_BYTES, LOAD_REPEAT, LoadBegin
from crescando.engine.loads import PARTITION_MAX
from crescando.errors import StatementError
from crescando.schema import TableSchema
from crescando.types import AT_COMMIT, LoadId

LoadWriteName = Literal["insert", "upsert", "update", "delete", "overwrite"]
LoadRuleName = Literal["fail", "keep", "replace"]

LEASE_S_MAX = 30 * 24 * 3600.0
JOB_CHARACTERS_MAX = 200
NUMBER_MAX = (1 << 31) - 1
"""Of attempts, as their workers count them."""


class LoadTicket(msgspec.Struct, frozen=True, array_like=True, tag="load-ticket/2"):
    """What a worker must know of a load; travels as bytes.

    Attributes
    ----------
    load : LoadId
    table : str
    table_id, version : int
        Of the schema that rows must fit.
    job : str
    epoch : int
        -1 without one; `AT_COMMIT` if that is said by who commits.
    write, rule : str
    columns : tuple of str
        What every row gives.
    lease_s : float
        After how long without progress the load ends; workers renew it.
    is_committed : bool
        Whether there is nothing to load, since the job has committed this epoch before.
    """

    load: LoadId
    table: str
    table_id: int
    version: int
    job: str
    epoch: int
    write: LoadWriteName
    rule: LoadRuleName
    columns: tuple[str, ...]
    lease_s: float
    is_committed: bool = False

    def encode(self) -> bytes:
        """Give the ticket's bytes."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> LoadTicket:
        """Give the ticket that `encode` wrote.

        Raises
        ------
        StatementError
            If `data` is none.
        """
        try:
            return _TICKETS.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise StatementError(f"these bytes are no ticket of a load: {error}") from None


class PartReceipt(msgspec.Struct, frozen=True, array_like=True, tag="load-receipt/1"):
    """The proof that one attempt at a partition is staged wholly; travels as bytes.

    Attributes
    ----------
    load : LoadId
    partition, attempt, n_rows : int
    chunks : tuple of bytes
        The digests of what was staged, in order.
    writer : int
        Who wrote it: two writers of one attempt are never taken for one.
    position : int
        Where the last of its chunks lies in the order.
    """

    load: LoadId
    partition: int
    attempt: int
    n_rows: int
    chunks: tuple[bytes, ...]
    writer: int
    position: int

    def encode(self) -> bytes:
        """Give the receipt's bytes."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> PartReceipt:
        """Give the receipt that `encode` wrote.

        Raises
        ------
        StatementError
            If `data` is none.
        """
        try:
            receipt = _RECEIPTS.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise StatementError(f"these bytes are no receipt of a part: {error}") from None
        if any(len(digest) != DIGEST_BYTES for digest in receipt.chunks):
            raise StatementError("these bytes are no receipt of a part: a digest has another length")
        return receipt


_ENCODER = msgspec.msgpack.Encoder()
_TICKETS = msgspec.msgpack.Decoder(LoadTicket)
_RECEIPTS = msgspec.msgpack.Decoder(PartReceipt)


class LoadOutcome(msgspec.Struct, frozen=True):
    """What a commit did.

    Attributes
    ----------
    position : int
        Where the rows were shown; -1 of a repeat.
    inserted : int
        Rows that are new.
    replaced : int
        Rows that took the place of an older one.
    kept : int
        Rows that were not shown since there was one of their key.
    updated, deleted : int
    missing : int
        Rows of an update or delete whose key there was not.
    is_repeat : bool
        Whether nothing was done, since the job has committed the epoch before.
    """

    position: int
    inserted: int = 0
    replaced: int = 0
    kept: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0
    is_repeat: bool = False


REPEAT = LoadOutcome(-1, is_repeat=True)


def begin_of(
    schema: TableSchema,
    *,
    job: str,
    epoch: int | None,
    write: str,
    rule: str,
    columns: Sequence[str] | None,
    lease_s: float,
) -> tuple[LoadBegin, tuple[str, ...]]:
    """Check what a load is to be; gives what is ordered, and the columns that its rows give.

    Raises
    ------
    StatementError
        Naming the argument and the mend.
    """
    if epoch != AT_COMMIT:
        _check_epoch(epoch)
    _check_job(job)
    if write not in get_args(LoadWriteName):
        raise StatementError(f"write is one of {', '.join(get_args(LoadWriteName))}, not {write!r}")
    if rule not in get_args(LoadRuleName):
        raise StatementError(f"rule is one of {', '.join(get_args(LoadRuleName))}, not {rule!r}")
    if write != "insert" and rule != "fail":
        raise StatementError(f"a rule goes with write='insert' only; write={write!r} has none")
    if isinstance(lease_s, bool) or not isinstance(lease_s, (int, float)) or not 0 < lease_s <= LEASE_S_MAX:
        raise StatementError(f"lease_s must lie between 0 and {LEASE_S_MAX:.0f}, not {lease_s!r}")
    if write not in ("insert", "overwrite") and not schema.primary_key:
        raise StatementError(f"table {schema.name!r} has no primary key to {write} by")
    names = _columns_of(schema, write, columns)
    ids = tuple(schema.column(name).id for name in names)
    begin = LoadBegin(
        schema.id,
        schema.version,
        job,
        -1 if epoch is None else epoch,
        write,
        rule,
        ids,
        max(1, round(1000 * lease_s)),
    )
    return begin, names


def _columns_of(schema: TableSchema, write: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Give the columns of a load's rows, in the table's order."""
    keys = set(schema.key_columns)
    if columns is None:
        return tuple(name for name in schema.column_names if write != "delete" or name in keys)
    if isinstance(columns, str):
        raise StatementError(f"columns is a list of names, not {columns!r}")
    given = list(columns)
    for name in given:
        schema.column(name)
        if given.count(name) > 1:
            raise StatementError(f"column {name!r} is named twice")
    required = set(keys)
    if write in ("insert", "overwrite"):
        required |= {column.name for column in schema.columns if not column.nullable}
    missing = [name for name in schema.column_names if name in required and name not in given]
    if missing:
        raise StatementError(f"column {missing[0]!r} of table {schema.name!r} must be among the columns")
    if write == "delete" and set(given) != keys:
        raise StatementError(f"a delete takes the key columns only: {', '.join(sorted(keys))}")
    return tuple(name for name in schema.column_names if name in given)


def named(ticket: LoadTicket, job: str | None, epoch: int | None) -> LoadTicket:
    """Give the ticket of a load with the job and epoch that its driver says, if it began without.

    Raises
    ------
    StatementError
        If it did not.
    """
    if not isinstance(ticket, LoadTicket):
        raise StatementError(f"a ticket is what load.ticket gives, not a {type(ticket).__name__}")
    if job is None and epoch is None:
        return ticket
    if ticket.epoch != AT_COMMIT:
        raise StatementError(
            f"the load is one of job {ticket.job!r}; only one begun with AT_COMMIT is named later"
        )
    _check_job(job)
    _check_epoch(epoch)
    return msgspec.structs.replace(ticket, job=job, epoch=-1 if epoch is None else epoch)


def _check_job(job: object) -> None:
    if not isinstance(job, str) or not 0 < len(job) <= JOB_CHARACTERS_MAX:
        raise StatementError(f"job is a name of 1 to {JOB_CHARACTERS_MAX} characters, not {job!r}")


def _check_epoch(epoch: object) -> None:
    if epoch is None:
        return
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
        raise StatementError(f"epoch is a whole number from 0 on, or None, not {epoch!r}")
    if epoch >= 1 << 63:
        raise StatementError(f"epoch must be below 2**63, not {epoch!r}")


def check_ticket(ticket: object, schema: TableSchema, partition: object, attempt: object) -> None:
    """Check what `stage` is given.

    Raises
    ------
    StatementError
        Naming the argument and the mend.
    """
    if not isinstance(ticket, LoadTicket):
        raise StatementError(f"a ticket is what load.ticket gives, not a {type(ticket).__name__}")
    for name, value, most in (("partition", partition, PARTITION_MAX), ("attempt", attempt, NUMBER_MAX)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise StatementError(f"{name} is a whole number from 0 to {most}, not {value!r}")
    if ticket.is_committed:
        raise StatementError(
            f"{LOAD_REPEAT}: job {ticket.job!r} has nothing to stage; see ticket.is_committed"
        )
    if schema.id != ticket.table_id:
        raise StatementError(f"table {ticket.table!r} was dropped and made anew since the load began")
