"""Pinned snapshots as values: what a pin is, who holds it, and the parts in which it is read.

Rules of the file: everything here is immutable and travels: a ticket and a part are all that
another session, process or host needs to read. A part is one closed range of the ring, so the
rows of different parts are different ones, and those of all parts of a table are all of its rows. It
is cut into *strips* of equal width, by arithmetic alone, so that every holder of a range
means the same rows by the same strip.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple, TypeVar

import msgspec

from crescando.engine.statement import Column, Scalar
from crescando.errors import SpecError, UnknownTableError
from crescando.schema import TableSchema
from crescando.types import KeyRange, Position, ProcessId, Scope

T = TypeVar("T")

PART_BYTES = 128 << 20
"""About what a part weighs if nobody says how many there are to be."""

STRIP_BYTES = 1 << 20
"""About what the rows of a strip weigh, all columns of them."""

PARTS_MAX = 1 << 16
"""Into so many parts a table is cut at most."""

STRIPS_MAX = 1 << 16
"""Strips of one part: what a reader finds is kept strip by strip. Of the usual weight, they hold 64 GiB."""

LEASE_S_MAX = 86_400.0
"""How long a pin lasts at most, unless it is renewed."""


class PinId(NamedTuple):
    """The ordered message by which a snapshot was pinned; unique for ever."""

    client: ProcessId
    number: int


class PinTicket(msgspec.Struct, frozen=True, array_like=True, tag="pin/2"):
    """What names a pinned snapshot, in any session of any process.

    Attributes
    ----------
    pin : PinId
    position : Position
        Everything before it in the one order shows in the snapshot, and nothing after it.
    tables : tuple of TableSchema
        The pinned tables, as they were at that position.
    holders : tuple of ProcessId
        Everybody who may keep it, those included who have not told.
    lease_s : float
        How long it is kept when nobody reads it; who does renews it.
    """

    pin: PinId
    position: Position
    tables: tuple[TableSchema, ...]
    holders: tuple[ProcessId, ...]
    lease_s: float

    def schema(self, table: str) -> TableSchema:
        """Give the schema of a pinned table, as it was.

        Raises
        ------
        UnknownTableError
            With the nearest name, if it is not pinned.
        """
        for schema in self.tables:
            if schema.name == table:
                return schema
        raise UnknownTableError(table, tuple(schema.name for schema in self.tables))

    def encode(self) -> bytes:
        """Give bytes that `decode` reads, wherever."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> PinTicket:
        """Give the ticket that `encode` wrote.

        Raises
        ------
        SpecError
            If it did not.
        """
        return _decoded(_TICKETS, data, "the ticket of a pinned snapshot")


class PinnedPart(msgspec.Struct, frozen=True, array_like=True, tag="pinned-part/1"):
    """Some of a pinned table's rows: those of one range of the ring.

    Attributes
    ----------
    table : str
    index : int
        Its place among the parts that were made together.
    key_range : KeyRange
    owners : tuple of ProcessId
        Whom to ask: the first one, and the others if it does not answer.
    n_strips : int
        Into how many strips it is cut.
    n_rows : int
        How many rows it has, about.
    """

    table: str
    index: int
    key_range: KeyRange
    owners: tuple[ProcessId, ...]
    n_strips: int
    n_rows: int

    def encode(self) -> bytes:
        """Give bytes that `decode` reads, wherever."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> PinnedPart:
        """Give the part that `encode` wrote.

        Raises
        ------
        SpecError
            If it did not.
        """
        return _decoded(_PARTS, data, "a part of a pinned snapshot")


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """What one storage process holds of a pinned snapshot.

    Attributes
    ----------
    position : int
    arcs : Scope
        The arcs that it owned at the position.
    tables : tuple of TableSchema
    rows, sizes : tuple of tuple of int
        How many rows each table has, arc by arc, and about how many bytes.
    """

    position: int
    arcs: Scope
    tables: tuple[TableSchema, ...]
    rows: tuple[tuple[int, ...], ...]
    sizes: tuple[tuple[int, ...], ...]


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """What do you hold of it?"""

    pin: PinId


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Give some rows of a part, from a place on; see `engine.base.PinnedRead`.

    Attributes
    ----------
    pin : PinId
    shape, parameters : bytes
        The read, as encoded in `engine.statement`.
    key_range : KeyRange
    n_strips, strip, offset : int
    """

    pin: PinId
    shape: bytes
    parameters: bytes
    key_range: KeyRange
    n_strips: int
    strip: int
    offset: int


