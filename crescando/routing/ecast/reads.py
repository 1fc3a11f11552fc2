"""Snapshot reads through the lead router: outside the order, at one position of it (RB13 §6.7).

Rules of the file: reads are routed by the present Config at the position p of
the last message learned, and each destination is sent its part behind
everything at or below p and before anything above it. None is routed before a
majority has answered, under the leader's ballot, a question that was put after
the read had come: till then another leader may have acknowledged what this one
does not know, and a destination declared failed meanwhile would not know it
either (INV-10). No clock is asked for that (Ongaro 2014, §6.4, "read index"). Nor is a
read routed before the leader has learned all that its predecessors may have
decided, nor below what its session has seen or written; till then it is held.
What is held and what waits for a destination is bounded, in time, number and
bytes, of each client and of all (`allowance`); over it reads are refused with
the word to pause, and their clients send them later, whole, as other attempts.
A read is never sent twice by one router.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from crescando.consensus.base import Ballot
from crescando.process import earliest
from crescando.routing.avoiding import best_routes
from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Delivery, Submission, fault_of
from crescando.routing.ecast.allowance import Allowance
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import DeliverRead, Inject, ReadRefused
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.split import split
from crescando.routing.ecast.stability import Outbox
from crescando.types import MessageKind, ProcessId, instance_of

C = TypeVar("C", bound=Config)

_IDLE, _BUSY, _FULL, _UNREACHABLE = 0, 1, 2, 3

_NOBODY = Refusal("no owner of some range has a session with the router")
_CROWDED = Refusal("too many reads wait for an owner of some range")
_REFUSALS = {_FULL: _CROWDED, _UNREACHABLE: _NOBODY}
_PASSING = frozenset(_REFUSALS.values())


@dataclass(frozen=True, slots=True)
class _Held:
    """Reads of one client that may not run yet."""

    inject: Inject
    proof: int
    due_s: float


@dataclass(frozen=True, slots=True)
class _Queued:
    """Reads at one position that wait until one destination has been sent what lies before."""

    position: int
    parts: tuple[Delivery, ...]
    n_bytes: int


class Reads(Generic[C]):
    """The snapshot reads of one router.

    Parameters
    ----------
    limits : RouterLimits
        Reads are held for `leaderless_s` before they are refused, and a client asks
        again. These are two election times at least: a leader that is backed may
        need two rounds, and a read that is asked again begins anew.

    Attributes
    ----------
    allowance : Allowance
        What is held, and what waits for destinations.
    injected, refused : int
        How many reads were routed, and how many attempts were refused.
    waiting : dict of ProcessId to deque
        Routed reads, by the destination for which they wait; there are none without any.
    proof : int
        The round of questions that the youngest of the held reads waits for; 0 if none is held.
    """

    def __init__(self, limits: RouterLimits) -> None:
        self.limits = limits
        self.allowance = Allowance(limits)
        self.injected = 0
        self.refused = 0
        self.proof = 0
        self._held: dict[ProcessId, deque[_Held]] = {}
        self.waiting: dict[ProcessId, deque[_Queued]] = {}
        self._queued_bytes: dict[ProcessId, int] = {}
        self._refusals: list[tuple[ProcessId, ReadRefused]] = []

    # Inputs.

    def take(self, client: ProcessId, inject: Inject, *, is_led: bool, proof: int, now_s: float) -> bool:
        """Take reads of a client; False if they are malformed and its session must end.

        Parameters
        ----------
        client : ProcessId
        inject : Inject
        is_led : bool
            Whether this router leads.
        proof : int
            The next round in which it asks the others; the reads run when a majority has answered it.
        now_s : float
        """
        reads = inject.reads
        if reads.sender != client or fault_of(reads) or (reads.kind != MessageKind.READ).any():
            return False
        if not is_led:
            self._refuse(client, _numbers(reads), "this router does not lead")
        elif not self.allowance.admits(client, len(reads), reads.n_bytes):
            self._refuse(client, _numbers(reads), "too many reads wait at the router", pauses=True)
        else:
            due_s = now_s + self.limits.leaderless_s
            self._held.setdefault(client, deque()).append(_Held(inject, proof, due_s))
            self.allowance.add(client, len(reads), reads.n_bytes)
            self.proof = proof
        return True

    def end_session(self, peer: ProcessId) -> None:
        """Forget what a client asked, and refuse what waits for a destination."""
        queue = self._held.pop(peer, None)
        while queue:
            self._release(queue)
        self._queued_bytes.pop(peer, None)
        for queued in self.waiting.pop(peer, ()):
            self._discount(queued)
            for part in queued.parts:
                self._refuse(part.sender, part.number.tolist(), f"the session with {peer} ended")

    def change_leadership(self) -> None:
        """Begin afresh: nothing that was asked under another leadership is answered."""
        for peer in list(self.waiting):
            self.end_session(peer)
        for client, queue in self._held.items():
            while queue:
                self._refuse(client, _numbers(self._release(queue).reads), "the leader has changed")
        self._held.clear()
        self.proof = 0

    # A turn of the leader.

    def inject(
        self, mseq: MSeq[C], outboxes: Mapping[ProcessId, Outbox[C]], *, proven: int, now_s: float
    ) -> None:
        """Route what may run now; it waits for its destinations until `due` gives it.

        Parameters
        ----------
        mseq : MSeq
        outboxes : mapping of ProcessId to Outbox
        proven : int
            The highest round that a majority has answered; 0 while this leader may not have learned
            all that its predecessors have decided.
        now_s : float
        """
        if not self._held:
            return
        parts: dict[ProcessId, list[Delivery]] = {}
        for client, queue in self._held.items():
            while queue and queue[0].proof <= proven and _may_run(client, queue[0].inject, mseq):
                self._route(self._release(queue).reads, mseq, outboxes, parts)
            while queue and now_s >= queue[0].due_s:
                numbers = _numbers(self._release(queue).reads)
                self._refuse(client, numbers, "the router could not serve it in time")
        for process, given in parts.items():
            queued = _Queued(_reached(mseq), tuple(given), sum(part.n_bytes for part in given))
            self.waiting.setdefault(process, deque()).append(queued)
        for client in [client for client, queue in self._held.items() if not queue]:
            del self._held[client]
        if not self._held:
            self.proof = 0

    def _release(self, queue: deque[_Held]) -> Inject:
        inject = queue.popleft().inject
        self.allowance.remove(inject.reads.sender, len(inject.reads), inject.reads.n_bytes)
        return inject

    def _discount(self, queued: _Queued) -> None:
        for part in queued.parts:
            self.allowance.remove(part.sender, len(part), part.n_bytes)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be routed, waits for its destination, or is to be told to clients."""
        return not (self._held or self.waiting or self._refusals)

    def due(self, process: ProcessId, outbox: Outbox[C], ballot: Ballot) -> list[DeliverRead]:
        """Give the reads that come before the next instance a destination is to be sent."""
        queue = self.waiting.get(process)
        messages: list[DeliverRead] = []
        unsent = outbox.entries[outbox.n_sent].instance if outbox.n_sent < len(outbox.entries) else None
        while queue and (unsent is None or instance_of(queue[0].position) < unsent):
            queued = queue.popleft()
            self._queued_bytes[process] -= queued.n_bytes
            self._discount(queued)
            messages.append(DeliverRead(ballot, queued.position, outbox.previous, queued.parts))
        if queue is not None and not queue:
            del self.waiting[process], self._queued_bytes[process]
        return messages

    def take_refusals(self) -> list[tuple[ProcessId, ReadRefused]]:
        """Give what is to be told to clients."""
        refusals, self._refusals = self._refusals, []
        return refusals

    @property
    def wake_at_s(self) -> float | None:
        """When what is held must be refused."""
        return earliest(*(queue[0].due_s for queue in self._held.values() if queue)) if self._held else None

    def _route(
        self,
        reads: Submission,
        mseq: MSeq[C],
        outboxes: Mapping[ProcessId, Outbox[C]],
        parts: dict[ProcessId, list[Delivery]],
    ) -> None:
        """Split reads by destination, away from busy and unreachable ones where another replica is."""
        ranks: dict[ProcessId, int] = {}

        def rank(process: ProcessId) -> int:
            found = ranks.get(process)
            if found is None:
                found = ranks[process] = self._rank(process, outboxes)
            return found

        routes = best_routes(mseq.config, reads, rank, _REFUSALS)
        for number, target in enumerate(routes.routes):
            if not isinstance(target, Refusal):
                continue
            numbers = (reads.first + np.flatnonzero(routes.group == number)).tolist()
            if numbers:
                self._refuse(reads.sender, numbers, target.reason, is_final=target not in _PASSING)
        positions = np.full(len(reads), _reached(mseq), np.int64)
        for process, part in split(reads, 0, routes, positions):
            parts.setdefault(process, []).append(part)
            # At once: what the next client asks in this turn must not count on the same room.
            self._queued_bytes[process] = self._queued_bytes.get(process, 0) + part.n_bytes
            self.allowance.add(part.sender, len(part), part.n_bytes)
            self.injected += len(part)

    def _rank(self, process: ProcessId, outboxes: Mapping[ProcessId, Outbox[C]]) -> int:
        outbox = outboxes.get(process)
        if outbox is None or not outbox.is_open:
            return _UNREACHABLE
        if outbox.n_sent == len(outbox.entries):
            return _IDLE
        is_full = self._queued_bytes.get(process, 0) >= self.limits.queued_read_bytes
        return _FULL if is_full or self.allowance.is_used_up else _BUSY

    def _refuse(
        self,
        client: ProcessId,
        numbers: list[int],
        reason: str,
        *,
        is_final: bool = False,
        pauses: bool = False,
    ) -> None:
        self.refused += len(numbers)
        self._refusals.append((client, ReadRefused(tuple(numbers), reason, is_final, pauses)))


def _reached(mseq: MSeq[C]) -> int:
    """Give the position at which reads run; before the first message a place that none takes."""
    return max(mseq.position, 0)


def _may_run(client: ProcessId, inject: Inject, mseq: MSeq[C]) -> bool:
    """Whether the order has reached what the reader's session has seen and written."""
    return (
        mseq.config.is_member(client)
        and inject.seen <= mseq.position
        and inject.written <= mseq.learned_of(client)
    )


def _numbers(reads: Submission) -> list[int]:
    return list(range(reads.first, reads.last + 1))
