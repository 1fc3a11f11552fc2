"""What a storage process tells its clients: results as they come, and what they ask about later.

Rules of the file: every outcome of a write is kept until its client has it, so that another
owner can tell when the reporter dies. Whoever has no session gets nothing, and will ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from crescando.engine.base import Failed, Results
from crescando.engine.written import Written
from crescando.roles.copy_messages import Outcomes
from crescando.roles.ledger import SLICE, SLICE_BYTES, Ledger, Ledgers
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Answered, Attach, Inquire, Taken
from crescando.roles.outbox import Outbox, is_long, n_outcomes, numbers_of
from crescando.types import ProcessId, Scope

FAILED_MAX = 1024
"""Refused writes whose outcomes travel together."""


class Reporter:
    """The clients of one storage process, and what they have not been told yet.

    Parameters
    ----------
    me : ProcessId
    limits : StorageLimits
    is_member : callable
        Whether a process is a member of the present configuration.

    Attributes
    ----------
    ledgers : Ledgers
    executed : int
        The position up to which this process has executed.
    """

    def __init__(self, me: ProcessId, limits: StorageLimits, is_member: Callable[[ProcessId], bool]) -> None:
        self.me = me
        self.executed = -1
        self.ledgers = Ledgers(limits.gone_s, limits.gone_records)
        self._limits = limits
        self._is_member = is_member
        self._clients: dict[ProcessId, Outbox] = {}
        self._to_send: list[tuple[ProcessId, Any]] = []

    def ledger(self, client: ProcessId) -> Ledger:
        """Give what a client may still ask about."""
        return self.ledgers.of(client, is_member=self._is_member(client))

    def on_message(self, peer: ProcessId, message: Attach | Taken | Answered | Inquire) -> None:
        """Take a client's word on its session."""
        match message:
            case Attach():
                self.end_session(peer)
                self._clients[peer] = Outbox(self._limits.answers_bytes)
            case Taken():
                if peer in self._clients:
                    self._send_all(peer, *self._clients[peer].take(message.pieces))
            case Answered():
                self.ledger(peer).forget(message.upto)
            case Inquire():
                self._to_send.append((peer, self.ledger(peer).answer(message)))

    def end_session(self, client: ProcessId) -> None:
        """Forget what waits for a client, which will ask for it."""
        outbox = self._clients.pop(client, None)
        if outbox is not None:
            self._send_all(client, [], outbox.drop())

    def call_off(self, client: ProcessId, numbers: set[int]) -> None:
        """Drop what waits for reads that nobody waits for."""
        if client in self._clients:
            self._clients[client].forget(numbers)

    def report(self, results: Sequence[Results]) -> None:
        """Keep what writes did, and send each client its results.

        Those come first who are told least: in one event loop nobody waits until
        thousands have been told.
        """
        told: dict[ProcessId, int] = {}
        for each in results:
            told[each.to] = told.get(each.to, 0) + n_outcomes(each)
        for each in sorted(results, key=lambda each: told[each.to]):
            self._report(each)

    def keep_replayed(self, results: Sequence[Results]) -> None:
        """Keep what writes did in a range that is being copied here; others tell it now."""
        for each in results:
            ledger = self.ledger(each.to)
            for written in each.written:
                ledger.keep_late(written, self._limits.records)

    def outcomes(self, scope: Scope, below: int) -> list[Outcomes]:
        """Give the outcomes of all writes below a position that concern a scope, as they travel."""
        found = []
        for client, ledger in self.ledgers.items():
            written, failed = ledger.told(scope, below)
            found += [Outcomes(client, tuple(some), ()) for some in _grouped(written)]
            found += [
                Outcomes(client, (), tuple(failed[start : start + FAILED_MAX]))
                for start in range(0, len(failed), FAILED_MAX)
            ]
        return found

    def keep_moved(self, outcomes: Outcomes, now_s: float) -> None:
        """Keep outcomes that came with a range that is being copied here."""
        client, limit = outcomes.client, self._limits.records
        ledger = self.ledgers.of_moved(client, now_s, is_member=self._is_member(client))
        for written in outcomes.written:
            ledger.keep_late(written, limit)
        for failed in outcomes.failed:
            if failed.number not in ledger.failed:
                ledger.keep_failed(failed, limit)

    def fail(self, client: ProcessId, failed: Failed) -> None:
        """Tell a client that an operation has failed."""
        self._send(Results(self.me, client, self.executed, failed=(failed,)))

    def refuse(self, client: ProcessId, failed: Failed) -> None:
        """Keep that a write was refused, and tell its client."""
        ledger = self.ledger(client)
        ledger.scopes.pop(failed.number, None)
        ledger.keep_failed(failed, self._limits.records)
        self.fail(client, failed)

    def take_to_send(self) -> list[tuple[ProcessId, Any]]:
        """Give what is to be sent."""
        to_send, self._to_send = self._to_send, []
        return to_send

    @property
    def unsent_bytes(self) -> int:
        """What waits for clients that take it slowly."""
        return sum(outbox.n_bytes for outbox in self._clients.values())

    def _report(self, results: Results) -> None:
        ledger = self.ledger(results.to)
        limit = self._limits.records
        reported = [part for written in results.written for part in ledger.keep_written(written, limit)]
        for failed in results.failed:
            _, is_write = ledger.scopes.get(failed.number, ((), False))
            ledger.report_all.discard(failed.number)
            if is_write:
                ledger.keep_failed(failed, limit)
        self._send(
            msgspec.structs.replace(results, process=self.me, executed=self.executed, written=tuple(reported))
        )

    def _send(self, results: Results) -> None:
        if not (results.rows or results.partials or results.written or results.failed):
            return
        # Whoever is not there gets nothing, and will ask.
        outbox = self._clients.get(results.to)
        if outbox is not None:
            room = self._limits.answers_total_bytes - self.unsent_bytes if is_long(results) else 0
            self._send_all(results.to, *outbox.offer(results, room))
        else:
            self._send_all(results.to, [], numbers_of(results))

    def _send_all(self, client: ProcessId, to_send: list[Results], ended: list[int]) -> None:
        """Send results, with which the answers of some reads are given."""
        self.ledger(client).leave(ended)
        if client in self._clients:
            self._to_send.extend((client, results) for results in to_send)


def _grouped(pieces: Sequence[Written]) -> Iterator[list[Written]]:
    """Put pieces together as far as they are few writes."""
    some: list[Written] = []
    n = n_bytes = 0
    for piece in pieces:
        if some and (n + len(piece) > SLICE or n_bytes + piece.n_bytes > SLICE_BYTES):
            yield some
            some, n, n_bytes = [], 0, 0
        some.append(piece)
        n += len(piece)
        n_bytes += piece.n_bytes
    if some:
        yield some
