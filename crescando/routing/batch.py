"""Batches of messages as columns: what senders submit and destinations receive.

Rules of the file: a batch is immutable; its routing headers are fixed-width
NumPy columns so that a router routes without decoding payloads; `shared` and
payloads are opaque to routers. A single message is a batch of one. Batches
refer to nothing that could refer to them, and the garbage collector passes over
them (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import gt

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from crescando.types import MESSAGES_PER_INSTANCE_MAX, KeyRange, MessageKind, ProcessId, Scope

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

CONFIG = int(MessageKind.CONFIG)
"""As it stands in a column; an enumeration's member costs ten times a number there."""

_MEMBERS = {int(kind): kind for kind in MessageKind}
_KINDS = bytes(_MEMBERS)
_UINT8, _UINT32, _UINT64, _INT64 = map(np.dtype, (np.uint8, np.uint32, np.uint64, np.int64))

SUBMISSION_TYPES = _UINT8, _INT64, _UINT32, _INT64, _UINT64, _UINT64, _INT64
"""What the columns of a submission hold, in the order of its fields."""

_POINTS_MAX = 1024
_POINTS = np.arange(_POINTS_MAX + 1, dtype=_INT64).tobytes()
"""Offsets of ranges where each message has one, as most messages do, for so many messages."""

FEW = 8
"""So few numbers are looked at faster one by one than as an array."""

NUMBER_MAX = (1 << 63) - 1
"""Numbers are kept in columns of 64 bits."""

HEADER_BYTES = 64
"""What a message weighs beside its payload, and a submission beside its messages; about."""


class Message(msgspec.Struct, frozen=True):
    """One message, as the scalar form of a Config sees it.

    Parameters
    ----------
    sender : ProcessId
    number : int
        The sender's sequence number, from 1.
    kind : MessageKind
    table : int
        Catalog id, or -1.
    ranges : tuple of KeyRange
        Disjoint closed ring ranges that a data message can touch.
    replica_offset : int
        Random number with which a read spreads load (RB13 §6.3).
    payload : bytes
        Opaque for data messages; a configuration message's own encoding.
    """

    sender: ProcessId
    number: int
    kind: MessageKind
    table: int
    ranges: tuple[KeyRange, ...]
    replica_offset: int
    payload: bytes


class Submission(msgspec.Struct, frozen=True, array_like=True, tag="submission", gc=False):
    """Consecutive messages of one sender, numbered ``first`` … ``first + n - 1``.

    Attributes
    ----------
    kind : ndarray of uint8, shape (n,)
        `MessageKind` values.
    table : ndarray of int64, shape (n,)
    replica_offset : ndarray of uint32, shape (n,)
    range_offsets : ndarray of int64, shape (n + 1,)
        The ranges of message i are ``range_offsets[i]:range_offsets[i + 1]``.
    range_low, range_high : ndarray of uint64
    payload_offsets : ndarray of int64, shape (n + 1,)
    payload : bytes
    shared : bytes
        What several payloads share (statement shapes), carried once.
    acknowledged : int
        Every number up to this one has been answered to the sender.
    last : int
        The number of the last message.
    n_bytes : int
        What the submission weighs against windows and credits.
    has_config : bool
        Whether any of the messages is a configuration message.
    """

    sender: ProcessId
    first: int
    kind: U8
    table: I64
    replica_offset: U32
    range_offsets: I64
    range_low: U64
    range_high: U64
    payload_offsets: I64
    payload: bytes
    shared: bytes = b""
    acknowledged: int = 0
    # Asked for a dozen times on a submission's way, so they are found out once, whatever is given.
    last: int = 0
    n_bytes: int = 0
    has_config: bool = False

    def __post_init__(self) -> None:
        n = len(self.kind)
        force_setattr(self, "last", self.first + n - 1)
        force_setattr(self, "n_bytes", len(self.payload) + len(self.shared) + HEADER_BYTES * (n + 1))
        force_setattr(self, "has_config", CONFIG in self.kind.tobytes())

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def begins_with_config(self) -> bool:
        """Whether the first message is a configuration message."""
        return self.has_config and self.kind.item(0) == CONFIG

    @property
    def config_bytes(self) -> int:
        """What its configuration messages weigh."""
        if not self.has_config:
            return 0
        is_config = self.kind == CONFIG
        payload = int(np.diff(self.payload_offsets)[is_config].sum())
        return payload + HEADER_BYTES * (int(is_config.sum()) + 1)

    def fitting(self, n_bytes: int) -> int:
        """Give how many messages at the front weigh no more than `n_bytes` together."""
        if self.n_bytes <= n_bytes:
            return len(self.kind)
        room = n_bytes - len(self.shared) - HEADER_BYTES
        weights = self.payload_offsets[1:] + HEADER_BYTES * np.arange(1, len(self) + 1)
        return int(np.searchsorted(weights, room, side="right"))

    def ranges_of(self, index: int) -> tuple[KeyRange, ...]:
        """Give the ring ranges of the message at `index`."""
        start, stop = self.range_offsets.item(index), self.range_offsets.item(index + 1)
        low, high = self.range_low, self.range_high
        return tuple([KeyRange(low.item(at), high.item(at)) for at in range(start, stop)])

    def payload_of(self, index: int) -> bytes:
        """Give the payload of the message at `index`."""
        return self.payload[self.payload_offsets.item(index) : self.payload_offsets.item(index + 1)]

    def message(self, index: int) -> Message:
        """Give the scalar view of the message at `index`."""
        return Message(
            self.sender,
            self.first + index,
            _MEMBERS[self.kind.item(index)],
            self.table.item(index),
            self.ranges_of(index),
            self.replica_offset.item(index),
            self.payload_of(index),
        )

    def slice(self, start: int, stop: int) -> Submission:
        """Give messages ``start:stop`` as a submission of their own."""
        if start == 0 and stop == len(self.kind):
            return self
        ranges = self.range_offsets[start : stop + 1]
        payloads = self.payload_offsets[start : stop + 1]
        return msgspec.structs.replace(
            self,
            first=self.first + start,
            kind=self.kind[start:stop],
            table=self.table[start:stop],
            replica_offset=self.replica_offset[start:stop],
            range_offsets=ranges - ranges[0],
            range_low=self.range_low[ranges[0] : ranges[-1]],
            range_high=self.range_high[ranges[0] : ranges[-1]],
            payload_offsets=payloads - payloads[0],
            payload=self.payload[int(payloads[0]) : int(payloads[-1])],
        )