class Renew(msgspec.Struct, frozen=True, array_like=True, tag="renew"):
    """Let the lease last so long from now on."""

    pin: PinId
    lease_s: float


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """Nobody needs it any more."""

    pin: PinId


PinQuestion = Hold | Fetch | Renew | Release
"""What a storage process may be asked about a pinned snapshot."""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """It is kept."""

    holding: Holding


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag="fetched"):
    """Some rows, and where to go on; see `engine.base.Strips`."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    strip: int
    offset: int


class PinFault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """Why there is no other answer.

    Attributes
    ----------
    kind : str
        ``unknown`` here, ``over``, ``busy`` for the moment; ``read`` for an erroneous row, and
        ``invalid`` for what no honest client sends.
    text : str
    key : tuple of scalar
        Of the erroneous row.
    """

    kind: str
    text: str
    key: tuple[Scalar, ...] = ()


PinAnswer = Kept | Fetched | PinFault
"""What is answered."""


class PinnedArc(NamedTuple):
    """One arc of the ring at the position of a pinned snapshot.

    Attributes
    ----------
    key_range : KeyRange
    owners : tuple of ProcessId
        Who holds it.
    n_rows, n_bytes : tuple of int
        Of each table; bytes about.
    """

    key_range: KeyRange
    owners: tuple[ProcessId, ...]
    n_rows: tuple[int, ...]
    n_bytes: tuple[int, ...]


def parts_of(
    ticket: PinTicket, arcs: Sequence[PinnedArc], table: str, n: int | None
) -> tuple[PinnedPart, ...]:
    """Cut a table into parts: at least one for each arc, more where there are more rows.

    Parameters
    ----------
    ticket : PinTicket
    arcs : sequence of PinnedArc
        Which cover the ring, ascending.
    table : str
    n : int or None
        How many there are to be, if there are no more arcs; by default as many as their size demands.

    Raises
    ------
    UnknownTableError
        If the table is not pinned.
    SpecError
        If `n` is no number of parts.
    """
    schema = ticket.schema(table)
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= PARTS_MAX):
        raise SpecError(f"a table is read in at least one part, and at most {PARTS_MAX:,}, not in {n!r}")
    place = ticket.tables.index(schema)
    counts = _shares([arc.n_rows[place] for arc in arcs], [arc.n_bytes[place] for arc in arcs], n)
    parts: list[PinnedPart] = []
    for arc, count in zip(arcs, counts, strict=True):
        for which, (low, high) in enumerate(strips_of(arc.key_range, count)):
            # Whoever reads all parts asks all owners alike.
            turn = len(parts) % len(arc.owners)
            owners = arc.owners[turn:] + arc.owners[:turn]
            n_strips = max(-(-arc.n_bytes[place] // (count * STRIP_BYTES)), 1)
            n_rows = arc.n_rows[place] * (which + 1) // count - arc.n_rows[place] * which // count
            n_strips = min(n_strips, high - low + 1, STRIPS_MAX)
            parts.append(PinnedPart(table, len(parts), KeyRange(low, high), owners, n_strips, n_rows))
    return tuple(parts)


def strip_width(key_range: KeyRange, n_strips: int) -> int:
    """Give how many positions of the ring are in each strip of a range, fewer in its last ones."""
    return -(-(key_range.high - key_range.low + 1) // n_strips)


def strips_of(key_range: KeyRange, n_strips: int) -> list[KeyRange]:
    """Cut a range into strips of equal width; fewer of them where it has too few positions."""
    low, high = key_range
    width = strip_width(key_range, n_strips)
    return [KeyRange(start, min(start + width - 1, high)) for start in range(low, high + 1, width)]


def _shares(n_rows: Sequence[int], n_bytes: Sequence[int], n: int | None) -> list[int]:
    """Give into how many parts each arc is cut."""
    if n is None:
        return [max(-(-each // PART_BYTES), 1) for each in n_bytes]
    counts = [1] * len(n_rows)
    largest: list[tuple[float, int]] = [(-rows, place) for place, rows in enumerate(n_rows)]
    heapify(largest)
    for _ in range(n - len(n_rows)):
        # The one whose parts are the largest is cut once more.
        _, place = largest[0]
        counts[place] += 1
        heapreplace(largest, (-n_rows[place] / counts[place], place))
    return counts


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_TICKETS = msgspec.msgpack.Decoder(PinTicket)
_PARTS = msgspec.msgpack.Decoder(PinnedPart)


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise SpecError(f"these bytes are not {what}, as its encode() gives it: {error}") from None
