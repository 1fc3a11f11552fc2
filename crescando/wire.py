"""The codec of every message that travels between processes.

One closed union of typed structs: what is not in it cannot be sent, and what
is malformed is refused as a whole. Arrays travel as an extension with their
dtype; nothing that could carry code does. The messages of which there are many
have a form of their own (`crescando.routing.packed`), and the same tag. What a
session lets through depends on the roles at its ends (`crescando.permits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.messages import (
    Accept,
    Accepted,
    Canvass,
    CanvassReply,
    Decided,
    Fetch,
    Heartbeat,
    HeartbeatReply,
    Nack,
    Petition,
    Prepare,
    Promise,
    Removed,
    Snapshot,
    Vote,
)
from crescando.engine.base import Results
from crescando.engine.heap import Texts
from crescando.errors import RemoteProtocolError
from crescando.permits import PERMITS, SENDERS
from crescando.rights import without_right
from crescando.roles.copy_messages import (
    AskCopies,
    CopiesTold,
    CopyHead,
    CopyUnknown,
    FetchParcels,
    Parcel,
)
from crescando.roles.description import ChangeRouters, Describe, Described, RoutersChanged
from crescando.roles.load_messages import AskStaged, Bring, Brought, Lack, StagedTold, Unknown
from crescando.roles.messages import (
    Answered,
    AskPinned,
    Attach,
    BasicRefused,
    Explain,
    Explains,
    Forget,
    Inquire,
    Inquired,
    PinAnswered,
    Ping,
    Pong,
    ReadBasic,
    ReadReplica,
    Retire,
    Retires,
    Taken,
    Watch,
    Watched,
    Weigh,
    Weighs,
)
from crescando.routing.ecast.messages import (
    Batch,
    ConfigRequest,
    ConfigState,
    Confirm,
    Deliver,
    DeliverRead,
    Expelled,
    Fenced,
    Hello,
    Inject,
    Lease,
    LeaseRequest,
    Outdated,
    Pulse,
    Quorum,
    ReadRefused,
    Resume,
    Route,
    Routers,
    Stable,
    StableUpTo,
    Welcome,
)
from crescando.routing.ecast.snapshot import RouterSnapshot
from crescando.routing.packed import (
    PackedDelivery,
    PackedSubmission,
    pack_delivery,
    pack_submission,
    unpack_delivery,
    unpack_submission,
)
from crescando.types import ProcessId

WireMessage = (
    Accept[Batch]
    | Accepted
    | Canvass
    | CanvassReply
    | Decided[Batch]
    | Fetch
    | Heartbeat
    | HeartbeatReply
    | Nack
    | Petition
    | Prepare
    | Promise[Batch]
    | Removed
    | Snapshot[RouterSnapshot]
    | ConfigRequest
    | ConfigState
    | Confirm
    | Deliver
    | DeliverRead
    | Expelled
    | Fenced
    | Hello
    | Inject
    | Lease
    | LeaseRequest
    | Outdated
    | Pulse
    | Quorum
    | ReadRefused
    | Resume
    | Route
    | Routers
    | Stable
    | StableUpTo
    | Welcome
    | Results
    | Answered
    | AskPinned
    | Attach
    | BasicRefused
    | Explain
    | Explains
    | Forget
    | Inquire
    | Inquired
    | PinAnswered
    | Ping
    | Pong
    | ReadBasic
    | ReadReplica
    | Retire
    | Retires
    | Taken
    | Watch
    | Watched
    | Weigh
    | Weighs
    | ChangeRouters
    | Describe
    | Described
    | RoutersChanged
    | AskCopies
    | CopiesTold
    | CopyHead
    | CopyUnknown
    | FetchParcels
    | Parcel
    | AskStaged
    | Bring
    | Brought
    | Lack
    | StagedTold
    | Unknown
)

_DTYPES = tuple(map(np.dtype, ("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f4", "<f8")))
"""What an array may hold; its extension code is the place here, from 1."""

_CODES = {dtype: code for code, dtype in enumerate(_DTYPES, 1)}
_Ext = msgspec.msgpack.Ext


_TEXTS = 64
"""The extension code of a list of texts."""


def _encode_array(value: Any) -> Any:
    if isinstance(value, Texts):
        return _Ext(_TEXTS, value.to_wire())
    code = _CODES.get(value.dtype) if isinstance(value, np.ndarray) and value.ndim == 1 else None
    if code is None:
        raise TypeError(f"a {type(value).__qualname__} does not travel")
    # The encoder copies from the array itself.
    return _Ext(code, value.data if value.flags.c_contiguous else value.tobytes())


def _decode_array(code: int, data: memoryview) -> Any:
    if code == _TEXTS:
        return Texts.from_wire(bytes(data))
    if not 0 < code <= len(_DTYPES):
        raise ValueError("malformed array")
    # A copy, since a column that begins anywhere in a message is not aligned, and would pin it.
    return np.frombuffer(bytes(data), _DTYPES[code - 1])


class _Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    submissions: tuple[PackedSubmission, ...]


class _Route(msgspec.Struct, frozen=True, array_like=True, tag="route"):
    submission: PackedSubmission


class _Inject(msgspec.Struct, frozen=True, array_like=True, tag="inject"):
    reads: PackedSubmission
    seen: int
    written: int


class _Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    ballot: Ballot
    instance: int
    previous: int
    last: int
    parts: tuple[PackedDelivery, ...]


class _DeliverRead(msgspec.Struct, frozen=True, array_like=True, tag="deliver-read"):
    ballot: Ballot
    position: int
    previous: int
    parts: tuple[PackedDelivery, ...]


class _ReadBasic(msgspec.Struct, frozen=True, array_like=True, tag="read-basic"):
    reads: PackedDelivery
    seen: int
    laid: int


_OWN_FORMS: dict[Any, Any] = {
    Accept[Batch]: Accept[_Batch],
    Decided[Batch]: Decided[_Batch],
    Promise[Batch]: Promise[_Batch],
    Deliver: _Deliver,
    DeliverRead: _DeliverRead,
    Inject: _Inject,
    ReadBasic: _ReadBasic,
    Route: _Route,
}

FAULT_CHARACTERS_MAX = 200
"""Of what is said about a message that is none."""

V = TypeVar("V")


def _pack_batch(value: V) -> V | _Batch:
    return _Batch(tuple(map(pack_submission, value.submissions))) if isinstance(value, Batch) else value


def _unpack_batch(value: V) -> V | Batch:
    return Batch(tuple(map(unpack_submission, value.submissions))) if isinstance(value, _Batch) else value


def _over_votes(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def over(m: Any) -> Any:
        votes = tuple(Vote(v.instance, v.ballot, change(v.value), v.is_chosen) for v in m.votes)
        return Promise(m.ballot, votes, m.learned, m.trimmed)

    return over


_PACK: dict[type, Callable[[Any], Any]] = {
    Accept: lambda m: Accept(m.ballot, m.instance, _pack_batch(m.value), m.chosen),
    Decided: lambda m: Decided(m.first, tuple(map(_pack_batch, m.values)), m.learned),
    Promise: _over_votes(_pack_batch),
    Route: lambda m: _Route(pack_submission(m.submission)),
    Inject: lambda m: _Inject(pack_submission(m.reads), m.seen, m.written),
    ReadBasic: lambda m: _ReadBasic(pack_delivery(m.reads), m.seen, m.laid),
    Deliver: lambda m: _Deliver(m.ballot, m.instance, m.previous, m.last, tuple(map(pack_delivery, m.parts))),
    DeliverRead: lambda m: _DeliverRead(m.ballot, m.position, m.previous, tuple(map(pack_delivery, m.parts))),
}

_UNPACK: dict[type, Callable[[Any], Any]] = {
    Accept: lambda m: Accept(m.ballot, m.instance, _unpack_batch(m.value), m.chosen),
    Decided: lambda m: Decided(m.first, tuple(map(_unpack_batch, m.values)), m.learned),
    Promise: _over_votes(_unpack_batch),
    _Route: lambda m: Route(unpack_submission(m.submission)),
    _Inject: lambda m: Inject(unpack_submission(m.reads), m.seen, m.written),
    _ReadBasic: lambda m: ReadBasic(unpack_delivery(m.reads), m.seen, m.laid),
    _Deliver: lambda m: Deliver(
        m.ballot, m.instance, m.previous, m.last, tuple(map(unpack_delivery, m.parts))
    ),
    _DeliverRead: lambda m: DeliverRead(
        m.ballot, m.position, m.previous, tuple(map(unpack_delivery, m.parts))
    ),
}

_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)

_FORMS: dict[type[Any], Any] = {
    getattr(kind, "__origin__", kind): _OWN_FORMS.get(kind, kind) for kind in get_args(WireMessage)
}
_TAGS = {kind.__struct_config__.tag: kind for kind in _FORMS}


def _decoder_of(kinds: Iterable[type]) -> msgspec.msgpack.Decoder[Any]:
    # Without a hook for them, the decoder itself sees to it that arrays are arrays.
    return msgspec.msgpack.Decoder(reduce(or_, [_FORMS[kind] for kind in kinds]), ext_hook=_decode_array)


_DECODER = _decoder_of(_FORMS)
_DECODERS = {roles: _decoder_of(kinds) for roles, kinds in PERMITS.items()}

Decode = Callable[[bytes | memoryview], Any]


def encode(message: Any) -> bytes:
    """Give a message's bytes."""
    pack = _PACK.get(type(message))
    return _ENCODER.encode(message if pack is None else pack(message))


