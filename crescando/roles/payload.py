"""Requests as the payloads of messages: parameters, and which shapes of the submission they go with.

Rules of the file: the messages of one submission share their shapes' encodings;
the writes of a transaction share one message. What is alike of many messages is
looked at once, and the messages are made column by column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice, takewhile
from operator import attrgetter
from typing import overload

import numpy as np

from crescando.client.base import Alike, Request
from crescando.engine.statement import (
    Call,
    Kind,
    Shape,
    encode_alike,
    encode_call,
    encode_calls,
    encode_parameters,
    encode_shapes,
)
from crescando.roles.asked import Asked, Waiting
from crescando.roles.load_messages import ORDERED_CHUNK
from crescando.roles.runs import READ, WRITE, Run
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
    waiting : deque of (int, Request), and of Asked
        Taken from its front.
    n_max : int
        Requests that are taken at most.
    bytes_max : int
        With so many bytes of payloads and shapes no more are taken.
    """

    def __init__(self, waiting: deque[Waiting | Asked], n_max: int, bytes_max: int) -> None:
        self._tokens: list[Sequence[int]] = []
        self._requests: list[Sequence[Request]] = []
        self._codes: dict[int, tuple[int, Shape]] = {}
        self._shapes: dict[bytes, int] = {}
        self._kinds = bytearray()
        self._tables: list[int] = []
        self._payloads: list[bytes] = []
        self._lengths: list[int] = []
        self._shape_bytes = 0
        n_bytes = 0
        while waiting and len(self) < n_max and n_bytes + self._shape_bytes < bytes_max:
            front = waiting[0]
            if isinstance(front, Asked):
                if len(self) and len(self) + len(front) > n_max:
                    break
                n, more = self._take_together(front, n_max - len(self), bytes_max - n_bytes)
                waiting.popleft()
                if n < len(front):
                    waiting.appendleft(front.after(n))
            elif front[1].is_config:
                # In a submission of its own: the order has room in reserve for it.
                if not len(self):
                    waiting.popleft()
                    self._take_one(*front)
                break
            elif _is_apart(front[1]):
                waiting.popleft()
                more = self._take_one(*front)
            else:
                some = islice(waiting, min(n_max - len(self), TOGETHER))
                tokens, requests = zip(*takewhile(_is_single, some), strict=True)
                n, more = self._take_some(tokens, requests, bytes_max - n_bytes)
                for _ in range(n):
                    waiting.popleft()
            n_bytes += more

    def __len__(self) -> int:
        return len(self._kinds)

    def _take_one(self, token: int, request: Request) -> int:
        """Take one request; gives the bytes of its payload."""
        shape = request.shape
        kind, table = _kind_of(shape), shape.table
        if request.is_config:
            payload, kind, table = request.order, _CONFIG_MESSAGE, -1
        elif request.order:
            payload, kind = encode_call(ORDERED_CHUNK, request.order), _WRITE_MESSAGE
        else:
            then = tuple(
                Call(self._code(step.shape), encode_parameters(step.shape, step.parameters))
                for step in request.then
            )
            payload = encode_call(self._code(shape), encode_parameters(shape, request.parameters), then)
        return self._add((token,), (request,), [payload], [len(payload)], bytes((kind,)), [table])

    def _take_together(self, front: Asked, n_max: int, bytes_max: int) -> tuple[int, int]:
        """Take what was asked for together; gives how many that are, and the bytes of their payloads."""
        if isinstance(front.requests, Alike):
            return self._take_alike(front.tokens, front.requests, n_max, bytes_max)
        n = n_bytes = 0
        while n < min(n_max, len(front)) and n_bytes + self._shape_bytes < bytes_max:
            some = slice(n, min(n + TOGETHER, n_max))
            taken, more = self._take_some(front.tokens[some], front.requests[some], bytes_max - n_bytes)
            n, n_bytes = n + taken, n_bytes + more
        return n, n_bytes

    def _take_alike(
        self, tokens: Sequence[int], requests: Alike, n_max: int, bytes_max: int
    ) -> tuple[int, int]:
        """Take requests of one shape; as `_take_together`."""
        shape, n = requests.shape, min(n_max, len(tokens))
        code, n_bytes = self._code(shape), 0
        payloads: list[bytes] = []
        lengths: list[int] = []
        for start in range(0, n, TOGETHER):
            if n_bytes >= bytes_max:
                break
            payload, some = encode_alike(code, requests.parameters[start : min(start + TOGETHER, n)])
            payloads.append(payload)
            lengths += some
            n_bytes += len(payload)
        n = len(lengths)
        if n_bytes >= bytes_max:
            n, n_bytes = next(upto for upto in enumerate(accumulate(lengths), 1) if upto[1] >= bytes_max)
            payloads, lengths = [b"".join(payloads)[:n_bytes]], lengths[:n]
        kinds, tables = bytes((_kind_of(shape),)) * n, [shape.table] * n
        return n, self._add(tokens[:n], requests[:n], payloads, lengths, kinds, tables)

    def _add(
        self,
        tokens: Sequence[int],
        requests: Sequence[Request],
        payloads: list[bytes],
        lengths: list[int],
        kinds: bytes,
        tables: list[int],
    ) -> int:
        """Add requests, whose payloads may lie end to end; gives the bytes of these."""
        self._tokens.append(tokens)
        self._requests.append(requests)
        self._payloads += payloads
        self._lengths += lengths
        self._kinds += kinds
        self._tables += tables
        return sum(lengths)

    def _take_some(
        self, tokens: Sequence[int], requests: Sequence[Request], bytes_max: int
    ) -> tuple[int, int]:
        """Take the first of some requests, at least one; as `_take_together`."""
        if _is_apart(requests[0]):
            return 1, self._take_one(tokens[0], requests[0])
        shapes = [request.shape for request in requests]
        keys = list(map(id, shapes))
        distinct = dict(zip(keys, shapes, strict=True))
        n = len(requests)
        is_mixed = any(shape.kind in _BRINGING for shape in distinct.values())
        if is_mixed or any(map(_STEPS, requests)) or any(map(_ORDER, requests)):
            n = next((place for place, request in enumerate(requests) if _is_apart(request)), n)
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
        kinds = {key: _kind_of(shape) for key, shape in distinct.items()}
        return n, self._add(
            tokens[:n],
            requests[:n],
            payloads[:n],
            list(map(len, payloads[:n])),
            bytes(map(kinds.__getitem__, keys[:n])),
            [shape.table for shape in shapes[:n]],
        )

    @cached_property
    def tokens(self) -> Sequence[int]:
        """What the user calls the requests that are taken."""
        return self._tokens[0] if len(self._tokens) == 1 else list(chain.from_iterable(self._tokens))

    @cached_property
    def requests(self) -> Sequence[Request]:
        """The requests that are taken."""
        return self._requests[0] if len(self._requests) == 1 else _InParts(self._requests)

    @cached_property
    def _ranges(self) -> tuple[Scope | None, tuple[I64, U64, U64]]:
        """The ring ranges of all requests, if they have the same; and of each, as columns."""
        ranges: list[Scope] = []
        for part in self._requests:
            ranges += part.ranges if isinstance(part, Alike) else [each.ranges for each in part]
        is_common = ranges.count(ranges[0]) == len(ranges)
        return ranges[0] if is_common else None, _range_columns(ranges, is_common=is_common)

    def run(self, first: int) -> Run:
        """Give the operations, numbered from `first`, to be kept until they have their outcomes."""
        states = self._kinds.translate(_STATES)
        common, (_, low, high) = self._ranges
        ends = (low, high) if len(low) == len(states) else None
        return Run(first, self.tokens, self.requests, states, common, ends)

    def submission(self, sender: ProcessId, first: int, acknowledged: int, offsets: Spread) -> Submission:
        """Give the messages, numbered from `first`; reads spread load by `offsets`."""
        n = len(self)
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
            payload_offsets=offsets_of(self._lengths),
            payload=b"".join(self._payloads),
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


