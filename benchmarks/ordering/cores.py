"""The two ends of the ordering path: a client that only sends, and destinations that only apply.

Rules of the file: everything between them is the product's own (`Application`,
`Router`, the broadcast, the ring); these cores stand where a client and a
storage process would, and do as little as can be checked afterwards. A message
is a put of one key: an 8-byte key, then the value; its ring position is the key
itself, since keys are drawn evenly from all of 64 bits.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.errors import CrescandoError, RefusedError
from crescando.process import Output
from crescando.routing.base import ExpelledEvent, Multicast, StableEvent
from crescando.routing.batch import CONFIG, Delivery, Message, Submission, offsets_of, submission
from crescando.routing.rubberband.catalog import EMPTY_CATALOG
from crescando.routing.rubberband.messages import CreateTable, Join, encode_message
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import NO_POSITION, MessageKind, ProcessId

U64 = NDArray[np.uint64]

KEY_BYTES = 8

TABLE = TableSchema(
    name="kv",
    columns=(
        ColumnDef("key", DataType.INT64, nullable=False),
        ColumnDef("value", DataType.STRING),
    ),
    partition_key="key",
)

TABLE_ID = EMPTY_CATALOG.after(CreateTable(TABLE)).table(TABLE.name).id
"""What the catalog calls it, as it is the first one."""

BLOCK_MAX = 8192
"""The longest submission; the constant columns are cut from ones of this length."""

_WRITES = np.full(BLOCK_MAX, MessageKind.WRITE, np.uint8)
_TABLES = np.full(BLOCK_MAX, TABLE_ID, np.int64)
_OFFSETS = np.arange(BLOCK_MAX + 1, dtype=np.int64)
_ZEROS = np.zeros(BLOCK_MAX, np.uint32)


class _Core:
    """What the two ends have in common: everything is the multicast's business."""

    def __init__(self, me: ProcessId, multicast: Multicast) -> None:
        self.me = me
        self.multicast = multicast

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.multicast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.multicast.on_message(peer, message, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Neither end executes anything beside its turns."""


class Sender(_Core):
    """A client that puts, and knows when each put is stable.

    Puts are made one by one or in blocks, not both.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    creates : bool
        Whether it also creates the table, behind its own join.
    open_max : int
        Unstable submissions with which another one is sent; what comes
        meanwhile waits and makes the next one larger.
    batch_max : int
        Messages in one submission, at most `BLOCK_MAX`.
    """

    def __init__(
        self,
        me: ProcessId,
        multicast: Multicast,
        *,
        creates: bool = True,
        open_max: int = 2,
        batch_max: int = 1024,
    ) -> None:
        super().__init__(me, multicast)
        self.wake: Callable[[], None] = lambda: None
        self.upto = 0
        self.n_put = 0
        self.refusals: list[str] = []
        self._open_max, self._batch_max = open_max, batch_max
        self._creates = creates
        self._n_config = 0
        self._keys = array("Q")
        self._payloads: list[bytes] = []
        self._blocks: deque[tuple[U64, bytes, asyncio.Future[None]]] = deque()
        self._dones: list[asyncio.Future[None]] = []
        self._waiters: deque[tuple[int, list[asyncio.Future[None]]]] = deque()

    def on_start(self, now_s: float) -> None:
        super().on_start(now_s)
        bodies = [encode_message(Join(self.me))]
        if self._creates:
            bodies.append(encode_message(CreateTable(TABLE)))
        self.multicast.submit(
            submission(
                [
                    Message(self.me, number, MessageKind.CONFIG, -1, (), 0, body)
                    for number, body in enumerate(bodies, 1)
                ]
            )
        )
        self._n_config = len(bodies)

    @property
    def is_ready(self) -> bool:
        """Whether the join (and the table) are stable."""
        return self.upto >= self._n_config > 0

    def put(self, key: int, value: bytes, done: asyncio.Future[None]) -> None:
        """Put one value; `done` gets its result when the message is stable."""
        if not self._payloads:
            self.wake()
        self._keys.append(key)
        self._payloads.append(key.to_bytes(KEY_BYTES, "little") + value)
        self._dones.append(done)
        self.n_put += 1

    def put_block(self, keys: U64, payload: bytes, done: asyncio.Future[None]) -> None:
        """Put one block of equally long payloads; blocks that wait travel as one submission.

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
        payload : bytes
            The n payloads (key, then value) in a row.
        done : asyncio.Future
        """
        self._blocks.append((keys, payload, done))
        self.n_put += len(keys)
        self.wake()

    def flush(self, now_s: float) -> Output:
        """Take what became stable, and submit what waits."""
        for event in self.multicast.take_events():
            match event:
                case StableEvent():
                    self._on_stable(event)
                case ExpelledEvent():
                    raise CrescandoError(f"{self.me} was expelled")
        while self._blocks and self.multicast.n_unstable < self._open_max:
            self._submit_blocks()
        while self._payloads and self.multicast.n_unstable < self._open_max:
            self._submit_waiting()
        return self.multicast.flush(now_s)

    def _submit_waiting(self) -> None:
        n = min(len(self._payloads), self._batch_max)
        payloads, keys, dones = self._payloads, self._keys, self._dones
        if n == len(payloads):
            self._payloads, self._keys, self._dones = [], array("Q"), []
        else:
            self._payloads, self._keys, self._dones = payloads[n:], keys[n:], dones[n:]
            payloads, keys, dones = payloads[:n], keys[:n], dones[:n]
        offsets = offsets_of(list(map(len, payloads)))
        column = np.frombuffer(keys, np.uint64)
        first = self.multicast.next_number
        self._waiters.append((first + n - 1, dones))
        self.multicast.submit(self._submission(first, column, offsets, b"".join(payloads)))

    def _submit_blocks(self) -> None:
        first, n, width = self.multicast.next_number, 0, 0
        columns, payloads = [], []
        while self._blocks and (n == 0 or n + len(self._blocks[0][0]) <= self._batch_max):
            keys, payload, done = self._blocks.popleft()
            width = width or len(payload) // len(keys)
            if len(payload) != width * len(keys):
                raise ValueError("all blocks have payloads of one length")
            n += len(keys)
            columns.append(keys)
            payloads.append(payload)
            self._waiters.append((first + n - 1, [done]))
        column = columns[0] if len(columns) == 1 else np.concatenate(columns)
        self.multicast.submit(self._submission(first, column, _OFFSETS[: n + 1] * width, b"".join(payloads)))

    def _submission(self, first: int, keys: U64, offsets: NDArray[np.int64], payload: bytes) -> Submission:
        n = len(keys)
        return Submission(
            sender=self.me,
            first=first,
            kind=_WRITES[:n],
            table=_TABLES[:n],
            replica_offset=_ZEROS[:n],
            range_offsets=_OFFSETS[: n + 1],
            range_low=keys,
            range_high=keys,
            payload_offsets=offsets,
            payload=payload,
            acknowledged=self.multicast.acknowledged,
        )

    def _on_stable(self, event: StableEvent) -> None:
        self.upto = max(self.upto, event.upto)
        self.refusals += [f"{e.number}: {e.verdict} {e.reason}" for e in event.exceptions]
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.upto:
            for done in waiters.popleft()[1]:
                if not done.done():
                    done.set_result(None)

    def check(self) -> None:
        """Raise `RefusedError` if any put was refused or lost."""
        if self.refusals:
            raise RefusedError("; ".join(self.refusals[:3]))


class Destination(_Core):
    """A process that applies puts: counts them ("null"), or keeps them in a dict ("kv").

    Attributes
    ----------
    n_applied, n_bytes : int
        Puts applied, and their payloads' bytes.
    map : dict of bytes to bytes
        The values by key ("kv").
    """

    def __init__(self, me: ProcessId, multicast: Multicast, *, keeps: bool) -> None:
        super().__init__(me, multicast)
        self.keeps = keeps
        self.n_applied = 0
        self.n_bytes = 0
        self.position: int = NO_POSITION
        self.map: dict[bytes, bytes] = {}

    def flush(self, now_s: float) -> Output:
        """Apply what was delivered, and confirm it."""
        for event in self.multicast.take_events():
            match event:
                case Delivery():
                    self._apply(event)
                case ExpelledEvent():
                    return Output(stop="expelled")
        return self.multicast.flush(now_s)

    def _apply(self, part: Delivery) -> None:
        first, last = part.position.item(0), part.position.item(-1)
        if first <= self.position:
            raise CrescandoError(f"{self.me} was delivered position {first} after {self.position}")
        self.position = last
        if part.kind.item(0) == CONFIG:
            return
        self.n_applied += len(part)
        self.n_bytes += len(part.payload)
        if self.keeps:
            self._keep(part)

    def _keep(self, part: Delivery) -> None:
        payload, known, offsets = part.payload, self.map, part.payload_offsets
        width = offsets.item(1)
        if width > KEY_BYTES and bool((np.diff(offsets) == width).all()):
            # Payloads of one length are pairs in a row.
            known.update(struct.iter_unpack(f"{KEY_BYTES}s{width - KEY_BYTES}s", payload))
            return
        for begin, end in pairwise(offsets.tolist()):
            known[payload[begin : begin + KEY_BYTES]] = payload[begin + KEY_BYTES : end]