def offsets_of(lengths: Sequence[int]) -> I64:
    """Turn lengths into CSR offsets, one longer than `lengths`."""
    return np.fromiter(accumulate(lengths, initial=0), _INT64, len(lengths) + 1)


def submission(messages: Sequence[Message], *, shared: bytes = b"", acknowledged: int = 0) -> Submission:
    """Pack consecutive messages of one sender.

    Raises
    ------
    ValueError
        If there is no message, or they are not consecutive numbers of one sender.
    """
    if not messages:
        raise ValueError("a submission has at least one message")
    first = messages[0]
    for index, message in enumerate(messages):
        if message.sender != first.sender or message.number != first.number + index:
            raise ValueError("a submission holds consecutive messages of one sender")
    ranges = [key_range for message in messages for key_range in message.ranges]
    return Submission(
        sender=first.sender,
        first=first.number,
        kind=np.array([message.kind for message in messages], _UINT8),
        table=np.array([message.table for message in messages], _INT64),
        replica_offset=np.array([message.replica_offset for message in messages], _UINT32),
        range_offsets=offsets_of([len(message.ranges) for message in messages]),
        range_low=np.array([r.low for r in ranges], _UINT64),
        range_high=np.array([r.high for r in ranges], _UINT64),
        payload_offsets=offsets_of([len(message.payload) for message in messages]),
        payload=b"".join(message.payload for message in messages),
        shared=shared,
        acknowledged=acknowledged,
    )


def fault_of(batch: Submission) -> str:
    """Say what is malformed about a submission from outside, or give ''."""
    kind, table, replica, payloads = batch.kind, batch.table, batch.replica_offset, batch.payload_offsets
    ranges, low, high = batch.range_offsets, batch.range_low, batch.range_high
    types = kind.dtype, table.dtype, replica.dtype, ranges.dtype, low.dtype, high.dtype, payloads.dtype
    if types != SUBMISSION_TYPES:
        return f"header columns hold {', '.join(map(str, types))}"
    n = len(kind)
    if not 0 < n <= MESSAGES_PER_INSTANCE_MAX or batch.first < 1 or batch.last > NUMBER_MAX:
        return "empty, too large, or numbered out of bounds"
    if len(table) != n or len(replica) != n:
        return "header columns differ in length"
    has_points = n <= _POINTS_MAX and len(ranges) == n + 1 and _POINTS.startswith(ranges.tobytes())
    if not _partitions(payloads, n, len(batch.payload)):
        return "payload offsets do not partition the payload"
    if len(low) != n if has_points else not _partitions(ranges, n, len(low)):
        return "range offsets do not partition the ranges"
    if len(high) != len(low) or (high is not low and _exceeds(low, high)):
        return "ring ranges are malformed"
    # On so few bytes the methods of bytes are ten times faster than those of arrays.
    if kind.tobytes().strip(_KINDS):
        return "unknown message kind"
    return "a data message names no ring range" if not has_points and _names_no_range(kind, ranges) else ""


def _partitions(offsets: I64, n: int, size: int) -> bool:
    """Say whether offsets cut something of a size into n pieces."""
    if len(offsets) != n + 1 or offsets.item(0) != 0 or offsets.item(n) != size:
        return False
    return n == 1 or _ascends(offsets)


def _ascends(offsets: I64) -> bool:
    if len(offsets) <= FEW:
        numbers = offsets.tolist()
        return bool(numbers == sorted(numbers))
    return bool((offsets[1:] >= offsets[:-1]).all())


