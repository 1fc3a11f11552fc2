"""How a socket session begins: who says what, and who is believed.

Rules of the file: words and checks only. `fault_of` is the one place that
decides whether a peer is who it says it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from crescando.errors import RemoteProtocolError
from crescando.transport.identity import Certificate, is_name
from crescando.types import ProcessId

PROTOCOL = 1
"""What the messages of a session mean; peers that differ in it have no session."""

CLUSTER = "crescando"
"""A cluster's name where nobody gave it one."""

CLIENT = "client"
"""The role of those who work with a cluster and are no part of it."""

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


def said(address: Address) -> str:
    """Give an address as people write it."""
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


Locate = Callable[[ProcessId], Address | None]
"""Gives where a process listens, or None if it cannot be reached now."""

REASON_CHARACTERS_MAX = 400
"""Of a refusal; the rest of what a peer says in one is not repeated in logs and errors."""


CLIENT_ROOM_BYTES = 32 << 20
"""Of the longest message of a client, this is for what goes with a request: a batch of others before it,
their statements and headers."""

CLIENT_BYTES_MIN = CLIENT_ROOM_BYTES + (16 << 20)
"""Less would not do for the chunks of loads, whose rows are not cut as a cluster's settings say."""


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one transport.

    Parameters
    ----------
    message_bytes_max : int
        The longest encoded message; a router's snapshot is the longest of all.
    client_bytes_max : int
        The longest encoded message of a client; see `request_bytes`.
    queue_bytes_max : int
        Unsent bytes above which a session is closed instead of sent more; far
        above what credits let a core send.
    handshake_s : float
        How long a session may take to begin.
    handshake_bytes_max : int
        The longest frame before a session has begun.
    half_open_max, half_open_of_address_max : int
        Connections that have not become a session: in all, and from one address.
        Above it the oldest one makes room, so that whoever is quick gets in.
    sessions_of_certificate_max : int
        Sessions that the holder of one certificate may have here, and no more than half of
        what all clients may have; one more is refused.
    client_sessions_max : int
        Sessions that all clients may have here, and no more than use half of the files that
        the process may have open.
    idle_s : float
        A session in which nothing comes for so long is over; peers that have
        nothing to say answer a probe.
    redial_s, redial_s_max : float
        The longest pause before a peer is dialled anew, after the first loss and
        in the end; the pause is drawn, so that not everybody comes at once.
    denied_s_max : float
        The same for a peer that no trying again helps with; until the pause is
        over, the answer is given without a dial.
    refresh_s : float
        How often the files of the credentials are looked at.
    """

    message_bytes_max: int = 512 << 20
    client_bytes_max: int = 96 << 20
    queue_bytes_max: int = 128 << 20
    handshake_s: float = 5.0
    handshake_bytes_max: int = 4096
    half_open_max: int = 1024
    half_open_of_address_max: int = 512
    sessions_of_certificate_max: int = 1024
    client_sessions_max: int = 4096
    idle_s: float = 30.0
    redial_s: float = 0.02
    redial_s_max: float = 1.0
    denied_s_max: float = 30.0
    refresh_s: float = 5.0

    @property
    def request_bytes(self) -> int:
        """How long one request of a client may be."""
        return self.client_bytes_max - CLIENT_ROOM_BYTES


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who dials whom, in which cluster, and which of the dialler's attempts this is."""

    protocol: int
    cluster: str
    sender: ProcessId
    receiver: ProcessId
    attempt: int


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a hello: who takes the session."""

    protocol: int
    cluster: str
    sender: ProcessId


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a hello: why there is no session.

    `is_crossed`: the other side's own dial, the lesser one, goes on.
    """

    reason: str
    is_permanent: bool = False
    is_crossed: bool = False


class Who(msgspec.Struct, frozen=True, array_like=True):
    """Somebody knows only the address, and asks who is there."""

    protocol: int
    cluster: str


class Here(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `Who`."""

    protocol: int
    cluster: str
    processes: tuple[ProcessId, ...]


class _Speaker(msgspec.Struct, frozen=True, array_like=True):
    """What every version's words begin with."""

    protocol: int


Word = Hello | Welcome | Refusal | Who | Here
W = TypeVar("W", Hello, Welcome, Refusal, Who, Here)

_DECODERS: dict[type, msgspec.msgpack.Decoder[Word]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Hello, Welcome, Refusal, Who, Here)
}
_SPEAKER = msgspec.msgpack.Decoder(_Speaker)


def encode_word(word: Word) -> bytes:
    """Give the body of a handshake's frame."""
    return msgspec.msgpack.encode(word)


def decode_word(kind: type[W], body: bytes) -> W:
    """Give the word that `encode_word` wrote.

    Raises
    ------
    RemoteProtocolError
        If it is none, or of another version; a name that is no name is one.
    """
    try:
        if kind is not Refusal:
            spoken = _SPEAKER.decode(body).protocol
            if spoken != PROTOCOL:
                raise RemoteProtocolError(
                    f"protocol {spoken} is spoken there and {PROTOCOL} here: "
                    "bring both to one version of crescando"
                )
        word = _DECODERS[kind].decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        fault = str(error)[:REASON_CHARACTERS_MAX]
        raise RemoteProtocolError(f"malformed {kind.__name__.lower()}: {fault}") from error
    assert isinstance(word, kind)
    named = [value for field in kind.__struct_fields__ for value in _processes(getattr(word, field))]
    if not all(is_name(process.role) and is_name(process.node) for process in named):
        raise RemoteProtocolError(f"malformed {kind.__name__.lower()}: a process has no proper name")
    return word


def _processes(value: object) -> tuple[ProcessId, ...]:
    if isinstance(value, ProcessId):
        return (value,)
    return value if isinstance(value, tuple) else ()


def fault_of(peer: ProcessId, cluster: str, mine: str, certificate: Certificate | None) -> str:
    """Say why a peer is not who it claims to be; empty if it is, or if nothing can be proven.

    Parameters
    ----------
    peer : ProcessId
        Who it says it is.
    cluster : str
        Where it says it belongs.
    mine : str
        The cluster of this process.
    certificate : Certificate or None
        What it has proven; None without TLS.
    """
    if cluster != mine:
        return f"{peer} is of the cluster {cluster!r:.100} and this process of {mine!r}"
    return "" if certificate is None else certificate.fault_of(cluster, peer)
