"""Frames on a byte stream: a fixed header, then a body; bytes in, frames out.

Rules of the file: nothing of a frame is believed before its header is checked,
and a frame that is too long is refused before a byte of its body is kept. What
has arrived of an unfinished frame is kept in pieces and joined once. A long
body is a view of what arrived: whoever keeps something of it takes a copy, so
that it does not pin the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from crescando.errors import RemoteProtocolError

MAGIC = 0x4F445243
"""The bytes ``CRDO``."""

VERSION = 1

_HEADER = struct.Struct("<QQ")
"""Magic (4 bytes), version (2) and kind (2) as one number; length of the body."""

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


_HEADS = {kind: MAGIC | VERSION << 32 | int(kind) << 48 for kind in FrameKind}
_KINDS = {head: kind for kind, head in _HEADS.items()}

Take = Callable[[FrameKind, Body], bool]
"""Takes a frame, and says whether the next one is wanted."""


def header(kind: FrameKind, n_bytes: int) -> bytes:
    """Give the header of a frame whose body has `n_bytes`."""
    return _HEADER.pack(_HEADS[kind], n_bytes)


class Framer:
    """Cuts the bytes of one direction of one stream into frames.

    Parameters
    ----------
    body_bytes_max : int
        The longest body that is taken; may be raised once the peer is known.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._pieces: list[bytes] = []
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
            self._pieces.append(data)
            self._n_kept += len(data)
            if self._n_kept < self._n_wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            head, n_bytes = _HEADER.unpack_from(data, at)
            kind = _KINDS.get(head)
            if kind is None or n_bytes > self.body_bytes_max:
                raise self._fault_of(head, n_bytes)
            start = at + HEADER_BYTES
            stop = start + n_bytes
            if stop > end:
                self._keep(data[at:], HEADER_BYTES + n_bytes)
                return
            if not take(kind, data[start:stop] if n_bytes < VIEW_BYTES else memoryview(data)[start:stop]):
                return
            at = stop
        if at < end:
            self._keep(data[at:], HEADER_BYTES)

    def _keep(self, rest: bytes, n_wanted: int) -> None:
        self._pieces.append(rest)
        self._n_kept, self._n_wanted = len(rest), n_wanted

    def _fault_of(self, head: int, n_bytes: int) -> RemoteProtocolError:
        version, kind = head >> 32 & 0xFFFF, head >> 48
        if head & 0xFFFFFFFF != MAGIC:
            return RemoteProtocolError("not a frame of this protocol")
        if version != VERSION:
            return RemoteProtocolError(f"frame version {version}, but this process speaks {VERSION}")
        if head not in _KINDS:
            return RemoteProtocolError(f"unknown kind of frame {kind}")
        return RemoteProtocolError(f"a frame of {n_bytes} bytes; at most {self.body_bytes_max} are taken")
