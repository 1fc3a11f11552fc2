"""Requests as the payloads of messages: parameters, and which shapes of the submission they go with.

Rules of the file: the messages of one submission share their shapes' encodings;
the writes of a transaction share one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

import numpy as np

from crescando.client.base import Request
from crescando.engine.statement import Call, Kind, Shape, encode_call, encode_parameters, encode_shapes
from crescando.routing.batch import Submission, offsets_of
from crescando.types import MessageKind, ProcessId

_READ = Kind.READ
_READ_MESSAGE, _WRITE_MESSAGE = int(MessageKind.READ), int(MessageKind.WRITE)


def spread(seed: int) -> Iterator[int]:
    """Give replica offsets for ever: any spread will do, chance is not needed."""
    state = (abs(seed) * 2654435761 + 12345) & 0xFFFFFFFF
    while True:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        yield state >> 8


Waiting = tuple[int, Request]
"""A request, and what the user calls it."""


class Packing:
    """Requests on their way into one submission, column by column.

    Parameters
    ----------
    waiting : deque of (int, Request)
        Taken from its front.
    n_max : int
        Requests that are taken at most.
    bytes_max : int
        With so many bytes of payloads no more are taken.

    Attributes
    ----------
    taken : list of (int, Request)
    """

    def __init__(self, waiting: deque[Waiting], n_max: int, bytes_max: int) -> None:
        self.taken: list[Waiting] = []
        self._codes: dict[int, tuple[int, Shape]] = {}
        self._shapes: dict[bytes, int] = {}
        self._kinds: list[int] = []
        self._tables: list[int] = []
        self._payloads: list[bytes] = []
        self._take(waiting, n_max, bytes_max)

    def _take(self, waiting: deque[Waiting], n_max: int, bytes_max: int) -> None:
        taken, payloads, kinds, tables = self.taken, self._payloads, self._kinds, self._tables
        known: Shape | None = None
        code = kind = table = n_bytes = 0
        while waiting and len(taken) < n_max and n_bytes < bytes_max:
            entry = waiting.popleft()
            request = entry[1]
            shape = request.shape
            if shape is not known:
                known, code, table = shape, self._code(shape), shape.table
                kind = _READ_MESSAGE if shape.kind is _READ else _WRITE_MESSAGE
            then = self._then(request) if request.then else ()
            payload = encode_call(code, encode_parameters(shape, request.parameters), then)
            n_bytes += len(payload)
            taken.append(entry)
            payloads.append(payload)
            kinds.append(kind)
            tables.append(table)

    def submission(
        self, sender: ProcessId, first: int, acknowledged: int, offsets: Iterator[int]
    ) -> Submission:
        """Give the messages, numbered from `first`; reads spread load by `offsets`."""
        payloads, ranges = self._payloads, [request.ranges for _, request in self.taken]
        flat = list(chain.from_iterable(ranges))
        return Submission(
            sender=sender,
            first=first,
            kind=np.array(self._kinds, np.uint8),
            table=np.array(self._tables, np.int64),
            replica_offset=np.fromiter(offsets, np.uint32, len(payloads)),
            range_offsets=offsets_of(list(map(len, ranges))),
            range_low=np.array([low for low, _ in flat], np.uint64),
            range_high=np.array([high for _, high in flat], np.uint64),
            payload_offsets=offsets_of(list(map(len, payloads))),
            payload=b"".join(payloads),
            shared=encode_shapes(tuple(self._shapes)),
            acknowledged=acknowledged,
        )

    def _then(self, request: Request) -> tuple[Call, ...]:
        """Give the writes of a transaction after its first."""
        return tuple(
            Call(self._code(step.shape), encode_parameters(step.shape, step.parameters))
            for step in request.then
        )

    def _code(self, shape: Shape) -> int:
        """Give the number of a shape in this submission."""
        known = self._codes.get(id(shape))
        if known is None:
            # The shape is kept with its number, lest another take over its identity.
            known = self._shapes.setdefault(shape.encode(), len(self._shapes)), shape
            self._codes[id(shape)] = known
        return known[0]
