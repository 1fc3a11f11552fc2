"""Frames on a byte stream: a fixed header, then a body; bytes in, frames out.

Rules of the file: nothing of a frame is believed before its header is checked,
and a frame that is too long is refused before a byte of its body is kept. What
has arrived of an unfinished frame is kept in pieces and joined once. A long
body is a view of what arrived: whoever keeps something of it takes a copy, so
that it does not pin the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from crescando.errors import RemoteProtocolError

MAGIC = 0x4F445243
"""The bytes ``CRDO``."""

VERSION = 1

_HEADER = struct.Struct("<IHHQ")
"""Magic, version, kind, length of the body."""

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


_KINDS = {int(kind): kind for kind in FrameKind}


def header(kind: FrameKind, n_bytes: int) -> bytes:
    """Give the header of a frame whose body has `n_bytes`."""
    return _HEADER.pack(MAGIC, VERSION, kind, n_bytes)


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

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, Body]]:
        """Give the frames that are complete now.

        Each is given before the next one is looked at, so that the limit may
        be changed in between.

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
            magic, version, number, n_bytes = _HEADER.unpack_from(data, at)
            kind = _KINDS.get(number)
            if magic != MAGIC or version != VERSION or kind is None or n_bytes > self.body_bytes_max:
                raise self._fault_of(magic, version, number, n_bytes)
            stop = at + HEADER_BYTES + n_bytes
            if stop > end:
                self._keep(data[at:], HEADER_BYTES + n_bytes)
                return
            if n_bytes < VIEW_BYTES:
                yield kind, data[at + HEADER_BYTES : stop]
            else:
                yield kind, memoryview(data)[at + HEADER_BYTES : stop]
            at = stop
        if at < end:
            self._keep(data[at:], HEADER_BYTES)
        else:
            self._n_kept, self._n_wanted = 0, HEADER_BYTES

    def _keep(self, rest: bytes, n_wanted: int) -> None:
        self._n_kept, self._n_wanted = len(rest), n_wanted
        if rest:
            self._pieces.append(rest)

    def _fault_of(self, magic: int, version: int, kind: int, n_bytes: int) -> RemoteProtocolError:
        if magic != MAGIC:
            return RemoteProtocolError("not a frame of this protocol")
        if version != VERSION:
            return RemoteProtocolError(f"frame version {version}, but this process speaks {VERSION}")
        if kind not in _KINDS:
            return RemoteProtocolError(f"unknown kind of frame {kind}")
        return RemoteProtocolError(f"a frame of {n_bytes} bytes; at most {self.body_bytes_max} are taken")
