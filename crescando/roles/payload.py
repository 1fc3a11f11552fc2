"""Requests as the payloads of messages: parameters, and which shapes of the submission they go with.

Rules of the file: the messages of one submission share their shapes' encodings;
the writes of a transaction share one message. What is alike of many messages is
looked at once, and the messages are made column by column.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, chain
from operator import attrgetter

import numpy as np

from crescando.client.base import Request
from crescando.engine.statement import (
    Call,
    Kind,
    Shape,
    encode_call,
    encode_calls,
    encode_parameters,
    encode_shapes,
)
from crescando.roles.load_messages import ORDERED_CHUNK
from crescando.roles.runs import READ, WRITE, Run, Waiting
from crescando.routing.batch import FEW, I64, U32, U64, Submission, offsets_of
from crescando.types import MessageKind, ProcessId, Scope

_READ = Kind.READ
_READ_MESSAGE, _WRITE_MESSAGE = int(MessageKind.READ), int(MessageKind.WRITE)
_CONFIG_MESSAGE = int(MessageKind.CONFIG)

TOGETHER = 256
"""Requests whose payloads are made at once, though a submission may have room for fewer."""

_BRINGING = frozenset({Kind.INSERT, Kind.UPSERT})
"""Such requests weigh much: they are looked at one by one."""


class Spread:
    """Replica offsets for ever: any spread will do, chance is not needed."""

    def __init__(self, seed: int) -> None:
        self._state = (abs(seed) * 2654435761 + 12345) & 0xFFFFFFFF

    def __next__(self) -> int:
        self._state = (self._state * 1664525 + 1013904223) & 0xFFFFFFFF
        return self._state >> 8

    def __iter__(self) -> Iterator[int]:
        return self

    def take(self, n: int) -> U32:
        """Give as many at once."""
        if n <= FEW:
            return np.array([next(self) for _ in range(n)], np.uint32)
        factors, terms = _steps(n)
        states = factors * np.uint32(self._state) + terms
        self._state = int(states[-1])
        return states >> np.uint32(8)


def _steps(n: int) -> tuple[U32, U32]:
    """Give what leads from one state of a `Spread` to each of the next n."""
    factors = np.cumprod(np.full(n, 1664525, np.uint32), dtype=np.uint32)
    powers = np.concatenate((np.ones(1, np.uint32), factors[:-1]))
    return factors, np.uint32(1013904223) * np.cumsum(powers, dtype=np.uint32)


class Packing:
    """Requests on their way into one submission, column by column.

    Parameters
    ----------
    waiting : deque of (int, Request)
        Taken from its front.
    n_max : int
        Requests that are taken at most.
    bytes_max : int
        With so many bytes of payloads and shapes no more are taken.

    Attributes
    ----------
    taken : list of (int, Request)
    """

    def __init__(self, waiting: deque[Waiting], n_max: int, bytes_max: int) -> None:
        self.taken: list[Waiting] = []
        self._codes: dict[int, tuple[int, Shape]] = {}
        self._shapes: dict[bytes, int] = {}
        self._kinds = bytearray()
        self._tables: list[int] = []
        self._payloads: list[bytes] = []
        self._shape_bytes = 0
        n_bytes = 0
        while waiting and len(self.taken) < n_max and n_bytes + self._shape_bytes < bytes_max:
            if waiting[0][1].is_config:
                # In a submission of its own: the order has room in reserve for it.
                if not self.taken:
                    self._take_order(waiting.popleft())
                break
            if waiting[0][1].order:
                n_bytes += self._take_order(waiting.popleft())
            elif _is_apart(waiting[0][1]):
                n_bytes += self._take_one(waiting.popleft())
            else:
                n_bytes += self._take_some(waiting, n_max - len(self.taken), bytes_max - n_bytes)

    def _take_order(self, entry: Waiting) -> int:
        """Take a step of a load; gives the bytes of its payload."""
        _, request = entry
        payload = request.order
        if not request.is_config:
            payload = encode_call(ORDERED_CHUNK, request.order)
        self.taken.append(entry)
        self._payloads.append(payload)
        self._kinds.append(_CONFIG_MESSAGE if request.is_config else _WRITE_MESSAGE)
        self._tables.append(-1 if request.is_config else request.shape.table)
        return len(payload)

    def _take_one(self, entry: Waiting) -> int:
        """Take one request; gives the bytes of its payload."""
        _, request = entry
        shape = request.shape
        then = tuple(
            Call(self._code(step.shape), encode_parameters(step.shape, step.parameters))
            for step in request.then
        )
        payload = encode_call(self._code(shape), encode_parameters(shape, request.parameters), then)
        self.taken.append(entry)
        self._payloads.append(payload)
        self._kinds.append(_kind_of(shape))
        self._tables.append(shape.table)
        return len(payload)

    def _take_some(self, waiting: deque[Waiting], n_max: int, bytes_max: int) -> int:
        """Take requests of constants; gives the bytes of their payloads."""
        taken = [waiting.popleft() for _ in range(min(n_max, TOGETHER, len(waiting)))]
        requests = [request for _, request in taken]
        shapes = [request.shape for request in requests]
        keys = list(map(id, shapes))
        distinct = dict(zip(keys, shapes, strict=True))
        n = len(taken)
        is_mixed = any(shape.kind in _BRINGING for shape in distinct.values())
        if is_mixed or any(map(_STEPS, requests)) or any(map(_ORDER, requests)):
            n = next(place for place, request in enumerate(requests) if _is_apart(request))
        codes: dict[int, int] = {}
        for key, shape in distinct.items():
            if codes and self._shape_bytes >= bytes_max:
                # Long statements, all of them different.
                n = min(n, keys.index(key))
                break
            codes[key] = self._code(shape)
        payloads = encode_calls(
            list(map(codes.__getitem__, keys[:n])), [request.parameters for request in requests[:n]]
        )
        n_bytes = list(accumulate(map(len, payloads)))
        if n_bytes[-1] >= bytes_max:
            n = next(place for place, so_far in enumerate(n_bytes, 1) if so_far >= bytes_max)
        waiting.extendleft(reversed(taken[n:]))
        kinds = {key: _kind_of(shape) for key, shape in distinct.items()}
        self.taken += taken[:n]
        self._payloads += payloads[:n]
        self._kinds += bytes(map(kinds.__getitem__, keys[:n]))
        self._tables += [shape.table for shape in shapes[:n]]
        return n_bytes[n - 1]

    @cached_property
    def _ranges(self) -> tuple[Scope | None, tuple[I64, U64, U64]]:
        """The ring ranges of all requests, if they have the same; and of each, as columns."""
        ranges = [request.ranges for _, request in self.taken]
        is_alike = ranges.count(ranges[0]) == len(ranges)
        return ranges[0] if is_alike else None, _range_columns(ranges, is_alike=is_alike)

    def run(self, first: int) -> Run:
        """Give the operations, numbered from `first`, to be kept until they have their outcomes."""
        states = self._kinds.translate(_STATES)
        common, (_, low, high) = self._ranges
        return Run(first, self.taken, states, common, (low, high) if len(low) == len(states) else None)

    def submission(self, sender: ProcessId, first: int, acknowledged: int, offsets: Spread) -> Submission:
        """Give the messages, numbered from `first`; reads spread load by `offsets`."""
        payloads, n = self._payloads, len(self._payloads)
        _, (range_offsets, low, high) = self._ranges
        return Submission(
            sender=sender,
            first=first,
            kind=np.frombuffer(bytes(self._kinds), np.uint8),
            table=np.array(self._tables, np.int64),
            replica_offset=offsets.take(n),
            range_offsets=range_offsets,
            range_low=low,
            range_high=high,
            payload_offsets=offsets_of(list(map(len, payloads))),
            payload=b"".join(payloads),
            shared=encode_shapes(tuple(self._shapes)),
            acknowledged=acknowledged,
        )

    def _code(self, shape: Shape) -> int:
        """Give the number of a shape in this submission."""
        known = self._codes.get(id(shape))
        if known is None:
            # The shape is kept with its number, lest another take over its identity.
            encoded = shape.encode()
            if encoded not in self._shapes:
                self._shape_bytes += len(encoded)
            known = self._shapes.setdefault(encoded, len(self._shapes)), shape
            self._codes[id(shape)] = known
        return known[0]


_STATES = bytes(READ if kind == _READ_MESSAGE else WRITE for kind in range(256))

_STEPS = attrgetter("then")
_ORDER = attrgetter("order")


def _is_apart(request: Request) -> bool:
    """Say whether a request is looked at alone: one that brings rows, or a transaction."""
    return bool(request.then or request.order) or request.shape.kind in _BRINGING


def _kind_of(shape: Shape) -> int:
    return _READ_MESSAGE if shape.kind is _READ else _WRITE_MESSAGE


def _range_columns(ranges: list[Scope], *, is_alike: bool) -> tuple[I64, U64, U64]:
    """Give offsets, lower and upper ends of the ring ranges of messages."""
    n = len(ranges)
    if is_alike and len(ranges[0]) == 1:
        ((low, high),) = ranges[0]
        return np.arange(n + 1, dtype=np.int64), np.full(n, low, np.uint64), np.full(n, high, np.uint64)
    flat = list(chain.from_iterable(ranges))
    lows = np.array([low for low, _ in flat], np.uint64)
    highs = np.array([high for _, high in flat], np.uint64)
    return offsets_of(list(map(len, ranges))), lows, highs
