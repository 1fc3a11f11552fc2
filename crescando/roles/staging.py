"""The atomic loads at one storage process: bytes that come beside the order, and steps for the engine.

Rules of the file: bytes wait here for their order, within a budget and not for ever; an order whose
bytes are here becomes a step of the engine at its place. One whose bytes are not delays nobody: they are
fetched by their digest, from whoever its order or the layout names, and staged when they come. Only what
ends a load waits for all of it, and whatever comes behind it in the queue. Which loads are open
follows from the configuration at the order's place. Chunks go to the engine under the place at
which they were ordered, whenever that is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from crescando.client.base import LOAD_REPEAT, load_digest
from crescando.engine.base import Failed
from crescando.engine.loads import (
    Abort,
    Begin,
    Commit,
    LoadRule,
    LoadStep,
    LoadWork,
    LoadWrite,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.statement import Kind, Shape, decode_parameters
from crescando.errors import LOAD_GONE
from crescando.process import earliest
from crescando.roles.gates import OPEN, Gate
from crescando.roles.limits import StorageLimits
from crescando.roles.load_messages import (
    CHUNK_BYTES_MAX,
    AskStaged,
    Bring,
    Brought,
    ChunkOrder,
    Lack,
    LateChunk,
    StagedTold,
    Unknown,
)
from crescando.routing.rubberband.loads import Load, LoadOrder, Loads
from crescando.scopes import common
from crescando.types import FULL_RING, LoadId, ProcessId, Scope

FETCH_S = 0.5
"""How long somebody who was asked for bytes has to send them, before the next one is asked."""

AGAIN_S = 2.0
"""When all are asked again who said that they have none."""

WHOLE: Scope = (FULL_RING,)

_ROWS = Shape(Kind.INSERT, -1, 0)
"""How a chunk's columns are encoded."""

STAGING = Shape(Kind.UPSERT, -1, 0)
SHOWING = Shape(Kind.UPSERT, -1, 1)
"""What steps of loads cost is learned under these names."""


class Layout(Protocol):
    """What is asked of a configuration about loads, and who holds what."""

    @property
    def loads(self) -> Loads: ...

    @property
    def storages(self) -> frozenset[ProcessId]: ...

    def holders(self, scope: Scope) -> frozenset[ProcessId]:
        """Give the processes that hold anything of some ranges."""
        ...


Put = Callable[[LoadStep, Shape, int, Gate], None]
"""Lets a step wait behind everything delivered: with what it costs, its bytes, and what it waits for."""


@dataclass(slots=True)
class _Kept:
    """Bytes that are here."""

    payload: bytes
    until_s: float
    is_ordered: bool = False


@dataclass(slots=True, eq=False)
class _Order:
    """One chunk that is ordered and whose bytes are not here."""

    chunk: ChunkOrder
    sender: ProcessId
    number: int
    position: int
    scope: Scope


@dataclass(slots=True, eq=False)
class _Lacking:
    """Bytes that are not here, and who may have them."""

    orders: list[_Order]
    sources: deque[ProcessId]
    asked: ProcessId | None = None
    ask_at_s: float = 0.0
    unknown: set[ProcessId] = field(default_factory=set)
    is_lost: bool = False
    """Whether everybody who was asked has answered that he has none."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A client that wants to know whether a load is here."""

    client: ProcessId
    question: AskStaged


class Late:
    """A chunk of a copy that its sender did not have when it took the image.

    Attributes
    ----------
    content : LateChunk or None
        As soon as there is something to send.
    """

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.content: LateChunk | None = None


