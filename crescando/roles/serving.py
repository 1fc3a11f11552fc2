"""What a storage process shows outside the order: basic reads, and the lease for these and snapshot reads.

Rules of the file: a basic read comes from its client directly and runs behind
everything delivered (RB13 §6.7), if by then this process holds a lease, has been
told of all that its session has seen and of all that anybody had been told when the
lease was asked for, and owns the read's scope by its own configuration. That is looked
at range by range and by nothing else: no version is compared, so that neither two
layouts can be taken for one nor a change elsewhere on the ring refuses anything. What lacks
only time is held for a moment. Whatever has been read is withheld if the lease is over by the
time it would be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from crescando.engine.base import Partials, Results, Rows
from crescando.process import earliest
from crescando.roles.lease import ServingLease
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import BasicRefused, ReadBasic
from crescando.routing.batch import Delivery
from crescando.routing.ecast.messages import ReadRefused
from crescando.types import KeyRange, MessageKind, ProcessId, Scope

_READ = MessageKind.READ

SCOPES_KEPT_MAX = 4096
"""Scopes of which it is remembered whether they are owned."""

SPARED_MAX = 4096
"""Questions about exactly this replica that are remembered; far more than may be open."""

NO_LEASE = "it holds no lease: no leader that a majority backs has answered it lately"
"""Why nothing outside the order is shown (INV-11)."""


class Layout(Protocol):
    """What is asked of a configuration."""

    def is_member(self, process: ProcessId) -> bool:
        """Say whether messages of `process` have effect."""
        ...

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the ring ranges whose rows `process` holds."""
        ...

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    """Basic reads that may not run yet."""

    client: ProcessId
    ask: ReadBasic
    floor: int
    by_s: float


class Serving:
    """The reads outside the order at one storage process.

    Parameters
    ----------
    me : ProcessId
    limits : StorageLimits
        `lease_s`, `basic_wait_s` and, of what is held, `queue_bytes` are asked for.

    Attributes
    ----------
    lease : ServingLease
    """

    def __init__(self, me: ProcessId, limits: StorageLimits) -> None:
        self.me = me
        self.lease = ServingLease(limits.lease_s)
        self._wait_s = limits.basic_wait_s
        self._held_bytes = limits.queue_bytes
        self._come: list[tuple[ProcessId, ReadBasic]] = []
        self._held: deque[_Held] = deque()
        self._spared: dict[tuple[ProcessId, int], None] = {}
        self._owned: tuple[tuple[KeyRange, ...], dict[Scope, bool]] = (), {}

    # Basic reads.

    def take(self, client: ProcessId, ask: ReadBasic) -> bool:
        """Take basic reads; False if they are malformed and the session must end."""
        if ask.reads.sender != client or not _is_well_formed(ask.reads):
            return False
        self._come.append((client, ask))
        return True

    def end_session(self, client: ProcessId) -> None:
        """Forget what a client has asked, which will ask again."""
        self._come = [each for each in self._come if each[0] != client]
        self._held = deque(each for each in self._held if each.client != client)

    def look(
        self, now_s: float, *, delivered: int, config: Layout | None, is_over_budget: bool
    ) -> tuple[list[Delivery], list[tuple[ProcessId, BasicRefused]]]:
        """Give the reads that run now, behind all that is delivered, and what is refused.

        Parameters
        ----------
        now_s : float
        delivered : int
            The position that has been reached.
        config : Layout or None
            As of that position; None while this process has not joined.
        is_over_budget : bool
            Whether more waits for execution than may.
        """
        ready: list[Delivery] = []
        refusals: list[tuple[ProcessId, BasicRefused]] = []
        come, self._come = self._come, []
        n_bytes = sum(each.ask.reads.n_bytes for each in self._held)
        for client, ask in come:
            n_bytes += ask.reads.n_bytes
            if is_over_budget or n_bytes > self._held_bytes:
                refusals.append((client, self._busy(ask, "its queue is over budget")))
            else:
                floor = max(ask.seen, self.lease.floor)
                self._held.append(_Held(client, ask, floor, now_s + self._wait_s))
        held, self._held = self._held, deque()
        for each in held:
            if config is None or not self.lease.holds(now_s):
                refusals.append((each.client, self._busy(each.ask, NO_LEASE)))
                continue
            lack, is_owned = self._lack(each, delivered, config)
            if not lack:
                self._run(each, is_owned, delivered, config, ready, refusals)
            elif now_s < each.by_s:
                self._held.append(each)
                self.lease.hurry()
            else:
                refusals.append((each.client, self._busy(each.ask, lack)))
        return ready, refusals

    def _lack(self, held: _Held, delivered: int, config: Layout) -> tuple[str, Sequence[bool]]:
        """Give what time may bring still, empty if nothing; and which of the scopes are owned here."""
        is_owned = [self._owns(scope, config) for scope in held.ask.reads.scopes]
        if delivered < held.floor:
            return f"it has been told of nothing above {delivered} yet", is_owned
        if not config.is_member(held.client):
            return f"it has not heard of {held.client}", is_owned
        if delivered < held.ask.laid and not all(is_owned):
            return f"it does not know the configuration of position {held.ask.laid} yet", is_owned
        return "", is_owned

    def _run(
        self,
        held: _Held,
        is_owned: Sequence[bool],
        delivered: int,
        config: Layout,
        ready: list[Delivery],
        refusals: list[tuple[ProcessId, BasicRefused]],
    ) -> None:
        """Let the reads run whose scopes are owned here; the others are answered with who owns what."""
        reads = held.ask.reads
        is_here = np.array(is_owned, np.bool_)[reads.scope]
        if not is_here.all():
            numbers = tuple(reads.number[~is_here].tolist())
            reason = f"{self.me} does not own what it was asked for at position {delivered}"
            refused = BasicRefused(numbers, reason, position=delivered, layout=config.encode())
            refusals.append((held.client, refused))
            reads = reads.keep(is_here)
        if len(reads):
            at = np.full(len(reads), max(delivered, 0), np.int64)
            ready.append(msgspec.structs.replace(reads, position=at))

    def _owns(self, scope: Scope, config: Layout) -> bool:
        """Say whether a scope is made of whole arcs that this process owns."""
        owned = config.owned_arcs(self.me)
        if owned != self._owned[0]:
            self._owned = owned, {}
        known = self._owned[1]
        if scope not in known:
            if len(known) >= SCOPES_KEPT_MAX:
                known.clear()
            known[scope] = covers(owned, scope)
        return known[scope]

    def _busy(self, ask: ReadBasic, reason: str) -> BasicRefused:
        return BasicRefused(tuple(ask.reads.number.tolist()), f"{self.me}: {reason}", is_busy=True)

    @property
    def wake_at_s(self) -> float | None:
        """When to ask for a lease, or to refuse what is held."""
        return earliest(self.lease.wake_at_s, *(each.by_s for each in self._held))

    # Answers.

    def spare(self, client: ProcessId, number: int) -> None:
        """Let the answer to a question about exactly this replica be shown whatever the lease."""
        self._spared[client, number] = None
        if len(self._spared) > SPARED_MAX:
            del self._spared[next(iter(self._spared))]

    def screen(self, send: list[tuple[ProcessId, Any]], now_s: float) -> list[tuple[ProcessId, Any]]:
        """Give what may be sent now: without a lease, refusals instead of rows read outside the order."""
        if self.lease.holds(now_s):
            return send
        screened: list[tuple[ProcessId, Any]] = []
        for peer, message in send:
            if not isinstance(message, Results):
                screened.append((peer, message))
                continue
            spared = {number for client, number in self._spared if client == peer}
            left, withheld = without_direct(message, spared)
            if left.rows or left.partials or left.written or left.failed:
                screened.append((peer, left))
            if withheld:
                screened.append((peer, ReadRefused(tuple(withheld), f"{self.me}: {NO_LEASE}")))
        return screened


