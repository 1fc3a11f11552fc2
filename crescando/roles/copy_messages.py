"""Messages of the sessions between two storage processes, and what clients ask about copies.

A receiver asks for the *parcels* of a copy by their number, each once; so a session that is lost is
gone on with where it was. What is on its way is bounded by the receiver (RB13 §6.4: data is copied
over direct channels).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from crescando.engine.base import Failed, Piece
from crescando.engine.written import Written
from crescando.roles.load_messages import LateChunk
from crescando.routing.rubberband.messages import MessageId
from crescando.types import ProcessId, Scope


class CopyId(NamedTuple):
    """Which copy of which change of the keyspace."""

    change: MessageId
    number: int


class Outcomes(msgspec.Struct, frozen=True, array_like=True, tag="outcomes"):
    """What writes of one client did to a range before it was copied."""

    client: ProcessId
    written: tuple[Written, ...]
    failed: tuple[Failed, ...]

    @property
    def n_bytes(self) -> int:
        """What they take in memory, about."""
        return sum(each.n_bytes for each in self.written) + 256 * len(self.failed)


class FetchParcels(msgspec.Struct, frozen=True, array_like=True, tag="fetch-parcels"):
    """The receiver of a copy has all parcels before `next`; so many bytes may be on their way to it."""

    copy: CopyId
    next: int
    credit: int


class CopyHead(msgspec.Struct, frozen=True, array_like=True, tag="copy-head"):
    """The sender's first words about a copy in a session: what there is to fetch."""

    copy: CopyId
    n_parcels: int
    n_rows: int
    n_bytes: int


class Parcel(msgspec.Struct, frozen=True, array_like=True, tag="parcel"):
    """A part of a copy."""

    copy: CopyId
    number: int
    content: Outcomes | Piece | LateChunk

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.content.n_bytes


class CopyUnknown(msgspec.Struct, frozen=True, array_like=True, tag="copy-unknown"):
    """The process that was asked knows no such copy: it is behind in the order, or ahead; ask again later."""

    copy: CopyId


class AskCopies(msgspec.Struct, frozen=True, array_like=True, tag="ask-copies"):
    """A client asks a storage process how the copies that it sends and receives get on."""

    request: int


class CopyProgress(msgspec.Struct, frozen=True, array_like=True):
    """How one copy gets on.

    Attributes
    ----------
    copy : CopyId
    sender, receiver : ProcessId
    scope : Scope
    stage : str
        ``queued`` (its sender does not hold the range yet), ``connecting``, ``copying``,
        ``catching up`` or ``ready``; of a sender ``sending`` instead of the latter three.
    blocker : str
        What it waits for; empty if for nothing but its own work.
    n_rows, n_bytes : int
        What there is to copy; 0 while that is not known.
    rows, bytes : int
        How much has arrived; of a sender, has been sent.
    rows_s : float
        Rows copied in a second, on average.
    log_bytes : int
        What is to be executed on it yet.
    """

    copy: CopyId
    sender: ProcessId
    receiver: ProcessId
    scope: Scope
    stage: str
    blocker: str
    n_rows: int
    n_bytes: int
    rows: int
    bytes: int
    rows_s: float
    log_bytes: int


class CopiesTold(msgspec.Struct, frozen=True, array_like=True, tag="copies-told"):
    """The answer to `AskCopies`."""

    request: int
    incoming: tuple[CopyProgress, ...]
    outgoing: tuple[CopyProgress, ...]
