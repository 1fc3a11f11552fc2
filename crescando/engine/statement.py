"""Statement shapes and operations: what storage processes are asked to execute.

Rules of the file: trees are typed, immutable and canonical; constants never
stand in a tree, they are parameters, so that all queries of one form share one
shape. Decoding validates nothing: `crescando.engine.validate` checks every
tree that comes from outside against the allow-list before it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import Enum
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.engine.heap import NO_TEXTS, Texts
from crescando.schema import DECIMALS, DataType
from crescando.types import ProcessId, Scope

if TYPE_CHECKING:
    Scalar = None | bool | int | float | str | bytes
else:
    Scalar = Any  # The decoder takes no union of str and bytes.
"""A parameter in its physical form: dates in days, timestamps in microseconds UTC, decimals in units
of their scale."""


SHAPE_BYTES_MAX = 1 << 20
"""Longer encodings are not looked into; the largest shape that is valid has some 700 KiB of nodes."""

STEPS_MAX = 1_024
"""Writes of one transaction, which every owner executes in one cycle: a small part of one."""


class ColumnRef(msgspec.Struct, frozen=True, array_like=True, tag_field="node", tag="c", gc=False):
    """A column of the table, by catalog id."""

    column: int
    type: DataType


class Parameter(msgspec.Struct, frozen=True, array_like=True, tag_field="node", tag="p", gc=False):
    """The constant at `index` of an operation's parameters.

    If `many`, the parameter is a tuple of values (the right side of IN), each
    of `type` or None.
    """

    index: int
    type: DataType
    many: bool = False


class Apply(msgspec.Struct, frozen=True, array_like=True, tag_field="node", tag="a", gc=False):
    """An operator or function of the allow-list, applied to typed arguments."""

    op: str
    args: tuple[Term, ...]
    type: DataType


Term = ColumnRef | Parameter | Apply
"""A typed expression; a predicate is a term of type BOOL."""


class Kind(Enum):
    """What an operation does."""

    READ = "read"
    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"

    # As of `DataType`.
    __hash__ = object.__hash__


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """One aggregate of a read; `term` is None for count(*)."""

    function: str
    """One of count, sum, min, max, avg, count_distinct."""
    term: Term | None
    name: str


class Projection(msgspec.Struct, frozen=True, array_like=True):
    """One output column of a read."""

    name: str
    term: Term


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """``SET column = term`` of an update (the term sees the row before the update)."""

    column: int
    term: Term


class Sort(msgspec.Struct, frozen=True, array_like=True):
    """One item of ORDER BY: an output column of a read."""

    output: int
    """Index into the projections."""
    is_descending: bool


class Returned(msgspec.Struct, frozen=True, array_like=True):
    """One output column of a write: a column of the row as it was before, or as it is after."""

    name: str
    column: ColumnRef
    is_before: bool


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A statement with its constants taken out.

    Attributes
    ----------
    kind : Kind
    table, schema_version : int
        Catalog id, and the version the statement was prepared against.
    where : Term or None
        The predicate; None matches every row. Not used by insert and upsert.
    projections : tuple of Projection
        Output columns of a read without aggregates.
    aggregates : tuple of Aggregate
    assignments : tuple of Assignment
        Of an update.
    columns : tuple of int
        Catalog ids of the columns an insert or upsert gives values for. Its
        only parameter is the rows, as `Column` values in this order.
    group_by : tuple of Term
        Grouping terms of a read without projections; such a read gives one row per
        distinct combination, with its aggregates if there are any.
    order : tuple of Sort
        Which of a read's rows come first, for `limit`; of rows that are equal in
        these, the least by all output columns.
    limit : Parameter or None
        How many of the first rows a read with projections gives at most, INT64.
    returning : tuple of Returned
        Output columns of a write.
    """

    kind: Kind
    table: int
    schema_version: int
    where: Term | None = None
    projections: tuple[Projection, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    columns: tuple[int, ...] = ()
    group_by: tuple[Term, ...] = ()
    order: tuple[Sort, ...] = ()
    limit: Parameter | None = None
    returning: tuple[Returned, ...] = ()

    @property
    def is_grouped(self) -> bool:
        """Whether a read answers with groups or aggregates, and not with rows."""
        return bool(self.aggregates or self.group_by)

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        return _ENCODER.encode(self)

    @staticmethod
    def decode(data: bytes) -> Shape:
        """Give the shape that `encode` wrote.

        Raises
        ------
        msgspec.DecodeError
            If `data` is not such an encoding.
        """
        if len(data) > SHAPE_BYTES_MAX:
            raise msgspec.DecodeError(f"a shape has at most {SHAPE_BYTES_MAX} bytes, not {len(data)}")
        return _SHAPE_DECODER.decode(data)

    def digest(self) -> bytes:
        """Give the shape's id: the 128-bit digest of its canonical encoding."""
        return hashlib.blake2b(self.encode(), digest_size=16).digest()


if TYPE_CHECKING:
    Dictionary = Sequence[Any]
else:
    Dictionary = Texts


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Values of one column of some rows.

    Attributes
    ----------
    type : DataType
    values : ndarray, shape (n_rows,)
        The physical values: bool, int8 … int64, float32/64, int32 days, int64
        microseconds. For strings and bytes, int32 codes into `dictionary`. Undefined where
        not valid (0 by convention).
    valid : ndarray of bool, shape (n_rows,), or None
        False marks NULL; None means that no value is NULL.
    dictionary : Texts
        Strings and bytes only: the values that codes stand for, in any order; in what an
        engine answers without duplicates. Any sequence of Python objects will do.
    """

    type: DataType
    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None
    dictionary: Dictionary = NO_TEXTS

    def __post_init__(self) -> None:
        if type(self.dictionary) is not Texts:
            msgspec.structs.force_setattr(self, "dictionary", Texts.of(self.dictionary))

    @property
    def texts(self) -> Texts:
        """The dictionary, as what it is."""
        assert isinstance(self.dictionary, Texts)
        return self.dictionary

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> Column:
        """Give rows ``start:stop``; arrays are shared, not copied."""
        valid = None if self.valid is None else self.valid[start:stop]
        return Column(self.type, self.values[start:stop], valid, self.dictionary)

    def slice_apart(self, start: int, stop: int) -> Column:
        """Give rows ``start:stop``, without other rows' texts if each row has its own in their order."""
        part = self.slice(start, stop)
        codes, n = part.values, stop - start
        if n == 0 or len(self.dictionary) <= n:
            return part
        first = int(codes[0])
        if not (codes == np.arange(first, first + n)).all():
            return part
        return Column(self.type, codes - codes[0], part.valid, self.texts.slice(first, first + n))

    def keep(self, kept: NDArray[np.bool_]) -> Column:
        """Give some rows; the dictionary is shared."""
        valid = None if self.valid is None else self.valid[kept]
        return Column(self.type, self.values[kept], valid, self.dictionary)

    @staticmethod
    def join(columns: Sequence[Column]) -> Column:
        """Put columns of one type end to end, with their dictionaries."""
        if len(columns) == 1:
            return columns[0]
        kind, values = columns[0].type, np.concatenate([column.values for column in columns])
        valid = None
        if any(column.valid is not None for column in columns):
            valid = np.concatenate(
                [np.ones(len(c.values), np.bool_) if c.valid is None else c.valid for c in columns]
            )
        if not kind.is_textual:
            return Column(kind, values, valid)
        sizes = np.array([len(column.texts) for column in columns])
        starts = np.repeat(np.cumsum(sizes) - sizes, [len(column.values) for column in columns])
        codes = (starts + values).astype(PHYSICAL[kind])
        return Column(kind, codes, valid, Texts.join([column.texts for column in columns]))

    def to_list(self) -> list[Scalar]:
        """Give the physical values as Python objects, None for NULL."""
        if self.type.is_textual and self.valid is None:
            return list(map(self.texts.to_list().__getitem__, self.values.tolist()))
        if self.type.is_textual:
            # Codes where not valid are undefined: a column of NULL has no dictionary to look them up in.
            texts, n = self.texts.to_list(), len(self.dictionary)
            values: list[Any] = [texts[c] if 0 <= c < n else None for c in self.values.tolist()]
        else:
            values = self.values.tolist()
        if self.valid is not None:
            for index in np.flatnonzero(~self.valid).tolist():
                values[index] = None
        return values


PHYSICAL: dict[DataType, np.dtype[Any]] = {
    DataType.BOOL: np.dtype(np.bool_),
    DataType.INT8: np.dtype(np.int8),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.FLOAT32: np.dtype(np.float32),
    DataType.FLOAT64: np.dtype(np.float64),
    DataType.STRING: np.dtype(np.int32),
    DataType.BYTES: np.dtype(np.int32),
    DataType.DATE: np.dtype(np.int32),
    DataType.TIMESTAMP: np.dtype(np.int64),
    **{kind: np.dtype(np.int32 if kind.precision <= 9 else np.int64) for kind in DECIMALS},
}
"""How each type's values lie in memory.

Strings and bytes: as dictionary codes; decimals: in units of their scale.
"""


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One delivered operation, ready to execute.

    Attributes
    ----------
    position : int
        Its place in the global order; operations execute in ascending order.
    sender : ProcessId
    number : int
        The sender's sequence number.
    shape : Shape
    parameters : tuple
        Physical constants in the order of `Parameter.index` (a tuple for IN);
        for insert and upsert one `Column` per entry of ``shape.columns``.
    scope : Scope
        Ring ranges this process answers for (reads) or reports (writes).
    step : int
        Its place in the transaction at its position, whose writes follow one another
        in one batch; -1 for an operation that stands alone.
    """

    position: int
    sender: ProcessId
    number: int
    shape: Shape
    parameters: tuple[Any, ...]
    scope: Scope
    step: int = -1


def _pieces_of_array(values: NDArray[Any]) -> list[bytes | memoryview]:
    head = values.dtype.str.encode()
    return [bytes([len(head)]) + head, np.ascontiguousarray(values).data]


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(1, b"".join(_pieces_of_array(value)))
    if isinstance(value, Texts):
        return msgspec.msgpack.Ext(2, value.to_wire())
    raise TypeError(f"{type(value).__qualname__} does not travel")


_FIXED_EXTENSIONS = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}


def _extension(code: int, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Give an extension of MessagePack in pieces."""
    size = sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in pieces)
    if size in _FIXED_EXTENSIONS:
        head = _FIXED_EXTENSIONS[size]
    else:
        width = 0 if size < 1 << 8 else 1 if size < 1 << 16 else 2
        head = bytes([0xC7 + width]) + size.to_bytes(1 << width, "big")
    return [head + bytes([code]), *pieces]


