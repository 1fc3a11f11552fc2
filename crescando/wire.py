"""The codec of every message that travels between processes.

One closed union of typed structs: what is not in it cannot be sent, and what
is malformed is refused as a whole. Arrays travel as an extension with their
dtype; nothing that could carry code does.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

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
)
from crescando.engine.base import Results
from crescando.errors import RemoteProtocolError
from crescando.roles.messages import (
    Answered,
    Attach,
    Inquire,
    Inquired,
    Ping,
    Pong,
    ReadReplica,
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
    | Attach
    | Inquire
    | Inquired
    | Ping
    | Pong
    | ReadReplica
)

_DTYPES = tuple(map(np.dtype, ("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f4", "<f8")))
"""What an array may hold; its extension code is the place here, from 1."""

_CODES = {dtype: code for code, dtype in enumerate(_DTYPES, 1)}
_Ext = msgspec.msgpack.Ext


def _encode_array(value: Any) -> Any:
    code = _CODES.get(value.dtype) if isinstance(value, np.ndarray) and value.ndim == 1 else None
    if code is None:
        raise TypeError(f"a {type(value).__qualname__} does not travel")
    # The encoder copies from the array itself.
    return _Ext(code, value.data if value.flags.c_contiguous else value.tobytes())


def _decode_array(code: int, data: memoryview) -> Any:
    if not 0 < code <= len(_DTYPES):
        raise ValueError("malformed array")
    # A copy, since a column that begins anywhere in a message is not aligned, and would pin it.
    return np.frombuffer(bytes(data), _DTYPES[code - 1])


def _accept_array(expected: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    raise TypeError(f"expected {expected}, not a {type(value).__qualname__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)
_DECODER = msgspec.msgpack.Decoder(WireMessage, ext_hook=_decode_array, dec_hook=_accept_array)


def encode(message: Any) -> bytes:
    """Give a message's bytes."""
    return _ENCODER.encode(message)


def encode_any(value: Any) -> bytes:
    """Give the bytes of any value made of message parts, to compare or digest it."""
    return _ENCODER.encode(value)


def decode(data: bytes) -> Any:
    """Give the message that `encode` wrote.

    Raises
    ------
    RemoteProtocolError
        If the bytes are no message.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed message: {error}") from error
