"""Submissions and deliveries as they travel: all columns of one in one piece of bytes.

Rules of the file: what is packed comes back as it was, types, lengths and all,
and equal batches have equal bytes; what does not add up is refused. A column
that nearly always says the same (one kind, one table, one point for each
message) does not travel: `form` says so, and receivers share one array for it.
Columns of 8-byte numbers come first, so that each begins aligned; they are
views of the bytes, which hold nothing else and so pin nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.routing.batch import SUBMISSION_TYPES, Delivery, Submission
from crescando.types import MessageKind, ProcessId, Scope

_UINT8, _UINT32, _UINT64, _INT64 = map(np.dtype, ("<u1", "<u4", "<u8", "<i8"))

_KIND = 3
"""These bits of a form are the kind of all messages; without them kinds travel as a column."""

_TABLES, _REPLICAS, _RANGES, _SPANS, _SCOPES = 4, 8, 16, 32, 64
"""What travels as a column: tables, replica offsets, offsets of ranges, their high ends, scopes."""

_SUBMISSION_FORMS = _KIND | _TABLES | _REPLICAS | _RANGES | _SPANS
_DELIVERY_FORMS = _KIND | _TABLES | _SCOPES

_DELIVERY_TYPES = _INT64, _INT64, _UINT8, _INT64, _INT64, _INT64


class PackedSubmission(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `Submission` on its way.

    Attributes
    ----------
    form : int
        Which columns travel.
    n : int
        Number of messages.
    table : int
        The table of all of them, if no column says it.
    columns : bytes
        Payload offsets and low ends of ranges; then, as far as `form` says so, high ends,
        offsets of ranges, tables, replica offsets and kinds.
    """

    sender: ProcessId
    first: int
    acknowledged: int
    form: int
    n: int
    table: int
    columns: bytes
    payload: bytes
    shared: bytes


class PackedDelivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `Delivery` on its way; as `PackedSubmission`, with numbers and positions for the low ends."""

    sender: ProcessId
    scopes: tuple[Scope, ...]
    form: int
    n: int
    table: int
    columns: bytes
    payload: bytes
    shared: bytes
    config: bytes = b""


_SHARED_MAX = 1024
"""Longer columns are made anew; few batches have that many messages."""

_FEW = 128
"""Columns of at most so many are kept ready."""

_TABLES_MAX = 64
"""For so many tables the constant columns are kept."""


class _Constant:
    """Columns of one value, or of ascending numbers: pieces of one array that nobody can write to.

    Attributes
    ----------
    few : list of ndarray
        The columns of 0 to `_FEW` values.
    """

    def __init__(self, make: Callable[[int], NDArray[Any]]) -> None:
        self._make = make
        self._whole = _frozen(make(_SHARED_MAX))
        self._bytes = self._whole.tobytes()
        self.few = [self._whole[:n] for n in range(_FEW + 1)]

    def column(self, n: int) -> NDArray[Any]:
        """Give n values."""
        if n <= _FEW:
            return self.few[n]
        return self._whole[:n] if n <= _SHARED_MAX else _frozen(self._make(n))

    def is_in(self, data: bytes) -> bool:
        """Say whether these are the bytes of such a column."""
        size = len(data)
        if size <= len(self._bytes):
            return self._bytes.startswith(data)
        return data == self._make(size // self._whole.itemsize).tobytes()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _same(value: int, dtype: np.dtype[Any]) -> _Constant:
    return _Constant(lambda n: np.full(n, value, dtype))


_ZEROS_4, _ZEROS_8 = _same(0, _UINT32), _same(0, _INT64)
_ASCENDING = _Constant(lambda n: np.arange(n, dtype=_INT64))
_KINDS = {int(kind): _same(int(kind), _UINT8) for kind in MessageKind}
_OF_TABLE: dict[int, _Constant] = {}


def _of_table(table: int) -> _Constant:
    known = _OF_TABLE.get(table)
    if known is None:
        if len(_OF_TABLE) >= _TABLES_MAX:
            # A peer may name as many tables as it likes.
            _OF_TABLE.clear()
        known = _OF_TABLE[table] = _same(table, _INT64)
    return known


def _kind_of(kinds: bytes) -> int:
    """Give the one kind of all messages, or 0."""
    if kinds and kinds[0] in _KINDS and kinds == kinds[:1] * len(kinds):
        return kinds[0]
    return 0


def _is_one(column: bytes) -> bool:
    """Say whether a column of 8-byte numbers holds the same one everywhere."""
    return len(column) == 8 or (bool(column) and column == column[:8] * (len(column) >> 3))


def pack_submission(batch: Submission) -> PackedSubmission:
    """Give a submission as it travels.

    Raises
    ------
    TypeError
        If its columns are not of the types and lengths that `Submission` states.
    """
    kind, table, replica, payloads = batch.kind, batch.table, batch.replica_offset, batch.payload_offsets
    ranges, low, high = batch.range_offsets, batch.range_low, batch.range_high
    types = kind.dtype, table.dtype, replica.dtype, ranges.dtype, low.dtype, high.dtype, payloads.dtype
    n = len(kind)
    if types != SUBMISSION_TYPES:
        raise TypeError("a column of another type does not travel")
    if not (len(table) == len(replica) == n and len(ranges) == len(payloads) == n + 1) or len(low) != len(
        high
    ):
        raise TypeError("columns of other lengths do not travel")
    kinds, lows = kind.tobytes(), low.tobytes()
    form, parts = _kind_of(kinds), [payloads.tobytes(), lows]
    if high is not low and (highs := high.tobytes()) != lows:
        form |= _SPANS
        parts.append(highs)
    if not _ASCENDING.is_in(offsets := ranges.tobytes()):
        form |= _RANGES
        parts.append(offsets)
    if not _is_one(tables := table.tobytes()):
        form |= _TABLES
        parts.append(tables)
    if not _ZEROS_4.is_in(replicas := replica.tobytes()):
        form |= _REPLICAS
        parts.append(replicas)
    if not form & _KIND:
        parts.append(kinds)
    return PackedSubmission(
        batch.sender,
        batch.first,
        batch.acknowledged,
        form,
        n,
        0 if form & _TABLES else table.item(0),
        b"".join(parts),
        batch.payload,
        batch.shared,
    )


def unpack_submission(packed: PackedSubmission) -> Submission:
    """Give the submission that `pack_submission` took.

    Raises
    ------
    ValueError
        If it is malformed: no such form, or columns of other lengths.
    """
    form, n, data = packed.form, packed.n, packed.columns
    size = len(data)
    if 0 < form <= _KIND and 0 < n < _FEW and size == 16 * n + 8:
        # Few messages of one kind, table and point each: by far most submissions.
        points = np.frombuffer(data, _UINT64, n, 8 * n + 8)
        table = (_OF_TABLE.get(packed.table) or _of_table(packed.table)).few[n]
        return Submission(
            packed.sender,
            packed.first,
            _KINDS[form].few[n],
            table,
            _ZEROS_4.few[n],
            _ASCENDING.few[n + 1],
            points,
            points,
            np.frombuffer(data, _INT64, n + 1),
            packed.payload,
            packed.shared,
            packed.acknowledged,
        )
    if n < 0 or form & ~_SUBMISSION_FORMS:
        raise ValueError("no such form of a submission")
    # What is left beside the columns of known lengths belongs to ranges: one for each message,
    # unless their offsets say otherwise.
    known = 8 * (n + 1)
    known += (8 * (n + 1) if form & _RANGES else 0) + (8 * n if form & _TABLES else 0)
    known += (4 * n if form & _REPLICAS else 0) + (0 if form & _KIND else n)
    n_words = (size - known) >> 3
    n_ranges = n_words >> 1 if form & _SPANS else n_words
    if size < known or known + 8 * n_ranges * (2 if form & _SPANS else 1) != size:
        raise ValueError("columns of other lengths than their form says")
    if n_ranges != n and not form & _RANGES:
        raise ValueError("ranges of other messages")
    payloads = np.frombuffer(data, _INT64, n + 1)
    at = 8 * (n + 1)
    high = low = np.frombuffer(data, _UINT64, n_ranges, at)
    at += 8 * n_ranges
    if form & _SPANS:
        high = np.frombuffer(data, _UINT64, n_ranges, at)
        at += 8 * n_ranges
    if form & _RANGES:
        ranges = np.frombuffer(data, _INT64, n + 1, at)
        at += 8 * (n + 1)
    else:
        ranges = _ASCENDING.column(n + 1)
    if form & _TABLES:
        table = np.frombuffer(data, _INT64, n, at)
        at += 8 * n
    else:
        table = _of_table(packed.table).column(n)
    if form & _REPLICAS:
        replica = np.frombuffer(data, _UINT32, n, at)
        at += 4 * n
    else:
        replica = _ZEROS_4.column(n)
    kind = _KINDS[form & _KIND].column(n) if form & _KIND else np.frombuffer(data, _UINT8, n, at)
    return Submission(
        packed.sender,
        packed.first,
        kind,
        table,
        replica,
        ranges,
        low,
        high,
        payloads,
        packed.payload,
        packed.shared,
        packed.acknowledged,
    )


def pack_delivery(part: Delivery) -> PackedDelivery:
    """Give a delivery as it travels.

    Raises
    ------
    TypeError
        If its columns are not of the types and lengths that `Delivery` states.
    """
    number, position, kind, table = part.number, part.position, part.kind, part.table
    scope, payloads = part.scope, part.payload_offsets
    n = len(number)
    types = number.dtype, position.dtype, kind.dtype, table.dtype, scope.dtype, payloads.dtype
    if types != _DELIVERY_TYPES:
        raise TypeError("a column of another type does not travel")
    if not len(position) == len(kind) == len(table) == len(scope) == n == len(payloads) - 1:
        raise TypeError("columns of other lengths do not travel")
    kinds = kind.tobytes()
    form, parts = _kind_of(kinds), [payloads.tobytes(), number.tobytes(), position.tobytes()]
    if not _ZEROS_8.is_in(scopes := scope.tobytes()):
        form |= _SCOPES
        parts.append(scopes)
    if not _is_one(tables := table.tobytes()):
        form |= _TABLES
        parts.append(tables)
    if not form & _KIND:
        parts.append(kinds)
    return PackedDelivery(
        part.sender,
        part.scopes,
        form,
        n,
        0 if form & _TABLES else table.item(0),
        b"".join(parts),
        part.payload,
        part.shared,
        part.config,
    )


def unpack_delivery(packed: PackedDelivery) -> Delivery:
    """Give the delivery that `pack_delivery` took.

    Raises
    ------
    ValueError
        If it is malformed: no such form, or columns of other lengths.
    """
    form, n, data = packed.form, packed.n, packed.columns
    if 0 < form <= _KIND and 0 < n <= _FEW and len(data) == 24 * n + 8:
        # Few messages of one kind, table and scope: by far most deliveries.
        words = np.frombuffer(data, _INT64)
        return Delivery(
            packed.sender,
            words[n + 1 : 2 * n + 1],
            words[2 * n + 1 :],
            _KINDS[form].few[n],
            (_OF_TABLE.get(packed.table) or _of_table(packed.table)).few[n],
            _ZEROS_8.few[n],
            packed.scopes,
            words[: n + 1],
            packed.payload,
            packed.shared,
            packed.config,
        )
    if n < 0 or form & ~_DELIVERY_FORMS:
        raise ValueError("no such form of a delivery")
    n_words = 3 * n + 1 + (n if form & _SCOPES else 0) + (n if form & _TABLES else 0)
    if 8 * n_words + (0 if form & _KIND else n) != len(data):
        raise ValueError("columns of other lengths than their form says")
    words = np.frombuffer(data, _INT64, n_words)
    at = 3 * n + 1
    if form & _SCOPES:
        scope = words[at : at + n]
        at += n
    else:
        scope = _ZEROS_8.column(n)
    table = words[at:] if form & _TABLES else _of_table(packed.table).column(n)
    kind = _KINDS[form & _KIND].column(n) if form & _KIND else np.frombuffer(data, _UINT8, n, 8 * n_words)
    return Delivery(
        packed.sender,
        words[n + 1 : 2 * n + 1],
        words[2 * n + 1 : 3 * n + 1],
        kind,
        table,
        scope,
        packed.scopes,
        words[: n + 1],
        packed.payload,
        packed.shared,
        packed.config,
    )