def _encode_columns(columns: tuple[Column, ...]) -> list[bytes | memoryview]:
    """Encode columns as `_ENCODER` does, in pieces, of which the arrays' are the arrays themselves."""
    n = len(columns)
    pieces: list[bytes | memoryview] = [bytes([0x90 + n]) if n < 16 else b"\xdc" + n.to_bytes(2, "big")]
    for column in columns:
        pieces += (b"\x94", _ENCODER.encode(column.type))
        pieces += _extension(1, _pieces_of_array(column.values))
        pieces += [b"\xc0"] if column.valid is None else _extension(1, _pieces_of_array(column.valid))
        pieces += _extension(2, column.texts.wire_pieces())
    return pieces


_DTYPES = {
    np.dtype(order + name).str.encode(): np.dtype(order + name)
    for name in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
    for order in "<>"
}
"""The types of arrays that travel, by name: what else a name may say is not for NumPy to find out."""


def _decode_array(code: int, data: memoryview) -> Any:
    if code == 2:
        return Texts.from_wire(bytes(data))
    if code != 1:
        raise ValueError(f"extension {code} is unknown")
    split = 1 + data[0]
    dtype = _DTYPES.get(bytes(data[1:split]))
    if dtype is None:
        raise ValueError(f"arrays of {bytes(data[1:split])!r} do not travel")
    if dtype.kind == "b" and len(data) > split and int(np.frombuffer(data, np.uint8, -1, split).max()) > 1:
        raise ValueError("a bool is 0 or 1")  # Some kernels look at the byte, others at whether it is 0.
    return np.frombuffer(bytes(data[split:]), dtype)


