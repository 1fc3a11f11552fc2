"""Configuration messages: what changes a `Rubberband` configuration (RB13 §6.4).

Rules of the file: a message is a frozen value with a tag of its own on the wire;
decoding checks types and nothing else, and what a message *means* is decided by
the configuration at the message's prefix.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from crescando.errors import RemoteProtocolError
from crescando.routing.rubberband.keyspace import Copy, Transformation
from crescando.schema import ColumnDef, TableSchema
from crescando.types import LoadId, ProcessId


class MessageId(NamedTuple):
    """Which message of whom; unique for ever, as incarnations and numbers are."""

    sender: ProcessId
    number: int


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """A process joins: as client, as super, or as storage process on standby.

    It is the process's own first message, and the only kind of message that is
    taken from a process that is no member.
    """

    process: ProcessId


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """A process leaves by its own will; refused while it holds a ring position."""

    process: ProcessId


class Suspect(msgspec.Struct, frozen=True, array_like=True, tag="suspect"):
    """A super votes that a member has failed."""

    accused: ProcessId


class Trust(msgspec.Struct, frozen=True, array_like=True, tag="trust"):
    """A super takes its vote back, since the accused answers again.

    Without it a vote cast in a short pause would count together with another
    one cast years later, and a range whose last replica was merely slow would
    stay unavailable.
    """

    accused: ProcessId


class CreateTable(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    """Create a table; ids and versions inside `schema` are ignored."""

    schema: TableSchema


class DropTable(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    """DropChange a table by name."""

    name: str


class AddColumn(msgspec.Struct, frozen=True, array_like=True, tag="add_column"):
    """Add a nullable column, NULL in every row; its id is given by the catalog."""

    table: str
    column: ColumnDef


class DropColumn(msgspec.Struct, frozen=True, array_like=True, tag="drop_column"):
    """DropChange a column that is no key."""

    table: str
    column: str


class Reconfigure(msgspec.Struct, frozen=True, array_like=True, tag="reconfigure"):
    """Begin a change of the keyspace: expand, contract, replace or rebalance (RB13 §6.4).

    Attributes
    ----------
    transformation : Transformation
    copies : tuple of Copy
        The instruction list; see `planner`.
    predecessor : MessageId or None
        The layout that it was planned for; void for any other (RB13 §6.4, footnote 4).
    """

    transformation: Transformation
    copies: tuple[Copy, ...]
    predecessor: MessageId | None


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """A receiver holds all of a copy, and has executed every write to it that came before this."""

    change: MessageId
    copy: int


class DropChange(msgspec.Struct, frozen=True, array_like=True, tag="drop_change"):
    """A change cannot or shall not go on: of a party, of a super, or of an administrator's client."""

    change: MessageId
    reason: str


class BeginLoad(msgspec.Struct, frozen=True, array_like=True, tag="begin_load"):
    """Begin an atomic load: rows that are staged under it are shown together or not at all.

    Changes nothing if the job has committed this epoch, or a later one. It ends the open loads of
    the job up to this epoch: whoever began them is taken to be dead.

    Attributes
    ----------
    table, version : int
        Catalog id, and the version of the schema that `columns` are of.
    job : str
    epoch : int
    write, rule : str
        What becomes of the rows; see `loads`.
    columns : tuple of int
        Catalog ids of the columns that staged rows have.
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


class RenewLoad(msgspec.Struct, frozen=True, array_like=True, tag="renew_load"):
    """Whoever loads lives: the lease begins anew."""

    load: LoadId


class CloseLoad(msgspec.Struct, frozen=True, array_like=True, tag="close_load"):
    """Nothing more is staged for a load: its end is to come, and whoever holds it looks what he has."""

    load: LoadId


class HaveLoad(msgspec.Struct, frozen=True, array_like=True, tag="have_load"):
    """A storage process has all that was staged by some attempts of a load that is closed, bytes and all.

    Attributes
    ----------
    load : LoadId
    attempts : bytes
        Their digest; see `loads.digest_of`.
    """

    load: LoadId
    attempts: bytes


class Winner(NamedTuple):
    """The attempt at a partition of a load that counts."""

    partition: int
    attempt: int
    n_chunks: int
    n_rows: int


class CommitLoad(msgspec.Struct, frozen=True, array_like=True, tag="commit_load"):
    """Show the rows of the winners, and end the load; not for the rule ``fail``."""

    load: LoadId
    table: int
    job: str
    epoch: int
    winners: tuple[Winner, ...]


class SealLoad(msgspec.Struct, frozen=True, array_like=True, tag="seal_load"):
    """Reserve the keys of the winners, and tell which of them are taken; of the rule ``fail``."""

    load: LoadId
    table: int
    job: str
    epoch: int
    winners: tuple[Winner, ...]


class PublishLoad(msgspec.Struct, frozen=True, array_like=True, tag="publish_load"):
    """Show the rows of a sealed load, and end it."""

    load: LoadId
    table: int
    job: str
    epoch: int


class AbortLoad(msgspec.Struct, frozen=True, array_like=True, tag="abort_load"):
    """End a load; nothing of it is ever shown."""

    load: LoadId


class ExpireLoad(msgspec.Struct, frozen=True, array_like=True, tag="expire_load"):
    """A super found a load's lease over: it ends, unless it was renewed meanwhile."""

    load: LoadId
    renewals: int


class Pin(msgspec.Struct, frozen=True, array_like=True, tag="pin"):
    """Pin tables as they are at this place: every storage process keeps its rows of them for a while.

    It changes nothing. It is known to whoever reads by its own id; see `client.pinned`.

    Attributes
    ----------
    tables : tuple of int
        Catalog ids.
    lease_s : float
        How long, counted by each process from when this is delivered to it.
    """

    tables: tuple[int, ...]
    lease_s: float


class Denied(msgspec.Struct, frozen=True, array_like=True, tag="denied"):
    """In the place of a message whose sender may not order it; refused, with the reason, by every router."""

    reason: str


CatalogMessage = CreateTable | DropTable | AddColumn | DropColumn
KeyspaceMessage = Reconfigure | Ready | DropChange
LoadMessage = (
    BeginLoad
    | RenewLoad
    | CloseLoad
    | HaveLoad
    | CommitLoad
    | SealLoad
    | PublishLoad
    | AbortLoad
    | ExpireLoad
)
ConfigMessage = Join | Leave | Suspect | Trust | CatalogMessage | KeyspaceMessage | LoadMessage | Pin | Denied

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: msgspec.msgpack.Decoder[ConfigMessage] = msgspec.msgpack.Decoder(ConfigMessage)


def encode_message(message: ConfigMessage) -> bytes:
    """Give the payload that carries a configuration message."""
    return _ENCODER.encode(message)


def decode_message(payload: bytes) -> ConfigMessage:
    """Give the configuration message that a payload carries.

    Raises
    ------
    RemoteProtocolError
        If it carries none.
    """
    try:
        return _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed configuration message: {error}") from error