class _InParts(Sequence[Request]):
    """Requests that lie in several sequences; few of them are ever looked at."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: list[Sequence[Request]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, place: int) -> Request: ...
    @overload
    def __getitem__(self, place: slice) -> list[Request]: ...
    def __getitem__(self, place: int | slice) -> Request | list[Request]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        part = bisect_right(self._ends, place)
        return self._parts[part][place - self._ends[part]]


_STATES = bytes(READ if kind == _READ_MESSAGE else WRITE for kind in range(256))

_STEPS = attrgetter("then")
_ORDER = attrgetter("order")


def _is_single(asked: Waiting | Asked) -> bool:
    return not isinstance(asked, Asked)


def _is_apart(request: Request) -> bool:
    """Say whether a request is looked at alone: one that brings rows, or a transaction."""
    return bool(request.then or request.order) or request.shape.kind in _BRINGING


def _kind_of(shape: Shape) -> int:
    return _READ_MESSAGE if shape.kind is _READ else _WRITE_MESSAGE


def _range_columns(ranges: list[Scope], *, is_common: bool) -> tuple[I64, U64, U64]:
    """Give offsets, lower and upper ends of the ring ranges of messages."""
    n = len(ranges)
    if is_common and len(ranges[0]) == 1:
        ((low, high),) = ranges[0]
        return np.arange(n + 1, dtype=np.int64), np.full(n, low, np.uint64), np.full(n, high, np.uint64)
    flat = list(chain.from_iterable(ranges))
    lows = np.array([low for low, _ in flat], np.uint64)
    highs = np.array([high for _, high in flat], np.uint64)
    return offsets_of(list(map(len, ranges))), lows, highs
