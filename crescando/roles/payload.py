"""Requests as the payloads of messages: parameters, and which shapes of the submission they go with.

Rules of the file: the messages of one submission share their shapes' encodings;
the writes of a transaction share one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crescando.client.base import Request
from crescando.engine.statement import Call, Kind, Shape, encode_call, encode_parameters, encode_shapes
from crescando.routing.batch import Submission, offsets_of
from crescando.types import KeyRange, MessageKind, ProcessId

_READ = Kind.READ
_READ_MESSAGE, _WRITE_MESSAGE = int(MessageKind.READ), int(MessageKind.WRITE)


def spread(seed: int) -> Iterator[int]:
    """Give replica offsets for ever: any spread will do, chance is not needed."""
    state = (abs(seed) * 2654435761 + 12345) & 0xFFFFFFFF
    while True:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        yield state >> 8


class Packing:
    """Requests on their way into one submission, column by column.

    Attributes
    ----------
    n_bytes : int
        What their payloads weigh.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        self._codes: dict[int, tuple[int, Shape]] = {}
        self._shapes: dict[bytes, int] = {}
        self._kinds: list[int] = []
        self._tables: list[int] = []
        self._offsets: list[int] = []
        self._ranges: list[tuple[KeyRange, ...]] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, request: Request, offset: int) -> bool:
        """Take a request in; True if it is a write.

        Parameters
        ----------
        request : Request
        offset : int
            By which a read spreads load.
        """
        shape = request.shape
        is_write = shape.kind is not _READ
        payload = self._payload(request)
        self._kinds.append(_WRITE_MESSAGE if is_write else _READ_MESSAGE)
        self._tables.append(shape.table)
        self._offsets.append(offset)
        self._ranges.append(request.ranges)
        self._payloads.append(payload)
        self.n_bytes += len(payload)
        return is_write

    def submission(self, sender: ProcessId, first: int, acknowledged: int) -> Submission:
        """Give the messages, numbered from `first`."""
        ranges = [each for some in self._ranges for each in some]
        return Submission(
            sender=sender,
            first=first,
            kind=np.array(self._kinds, np.uint8),
            table=np.array(self._tables, np.int64),
            replica_offset=np.array(self._offsets, np.uint32),
            range_offsets=offsets_of(list(map(len, self._ranges))),
            range_low=np.array([low for low, _ in ranges], np.uint64),
            range_high=np.array([high for _, high in ranges], np.uint64),
            payload_offsets=offsets_of(list(map(len, self._payloads))),
            payload=b"".join(self._payloads),
            shared=encode_shapes(tuple(self._shapes)),
            acknowledged=acknowledged,
        )

    def _payload(self, request: Request) -> bytes:
        parameters = encode_parameters(request.shape, request.parameters)
        then: tuple[Any, ...] = ()
        code = self._code(request.shape)
        if request.then:
            then = tuple(
                Call(self._code(step.shape), encode_parameters(step.shape, step.parameters))
                for step in request.then
            )
        return encode_call(code, parameters, then)

    def _code(self, shape: Shape) -> int:
        """Give the number of a shape in this submission."""
        known = self._codes.get(id(shape))
        if known is None:
            # The shape is kept with its number, lest another take over its identity.
            known = self._shapes.setdefault(shape.encode(), len(self._shapes)), shape
            self._codes[id(shape)] = known
        return known[0]