def encode_any(value: Any) -> bytes:
    """Give the bytes of any value made of message parts, to compare or digest it."""
    return _ENCODER.encode(value)


def decode(data: bytes | memoryview) -> Any:
    """Give the message that `encode` wrote, whoever it is of; nothing of it refers to `data`.

    Raises
    ------
    RemoteProtocolError
        If the bytes are no message.
    """
    return _decode(_DECODER, data)


def decoder_for(sender: ProcessId, receiver: ProcessId, denial: str = "") -> Decode | None:
    """Give what decodes the messages of one process to another one.

    A message that the sender's role may not send there is refused before it is
    built, and so is one that names somebody else as its sender.

    Parameters
    ----------
    sender, receiver : ProcessId
    denial : str
        Why the sender may not administer the cluster; empty if it may. Whatever takes that right
        goes on with it (`crescando.rights`).

    Returns
    -------
    callable or None
        None if the two have nothing to say to one another.
    """
    decoder = _DECODERS.get((sender.role, receiver.role))
    if decoder is None:
        return None

    def decode_permitted(data: bytes | memoryview) -> Any:
        try:
            message = _decode(decoder, data)
        except RemoteProtocolError:
            kind = _TAGS.get(_tag_of(data))
            if kind is not None and kind not in PERMITS[sender.role, receiver.role]:
                raise RemoteProtocolError(
                    f"a {sender.role} may not send {kind.__name__} to a {receiver.role}"
                ) from None
            raise
        named = SENDERS.get(type(message))
        if named is not None and named(message) != sender:
            raise RemoteProtocolError(f"a {type(message).__name__} of {named(message)} came from {sender}")
        return without_right(message, denial) if denial else message

    return decode_permitted


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes | memoryview) -> Any:
    try:
        message = decoder.decode(data)
        unpack = _UNPACK.get(type(message))
        return message if unpack is None else unpack(message)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        # What stands in a message may be long, and may be a row's: the error says what it is not.
        raise RemoteProtocolError(f"malformed message: {str(error)[:FAULT_CHARACTERS_MAX]}") from None


def _tag_of(data: bytes | memoryview) -> str:
    """Give the tag of what may be a message: the short text behind the head of an array."""
    head = bytes(data[:40])
    at = {0xDC: 3, 0xDD: 5}.get(head[0], 1) if head else 0
    n_bytes = head[at] & 0x1F if at < len(head) and head[at] >> 5 == 0b101 else 0
    return head[at + 1 : at + 1 + n_bytes].decode(errors="replace")
