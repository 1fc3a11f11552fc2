"""Messages of atomic loads: what a chunk's order says, and how its bytes go beside it.

The bytes of a chunk go to every owner before the chunk is ordered; the order names them by their
digest. Who lacks them when the order comes asks those who have them.
"""

from __future__ import annotations

import msgspec

from crescando.client.base import DIGEST_BYTES
from crescando.engine.loads import ATTEMPT_MAX, NUMBER_MAX, PARTITION_MAX
from crescando.types import LoadId, ProcessId, Scope

CHUNK_BYTES_MAX = 16 << 20
"""More bytes than this are no chunk."""

HOLDERS_MAX = 64
"""Processes that an order names."""


class ChunkOrder(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """What is ordered of a chunk.

    Attributes
    ----------
    load : LoadId
    partition, attempt, chunk : int
    n_rows : int
    digest : bytes
    ranges : Scope
        Where its rows lie.
    holders : tuple of ProcessId
        Who had its bytes before.
    """

    load: LoadId
    partition: int
    attempt: int
    chunk: int
    n_rows: int
    digest: bytes
    ranges: Scope
    holders: tuple[ProcessId, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ChunkOrder)

ORDERED_CHUNK = -1
"""In place of a shape's number: the parameters of the call are a chunk's order."""


def encode_chunk(order: ChunkOrder) -> bytes:
    """Give the bytes of a chunk's order."""
    return _ENCODER.encode(order)


def decode_chunk(data: bytes) -> ChunkOrder:
    """Give what `encode_chunk` wrote.

    Raises
    ------
    ValueError
        If `data` is none, or no honest client sends it.
    """
    order = _DECODER.decode(data)
    is_attempt = 0 <= order.partition <= PARTITION_MAX and 0 <= order.attempt <= ATTEMPT_MAX
    is_chunk = 0 <= order.chunk <= NUMBER_MAX and 0 <= order.n_rows <= NUMBER_MAX
    if not (is_attempt and is_chunk) or len(order.digest) != DIGEST_BYTES:
        raise ValueError("a chunk's order is out of bounds")
    if len(order.holders) > HOLDERS_MAX or any(low > high for low, high in order.ranges):
        raise ValueError("a chunk's order is malformed")
    return order


class Bring(msgspec.Struct, frozen=True, array_like=True, tag="bring"):
    """The bytes of a chunk."""

    digest: bytes
    payload: bytes

    @property
    def n_bytes(self) -> int:
        """What they take."""
        return len(self.payload)


class Brought(msgspec.Struct, frozen=True, array_like=True, tag="brought"):
    """The bytes are here; or, with a refusal, there is no room for them now."""

    digest: bytes
    refusal: str = ""


class Lack(msgspec.Struct, frozen=True, array_like=True, tag="lack"):
    """A storage process lacks the bytes of a chunk that is ordered."""

    digest: bytes


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag="unknown-bytes"):
    """Whoever was asked for bytes does not have them."""

    digest: bytes


class AskStaged(msgspec.Struct, frozen=True, array_like=True, tag="ask-staged"):
    """A client asks whether what counts of a load is here, bytes and all.

    Attributes
    ----------
    request : int
    load : LoadId
    upto : int
        The position of the last chunk that counts.
    attempts : tuple of (int, int)
        Partition and attempt of all that counts.
    """

    request: int
    load: LoadId
    upto: int
    attempts: tuple[tuple[int, int], ...] = ()


class StagedTold(msgspec.Struct, frozen=True, array_like=True, tag="staged-told"):
    """The answer to `AskStaged`.

    Attributes
    ----------
    request : int
    lacking : int
        Chunks whose bytes are not here yet; -1 if the position is not reached.
    lost : str
        What nobody has any more who can be asked; empty if there is none.
    """

    request: int
    lacking: int
    lost: str = ""


class LateChunk(msgspec.Struct, frozen=True, array_like=True, tag="late-chunk"):
    """A chunk that belongs to a copy, and came to its sender after the image.

    Attributes
    ----------
    order : ChunkOrder
    sender : ProcessId
    number, position : int
        Of the order.
    payload : bytes
        Empty if its load ended before anybody had it.
    """

    order: ChunkOrder
    sender: ProcessId
    number: int
    position: int
    payload: bytes

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.payload) + 256
