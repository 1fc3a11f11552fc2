"""What waits at a leader to be proposed: whose turn it is, and what has to stay behind.

Rules of the file: senders take turns, and one that has waited for nothing yet
goes before those with a backlog, so that a small one is in the next batch
whatever the others have. Configuration messages have a bound of their own that
no data and no slow destination can use up. A destination with too large a
backlog holds back only what is addressed to it and what the same senders sent
later. Work is done per batch and per submission in it, never per sender that
merely waits.

Sources: RB13 §5.5 (congestion control); the turns are those of fair queueing
with two lists, new and old.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

import msgspec
import numpy as np

from crescando.consensus.base import AtomicBroadcast
from crescando.routing.base import Config, Refusal, route
from crescando.routing.batch import CONFIG, Submission
from crescando.routing.ecast.limits import CONFIG_CREDIT_BYTES, RouterLimits
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.stability import Window
from crescando.types import ProcessId

C = TypeVar("C", bound=Config)

TURNS_PER_BATCH = 8
"""A sender with more to say gets at most this part of a batch while others wait."""

Turns = OrderedDict[ProcessId, None]


class _Queue(msgspec.Struct):
    """What one sender has waiting."""

    waiting: deque[Submission] = msgspec.field(default_factory=deque)
    n_messages: int = 0
    n_bytes: int = 0
    config_bytes: int = 0


class _Draft(msgspec.Struct):
    """A batch in the making, and the room that is left in it."""

    messages: int
    n_bytes: int
    taken: list[Submission] = []
    data_bytes: int = 0
    config_bytes: int = 0
    is_full: bool = False


class Proposer(Generic[C]):
    """The submissions that a leader has taken and not yet proposed; a new one per leadership.

    Parameters
    ----------
    broadcast : AtomicBroadcast
        What it proposes again counts as taken.
    limits : RouterLimits

    Attributes
    ----------
    first_proposed : int or None
        The instance of the first batch proposed; what predecessors may have
        decided lies below.
    """

    def __init__(self, broadcast: AtomicBroadcast[Batch], limits: RouterLimits) -> None:
        self.broadcast = broadcast
        self.limits = limits
        self.n_bytes = 0
        self.first_proposed: int | None = None
        self._queues: dict[ProcessId, _Queue] = {}
        self._configuring: Turns = OrderedDict()
        self._fresh: Turns = OrderedDict()
        self._backlogged: Turns = OrderedDict()
        self._held: dict[ProcessId, None] = {}
        self._held_for: tuple[frozenset[ProcessId], C | None] = (frozenset(), None)
        self._ready_messages = 0
        self._ready_bytes = 0
        self._owes_turn = False
        self._taken: dict[ProcessId, int] = {}
        self._open: deque[tuple[int, int]] = deque()
        self._open_data = self._open_config = 0
        for batch in broadcast.open_values():
            self._count_open(*_weights(batch))
            for submission in batch.submissions:
                self._taken[submission.sender] = submission.last

    def taken(self, sender: ProcessId) -> int:
        """Give the number up to which a sender's messages wait here or are proposed, or 0."""
        return self._taken.get(sender, 0)

    @property
    def held(self) -> frozenset[ProcessId]:
        """The senders whose next message must wait for a slow destination."""
        return frozenset(self._held)

    @property
    def is_holding(self) -> bool:
        """Whether any sender must wait for a slow destination."""
        return bool(self._held)

    @property
    def open_bytes(self) -> tuple[int, int]:
        """What is proposed and not learned yet weighs: its data, and its configuration messages."""
        for _ in range(len(self._open) - self.broadcast.n_open):
            data, config = self._open.popleft()
            self._open_data -= data
            self._open_config -= config
        return self._open_data, self._open_config

    def _count_open(self, data: int, config: int) -> None:
        self._open.append((data, config))
        self._open_data += data
        self._open_config += config

    @property
    def is_caught_up(self) -> bool:
        """Whether everything has been learned that earlier leaders may have decided."""
        if self.first_proposed is None:
            return not self.broadcast.n_open and self.broadcast.can_propose()
        return self.broadcast.learned >= self.first_proposed - 1

    # Taking in.

    def put(self, submission: Submission) -> bool:
        """Take a sender's next messages; False if it has sent far more than it may.

        An honest sender has at most its credit unstable, or one larger message,
        and a bounded amount of configuration messages beside.
        """
        sender = submission.sender
        queue = self._queues.get(sender)
        if queue is None:
            queue = self._queues[sender] = _Queue()
        elif not submission.begins_with_config:
            if queue.n_bytes > 2 * self.limits.sender_bytes + 2 * CONFIG_CREDIT_BYTES:
                return False
        elif queue.config_bytes > 2 * CONFIG_CREDIT_BYTES:
            return False
        self._taken[sender] = submission.last
        queue.waiting.append(submission)
        self._count(sender, queue, submission, 1)
        if len(queue.waiting) == 1:
            self._line_up(sender, submission, self._fresh)
        return True

    def forget(self, sender: ProcessId) -> None:
        """Drop what a sender has waiting: it is void, or will be sent again."""
        self._taken.pop(sender, None)
        queue = self._queues.pop(sender, None)
        if queue is None:
            return
        self.n_bytes -= queue.n_bytes
        if sender in self._held:
            del self._held[sender]
            return
        self._ready_messages -= queue.n_messages
        self._ready_bytes -= queue.n_bytes
        for turns in (self._configuring, self._fresh, self._backlogged):
            turns.pop(sender, None)

    def _count(self, sender: ProcessId, queue: _Queue, part: Submission, sign: int) -> None:
        n_messages, n_bytes = sign * len(part.kind), sign * part.n_bytes
        queue.n_messages += n_messages
        queue.n_bytes += n_bytes
        if part.begins_with_config:
            queue.config_bytes += n_bytes
        self.n_bytes += n_bytes
        if sender not in self._held:
            self._ready_messages += n_messages
            self._ready_bytes += n_bytes

    def _line_up(self, sender: ProcessId, head: Submission, turns: Turns) -> None:
        if head.begins_with_config:
            turns = self._configuring
        turns[sender] = None

    # Proposing.

    def propose(self, window: Window[C], config: C) -> bool:
        """Propose what waits, as batches; True if anything was proposed."""
        if not self._queues:
            return False
        self._release(window, config)
        proposed = False
        while self._is_worth_an_instance() and self.broadcast.can_propose():
            draft = self._draft(window)
            if not draft.taken:
                break
            instance = self.broadcast.propose(Batch(tuple(draft.taken)))
            if self.first_proposed is None:
                self.first_proposed = instance
            self._count_open(draft.data_bytes, draft.config_bytes)
            proposed = True
        return proposed

    def _is_worth_an_instance(self) -> bool:
        if not self._ready_messages or not self.broadcast.n_open:
            return self._ready_messages > 0
        return (
            self._ready_messages >= self.limits.eager_messages or self._ready_bytes >= self.limits.eager_bytes
        )

    def _release(self, window: Window[C], config: C) -> None:
        """Let those go that waited for destinations which are not slow any more, or not theirs."""
        if self._held_for[0] == window.slow and self._held_for[1] is config:
            return
        self._held_for = (frozenset(window.slow), config)
        held, self._held = self._held, {}
        for sender in held:
            queue = self._queues[sender]
            self._ready_messages += queue.n_messages
            self._ready_bytes += queue.n_bytes
            self._line_up(sender, queue.waiting[0], self._backlogged)

    def _draft(self, window: Window[C]) -> _Draft:
        """Take the next batch out of what waits."""
        data, config = self.open_bytes
        limits = self.limits
        draft = _Draft(limits.batch_messages, limits.batch_bytes)
        if self._configuring and config + window.config_bytes < limits.reserve_bytes:
            self._draw(self._configuring, draft)
        if data + window.n_bytes - window.config_bytes < limits.window_bytes:
            had_backlog = bool(self._backlogged)
            if self._owes_turn:
                self._draw(self._backlogged, draft, turns=1)
            self._draw(self._fresh, draft)
            if self._backlogged:
                before = len(draft.taken)
                self._draw(self._backlogged, draft)
                self._owes_turn = had_backlog and not self._owes_turn and len(draft.taken) == before
            else:
                self._owes_turn = False
        return draft

    def _draw(self, line: Turns, draft: _Draft, turns: int | None = None) -> None:
        """Let senders of a line add to the batch, until it is full or they have had their turns."""
        is_config = line is self._configuring
        while line and not draft.is_full and turns != 0:
            sender, _ = line.popitem(last=False)
            queue = self._queues[sender]
            head = queue.waiting[0]
            n, n_waiting = self._turn_of(head, draft), len(head.kind)
            if n == 0:
                draft.is_full = True
                line[sender] = None
                line.move_to_end(sender, last=False)
                return
            if is_config:
                n = min(n, _leading(head))
            elif self._held_for[0]:
                n = self._unobstructed(head, n)
                if n == 0:
                    self._hold(sender, queue)
                    continue
            part = head if n == n_waiting else head.slice(0, n)
            if part is head and len(queue.waiting) == 1:
                self._ready_messages -= queue.n_messages
                self._ready_bytes -= queue.n_bytes
                self.n_bytes -= queue.n_bytes
                del self._queues[sender]
            else:
                self._count(sender, queue, head, -1)
                queue.waiting.popleft()
                if n < n_waiting:
                    rest = head.slice(n, n_waiting)
                    queue.waiting.appendleft(rest)
                    self._count(sender, queue, rest, 1)
                self._line_up(sender, queue.waiting[0], self._backlogged)
            n_bytes, config_bytes = part.n_bytes, part.config_bytes
            draft.taken.append(part)
            draft.messages -= n
            draft.n_bytes -= n_bytes
            draft.data_bytes += n_bytes - config_bytes
            draft.config_bytes += config_bytes
            if turns is not None:
                turns -= 1

    def _turn_of(self, head: Submission, draft: _Draft) -> int:
        """Give how many messages at the front of a submission the batch has room and turn for."""
        messages, n_bytes = draft.messages, draft.n_bytes
        if self._fresh or self._backlogged:
            messages = min(messages, max(1, self.limits.batch_messages // TURNS_PER_BATCH))
            n_bytes = min(n_bytes, self.limits.batch_bytes // TURNS_PER_BATCH)
        n = min(messages, head.fitting(n_bytes))
        if n == 0 and draft.messages and (not draft.taken or head.fitting(draft.n_bytes)):
            # One message is never too large for a turn, nor for a batch of its own.
            return 1
        return n

    def _unobstructed(self, head: Submission, n: int) -> int:
        """Give how many of the first `n` messages may go before one that a slow destination holds back.

        Cut before a configuration message too if anybody is slow, since the
        Config that routes what follows is not known yet.
        """
        slow, config = self._held_for
        if config is None:
            return n
        changes = np.flatnonzero(head.kind[:n] == CONFIG)
        n = int(changes[0]) if len(changes) else n
        routes = route(config, head, 0, n)
        stuck = [
            group
            for group, target in enumerate(routes.routes)
            if not isinstance(target, Refusal) and not slow.isdisjoint(target)
        ]
        if not stuck:
            return n
        hits = np.flatnonzero(np.isin(routes.group, stuck))
        return int(hits[0]) if len(hits) else n

    def _hold(self, sender: ProcessId, queue: _Queue) -> None:
        self._held[sender] = None
        self._ready_messages -= queue.n_messages
        self._ready_bytes -= queue.n_bytes


def _leading(head: Submission) -> int:
    """Give how many configuration messages a submission begins with."""
    others = np.flatnonzero(head.kind != CONFIG)
    return int(others[0]) if len(others) else len(head)


def _weights(batch: Batch) -> tuple[int, int]:
    """Give the bytes of a batch's data and of its configuration messages."""
    config = sum(submission.config_bytes for submission in batch.submissions)
    return batch.n_bytes - config, config