class Staging:
    """The loads at one storage process.

    Parameters
    ----------
    me : ProcessId
    limits : StorageLimits
        `stage_bytes`, `stage_kept_bytes` and `stage_s` are asked for.
    put : callable
    fail : callable
        Tells a client that an operation has failed.

    Attributes
    ----------
    n_late : int
        Bytes that came behind their order.
    """

    def __init__(
        self,
        me: ProcessId,
        limits: StorageLimits,
        *,
        put: Put,
        fail: Callable[[ProcessId, Failed], None],
    ) -> None:
        self.me = me
        self._limits = limits
        self._put = put
        self._fail = fail
        self._loads = Loads()
        self._layout: Layout | None = None
        self._kept: dict[bytes, _Kept] = {}
        """The longest unused first."""
        self._unordered_bytes = self._ordered_bytes = 0
        self._lacking: dict[bytes, _Lacking] = {}
        self._gates: dict[LoadId, Gate] = {}
        self._late: list[tuple[_Order, Late]] = []
        self._asked: list[_Asked] = []
        self._sessions: set[ProcessId] = set()
        self._clients: set[ProcessId] = set()
        self._to_send: list[tuple[ProcessId, Any]] = []
        self._now_s = 0.0
        self.n_late = 0

    @property
    def n_bytes(self) -> int:
        """What bytes beside the order take."""
        return self._unordered_bytes + self._ordered_bytes

    @property
    def n_lacking(self) -> int:
        """How many chunks are ordered and not here."""
        return len(self._lacking)

    # Sessions.

    def on_connected(self, peer: ProcessId) -> None:
        """Learn of a session."""
        (self._clients if peer.role == "client" else self._sessions).add(peer)

    def on_disconnected(self, peer: ProcessId) -> None:
        """Learn that a session has ended; what was asked in it is asked elsewhere."""
        self._clients.discard(peer)
        self._sessions.discard(peer)
        self._asked = [each for each in self._asked if each.client != peer]
        for lacking in self._lacking.values():
            if lacking.asked == peer:
                lacking.asked, lacking.ask_at_s = None, 0.0

    def needed(self) -> frozenset[ProcessId]:
        """Give the storage processes with which there must be a session."""
        return frozenset(
            each.asked
            for each in self._lacking.values()
            if each.asked is not None and each.asked.role == self.me.role
        )

    # Bytes.

    def on_message(self, peer: ProcessId, message: Bring | Lack | Unknown | AskStaged, now_s: float) -> bool:
        """Take a message; False if it is malformed and the session must end."""
        self._now_s = now_s
        match message:
            case Bring(digest, payload):
                if len(payload) > CHUNK_BYTES_MAX or load_digest(payload) != digest:
                    return False
                refusal = self._take(digest, payload)
                if peer.role == "client":
                    self._to_send.append((peer, Brought(digest, refusal)))
            case Lack(digest):
                kept = self._kept.get(digest)
                answer = Unknown(digest) if kept is None else Bring(digest, kept.payload)
                self._to_send.append((peer, answer))
            case Unknown(digest):
                lacking = self._lacking.get(digest)
                if lacking is not None:
                    lacking.unknown.add(peer)
                    if lacking.asked == peer:
                        lacking.asked, lacking.ask_at_s = None, 0.0
            case AskStaged():
                self._asked.append(_Asked(peer, message))
        return True

    def _take(self, digest: bytes, payload: bytes) -> str:
        """Keep bytes; gives why not, if there is no room."""
        lacking = self._lacking.pop(digest, None)
        if lacking is not None:
            self.n_late += 1
            self._keep(digest, payload, is_ordered=True)
            for order in lacking.orders:
                self._arrive(order, payload)
            return ""
        known = self._kept.get(digest)
        if known is not None:
            known.until_s = self._now_s + self._limits.stage_s
            return ""
        if not self._make_room(digest, len(payload)):
            return f"{self.me}: {self._unordered_bytes:,} bytes wait for their order"
        self._keep(digest, payload, is_ordered=False)
        return ""

    def _make_room(self, digest: bytes, n_bytes: int) -> bool:
        """Say whether bytes may be kept that nobody has ordered; others give way whose digest is higher.

        So all processes prefer the same chunks, and do not wait for one another's. Whoever was told that
        bytes are here that gave way orders them, and they are fetched.
        """
        while self._unordered_bytes and self._unordered_bytes + n_bytes > self._limits.stage_bytes:
            last = max(known for known, kept in self._kept.items() if not kept.is_ordered)
            if last < digest:
                return False
            self._forget(last)
        return True

    def _keep(self, digest: bytes, payload: bytes, *, is_ordered: bool) -> None:
        self._forget(digest)
        self._kept[digest] = _Kept(payload, self._now_s + self._limits.stage_s, is_ordered)
        self._count(len(payload), is_ordered=is_ordered)
        self._cut_down()

    def _count(self, n_bytes: int, *, is_ordered: bool) -> None:
        if is_ordered:
            self._ordered_bytes += n_bytes
        else:
            self._unordered_bytes += n_bytes

    def _forget(self, digest: bytes) -> None:
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self._count(-len(kept.payload), is_ordered=kept.is_ordered)

    def _cut_down(self) -> None:
        """Keep no more of what is staged already than may be, for those who lack it."""
        if self._ordered_bytes <= self._limits.stage_kept_bytes:
            return
        for digest in [digest for digest, kept in self._kept.items() if kept.is_ordered]:
            if self._ordered_bytes <= self._limits.stage_kept_bytes:
                break
            self._forget(digest)

    # The order.

    def follow(self, layout: Layout) -> None:
        """Take the configuration that a process begins with."""
        self._layout, self._loads = layout, layout.loads

    def follow_orders(
        self, orders: Iterable[LoadOrder], sender: ProcessId, number: int, at: int, layout: Layout
    ) -> bool:
        """Take what a configuration message did; says whether its sender waits for an outcome."""
        self._layout, self._loads = layout, layout.loads
        is_awaited = False
        for order in orders:
            load = order.load
            if order.kind == "repeat":
                failed = Failed(number, at, WHOLE, "repeat", (), LOAD_REPEAT)
                self._fail(sender, failed)
                continue
            gate = OPEN
            if order.kind in ("commit", "seal"):
                gate = self._gate(load.id)
            elif order.kind == "abort" and load.id not in self._gates:
                # What a seal waits for it must have, whatever comes behind it.
                self._drop(load.id)
            ends = order.kind in ("commit", "seal", "publish")
            is_awaited = is_awaited or ends
            scope = WHOLE if ends else ()
            step = LoadStep(at, sender, number, scope, work_of(order))
            self._put(step, SHOWING, 0, gate)
        return is_awaited

    def _gate(self, load: LoadId) -> Gate:
        lacking = {
            digest
            for digest, each in self._lacking.items()
            if any(order.chunk.load == load for order in each.orders)
        }
        if not lacking:
            return OPEN
        gate = self._gates[load] = Gate(lacking)
        return gate

    def order(
        self, chunk: ChunkOrder, sender: ProcessId, number: int, at: int, scope: Scope
    ) -> Failed | None:
        """Take the order of a chunk; gives why it fails, if it does here as everywhere."""
        load = self._loads.find(chunk.load)
        if load is None or load.is_sealed:
            return Failed(number, at, scope, "load", (), f"{LOAD_GONE}: {chunk.load}")
        order = _Order(chunk, sender, number, at, scope)
        kept = self._kept.get(chunk.digest)
        if kept is not None:
            if not kept.is_ordered:
                self._forget(chunk.digest)
                self._keep(chunk.digest, kept.payload, is_ordered=True)
            self._arrive(order, kept.payload)
            return None
        lacking = self._lacking.get(chunk.digest)
        if lacking is None:
            lacking = self._lacking[chunk.digest] = _Lacking([], deque())
        lacking.orders.append(order)
        lacking.is_lost = False
        self._name_sources(lacking)
        return None

    def _name_sources(self, lacking: _Lacking) -> None:
        """Find out who may have bytes: whom their orders name, who holds the ranges, and their sender."""
        named: dict[ProcessId, None] = {}
        storages = frozenset[ProcessId]() if self._layout is None else self._layout.storages
        for order in lacking.orders:
            named.update(dict.fromkeys(each for each in order.chunk.holders if each in storages))
            if self._layout is not None:
                named.update(dict.fromkeys(sorted(self._layout.holders(order.chunk.ranges) & storages)))
            if order.sender in self._clients:
                named[order.sender] = None
        named.pop(self.me, None)
        lacking.sources = deque(named)

    def _arrive(self, order: _Order, payload: bytes) -> None:
        """Stage a chunk whose bytes are here."""
        for late in [each for each in self._late if each[0] is order]:
            self._late.remove(late)
            late[1].content = LateChunk(order.chunk, order.sender, order.number, order.position, payload)
        step = step_of(order.chunk, order.sender, order.number, order.position, order.scope, payload)
        gate = self._gates.get(order.chunk.load)
        if isinstance(step, Failed):
            self._fail(order.sender, step)
        elif gate is None:
            self._put(step, STAGING, len(payload), OPEN)
        else:
            gate.late.append(step)
        if gate is not None:
            gate.lacking.discard(order.chunk.digest)
            if gate.is_open:
                del self._gates[order.chunk.load]

    def _drop(self, load: LoadId) -> None:
        """Wait no more for the bytes of a load that has ended."""
        for digest, lacking in list(self._lacking.items()):
            gone = [order for order in lacking.orders if order.chunk.load == load]
            lacking.orders = [order for order in lacking.orders if order.chunk.load != load]
            for order in gone:
                for late in [each for each in self._late if each[0] is order]:
                    self._late.remove(late)
                    late[1].content = LateChunk(order.chunk, order.sender, order.number, order.position, b"")
                reason = f"{LOAD_GONE}: {load}"
                self._fail(
                    order.sender, Failed(order.number, order.position, order.scope, "load", (), reason)
                )
            if not lacking.orders:
                del self._lacking[digest]

    # Copies.

    def late(self, scope: Scope) -> list[Late]:
        """Give the chunks that an image of some ranges, taken here in the order, will not have."""
        found = []
        for lacking in self._lacking.values():
            for order in lacking.orders:
                load = self._loads.find(order.chunk.load)
                # What is sealed waits for its chunks, and the image for what is sealed.
                if load is not None and not load.is_sealed and common(order.chunk.ranges, scope):
                    late = Late(order.chunk.digest)
                    self._late.append((order, late))
                    found.append(late)
        return found

    # A turn's end.

    def flush(self, now_s: float, *, delivered: int) -> None:
        """Ask for what is lacking, answer who asks, and let bytes go that nobody has ordered."""
        self._now_s = now_s
        for digest, lacking in self._lacking.items():
            if lacking.asked is None and now_s >= lacking.ask_at_s:
                self._ask(digest, lacking)
            elif lacking.asked is not None and now_s >= lacking.ask_at_s:
                lacking.asked, lacking.ask_at_s = None, now_s
                self._ask(digest, lacking)
        for digest in [digest for digest, kept in self._kept.items() if now_s >= kept.until_s]:
            self._forget(digest)
        waiting, self._asked = self._asked, []
        for each in waiting:
            self._answer(each, delivered)

    def _ask(self, digest: bytes, lacking: _Lacking) -> None:
        """Ask the next one who may have bytes."""
        if not lacking.sources:
            self._name_sources(lacking)
            known = set(lacking.sources)
            # Whoever cannot be reached may have them.
            if known <= lacking.unknown:
                lacking.is_lost = True
                lacking.unknown.clear()
                lacking.ask_at_s = self._now_s + AGAIN_S
                return
        source = lacking.sources.popleft()
        if source in lacking.unknown:
            lacking.ask_at_s = self._now_s
            return
        lacking.asked, lacking.ask_at_s = source, self._now_s + FETCH_S
        if source in self._sessions or source in self._clients:
            self._to_send.append((source, Lack(digest)))

    def asked_in(self, peer: ProcessId) -> None:
        """Ask in a new session what it was wanted for."""
        self._to_send += [
            (peer, Lack(digest)) for digest, lacking in self._lacking.items() if lacking.asked == peer
        ]

    def _answer(self, asked: _Asked, delivered: int) -> None:
        question = asked.question
        lacking = [
            each
            for each in self._lacking.values()
            if any(order.chunk.load == question.load for order in each.orders)
        ]
        told = StagedTold(question.request, len(lacking))
        if delivered < question.upto:
            told = StagedTold(question.request, -1)
        elif any(each.is_lost for each in lacking):
            n_lost = sum(each.is_lost for each in lacking)
            told = StagedTold(
                question.request,
                len(lacking),
                f"nobody who can be asked has the rows of {n_lost} chunks of load {question.load}",
            )
        self._to_send.append((asked.client, told))

    def take_to_send(self) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        to_send, self._to_send = self._to_send, []
        return to_send

    @property
    def wake_at_s(self) -> float | None:
        """When to ask somebody else, or to let bytes go."""
        return earliest(
            min((each.ask_at_s for each in self._lacking.values()), default=None),
            min((each.until_s for each in self._kept.values()), default=None),
        )