def covers(owned: Sequence[KeyRange], scope: Scope) -> bool:
    """Say whether a scope is made of whole arcs, which are disjoint and ascend."""
    stop_of = {arc.low: arc.high for arc in owned}
    for low, high in scope:
        while low in stop_of and stop_of[low] < high:
            low = stop_of[low] + 1
        if stop_of.get(low) != high:
            return False
    return bool(scope)


def without_direct(results: Results, spared: Container[int]) -> tuple[Results, list[int]]:
    """Leave out what reads outside the order have found; gives the numbers of these, each once.

    Parameters
    ----------
    results : Results
    spared : container of int
        Numbers that are left in.
    """
    gone: dict[int, None] = {}

    def stays(number: int) -> bool:
        if number > 0 or number in spared:
            return True
        gone[-number] = None
        return False

    rows = tuple(part for each in results.rows for part in _rows_that(each, stays))
    partials = tuple(part for each in results.partials for part in _partials_that(each, stays))
    failed = tuple(each for each in results.failed if stays(each.number))
    if not gone:
        return results, []
    return msgspec.structs.replace(results, rows=rows, partials=partials, failed=failed), list(gone)


def _rows_that(rows: Rows, stays: Any) -> list[Rows]:
    numbers = rows.number.tolist()
    kept = [index for index, number in enumerate(numbers) if stays(number)]
    if len(kept) == len(numbers):
        return [rows]
    found = []
    for index in kept:
        start, stop = int(rows.offsets[index]), int(rows.offsets[index + 1])
        found.append(
            Rows(
                rows.number[index : index + 1],
                rows.position[index : index + 1],
                rows.scope[index : index + 1],
                rows.scopes,
                np.array([0, stop - start], np.int64),
                rows.names,
                tuple(column.slice(start, stop) for column in rows.columns),
                0 if index else rows.part,
                rows.has_more and index == len(numbers) - 1,
            )
        )
    return found


def _partials_that(partials: Partials, stays: Any) -> list[Partials]:
    numbers = partials.number.tolist()
    kept = [index for index, number in enumerate(numbers) if stays(number)]
    if len(kept) == len(numbers):
        return [partials]
    found = []
    for index in kept:
        n_groups, keys, states = partials.of_read(index)
        found.append(
            Partials(
                partials.number[index : index + 1],
                partials.position[index : index + 1],
                partials.scope[index : index + 1],
                partials.scopes,
                np.array([0, n_groups], np.int64),
                keys,
                states,
                0 if index else partials.part,
                partials.has_more and index == len(numbers) - 1,
            )
        )
    return found


def _is_well_formed(reads: Delivery) -> bool:
    """Say whether columns from a client are what `Delivery` states, of reads with scopes."""
    n, payloads = len(reads.number), reads.payload_offsets
    lengths = {len(reads.kind), len(reads.table), len(reads.scope), len(reads.position), len(payloads) - 1}
    if not n or lengths != {n} or payloads.item(0) != 0 or payloads.item(n) != len(reads.payload):
        return False
    if (payloads[1:] < payloads[:-1]).any() or (reads.kind != _READ).any():
        return False
    numbers, scope = reads.number, reads.scope
    if numbers.item(0) < 1 or (numbers[1:] <= numbers[:-1]).any():
        return False
    if int(scope.min()) < 0 or int(scope.max()) >= len(reads.scopes):
        return False
    return all(map(_is_scope, reads.scopes))


def _is_scope(scope: Scope) -> bool:
    ends = [end for key_range in scope for end in key_range]
    return bool(ends) and all(low <= high for low, high in scope) and ends == sorted(ends)
