"""The atomic loads at one storage process: bytes that come beside the order, and steps for the engine.

Rules of the file: bytes wait here for their order, within a budget and not for ever; an order whose
bytes are here becomes a step of the engine at its place. One whose bytes are not delays nobody: they are
fetched by their digest, from whoever its order or the layout names, and staged when they come. So that the
end of a load waits for nobody either, each process says in the order what it has of one that is closed, and
the order refuses an end of which somebody may lack something. Which loads are open follows from the
configuration at the order's place. Chunks go to the engine under the place at which they were ordered,
whenever that is.
"""

from __future__ import annotations

from collections import OrderedDict, deque
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
from crescando.routing.rubberband.loads import Load, LoadOrder, Loads, digest_of
from crescando.routing.rubberband.messages import HaveLoad
from crescando.scopes import common
from crescando.types import FULL_RING, LoadId, ProcessId, Scope

FETCH_S = 0.5
"""How long somebody who was asked for bytes has to send them, before the next one is asked."""

VAIN_MAX = 3
"""So often all are asked who may have bytes before they are lost: each may have lacked them then,
and have got them since."""

AGAIN_S = 2.0
"""When all are asked again who said so often that they have none; sooner before."""

SAID_MAX = 8
"""Of so many choices of attempts a process says that it has them, for one load."""

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


Put = Callable[[LoadStep, Shape, int], None]
"""Lets a step wait behind everything delivered: with what it costs, and its bytes."""


Attempt = tuple[int, int]
"""A partition, and an attempt at it."""


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
    n_vain: int = 0
    """How often everybody who can be asked has answered that he has none."""

    @property
    def is_lost(self) -> bool:
        """Whether nobody has them."""
        return self.n_vain >= VAIN_MAX


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
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        """The longest unused first."""
        self._unordered_bytes = self._ordered_bytes = 0
        self._lacking: dict[bytes, _Lacking] = {}
        self._late: list[tuple[_Order, Late]] = []
        self._asked: dict[tuple[ProcessId, LoadId], AskStaged] = {}
        self._said: dict[LoadId, set[bytes]] = {}
        """Of which attempts this process has said, or is about to say, that it has them, by their digest."""
        self._to_say: list[HaveLoad] = []
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
        self._asked = {key: each for key, each in self._asked.items() if key[0] != peer}
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
                self._asked[peer, message.load] = message
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
            self._kept.move_to_end(digest)
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
        excess, gone = self._ordered_bytes - self._limits.stage_kept_bytes, []
        for digest, kept in self._kept.items():
            if excess <= 0:
                break
            if kept.is_ordered:
                gone.append(digest)
                excess -= len(kept.payload)
        for digest in gone:
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
            if order.kind in ("commit", "seal", "abort"):
                # Whatever counts is here: else the order had refused the end.
                self._drop(load.id)
            if order.kind in ("commit", "publish", "abort"):
                self._said.pop(load.id, None)
            ends = order.kind in ("commit", "seal", "publish")
            is_awaited = is_awaited or ends
            scope = WHOLE if ends else ()
            step = LoadStep(at, sender, number, scope, work_of(order))
            self._put(step, SHOWING, 0)
        return is_awaited

    def order(
        self, chunk: ChunkOrder, sender: ProcessId, number: int, at: int, scope: Scope
    ) -> Failed | None:
        """Take the order of a chunk; gives why it fails, if it does here as everywhere."""
        load = self._loads.find(chunk.load)
        if load is None or load.is_closed:
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
        lacking.n_vain = 0
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
        if isinstance(step, Failed):
            self._fail(order.sender, step)
        else:
            self._put(step, STAGING, len(payload))

    def _drop(self, load: LoadId) -> None:
        """Wait no more for the bytes of a load that is shown, sealed or dropped."""
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
                if common(order.chunk.ranges, scope):
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
        while self._kept and now_s >= next(iter(self._kept.values())).until_s:
            self._forget(next(iter(self._kept)))
        for (client, load), question in list(self._asked.items()):
            told = self._told(question, delivered)
            if told is not None:
                del self._asked[client, load]
                self._to_send.append((client, told))

    def _ask(self, digest: bytes, lacking: _Lacking) -> None:
        """Ask the next one who may have bytes."""
        if not lacking.sources:
            self._name_sources(lacking)
            known = set(lacking.sources)
            # Whoever cannot be reached may have them.
            if known <= lacking.unknown:
                lacking.n_vain += 1
                lacking.unknown.clear()
                lacking.ask_at_s = self._now_s + AGAIN_S * 4.0 ** min(0, lacking.n_vain - VAIN_MAX)
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

    def _told(self, question: AskStaged, delivered: int) -> StagedTold | None:
        """Give the answer to a question; None if there will be one."""
        if delivered < question.upto:
            return StagedTold(question.request, -1)
        load = self._loads.find(question.load)
        if load is None:
            # The order tells what has become of it.
            return StagedTold(question.request, 0)
        counting = frozenset(question.attempts)
        lacking = [
            each
            for each in self._lacking.values()
            if any(
                order.chunk.load == load.id and _attempt_of(order.chunk) in counting for order in each.orders
            )
        ]
        n_lost = sum(each.is_lost for each in lacking)
        if n_lost:
            lost = f"nobody who can be asked has the rows of {n_lost} chunks of load {load.id}"
            return StagedTold(question.request, len(lacking), lost)
        if lacking or not load.is_closed:
            return StagedTold(question.request, len(lacking)) if lacking else None
        return self._say(question, load)

    def _say(self, question: AskStaged, load: Load) -> StagedTold | None:
        """Say in the order that what counts of a closed load is here; then who asked is told."""
        have = digest_of(question.attempts)
        if (self.me, have) in load.have:
            return StagedTold(question.request, 0)
        said = self._said.setdefault(load.id, set())
        if have not in said and len(said) < SAID_MAX:
            said.add(have)
            self._to_say.append(HaveLoad(load.id, have))
        return None

    def take_to_say(self) -> list[HaveLoad]:
        """Give what is to be said in the order."""
        to_say, self._to_say = self._to_say, []
        return to_say

    def take_to_send(self) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        to_send, self._to_send = self._to_send, []
        return to_send

    @property
    def wake_at_s(self) -> float | None:
        """When to ask somebody else, or to let bytes go."""
        return earliest(
            min((each.ask_at_s for each in self._lacking.values()), default=None),
            next(iter(self._kept.values())).until_s if self._kept else None,
        )


def _attempt_of(chunk: ChunkOrder) -> Attempt:
    return chunk.partition, chunk.attempt


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