def step_of(
    chunk: ChunkOrder, sender: ProcessId, number: int, at: int, scope: Scope, payload: bytes
) -> LoadStep | Failed:
    """Give the engine's step that stages a chunk; why it fails, if its bytes are no rows."""
    try:
        columns = decode_parameters(_ROWS, payload)
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError, RecursionError):
        return Failed(number, at, scope, "invalid", (), "the chunk's bytes are malformed")
    work = Stage(str(chunk.load), chunk.partition, chunk.attempt, chunk.chunk, columns)
    return LoadStep(at, sender, number, scope, work)


def work_of(order: LoadOrder) -> LoadWork:
    """Give what the engine is to do."""
    load, name = order.load, str(order.load.id)
    winners = tuple((each.partition, each.attempt) for each in order.winners if each.n_rows)
    match order.kind:
        case "begin":
            write, rule = LoadWrite(load.write), LoadRule(load.rule)
            return Begin(name, load.table, write, rule, load.columns, job_of(load), load.epoch)
        case "commit":
            return Commit(name, job_of(load), load.epoch, winners)
        case "seal":
            return Seal(name, job_of(load), load.epoch, winners)
        case "publish":
            return Publish(name, job_of(load), load.epoch)
        case _:
            return Abort(name)


def job_of(load: Load) -> str:
    """Name a job for engines, which know no job of two tables."""
    return f"{load.table}/{load.job}"