def _exceeds(low: U64, high: U64) -> bool:
    """Say whether any of one column is above its like in the other."""
    if len(low) <= FEW:
        return any(map(gt, low.tolist(), high.tolist()))
    return bool((low > high).any())


def _names_no_range(kind: U8, ranges: I64) -> bool:
    """Say whether any message but a configuration message has no range."""
    if len(kind) <= FEW:
        named = pairwise(ranges.tolist())
        return any(a == b and k != CONFIG for k, (a, b) in zip(kind.tolist(), named, strict=True))
    none = ranges[1:] == ranges[:-1]
    return bool(none.any() and (kind[none] != CONFIG).any())


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag="delivery", gc=False):
    """The part of one submission that one destination delivers, in position order.

    Attributes
    ----------
    number, position : ndarray of int64, shape (n,)
        Sender's sequence numbers and positions in the global order.
    kind : ndarray of uint8, shape (n,)
    table : ndarray of int64, shape (n,)
    scope : ndarray of int64, shape (n,)
        Index into `scopes`: the ring ranges for which this destination answers
        (reads) or reports affected rows (writes). Empty for a write that
        another owner reports.
    config: bytes
        Of its own join alone: the encoding of the Config after it, from which the
        destination goes on (RB13 §6.1).
    """

    sender: ProcessId
    number: I64
    position: I64
    kind: U8
    table: I64
    scope: I64
    scopes: tuple[Scope, ...]
    payload_offsets: I64
    payload: bytes
    shared: bytes
    config: bytes = b""

    def __len__(self) -> int:
        return len(self.number)

    @property
    def n_bytes(self) -> int:
        """What the delivery weighs against credits, on the scale of `Submission.n_bytes`."""
        weight = len(self.payload) + len(self.shared) + HEADER_BYTES * (len(self.number) + 1)
        return weight + len(self.config)

    def payload_of(self, index: int) -> bytes:
        """Give the payload of the message at `index`."""
        return self.payload[self.payload_offsets.item(index) : self.payload_offsets.item(index + 1)]

    def scope_of(self, index: int) -> Scope:
        """Give the scope of the message at `index`."""
        return self.scopes[int(self.scope[index])]

    def after(self, index: int) -> Delivery:
        """Give the delivery without its first `index` messages."""
        if index == 0:
            return self
        payloads = self.payload_offsets[index:]
        return msgspec.structs.replace(
            self,
            number=self.number[index:],
            position=self.position[index:],
            kind=self.kind[index:],
            table=self.table[index:],
            scope=self.scope[index:],
            payload_offsets=payloads - payloads[0],
            payload=self.payload[int(payloads[0]) :],
        )

    def keep(self, kept: NDArray[np.bool_]) -> Delivery:
        """Give some of its messages; `kept` has shape (n,)."""
        if kept.all():
            return self
        payload, offsets = _gather_payloads(self, kept.nonzero()[0])
        return msgspec.structs.replace(
            self,
            number=self.number[kept],
            position=self.position[kept],
            kind=self.kind[kept],
            table=self.table[kept],
            scope=self.scope[kept],
            payload_offsets=offsets,
            payload=payload,
        )


def gather(
    batch: Submission, selected: I64, scope: I64, scopes: tuple[Scope, ...], positions: I64
) -> Delivery:
    """Pick messages of a submission for one destination.

    Parameters
    ----------
    batch : Submission
    selected : ndarray of int64, shape (k,)
        Ascending indices of the messages to deliver.
    scope : ndarray of int64, shape (k,)
        Index into `scopes` per selected message.
    scopes : tuple of Scope
    positions : ndarray of int64, shape (k,)
    """
    n, first, end = len(selected), selected.item(0), selected.item(-1) + 1
    if end - first == n:
        # One piece of the submission: every column is a view of it.
        rows: slice | I64 = slice(first, end)
        offsets = batch.payload_offsets[first : end + 1]
        low = offsets.item(0)
        payload = batch.payload[low : offsets.item(-1)]
        if low:
            offsets = offsets - low
    else:
        rows = selected
        payload, offsets = _gather_payloads(batch, selected)
    return Delivery(
        sender=batch.sender,
        number=batch.first + selected,
        position=positions,
        kind=batch.kind[rows],
        table=batch.table[rows],
        scope=scope,
        scopes=scopes,
        payload_offsets=offsets,
        payload=payload,
        shared=batch.shared,
    )


def _gather_payloads(batch: Submission | Delivery, selected: I64) -> tuple[bytes, I64]:
    n, n_all = len(selected), len(batch)
    ends = batch.payload_offsets
    width = int(ends[1])
    if width and width * n_all == len(batch.payload) and (ends[1:] - ends[:-1] == width).all():
        # Payloads of one length, as those of one statement often are: rows of a table.
        rows = np.frombuffer(batch.payload, np.uint8).reshape(n_all, width)
        return rows[selected].tobytes(), np.arange(n + 1, dtype=np.int64) * width
    starts, stops = ends[selected], ends[selected + 1]
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(stops - starts, out=offsets[1:])
    view = memoryview(batch.payload)
    pieces = [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return b"".join(pieces), offsets
