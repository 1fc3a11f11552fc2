"""The send window: learned instances, who must still confirm them, and what became of them.

Rules of the file: an entry is one instance, never one message. A destination's
later suspicion shrinks only the set of awaited confirmations, never a destset
or a scope. An instance is complete when nobody is awaited; numbers become
stable per sender in order, so a slow destination delays only messages
addressed to it and those of the same senders behind them.

Sources: RB13 Alg. 2 lines 11–12 and 17–27; EC11 §4.6 (quiescence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Delivery
from crescando.routing.ecast.mseq import Run
from crescando.routing.ecast.split import Deliveries, Shares
from crescando.routing.ecast.split import split as split
from crescando.types import KeyRange, MessageKind, ProcessId, Scope, position

C = TypeVar("C", bound=Config)


@runtime_checkable
class Placed(Protocol):
    """A Config that knows which ring ranges a process holds.

    Without it every destination of a write is taken to hold all of it.
    """

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the ring ranges whose rows `process` holds."""
        ...


@dataclass(slots=True, eq=False)
class Entry(Generic[C]):
    """One learned instance in the send window.

    Attributes
    ----------
    runs : list of Run
    deliveries : mapping of ProcessId to tuple of Delivery
    last : dict of ProcessId to int
        Position of the last message for each destination.
    awaited, confirmed : set of ProcessId
    n_bytes, config_bytes : int
        What it weighs, and its configuration messages alone.
    weights : dict of ProcessId to int
        What is sent to each destination weighs.
    """

    instance: int
    runs: list[Run[C]]
    deliveries: Mapping[ProcessId, tuple[Delivery, ...]]
    last: dict[ProcessId, int]
    awaited: set[ProcessId]
    confirmed: set[ProcessId] = field(default_factory=set)
    n_bytes: int = 0
    config_bytes: int = 0
    weights: dict[ProcessId, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every destination has confirmed or is suspected."""
        return not self.awaited

    def lost(self) -> list[tuple[ProcessId, int]]:
        """Give the numbers of which some scope was confirmed by no process.

        Only an entry with a destination that never confirmed can have any.
        Configuration messages are never lost: routers themselves apply them.
        """
        if len(self.confirmed) == len(self.deliveries):
            return []
        found: list[tuple[ProcessId, int]] = []
        for run in self.runs:
            kinds = run.submission.kind[run.start : run.stop]
            for group, target in enumerate(run.routes.routes):
                if isinstance(target, Refusal):
                    continue
                members = np.flatnonzero(run.routes.group == group)
                for index in members.tolist():
                    if kinds[index] == MessageKind.CONFIG:
                        continue
                    is_read = bool(kinds[index] == MessageKind.READ)
                    if not _is_covered(target, self.confirmed, run.config, is_read=is_read):
                        number = run.submission.first + run.start + index
                        found.append((run.submission.sender, number))
        return found


def _is_covered(
    target: Mapping[ProcessId, Scope], confirmed: set[ProcessId], config: Config, *, is_read: bool
) -> bool:
    """Say whether every scope was confirmed: a read's by its server, a write's by any owner."""
    if is_read:
        return all(process in confirmed for process, scope in target.items() if scope)
    if not any(process in confirmed for process in target):
        return False
    if not isinstance(config, Placed):
        return True
    held = [arc for process in target if process in confirmed for arc in config.owned_arcs(process)]
    wanted = [key_range for scope in target.values() for key_range in scope]
    return all(_covers(held, key_range) for key_range in wanted)


def _covers(held: Iterable[KeyRange], wanted: KeyRange) -> bool:
    """Say whether the union of `held` contains `wanted`."""
    reached = wanted.low
    for low, high in sorted(held):
        if low > reached:
            return False
        reached = max(reached, high + 1)
        if reached > wanted.high:
            return True
    return False


def entry_of(instance: int, runs: list[Run[C]], suspected: set[ProcessId]) -> Entry[C]:
    """Split an instance by destination.

    Parameters
    ----------
    instance : int
    runs : list of Run
        Ascending.
    suspected : set of ProcessId
        Everyone suspected up to the *end* of the instance: not awaited, though
        still a destination of what was ordered before its suspicion.
    """
    parts: dict[ProcessId, list[Shares]] = {}
    last: dict[ProcessId, int] = {}
    weights: dict[ProcessId, int] = {}
    for run in runs:
        positions = np.arange(run.start, run.stop) + position(instance, run.base)
        shares = Shares(run.submission, run.start, run.routes, positions)
        last |= shares.last
        for process, weight in shares.weights.items():
            parts.setdefault(process, []).append(shares)
            weights[process] = weights.get(process, 0) + weight
    submissions = {id(run.submission): run.submission for run in runs}.values()
    return Entry(
        instance=instance,
        runs=runs,
        deliveries=Deliveries(parts),
        last=last,
        awaited=set(parts) - suspected,
        n_bytes=sum(submission.n_bytes for submission in submissions),
        config_bytes=sum(submission.config_bytes for submission in submissions),
        weights=weights,
    )


@dataclass(slots=True)
class Outbox(Generic[C]):
    """What one destination has not confirmed yet, in order.

    Attributes
    ----------
    process : ProcessId
    entries : deque of Entry
    n_bytes : int
        What these instances weigh, each whole: they are kept for this destination.
    n_sent : int
        How many of them were sent in the present session.
    in_flight_bytes : int
        What was sent of them weighs.
    previous : int
        Position of the last message sent, or stated, in this session.
    trimmed : int
        Position of the last message for this destination that left the window.
    """

    process: ProcessId
    entries: deque[Entry[C]] = field(default_factory=deque)
    n_bytes: int = 0
    n_sent: int = 0
    previous: int = -1
    trimmed: int = -1
    is_open: bool = False
    in_flight_bytes: int = 0

    def open(self, delivered: int) -> None:
        """Begin to send, behind a position that the destination has delivered."""
        self.close()
        self.is_open, self.previous = True, delivered
        for entry in self.entries:
            if entry.last[self.process] > delivered:
                break
            self.sent(entry)

    def sent(self, entry: Entry[C]) -> None:
        """Count the next entry as sent."""
        self.previous = max(self.previous, entry.last[self.process])
        self.n_sent += 1
        self.in_flight_bytes += entry.weights[self.process]

    def close(self) -> None:
        """Send nothing more until the destination resumes; the unconfirmed is unsent."""
        self.is_open = False
        self.n_sent = 0
        self.in_flight_bytes = 0

    def remove(self, entry: Entry[C]) -> None:
        """Drop an entry of a closed outbox; it is near the front, since old ones become stable first."""
        self.entries.remove(entry)
        self.n_bytes -= entry.n_bytes
        self.close()

    def pop(self) -> Entry[C]:
        """Drop the oldest entry."""
        entry = self.entries.popleft()
        self.n_bytes -= entry.n_bytes
        if self.n_sent:
            self.n_sent -= 1
            self.in_flight_bytes -= entry.weights[self.process]
        return entry


class Window(Generic[C]):
    """The send window W of RB13 Alg. 2, with its per-destination and per-sender views.

    Parameters
    ----------
    lag_bytes : int
        Unconfirmed bytes above which a destination is slow.

    Attributes
    ----------
    n_bytes, config_bytes : int
        What all unstable instances weigh, and their configuration messages alone.
    slow : set of ProcessId
        Destinations with a backlog over `lag_bytes`.
    """

    def __init__(self, lag_bytes: int = 64 << 20) -> None:
        self.lag_bytes = lag_bytes
        self.entries: dict[int, Entry[C]] = {}
        self.outboxes: dict[ProcessId, Outbox[C]] = {}
        self.lost: dict[ProcessId, set[int]] = {}
        self.n_bytes = 0
        self.config_bytes = 0
        self.slow: set[ProcessId] = set()
        self._pending: dict[ProcessId, deque[tuple[int, Entry[C]]]] = {}

    def outbox(self, process: ProcessId) -> Outbox[C]:
        """Give the outbox of a destination."""
        found = self.outboxes.get(process)
        if found is None:
            found = self.outboxes[process] = Outbox(process)
        return found

    def add(self, entry: Entry[C]) -> set[ProcessId]:
        """Take a learned instance in; gives the senders whose numbers became stable."""
        self.entries[entry.instance] = entry
        self.n_bytes += entry.n_bytes
        self.config_bytes += entry.config_bytes
        for process in entry.deliveries:
            if process not in entry.awaited:
                continue
            outbox = self.outbox(process)
            outbox.entries.append(entry)
            outbox.n_bytes += entry.n_bytes
            if outbox.n_bytes > self.lag_bytes:
                self.slow.add(process)
        for run in entry.runs:
            pending = self._pending.setdefault(run.submission.sender, deque())
            pending.append((run.submission.first + run.start, entry))
        return self._settle(entry) if entry.is_complete else set()

    def confirm(self, process: ProcessId, upto: int) -> set[ProcessId]:
        """Count a destination's confirmation of everything up to a position."""
        outbox = self.outboxes.get(process)
        touched: set[ProcessId] = set()
        if outbox is None:
            return touched
        while outbox.entries and outbox.entries[0].last[process] <= upto:
            entry = outbox.pop()
            entry.awaited.discard(process)
            entry.confirmed.add(process)
            if entry.is_complete:
                touched |= self._settle(entry)
        self._judge(outbox)
        return touched

    def _judge(self, outbox: Outbox[C]) -> None:
        if outbox.n_bytes <= self.lag_bytes:
            self.slow.discard(outbox.process)

    def suspect(self, process: ProcessId) -> set[ProcessId]:
        """Await nothing of a process any more."""
        outbox = self.outboxes.pop(process, None)
        self.slow.discard(process)
        touched: set[ProcessId] = set()
        for entry in outbox.entries if outbox is not None else ():
            entry.awaited.discard(process)
            if entry.is_complete:
                touched |= self._settle(entry)
        return touched

    def stabilise(
        self,
        upto: int,
        lost: Iterable[tuple[ProcessId, int]],
        unstable: Set[int] = frozenset(),
    ) -> set[ProcessId]:
        """Trim what a leader says is stable: every instance up to `upto` but the `unstable` ones."""
        for sender, number in lost:
            self.lost.setdefault(sender, set()).add(number)
        touched: set[ProcessId] = set()
        for instance in [known for known in self.entries if known <= upto and known not in unstable]:
            entry = self.entries[instance]
            for process in entry.awaited:
                self.outboxes[process].remove(entry)
                self._judge(self.outboxes[process])
            entry.awaited.clear()
            touched |= self._trim(entry)
        return touched

    def _settle(self, entry: Entry[C]) -> set[ProcessId]:
        for sender, number in entry.lost():
            self.lost.setdefault(sender, set()).add(number)
        return self._trim(entry)

    def _trim(self, entry: Entry[C]) -> set[ProcessId]:
        del self.entries[entry.instance]
        self.n_bytes -= entry.n_bytes
        self.config_bytes -= entry.config_bytes
        for process, last in entry.last.items():
            if process in self.outboxes:
                outbox = self.outboxes[process]
                outbox.trimmed = max(outbox.trimmed, last)
        senders = {run.submission.sender for run in entry.runs}
        for sender in senders:
            pending = self._pending[sender]
            while pending and pending[0][1].instance not in self.entries:
                pending.popleft()
            if not pending:
                del self._pending[sender]
        return senders

    @property
    def n_pending(self) -> int:
        """How many runs are not stable, counted per sender; 0 when all is at rest."""
        return sum(map(len, self._pending.values()))

    def stable_of(self, sender: ProcessId, learned: int) -> int:
        """Give the number up to which everything of a sender is decided upon.

        Parameters
        ----------
        learned : int
            The sender's learned watermark: stable if nothing is pending.
        """
        pending = self._pending.get(sender)
        return pending[0][0] - 1 if pending else learned

    def keep_lost(self, senders: Set[ProcessId]) -> None:
        """Forget the lost numbers of all but some senders."""
        for sender in [known for known in self.lost if known not in senders]:
            del self.lost[sender]

    def forget_lost(self, sender: ProcessId, acknowledged: int) -> None:
        """Forget lost numbers that the sender has been told."""
        known = self.lost.get(sender)
        if known is not None:
            known.difference_update([number for number in known if number <= acknowledged])
            if not known:
                del self.lost[sender]