def _accept_array(_type: Any, value: Any) -> Any:
    if isinstance(value, (np.ndarray, Texts)):
        return value
    raise TypeError(f"expected an array, not {type(value).__qualname__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array, order="deterministic")
_SHAPE_DECODER = msgspec.msgpack.Decoder(Shape)
_CONSTANTS_DECODER = msgspec.msgpack.Decoder(tuple[Any, ...], ext_hook=_decode_array)
_COLUMNS_DECODER = msgspec.msgpack.Decoder(tuple[Column, ...], ext_hook=_decode_array, dec_hook=_accept_array)


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message's payload: which shape of the submission, and its parameters.

    A transaction is its first write, `then` the others in their order.
    """

    shape: int
    parameters: bytes
    then: tuple[Call, ...] = ()

    @property
    def steps(self) -> tuple[Call, ...]:
        """The writes of the transaction; the call alone if it is none."""
        return (self, *self.then)


_CALL_DECODER = msgspec.msgpack.Decoder(Call)
_SHAPES_DECODER = msgspec.msgpack.Decoder(tuple[bytes, ...])


_NO_STEPS = _ENCODER.encode(())


def encode_parameters(shape: Shape, parameters: tuple[Any, ...]) -> bytes:
    """Encode an operation's parameters."""
    if _are_columns(parameters):
        return b"".join(_encode_columns(parameters))
    return _ENCODER.encode(parameters)


def encode_in_pieces(shape: Shape, parameters: tuple[Any, ...]) -> list[bytes | memoryview]:
    """Encode an operation's parameters; the pieces, end to end, are what `encode_parameters` gives.

    Large arrays are not copied: whoever sends or stores the pieces reads them where they lie.
    """
    return _encode_columns(parameters) if _are_columns(parameters) else [_ENCODER.encode(parameters)]


def _are_columns(parameters: tuple[Any, ...]) -> bool:
    # Most have constants, which the first one tells: each operation comes through here.
    has_columns = bool(parameters) and type(parameters[0]) is Column and len(parameters) < 1 << 16
    return has_columns and all(type(each) is Column for each in parameters)


def decode_parameters(shape: Shape, data: bytes) -> tuple[Any, ...]:
    """Decode what `encode_parameters` wrote, as the shape's kind demands."""
    if shape.kind in (Kind.INSERT, Kind.UPSERT):
        return _COLUMNS_DECODER.decode(data)
    return tuple(
        tuple(value) if isinstance(value, list) else value for value in _CONSTANTS_DECODER.decode(data)
    )


def encode_call(shape: int, parameters: bytes, then: tuple[Call, ...] = ()) -> bytes:
    """Encode a data message's payload; `shape` indexes the submission's shapes."""
    return _ENCODER.encode(Call(shape, parameters, then))


def encode_calls(shapes: Sequence[int], parameters: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Encode the payloads of many messages, whose parameters are constants, as `encode_call` does."""
    heads: dict[tuple[int, int], bytes] = {}
    payloads = []
    for shape, constants in zip(shapes, map(_ENCODER.encode, parameters), strict=True):
        key = shape, len(constants)
        head = heads.get(key)
        if head is None:
            head = heads[key] = _head(*key)
        payloads.append(head + constants + _NO_STEPS)
    return payloads


def encode_alike(shape: int, parameters: Sequence[tuple[Any, ...]]) -> tuple[bytes, list[int]]:
    """Encode messages of one shape, end to end, as `encode_calls`; gives also how long each payload is."""
    constants = list(map(_ENCODER.encode, parameters))
    lengths = list(map(len, constants))
    heads = {length: _head(shape, length) for length in set(lengths)}
    around = {length: len(head) + length + len(_NO_STEPS) for length, head in heads.items()}
    if len(heads) == 1:
        (head,) = heads.values()
        payload = head + (_NO_STEPS + head).join(constants) + _NO_STEPS
    else:
        parts = zip(map(heads.__getitem__, lengths), constants, repeat(_NO_STEPS))
        payload = b"".join(chain.from_iterable(parts))
    return payload, list(map(around.__getitem__, lengths))


def _head(shape: int, n_bytes: int) -> bytes:
    """Give what stands before parameters: it depends on their length only, and no step comes after."""
    return encode_call(shape, bytes(n_bytes))[: -n_bytes - len(_NO_STEPS)]


def decode_call(data: bytes) -> Call:
    """Decode what `encode_call` wrote.

    Raises
    ------
    msgspec.DecodeError
        If `data` is no such encoding, a step of a transaction is one itself, or
        there are too many.
    """
    call = _CALL_DECODER.decode(data)
    if call.then and (len(call.then) >= STEPS_MAX or any(step.then for step in call.then)):
        raise msgspec.DecodeError(f"a transaction is at most {STEPS_MAX} plain writes")
    return call


def encode_shapes(shapes: tuple[bytes, ...]) -> bytes:
    """Encode the shape bodies that a submission's payloads share."""
    return _ENCODER.encode(shapes)


def decode_shapes(data: bytes) -> tuple[bytes, ...]:
    """Decode what `encode_shapes` wrote."""
    return _SHAPES_DECODER.decode(data)
