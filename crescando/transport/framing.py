"""Frames on a byte stream: a fixed header, then a body; bytes in, frames out.

Rules of the file: nothing of a frame is believed before its header is checked,
and a frame that is too long is refused before a byte of its body is kept; a body
is taken once its checksum fits. What has arrived of an unfinished frame is kept
in pieces and joined once. A long body is a view of what arrived: whoever keeps
something of it takes a copy, so that it does not pin the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from zlib import crc32

from crescando.errors import RemoteProtocolError
from crescando.transport.causes import MAGIC_BYTES, spoken

MAGIC = int.from_bytes(MAGIC_BYTES, "little")

VERSION = 2

_HEADER = struct.Struct("<QII")
"""Magic (4 bytes), version (2) and kind (2) as one number; length of the body; checksum.

The checksum is over the body, and begins with kind and length: TLS proves who
sent a frame, this that nothing between there and here has changed it.
"""

HEADER_BYTES = _HEADER.size

VIEW_BYTES = 4096
"""Shorter bodies are copied out, which is cheaper than a view."""

Body = bytes | memoryview


class FrameKind(IntEnum):
    """What a frame holds."""

    HELLO = 1
    """The dialling side says who it is, and whom it wants."""
    WELCOME = 2
    """The answering side takes the session."""
    REFUSE = 3
    """The answering side takes no session, and why."""
    CONFIRM = 4
    """The dialling side takes it too: the session begins."""
    MESSAGE = 5
    """A message of the session."""
    PROBE = 6
    """Whoever sends it has heard nothing for a while."""
    SIGN = 7
    """The answer to a probe."""
    WHO = 8
    """Somebody who knows only an address asks whose it is."""
    HERE = 9
    """The answer: the processes that are reached through this connection."""


_HEADS = {kind: MAGIC | VERSION << 32 | int(kind) << 48 for kind in FrameKind}
_KINDS = {head: kind for kind, head in _HEADS.items()}

Take = Callable[[FrameKind, Body], bool]
"""Takes a frame, and says whether the next one is wanted."""


def header(kind: FrameKind, body: Body) -> bytes:
    """Give the header of a frame."""
    n_bytes = len(body)
    return _HEADER.pack(_HEADS[kind], n_bytes, crc32(body, kind << 28 ^ n_bytes))


class Framer:
    """Cuts the bytes of one direction of one stream into frames.

    Parameters
    ----------
    body_bytes_max : int
        The longest body that is taken; may be raised once the peer is known.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._pieces: list[bytes | bytearray] = []
        self._n_kept = 0
        self._n_wanted = HEADER_BYTES

    def feed(self, data: bytes, take: Take) -> None:
        """Have the frames taken that are complete now.

        Each is taken before the next one is looked at, so that the limit may
        be changed in between. Once one is not wanted, the stream is of no use
        any more.

        Raises
        ------
        RemoteProtocolError
            If the stream cannot be one of frames, or a frame is too long. The
            stream is of no use any more.
        """
        if self._pieces:
            self._add(data)
            if self._n_kept < self._n_wanted:
                if self._n_wanted == HEADER_BYTES:
                    self._check_begin(b"".join(self._pieces))
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            head, n_bytes, checksum = _HEADER.unpack_from(data, at)
            kind = _KINDS.get(head)
            if kind is None or n_bytes > self.body_bytes_max:
                raise self._fault_of(data[at : at + HEADER_BYTES], head, n_bytes)
            start = at + HEADER_BYTES
            stop = start + n_bytes
            if stop > end:
                self._keep(data[at:], HEADER_BYTES + n_bytes)
                return
            body = data[start:stop] if n_bytes < VIEW_BYTES else memoryview(data)[start:stop]
            if crc32(body, kind << 28 ^ n_bytes) != checksum:
                raise RemoteProtocolError("a frame's checksum is wrong: it was changed on its way")
            if not take(kind, body):
                return
            at = stop
        if at < end:
            self._check_begin(data[at:])
            self._keep(data[at:], HEADER_BYTES)

    def _check_begin(self, begin: bytes) -> None:
        """See that what came of a header is the begin of one: a stranger is known by its first bytes."""
        if not begin.startswith(MAGIC_BYTES[: len(begin)]):
            raise self._fault_of(begin, 0, 0)

    def _keep(self, rest: bytes, n_wanted: int) -> None:
        self._n_kept, self._n_wanted = 0, n_wanted
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._n_kept += len(piece)
        if len(piece) >= VIEW_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            # Whoever sends byte by byte must not have an object kept for each.
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))

    def _fault_of(self, begin: bytes, head: int, n_bytes: int) -> RemoteProtocolError:
        version, kind = head >> 32 & 0xFFFF, head >> 48
        if head & 0xFFFFFFFF != MAGIC:
            return RemoteProtocolError(spoken(begin) or "not a frame of this protocol")
        if version != VERSION:
            return RemoteProtocolError(
                f"frames of version {version}, but this process speaks {VERSION}: "
                "bring both to one version of crescando"
            )
        if head not in _KINDS:
            return RemoteProtocolError(f"unknown kind of frame {kind}")
        return RemoteProtocolError(
            f"a frame of {n_bytes} bytes; at most {self.body_bytes_max} are taken of this peer"
        )
