"""How a socket session begins: who says what, and who is believed.

Rules of the file: words and checks only. `certified` is the one place that
decides whether a peer is who it says it is.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from crescando.errors import RemoteProtocolError
from crescando.types import ProcessId

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""

Locate = Callable[[ProcessId], Address | None]
"""Gives where a process listens, or None if it cannot be reached now."""

Identify = Callable[[ProcessId, Any], str]
"""Says why a peer is not who it claims to be, given its `ssl.SSLObject` or None; empty if it is."""

CROSSED = b"crossed"
"""Refusal of a dial because the other side's own dial, the lesser one, goes on."""


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one transport.

    Parameters
    ----------
    message_bytes_max : int
        The longest encoded message; a router's snapshot is the longest of all.
    queue_bytes_max : int
        Unsent bytes above which a session is closed instead of sent more; far
        above what credits let a core send.
    handshake_s : float
        How long a session may take to begin.
    handshake_bytes_max : int
        The longest frame before a session has begun.
    """

    message_bytes_max: int = 512 << 20
    queue_bytes_max: int = 128 << 20
    handshake_s: float = 5.0
    handshake_bytes_max: int = 4096


@dataclass(frozen=True, slots=True)
class Tls:
    """The contexts of the two sides of a connection; each must verify the other side."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who dials whom, and which of the dialler's attempts this is."""

    sender: ProcessId
    receiver: ProcessId
    attempt: int


_DECODER = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    """Give the body of a hello frame."""
    return msgspec.msgpack.encode(hello)


def decode_hello(body: bytes) -> Hello:
    """Give the hello that `encode_hello` wrote.

    Raises
    ------
    RemoteProtocolError
        If it is none.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"malformed hello: {error}") from error


def certified(peer: ProcessId, ssl_object: Any) -> str:
    """Say why a peer's certificate is not that of its role and node; empty if it is, or without TLS.

    The common name must be ``role/node``; the incarnation is the process's own
    word, since certificates outlive it.
    """
    if ssl_object is None:
        return ""
    certificate = ssl_object.getpeercert() or {}
    names = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    wanted = f"{peer.role}/{peer.node}"
    return "" if wanted in names else f"the certificate is of {sorted(names)}, not of {wanted}"
