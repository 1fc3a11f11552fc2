"""What a client does beside the order for atomic loads: bytes to their owners, and a look before a load ends.

Rules of the file: a chunk is ordered when everybody who is to hold it, by the layout this client
knows, has said that its bytes are there; until it has its outcome its bytes are kept, for owners
that the client did not know. A load's end is ordered when everybody who holds anything has said that
nothing that counts of the load is lacking, by a layout no older than what was staged: so that what is ordered
then can be done by all at once. Nothing here is in the session's order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from crescando.client.base import LoadEnd, Request, StagedChunk
from crescando.errors import LoadLostError, RefusedError
from crescando.process import earliest
from crescando.roles.asked import Waiting
from crescando.roles.completion import Completion, Executed, Told
from crescando.roles.layout import KnownLayout
from crescando.roles.limits import ClientLimits
from crescando.roles.load_messages import (
    HOLDERS_MAX,
    AskStaged,
    Bring,
    Brought,
    ChunkOrder,
    Lack,
    StagedTold,
    Unknown,
    encode_chunk,
)
from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Message
from crescando.routing.rubberband.messages import (
    CommitLoad,
    ConfigMessage,
    PublishLoad,
    SealLoad,
    Winner,
    encode_message,
)
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId

AGAIN_S = 0.2
"""When somebody is asked again, or brought bytes again, who had no room, lacked something or is silent."""

SILENT_S = 2.0
"""When somebody who does not answer is told everything again."""


@dataclass(slots=True, eq=False)
class _Open:
    """A step of a load that is not ordered yet.

    Attributes
    ----------
    due_s : dict of ProcessId to float
        Who has not said what is waited for, and when to tell him (again).
    """

    token: int
    request: Request
    asked_s: float
    due_s: dict[ProcessId, float] = field(default_factory=dict)
    done: set[ProcessId] = field(default_factory=set)
    config: Config | None = None
    n_bytes: int = 0
    n_again: int = 0


class Beside:
    """The steps of loads of one client that are not ordered yet, and the bytes of those that are.

    Parameters
    ----------
    me : ProcessId
    limits : ClientLimits
    layout : KnownLayout
    numbers : iterator of int
        Gives numbers above 0 for what is asked outside the order, each once.
    ended : list
        Takes what ends without being ordered.
    """

    def __init__(
        self,
        me: ProcessId,
        limits: ClientLimits,
        layout: KnownLayout,
        numbers: Iterator[int],
        ended: list[Told],
    ) -> None:
        self.me = me
        self.limits = limits
        self.wake_at_s: float | None = None
        self._layout = layout
        self._numbers = numbers
        self._waiting: deque[Waiting] = deque()
        self._open: dict[int, _Open] = {}
        self._open_bytes = 0
        self._by_digest: dict[bytes, set[int]] = {}
        self._asked: dict[int, tuple[int, ProcessId]] = {}
        self._kept: dict[int, StagedChunk] = {}
        """The chunks that are ordered and have no outcome, by token."""
        self._to_send: list[tuple[ProcessId, Any]] = []
        self._ended = ended
        self._now_s = 0.0

    def __len__(self) -> int:
        """How many steps are not ordered."""
        return len(self._waiting) + len(self._open)

    def take(self, asked: Collection[Waiting]) -> Collection[Waiting]:
        """Take the steps of loads among what is asked; gives the rest."""
        steps = [each for each in asked if each[1].load is not None]
        if not steps:
            return asked
        self._waiting.extend(steps)
        return [each for each in asked if each[1].load is None]

    def finish(self, told: Iterable[Told]) -> None:
        """Let the bytes of chunks go that have their outcome."""
        if not self._kept:
            return
        for each in told:
            if isinstance(each, Executed):
                for token in each.tokens:
                    self._kept.pop(token, None)
            elif isinstance(each, Completion) and not each.is_stable:
                self._kept.pop(each.token, None)

    def take_all(self) -> list[int]:
        """Forget everything that is not ordered; gives the tokens."""
        tokens = [*self._open, *(token for token, _ in self._waiting)]
        self._waiting.clear()
        self._open.clear()
        self._asked.clear()
        self._by_digest.clear()
        self._open_bytes = 0
        return tokens

    # Messages.

    def on_message(self, peer: ProcessId, message: Brought | Lack | StagedTold) -> None:
        """Take a storage process's word."""
        match message:
            case Brought(digest, refusal):
                for token in self._by_digest.get(digest, ()):
                    self._on_said(self._open[token], peer, is_done=not refusal)
            case Lack(digest):
                payload = self._payload(digest)
                self._to_send.append((peer, Unknown(digest) if payload is None else Bring(digest, payload)))
            case StagedTold(request, lacking, lost):
                token, _ = self._asked.pop(request, (0, peer))
                step = self._open.get(token)
                if step is not None and lost:
                    self._close(step)
                    self._ended.append(Completion(token, error=LoadLostError(lost)))
                elif step is not None:
                    self._on_said(step, peer, is_done=lacking == 0)

    def _payload(self, digest: bytes) -> bytes | None:
        for token in self._by_digest.get(digest, ()):
            load = self._open[token].request.load
            assert isinstance(load, StagedChunk)
            return load.payload
        return next((each.payload for each in self._kept.values() if each.digest == digest), None)

    def _on_said(self, step: _Open, peer: ProcessId, *, is_done: bool) -> None:
        if peer not in step.due_s:
            return
        if is_done:
            del step.due_s[peer]
            step.done.add(peer)
        else:
            step.n_again += 1
            step.due_s[peer] = self._now_s + AGAIN_S * 2.0 ** min(step.n_again // 4, 2)

    def end_session(self, peer: ProcessId) -> None:
        """Learn that a session has ended: what was said in it is said again."""
        self._asked = {number: each for number, each in self._asked.items() if each[1] != peer}
        for step in self._open.values():
            if peer in step.due_s:
                step.due_s[peer] = 0.0

    # A turn's end.

    def flush(self, now_s: float, lead: ProcessId | None, reachable: Collection[ProcessId]) -> list[Waiting]:
        """Give what is ordered now."""
        self._now_s = now_s
        ordered: list[Waiting] = []
        self._let_in(now_s)
        for step in list(self._open.values()):
            fault = self._find_owners(step)
            if fault is not None:
                self._close(step)
                self._ended.append(Completion(step.token, error=fault))
            elif step.config is not None and not step.due_s:
                self._close(step)
                ordered.append((step.token, self._ordered(step)))
            elif now_s >= step.asked_s + self.limits.beside_s:
                self._close(step)
                self._ended.append(Completion(step.token, error=self._overdue(step)))
            else:
                self._tell(step, now_s, reachable)
        if self._open:
            self._to_send += self._layout.ask(now_s, lead)
        self.wake_at_s = self._next_s()
        return ordered

    def take_to_send(self) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        to_send, self._to_send = self._to_send, []
        return to_send

    def _let_in(self, now_s: float) -> None:
        while self._waiting:
            token, request = self._waiting[0]
            load = request.load
            n_bytes = len(load.payload) if isinstance(load, StagedChunk) else 0
            if self._open_bytes and self._open_bytes + n_bytes > self.limits.beside_bytes:
                break
            self._waiting.popleft()
            self._open[token] = _Open(token, request, now_s, n_bytes=n_bytes)
            self._open_bytes += n_bytes
            if isinstance(load, StagedChunk):
                self._by_digest.setdefault(load.digest, set()).add(token)
            else:
                # Of what is staged somebody may hold a part of whom this client has not heard.
                self._layout.want()

    def _close(self, step: _Open) -> None:
        del self._open[step.token]
        self._open_bytes -= step.n_bytes
        load = step.request.load
        if isinstance(load, StagedChunk):
            tokens = self._by_digest[load.digest]
            tokens.discard(step.token)
            if not tokens:
                del self._by_digest[load.digest]

    def _find_owners(self, step: _Open) -> Exception | None:
        """Find out who is waited for, by the newest layout; gives why the step cannot be."""
        config, load = self._layout.config, step.request.load
        is_new = config is not None and config is not step.config
        if isinstance(load, LoadEnd):
            if load.kind == "publish":
                step.config = config or step.config
                return None
            is_new = is_new and self._layout.reached >= load.staged
        if config is None or (isinstance(load, LoadEnd) and self._layout.reached < load.staged):
            self._layout.want()
            return None
        if not is_new:
            return None
        assert load is not None
        ranges = step.request.ranges if isinstance(load, StagedChunk) else (FULL_RING,)
        try:
            owners = _owners(config, self.me, step.request.shape.table, ranges)
        except Refusal as refusal:
            # An old layout says so, or the order will.
            if step.config is None and self._now_s < step.asked_s + SILENT_S:
                self._layout.want()
                return None
            return RefusedError(refusal.reason)
        step.config = config
        step.due_s = {owner: step.due_s.get(owner, 0.0) for owner in owners if owner not in step.done}
        return None

    def _tell(self, step: _Open, now_s: float, reachable: Collection[ProcessId]) -> None:
        """Bring or ask what is due; whoever cannot be reached may be none of those who matter any more."""
        load = step.request.load
        for owner, due_s in step.due_s.items():
            if now_s < due_s:
                continue
            if owner not in reachable:
                self._layout.want()
                step.due_s[owner] = now_s + AGAIN_S
                continue
            step.due_s[owner] = now_s + SILENT_S
            if isinstance(load, StagedChunk):
                self._to_send.append((owner, Bring(load.digest, load.payload)))
            elif load is not None:
                number = next(self._numbers)
                self._asked[number] = step.token, owner
                attempts = tuple((partition, attempt) for partition, attempt, _, _ in load.winners)
                self._to_send.append((owner, AskStaged(number, load.load, load.staged, attempts)))

    def _ordered(self, step: _Open) -> Request:
        """Give the request with what its message says."""
        load = step.request.load
        if isinstance(load, StagedChunk):
            self._kept[step.token] = load
            holders = tuple(sorted(step.done))[:HOLDERS_MAX]
            order = ChunkOrder(
                load.load,
                load.partition,
                load.attempt,
                load.chunk,
                load.n_rows,
                load.digest,
                step.request.ranges,
                holders,
            )
            return msgspec.structs.replace(step.request, load=None, order=encode_chunk(order))
        assert load is not None
        return msgspec.structs.replace(
            step.request, load=None, order=encode_message(_message(load)), is_config=True
        )

    def _overdue(self, step: _Open) -> Exception:
        silent = ", ".join(map(str, sorted(step.due_s))) or "no router that leads"
        what = "have the rows" if isinstance(step.request.load, StagedChunk) else "have all of the load"
        return RefusedError(
            f"not ordered, since for {self.limits.beside_s:g} s {silent} did not say to {what}; try again"
        )

    def _next_s(self) -> float | None:
        due = [due_s for step in self._open.values() for due_s in step.due_s.values()]
        over = [step.asked_s + self.limits.beside_s for step in self._open.values()]
        return earliest(
            min(due, default=None), min(over, default=None), self._layout.wake_at_s if self._open else None
        )


def _owners(config: Config, me: ProcessId, table: int, ranges: Iterable[KeyRange]) -> list[ProcessId]:
    """Give who is sent a write to some ranges."""
    return sorted(config.destset(Message(me, 1, MessageKind.WRITE, table, tuple(ranges), 0, b"")))


def _message(end: LoadEnd) -> ConfigMessage:
    if end.kind == "publish":
        return PublishLoad(end.load, end.table, end.job, end.epoch)
    winners = tuple(Winner(*winner) for winner in end.winners)
    kind = CommitLoad if end.kind == "commit" else SealLoad
    return kind(end.load, end.table, end.job, end.epoch, winners)
