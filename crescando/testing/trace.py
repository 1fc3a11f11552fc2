"""What happened in a simulated run, recorded at the borders of the layers.

Recorders wrap the two interfaces that a run is judged by: the multicast end
point of each application process, and the atomic broadcast of each router. The
cores inside are the very ones that run embedded and over a network.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from crescando import wire
from crescando.consensus.base import AtomicBroadcast, BroadcastOutput
from crescando.process import Output
from crescando.routing.base import ExpelledEvent, Multicast, MulticastEvent, StableEvent
from crescando.routing.batch import Delivery, Submission
from crescando.routing.ecast.messages import Batch
from crescando.types import ProcessId, Scope


@dataclass(frozen=True, slots=True)
class Submitted:
    """A process submitted messages, having delivered up to a position."""

    process: ProcessId
    batch: Submission
    delivered: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A process delivered one message."""

    process: ProcessId
    position: int
    sender: ProcessId
    number: int
    scope: Scope
    payload: bytes


@dataclass(slots=True)
class Trace:
    """Everything a run's checkers need.

    Attributes
    ----------
    submitted : list of Submitted
        In the order of submission.
    delivered : dict of ProcessId to list of Delivered
    stable : dict of ProcessId to dict of int to str
        What each sender was told per number: ``stable`` or a verdict.
    expelled : dict of ProcessId to ExpelledEvent
    learned : dict of ProcessId to list of (int, Batch or None)
        Per router, in order.
    installed : dict of ProcessId to list of int
        Snapshots a router took over, by instance.
    """

    submitted: list[Submitted] = field(default_factory=list)
    delivered: dict[ProcessId, list[Delivered]] = field(default_factory=dict)
    stable: dict[ProcessId, dict[int, str]] = field(default_factory=dict)
    expelled: dict[ProcessId, ExpelledEvent] = field(default_factory=dict)
    learned: dict[ProcessId, list[tuple[int, Batch | None]]] = field(default_factory=dict)
    installed: dict[ProcessId, list[int]] = field(default_factory=dict)

    def digest(self) -> str:
        """Give a digest of the whole run, to compare two runs of one seed."""
        state = hashlib.blake2b(digest_size=16)
        for router in sorted(self.learned):
            state.update(str(router).encode())
            for instance, batch in self.learned[router]:
                state.update(wire.encode_any((instance, batch)))
        for process in sorted(self.delivered):
            for delivered in self.delivered[process]:
                state.update(msgspec.msgpack.encode((str(process), delivered.position, delivered.number)))
        for process in sorted(self.stable):
            state.update(msgspec.msgpack.encode((str(process), sorted(self.stable[process].items()))))
        return state.hexdigest()


class RecordedMulticast:
    """A multicast end point with a recorder around it; a `Multicast`."""

    def __init__(self, me: ProcessId, inner: Multicast, trace: Trace) -> None:
        self.me = me
        self.inner = inner
        self.trace = trace
        self._delivered = -1
        self._told = 0

    @property
    def next_number(self) -> int:
        return self.inner.next_number

    @property
    def acknowledged(self) -> int:
        return self.inner.acknowledged

    @property
    def n_unstable(self) -> int:
        return self.inner.n_unstable

    @property
    def routers(self) -> tuple[ProcessId, ...]:
        return self.inner.routers

    @property
    def lead(self) -> ProcessId | None:
        return self.inner.lead

    @property
    def delivered(self) -> int:
        return self.inner.delivered

    @property
    def has_events(self) -> bool:
        """Whether something has been decided that the process has not been told in a turn of its own."""
        return self._told < self.inner.acknowledged

    def submit(self, batch: Submission) -> None:
        self.inner.submit(batch)
        self.trace.submitted.append(Submitted(self.me, batch, self._delivered))

    def hold_confirms(self, hold: bool) -> None:
        self.inner.hold_confirms(hold)

    def take_events(self) -> list[MulticastEvent]:
        events = self.inner.take_events()
        for event in events:
            if isinstance(event, Delivery):
                self._record_delivery(event)
            elif isinstance(event, StableEvent):
                self._record_stable(event)
            elif isinstance(event, ExpelledEvent):
                self.trace.expelled.setdefault(self.me, event)
        return events

    def _record_delivery(self, part: Delivery) -> None:
        record = self.trace.delivered.setdefault(self.me, [])
        for index in range(len(part)):
            at = int(part.position[index])
            scope, payload = part.scope_of(index), part.payload_of(index)
            record.append(Delivered(self.me, at, part.sender, int(part.number[index]), scope, payload))
            self._delivered = at

    def _record_stable(self, event: StableEvent) -> None:
        told = self.trace.stable.setdefault(self.me, {})
        excepted = {exception.number: exception.verdict for exception in event.exceptions}
        for number in range(self._told + 1, event.upto + 1):
            told[number] = excepted.get(number, "stable")
        self._told = max(self._told, event.upto)

    def on_start(self, now_s: float) -> None:
        self.inner.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.inner.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.inner.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.inner.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.inner.on_message(peer, message, now_s)

    def flush(self, now_s: float) -> Output:
        return self.inner.flush(now_s)


class RecordedBroadcast:
    """An atomic broadcast member with a recorder around it; an `AtomicBroadcast`."""

    def __init__(self, me: ProcessId, inner: AtomicBroadcast[Batch], trace: Trace) -> None:
        self.me = me
        self.inner = inner
        self.trace = trace

    # Routers ask for these so often that looking them up in vain first would be felt.
    is_leader = property(attrgetter("inner.is_leader"))
    is_member = property(attrgetter("inner.is_member"))
    is_quiet = property(attrgetter("inner.is_quiet"))
    ballot = property(attrgetter("inner.ballot"))
    leader = property(attrgetter("inner.leader"))
    learned = property(attrgetter("inner.learned"))
    learner = property(attrgetter("inner.learner"))
    membership = property(attrgetter("inner.membership"))
    n_open = property(attrgetter("inner.n_open"))
    on_message = property(attrgetter("inner.on_message"))
    peers = property(attrgetter("inner.peers"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def flush(self, now_s: float) -> BroadcastOutput[Batch]:
        output = self.inner.flush(now_s)
        if output.install is not None:
            self.trace.installed.setdefault(self.me, []).append(output.install[0])
        self.trace.learned.setdefault(self.me, []).extend(output.learned)
        return output
