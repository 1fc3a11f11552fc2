"""The send window: learned instances, who must still confirm them, and what became of them.

Rules of the file: an entry is one instance, never one message. A destination's
later suspicion shrinks only the set of awaited confirmations, never a destset
or a scope. An instance leaves when nobody is awaited; numbers become stable per
sender in order, when the destinations of that sender's messages have confirmed,
so a slow destination delays only senders that address it.

Sources: RB13 Alg. 2 lines 11–12 and 17–27; EC11 §4.6 (quiescence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Delivery, Submission
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

    def wanted(self, process: ProcessId) -> Scope:
        """Give the ring ranges that `process` owns, or keeps the writes to since it is to own them.

        If a range's owners have failed before they confirmed, others have taken their places, and
        whoever was to own it then does now: the last owner that lives is never declared failed.
        """
        ...


class Audience(msgspec.Struct, eq=False):
    """The senders of one instance whose messages go to the same destinations.

    What a sender is told does not wait for destinations of others that happen
    to share its instance.

    Attributes
    ----------
    destinations : frozenset of ProcessId
    senders : list of ProcessId
    is_complete : bool
        Whether every destination has confirmed or is suspected.
    """

    destinations: frozenset[ProcessId]
    senders: list[ProcessId]
    is_complete: bool


class Entry(msgspec.Struct, Generic[C], eq=False):
    """One learned instance in the send window.

    Attributes
    ----------
    runs : list of Run
    deliveries : mapping of ProcessId to tuple of Delivery
    last : dict of ProcessId to int
        Position of the last message for each destination.
    awaited, confirmed : set of ProcessId
    audiences : list of Audience
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
    audiences: list[Audience]
    confirmed: set[ProcessId] = set()
    n_bytes: int = 0
    config_bytes: int = 0
    weights: dict[ProcessId, int] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every destination has confirmed or is suspected."""
        return not self.awaited

    def restore(self, awaited: Set[ProcessId], confirmed: Set[ProcessId]) -> None:
        """Take over how far the confirmations were."""
        self.awaited, self.confirmed = set(awaited), set(confirmed)
        for audience in self.audiences:
            audience.is_complete = audience.destinations.isdisjoint(awaited)

    def lost(self, audience: Audience) -> list[tuple[ProcessId, int]]:
        """Give the numbers of some senders of which some scope was confirmed by no process.

        Only if a destination never confirmed can there be any. Configuration
        messages are never lost: routers themselves apply them.
        """
        if audience.destinations <= self.confirmed:
            return []
        found: list[tuple[ProcessId, int]] = []
        senders = set(audience.senders)
        for run in self.runs:
            if run.submission.sender not in senders:
                continue
            kinds = run.submission.kind[run.start : run.stop]
            for group, target in enumerate(run.routes.routes):
                if isinstance(target, Refusal):
                    continue
                is_of_group = run.routes.group == group
                # Messages of one group and kind share their fate: it is judged once, not once each.
                for kind in (MessageKind.READ, MessageKind.WRITE):
                    members = np.flatnonzero(is_of_group & (kinds == kind))
                    is_read = kind is MessageKind.READ
                    if len(members) and not _is_covered(target, self.confirmed, run.config, is_read=is_read):
                        first = run.submission.first + run.start
                        found.extend((run.submission.sender, first + index) for index in members.tolist())
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
    held = [arc for process in target if process in confirmed for arc in config.wanted(process)]
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
    shares: list[Shares] = []
    addressed: dict[ProcessId, set[ProcessId]] = {}
    n_bytes = config_bytes = 0
    weighed: Submission | None = None
    for run in runs:
        submission = run.submission
        begin = position(instance, run.base)
        positions = np.arange(begin + run.start, begin + run.stop)
        share = Shares(submission, run.start, run.routes, positions, run.joined)
        shares.append(share)
        addressed.setdefault(submission.sender, set()).update(share.last)
        if submission is not weighed:
            # The runs of one submission follow one another.
            weighed = submission
            n_bytes += submission.n_bytes
            config_bytes += submission.config_bytes
    last, weights = (shares[0].last, shares[0].weights) if len(shares) == 1 else _together(shares)
    awaited = last.keys() - suspected
    audiences: dict[frozenset[ProcessId], Audience] = {}
    for sender, destinations in addressed.items():
        key = frozenset(destinations)
        audience = audiences.get(key)
        if audience is None:
            audience = audiences[key] = Audience(key, [], key.isdisjoint(awaited))
        audience.senders.append(sender)
    return Entry(
        instance=instance,
        runs=runs,
        deliveries=Deliveries(shares, last),
        last=last,
        awaited=awaited,
        audiences=list(audiences.values()),
        n_bytes=n_bytes,
        config_bytes=config_bytes,
        weights=weights,
    )


def _together(shares: Iterable[Shares]) -> tuple[dict[ProcessId, int], dict[ProcessId, int]]:
    """Give the last positions and the weights of several runs, ascending, by destination."""
    last: dict[ProcessId, int] = {}
    weights: dict[ProcessId, int] = {}
    for share in shares:
        last |= share.last
        for process, weight in share.weights.items():
            weights[process] = weights.get(process, 0) + weight
    return last, weights


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
        process = self.process
        last = entry.last[process]
        if last > self.previous:
            self.previous = last
        self.n_sent += 1
        self.in_flight_bytes += entry.weights[process]

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
        self._pending: dict[ProcessId, deque[tuple[int, Audience]]] = {}

    def outbox(self, process: ProcessId) -> Outbox[C]:
        """Give the outbox of a destination."""
        found = self.outboxes.get(process)
        if found is None:
            found = self.outboxes[process] = Outbox(process)
        return found

    def add(self, entry: Entry[C]) -> set[ProcessId]:
        """Take a learned instance in; gives the senders whose numbers became stable."""
        n_bytes, awaited, outboxes = entry.n_bytes, entry.awaited, self.outboxes
        self.entries[entry.instance] = entry
        self.n_bytes += n_bytes
        self.config_bytes += entry.config_bytes
        for process in entry.last:
            if process not in awaited:
                continue
            outbox = outboxes.get(process) or self.outbox(process)
            outbox.entries.append(entry)
            outbox.n_bytes += n_bytes
            if outbox.n_bytes > self.lag_bytes:
                self.slow.add(process)
        waiting: dict[ProcessId, Audience] = {}
        touched: set[ProcessId] = set()
        for audience in entry.audiences:
            if audience.is_complete:
                touched.update(self._settle(entry, audience))
            else:
                waiting |= dict.fromkeys(audience.senders, audience)
        for run in entry.runs:
            submission = run.submission
            audience_of_its = waiting.get(submission.sender)
            if audience_of_its is None:
                continue
            pending = self._pending.get(submission.sender)
            if pending is None:
                pending = self._pending[submission.sender] = deque()
            pending.append((submission.first + run.start, audience_of_its))
        if not awaited:
            self._trim(entry)
        return touched

    def confirm(self, process: ProcessId, upto: int) -> set[ProcessId]:
        """Count a destination's confirmation of everything up to a position."""
        outbox = self.outboxes.get(process)
        touched: set[ProcessId] = set()
        if outbox is None:
            return touched
        entries = outbox.entries
        while entries and entries[0].last[process] <= upto:
            entry = outbox.pop()
            entry.confirmed.add(process)
            self._release(entry, process, touched)
        if self.slow:
            self._judge(outbox)
        return touched

    def _release(self, entry: Entry[C], process: ProcessId, touched: set[ProcessId]) -> None:
        """Await nothing of a process for an entry any more; adds the senders that wait for nobody now."""
        awaited = entry.awaited
        awaited.discard(process)
        for audience in entry.audiences:
            if not audience.is_complete and audience.destinations.isdisjoint(awaited):
                touched.update(self._settle(entry, audience))
        if not awaited:
            self._trim(entry)

    def _judge(self, outbox: Outbox[C]) -> None:
        if outbox.n_bytes <= self.lag_bytes:
            self.slow.discard(outbox.process)

    def suspect(self, process: ProcessId) -> set[ProcessId]:
        """Await nothing of a process any more."""
        outbox = self.outboxes.pop(process, None)
        self.slow.discard(process)
        touched: set[ProcessId] = set()
        for entry in outbox.entries if outbox is not None else ():
            self._release(entry, process, touched)
        return touched

    def await_members(self, is_member: Callable[[ProcessId], bool]) -> set[ProcessId]:
        """Await nothing of who is no member any more; gives the senders that wait for nobody now."""
        gone = [p for p, outbox in self.outboxes.items() if outbox.entries and not is_member(p)]
        return set[ProcessId]().union(*map(self.suspect, gone))

    def stabilise(
        self,
        upto: int,
        lost: Iterable[tuple[ProcessId, int]],
        unstable: Set[int] = frozenset(),
        trimmed: Iterable[tuple[ProcessId, int]] = (),
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
            for audience in entry.audiences:
                touched.update(self._advance(audience))
            self._trim(entry)
        for process, at in trimmed:
            outbox = self.outbox(process)
            outbox.trimmed = max(outbox.trimmed, at)
        return touched

    def _settle(self, entry: Entry[C], audience: Audience) -> Iterable[ProcessId]:
        for sender, number in entry.lost(audience):
            self.lost.setdefault(sender, set()).add(number)
        return self._advance(audience)

    def _advance(self, audience: Audience) -> Iterable[ProcessId]:
        """Let the senders of a complete audience get on, as far as nothing earlier of theirs waits."""
        audience.is_complete = True
        for sender in audience.senders:
            pending = self._pending.get(sender)
            while pending and pending[0][1].is_complete:
                pending.popleft()
            if pending is not None and not pending:
                del self._pending[sender]
        return audience.senders

    def _trim(self, entry: Entry[C]) -> None:
        del self.entries[entry.instance]
        self.n_bytes -= entry.n_bytes
        self.config_bytes -= entry.config_bytes
        outboxes = self.outboxes
        for process, last in entry.last.items():
            outbox = outboxes.get(process)
            if outbox is not None and last > outbox.trimmed:
                outbox.trimmed = last

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

    def keep(self, senders: Set[ProcessId], is_there: Callable[[ProcessId], bool]) -> None:
        """Forget the lost numbers of all but some senders, and the empty outboxes of who is not there."""
        for sender in [known for known in self.lost if known not in senders]:
            del self.lost[sender]
        for process, outbox in list(self.outboxes.items()):
            if not outbox.entries and not is_there(process):
                del self.outboxes[process]

    def take_acknowledged(self, submissions: Iterable[Submission]) -> None:
        """Forget what senders say in learned messages that they have been told."""
        if self.lost:
            for submission in submissions:
                self.forget_lost(submission.sender, submission.acknowledged)

    def forget_lost(self, sender: ProcessId, acknowledged: int) -> None:
        """Forget lost numbers that the sender has been told."""
        known = self.lost.get(sender)
        if known is not None:
            known.difference_update([number for number in known if number <= acknowledged])
            if not known:
                del self.lost[sender]
